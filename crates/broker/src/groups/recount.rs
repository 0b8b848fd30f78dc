//! Counts groups from their items, where there are no counts yet or events were missed.

use super::record::add;
use crate::broker::Shared;
use crate::feed;
use std::collections::HashMap;
use std::time::Duration;
use towline_domain::{
    EventKind, FieldSet, GroupCounts, GroupTag, HeadFilter, ItemId, State, StateKind, StateName, limits,
};
use towline_store::{EventCursor, Events, EventsFrom, Filter, Result, StoreError};

const PAGE: usize = 1000;
/// Attempts, if events are deleted meanwhile.
const TRIES: u32 = 5;
/// Between two reads of events.
const PAUSE: Duration = Duration::from_millis(5);
const READS_MAX: u32 = 400;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum MemberState {
    Unfinished,
    Completed,
    Failed,
    Removed,
}

fn members_of(name: &str) -> Filter {
    Filter { group: Some(name.to_owned()), ..Filter::default() }
}

impl Shared {
    /// Whether the store has an unfinished member of the group.
    pub(super) async fn has_unfinished(&self, name: &str) -> Result<bool> {
        let head = HeadFilter { state: Some(StateName::Unfinished), ..HeadFilter::default() };
        let filter = Filter { head, ..members_of(name) };
        let mut after = None;
        loop {
            let page = self.store.list(filter.clone(), after, 1, FieldSet::NONE).await?;
            match (page.items.is_empty(), page.next) {
                (false, _) => return Ok(true),
                (true, None) => return Ok(false),
                (true, next) => after = next,
            }
        }
    }

    /// The counts of a group, and the cursor up to which they hold. `known` are earlier counts and the cursor up to which they
    /// hold. Without them, deleted members are not counted.
    pub(super) async fn recount(
        &self,
        name: &str,
        known: Option<(GroupCounts, EventCursor)>,
    ) -> Result<(GroupCounts, EventCursor)> {
        let (known, mut through) = known.unzip();
        for _ in 0..TRIES {
            if let Some(counted) = self.recount_once(name, known, through.take()).await? {
                return Ok(counted);
            }
            // An event after the known counts was deleted: the next attempt does without it.
        }
        Err(StoreError::Unavailable {
            cause: "the store deletes events before they can be read; try again".to_owned(),
        })
    }

    /// `None`: an event was deleted meanwhile.
    async fn recount_once(
        &self,
        name: &str,
        mut known: Option<GroupCounts>,
        through: Option<EventCursor>,
    ) -> Result<Option<(GroupCounts, EventCursor)>> {
        let tag = GroupTag::of(name);
        let begun = feed::now(self).await?;
        let mut members = self.list_members(name).await?;
        let mut at = begun.clone();
        at.join(&through.unwrap_or_default());
        for _ in 0..READS_MAX {
            let read = self.store.events(EventsFrom::After(at.clone()), limits::EVENTS_PAGE_MAX).await?;
            let Events::Page(page) = read else { return Ok(None) };
            let is_empty = page.events.is_empty();
            for event in &page.events {
                let Some(item) = event.item.as_ref().filter(|item| item.group == Some(tag)) else { continue };
                if let Some(known) = &mut known {
                    add(known, event);
                }
                if begun.has_passed(event.id) {
                    continue;
                }
                // The list may or may not include this event. It sets a member's state, so applying it twice is harmless.
                let state = match (event.kind, item.after.as_ref().map(|after| after.state)) {
                    (_, Some(StateKind::Completed)) => MemberState::Completed,
                    (_, Some(StateKind::Failed)) => MemberState::Failed,
                    (EventKind::Removed, _) => MemberState::Removed,
                    _ => MemberState::Unfinished,
                };
                members.insert(item.id, state);
            }
            at.join(&page.next);
            if !page.more {
                return Ok(Some((reconcile(sum(&members), known), at)));
            }
            if is_empty {
                tokio::time::sleep(PAUSE).await;
            }
        }
        Ok(None)
    }

    async fn list_members(&self, name: &str) -> Result<HashMap<ItemId, MemberState>> {
        let mut members = HashMap::new();
        let mut after = None;
        loop {
            let page = self.store.list(members_of(name), after, PAGE, FieldSet::HEADS).await?;
            for stored in page.items {
                let state = match stored.item.head.state {
                    State::Completed { .. } => MemberState::Completed,
                    State::Failed { .. } => MemberState::Failed,
                    State::Pending | State::Processing(_) | State::Paused => MemberState::Unfinished,
                };
                members.insert(stored.item.head.id, state);
            }
            match page.next {
                None => return Ok(members),
                next => after = next,
            }
        }
    }
}

fn sum(members: &HashMap<ItemId, MemberState>) -> GroupCounts {
    let of = |state| members.values().filter(|one| **one == state).count() as u64;
    GroupCounts {
        members: members.len() as u64,
        completed: of(MemberState::Completed),
        failed: of(MemberState::Failed),
        removed: of(MemberState::Removed),
    }
}

/// The counts of the members that were found, and of those that are only known from events. A member that was unfinished and
/// is gone without an event was removed with its queue.
fn reconcile(found: GroupCounts, known: Option<GroupCounts>) -> GroupCounts {
    let Some(known) = known else { return found };
    let (unfinished, completed, failed) =
        (found.unfinished(), known.completed.max(found.completed), known.failed.max(found.failed));
    let present = unfinished + completed + failed;
    let members = known.members.max(present + known.removed.max(found.removed));
    GroupCounts { members, completed, failed, removed: members - present }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn counts(members: u64, completed: u64, failed: u64, removed: u64) -> GroupCounts {
        GroupCounts { members, completed, failed, removed }
    }

    #[test]
    fn members_that_vanish_unfinished_are_removed_and_no_others() {
        let found = |found, known| reconcile(found, Some(known));
        assert_eq!(reconcile(counts(3, 1, 0, 0), None), counts(3, 1, 0, 0));
        assert_eq!(found(counts(3, 1, 0, 0), counts(3, 1, 0, 0)), counts(3, 1, 0, 0));
        // Two finished members were removed by their TTL, and two unfinished ones with their queue.
        assert_eq!(found(counts(1, 0, 0, 0), counts(5, 1, 1, 0)), counts(5, 1, 1, 2));
        // The record expired, and a new one counts one member.
        assert_eq!(found(counts(4, 3, 0, 0), counts(1, 0, 0, 0)), counts(4, 3, 0, 0));
        assert_eq!(found(counts(2, 1, 0, 0), counts(3, 1, 0, 1)), counts(3, 1, 0, 1));
        assert_eq!(found(counts(2, 1, 0, 1), counts(3, 1, 0, 1)), counts(3, 1, 0, 2));
    }
}
