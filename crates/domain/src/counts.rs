//! How many items of a queue are in each state. Stores update the counts with every change, so reading them is O(1).

use crate::state_name::StateName;
use serde::{Deserialize, Serialize};

#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct Counts {
    /// Ready now.
    pub pending: u64,
    /// Pending, with `ready_at` in the future.
    pub scheduled: u64,
    pub processing: u64,
    pub paused: u64,
    pub completed: u64,
    pub failed: u64,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum CountKind {
    Pending,
    Scheduled,
    Processing,
    Paused,
    Completed,
    Failed,
}

impl CountKind {
    pub const ALL: [CountKind; 6] = [
        CountKind::Pending,
        CountKind::Scheduled,
        CountKind::Processing,
        CountKind::Paused,
        CountKind::Completed,
        CountKind::Failed,
    ];
}

impl Counts {
    /// How many items are in a state. Without a state: all.
    #[must_use]
    pub fn in_state(&self, state: Option<StateName>) -> u64 {
        let matches = |kind: &CountKind| state.is_none_or(|state| state.matches(*kind));
        CountKind::ALL.iter().filter(|kind| matches(kind)).map(|&kind| self.get(kind)).sum()
    }

    /// What `depth_limit` limits: pending, scheduled and paused items.
    #[must_use]
    pub fn depth(&self) -> u64 {
        self.pending.saturating_add(self.scheduled).saturating_add(self.paused)
    }

    /// Items that are not finished. A closed queue without any is completed.
    #[must_use]
    pub fn unfinished(&self) -> u64 {
        self.depth().saturating_add(self.processing)
    }

    #[must_use]
    pub fn total(&self) -> u64 {
        self.unfinished().saturating_add(self.completed).saturating_add(self.failed)
    }

    #[must_use]
    pub fn get(&self, kind: CountKind) -> u64 {
        match kind {
            CountKind::Pending => self.pending,
            CountKind::Scheduled => self.scheduled,
            CountKind::Processing => self.processing,
            CountKind::Paused => self.paused,
            CountKind::Completed => self.completed,
            CountKind::Failed => self.failed,
        }
    }

    #[must_use]
    pub fn plus(&self, other: &Counts) -> Counts {
        Counts {
            pending: self.pending.saturating_add(other.pending),
            scheduled: self.scheduled.saturating_add(other.scheduled),
            processing: self.processing.saturating_add(other.processing),
            paused: self.paused.saturating_add(other.paused),
            completed: self.completed.saturating_add(other.completed),
            failed: self.failed.saturating_add(other.failed),
        }
    }

    fn slot(&mut self, kind: CountKind) -> &mut u64 {
        match kind {
            CountKind::Pending => &mut self.pending,
            CountKind::Scheduled => &mut self.scheduled,
            CountKind::Processing => &mut self.processing,
            CountKind::Paused => &mut self.paused,
            CountKind::Completed => &mut self.completed,
            CountKind::Failed => &mut self.failed,
        }
    }

    pub fn add(&mut self, kind: CountKind) {
        *self.slot(kind) += 1;
    }

    /// **Invariant:** never below zero. A store removes only what it has counted.
    pub fn remove(&mut self, kind: CountKind) {
        let slot = self.slot(kind);
        debug_assert!(*slot > 0, "{kind:?} counted below zero");
        *slot = slot.saturating_sub(1);
    }
}
