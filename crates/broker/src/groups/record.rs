//! What is known of a group, and how far in the events, as records of the store.
//!
//! **Invariant:** how many members there are and up to which event they were counted is one record, replaced only by who
//! saw it as it was. So an event is counted once, whoever reads it how often, and wherever anybody is killed.

use crate::broker::Shared;
use bytes::Bytes;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::sync::Arc;
use towline_domain::kv::{KvAnswer, KvCommand, KvRecord};
use towline_domain::{EventKind, GroupCounts, GroupTag, StateKind, limits};
use towline_store::{Event, EventCursor, Operation, Reply, Result, StoreError};

const PREFIX: &str = "towline/group/";
const PROGRESS: &str = "towline/groups";
/// Somebody else counts the same events at the same time: each time one loses, the other is further.
const TRIES: u32 = 100;

/// How far the events have been read.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Progress {
    at: String,
    /// How often it had to be begun anew because something was missed: what was counted before is counted again when
    /// it is asked for.
    pub(super) epoch: u64,
}

#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub(super) struct Group {
    pub(super) counts: GroupCounts,
    /// Up to where in the events, as text.
    at: String,
    /// When it was last counted from its items.
    pub(super) epoch: u64,
}

/// A group, and the bytes it must still be when it is replaced.
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
        tracing::error!("a group's record does not decode, and is made again: {error}");
    }
    Seen { group: group.ok(), bytes: Some(value) }
}

impl Progress {
    pub(super) fn new(at: &EventCursor, epoch: u64) -> Progress {
        Progress { at: at.to_string(), epoch }
    }

    /// `None`: it says nothing that could be gone on from.
    pub(super) fn cursor(&self) -> Option<EventCursor> {
        self.at.parse().ok()
    }
}

impl Group {
    pub(super) fn counted(counts: GroupCounts, at: &EventCursor, epoch: u64) -> Group {
        Group { counts, at: at.to_string(), epoch }
    }

    /// Counts what has not been counted yet.
    fn add(&mut self, events: &[&Event], through: &EventCursor) {
        // A group that nothing is known of has had no events.
        let mut at: EventCursor = self.at.parse().unwrap_or_default();
        for event in events.iter().filter(|event| !at.has_passed(event.id)) {
            add(&mut self.counts, event);
        }
        // Somebody who counted the items themselves may be further.
        at.advance(through);
        self.at = at.to_string();
    }
}

fn add(counts: &mut GroupCounts, event: &Event) {
    let state = event.item.as_ref().and_then(|item| item.after.as_ref()).map(|after| after.state);
    match event.kind {
        EventKind::Submitted | EventKind::Restored => counts.members += 1,
        // Who is told to have left a group was unfinished.
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

impl Shared {
    pub(super) async fn read_progress(&self) -> Result<Option<Progress>> {
        let found = self.store.kv_get(vec![PROGRESS.to_owned()]).await?.pop().flatten();
        Ok(found.map(|record| {
            rmp_serde::from_slice(&record.value).unwrap_or_else(|error| {
                tracing::error!("how far groups were counted does not decode; it is begun anew: {error}");
                Progress { at: String::new(), epoch: 0 }
            })
        }))
    }

    /// Whether it was the first.
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

    /// Counts events of groups, each once; how these groups stand then.
    pub(super) async fn count_events(
        self: &Arc<Self>,
        events: &BTreeMap<GroupTag, Vec<&Event>>,
        through: &EventCursor,
    ) -> Result<BTreeMap<GroupTag, GroupCounts>> {
        let mut stand = BTreeMap::new();
        let mut left: Vec<GroupTag> = events.keys().copied().collect();
        for _ in 0..TRIES {
            let mut asked = Vec::new();
            let mut batch = Vec::new();
            for (tag, seen) in left.iter().zip(self.read_groups(&left).await?) {
                let before = seen.group.clone().unwrap_or_default();
                let mut after = before.clone();
                after.add(&events[tag], through);
                stand.insert(*tag, after.counts);
                if after != before {
                    asked.push(*tag);
                    batch.push(replace(*tag, seen, &after)?);
                }
            }
            let mut lost = Vec::new();
            for (tag, answer) in asked.iter().zip(self.update_records(batch).await?) {
                if won(Some(&answer))? != Some(true) {
                    lost.push(*tag);
                }
            }
            left = lost;
            if left.is_empty() {
                return Ok(stand);
            }
        }
        Err(StoreError::Unavailable { cause: "others count the same groups, again and again".to_owned() })
    }

    async fn update_records(&self, batch: Vec<Operation>) -> Result<Vec<towline_store::Answered>> {
        let mut answers = Vec::with_capacity(batch.len());
        for part in batch.chunks(limits::BATCH_MAX) {
            answers.extend(self.execute(part.to_vec()).await?);
        }
        Ok(answers)
    }

    /// Whether it was still what was seen.
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

/// `None`: something that was not asked.
fn won(answer: Option<&towline_store::Answered>) -> Result<Option<bool>> {
    match answer {
        Some(Ok(Reply::Kv(KvAnswer::Won(won)))) => Ok(Some(*won)),
        Some(Err(error)) => Err(error.clone().into_fault()),
        _ => Ok(None),
    }
}
