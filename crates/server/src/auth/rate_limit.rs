//! The rate limit of a token.

use parking_lot::Mutex;
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
}
