//! Keys that take turns: weighted round robin over those that have something to give.
//!
//! Keys stand in a circle, in order of their tags. The one whose turn it is gives as many items as its weight says, and then
//! the next one does that has something. All that is kept is whose turn it is. So whoever comes back has no more than a turn,
//! however long it was away, and whoever comes for the first time waits for one round at most, however many come.

use crate::digest;
use crate::flow::Flow;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// What stands for a fairness key where items are selected: it rides in every head. Items without a key have one in common.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default, Serialize, Deserialize)]
#[serde(transparent)]
pub struct KeyTag(u64);

impl KeyTag {
    /// Of items without a key.
    pub const NONE: KeyTag = KeyTag(0);

    #[must_use]
    pub fn of(key: &str) -> KeyTag {
        // Half of the numbers, so that the order is the same where they have a sign.
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

    /// The least that comes behind it.
    #[must_use]
    pub fn after(self) -> KeyTag {
        KeyTag(self.0 + 1)
    }

    /// As it is stored where numbers have a sign.
    #[must_use]
    pub fn number(self) -> i64 {
        self.0.cast_signed()
    }

    #[must_use]
    pub fn from_number(number: i64) -> KeyTag {
        KeyTag(number.max(0).cast_unsigned())
    }
}

/// How many items a key gives in a turn: one, unless something else is said.
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

    /// Those that are not one.
    pub fn iter(&self) -> impl Iterator<Item = (KeyTag, u32)> + '_ {
        self.0.iter().map(|(&key, &weight)| (key, weight))
    }
}

/// Whose turn it is, and how much it has given.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct RoundRobin {
    pub key: KeyTag,
    pub given: u32,
}

impl RoundRobin {
    /// Who gives the next item. `first`: the first key, from this one on, that has something.
    pub fn next(self, weights: &Weights, first: impl Fn(KeyTag) -> Option<KeyTag>) -> Option<KeyTag> {
        if self.given < weights.get(self.key) && first(self.key) == Some(self.key) {
            return Some(self.key);
        }
        first(self.key.after()).or_else(|| first(KeyTag::NONE))
    }

    /// After this key has given an item.
    #[must_use]
    pub fn record_delivery(self, key: KeyTag, weights: &Weights) -> RoundRobin {
        // Who is alone in the circle begins again.
        let goes_on = key == self.key && self.given < weights.get(key);
        RoundRobin { key, given: if goes_on { self.given + 1 } else { 1 } }
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

    /// Gives one item, of those that are left of each key.
    fn give(turn: &mut RoundRobin, weights: &Weights, left: &mut BTreeMap<KeyTag, u64>) -> Option<KeyTag> {
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
    fn keys_have_tags_that_fit_anywhere() {
        for key in ["", "a", "b", "tenant"] {
            let tag = KeyTag::of(key);
            assert!(!tag.is_none() && tag.number() > 0);
            assert_eq!(KeyTag::from_number(tag.number()), tag);
        }
        assert_eq!(KeyTag::of_any(None), KeyTag::NONE);
    }

    #[test]
    fn a_few_do_not_wait_for_many() {
        let (many, few) = (KeyTag::of("many"), KeyTag::of("few"));
        let mut left: BTreeMap<_, _> = [(many, 1_000_000), (few, 10)].into();
        let mut turn = RoundRobin::default();
        let given: Vec<_> = (0..20).filter_map(|_| give(&mut turn, &Weights::default(), &mut left)).collect();
        assert_eq!(given.iter().filter(|&&key| key == few).count(), 10);
    }

    #[test]
    fn who_was_away_has_no_credit() {
        let (a, b) = (KeyTag::of("a"), KeyTag::of("b"));
        let mut left: BTreeMap<_, _> = [(a, 1000)].into();
        let mut turn = RoundRobin::default();
        for _ in 0..500 {
            give(&mut turn, &Weights::default(), &mut left);
        }
        left.insert(b, 100);
        let given: Vec<_> = (0..10).filter_map(|_| give(&mut turn, &Weights::default(), &mut left)).collect();
        assert_eq!(given.iter().filter(|&&key| key == b).count(), 5);
    }

    proptest! {
        /// While all of them have something, each gets what its weight says in every round, and nobody waits longer.
        #[test]
        fn every_round_is_in_proportion(given in proptest::collection::vec(1..5_u32, 1..8), rounds in 1..20_u64) {
            let names: Vec<String> = (0..given.len()).map(|n| n.to_string()).collect();
            let named: Vec<_> = names.iter().map(String::as_str).zip(given.iter().copied()).collect();
            let weights = weights(&named);
            let mut left: BTreeMap<_, _> = names.iter().map(|name| (KeyTag::of(name), 1_000_000)).collect();
            let mut turn = RoundRobin::default();
            let round: u32 = given.iter().sum();
            for _ in 0..rounds {
                let mut counted: BTreeMap<KeyTag, u32> = BTreeMap::new();
                for _ in 0..round {
                    let key = give(&mut turn, &weights, &mut left).expect("something is left");
                    *counted.entry(key).or_default() += 1;
                }
                for (name, weight) in &named {
                    prop_assert_eq!(counted.get(&KeyTag::of(name)), Some(weight));
                }
            }
        }

        /// Whoever comes and goes: all is given, one by one, and who has something is passed by no other more than its weight.
        #[test]
        fn nobody_is_passed_over(steps in proptest::collection::vec((0..6_u8, 0..3_u64), 1..300)) {
            let weights = weights(&[("0", 3)]);
            let mut left: BTreeMap<KeyTag, u64> = BTreeMap::new();
            let mut waits: BTreeMap<KeyTag, BTreeMap<KeyTag, u32>> = BTreeMap::new();
            let mut turn = RoundRobin::default();
            for (key, more) in steps {
                if more > 0 {
                    *left.entry(KeyTag::of(&key.to_string())).or_default() += more;
                }
                let had: Vec<KeyTag> = left.keys().copied().collect();
                let Some(given) = give(&mut turn, &weights, &mut left) else { continue };
                waits.remove(&given);
                for waiting in had.into_iter().filter(|&key| key != given) {
                    let times = waits.entry(waiting).or_default().entry(given).or_default();
                    *times += 1;
                    prop_assert!(*times <= weights.get(given), "{waiting:?} waits for {given:?}");
                }
            }
        }
    }
}
