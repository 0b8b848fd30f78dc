//! What happens, for whoever watches, and how often it has.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

/// Something that happened here.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum Event {
    Queued {
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
    /// It is a dead letter now, and can be redriven.
    Failed {
        id: String,
        kind: String,
        error: String,
    },
    /// Not run: no room, not this worker's, unknown here, or not due.
    PutBack {
        kind: String,
        why: &'static str,
    },
    /// Somebody else has it by now, or will have.
    LeaseLost {
        id: String,
        kind: String,
    },
    GroupDone {
        group: String,
    },
    /// An occurrence of a schedule was queued here.
    Fired {
        schedule: String,
    },
    /// More waits than was said to be normal.
    Backlog {
        depth: u64,
    },
    /// The backend did not do what it was asked. It is asked again.
    Trouble {
        doing: &'static str,
        error: String,
    },
}

/// How often since the start.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Stats {
    pub queued: u64,
    pub started: u64,
    pub completed: u64,
    pub retried: u64,
    pub deferred: u64,
    pub failed: u64,
    pub put_back: u64,
    pub lost: u64,
    /// At this moment.
    pub running: u64,
}

#[derive(Debug, Default)]
pub(crate) struct Counters {
    pub(crate) queued: AtomicU64,
    pub(crate) started: AtomicU64,
    pub(crate) completed: AtomicU64,
    retried: AtomicU64,
    deferred: AtomicU64,
    failed: AtomicU64,
    put_back: AtomicU64,
    lost: AtomicU64,
}

impl Counters {
    pub(crate) fn count(&self, event: &Event) {
        let counter = match event {
            Event::Queued { .. } => &self.queued,
            Event::Started { .. } => &self.started,
            Event::Completed { .. } => &self.completed,
            Event::Retried { .. } => &self.retried,
            Event::Deferred { .. } => &self.deferred,
            Event::Failed { .. } => &self.failed,
            Event::PutBack { .. } => &self.put_back,
            Event::LeaseLost { .. } => &self.lost,
            Event::GroupDone { .. } | Event::Fired { .. } | Event::Backlog { .. } | Event::Trouble { .. } => {
                return;
            }
        };
        counter.fetch_add(1, Ordering::Relaxed);
    }

    pub(crate) fn read(&self, running: u64) -> Stats {
        let read = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        Stats {
            queued: read(&self.queued),
            started: read(&self.started),
            completed: read(&self.completed),
            retried: read(&self.retried),
            deferred: read(&self.deferred),
            failed: read(&self.failed),
            put_back: read(&self.put_back),
            lost: read(&self.lost),
            running,
        }
    }
}
