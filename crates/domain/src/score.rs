//! The order in which ready items are delivered, as one static key for each item.
//!
//! A score grows linearly with age, at the same speed for all items. So two pending items never change places, and the
//! rest of the score can be computed once, at submit.

use crate::item::Head;
use crate::time::{Millis, Timestamp};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Order {
    /// (ready_at, id)
    Fifo,
    /// (priority, ready_at, id), lower priority first
    #[default]
    Priority,
    /// (score descending, created_at, id)
    Score(Box<ScoreWeights>),
}

/// How much fee, age, size and tier count. Weights and tiers are in thousandths.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ScoreWeights {
    pub fee_permille: u32,
    pub age_permille: u32,
    pub size_permille: u32,
    pub tier_permille: u32,
    /// A fee of this size gets half of its weight: fee / (fee + fee_half).
    pub fee_half: u64,
    /// An item of this size gets half of its weight: size_half / (size_half + size).
    pub size_half_bytes: u64,
    /// An item of this age gets its whole weight. Older items get more.
    pub age_unit: Millis,
    pub tiers_permille: BTreeMap<String, u32>,
}

impl Default for ScoreWeights {
    fn default() -> ScoreWeights {
        ScoreWeights {
            fee_permille: 550,
            age_permille: 250,
            size_permille: 100,
            tier_permille: 100,
            fee_half: 1000,
            size_half_bytes: 1 << 20,
            age_unit: Millis::hours(1),
            tiers_permille: [("FREE", 0), ("PRO", 300), ("PREMIUM", 600)]
                .into_iter()
                .map(|(tier, weight)| (tier.to_owned(), weight))
                .collect(),
        }
    }
}

/// One unit of score: a thousandth of a weight, times a million.
const SCALE: i128 = 1_000_000_000;

impl ScoreWeights {
    /// The part of the score that does not change with time. Higher is delivered first.
    #[must_use]
    pub fn static_score(&self, fee: u64, size_bytes: u64, tier: Option<&str>, enqueued_at: Timestamp) -> i64 {
        let weight = |permille: u32| i128::from(permille) * (SCALE / 1000);
        let share = |part: u64, rest: u64| {
            let whole = i128::from(part) + i128::from(rest);
            if whole == 0 { 0 } else { i128::from(part) * SCALE / whole }
        };
        let tier = tier.and_then(|tier| self.tiers_permille.get(tier)).copied().unwrap_or(0);
        let score = weight(self.fee_permille) * share(fee, self.fee_half) / SCALE
            + weight(self.size_permille) * share(self.size_half_bytes, size_bytes) / SCALE
            + weight(self.tier_permille) * i128::from(tier) / 1000
            - weight(self.age_permille) * i128::from(enqueued_at.0) / i128::from(self.age_unit.0.max(1));
        i64::try_from(score).unwrap_or(if score < 0 { i64::MIN } else { i64::MAX })
    }
}

/// The position of an item in its queue. Among equal keys, the lower sequence number comes first.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct OrderKey {
    pub rank: i64,
    pub time: Timestamp,
}

impl Order {
    #[must_use]
    pub fn key(&self, head: &Head) -> OrderKey {
        match self {
            Order::Fifo => OrderKey { rank: 0, time: head.ready_at },
            Order::Priority => OrderKey { rank: i64::from(head.priority), time: head.ready_at },
            // `!score` is -score - 1: it reverses the order without an overflow at `i64::MIN`.
            Order::Score(_) => OrderKey {
                rank: !head.extras.as_ref().map_or(0, |extras| extras.score),
                time: head.created_at,
            },
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn score(fee: u64, size: u64, tier: &str, at: u64) -> i64 {
        ScoreWeights::default().static_score(fee, size, Some(tier), Timestamp(at))
    }

    #[test]
    fn fee_size_tier_and_age_each_count() {
        let now = 1_760_000_000_000;
        assert!(score(2000, 10, "FREE", now) > score(1000, 10, "FREE", now));
        assert!(score(1000, 10, "FREE", now) > score(1000, 1 << 30, "FREE", now));
        assert!(score(1000, 10, "PREMIUM", now) > score(1000, 10, "PRO", now));
        assert!(score(1000, 10, "FREE", now - 1) > score(1000, 10, "FREE", now));
        // An hour of age counts 0.25, more than a fee of 800 does.
        assert!(score(0, 10, "FREE", now - 3_600_000) > score(800, 10, "FREE", now));
    }

    #[test]
    fn the_documented_scores_are_stable() {
        assert_eq!(score(1000, 1 << 20, "PRO", 0), 275_000_000 + 50_000_000 + 30_000_000);
        assert_eq!(score(0, 0, "FREE", 3_600_000), 100_000_000 - 250_000_000);
    }

    proptest! {
        /// A static key is enough because the full scores of two items never cross.
        #[test]
        fn order_does_not_change_with_time(a in (0..1u64<<40, 0..1u64<<40, 0..1u64<<41), b in (0..1u64<<40, 0..1u64<<40, 0..1u64<<41), wait in 0..1u64<<40) {
            let weights = ScoreWeights::default();
            let full = |(fee, size, at): (u64, u64, u64), now: u64| {
                let aged = i128::from(weights.static_score(fee, size, None, Timestamp(at)));
                aged + i128::from(now) * 250_000_000 / 3_600_000
            };
            let start = a.2.max(b.2);
            prop_assert_eq!(full(a, start).cmp(&full(b, start)), full(a, start + wait).cmp(&full(b, start + wait)));
        }

        #[test]
        fn no_input_overflows(fee: u64, size: u64, at: u64, unit: u64, half: u64) {
            let weights = ScoreWeights { age_unit: Millis(unit), fee_half: half, size_half_bytes: half, ..ScoreWeights::default() };
            let _ = weights.static_score(fee, size, None, Timestamp(at));
        }
    }
}
