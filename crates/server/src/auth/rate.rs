//! How often somebody may call: tokens by their own limit, addresses by how often they were refused.

use std::collections::hash_map::RandomState;
use std::hash::BuildHasher;
use std::net::IpAddr;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError};
use towline_api::RateLimit;
use towline_domain::Timestamp;

/// What is left of a token's limit: fills by the second, up to the burst.
#[derive(Debug)]
pub(super) struct Bucket {
    per_second: u64,
    burst: u64,
    /// In thousandths of a request, as of a time.
    level: Mutex<(u64, Timestamp)>,
}

impl Bucket {
    pub(super) fn new(limit: RateLimit, now: Timestamp) -> Bucket {
        let burst = u64::from(limit.burst.unwrap_or(limit.per_second)).max(1);
        Bucket { per_second: limit.per_second.into(), burst, level: Mutex::new((burst * 1000, now)) }
    }

    /// Takes one request, or says in how many seconds there is one.
    pub(super) fn take(&self, now: Timestamp) -> Result<(), u64> {
        let mut level = self.level.lock().unwrap_or_else(PoisonError::into_inner);
        let (left, at) = *level;
        // A thousandth of a request a millisecond for each request a second.
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

/// Addresses that are counted apart. More share a count; that costs a stranger a minute, and never memory.
const SLOTS: usize = 4096;
const FAILURES_MAX: u64 = 20;
const WINDOW_MS: u64 = 60_000;

/// How often each address showed no token that is good, in this minute.
#[derive(Debug)]
pub(super) struct Failures {
    /// Which address goes where cannot be guessed.
    seed: RandomState,
    /// The minute, times 2^16, and the count in it.
    slots: Box<[AtomicU64]>,
}

impl Failures {
    pub(super) fn new() -> Failures {
        Failures { seed: RandomState::new(), slots: (0..SLOTS).map(|_| AtomicU64::new(0)).collect() }
    }

    fn slot(&self, address: IpAddr) -> &AtomicU64 {
        let network = match address.to_canonical() {
            IpAddr::V4(address) => u64::from(address.to_bits()),
            // Whoever has one address of a network has them all.
            IpAddr::V6(address) => (address.to_bits() >> 64) as u64 | 1 << 63,
        };
        &self.slots[self.seed.hash_one(network) as usize % SLOTS]
    }

    /// In how many seconds the address may try again.
    pub(super) fn wait(&self, address: IpAddr, now: Timestamp) -> Option<u64> {
        let (minute, count) = unpack(self.slot(address).load(Ordering::Relaxed));
        let left = WINDOW_MS - now.0 % WINDOW_MS;
        (minute == now.0 / WINDOW_MS && count >= FAILURES_MAX).then(|| left.div_ceil(1000))
    }

    /// Counts one more. Whether it is the one that is too many.
    pub(super) fn count(&self, address: IpAddr, now: Timestamp) -> bool {
        let this = now.0 / WINDOW_MS;
        let more = |packed| match unpack(packed) {
            (minute, count) if minute == this => this << 16 | (count + 1).min(0xffff),
            _ => this << 16 | 1,
        };
        let before = self
            .slot(address)
            .fetch_update(Ordering::Relaxed, Ordering::Relaxed, |packed| Some(more(packed)));
        // The update never declines.
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
        let bucket = Bucket::new(RateLimit { per_second: 10, burst: Some(3) }, Timestamp(0));
        let take = |now| bucket.take(Timestamp(now));
        assert_eq!([take(0), take(0), take(0), take(0)], [Ok(()), Ok(()), Ok(()), Err(1)]);
        assert_eq!([take(99), take(100), take(100)], [Err(1), Ok(()), Err(1)]);
        let taken = (1..=10_000).filter(|ms| take(100 + ms).is_ok()).count();
        assert_eq!(taken, 100, "10 s of 10/s");
        assert_eq!(take(0), Err(1), "a clock that goes back gives nothing");
        // A pause fills it up to the burst and no further.
        assert_eq!((0..9).filter(|_| take(1_000_000).is_ok()).count(), 3);
    }

    #[test]
    fn an_address_that_fails_too_often_waits_for_the_next_minute() {
        let failures = Failures::new();
        let one: IpAddr = "192.0.2.1".parse().unwrap();
        let now = Timestamp(WINDOW_MS * 5 + 20_000);
        let told: Vec<bool> = (0..FAILURES_MAX + 5).map(|_| failures.count(one, now)).collect();
        assert_eq!(told.iter().filter(|told| **told).count(), 1, "told once");
        assert_eq!(failures.wait(one, now), Some(40));
        assert_eq!(failures.wait(one, Timestamp(WINDOW_MS * 6)), None);
        assert_eq!(failures.wait("::ffff:192.0.2.1".parse().unwrap(), now), Some(40), "the same address");
        let others = (0..100).filter(|n| failures.wait(IpAddr::from([10, 0, 0, *n]), now).is_some()).count();
        assert!(others <= 5, "{others} of 100 strangers share its slot");
        let (network, same) = ("2001:db8::1".parse().unwrap(), "2001:db8::2".parse().unwrap());
        for _ in 0..FAILURES_MAX {
            failures.count(network, now);
        }
        assert!(failures.wait(same, now).is_some(), "one network");
    }
}
