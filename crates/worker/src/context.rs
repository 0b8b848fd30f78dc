//! The context of a handler: the facts of its attempt, and the calls it can make before it returns.

use crate::engine::{Backpressure, Engine, Origin, ResultRecord, RunningAttempt, State};
use crate::envelope::Envelope;
use crate::error::Error;
use crate::job::AnyJob;
use std::fmt;
use std::sync::Arc;
use towline_domain::{Condition, Trace};

/// The context of one attempt. Clones refer to the same attempt.
#[derive(Clone)]
pub struct Context {
    pub(crate) engine: Arc<Engine>,
    pub(crate) running: Arc<RunningAttempt>,
}

impl fmt::Debug for Context {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Context")
            .field("id", &self.envelope().id)
            .field("kind", &self.envelope().kind)
            .field("attempt", &self.attempt())
            .finish_non_exhaustive()
    }
}

impl Context {
    pub(crate) fn envelope(&self) -> &Arc<Envelope> {
        &self.running.attempt.envelope
    }

    #[must_use]
    pub fn id(&self) -> &str {
        &self.envelope().id
    }

    #[must_use]
    pub fn kind(&self) -> &str {
        &self.envelope().kind
    }

    #[must_use]
    pub fn group(&self) -> &str {
        &self.envelope().group
    }

    /// The id of the work whose handler submitted this work.
    #[must_use]
    pub fn parent(&self) -> Option<&str> {
        self.envelope().parent.as_deref()
    }

    /// The W3C trace context of the submitter. Children inherit it unless their options set another.
    #[must_use]
    pub fn trace(&self) -> Option<&Trace> {
        self.envelope().trace.as_deref()
    }

    /// The number of this attempt. The first is 1.
    #[must_use]
    pub fn attempt(&self) -> u32 {
        self.running.attempt.number
    }

    /// Whether the work fails if this attempt is not successful.
    #[must_use]
    pub fn is_last_attempt(&self) -> bool {
        self.attempt() >= self.envelope().retry.attempts
    }

    /// Returns `true` for one piece of work of the system, and for its later attempts. All other work gets `false`.
    pub async fn claim(&self, key: &str) -> Result<bool, Error> {
        let key = self.engine.keys.claim(key);
        let store = &self.engine.backend.store;
        if store.set_if_absent(&key, self.id().to_owned(), self.engine.config.result_retention).await? {
            return Ok(true);
        }
        Ok(store.get(&key).await?.is_some_and(|holder| holder == self.id()))
    }

    /// Submits a job to the group of this work, now, even if this attempt fails later. Returns its id.
    pub async fn submit(&self, job: impl Into<AnyJob>) -> Result<String, Error> {
        self.engine.join_group(self.envelope()).await?;
        let origin = Origin { parent: Some(self.envelope()), id: None };
        Ok(self.engine.submit(&job.into(), origin, Backpressure::Skip).await?.id)
    }

    /// Submits a job to the group of this work when its dependencies meet the condition. Returns its id.
    pub async fn submit_after(
        &self,
        job: impl Into<AnyJob>,
        ids: &[String],
        condition: Condition,
    ) -> Result<String, Error> {
        self.engine.join_group(self.envelope()).await?;
        let origin = Origin { parent: Some(self.envelope()), id: None };
        Ok(self.engine.submit_after(&job.into(), origin, ids, condition).await?.id)
    }

    /// The ids of the work that depends on this work, as far as it was submitted by now.
    pub async fn dependents(&self) -> Result<Vec<String>, Error> {
        Ok(self.engine.dependents(self.id()).await?)
    }

    /// How other work ended: [`State::Completed`] or [`State::Failed`]. `None` if it has not ended, or if its result is no
    /// longer retained.
    pub async fn ended(&self, id: &str) -> Result<Option<State>, Error> {
        Ok(self.engine.result_record(id).await?.map(ResultRecord::into_state))
    }

    /// The state of other work; `None` if it is unknown or no longer retained. Pending and processing work is known only
    /// in systems that track states ([`crate::Builder::track_states`]).
    pub async fn state(&self, id: &str) -> Result<Option<State>, Error> {
        Ok(self.engine.state(id).await?)
    }

    /// The states of the first thousand members of this work's group, in systems that track states
    /// ([`crate::Builder::track_states`]).
    pub async fn group_states(&self) -> Result<Vec<(String, State)>, Error> {
        Ok(self.engine.group_states(self.group()).await?)
    }

    /// Whether the outcome of this attempt no longer counts: the lease is lost, the time limit passed, or the handler
    /// has returned.
    #[must_use]
    pub fn is_cancelled(&self) -> bool {
        self.running.is_over()
    }

    /// Returns when [`Context::is_cancelled`] becomes `true`.
    pub async fn cancelled(&self) {
        self.running.over().await;
    }
}
