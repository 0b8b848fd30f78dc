//! Flow control: how many items of a queue are leased at once, and how fast they are delivered.
//!
//! A rate is a leaky bucket (GCRA). Its state is one time: when the last delivered item would have been delivered at a
//! steady rate. A receive takes what the rate allows now, and learns how long to wait for more.

use crate::limits;
use crate::policy::check_number;
use crate::refusal::Refusal;
use crate::round_robin::KeyTag;
use crate::time::{Millis, Timestamp};
use serde::{Deserialize, Serialize};
use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::str::FromStr;
use std::sync::Arc;

/// What limits deliveries from a queue.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct Flow {
    /// At most this many items are leased at once.
    pub concurrency: Option<u32>,
    pub rate: Option<Rate>,
    /// Keys take turns; see [`crate::round_robin`].
    pub fairness: Option<Fairness>,
    /// At most this many items of a key are leased at once. Keys take turns.
    pub concurrency_per_key: Option<u32>,
}

/// How keys share a queue.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct Fairness {
    /// Items of a key per turn. Keys that are not listed have 1.
    pub weights: BTreeMap<String, u32>,
}

/// `count` items per period, and at most `burst` at once.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Rate {
    pub count: u32,
    pub per: Millis,
    pub burst: u32,
}

/// How much of a rate is used up: nanoseconds since 1970. Zero before the first delivery.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct RateState(pub u64);

/// Why a receive gets nothing although items are ready.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Throttle {
    /// The queue is at its limit until a lease ends.
    Concurrency,
    /// The rate is used up for this long.
    Rate(Millis),
    /// These keys are at their limit until a lease ends. No other key has ready items.
    Keys(FullKeys),
}

/// Keys that are at their limit. **Invariant:** at most [`limits::FULL_KEYS_MAX`]. Further keys are left out.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct FullKeys(Arc<BTreeSet<KeyTag>>);

impl FullKeys {
    #[must_use]
    pub fn has(&self, key: KeyTag) -> bool {
        self.0.contains(&key)
    }

    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// The keys that are in both.
    #[must_use]
    pub fn shared_with(&self, other: &FullKeys) -> FullKeys {
        self.0.intersection(&other.0).copied().collect()
    }

    /// The throttle by these keys, if there are any.
    #[must_use]
    pub fn throttle(self) -> Option<Throttle> {
        (!self.is_empty()).then_some(Throttle::Keys(self))
    }
}

impl FromIterator<KeyTag> for FullKeys {
    fn from_iter<I: IntoIterator<Item = KeyTag>>(keys: I) -> FullKeys {
        FullKeys(Arc::new(keys.into_iter().take(limits::FULL_KEYS_MAX).collect()))
    }
}

impl Flow {
    pub(crate) fn check(&self) -> Result<(), Refusal> {
        if let Some(count) = self.concurrency {
            check_number("concurrency", u64::from(count), 1, u64::from(limits::CONCURRENCY_MAX))?;
        }
        if let Some(count) = self.concurrency_per_key {
            check_number("concurrency_per_key", u64::from(count), 1, u64::from(limits::CONCURRENCY_MAX))?;
        }
        self.fairness.as_ref().map_or(Ok(()), Fairness::check)?;
        self.rate.as_ref().map_or(Ok(()), Rate::check)
    }

    /// Whether a receive must know what other receives took.
    #[must_use]
    pub fn is_limited(&self) -> bool {
        self.concurrency.is_some() || self.rate.is_some() || self.takes_turns()
    }

    /// Whether keys take turns. Otherwise all items are in one order, whatever their keys.
    #[must_use]
    pub fn takes_turns(&self) -> bool {
        self.fairness.is_some() || self.limits_keys()
    }

    #[must_use]
    pub fn limits_keys(&self) -> bool {
        self.concurrency_per_key.is_some()
    }

    /// How many items may be delivered while `processing` are leased.
    #[must_use]
    pub fn allowance(&self, processing: u64, used: RateState, now: Timestamp) -> u64 {
        let slots = self.concurrency.map_or(u64::MAX, |max| u64::from(max).saturating_sub(processing));
        slots.min(self.rate.map_or(u64::MAX, |rate| rate.allowance(used, now)))
    }

    /// What prevents the delivery of the next item.
    #[must_use]
    pub fn throttle(&self, processing: u64, used: RateState, now: Timestamp) -> Option<Throttle> {
        if self.concurrency.is_some_and(|max| u64::from(max) <= processing) {
            return Some(Throttle::Concurrency);
        }
        self.rate.and_then(|rate| rate.wait(used, now)).map(Throttle::Rate)
    }

    /// Whether one more item of a key may be delivered while `leased_of_key` are leased.
    #[must_use]
    pub fn has_room(&self, leased_of_key: u64) -> bool {
        self.concurrency_per_key.is_none_or(|max| leased_of_key < u64::from(max))
    }

    /// The rate state after a delivery of `items`. With 0 items: the state left by a slower rate, cut to this one's burst.
    #[must_use]
    pub fn record_delivery(&self, items: usize, used: RateState, now: Timestamp) -> RateState {
        match &self.rate {
            Some(rate) => rate.record_delivery(items as u64, used, now),
            None => used,
        }
    }
}

impl Fairness {
    fn check(&self) -> Result<(), Refusal> {
        let (given, max) = (self.weights.len(), limits::WEIGHTS_MAX);
        if given > max {
            let message = format!("{given} weights; use at most {max}, other keys have weight 1");
            return Err(Refusal::invalid("fairness", message));
        }
        for (key, &weight) in &self.weights {
            if key.is_empty() || key.len() > limits::LABEL_BYTES_MAX {
                let message = format!(
                    "a weight for a key of {} bytes; use 1 to {}",
                    key.len(),
                    limits::LABEL_BYTES_MAX
                );
                return Err(Refusal::invalid("fairness", message));
            }
            if !(1..=limits::WEIGHT_MAX).contains(&weight) {
                let message =
                    format!("weight {weight} of {key:?} is out of range; use 1 to {}", limits::WEIGHT_MAX);
                return Err(Refusal::invalid("fairness", message));
            }
        }
        Ok(())
    }
}

const NANOS: u64 = 1_000_000;

impl Rate {
    /// A rate with the default burst: what it allows in a tenth of a second.
    #[must_use]
    pub fn new(count: u32, per: Millis) -> Rate {
        let tenth = u64::from(count).saturating_mul(100) / per.0.max(1);
        let burst = u32::try_from(tenth).unwrap_or(u32::MAX).clamp(1, limits::RATE_BURST_MAX);
        Rate { count, per, burst }
    }

    fn check(&self) -> Result<(), Refusal> {
        let (most, longest) = (limits::RATE_PER_SECOND_MAX, limits::RATE_PERIOD_MAX);
        if self.per == Millis::ZERO || self.per > longest {
            let message = format!("{self}: a period of {}; use 1ms to {longest}", self.per);
            return Err(Refusal::invalid("rate", message));
        }
        if self.count == 0 || u64::from(self.count) * 1000 > u64::from(most) * self.per.0 {
            return Err(Refusal::invalid("rate", format!("{self} is out of range; use up to {most}/s")));
        }
        check_number("rate burst", u64::from(self.burst), 1, u64::from(limits::RATE_BURST_MAX))?;
        let refill = u128::from(self.per.0) * u128::from(self.burst) / u128::from(self.count);
        if refill > u128::from(limits::RATE_REFILL_MAX.0) {
            let (burst, years) = (self.burst, limits::RATE_REFILL_MAX.0 / Millis::days(366).0);
            let message = format!(
                "{self}: a burst of {burst} takes more than {years} years to refill; use a smaller burst"
            );
            return Err(Refusal::invalid("rate", message));
        }
        Ok(())
    }

    /// Nanoseconds from one item to the next.
    fn interval(&self) -> u64 {
        (self.per.0.saturating_mul(NANOS) / u64::from(self.count.max(1))).max(1)
    }

    /// The current state, and the latest state the rate allows. The state left by a slower rate counts as at most one
    /// whole burst of this one.
    fn window(&self, used: RateState, now: Timestamp) -> (u64, u64) {
        let now = now.0.saturating_mul(NANOS);
        let end = now.saturating_add(self.interval().saturating_mul(u64::from(self.burst)));
        (used.0.clamp(now, end), end)
    }

    fn allowance(&self, used: RateState, now: Timestamp) -> u64 {
        let (from, end) = self.window(used, now);
        // At the end of the range of times, the rate limits nothing.
        if end == u64::MAX { u64::MAX } else { (end - from) / self.interval() }
    }

    fn record_delivery(&self, items: u64, used: RateState, now: Timestamp) -> RateState {
        let (from, end) = self.window(used, now);
        if items == 0 {
            return used.min(RateState(end));
        }
        RateState(from.saturating_add(items.saturating_mul(self.interval())))
    }

    /// How long until the rate allows one more item.
    fn wait(&self, used: RateState, now: Timestamp) -> Option<Millis> {
        let (from, end) = self.window(used, now);
        let missing = self.interval().checked_sub(end - from).filter(|&nanos| nanos > 0)?;
        (end != u64::MAX).then(|| Millis(missing.div_ceil(NANOS)))
    }
}

#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{0:?} is not a rate; write it like 1000/s, 10/m or 500/30s, with a burst like 1000/s,burst=50")]
pub struct RateError(String);

impl FromStr for Rate {
    type Err = RateError;

    /// `1000/s`, `10/m`, `500/30s`; `1000/s,burst=50`.
    fn from_str(text: &str) -> Result<Rate, RateError> {
        let wrong = || RateError(text.chars().take(64).collect());
        let (rate, burst) = match text.split_once(',') {
            Some((rate, burst)) => (rate, Some(burst.trim().strip_prefix("burst=").ok_or_else(wrong)?)),
            None => (text, None),
        };
        let (count, per) = rate.split_once('/').ok_or_else(wrong)?;
        let per = per.trim();
        let per = match per.starts_with(|first: char| first.is_ascii_digit()) {
            true => Millis::parse(per),
            false => Millis::parse(&format!("1{per}")),
        };
        let rate = Rate::new(count.trim().parse().map_err(|_| wrong())?, per.map_err(|_| wrong())?);
        match burst {
            Some(burst) => Ok(Rate { burst: burst.trim().parse().map_err(|_| wrong())?, ..rate }),
            None => Ok(rate),
        }
    }
}

impl fmt::Display for Rate {
    /// The shortest form that parses to the same rate.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let per = self.per.to_string();
        let per = match per.strip_prefix('1') {
            Some(unit) if unit.chars().all(|c| c.is_ascii_alphabetic()) => unit,
            _ => &per,
        };
        write!(f, "{}/{per}", self.count)?;
        if self.burst != Rate::new(self.count, self.per).burst {
            write!(f, ",burst={}", self.burst)?;
        }
        Ok(())
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "tests")]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const NOW: Timestamp = Timestamp(1_760_000_000_000);

    fn rate(text: &str) -> Flow {
        Flow { rate: Some(text.parse().unwrap()), ..Flow::default() }
    }

    #[test]
    fn rates_are_parsed_and_printed() {
        for (text, count, per, burst) in [
            ("1000/s", 1000, 1000, 100),
            ("10/m", 10, 60_000, 1),
            ("500/30s", 500, 30_000, 1),
            (" 5 / 100ms , burst= 7 ", 5, 100, 7),
            ("1/d", 1, 86_400_000, 1),
        ] {
            let read: Rate = text.parse().unwrap();
            assert_eq!(read, Rate { count, per: Millis(per), burst }, "{text}");
            assert_eq!(read.to_string().parse(), Ok(read), "{read}");
        }
        assert_eq!("1000/s".parse::<Rate>().unwrap().to_string(), "1000/s");
        for text in ["", "s", "10", "10/", "/s", "-1/s", "10/x", "10/s,5", "10/s,burst=", "1e3/s"] {
            let error = text.parse::<Rate>().unwrap_err().to_string();
            assert!(error.contains("1000/s"), "{error}");
        }
    }

    #[test]
    fn a_rate_out_of_range_is_refused() {
        let slow = ["1/366d,burst=1000", "1/d,burst=100000"];
        for text in ["0/s", "2000000/s", "1001/ms", "1/400d", "1/0s", "1/s,burst=0", "1/s,burst=2000000"]
            .into_iter()
            .chain(slow)
        {
            let flow = rate(text);
            assert!(flow.check().is_err(), "{text}");
            // Values out of range must not overflow.
            let _ = flow.allowance(0, RateState(0), NOW);
        }
        assert!(Flow { concurrency: Some(0), ..Flow::default() }.check().is_err());
        for (limit, is_fine) in [(0, false), (1, true), (1_000_000, true), (1_000_001, false)] {
            let flow = Flow { concurrency_per_key: Some(limit), ..Flow::default() };
            assert_eq!(flow.check().is_ok(), is_fine, "{limit}");
        }
    }

    #[test]
    fn a_burst_and_then_one_by_one() {
        let flow = rate("100/s,burst=3");
        let mut used = RateState::default();
        assert_eq!(flow.allowance(0, used, NOW), 3);
        assert_eq!(flow.throttle(0, used, NOW), None);
        used = flow.record_delivery(3, used, NOW);
        assert_eq!(flow.allowance(0, used, NOW), 0);
        assert_eq!(flow.throttle(0, used, NOW), Some(Throttle::Rate(Millis(10))));
        let later = NOW.after(Millis(9));
        assert_eq!(
            (flow.allowance(0, used, later), flow.throttle(0, used, later)),
            (0, Some(Throttle::Rate(Millis(1))))
        );
        assert_eq!(flow.allowance(0, used, NOW.after(Millis(10))), 1);
        assert_eq!(flow.allowance(0, used, NOW.after(Millis(1000))), 3, "at most one burst");
    }

    #[test]
    fn a_faster_rate_does_not_wait_for_a_slower_one() {
        let slow = rate("1/d,burst=10");
        let used = slow.record_delivery(10, RateState::default(), NOW);
        let fast = rate("1000/s,burst=10");
        assert_eq!(fast.throttle(0, used, NOW), Some(Throttle::Rate(Millis(1))));
        let used = fast.record_delivery(0, used, NOW);
        assert_eq!(fast.allowance(0, used, NOW.after(Millis(2))), 2);
        assert_eq!(fast.record_delivery(0, RateState(5), NOW), RateState(5));
    }

    #[test]
    fn concurrency_is_checked_before_the_rate() {
        let flow = Flow { concurrency: Some(2), ..rate("1/s") };
        let used = flow.record_delivery(1, RateState::default(), NOW);
        assert_eq!(flow.throttle(2, used, NOW), Some(Throttle::Concurrency));
        assert_eq!(flow.throttle(1, used, NOW), Some(Throttle::Rate(Millis(1000))));
        assert_eq!(flow.allowance(5, RateState::default(), NOW), 0);
    }

    proptest! {
        /// Deliveries never exceed the rate plus a burst, and waiting for the reported time is enough.
        #[test]
        fn no_more_than_the_rate(
            count in 1..100_000u32, per in 1..100_000u64, burst in 1..1000u32, asks in proptest::collection::vec((1..300u64, 0..500u64), 1..200),
        ) {
            let rate = Rate { count, per: Millis(per), burst };
            prop_assume!(rate.check().is_ok());
            let flow = Flow { rate: Some(rate), ..Flow::default() };
            let (mut used, mut now, mut passed) = (RateState::default(), NOW, 0);
            for (wanted, pause) in asks {
                let taken = flow.allowance(0, used, now).min(wanted);
                used = flow.record_delivery(usize::try_from(taken).unwrap(), used, now);
                passed += taken;
                let elapsed = u128::from(now.since(NOW).0);
                // An interval is whole nanoseconds.
                let most = u128::from(burst) + elapsed * 1_000_000 / u128::from(rate.interval());
                prop_assert!(u128::from(passed) <= most, "{passed} of {most}");
                if let Some(Throttle::Rate(wait)) = flow.throttle(0, used, now) {
                    prop_assert!(flow.allowance(0, used, now.after(wait)) >= 1);
                    prop_assert!(flow.allowance(0, used, now.after(Millis(wait.0 - 1))) == 0);
                }
                now = now.after(Millis(pause));
            }
        }

        /// The rate state must fit into the signed numbers of PostgreSQL.
        #[test]
        fn an_accepted_rate_limits(count in 1..1000u32, per in 1..=limits::RATE_PERIOD_MAX.0, share in 1..=100u64) {
            let most = u64::from(count) * limits::RATE_REFILL_MAX.0 / per;
            let burst = u32::try_from(most * share / 100).unwrap_or(u32::MAX).clamp(1, limits::RATE_BURST_MAX);
            let flow = Flow { rate: Some(Rate { count, per: Millis(per), burst }), ..Flow::default() };
            prop_assert_eq!(flow.check(), Ok(()));
            prop_assert_eq!(flow.allowance(0, RateState::default(), NOW), u64::from(burst));
            let used = flow.record_delivery(burst as usize, RateState::default(), NOW);
            prop_assert!(i64::try_from(used.0).is_ok());
            prop_assert_eq!(flow.allowance(0, used, NOW), 0);
        }

        #[test]
        fn nothing_overflows(count: u32, per: u64, burst: u32, used: u64, now: u64, items: u32) {
            let flow = Flow { rate: Some(Rate { count, per: Millis(per), burst }), concurrency: Some(burst), ..Flow::default() };
            let _ = (flow.check(), flow.allowance(0, RateState(used), Timestamp(now)), flow.throttle(0, RateState(used), Timestamp(now)));
            let _ = flow.record_delivery(items as usize, RateState(used), Timestamp(now));
        }
    }
}
