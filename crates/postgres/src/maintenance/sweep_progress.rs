//! Where in the order of time the next sweep begins to look.
//!
//! What was carried out leaves dead entries behind, like what was given out. All that was due a while ago is done;
//! now and then a sweep looks from the start, for what others may have left.

use std::sync::atomic::Ordering::Relaxed;
use std::sync::atomic::{AtomicU32, AtomicU64};
use std::sync::{Mutex, MutexGuard, PoisonError};
use towline_domain::Timestamp;

#[derive(Debug, Default)]
pub(crate) struct Sweeps {
    done: AtomicU64,
    uses: AtomicU32,
    removals: Mutex<Removals>,
}

/// When finished items next go, as far as this server knows.
#[derive(Debug, Default, Clone, Copy)]
struct Removals {
    next: Timestamp,
    /// Moves with every item that was finished.
    generation: u64,
    uses: u32,
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

    fn removals(&self) -> MutexGuard<'_, Removals> {
        self.removals.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Whether something finished may have to go by now; with what to show when it is known when the next goes.
    pub(crate) fn removal(&self, now: Timestamp) -> Option<u64> {
        let mut removals = self.removals();
        removals.uses += 1;
        let looks = removals.next <= now || removals.uses.is_multiple_of(Self::FULL_EVERY);
        looks.then_some(removals.generation)
    }

    /// Nothing goes before that, unless it was finished meanwhile.
    pub(crate) fn removed(&self, generation: u64, next: Timestamp) {
        let mut removals = self.removals();
        if removals.generation == generation {
            removals.next = next;
        }
    }

    /// Something was finished, and goes then.
    pub(crate) fn finished(&self, remove_at: Timestamp) {
        let mut removals = self.removals();
        removals.generation += 1;
        removals.next = removals.next.min(remove_at);
    }

    pub(crate) fn done(&self, until: Timestamp) {
        self.done.fetch_max(until.0, Relaxed);
    }
}
