//! Counters of a store since it was opened. A store counts every change that it applies.
//!
//! A count costs an addition, a duration a search among a few bounds. Nothing is kept per item.

use crate::ClockState;
use towline_domain::item::ErrorKind;
use towline_domain::{Change, EventKind, Head, Millis, Tally, Timestamp};

/// Why an attempt ended and the item went back to the queue.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RetryReason {
    /// The worker called retry.
    Retried,
    /// The worker called release.
    Released,
    /// The lease lapsed.
    Lapsed,
    /// The worker did not acknowledge an assigned lease in time.
    Unacknowledged,
}

impl RetryReason {
    pub const ALL: [RetryReason; 4] =
        [RetryReason::Retried, RetryReason::Released, RetryReason::Lapsed, RetryReason::Unacknowledged];

    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            RetryReason::Retried => "retried",
            RetryReason::Released => "released",
            RetryReason::Lapsed => "lapsed",
            RetryReason::Unacknowledged => "unacknowledged",
        }
    }

    fn of(change: &Change) -> Option<RetryReason> {
        match change.event()? {
            EventKind::Retried => Some(RetryReason::Retried),
            EventKind::Released => Some(RetryReason::Released),
            EventKind::Lapsed => Some(match change.error()?.kind {
                ErrorKind::Unacknowledged => RetryReason::Unacknowledged,
                _ => RetryReason::Lapsed,
            }),
            _ => None,
        }
    }
}

/// A histogram of durations.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct DurationHistogram {
    /// Durations up to each of [`DurationHistogram::BOUNDS_MS`] and above the bound before it. The last count is of durations
    /// above all bounds.
    counts: [u64; DurationHistogram::BOUNDS_MS.len() + 1],
    sum_ms: u64,
}

impl DurationHistogram {
    /// From a millisecond to a day.
    pub const BOUNDS_MS: [u64; 16] = [
        1, 5, 10, 25, 50, 100, 250, 500, 1000, 2500, 10_000, 60_000, 300_000, 1_800_000, 10_800_000,
        86_400_000,
    ];

    pub fn add(&mut self, span: Millis) {
        self.counts[DurationHistogram::BOUNDS_MS.partition_point(|bound| *bound < span.0)] += 1;
        self.sum_ms = self.sum_ms.saturating_add(span.0);
    }

    #[must_use]
    pub fn counts(&self) -> &[u64] {
        &self.counts
    }

    #[must_use]
    pub fn sum(&self) -> Millis {
        Millis(self.sum_ms)
    }

    fn join(&mut self, other: &DurationHistogram) {
        self.counts.iter_mut().zip(other.counts).for_each(|(sum, other)| *sum += other);
        self.sum_ms = self.sum_ms.saturating_add(other.sum_ms);
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct StoreMetrics {
    /// Items by how they ended.
    pub finished: Tally,
    retried: [u64; RetryReason::ALL.len()],
    /// From `ready_at` to the delivery, for every delivery.
    pub waited: DurationHistogram,
    /// From the delivery to the settle.
    pub ran: DurationHistogram,
    /// How often the store met damage: at reads and deliveries, and at collection.
    pub damages: u64,
    pub clock: ClockState,
}

impl StoreMetrics {
    #[must_use]
    pub fn retried(&self, reason: RetryReason) -> u64 {
        self.retried[reason as usize]
    }

    /// Counts a change that was decided at `now`.
    pub fn add(&mut self, change: &Change, now: Timestamp) {
        if let Some(finish) = change.finish() {
            self.finished.add(finish.ending);
        }
        if let Some(reason) = RetryReason::of(change) {
            self.retried[reason as usize] += 1;
        }
        let Some(head) = change.head() else { return };
        match change.event() {
            Some(EventKind::Received) => self.waited.add(now.since(head.ready_at)),
            Some(EventKind::Completed | EventKind::Retried | EventKind::Released | EventKind::Deferred) => {
                self.settled(head, now);
            }
            // A lapse of the last attempt is a failure, too, without a settle.
            Some(EventKind::Failed)
                if change.error().is_some_and(|error| {
                    error.kind != ErrorKind::Lapsed && error.kind != ErrorKind::Unacknowledged
                }) =>
            {
                self.settled(head, now);
            }
            _ => {}
        }
    }

    fn settled(&mut self, head: &Head, now: Timestamp) {
        // Tokens of early versions have no time in them.
        let issued_at = head.last_settle.map(|settle| settle.token.issued_at());
        if let Some(issued_at) = issued_at.filter(|at| (head.created_at..=now).contains(at)) {
            self.ran.add(now.since(issued_at));
        }
    }

    /// The same, with what the store's clock says of itself.
    #[must_use]
    pub fn with_clock(self, clock: ClockState) -> StoreMetrics {
        StoreMetrics { clock, ..self }
    }

    #[must_use]
    pub fn plus(&self, other: &StoreMetrics) -> StoreMetrics {
        let mut sum = *self;
        sum.finished = sum.finished.plus(&other.finished);
        sum.retried.iter_mut().zip(other.retried).for_each(|(sum, other)| *sum += other);
        sum.waited.join(&other.waited);
        sum.ran.join(&other.ran);
        sum.damages += other.damages;
        sum.clock = sum.clock.worse(other.clock);
        sum
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_duration_counts_under_the_first_bound_that_it_does_not_exceed() {
        let mut histogram = DurationHistogram::default();
        for span in [0, 1, 2, 5, 86_400_000, 86_400_001] {
            histogram.add(Millis(span));
        }
        let mut expected = [0; DurationHistogram::BOUNDS_MS.len() + 1];
        (expected[0], expected[1], expected[15], expected[16]) = (2, 2, 1, 1);
        assert_eq!(histogram.counts(), expected);
        assert_eq!(histogram.sum(), Millis(172_800_009));
    }
}
