//! A running system: it submits work, and runs the work of its kinds.

use crate::backends::memory::Memory;
use crate::builder::Builder;
use crate::engine::{Backpressure, Engine, Origin, State, SubmittedWork};
use crate::envelope::group_of;
use crate::error::Error;
use crate::event::Stats;
use crate::handle::Handle;
use crate::job::{AnyJob, Job};
use crate::ports::{Backend, DeadLetter};
use crate::work::Work;
use std::fmt;
use std::sync::Arc;
use std::time::Duration;
use towline_domain::Condition;

/// A running system. Clones are the same system. It runs until [`System::stop`].
#[derive(Clone)]
pub struct System {
    pub(crate) engine: Arc<Engine>,
}

impl fmt::Debug for System {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("System").field("stats", &self.stats()).finish_non_exhaustive()
    }
}

impl System {
    /// A system in memory. Its work is lost when the process ends.
    pub fn in_memory() -> Builder {
        System::on(Memory::new())
    }

    /// A system on this backend.
    pub fn on(backend: impl Into<Backend>) -> Builder {
        Builder::new(backend.into())
    }

    /// Submits a job. The queue has it when this returns.
    pub async fn submit<O>(&self, job: Job<O>) -> Result<Handle<O>, Error> {
        let codec = job.any.kind.codec.clone();
        let submitted = self.engine.submit(&job.any, Origin::default(), Backpressure::Apply).await?;
        Ok(Handle::new(Arc::clone(&self.engine), submitted, codec))
    }

    /// Submits a job when its dependencies meet the condition. Until then it waits in the store and occupies no worker.
    pub async fn submit_after<O>(
        &self,
        job: Job<O>,
        ids: &[String],
        condition: Condition,
    ) -> Result<Handle<O>, Error> {
        let codec = job.any.kind.codec.clone();
        let submitted = self.engine.submit_after(&job.any, Origin::default(), ids, condition).await?;
        Ok(Handle::new(Arc::clone(&self.engine), submitted, codec))
    }

    /// Submits jobs of any kinds, and returns their ids. Jobs of one queue are submitted together, up to 500 at a time.
    /// After an error some of them may be in their queue.
    pub async fn submit_all(
        &self,
        jobs: impl IntoIterator<Item = impl Into<AnyJob>>,
    ) -> Result<Vec<String>, Error> {
        let prepare = |job: AnyJob| self.engine.prepare(&job, Origin::default());
        let all = jobs.into_iter().map(|job| prepare(job.into())).collect::<Result<_, _>>()?;
        let submitted = self.engine.submit_all(all, Backpressure::Apply).await?;
        Ok(submitted.into_iter().map(|submitted| submitted.id).collect())
    }

    /// A handle on work that was submitted elsewhere.
    #[must_use]
    pub fn handle<I, O>(&self, work: &Work<I, O>, id: impl Into<String>) -> Handle<O> {
        let id = id.into();
        let submitted = SubmittedWork { group: group_of(&id), id };
        Handle::new(Arc::clone(&self.engine), submitted, work.kind.codec.clone())
    }

    /// Redrives up to `max` dead letters of each queue, with all attempts before them. Returns how many.
    pub async fn redrive(&self, max: usize) -> Result<usize, Error> {
        let mut count = 0;
        for queue in &self.engine.queues {
            count += queue.redrive(max).await?;
        }
        Ok(count)
    }

    /// Returns up to `max` dead letters of each queue, oldest first.
    pub async fn dead_letters(&self, max: usize) -> Result<Vec<DeadLetter>, Error> {
        let mut dead_letters = Vec::new();
        for queue in &self.engine.queues {
            dead_letters.extend(queue.dead_letters(max).await?);
        }
        Ok(dead_letters)
    }

    /// The state of a piece of work; see [`crate::Context::state`].
    pub async fn state(&self, id: &str) -> Result<Option<State>, Error> {
        Ok(self.engine.state(id).await?)
    }

    /// Waits until no work is left: the queues of this system hold no item, due or not, leased by this or another
    /// process, and no attempt runs here.
    pub async fn idle(&self) -> Result<(), Error> {
        self.engine.idle().await
    }

    #[must_use]
    pub fn stats(&self) -> Stats {
        self.engine.counters.read(self.engine.running_count())
    }

    #[must_use]
    pub fn backend(&self) -> &Backend {
        &self.engine.backend
    }

    /// Receives no more items, and waits up to `limit` for running attempts. Returns `true` if all of them ended.
    /// Attempts that did not end are dropped; other workers get their work when the leases lapse.
    pub async fn stop(&self, limit: Duration) -> bool {
        self.engine.stop(limit).await
    }
}
