//! The options of a piece of work: when it runs, how often it is retried, its priority, group and deadline.
//!
//! Options given at the submit override those made from the input. These override the options of the kind, and these
//! override the defaults of the system.

use crate::clock::Time;
use serde::{Deserialize, Serialize};
use std::time::Duration;
use towline_domain::Trace;

/// The retry policy: how many attempts, and the pauses between them.
///
/// The pauses are `base`, `base * factor`, ... up to `max`. Each is shortened by a random part of up to `jitter`.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct Retry {
    /// How many attempts, including the first.
    pub attempts: u32,
    pub base: Duration,
    pub factor: f64,
    pub max: Duration,
    /// From 0 (none) to 1 (up to the whole pause).
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
    /// One attempt, no retry.
    #[must_use]
    pub fn never() -> Retry {
        Retry::attempts(1)
    }

    #[must_use]
    pub fn attempts(attempts: u32) -> Retry {
        Retry { attempts, ..Retry::default() }
    }

    /// The pause after a failed attempt. Attempts count from 1; `random` is from 0 to 1.
    #[must_use]
    pub fn pause(&self, attempt: u32, random: f64) -> Duration {
        let exponent = i32::try_from(attempt.saturating_sub(1)).unwrap_or(i32::MAX);
        let grown = self.base.as_secs_f64() * self.factor.max(0.0).powi(exponent);
        let capped = grown.min(self.max.as_secs_f64());
        let pause = capped * (1.0 - self.jitter.clamp(0.0, 1.0) * random);
        Duration::try_from_secs_f64(pause).unwrap_or(self.max)
    }
}

/// The options of work. An option that is not set comes from the kind, or from the system's defaults.
#[derive(Debug, Clone, PartialEq, Default)]
#[must_use]
pub struct Options {
    pub(crate) delay: Option<Duration>,
    pub(crate) run_at: Option<Time>,
    pub(crate) retry: Option<Retry>,
    pub(crate) priority: Option<i16>,
    pub(crate) group: Option<String>,
    pub(crate) deadline: Option<Duration>,
    pub(crate) timeout: Option<Duration>,
    pub(crate) skip_queue: Option<bool>,
    pub(crate) idempotency_key: Option<String>,
    pub(crate) trace: Option<Box<Trace>>,
}

impl Options {
    pub fn new() -> Options {
        Options::default()
    }

    /// The earliest start, from the submit on. Replaces [`Options::run_at`].
    pub fn delay(mut self, delay: Duration) -> Options {
        (self.delay, self.run_at) = (Some(delay), None);
        self
    }

    /// The earliest start. Replaces [`Options::delay`].
    pub fn run_at(mut self, at: impl Into<Time>) -> Options {
        (self.run_at, self.delay) = (Some(at.into()), None);
        self
    }

    pub fn retry(mut self, retry: Retry) -> Options {
        self.retry = Some(retry);
        self
    }

    /// Lower numbers run first, as everywhere in Towline. The default is 0.
    pub fn priority(mut self, priority: i16) -> Options {
        self.priority = Some(priority);
        self
    }

    /// Puts the work into this group, instead of its parent's or one of its own. The group of the work with id `x` is
    /// `of:x`; [`Handle::group_id`](crate::Handle::group_id) returns it.
    pub fn group(mut self, group: impl Into<String>) -> Options {
        self.group = Some(group.into());
        self
    }

    /// Fails the work if it has not ended this long after the submit.
    pub fn deadline(mut self, deadline: Duration) -> Options {
        self.deadline = Some(deadline);
        self
    }

    /// The time limit of one attempt.
    pub fn timeout(mut self, timeout: Duration) -> Options {
        self.timeout = Some(timeout);
        self
    }

    /// Runs the work in this process at once; only a retry goes through the queue. The work is lost if the process dies.
    pub fn skip_queue(mut self, skip: bool) -> Options {
        self.skip_queue = Some(skip);
        self
    }

    /// Work of one kind with the same key is submitted once a day. A later submit with the same key returns a handle on
    /// the first, whatever its input.
    pub fn idempotency_key(mut self, key: impl Into<String>) -> Options {
        self.idempotency_key = Some(key.into());
        self
    }

    /// The trace that the work belongs to, instead of its parent's.
    pub fn trace(mut self, trace: Trace) -> Options {
        self.trace = Some(Box::new(trace));
        self
    }

    /// Takes the options that are not set here from `outer`.
    pub(crate) fn or(self, outer: &Options) -> Options {
        // A delay here must not be combined with a start time there.
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
            idempotency_key: self.idempotency_key.or_else(|| outer.idempotency_key.clone()),
            trace: self.trace.or_else(|| outer.trace.clone()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pauses_grow_to_their_limit_and_have_random_jitter() {
        let retry = Retry::default();
        let pauses: Vec<u128> = (1..=7).map(|attempt| retry.pause(attempt, 0.0).as_millis()).collect();
        assert_eq!(pauses, [1000, 2000, 4000, 8000, 16_000, 30_000, 30_000]);
        assert_eq!(retry.pause(2, 1.0), Duration::from_secs(1));
        assert_eq!(retry.pause(u32::MAX, 0.0), Duration::from_secs(30));
        let odd = Retry { factor: f64::NAN, jitter: 7.0, ..retry };
        assert!(odd.pause(3, 0.5) <= Duration::from_secs(30));
    }

    #[test]
    fn inner_options_override_outer_options() {
        let defaults =
            Options::new().priority(1).delay(Duration::from_secs(9)).timeout(Duration::from_secs(5));
        let of_kind = Options::new().priority(2).group("g");
        let of_job = Options::new().run_at(Time(77)).priority(3);
        let all = of_job.or(&of_kind).or(&defaults);
        assert_eq!((all.priority, all.run_at, all.delay), (Some(3), Some(Time(77)), None));
        assert_eq!((all.group.as_deref(), all.timeout), (Some("g"), Some(Duration::from_secs(5))));
    }
}
