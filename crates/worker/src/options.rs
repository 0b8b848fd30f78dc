//! How a piece of work is treated. What is said when it is queued wins over what its input says, that over what its
//! type says, and that over the system's defaults.

use crate::clock::Time;
use serde::{Deserialize, Serialize};
use std::time::Duration;
use towline_domain::Trace;

/// Attempts, and the pauses between them: `base`, `base * factor`, ... up to `max`, each shortened by up to `jitter`.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct Retry {
    /// The first one counts.
    pub attempts: u32,
    pub base: Duration,
    pub factor: f64,
    pub max: Duration,
    /// From 0 to 1.
    pub jitter: f64,
}

impl Default for Retry {
    fn default() -> Retry {
        Retry {
            attempts: 3,
            base: Duration::from_secs(1),
            factor: 2.0,
            max: Duration::from_secs(30),
            jitter: 0.5,
        }
    }
}

impl Retry {
    /// One attempt.
    #[must_use]
    pub fn never() -> Retry {
        Retry::attempts(1)
    }

    #[must_use]
    pub fn attempts(attempts: u32) -> Retry {
        Retry { attempts, ..Retry::default() }
    }

    /// After the attempt that failed, counted from 1. `random`: from 0 to 1.
    #[must_use]
    pub fn pause(&self, attempt: u32, random: f64) -> Duration {
        let exponent = i32::try_from(attempt.saturating_sub(1)).unwrap_or(i32::MAX);
        let grown = self.base.as_secs_f64() * self.factor.max(0.0).powi(exponent);
        let capped = grown.min(self.max.as_secs_f64());
        let pause = capped * (1.0 - self.jitter.clamp(0.0, 1.0) * random);
        Duration::try_from_secs_f64(pause).unwrap_or(self.max)
    }
}

/// Only what is said; the rest comes from further out.
#[derive(Debug, Clone, PartialEq, Default)]
#[must_use]
pub struct Options {
    pub(crate) delay: Option<Duration>,
    pub(crate) run_at: Option<Time>,
    pub(crate) retry: Option<Retry>,
    pub(crate) priority: Option<i32>,
    pub(crate) group: Option<String>,
    pub(crate) deadline: Option<Duration>,
    pub(crate) timeout: Option<Duration>,
    pub(crate) skip_queue: Option<bool>,
    pub(crate) dedupe_key: Option<String>,
    pub(crate) trace: Option<Box<Trace>>,
}

impl Options {
    pub fn new() -> Options {
        Options::default()
    }

    /// Not before this has passed.
    pub fn delay(mut self, delay: Duration) -> Options {
        (self.delay, self.run_at) = (Some(delay), None);
        self
    }

    /// Not before then.
    pub fn run_at(mut self, at: impl Into<Time>) -> Options {
        (self.run_at, self.delay) = (Some(at.into()), None);
        self
    }

    pub fn retry(mut self, retry: Retry) -> Options {
        self.retry = Some(retry);
        self
    }

    /// Higher comes first.
    pub fn priority(mut self, priority: i32) -> Options {
        self.priority = Some(priority);
        self
    }

    /// In this group, and not in one of its own or its parent's. `of:` and an id is the group of the piece of work with
    /// that id, as [`Handle::group_id`](crate::Handle::group_id) tells it.
    pub fn group(mut self, group: impl Into<String>) -> Options {
        self.group = Some(group.into());
        self
    }

    /// If it has not ended so long after it was queued, it fails.
    pub fn deadline(mut self, deadline: Duration) -> Options {
        self.deadline = Some(deadline);
        self
    }

    /// For one attempt.
    pub fn timeout(mut self, timeout: Duration) -> Options {
        self.timeout = Some(timeout);
        self
    }

    /// Runs here, at once, and comes to the queue only if it must be tried again. It is lost with its process.
    pub fn skip_queue(mut self, skip: bool) -> Options {
        self.skip_queue = Some(skip);
        self
    }

    /// Queued once, however often it is said within a day.
    pub fn dedupe_key(mut self, key: impl Into<String>) -> Options {
        self.dedupe_key = Some(key.into());
        self
    }

    /// The trace that it is a part of, in place of its parent's.
    pub fn trace(mut self, trace: Trace) -> Options {
        self.trace = Some(Box::new(trace));
        self
    }

    /// What is not said here is as there.
    pub(crate) fn or(self, outer: &Options) -> Options {
        // One of the two says when: a delay here is not mixed with a time there.
        let timed = self.delay.is_some() || self.run_at.is_some();
        Options {
            delay: if timed { self.delay } else { outer.delay },
            run_at: if timed { self.run_at } else { outer.run_at },
            retry: self.retry.or(outer.retry),
            priority: self.priority.or(outer.priority),
            group: self.group.or_else(|| outer.group.clone()),
            deadline: self.deadline.or(outer.deadline),
            timeout: self.timeout.or(outer.timeout),
            skip_queue: self.skip_queue.or(outer.skip_queue),
            dedupe_key: self.dedupe_key.or_else(|| outer.dedupe_key.clone()),
            trace: self.trace.or_else(|| outer.trace.clone()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pauses_grow_to_their_limit_and_are_shortened_at_random() {
        let retry = Retry::default();
        let pauses: Vec<u128> = (1..=7).map(|attempt| retry.pause(attempt, 0.0).as_millis()).collect();
        assert_eq!(pauses, [1000, 2000, 4000, 8000, 16_000, 30_000, 30_000]);
        assert_eq!(retry.pause(2, 1.0), Duration::from_secs(1));
        assert_eq!(retry.pause(u32::MAX, 0.0), Duration::from_secs(30));
        let odd = Retry { factor: f64::NAN, jitter: 7.0, ..retry };
        assert!(odd.pause(3, 0.5) <= Duration::from_secs(30));
    }

    #[test]
    fn what_is_said_further_in_wins() {
        let defaults =
            Options::new().priority(1).delay(Duration::from_secs(9)).timeout(Duration::from_secs(5));
        let of_type = Options::new().priority(2).group("g");
        let said = Options::new().run_at(Time(77)).priority(3);
        let all = said.or(&of_type).or(&defaults);
        assert_eq!((all.priority, all.run_at, all.delay), (Some(3), Some(Time(77)), None));
        assert_eq!((all.group.as_deref(), all.timeout), (Some("g"), Some(Duration::from_secs(5))));
    }
}
