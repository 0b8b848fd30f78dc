//! Randomness for ids of work and for the jitter of retries.

use crate::clock::Time;
use std::sync::atomic::{AtomicU64, Ordering};

/// A generator that is seeded once. Ids must be unique, not secret.
#[derive(Debug)]
pub(crate) struct Entropy(AtomicU64);

impl Entropy {
    #[expect(clippy::disallowed_methods, reason = "the only place that reads entropy")]
    pub(crate) fn new() -> Entropy {
        let mut seed = [0; 8];
        // A machine that just booted may have no entropy yet. An address on the stack also differs between processes.
        if getrandom::fill(&mut seed).is_err() {
            seed = (std::ptr::from_ref(&seed).addr() as u64).to_le_bytes();
        }
        Entropy(AtomicU64::new(u64::from_le_bytes(seed)))
    }

    /// The SplitMix64 generator.
    fn next(&self) -> u64 {
        const STEP: u64 = 0x9e37_79b9_7f4a_7c15;
        let mut x = self.0.fetch_add(STEP, Ordering::Relaxed).wrapping_add(STEP);
        x = (x ^ (x >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        x = (x ^ (x >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        x ^ (x >> 31)
    }

    /// A random number in the range from 0 to below 1.
    pub(crate) fn fraction(&self) -> f64 {
        #[expect(clippy::cast_precision_loss, reason = "53 bits fit")]
        let bits = (self.next() >> 11) as f64;
        bits / (1u64 << 53) as f64
    }

    /// A unique id that sorts by time.
    pub(crate) fn id(&self, now: Time) -> String {
        let mut random = [0; 10];
        random[..8].copy_from_slice(&self.next().to_le_bytes());
        random[8..].copy_from_slice(&self.next().to_le_bytes()[..2]);
        uuid::Builder::from_unix_timestamp_millis(now.0, &random).into_uuid().to_string()
    }
}
