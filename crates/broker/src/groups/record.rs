//! The counts of groups and the position in the events, as records of the store.
//!
//! **Invariant:** the counts of a group and the cursor of the last counted event are one record, which is replaced by
//! compare-and-set. So each event is counted once, however many brokers read it and whenever one of them is killed.

use crate::broker::Shared;
use bytes::Bytes;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::sync::Arc;
use towline_domain::kv::{KvAnswer, KvCommand, KvRecord};
use towline_domain::{EventKind, GroupCounts, GroupTag, StateKind, limits};
use towline_store::{Event, EventCursor, Operation, Reply, Result, Store, StoreError};

const PREFIX: &str = "towline/group/";
const PROGRESS: &str = "towline/groups";
/// Another broker may count the same events. Each lost attempt means that the other one made progress.
const TRIES: u32 = 100;

/// How far the events have been read.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Progress {
    at: String,
    /// Counts the times after which groups have to be recounted: missed events, and deleted queues.
    pub(super) recount_number: u64,
}

#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub(super) struct Group {
    pub(super) counts: GroupCounts,
    /// The cursor of the last counted event, as text.
    at: String,
    /// The number of its last recount; 0 if there was none.
    pub(super) recount_number: u64,
}

/// A group, and the stored bytes that a replacement compares.
#[derive(Debug, Default)]
pub(super) struct Seen {
    pub(super) group: Option<Group>,
    bytes: Option<Bytes>,
}

fn key(tag: GroupTag) -> String {
    format!("{PREFIX}{:016x}", tag.0)
}

fn encode(value: &impl Serialize) -> Result<Bytes> {
    let written = rmp_serde::to_vec_named(value);
    written.map(Bytes::from).map_err(|error| StoreError::Unavailable { cause: error.to_string() })
}

fn decode(record: Option<KvRecord>) -> Seen {
    let Some(KvRecord { value, .. }) = record else { return Seen::default() };
    let group = rmp_serde::from_slice::<Group>(&value);
    if let Err(error) = &group {
        tracing::error!("the record of a group does not decode and is written again from zero: {error}");
    }
    Seen { group: group.ok(), bytes: Some(value) }
}

impl Progress {
    pub(super) fn new(at: &EventCursor, recount_number: u64) -> Progress {
        Progress { at: at.to_string(), recount_number }
    }

    /// `None`: the text is not a cursor.
    pub(super) fn cursor(&self) -> Option<EventCursor> {
        self.at.parse().ok()
    }
}

impl Group {
    pub(super) fn counted(counts: GroupCounts, at: &EventCursor, recount_number: u64) -> Group {
        Group { counts, at: at.to_string(), recount_number }
    }

    /// The cursor up to which all events of the group are counted. `counted`: up to which those of all groups are.
    pub(super) fn counted_through(&self, mut counted: EventCursor) -> EventCursor {
        counted.advance(&self.at.parse().unwrap_or_default());
        counted
    }

    /// Counts the events that are not counted yet.
    fn add(&mut self, events: &[&Event], through: &EventCursor) {
        // A new group has no cursor.
        let mut at: EventCursor = self.at.parse().unwrap_or_default();
        for event in events.iter().filter(|event| !at.has_passed(event.id)) {
            add(&mut self.counts, event);
        }
        // A recount may be further than `through`.
        at.advance(through);
        self.at = at.to_string();
    }
}

pub(super) fn add(counts: &mut GroupCounts, event: &Event) {
    let state = event.item.as_ref().and_then(|item| item.after.as_ref()).map(|after| after.state);
    match event.kind {
        EventKind::Submitted | EventKind::Restored => counts.members += 1,
        // A removal names its group only if the member was unfinished.
        EventKind::Removed => counts.removed += 1,
        EventKind::Redriven => counts.failed = counts.failed.saturating_sub(1),
        _ => {}
    }
    match state {
        Some(StateKind::Completed) => counts.completed += 1,
        Some(StateKind::Failed) => counts.failed += 1,
        _ => {}
    }
}

/// Makes the next broker of a store count its groups, from their items, and resolve dependencies. For an import, which has no
/// events of the members.
pub fn begin_groups() -> Result<Operation> {
    Shared::save_progress(&Progress { at: String::new(), recount_number: 0 })
}

/// Whether a broker of the store counts groups.
pub async fn groups_are_begun(store: &dyn Store) -> Result<bool> {
    Ok(store.kv_get(vec![PROGRESS.to_owned()]).await?.pop().flatten().is_some())
}

impl Shared {
    pub(super) async fn read_progress(&self) -> Result<Option<Progress>> {
        let found = self.store.kv_get(vec![PROGRESS.to_owned()]).await?.pop().flatten();
        Ok(found.map(|record| {
            rmp_serde::from_slice(&record.value).unwrap_or_else(|error| {
                tracing::error!("the cursor of the groups does not decode; groups are recounted: {error}");
                Progress { at: String::new(), recount_number: super::FIRST_RECOUNT_NUMBER }
            })
        }))
    }

    /// Whether there was no such record before.
    pub(super) async fn begin_progress(&self, progress: &Progress) -> Result<bool> {
        let command = KvCommand::SetIfAbsent { value: encode(progress)?, ttl: None };
        let operation = Operation::Kv { key: PROGRESS.to_owned(), command };
        let answers = self.execute(vec![operation]).await?;
        won(answers.first()).map(|won| won == Some(true))
    }

    pub(super) fn save_progress(progress: &Progress) -> Result<Operation> {
        let command = KvCommand::Set { value: encode(progress)?, ttl: None };
        Ok(Operation::Kv { key: PROGRESS.to_owned(), command })
    }

    pub(super) async fn read_groups(&self, tags: &[GroupTag]) -> Result<Vec<Seen>> {
        let mut seen = Vec::with_capacity(tags.len());
        for tags in tags.chunks(limits::BATCH_MAX) {
            let records = self.store.kv_get(tags.iter().map(|&tag| key(tag)).collect()).await?;
            seen.extend(records.into_iter().map(decode));
        }
        Ok(seen)
    }

    /// Counts events of groups, each once. Returns the new counts.
    pub(super) async fn count_events(
        self: &Arc<Self>,
        events: &BTreeMap<GroupTag, Vec<&Event>>,
        through: &EventCursor,
    ) -> Result<BTreeMap<GroupTag, GroupCounts>> {
        let mut counts = BTreeMap::new();
        let mut left: Vec<GroupTag> = events.keys().copied().collect();
        for _ in 0..TRIES {
            let mut changed = Vec::new();
            let mut batch = Vec::new();
            for (tag, seen) in left.iter().zip(self.read_groups(&left).await?) {
                let before = seen.group.clone().unwrap_or_default();
                let mut after = before.clone();
                after.add(&events[tag], through);
                counts.insert(*tag, after.counts);
                if after != before {
                    changed.push(*tag);
                    batch.push(replace(*tag, seen, &after)?);
                }
            }
            let mut lost = Vec::new();
            for (tag, answer) in changed.iter().zip(self.update_records(batch).await?) {
                if won(Some(&answer))? != Some(true) {
                    lost.push(*tag);
                }
            }
            left = lost;
            if left.is_empty() {
                return Ok(counts);
            }
        }
        Err(StoreError::Unavailable {
            cause: "other servers keep changing the counts of the same groups".to_owned(),
        })
    }

    async fn update_records(&self, batch: Vec<Operation>) -> Result<Vec<towline_store::Answered>> {
        let mut answers = Vec::with_capacity(batch.len());
        for part in batch.chunks(limits::BATCH_MAX) {
            answers.extend(self.execute(part.to_vec()).await?);
        }
        Ok(answers)
    }

    /// Whether the record had not changed since it was read.
    pub(super) async fn put_group(&self, tag: GroupTag, seen: Seen, group: &Group) -> Result<bool> {
        let answers = self.execute(vec![replace(tag, seen, group)?]).await?;
        won(answers.first()).map(|won| won == Some(true))
    }
}

fn replace(tag: GroupTag, seen: Seen, after: &Group) -> Result<Operation> {
    let done = after.counts.is_done(0);
    let ttl = Some(if done { limits::GROUP_DONE_KEPT } else { limits::GROUP_OPEN_KEPT });
    let command = KvCommand::Replace { seen: seen.bytes, value: Some(encode(after)?), ttl };
    Ok(Operation::Kv { key: key(tag), command })
}

/// `None`: unexpected reply type.
fn won(answer: Option<&towline_store::Answered>) -> Result<Option<bool>> {
    match answer {
        Some(Ok(Reply::Kv(KvAnswer::Won(won)))) => Ok(Some(*won)),
        Some(Err(error)) => Err(error.clone().into_fault()),
        _ => Ok(None),
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "tests")]
mod tests {
    use super::*;
    use crate::golden;

    const CURSOR: &str = "AAAAAQAAAAAAAAAHAAAAAw";

    #[test]
    fn a_stored_group_stays_readable() {
        let counts = GroupCounts { members: 9, completed: 4, failed: 2, removed: 1 };
        let group = Group { counts, at: CURSOR.to_owned(), recount_number: 3 };
        golden::check(&group, GROUP);
    }

    #[test]
    fn stored_progress_stays_readable() {
        golden::check(&Progress { at: CURSOR.to_owned(), recount_number: 3 }, PROGRESS_BYTES);
    }

    const GROUP: &str = concat!(
        "83a6636f756e747384a76d656d6265727309a9636f6d706c6574656404a66661696c656402a772656d6f76656401a261",
        "74b641414141415141414141414141414148414141414177ae7265636f756e745f6e756d62657203",
    );
    const PROGRESS_BYTES: &str =
        "82a26174b641414141415141414141414141414148414141414177ae7265636f756e745f6e756d62657203";
}
