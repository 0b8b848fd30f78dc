//! How a handler ends.

use crate::clock::Time;
use crate::work::AnyJob;
use std::fmt;
use std::time::Duration;

/// What came of it. A handler must say: a result that is computed and dropped does not compile.
#[derive(Debug)]
#[must_use = "an outcome that is not returned did not happen"]
pub enum Outcome<O> {
    /// Its result, and from now on its group's.
    Result(O),
    /// Its result, and one more of its group's.
    Append(O),
    /// More to do, in the same group.
    Queue(Children),
    /// Nothing to tell.
    Void,
}

impl<O> Outcome<O> {
    /// Queues these, and then is done.
    pub fn queue(jobs: impl IntoIterator<Item = impl Into<AnyJob>>) -> Outcome<O> {
        Outcome::Queue(Children { jobs: jobs.into_iter().map(Into::into).collect(), next: None })
    }

    /// Queues these, and the last one when they have ended in this way.
    pub fn queue_then(
        jobs: impl IntoIterator<Item = impl Into<AnyJob>>,
        when: When,
        next: impl Into<AnyJob>,
    ) -> Outcome<O> {
        let jobs = jobs.into_iter().map(Into::into).collect();
        Outcome::Queue(Children { jobs, next: Some((when, Box::new(next.into()))) })
    }
}

#[derive(Debug)]
pub struct Children {
    pub(crate) jobs: Vec<AnyJob>,
    pub(crate) next: Option<(When, Box<AnyJob>)>,
}

/// When something that waits for others is queued.
#[derive(Debug, Clone, Copy, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum When {
    /// All have ended, well or not.
    AllDone,
    /// All have ended well. If one does not, it fails without having run.
    AllSuccess,
    /// So many have ended well. If too few are left, it fails without having run.
    Count(u32),
}

/// Why a handler did not get to an outcome. Any error becomes one that is tried again.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Failure {
    /// Another attempt, if there is one left; `after`: in place of the pause that is due.
    Retry { error: String, after: Option<Duration> },
    /// No further attempt.
    Abort { error: String },
    /// Not now: the attempt does not count.
    Defer(Until),
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Until {
    Passed(Duration),
    At(Time),
}

impl Failure {
    #[must_use]
    pub fn retry(error: impl fmt::Display) -> Failure {
        Failure::Retry { error: error.to_string(), after: None }
    }

    #[must_use]
    pub fn retry_after(error: impl fmt::Display, after: Duration) -> Failure {
        Failure::Retry { error: error.to_string(), after: Some(after) }
    }

    #[must_use]
    pub fn abort(error: impl fmt::Display) -> Failure {
        Failure::Abort { error: error.to_string() }
    }

    #[must_use]
    pub fn defer(delay: Duration) -> Failure {
        Failure::Defer(Until::Passed(delay))
    }

    #[must_use]
    pub fn defer_until(at: impl Into<Time>) -> Failure {
        Failure::Defer(Until::At(at.into()))
    }
}

impl<E: std::error::Error> From<E> for Failure {
    fn from(error: E) -> Failure {
        // With its causes: the one that helps is often the last.
        let mut told = error.to_string();
        let mut source = error.source();
        while let Some(cause) = source {
            told = format!("{told}: {cause}");
            source = cause.source();
        }
        Failure::Retry { error: told, after: None }
    }
}
