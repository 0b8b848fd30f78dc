//! From which time on a sweep looks for due items, and when the next removal is due.
//!
//! Swept items leave dead entries in the index, like delivered items. Everything that was due a while ago has been swept, so
//! a sweep starts there. Every [`SweepProgress::FULL_EVERY`]th sweep looks from the start, for items that another
//! server left.

use parking_lot::{Mutex, MutexGuard};
use std::sync::atomic::Ordering::Relaxed;
use std::sync::atomic::{AtomicU32, AtomicU64};
use towline_domain::Timestamp;

#[derive(Debug, Default)]
pub(crate) struct SweepProgress {
    done: AtomicU64,
    uses: AtomicU32,
    next_removal: Mutex<NextRemoval>,
}

/// When the next terminal page is due for removal, as far as this server knows.
#[derive(Debug, Default, Clone, Copy)]
struct NextRemoval {
    at: Timestamp,
    /// Rises with every item that becomes terminal.
    generation: u64,
    uses: u32,
}

impl SweepProgress {
    /// Longer than a transaction can take.
    const MARGIN_MS: u64 = 120_000;
    const FULL_EVERY: u32 = 64;

    /// A sweep looks for items that are due after this time.
    pub(crate) fn since(&self) -> i64 {
        if self.uses.fetch_add(1, Relaxed).is_multiple_of(Self::FULL_EVERY) {
            return -1;
        }
        self.done.load(Relaxed).saturating_sub(Self::MARGIN_MS).cast_signed() - 1
    }

    fn next_removal(&self) -> MutexGuard<'_, NextRemoval> {
        self.next_removal.lock()
    }

    /// Returns the generation if a terminal page may be due for removal now.
    pub(crate) fn removal(&self, now: Timestamp) -> Option<u64> {
        let mut next = self.next_removal();
        next.uses += 1;
        let may_be_due = next.at <= now || next.uses.is_multiple_of(Self::FULL_EVERY);
        may_be_due.then_some(next.generation)
    }

    /// The next removal is due at this time, unless an item became terminal since that generation.
    pub(crate) fn removed(&self, generation: u64, at: Timestamp) {
        let mut next = self.next_removal();
        if next.generation == generation {
            next.at = at;
        }
    }

    /// An item became terminal and is removed at this time.
    pub(crate) fn finished(&self, remove_at: Timestamp) {
        let mut next = self.next_removal();
        next.generation += 1;
        next.at = next.at.min(remove_at);
    }

    /// Everything that was due until this time has been swept.
    pub(crate) fn done(&self, until: Timestamp) {
        self.done.fetch_max(until.0, Relaxed);
    }
}
