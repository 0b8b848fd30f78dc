//! Submitting: turns jobs into envelopes and puts them into their queues.

use super::submit_batch::{SubmitBatch, SubmitBatches};
use super::{Backpressure, CONCURRENT_CALLS_MAX, Engine};
use crate::envelope::{Envelope, group_of};
use crate::error::Error;
use crate::event::Event;
use crate::job::AnyJob;
use crate::options::Options;
use crate::ports::{PortError, PortFuture, Queue, SubmitRequest};
use crate::work::Kind;
use futures::stream::{self, StreamExt};
use std::sync::Arc;

/// Where a job comes from.
#[derive(Debug, Default)]
pub(crate) struct Origin<'a> {
    pub(crate) parent: Option<&'a Envelope>,
    /// An id that is the same each time the origin submits the job.
    pub(crate) id: Option<String>,
}

/// The id and the group of submitted work.
#[derive(Debug)]
pub(crate) struct SubmittedWork {
    pub(crate) id: String,
    pub(crate) group: String,
}

impl SubmittedWork {
    pub(super) fn of(envelope: &Envelope) -> SubmittedWork {
        SubmittedWork { id: envelope.id.clone(), group: envelope.group.clone() }
    }
}

/// A job with all its options resolved.
pub(crate) struct PreparedWork {
    pub(super) envelope: Envelope,
    pub(super) kind: Arc<Kind>,
    pub(super) skip_queue: bool,
    pub(super) id_source: IdSource,
}

/// What the id of a piece of work is made of.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum IdSource {
    /// The work is submitted once.
    Random,
    /// Other submitters may have used the same key, in their own groups.
    IdempotencyKey,
    /// The engine may have submitted it before: a child, or an occurrence of a schedule.
    Origin,
}

impl IdSource {
    fn is_repeatable(self) -> bool {
        self != IdSource::Random
    }
}

impl Engine {
    pub(crate) async fn submit(
        self: &Arc<Engine>,
        job: &AnyJob,
        origin: Origin<'_>,
        backpressure: Backpressure,
    ) -> Result<SubmittedWork, Error> {
        let prepared = self.prepare(job, origin)?;
        if self.skips_queue(&prepared) {
            return self.submit_locally(prepared).await;
        }
        if self.config.backlog_limit.is_some() {
            Box::pin(self.wait_for_room(self.queue_of(&prepared.kind), 1, backpressure)).await?;
        }
        let PreparedWork { envelope, kind, id_source, .. } = prepared;
        let is_new = self.submit_envelope(&envelope, self.queue_of(&kind), id_source.is_repeatable()).await?;
        self.after_submit(&envelope, id_source, is_new).await?;
        let Envelope { id, group, .. } = envelope;
        Ok(SubmittedWork { id, group })
    }

    /// Resolves the options, the id and the group of a job, and encodes its input.
    pub(crate) fn prepare(&self, job: &AnyJob, origin: Origin<'_>) -> Result<PreparedWork, Error> {
        let now = self.clock.now();
        let Options {
            delay,
            run_at,
            retry,
            priority,
            group,
            deadline,
            timeout,
            skip_queue,
            idempotency_key,
            trace,
        } = job.resolved_options(&self.config.defaults);
        // Each key has its own id, so that a second submitter waits for the same work. An occurrence of a schedule has the
        // id of the occurrence, whatever its key.
        let keyed_id = idempotency_key
            .filter(|_| origin.id.is_none() || origin.parent.is_some())
            .map(|key| format!("{}:{key}", job.kind.name));
        let (id, id_source) = match (keyed_id, origin.id) {
            (Some(id), _) => (id, IdSource::IdempotencyKey),
            (None, Some(id)) => (id, IdSource::Origin),
            (None, None) => (self.entropy.id(now), IdSource::Random),
        };
        let codec = job.kind.codec.as_ref().unwrap_or(&self.codec);
        let input = (job.encode)(&**codec)?;
        let group = group.or_else(|| origin.parent.map(|parent| parent.group.clone()));
        let envelope = Envelope {
            group: group.unwrap_or_else(|| group_of(&id)),
            id,
            kind: job.kind.name.as_ref().to_owned(),
            input,
            parent: origin.parent.map(|parent| parent.id.clone()),
            submitted_at: now,
            start_at: run_at.or(delay.filter(|delay| !delay.is_zero()).map(|delay| now.after(delay))),
            deadline: deadline.map(|deadline| now.after(deadline)),
            timeout,
            priority: priority.unwrap_or_default(),
            retry: retry.unwrap_or_default(),
            prefix: self.keys.prefix(),
            trace: trace.or_else(|| origin.parent.and_then(|parent| parent.trace.clone())),
            keyed: id_source == IdSource::IdempotencyKey,
            round: 0,
        };
        // A remote kind and the kind that this process runs may have the same name. The latter knows its queue.
        let kind = self.kinds.get(&job.kind.name).unwrap_or(&job.kind);
        let skip_queue = skip_queue.unwrap_or_default();
        Ok(PreparedWork { envelope, kind: Arc::clone(kind), skip_queue, id_source })
    }

    /// Submits the jobs of each queue together. After an error some of them may be in their queue.
    pub(crate) async fn submit_all(
        self: &Arc<Engine>,
        all: Vec<PreparedWork>,
        backpressure: Backpressure,
    ) -> Result<Vec<SubmittedWork>, Error> {
        let submitted = all.iter().map(|prepared| SubmittedWork::of(&prepared.envelope)).collect();
        let mut by_queue: Vec<(Arc<dyn Queue>, Vec<PreparedWork>)> = Vec::new();
        for prepared in all {
            if self.skips_queue(&prepared) {
                self.submit_locally(prepared).await?;
                continue;
            }
            let queue = self.queue_of(&prepared.kind);
            match by_queue.iter_mut().find(|(known, _)| Arc::ptr_eq(known, queue)) {
                Some((_, of_queue)) => of_queue.push(prepared),
                None => by_queue.push((Arc::clone(queue), vec![prepared])),
            }
        }
        let batch_max = self.submit_batch_max(backpressure);
        for (queue, of_queue) in by_queue {
            let mut batches = SubmitBatches::new(batch_max);
            for prepared in of_queue {
                let request = self.submit_request(&prepared.envelope, prepared.id_source.is_repeatable());
                if let Some(full) = batches.add(prepared, request) {
                    self.submit_batch(&queue, full, backpressure).await?;
                }
            }
            self.submit_batch(&queue, batches.take(), backpressure).await?;
        }
        Ok(submitted)
    }

    async fn submit_batch(
        self: &Arc<Engine>,
        queue: &Arc<dyn Queue>,
        batch: SubmitBatch,
        backpressure: Backpressure,
    ) -> Result<(), Error> {
        let SubmitBatch { prepared, requests } = batch;
        if prepared.is_empty() {
            return Ok(());
        }
        self.wait_for_room(queue, prepared.len(), backpressure).await?;
        let new = queue.submit_all(requests).await?;
        let calls: Vec<PortFuture<'_, ()>> = (prepared.iter().zip(new))
            .map(|(work, is_new)| self.after_submit_boxed(&work.envelope, work.id_source, is_new))
            .collect();
        // Completes all calls before it returns an error: every member must be counted if possible.
        let results: Vec<Result<(), PortError>> =
            stream::iter(calls).buffer_unordered(CONCURRENT_CALLS_MAX).collect().await;
        Ok(results.into_iter().collect::<Result<(), PortError>>()?)
    }

    /// Work with a repeatable id always goes through the queue: only the queue knows whether it was submitted before.
    fn skips_queue(&self, prepared: &PreparedWork) -> bool {
        prepared.skip_queue
            && prepared.id_source == IdSource::Random
            && self.kinds.contains_key(prepared.envelope.kind.as_str())
            && !self.is_stopping()
    }

    async fn submit_locally(self: &Arc<Engine>, prepared: PreparedWork) -> Result<SubmittedWork, Error> {
        let PreparedWork { envelope, kind, .. } = prepared;
        self.join_group(&envelope).await?;
        self.mark_submitted(&envelope).await;
        self.emit_submitted(&envelope);
        let submitted = SubmittedWork::of(&envelope);
        self.run_locally(envelope, kind);
        Ok(submitted)
    }

    fn after_submit_boxed<'a>(
        &'a self,
        envelope: &'a Envelope,
        id_source: IdSource,
        is_new: bool,
    ) -> PortFuture<'a, ()> {
        Box::pin(self.after_submit(envelope, id_source, is_new))
    }

    /// Counts submitted work into its group. If this process dies before, the work counts itself when it ends.
    async fn after_submit(
        &self,
        envelope: &Envelope,
        id_source: IdSource,
        is_new: bool,
    ) -> Result<(), PortError> {
        match id_source {
            // The origin repeats the submit until all of it has succeeded.
            IdSource::Origin => self.join_group(envelope).await?,
            IdSource::Random | IdSource::IdempotencyKey if is_new => {
                if let Err(error) = self.join_group(envelope).await {
                    self.report_error("count a member into its group", &error);
                }
            }
            // Another submitter used the same key. The work belongs to that submitter's group.
            IdSource::Random | IdSource::IdempotencyKey => {}
        }
        if is_new {
            self.mark_submitted(envelope).await;
        }
        self.emit_submitted(envelope);
        Ok(())
    }

    fn emit_submitted(&self, envelope: &Envelope) {
        self.emit_with(Some(&self.counters.submitted), || Event::Submitted {
            id: envelope.id.clone(),
            kind: envelope.kind.clone(),
        });
    }

    /// Returns `false` if the queue knows the work already. `repeatable`: the work may be submitted more than once.
    pub(super) async fn submit_envelope(
        &self,
        envelope: &Envelope,
        queue: &Arc<dyn Queue>,
        repeatable: bool,
    ) -> Result<bool, PortError> {
        queue.submit(self.submit_request(envelope, repeatable)).await
    }

    fn submit_request(&self, envelope: &Envelope, repeatable: bool) -> SubmitRequest {
        SubmitRequest {
            payload: envelope.text(),
            delay: envelope.start_at.map(|at| at.since(self.clock.now())).unwrap_or_default(),
            priority: envelope.priority,
            idempotency_key: repeatable.then(|| [self.keys.0.as_str(), &envelope.id].concat()),
        }
    }
}
