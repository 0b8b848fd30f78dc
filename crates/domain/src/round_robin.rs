//! Weighted round robin over the fairness keys that have ready items.
//!
//! Keys form a circle in the order of their tags. The current key delivers as many items as its weight says; then it is
//! the turn of the next key that has ready items. The only state is the current key and its count. So a key that had no
//! items for a while gets one turn and no more, and a new key waits for one round at most.

use crate::digest;
use crate::flow::Flow;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// A hash of a fairness key. Every head carries it. All items without a key share [`KeyTag::NONE`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default, Serialize, Deserialize)]
#[serde(transparent)]
pub struct KeyTag(u64);

impl KeyTag {
    pub const NONE: KeyTag = KeyTag(0);

    #[must_use]
    pub fn of(key: &str) -> KeyTag {
        // 63 bits, so that the order is the same in PostgreSQL, whose numbers are signed.
        KeyTag((digest::fairness(key) >> 1).max(1))
    }

    #[must_use]
    pub fn of_any(key: Option<&str>) -> KeyTag {
        key.map_or(KeyTag::NONE, KeyTag::of)
    }

    #[must_use]
    pub fn is_none(&self) -> bool {
        *self == KeyTag::NONE
    }

    /// The next tag.
    #[must_use]
    pub fn after(self) -> KeyTag {
        KeyTag(self.0 + 1)
    }

    /// As a signed number, for storage.
    #[must_use]
    pub fn number(self) -> i64 {
        self.0.cast_signed()
    }

    #[must_use]
    pub fn from_number(number: i64) -> KeyTag {
        KeyTag(number.max(0).cast_unsigned())
    }
}

/// Items per turn, by key. The default is 1.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Weights(BTreeMap<KeyTag, u32>);

impl Weights {
    #[must_use]
    pub fn of(flow: &Flow) -> Weights {
        let weights = flow.fairness.iter().flat_map(|fairness| &fairness.weights);
        Weights(weights.map(|(key, &weight)| (KeyTag::of(key), weight)).collect())
    }

    #[must_use]
    pub fn get(&self, key: KeyTag) -> u32 {
        self.0.get(&key).copied().unwrap_or(1)
    }

    /// The keys with their own weight.
    pub fn iter(&self) -> impl Iterator<Item = (KeyTag, u32)> + '_ {
        self.0.iter().map(|(&key, &weight)| (key, weight))
    }
}

/// The key whose turn it is, and how many items it has delivered in this turn.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct RoundRobin {
    pub key: KeyTag,
    pub given: u32,
}

impl RoundRobin {
    /// The key of the next item. `first` returns the first key with ready items, from a given key on.
    pub fn next(self, weights: &Weights, first: impl Fn(KeyTag) -> Option<KeyTag>) -> Option<KeyTag> {
        if self.given < weights.get(self.key) && first(self.key) == Some(self.key) {
            return Some(self.key);
        }
        first(self.key.after()).or_else(|| first(KeyTag::NONE))
    }

    /// The state after the delivery of an item of this key.
    #[must_use]
    pub fn record_delivery(self, key: KeyTag, weights: &Weights) -> RoundRobin {
        // A key that is alone in the circle starts a new turn.
        let same_turn = key == self.key && self.given < weights.get(key);
        RoundRobin { key, given: if same_turn { self.given + 1 } else { 1 } }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::flow::Fairness;
    use proptest::prelude::*;

    fn weights(of: &[(&str, u32)]) -> Weights {
        let weights = of.iter().map(|(key, weight)| ((*key).to_owned(), *weight)).collect();
        Weights::of(&Flow { fairness: Some(Fairness { weights }), ..Flow::default() })
    }

    /// Delivers one item of those left for each key.
    fn deliver(turn: &mut RoundRobin, weights: &Weights, left: &mut BTreeMap<KeyTag, u64>) -> Option<KeyTag> {
        let first = |from| left.range(from..).next().map(|(&key, _)| key);
        let key = turn.next(weights, first)?;
        *turn = turn.record_delivery(key, weights);
        let count = left.get_mut(&key)?;
        *count -= 1;
        if *count == 0 {
            left.remove(&key);
        }
        Some(key)
    }

    #[test]
    fn tags_are_positive_signed_numbers() {
        for key in ["", "a", "b", "tenant"] {
            let tag = KeyTag::of(key);
            assert!(!tag.is_none() && tag.number() > 0);
            assert_eq!(KeyTag::from_number(tag.number()), tag);
        }
        assert_eq!(KeyTag::of_any(None), KeyTag::NONE);
    }

    #[test]
    fn a_key_with_few_items_does_not_wait_for_a_key_with_many() {
        let (many, few) = (KeyTag::of("many"), KeyTag::of("few"));
        let mut left: BTreeMap<_, _> = [(many, 1_000_000), (few, 10)].into();
        let mut turn = RoundRobin::default();
        let delivered: Vec<_> =
            (0..20).filter_map(|_| deliver(&mut turn, &Weights::default(), &mut left)).collect();
        assert_eq!(delivered.iter().filter(|&&key| key == few).count(), 10);
    }

    #[test]
    fn a_key_that_had_no_items_gets_no_credit() {
        let (a, b) = (KeyTag::of("a"), KeyTag::of("b"));
        let mut left: BTreeMap<_, _> = [(a, 1000)].into();
        let mut turn = RoundRobin::default();
        for _ in 0..500 {
            deliver(&mut turn, &Weights::default(), &mut left);
        }
        left.insert(b, 100);
        let delivered: Vec<_> =
            (0..10).filter_map(|_| deliver(&mut turn, &Weights::default(), &mut left)).collect();
        assert_eq!(delivered.iter().filter(|&&key| key == b).count(), 5);
    }

    proptest! {
        #[test]
        fn every_round_is_in_proportion(key_weights in proptest::collection::vec(1..5_u32, 1..8), rounds in 1..20_u64) {
            let names: Vec<String> = (0..key_weights.len()).map(|n| n.to_string()).collect();
            let named: Vec<_> = names.iter().map(String::as_str).zip(key_weights.iter().copied()).collect();
            let weights = weights(&named);
            let mut left: BTreeMap<_, _> = names.iter().map(|name| (KeyTag::of(name), 1_000_000)).collect();
            let mut turn = RoundRobin::default();
            let round: u32 = key_weights.iter().sum();
            for _ in 0..rounds {
                let mut counted: BTreeMap<KeyTag, u32> = BTreeMap::new();
                for _ in 0..round {
                    let key = deliver(&mut turn, &weights, &mut left).expect("items are left");
                    *counted.entry(key).or_default() += 1;
                }
                for (name, weight) in &named {
                    prop_assert_eq!(counted.get(&KeyTag::of(name)), Some(weight));
                }
            }
        }

        /// While a key has ready items, no other key delivers more than its weight before that key's next delivery.
        #[test]
        fn no_key_is_passed_over(steps in proptest::collection::vec((0..6_u8, 0..3_u64), 1..300)) {
            let weights = weights(&[("0", 3)]);
            let mut left: BTreeMap<KeyTag, u64> = BTreeMap::new();
            let mut waits: BTreeMap<KeyTag, BTreeMap<KeyTag, u32>> = BTreeMap::new();
            let mut turn = RoundRobin::default();
            for (key, more) in steps {
                if more > 0 {
                    *left.entry(KeyTag::of(&key.to_string())).or_default() += more;
                }
                let had: Vec<KeyTag> = left.keys().copied().collect();
                let Some(delivered) = deliver(&mut turn, &weights, &mut left) else { continue };
                waits.remove(&delivered);
                for waiting in had.into_iter().filter(|&key| key != delivered) {
                    let times = waits.entry(waiting).or_default().entry(delivered).or_default();
                    *times += 1;
                    prop_assert!(*times <= weights.get(delivered), "{waiting:?} waits for {delivered:?}");
                }
            }
        }
    }
}
