//! Which items a receive takes: how many, of which fairness key, within which byte budget. All stores use these rules.

use crate::counts::Counts;
use crate::flow::{Flow, FullKeys, RateState, Throttle};
use crate::round_robin::{KeyTag, RoundRobin, Weights};
use crate::time::Timestamp;
use std::sync::Arc;

/// Payload bytes that the receives of one call may return, besides one item.
pub const READ_BYTES_MAX: u64 = 64 << 20;

/// Expired items that one receive fails before it returns. The next receive continues from there.
pub const EXPIRED_MAX: usize = 8192;

/// One receive, from its first item to its last.
#[derive(Debug)]
pub struct Selection {
    /// The lower of what flow control allows and what the receiver asked for.
    max: usize,
    taken: usize,
    expired: usize,
    turns: Option<(RoundRobin, Arc<Weights>)>,
    asked: u32,
    rate: RateState,
    now: Timestamp,
}

/// The state of a queue's flow control after a receive.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Selected {
    pub rate: RateState,
    /// Why the next receive gets nothing.
    pub throttle: Option<Throttle>,
    /// A lower bound of how many items the next receive would get.
    pub more: usize,
}

impl Selection {
    /// `turns` is the queue's round robin, if its keys take turns.
    #[must_use]
    pub fn new(
        flow: &Flow,
        processing: u64,
        rate: RateState,
        asked: u32,
        turns: Option<(RoundRobin, Arc<Weights>)>,
        now: Timestamp,
    ) -> Selection {
        let allowed = flow.allowance(processing, rate, now).min(u64::from(asked));
        let max = usize::try_from(allowed).unwrap_or(usize::MAX);
        Selection { max, taken: 0, expired: 0, turns, asked, rate, now }
    }

    #[must_use]
    pub fn wants_more(&self) -> bool {
        self.taken < self.max && self.expired < EXPIRED_MAX
    }

    #[must_use]
    pub fn taken(&self) -> usize {
        self.taken
    }

    #[must_use]
    pub fn takes_turns(&self) -> bool {
        self.turns.is_some()
    }

    /// The fairness key of the next item. `open` returns the first key, from a given one on, that has a ready item and
    /// is below its limit.
    pub fn next_key(&self, open: impl Fn(KeyTag) -> Option<KeyTag>) -> Option<KeyTag> {
        let (round_robin, weights) = self.turns.as_ref()?;
        round_robin.next(weights, open)
    }

    /// Whether an item of `bytes` still fits into the budget. The first item of a receive may exceed the rest of the
    /// budget. Otherwise a large item would never be delivered.
    #[must_use]
    pub fn fits(&self, bytes: u64, budget: u64) -> bool {
        bytes <= budget || (self.taken == 0 && budget > 0)
    }

    pub fn record_delivery(&mut self, key: KeyTag) {
        self.taken += 1;
        if let Some((round_robin, weights)) = &mut self.turns {
            *round_robin = round_robin.record_delivery(key, weights);
        }
    }

    pub fn record_expired(&mut self) {
        self.expired += 1;
    }

    /// The round robin after this receive, if it changed.
    #[must_use]
    pub fn round_robin(&self) -> Option<RoundRobin> {
        self.turns.as_ref().filter(|_| self.taken > 0).map(|(round_robin, _)| *round_robin)
    }

    /// `counts` are those after the receive. `ready` is a lower bound of the items that could be delivered now without
    /// the limits of concurrency and rate.
    #[must_use]
    pub fn finish(
        &self,
        flow: &Flow,
        counts: &Counts,
        ready: u64,
        full_keys: impl FnOnce() -> FullKeys,
    ) -> Selected {
        let now = self.now;
        let rate = flow.record_delivery(self.taken, self.rate, now);
        // A receive that got all it asked for did not look at every key.
        let keys = || if self.taken < self.asked as usize { full_keys().throttle() } else { None };
        let throttle = flow.throttle(counts.processing, rate, now).or_else(keys);
        let more = flow.allowance(counts.processing, rate, now).min(ready);
        Selected { rate, throttle, more: usize::try_from(more).unwrap_or(usize::MAX) }
    }
}
