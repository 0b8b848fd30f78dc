//! Look-ups of tokens that the cache does not have. A client that guesses tokens causes one for each request, so each client has at
//! most one at a time. Its valid tokens take their turn among the invalid ones.

use crate::connection::network;
use crate::response::ProblemResponse;
use std::collections::hash_map::RandomState;
use std::hash::BuildHasher;
use std::net::IpAddr;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use tokio::sync::{Semaphore, SemaphorePermit};
use towline_api::Code;
use towline_domain::Timestamp;

/// Clients may share a queue, so memory is bounded.
const QUEUES: usize = 1024;
/// Look-ups of all clients together.
const LOOKUPS_MAX: usize = 32;
/// Requests of one client that wait for their look-up.
const WAITING_MAX: usize = 1000;
const REPORT_INTERVAL_MS: u64 = 60_000;

#[derive(Debug)]
struct LookupQueue {
    turn: Semaphore,
    waiting: AtomicUsize,
}

#[derive(Debug)]
pub(super) struct Lookups {
    /// Random, so that a client cannot choose an address that shares the queue of another one.
    seed: RandomState,
    queues: Box<[LookupQueue]>,
    all: Semaphore,
    /// When an invalid token was last reported.
    reported: AtomicU64,
}

/// The right to look up one token.
#[derive(Debug)]
pub(super) struct Turn<'a> {
    _all: SemaphorePermit<'a>,
    _turn: SemaphorePermit<'a>,
}

struct Waiting<'a>(&'a AtomicUsize);

impl Drop for Waiting<'_> {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }
}

impl Lookups {
    pub(super) fn new() -> Lookups {
        let queue = || LookupQueue { turn: Semaphore::new(1), waiting: AtomicUsize::new(0) };
        Lookups {
            seed: RandomState::new(),
            queues: (0..QUEUES).map(|_| queue()).collect(),
            all: Semaphore::new(LOOKUPS_MAX),
            reported: AtomicU64::new(0),
        }
    }

    /// Waits until the client may look up a token. Requests of one client take turns in the order of their arrival.
    pub(super) async fn turn(&self, address: IpAddr) -> Result<Turn<'_>, ProblemResponse> {
        let queue = &self.queues[self.seed.hash_one(network(address)) as usize % QUEUES];
        let waiting = Waiting(&queue.waiting);
        if queue.waiting.fetch_add(1, Ordering::Relaxed) >= WAITING_MAX {
            let detail = format!(
                "{WAITING_MAX} requests from {address} with tokens that are not in use wait for their check; try again in 1 s"
            );
            return Err(ProblemResponse::new(Code::RateLimited, detail));
        }
        let closed = |_| ProblemResponse::new(Code::Internal, "a semaphore that is never closed is closed");
        let turn = queue.turn.acquire().await.map_err(closed)?;
        let all = self.all.acquire().await.map_err(closed)?;
        drop(waiting);
        Ok(Turn { _all: all, _turn: turn })
    }

    /// Whether to report an invalid token: one in a minute.
    pub(super) fn reports(&self, now: Timestamp) -> bool {
        let due = |last: u64| (now.0 >= last.saturating_add(REPORT_INTERVAL_MS)).then_some(now.0);
        self.reported.fetch_update(Ordering::Relaxed, Ordering::Relaxed, due).is_ok()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use futures::FutureExt;
    use futures::executor::block_on;

    // Not on a runtime of tokio: it pauses a task that polls often.
    #[test]
    fn each_client_has_one_look_up_at_a_time_in_order_of_arrival() {
        let lookups = Lookups::new();
        let one: IpAddr = "192.0.2.1".parse().unwrap();
        let first = block_on(lookups.turn(one)).unwrap();
        let mut second = Box::pin(lookups.turn(one));
        let mut third = Box::pin(lookups.turn("::ffff:192.0.2.1".parse().unwrap()));
        assert!((&mut second).now_or_never().is_none() && (&mut third).now_or_never().is_none());
        let free = (0..100).filter(|n| lookups.turn(IpAddr::from([10, 0, 0, *n])).now_or_never().is_some());
        assert!(free.count() >= 95, "few of 100 other clients share its queue");
        drop(first);
        assert!((&mut third).now_or_never().is_none());
        drop((&mut second).now_or_never().expect("the second was first in line").unwrap());
        block_on(third).unwrap();
    }

    #[test]
    fn look_ups_and_waiting_requests_are_bounded() {
        let lookups = Lookups::new();
        let address = |n: usize| IpAddr::from([10, 0, (n >> 8) as u8, n as u8]);
        let mut turns = Vec::new();
        let mut n = 0;
        while turns.len() < LOOKUPS_MAX {
            turns.extend(lookups.turn(address(n)).now_or_never());
            n += 1;
        }
        let mut waiting: Vec<_> = (0..WAITING_MAX).map(|_| Box::pin(lookups.turn(address(9999)))).collect();
        for one in &mut waiting {
            assert!(one.now_or_never().is_none());
        }
        block_on(lookups.turn(address(9999))).unwrap_err();
        // Clients that disconnect make room.
        waiting.truncate(1);
        drop(turns);
        drop(block_on(waiting.remove(0)).unwrap());
        drop(block_on(lookups.turn(address(9999))).unwrap());
        assert!(lookups.queues.iter().all(|queue| queue.waiting.load(Ordering::Relaxed) == 0));
    }

    #[test]
    fn one_invalid_token_a_minute_is_reported() {
        let lookups = Lookups::new();
        let reported = (0..180).filter(|second| lookups.reports(Timestamp(1_000_000 + second * 1000)));
        assert_eq!(reported.count(), 3);
    }
}
