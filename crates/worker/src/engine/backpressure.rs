//! Back-pressure: a submitter waits while too many items wait in the queue, so that the backlog stays limited.
//!
//! Submits by handlers do not wait. Handlers are what makes room, and all slots could be waiting for it.

use super::Engine;
use super::submit_batch::BATCH_MAX;
use crate::clock::Time;
use crate::error::Error;
use crate::ports::Queue;
use parking_lot::Mutex;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::Mutex as AsyncMutex;

/// How long a submitter trusts a depth that this process has read. Submits by other processes are missing from it.
const ESTIMATE_TTL: Duration = Duration::from_millis(250);
/// The first pause of a submitter that waits for room. It doubles up to [`ESTIMATE_TTL`].
const PAUSE: Duration = Duration::from_millis(10);

/// The depth at which submitters wait, and how long they wait at most.
#[derive(Debug, Clone, Copy)]
pub(crate) struct BacklogLimit {
    pub(crate) depth: u64,
    pub(crate) wait: Duration,
}

/// Whether a submit waits for room in the queue.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Backpressure {
    Apply,
    Skip,
}

/// The estimated depth of each queue.
#[derive(Default)]
pub(super) struct BacklogEstimates(Mutex<Vec<QueueEstimate>>);

type QueueEstimate = (Arc<dyn Queue>, Arc<AsyncMutex<DepthEstimate>>);

#[derive(Default)]
struct DepthEstimate {
    /// The depth that was read, and the items that this process has submitted since.
    depth: u64,
    read_at: Option<Time>,
}

impl BacklogEstimates {
    fn of(&self, queue: &Arc<dyn Queue>) -> Arc<AsyncMutex<DepthEstimate>> {
        let mut all = self.0.lock();
        if let Some((_, estimate)) = all.iter().find(|(known, _)| Arc::ptr_eq(known, queue)) {
            return Arc::clone(estimate);
        }
        let estimate = Arc::new(AsyncMutex::default());
        all.push((Arc::clone(queue), Arc::clone(&estimate)));
        estimate
    }
}

impl Engine {
    fn backlog_limit(&self, backpressure: Backpressure) -> Option<BacklogLimit> {
        self.config.backlog_limit.filter(|_| backpressure == Backpressure::Apply)
    }

    /// The most items of one submit call. A batch waits for room for all its items, so it must fit below the limit.
    pub(super) fn submit_batch_max(&self, backpressure: Backpressure) -> usize {
        self.backlog_limit(backpressure)
            .map_or(BATCH_MAX, |limit| usize::try_from(limit.depth).unwrap_or(usize::MAX).clamp(1, BATCH_MAX))
    }

    /// Waits until the queue has room for `count` more items.
    pub(super) async fn wait_for_room(
        &self,
        queue: &Arc<dyn Queue>,
        count: usize,
        backpressure: Backpressure,
    ) -> Result<(), Error> {
        let Some(limit) = self.backlog_limit(backpressure) else { return Ok(()) };
        let full = || Error::QueueFull { limit: limit.depth, wait: limit.wait };
        let (estimate, end) = (self.backlog.of(queue), self.clock.now().after(limit.wait));
        // The lock is fair: one submitter reads the depth, and submitters get room in the order in which they came.
        let mut estimate = tokio::select! {
            biased;
            estimate = estimate.lock() => estimate,
            () = self.clock.sleep_until(end) => return Err(full()),
        };
        let (count, mut pause) = (count as u64, PAUSE);
        loop {
            let now = self.clock.now();
            let is_fresh = estimate.read_at.is_some_and(|read_at| now.since(read_at) < ESTIMATE_TTL);
            if !(is_fresh && estimate.depth + count <= limit.depth) {
                // A queue that cannot count its items applies no back-pressure.
                estimate.depth = queue.depth().await?.unwrap_or_default();
                estimate.read_at = Some(now);
            }
            // A batch that is larger than the limit may enter an empty queue.
            if estimate.depth + count <= limit.depth || estimate.depth == 0 {
                estimate.depth += count;
                return Ok(());
            }
            if now >= end {
                return Err(full());
            }
            self.clock.sleep_until(now.after(pause).min(end)).await;
            pause = (pause * 2).min(ESTIMATE_TTL);
        }
    }
}
