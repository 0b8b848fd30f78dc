//! The events that a system reports, and their counts.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

/// Something that happened in this system.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum Event {
    Submitted {
        id: String,
        kind: String,
    },
    Started {
        id: String,
        kind: String,
        attempt: u32,
    },
    Completed {
        id: String,
        kind: String,
    },
    Retried {
        id: String,
        kind: String,
        attempt: u32,
        error: String,
        pause: Duration,
    },
    Deferred {
        id: String,
        kind: String,
        delay: Duration,
    },
    /// The work is now a dead letter and can be redriven.
    Failed {
        id: String,
        kind: String,
        error: String,
    },
    /// The system received an item that it does not run now, and deferred it. The attempt does not count.
    Declined {
        kind: String,
        reason: &'static str,
    },
    /// Another worker has the item, or will get it.
    LeaseLost {
        id: String,
        kind: String,
    },
    GroupDone {
        group: String,
    },
    /// This system submitted an occurrence of a schedule.
    ScheduleFired {
        schedule: String,
    },
    /// More items wait in a queue than [`crate::Builder::backlog_alarm`] allows.
    Backlog {
        depth: u64,
    },
    /// A call of the backend failed. The engine repeats it.
    BackendError {
        operation: &'static str,
        error: String,
    },
}

/// The events since the start, counted.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Stats {
    pub submitted: u64,
    pub started: u64,
    pub completed: u64,
    pub retried: u64,
    pub deferred: u64,
    pub failed: u64,
    pub declined: u64,
    pub leases_lost: u64,
    /// How many attempts run now.
    pub running: u64,
}

#[derive(Debug, Default)]
pub(crate) struct Counters {
    pub(crate) submitted: AtomicU64,
    pub(crate) started: AtomicU64,
    pub(crate) completed: AtomicU64,
    retried: AtomicU64,
    deferred: AtomicU64,
    failed: AtomicU64,
    declined: AtomicU64,
    leases_lost: AtomicU64,
}

impl Counters {
    pub(crate) fn count(&self, event: &Event) {
        let counter = match event {
            Event::Submitted { .. } => &self.submitted,
            Event::Started { .. } => &self.started,
            Event::Completed { .. } => &self.completed,
            Event::Retried { .. } => &self.retried,
            Event::Deferred { .. } => &self.deferred,
            Event::Failed { .. } => &self.failed,
            Event::Declined { .. } => &self.declined,
            Event::LeaseLost { .. } => &self.leases_lost,
            Event::GroupDone { .. }
            | Event::ScheduleFired { .. }
            | Event::Backlog { .. }
            | Event::BackendError { .. } => return,
        };
        counter.fetch_add(1, Ordering::Relaxed);
    }

    pub(crate) fn read(&self, running: u64) -> Stats {
        let read = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        Stats {
            submitted: read(&self.submitted),
            started: read(&self.started),
            completed: read(&self.completed),
            retried: read(&self.retried),
            deferred: read(&self.deferred),
            failed: read(&self.failed),
            declined: read(&self.declined),
            leases_lost: read(&self.leases_lost),
            running,
        }
    }
}
