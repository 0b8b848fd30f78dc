//! How long the store takes for a batch, until its answers are durable.

use crate::clock::Stopwatch;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;
use towline_store::Operation;

/// The kinds of batches, in the order of their latencies.
pub const CALLS: [&str; 5] = ["submit", "receive", "settle", "sweep", "other"];
/// Upper bounds of the latency buckets.
pub const LATENCY_BOUNDS: [Duration; 15] = [
    Duration::from_micros(100),
    Duration::from_micros(250),
    Duration::from_micros(500),
    Duration::from_millis(1),
    Duration::from_micros(2500),
    Duration::from_millis(5),
    Duration::from_millis(10),
    Duration::from_millis(25),
    Duration::from_millis(50),
    Duration::from_millis(100),
    Duration::from_millis(250),
    Duration::from_millis(500),
    Duration::from_secs(1),
    Duration::from_secs(5),
    Duration::from_secs(30),
];

/// Batches of one kind by how long they took.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Latency {
    /// By the first of [`LATENCY_BOUNDS`] that is not shorter; the last bucket has no bound.
    pub counts: [u64; LATENCY_BOUNDS.len() + 1],
    pub sum: Duration,
}

#[derive(Debug, Default)]
pub(crate) struct Latencies([Histogram; CALLS.len()]);

#[derive(Debug, Default)]
struct Histogram {
    counts: [AtomicU64; LATENCY_BOUNDS.len() + 1],
    sum_us: AtomicU64,
}

/// A batch under way.
pub(crate) struct Timed {
    call: usize,
    since: Stopwatch,
}

impl Latencies {
    /// Call this when a batch goes to the store. The first operation decides the kind; piggybacked receives come last.
    pub(crate) fn begin(first: Option<&Operation>) -> Timed {
        let call = match first.map(Operation::asked) {
            Some(Operation::Submit { .. }) => 0,
            Some(Operation::Receive(_)) => 1,
            Some(Operation::Lease { .. }) => 2,
            Some(Operation::Sweep) => 3,
            _ => 4,
        };
        Timed { call, since: Stopwatch::start() }
    }

    pub(crate) fn end(&self, timed: &Timed) {
        let took = timed.since.elapsed();
        let histogram = &self.0[timed.call];
        histogram.counts[LATENCY_BOUNDS.partition_point(|bound| *bound < took)]
            .fetch_add(1, Ordering::Relaxed);
        histogram.sum_us.fetch_add(u64::try_from(took.as_micros()).unwrap_or(u64::MAX), Ordering::Relaxed);
    }

    /// In the order of [`CALLS`].
    pub(crate) fn read(&self) -> [Latency; CALLS.len()] {
        self.0.each_ref().map(|histogram| Latency {
            counts: histogram.counts.each_ref().map(|count| count.load(Ordering::Relaxed)),
            sum: Duration::from_micros(histogram.sum_us.load(Ordering::Relaxed)),
        })
    }
}
