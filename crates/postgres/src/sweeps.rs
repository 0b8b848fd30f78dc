//! Where in the order of time the next sweep begins to look.
//!
//! What was carried out leaves dead entries behind, like what was given out. All that was due a while ago is done;
//! now and then a sweep looks from the start, for what others may have left.

use std::sync::atomic::Ordering::Relaxed;
use std::sync::atomic::{AtomicU32, AtomicU64};
use towline_domain::Timestamp;

#[derive(Debug, Default)]
pub(crate) struct Sweeps {
    done: AtomicU64,
    uses: AtomicU32,
}

impl Sweeps {
    /// Longer than a transaction can last.
    const MARGIN_MS: u64 = 120_000;
    const FULL_EVERY: u32 = 64;

    pub(crate) fn since(&self) -> i64 {
        if self.uses.fetch_add(1, Relaxed).is_multiple_of(Self::FULL_EVERY) {
            return -1;
        }
        self.done.load(Relaxed).saturating_sub(Self::MARGIN_MS).cast_signed() - 1
    }

    pub(crate) fn done(&self, until: Timestamp) {
        self.done.fetch_max(until.0, Relaxed);
    }
}
