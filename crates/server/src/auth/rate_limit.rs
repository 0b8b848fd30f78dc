//! Rate limits: of each token, and of addresses that send invalid tokens.

use crate::connection::network;
use parking_lot::Mutex;
use std::collections::hash_map::RandomState;
use std::hash::BuildHasher;
use std::net::IpAddr;
use std::sync::atomic::{AtomicU64, Ordering};
use towline_api::RateLimit;
use towline_domain::Timestamp;

/// A token bucket: it fills at `per_second`, up to `burst`.
#[derive(Debug)]
pub(super) struct TokenBucket {
    per_second: u64,
    burst: u64,
    /// The level in thousandths of a request, and its time.
    level: Mutex<(u64, Timestamp)>,
}

impl TokenBucket {
    pub(super) fn new(limit: RateLimit, now: Timestamp) -> TokenBucket {
        let burst = u64::from(limit.burst.unwrap_or(limit.per_second)).max(1);
        TokenBucket { per_second: limit.per_second.into(), burst, level: Mutex::new((burst * 1000, now)) }
    }

    /// Takes one request. The error is the number of seconds to wait.
    pub(super) fn take(&self, now: Timestamp) -> Result<(), u64> {
        let mut level = self.level.lock();
        let (left, at) = *level;
        // One request per second is a thousandth of a request per millisecond.
        let gained = now.0.saturating_sub(at.0).saturating_mul(self.per_second);
        let left = left.saturating_add(gained).min(self.burst * 1000);
        let Some(rest) = left.checked_sub(1000) else {
            *level = (left, at.max(now));
            return Err((1000 - left).div_ceil(self.per_second * 1000).max(1));
        };
        *level = (rest, at.max(now));
        Ok(())
    }
}

/// Number of counters. Addresses may share one, so memory is bounded; an innocent address may then wait for up to a minute.
const SLOTS: usize = 4096;
const FAILURES_MAX: u64 = 20;
const WINDOW_MS: u64 = 60_000;

/// Counts requests with invalid tokens per address, in windows of one minute.
#[derive(Debug)]
pub(super) struct FailureLimiter {
    /// Random, so that a client cannot choose an address that shares the counter of another one.
    seed: RandomState,
    /// The minute in the upper 48 bits, and its count in the lower 16.
    slots: Box<[AtomicU64]>,
}

impl FailureLimiter {
    pub(super) fn new() -> FailureLimiter {
        FailureLimiter { seed: RandomState::new(), slots: (0..SLOTS).map(|_| AtomicU64::new(0)).collect() }
    }

    fn slot(&self, address: IpAddr) -> &AtomicU64 {
        &self.slots[self.seed.hash_one(network(address)) as usize % SLOTS]
    }

    /// How many seconds the address must wait, if it must.
    pub(super) fn wait(&self, address: IpAddr, now: Timestamp) -> Option<u64> {
        let (minute, count) = unpack(self.slot(address).load(Ordering::Relaxed));
        let left = WINDOW_MS - now.0 % WINDOW_MS;
        (minute == now.0 / WINDOW_MS && count >= FAILURES_MAX).then(|| left.div_ceil(1000))
    }

    /// Counts a failure. Returns whether this one reached the limit.
    pub(super) fn count(&self, address: IpAddr, now: Timestamp) -> bool {
        let this = now.0 / WINDOW_MS;
        let more = |packed| match unpack(packed) {
            (minute, count) if minute == this => this << 16 | (count + 1).min(0xffff),
            _ => this << 16 | 1,
        };
        let before = self
            .slot(address)
            .fetch_update(Ordering::Relaxed, Ordering::Relaxed, |packed| Some(more(packed)));
        // The closure always returns `Some`, so both variants mean success.
        let (Ok(before) | Err(before)) = before;
        unpack(more(before)) == (this, FAILURES_MAX)
    }
}

fn unpack(packed: u64) -> (u64, u64) {
    (packed >> 16, packed & 0xffff)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_bucket_gives_its_burst_and_then_its_rate() {
        let bucket = TokenBucket::new(RateLimit { per_second: 10, burst: Some(3) }, Timestamp(0));
        let take = |now| bucket.take(Timestamp(now));
        assert_eq!([take(0), take(0), take(0), take(0)], [Ok(()), Ok(()), Ok(()), Err(1)]);
        assert_eq!([take(99), take(100), take(100)], [Err(1), Ok(()), Err(1)]);
        let taken = (1..=10_000).filter(|ms| take(100 + ms).is_ok()).count();
        assert_eq!(taken, 100, "10 s of 10/s");
        assert_eq!(take(0), Err(1), "a clock that goes back adds nothing");
        // A pause fills the bucket up to the burst and no further.
        assert_eq!((0..9).filter(|_| take(1_000_000).is_ok()).count(), 3);
    }

    #[test]
    fn an_address_that_fails_too_often_waits_for_the_next_minute() {
        let failures = FailureLimiter::new();
        let one: IpAddr = "192.0.2.1".parse().unwrap();
        let now = Timestamp(WINDOW_MS * 5 + 20_000);
        let reached: Vec<bool> = (0..FAILURES_MAX + 5).map(|_| failures.count(one, now)).collect();
        assert_eq!(reached.iter().filter(|reached| **reached).count(), 1, "reported once");
        assert_eq!(failures.wait(one, now), Some(40));
        assert_eq!(failures.wait(one, Timestamp(WINDOW_MS * 6)), None);
        assert_eq!(failures.wait("::ffff:192.0.2.1".parse().unwrap(), now), Some(40), "the same address");
        let others = (0..100).filter(|n| failures.wait(IpAddr::from([10, 0, 0, *n]), now).is_some()).count();
        assert!(others <= 5, "{others} of 100 other addresses share its slot");
        let (network, same) = ("2001:db8::1".parse().unwrap(), "2001:db8::2".parse().unwrap());
        for _ in 0..FAILURES_MAX {
            failures.count(network, now);
        }
        assert!(failures.wait(same, now).is_some(), "one network");
    }
}
