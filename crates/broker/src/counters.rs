//! Counters of operations since the start.

use std::sync::atomic::{AtomicU64, Ordering};
use towline_domain::change::{Answer, HandedOffItem, Submitted};
use towline_domain::command::Verb;
use towline_store::{Answered, Operation, Reply};

/// The verbs of a lease holder, in the order of their counters.
pub const VERBS: [&str; 9] =
    ["heartbeat", "edit", "commit", "fail", "retry", "release", "defer", "pause", "cancel"];

/// The lease calls of one batch, by verb. Counted before the batch goes to the store.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct VerbCounts([u64; VERBS.len()]);

impl VerbCounts {
    pub(crate) fn of(batch: &[Operation]) -> VerbCounts {
        let mut counts = VerbCounts::default();
        batch.iter().for_each(|operation| counts.add(operation));
        counts
    }

    fn add(&mut self, operation: &Operation) {
        let Operation::Lease { call, .. } = operation else { return };
        self.0[match call.verb {
            Verb::Heartbeat { .. } => 0,
            Verb::Edit => 1,
            Verb::Commit(_) => 2,
            Verb::Fail { .. } => 3,
            Verb::Retry { .. } => 4,
            Verb::Release { .. } => 5,
            Verb::Defer { .. } => 6,
            Verb::Pause => 7,
            Verb::Cancel { .. } => 8,
        }] += 1;
    }
}

#[derive(Debug, Default)]
pub(crate) struct Counters {
    verbs: [AtomicU64; VERBS.len()],
    submitted: AtomicU64,
    received: AtomicU64,
    swept: AtomicU64,
    refused: AtomicU64,
}

/// The values of all counters.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct OperationCounts {
    /// Calls of lease holders, by verb as in [`VERBS`], including refused ones.
    pub verbs: [u64; VERBS.len()],
    /// New items.
    pub submitted: u64,
    /// Deliveries.
    pub received: u64,
    /// Items that a sweep changed: lapsed leases, expired items, removed items.
    pub swept: u64,
    /// Refused operations.
    pub refused: u64,
}

impl OperationCounts {
    /// Operations of clients.
    #[must_use]
    pub fn by_clients(&self) -> u64 {
        self.verbs.iter().sum::<u64>() + self.submitted + self.received
    }
}

impl Counters {
    pub(crate) fn add(&self, counts: VerbCounts, answers: &[Answered]) {
        let count = |counter: &AtomicU64, by: u64| {
            if by > 0 {
                counter.fetch_add(by, Ordering::Relaxed);
            }
        };
        for (counter, by) in self.verbs.iter().zip(counts.0) {
            count(counter, by);
        }
        let (mut submitted, mut received, mut swept, mut refused) = (0, 0, 0, 0);
        for answer in answers {
            match answer {
                Ok(Reply::Answer(Answer::Submitted { created: true, .. })) => submitted += 1,
                Ok(Reply::Answer(Answer::HandedOff(handed_off))) => {
                    let created = |item: &&HandedOffItem| item.submitted == Submitted::Created;
                    submitted += handed_off.items.iter().filter(created).count() as u64;
                }
                Ok(Reply::Received(delivered)) => received += delivered.items.len() as u64,
                Ok(Reply::Swept { changed }) => swept += changed,
                Ok(_) => {}
                Err(_) => refused += 1,
            }
        }
        count(&self.submitted, submitted);
        count(&self.received, received);
        count(&self.swept, swept);
        count(&self.refused, refused);
    }

    pub(crate) fn read(&self) -> OperationCounts {
        let read = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        OperationCounts {
            verbs: std::array::from_fn(|at| read(&self.verbs[at])),
            submitted: read(&self.submitted),
            received: read(&self.received),
            swept: read(&self.swept),
            refused: read(&self.refused),
        }
    }
}
