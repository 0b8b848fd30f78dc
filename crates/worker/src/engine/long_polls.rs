//! Long polls: at most one waits at each queue, beside the ordinary polls.

use super::Engine;
use super::poll::RECEIVE_MAX;
use crate::limiter::ConcurrencyLimiter;
use crate::ports::{Delivery, PortError};
use futures::future::BoxFuture;
use futures::stream::{FuturesUnordered, StreamExt};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

/// The items that a long poll received, and the index of their queue.
pub(super) type Received = (usize, Vec<Delivery>);

type LongPoll = BoxFuture<'static, (usize, Result<Vec<Delivery>, PortError>)>;

/// The places that are reserved for long polls. A long poll may return at any time, so its places must stay free. The
/// reservations are never all places: while a slot is free, ordinary polls have room too.
pub(super) struct Reservations {
    reserved: AtomicUsize,
    /// The places of one long poll.
    per_queue: usize,
    /// Ordinary polls do not receive fewer items than this.
    receive_min: usize,
}

impl Reservations {
    pub(super) fn new(limiters: &[ConcurrencyLimiter], queues: usize) -> Reservations {
        limiters.iter().for_each(|limiter| limiter.serve_queues(queues));
        let places = limiters.iter().map(ConcurrencyLimiter::reserved_max).min().unwrap_or_default();
        Reservations {
            reserved: AtomicUsize::new(0),
            per_queue: (places.min(RECEIVE_MAX) / queues).max(1),
            receive_min: limiters.iter().map(ConcurrencyLimiter::receive_min).min().unwrap_or_default(),
        }
    }
}

/// The long polls that are under way. None is dropped until the engine stops: the items of a dropped long poll may be on
/// their way, and each of them would lose an attempt.
pub(super) struct LongPolls {
    under_way: FuturesUnordered<LongPoll>,
    /// The reserved places of each queue; 0 where no long poll waits.
    reserved: Vec<usize>,
}

impl LongPolls {
    pub(super) fn new(queues: usize) -> LongPolls {
        LongPolls { under_way: FuturesUnordered::new(), reserved: vec![0; queues] }
    }

    /// Starts a long poll at each queue that has none. Returns `false` if there is not room for all of them.
    pub(super) fn start(&mut self, engine: &Engine, first: usize) -> bool {
        let queues = engine.queues.len();
        for at in (0..queues).map(|at| (first + at) % queues) {
            if self.reserved[at] > 0 {
                continue;
            }
            // Computed for each queue: the poll before, and the long polls started here, have used some of the budget.
            let places = engine.reservations.per_queue.min(engine.receive_budget());
            if places == 0 {
                return false;
            }
            self.reserved[at] = places;
            engine.reservations.reserved.fetch_add(places, Ordering::SeqCst);
            let (queue, timeout) = (Arc::clone(&engine.queues[at]), engine.config.visibility_timeout);
            self.under_way.push(Box::pin(async move { (at, queue.long_poll(places, timeout).await) }));
        }
        true
    }

    /// Waits for the next long poll that received something. The poll loop restarts the ones that received nothing.
    pub(super) async fn next(&mut self, engine: &Engine) -> Received {
        while let Some((at, result)) = self.under_way.next().await {
            let places = std::mem::take(&mut self.reserved[at]);
            engine.reservations.reserved.fetch_sub(places, Ordering::SeqCst);
            match result {
                Ok(deliveries) if !deliveries.is_empty() => return (at, deliveries),
                Ok(_) => {}
                Err(error) => engine.report_error("long-poll a queue", &error),
            }
        }
        std::future::pending().await
    }
}

impl Engine {
    /// How many items an ordinary poll may receive now, without the places reserved for long polls.
    pub(super) fn receive_budget(&self) -> usize {
        let available =
            self.limiters.iter().map(ConcurrencyLimiter::available).fold(0, usize::saturating_add);
        let left = available.saturating_sub(self.reservations.reserved.load(Ordering::SeqCst));
        if left < self.reservations.receive_min { 0 } else { left.min(RECEIVE_MAX) }
    }
}
