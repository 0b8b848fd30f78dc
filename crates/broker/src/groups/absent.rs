//! Dependencies that the store no longer has, until it is known how they ended.
//!
//! The store shows a later moment than the events that were read: an item may have completed after the last of them. How it ended
//! is known once all events up to the moment at which the store was asked are counted.

use std::collections::{HashSet, VecDeque};
use towline_domain::ItemId;
use towline_store::EventCursor;

#[derive(Debug, Default)]
pub(super) struct Absent {
    known: HashSet<ItemId>,
    /// In order: the end of the events after the store was asked, and the items that it did not have.
    rounds: VecDeque<(EventCursor, Vec<ItemId>)>,
}

impl Absent {
    pub(super) fn is_empty(&self) -> bool {
        self.rounds.is_empty()
    }

    pub(super) fn contains(&self, id: ItemId) -> bool {
        self.known.contains(&id)
    }

    pub(super) fn put(&mut self, ids: Vec<ItemId>, end: EventCursor) {
        self.known.extend(&ids);
        self.rounds.push_back((end, ids));
    }

    /// The cursor that decides about the earliest items.
    pub(super) fn next_end(&self) -> Option<&EventCursor> {
        self.rounds.front().map(|(end, _)| end)
    }

    /// Takes the earliest items.
    pub(super) fn take(&mut self) -> Vec<ItemId> {
        let ids = self.rounds.pop_front().map(|(_, ids)| ids).unwrap_or_default();
        for id in &ids {
            self.known.remove(id);
        }
        ids
    }
}
