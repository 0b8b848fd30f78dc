//! What a handler knows of the piece of work it has, and what it can do besides answering.

use crate::engine::{HeldUp, Holding, Shared, State, Submitted};
use crate::envelope::Envelope;
use crate::error::Error;
use crate::outcome::When;
use crate::work::AnyJob;
use std::fmt;
use std::sync::Arc;
use towline_domain::Trace;

/// Clones are the same.
#[derive(Clone)]
pub struct Context {
    pub(crate) shared: Arc<Shared>,
    pub(crate) holding: Arc<Holding>,
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
        &self.holding.held.envelope
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

    /// Whose handler queued it.
    #[must_use]
    pub fn parent(&self) -> Option<&str> {
        self.envelope().parent.as_deref()
    }

    /// What whoever queued it was at, as W3C Trace Context has it. Children are part of the same trace unless their options say
    /// otherwise.
    #[must_use]
    pub fn trace(&self) -> Option<&Trace> {
        self.envelope().trace.as_deref()
    }

    /// From 1.
    #[must_use]
    pub fn attempt(&self) -> u32 {
        self.holding.held.attempt
    }

    /// Whether there is no other attempt if this one fails.
    #[must_use]
    pub fn is_last_attempt(&self) -> bool {
        self.attempt() >= self.envelope().retry.attempts
    }

    /// Whether this piece of work is the one in its system that may do what the key stands for. It stays so in its
    /// later attempts.
    pub async fn claim(&self, key: &str) -> Result<bool, Error> {
        let key = self.shared.keys.claim(key);
        let store = &self.shared.backend.store;
        if store.set_if_absent(&key, self.id().to_owned(), self.shared.config.results_kept).await? {
            return Ok(true);
        }
        Ok(store.get(&key).await?.is_some_and(|holder| holder == self.id()))
    }

    /// Queues in the same group, now, whatever becomes of this attempt.
    pub async fn queue(&self, job: impl Into<AnyJob>) -> Result<String, Error> {
        self.shared.open_group(self.envelope()).await?;
        let submitted = Submitted { parent: Some(self.envelope()), id: None };
        Ok(self.shared.submit(&job.into(), submitted, HeldUp::Never).await?.id)
    }

    /// Queues in the same group when those have ended.
    pub async fn queue_after(
        &self,
        job: impl Into<AnyJob>,
        ids: &[String],
        when: When,
    ) -> Result<String, Error> {
        self.shared.open_group(self.envelope()).await?;
        let submitted = Submitted { parent: Some(self.envelope()), id: None };
        Ok(self.shared.submit_after(&job.into(), submitted, ids, when).await?.id)
    }

    /// Who waits for this one to end, as far as they have said so by now.
    pub async fn dependents(&self) -> Result<Vec<String>, Error> {
        Ok(self.shared.dependents(self.id()).await?)
    }

    /// How another piece of work stands; `None`: it has not ended, or is not known any more.
    pub async fn ended(&self, id: &str) -> Result<Option<Result<(), String>>, Error> {
        Ok(self.shared.record(id).await?.map(|record| record.ending()))
    }

    /// How another piece of work stands; `None`: it is not known, or not any more. That something is queued or runs is known in
    /// systems that keep it ([`crate::Builder::keep_states`]).
    pub async fn state(&self, id: &str) -> Result<Option<State>, Error> {
        Ok(self.shared.state(id).await?)
    }

    /// How those stand that belong to its group, the first thousand, in systems that keep it ([`crate::Builder::keep_states`]).
    pub async fn group_states(&self) -> Result<Vec<(String, State)>, Error> {
        Ok(self.shared.group_states(self.group()).await?)
    }

    /// Whether the answer will not be taken any more: the lease was lost, or the time is over.
    #[must_use]
    pub fn is_cancelled(&self) -> bool {
        self.holding.is_over()
    }

    /// Ends when the answer will not be taken any more.
    pub async fn cancelled(&self) {
        self.holding.over().await;
    }
}
