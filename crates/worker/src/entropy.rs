//! Randomness: names of work, and the jitter of retries.

use crate::clock::Time;
use std::sync::atomic::{AtomicU64, Ordering};

/// A generator that is seeded once. Its names need to be different, not secret.
#[derive(Debug)]
pub(crate) struct Entropy(AtomicU64);

impl Entropy {
    #[expect(clippy::disallowed_methods, reason = "this is where the seed comes from")]
    pub(crate) fn new() -> Entropy {
        let mut seed = [0; 8];
        // A system without entropy is one that just booted: an address differs there, too.
        if getrandom::fill(&mut seed).is_err() {
            seed = (std::ptr::from_ref(&seed).addr() as u64).to_le_bytes();
        }
        Entropy(AtomicU64::new(u64::from_le_bytes(seed)))
    }

    /// Splitmix: each step of the counter, scrambled.
    fn next(&self) -> u64 {
        const STEP: u64 = 0x9e37_79b9_7f4a_7c15;
        let mut x = self.0.fetch_add(STEP, Ordering::Relaxed).wrapping_add(STEP);
        x = (x ^ (x >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        x = (x ^ (x >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        x ^ (x >> 31)
    }

    /// From 0 up to but not 1.
    pub(crate) fn fraction(&self) -> f64 {
        #[expect(clippy::cast_precision_loss, reason = "53 bits fit")]
        let bits = (self.next() >> 11) as f64;
        bits / (1u64 << 53) as f64
    }

    /// In order of time, and nobody else's.
    pub(crate) fn id(&self, now: Time) -> String {
        let mut random = [0; 10];
        random[..8].copy_from_slice(&self.next().to_le_bytes());
        random[8..].copy_from_slice(&self.next().to_le_bytes()[..2]);
        uuid::Builder::from_unix_timestamp_millis(now.0, &random).into_uuid().to_string()
    }
}
