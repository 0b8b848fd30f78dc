//! Whoever queues while too much waits is held up, so that a backlog does not grow without end.
//!
//! Handlers that queue more are not: it is they who make room, and all slots could wait for it.

use super::Shared;
use super::submit::TOGETHER_MAX;
use crate::clock::Time;
use crate::error::Error;
use crate::ports::Queue;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;
use tokio::sync::Mutex as InTurn;

/// What was seen so long ago is looked at again. What others queued meanwhile comes on top.
const SEEN_FOR: Duration = Duration::from_millis(250);
/// The first pause of who waits for room; the longest is [`SEEN_FOR`].
const PAUSE: Duration = Duration::from_millis(10);

/// How much may wait in a queue before whoever queues more is held up, and for how long at most.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Limit {
    pub(crate) depth: u64,
    pub(crate) wait: Duration,
}

/// Whether whoever queues is held up while too much waits.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum HeldUp {
    ByBacklog,
    Never,
}

/// By queue, what was last seen.
#[derive(Default)]
pub(super) struct Pressure(Mutex<Vec<OfQueue>>);

type OfQueue = (Arc<dyn Queue>, Arc<InTurn<Seen>>);

#[derive(Default)]
struct Seen {
    /// And what was queued here since.
    depth: u64,
    at: Option<Time>,
}

impl Pressure {
    fn of(&self, queue: &Arc<dyn Queue>) -> Arc<InTurn<Seen>> {
        let mut all = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some((_, seen)) = all.iter().find(|(known, _)| Arc::ptr_eq(known, queue)) {
            return Arc::clone(seen);
        }
        let seen = Arc::new(InTurn::default());
        all.push((Arc::clone(queue), Arc::clone(&seen)));
        seen
    }
}

impl Shared {
    /// How many are pushed together at most: they wait for room together.
    pub(super) fn together_max(&self, held_up: HeldUp) -> usize {
        let limit = self.config.pressure.filter(|_| held_up == HeldUp::ByBacklog);
        limit.map_or(TOGETHER_MAX, |limit| {
            usize::try_from(limit.depth).unwrap_or(usize::MAX).clamp(1, TOGETHER_MAX)
        })
    }

    /// Until so many more may be queued.
    pub(super) async fn wait_for_room(
        &self,
        queue: &Arc<dyn Queue>,
        more: usize,
        held_up: HeldUp,
    ) -> Result<(), Error> {
        let Some(limit) = self.config.pressure.filter(|_| held_up == HeldUp::ByBacklog) else {
            return Ok(());
        };
        let (seen, end) = (self.pressure.of(queue), self.clock.now().after(limit.wait));
        // In turn: one looks for all, and who came first is the first to have room.
        let mut seen = tokio::select! {
            biased;
            seen = seen.lock() => seen,
            () = self.clock.sleep_until(end) => return Err(Error::Full { limit: limit.depth, wait: limit.wait }),
        };
        let (more, mut pause) = (more as u64, PAUSE);
        loop {
            let now = self.clock.now();
            let is_fresh = seen.at.is_some_and(|at| now.since(at) < SEEN_FOR);
            if !(is_fresh && seen.depth + more <= limit.depth) {
                // A queue that does not tell holds nobody up.
                seen.depth = queue.depth().await?.unwrap_or_default();
                seen.at = Some(now);
            }
            // What is more than the limit by itself comes into a queue in which nothing waits.
            if seen.depth + more <= limit.depth || seen.depth == 0 {
                seen.depth += more;
                return Ok(());
            }
            if now >= end {
                return Err(Error::Full { limit: limit.depth, wait: limit.wait });
            }
            self.clock.sleep_until(now.after(pause).min(end)).await;
            pause = (pause * 2).min(SEEN_FOR);
        }
    }
}
