//! Counts groups from their items, where there are no counts yet or events were missed.

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

    /// The counts of a group, and the cursor up to which they hold. Deleted members are not counted.
    pub(super) async fn recount(&self, name: &str) -> Result<(GroupCounts, EventCursor)> {
        for _ in 0..TRIES {
            if let Some(counted) = self.recount_once(name).await? {
                return Ok(counted);
            }
        }
        Err(StoreError::Unavailable {
            cause: "the store deletes events before they can be read; try again".to_owned(),
        })
    }

    /// `None`: an event was deleted meanwhile.
    async fn recount_once(&self, name: &str) -> Result<Option<(GroupCounts, EventCursor)>> {
        let tag = GroupTag::of(name);
        let begun = feed::now(self).await?;
        let mut members: HashMap<ItemId, MemberState> = HashMap::new();
        let mut after = None;
        loop {
            let page = self.store.list(members_of(name), after, PAGE, FieldSet::NONE).await?;
            for stored in page.items {
                let state = match stored.item.head.state {
                    State::Completed { .. } => MemberState::Completed,
                    State::Failed { .. } => MemberState::Failed,
                    State::Pending | State::Processing(_) | State::Paused => MemberState::Unfinished,
                };
                members.insert(stored.item.head.id, state);
            }
            match page.next {
                None => break,
                next => after = next,
            }
        }
        // The list may or may not include these events. Each sets a member's state, so applying one twice is harmless.
        let mut at = begun;
        for _ in 0..READS_MAX {
            let read = self.store.events(EventsFrom::After(at.clone()), limits::EVENTS_PAGE_MAX).await?;
            let Events::Page(page) = read else { return Ok(None) };
            let is_empty = page.events.is_empty();
            for event in page.events {
                let Some(item) = event.item.filter(|item| item.group == Some(tag)) else { continue };
                let state = match (event.kind, item.after.map(|after| after.state)) {
                    (_, Some(StateKind::Completed)) => MemberState::Completed,
                    (_, Some(StateKind::Failed)) => MemberState::Failed,
                    (EventKind::Removed, _) => MemberState::Removed,
                    _ => MemberState::Unfinished,
                };
                members.insert(item.id, state);
            }
            at.join(&page.next);
            if !page.more {
                return Ok(Some((sum(&members), at)));
            }
            if is_empty {
                tokio::time::sleep(PAUSE).await;
            }
        }
        Ok(None)
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
