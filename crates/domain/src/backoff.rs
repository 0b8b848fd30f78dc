//! The delay before a retry. Whole numbers only, so that every machine computes the same delay.

use crate::id::ItemId;
use crate::time::Millis;
use serde::{Deserialize, Serialize};
use sha3::{Digest, Sha3_256};

#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Growth {
    #[default]
    None,
    Constant {
        delay: Millis,
    },
    /// `base * (factor_permille / 1000) ^ (retries so far)`, at most `cap`. The cap applies before jitter.
    Exponential {
        base: Millis,
        factor_permille: u32,
        cap: Option<Millis>,
    },
}

#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Jitter {
    #[default]
    None,
    /// Shortens the delay by up to this share. The seed comes with the command.
    Random { permille: u32 },
    /// Lengthens or shortens the delay by up to this share, from a hash of item and attempt: every machine computes
    /// the same. The result is rounded to a multiple of `round`.
    Hash { permille: u32, round: Millis },
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Backoff {
    pub growth: Growth,
    pub jitter: Jitter,
}

/// 1 s, doubling up to 5 min, each delay shortened by up to half: the retries of a fleet do not come back together.
impl Default for Backoff {
    fn default() -> Backoff {
        Backoff {
            growth: Growth::Exponential {
                base: Millis::seconds(1),
                factor_permille: 2000,
                cap: Some(Millis::minutes(5)),
            },
            jitter: Jitter::Random { permille: 500 },
        }
    }
}

/// The names that [`Backoff::preset`] accepts.
pub const PRESETS: [&str; 8] =
    ["default", "none", "tyger", "ayepi", "quantumleap", "cyclotron", "aicf-ai", "aicf-quantum"];

impl Backoff {
    /// No delay.
    pub const NONE: Backoff = Backoff { growth: Growth::None, jitter: Jitter::None };

    /// The default, none, or the retry schedule of another queue system by the name of that system.
    #[must_use]
    pub fn preset(name: &str) -> Option<Backoff> {
        let exponential = |base, cap| Growth::Exponential { base, factor_permille: 2000, cap };
        Some(match name {
            "default" => Backoff::default(),
            "none" | "tyger" => Backoff::NONE,
            "ayepi" => Backoff {
                growth: exponential(Millis::seconds(1), Some(Millis::seconds(30))),
                jitter: Jitter::Random { permille: 500 },
            },
            "quantumleap" => Backoff { growth: exponential(Millis::seconds(20), None), jitter: Jitter::None },
            "cyclotron" => Backoff {
                growth: exponential(Millis::seconds(1), Some(Millis::hours(1))),
                jitter: Jitter::None,
            },
            "aicf-ai" => Backoff::aicf(5),
            "aicf-quantum" => Backoff::aicf(2),
            _ => return None,
        })
    }

    fn aicf(base_seconds: u64) -> Backoff {
        Backoff {
            growth: Growth::Exponential {
                base: Millis::seconds(base_seconds),
                factor_permille: 2000,
                cap: Some(Millis::minutes(15)),
            },
            jitter: Jitter::Hash { permille: 100, round: Millis::seconds(1) },
        }
    }

    /// The delay after a failed attempt that had `retries` retries before it (0: the first attempt).
    #[must_use]
    pub fn delay(&self, item: ItemId, retries: u32, seed: u64) -> Millis {
        let plain = match &self.growth {
            Growth::None => 0,
            Growth::Constant { delay } => delay.0,
            Growth::Exponential { base, factor_permille, cap } => {
                let cap = cap.unwrap_or(Millis::MAX).0.min(Millis::MAX.0);
                grow(base.0, *factor_permille, retries, cap)
            }
        };
        let jittered = match &self.jitter {
            Jitter::None => plain,
            Jitter::Random { permille } => {
                let share = u128::from(plain) * u128::from((*permille).min(1000)) / 1000;
                plain - u64::try_from((share * u128::from(seed)) >> 64).unwrap_or(0)
            }
            Jitter::Hash { permille, round } => {
                let spread = i128::from(plain) * i128::from((*permille).min(1000)) / 1000;
                let offset = (spread * i128::from(hash_jitter(item, retries))) >> 63;
                let round = i128::from(round.0.max(1));
                u64::try_from((i128::from(plain) + offset + round / 2) / round * round).unwrap_or(0)
            }
        };
        Millis(jittered.min(Millis::MAX.0))
    }
}

fn grow(base: u64, factor_permille: u32, times: u32, cap: u64) -> u64 {
    // Micro-milliseconds keep a factor like 1.1 exact enough over thousands of steps.
    const SCALE: u128 = 1_000_000;
    let limit = u128::from(cap) * SCALE;
    let mut value = (u128::from(base) * SCALE).min(limit);
    for _ in 0..times {
        let next = (value * u128::from(factor_permille) / 1000).min(limit);
        if next == value {
            break;
        }
        value = next;
    }
    u64::try_from(value / SCALE).unwrap_or(cap)
}

/// A number spread evenly over all of `i64`.
fn hash_jitter(item: ItemId, retries: u32) -> i64 {
    let mut hash = Sha3_256::new();
    hash.update(b"towline|retry\0");
    hash.update(16u32.to_be_bytes());
    hash.update(item.0.as_bytes());
    hash.update(8u32.to_be_bytes());
    hash.update(u64::from(retries).to_be_bytes());
    let digest = hash.finalize();
    let mut first = [0; 8];
    first.copy_from_slice(&digest[..8]);
    i64::from_be_bytes(first)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use uuid::Uuid;

    const ITEM: ItemId = ItemId(Uuid::from_u128(0x0192_0000_0000_7000_8000_0000_0000_0001));

    fn delays(name: &str, seed: u64) -> Vec<u64> {
        let backoff = Backoff::preset(name).unwrap();
        (0..8).map(|n| backoff.delay(ITEM, n, seed).0).collect()
    }

    #[test]
    fn every_preset_exists() {
        for name in PRESETS {
            assert!(Backoff::preset(name).is_some(), "{name}");
        }
        assert_eq!(Backoff::preset("nonsense"), None);
    }

    #[test]
    fn the_default_doubles_from_one_second_to_five_minutes_and_jitter_only_shortens() {
        assert_eq!(delays("default", 0), [1000, 2000, 4000, 8000, 16_000, 32_000, 64_000, 128_000]);
        assert_eq!(delays("default", u64::MAX)[..2], [501, 1001]);
        assert_eq!(Backoff::default().delay(ITEM, 100, 0), Millis::minutes(5));
    }

    #[test]
    fn quantumleap_doubles_from_twenty_seconds_without_a_cap() {
        assert_eq!(delays("quantumleap", 0)[..4], [20_000, 40_000, 80_000, 160_000]);
    }

    #[test]
    fn ayepi_doubles_from_one_second_to_thirty_and_jitter_only_shortens() {
        assert_eq!(delays("ayepi", 0), [1000, 2000, 4000, 8000, 16_000, 30_000, 30_000, 30_000]);
        assert_eq!(delays("ayepi", u64::MAX)[0], 501);
    }

    #[test]
    fn aicf_jitters_by_a_tenth_after_the_cap_in_whole_seconds() {
        let backoff = Backoff::preset("aicf-ai").unwrap();
        let mut seen_above = false;
        for n in 0..200 {
            let item = ItemId(Uuid::from_u128(n));
            let delay = backoff.delay(item, 20, 0).0;
            assert!((810_000..=990_000).contains(&delay) && delay.is_multiple_of(1000), "{delay}");
            seen_above |= delay > 900_000;
        }
        assert!(seen_above, "the cap applies before jitter");
    }

    proptest! {
        #[test]
        fn growth_never_falls_and_never_exceeds_its_cap(base in 0..100_000u64, factor in 1000..5000u32, cap in 1..10_000_000u64, n in 0..12_000u32) {
            let backoff = Backoff {
                growth: Growth::Exponential { base: Millis(base), factor_permille: factor, cap: Some(Millis(cap)) },
                jitter: Jitter::None,
            };
            let (now, next) = (backoff.delay(ITEM, n, 0), backoff.delay(ITEM, n + 1, 0));
            prop_assert!(now <= next && next.0 <= cap);
        }

        #[test]
        fn the_delay_of_any_backoff_is_bounded(base: u64, factor: u32, cap: Option<u64>, permille: u32, round: u64, n in 0..20_000u32, seed: u64) {
            for jitter in [Jitter::None, Jitter::Random { permille }, Jitter::Hash { permille, round: Millis(round) }] {
                let growth = Growth::Exponential { base: Millis(base), factor_permille: factor, cap: cap.map(Millis) };
                let delay = Backoff { growth, jitter }.delay(ITEM, n, seed);
                prop_assert!(delay <= Millis::MAX);
            }
        }
    }
}
