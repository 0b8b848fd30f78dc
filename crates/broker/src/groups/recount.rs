//! Groups counted from their items: where nothing was counted, or not all of it was told.

use crate::broker::Shared;
use crate::feed;
use std::collections::HashMap;
use std::time::Duration;
use towline_domain::{
    EventKind, FieldSet, GroupCounts, GroupTag, HeadFilter, ItemId, State, StateKind, StateName, limits,
};
use towline_store::{EventCursor, Events, EventsFrom, Filter, Result, StoreError};

const PAGE: usize = 1000;
/// How often it is begun anew because events were gone meanwhile.
const TRIES: u32 = 5;
/// Between looks whether all that was seen has been told.
const PAUSE: Duration = Duration::from_millis(5);
const LOOKS: u32 = 400;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Standing {
    Unfinished,
    Completed,
    Failed,
    Removed,
}

fn members_of(name: &str) -> Filter {
    Filter { group: Some(name.to_owned()), ..Filter::default() }
}

impl Shared {
    /// Whether a member of the group is not finished, as the store has it.
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

    /// How its members stand, and up to which event that is so. Members that are not kept any more are not counted.
    pub(super) async fn recount(&self, name: &str) -> Result<(GroupCounts, EventCursor)> {
        for _ in 0..TRIES {
            if let Some(counted) = self.recount_once(name).await? {
                return Ok(counted);
            }
        }
        Err(StoreError::Unavailable { cause: "events are gone before they can be read".to_owned() })
    }

    /// `None`: what happened meanwhile cannot be read any more.
    async fn recount_once(&self, name: &str) -> Result<Option<(GroupCounts, EventCursor)>> {
        let tag = GroupTag::of(name);
        let begun = feed::now(self).await?;
        let mut members: HashMap<ItemId, Standing> = HashMap::new();
        let mut after = None;
        loop {
            let page = self.store.list(members_of(name), after, PAGE, FieldSet::NONE).await?;
            for stored in page.items {
                let standing = match stored.item.head.state {
                    State::Completed { .. } => Standing::Completed,
                    State::Failed { .. } => Standing::Failed,
                    State::Pending | State::Processing(_) | State::Paused => Standing::Unfinished,
                };
                members.insert(stored.item.head.id, standing);
            }
            match page.next {
                None => break,
                next => after = next,
            }
        }
        // What happened meanwhile was seen or not. Said of each member once more, it makes no difference.
        let mut at = begun;
        for _ in 0..LOOKS {
            let told = self.store.events(EventsFrom::After(at.clone()), limits::EVENTS_PAGE_MAX).await?;
            let Events::Page(page) = told else { return Ok(None) };
            let idle = page.events.is_empty();
            for event in page.events {
                let Some(item) = event.item.filter(|item| item.group == Some(tag)) else { continue };
                let standing = match (event.kind, item.after.map(|after| after.state)) {
                    (_, Some(StateKind::Completed)) => Standing::Completed,
                    (_, Some(StateKind::Failed)) => Standing::Failed,
                    (EventKind::Removed, _) => Standing::Removed,
                    _ => Standing::Unfinished,
                };
                members.insert(item.id, standing);
            }
            at.join(&page.next);
            if !page.more {
                return Ok(Some((sum(&members), at)));
            }
            if idle {
                tokio::time::sleep(PAUSE).await;
            }
        }
        Ok(None)
    }
}

fn sum(members: &HashMap<ItemId, Standing>) -> GroupCounts {
    let of = |standing| members.values().filter(|one| **one == standing).count() as u64;
    GroupCounts {
        members: members.len() as u64,
        completed: of(Standing::Completed),
        failed: of(Standing::Failed),
        removed: of(Standing::Removed),
    }
}
