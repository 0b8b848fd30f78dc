//! What a handler returns.

use crate::clock::Time;
use crate::job::AnyJob;
use std::fmt;
use std::time::Duration;
use towline_domain::Condition;

/// How a handler completed. A handler must return one: a result that is computed and dropped does not compile.
#[derive(Debug)]
#[must_use = "an outcome takes effect only if the handler returns it"]
pub enum Outcome<O> {
    /// The result of the work. It replaces the result of the group.
    Result(O),
    /// The result of the work. It is appended to the values of the group.
    Append(O),
    /// More work, in the same group.
    Submit(Children),
    /// No result.
    Void,
}

impl<O> Outcome<O> {
    /// Submits these jobs and completes.
    pub fn submit(jobs: impl IntoIterator<Item = impl Into<AnyJob>>) -> Outcome<O> {
        Outcome::Submit(Children { jobs: jobs.into_iter().map(Into::into).collect(), next: None })
    }

    /// Submits these jobs, and `next` when they meet the condition.
    pub fn submit_then(
        jobs: impl IntoIterator<Item = impl Into<AnyJob>>,
        condition: Condition,
        next: impl Into<AnyJob>,
    ) -> Outcome<O> {
        let jobs = jobs.into_iter().map(Into::into).collect();
        Outcome::Submit(Children { jobs, next: Some((condition, Box::new(next.into()))) })
    }
}

/// The jobs that a handler submits by its outcome.
#[derive(Debug)]
pub struct Children {
    pub(crate) jobs: Vec<AnyJob>,
    pub(crate) next: Option<(Condition, Box<AnyJob>)>,
}

/// Why a handler did not complete. The `?` operator turns any error into a retry.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Failure {
    /// Retries the work if it has attempts left. `after` replaces the pause of the retry policy.
    Retry { error: String, after: Option<Duration> },
    /// Fails the work without a further attempt.
    Fail { error: String },
    /// Runs the work later. The attempt does not count.
    Defer(DeferUntil),
}

/// When deferred work runs again.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum DeferUntil {
    After(Duration),
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
    pub fn fail(error: impl fmt::Display) -> Failure {
        Failure::Fail { error: error.to_string() }
    }

    #[must_use]
    pub fn defer(delay: Duration) -> Failure {
        Failure::Defer(DeferUntil::After(delay))
    }

    #[must_use]
    pub fn defer_until(at: impl Into<Time>) -> Failure {
        Failure::Defer(DeferUntil::At(at.into()))
    }
}

impl<E: std::error::Error> From<E> for Failure {
    fn from(error: E) -> Failure {
        // The cause that helps is often the last one.
        let mut message = error.to_string();
        let mut source = error.source();
        while let Some(cause) = source {
            message = format!("{message}: {cause}");
            source = cause.source();
        }
        Failure::Retry { error: message, after: None }
    }
}
