//! Settling: stores how an attempt ended, notifies dependents and the group, and then settles the item in its queue.

use super::running::{Attempt, Source};
use super::{Backpressure, Engine, Origin, ResultRecord};
use crate::envelope::{Envelope, child_id};
use crate::error::Error;
use crate::event::Event;
use crate::handler::{HandlerOutcome, HandlerResult};
use crate::options::Retry;
use crate::outcome::{Children, DeferUntil, Failure};
use crate::ports::{IDEMPOTENCY_KEY_TTL, PortError, Redelivery};
use std::sync::Arc;
use std::time::Duration;

/// The result of keyed work outlives its key by this margin, since it is stored before the item is settled.
const KEYED_RESULT_MARGIN: Duration = Duration::from_secs(3600);

impl Engine {
    /// Futures that most attempts do not need are boxed, so that the common case stays small.
    pub(super) async fn settle(
        self: &Arc<Engine>,
        attempt: &Attempt,
        result: &HandlerResult,
    ) -> Result<(), PortError> {
        match result {
            Ok(outcome) => match self.complete(attempt, outcome).await {
                // The next attempt would be refused as well, for example because the result is too large.
                Err(PortError::Refused(refusal)) => Box::pin(self.fail(attempt, refusal)).await,
                completed => completed,
            },
            Err(Failure::Defer(until)) => Box::pin(self.defer(attempt, *until)).await,
            Err(Failure::Fail { error }) => Box::pin(self.fail(attempt, error.clone())).await,
            Err(Failure::Retry { error, after }) => {
                Box::pin(self.retry(attempt, error.clone(), *after)).await
            }
        }
    }

    async fn complete(
        self: &Arc<Engine>,
        attempt: &Attempt,
        outcome: &HandlerOutcome,
    ) -> Result<(), PortError> {
        let envelope = &attempt.envelope;
        let (result, joined) = match outcome {
            HandlerOutcome::Result { result, group_value, append } => {
                let joined = self.is_joined_root(envelope).await?;
                let group_value = group_value.as_ref().unwrap_or(result);
                // The result record of a root that is alone is also the result of its group.
                if joined || *append || result != group_value || !envelope.is_root() {
                    Box::pin(self.add_group_value(envelope, group_value, *append)).await?;
                }
                (Some(result.clone()), joined)
            }
            HandlerOutcome::Submit(children) => {
                match Box::pin(self.submit_children(envelope, children)).await {
                    Ok(()) => (None, self.is_joined_root(envelope).await?),
                    Err(Error::Port(error)) => return Err(error),
                    // The next attempt could not submit the same children either.
                    Err(error) => return Box::pin(self.fail(attempt, error.to_string())).await,
                }
            }
            HandlerOutcome::Void => (None, self.is_joined_root(envelope).await?),
        };
        let record = ResultRecord::completed(envelope, result, joined);
        self.store_result(envelope, &record).await?;
        self.settle_item(attempt, &record).await
    }

    /// Children have ids made of their parent's id: if they are submitted again after a crash, the queue knows them.
    async fn submit_children(
        self: &Arc<Engine>,
        parent: &Arc<Envelope>,
        children: &Children,
    ) -> Result<(), Error> {
        // The parent must be counted before its children, so that the group does not end before the parent does.
        self.join_group(parent).await?;
        let origin = |what: &str| Origin { parent: Some(parent), id: Some(child_id(parent, what)) };
        let jobs = children.jobs.iter().enumerate();
        let all = jobs.map(|(n, job)| self.prepare(job, origin(&n.to_string()))).collect::<Result<_, _>>()?;
        let submitted = self.submit_all(all, Backpressure::Skip).await?;
        let ids: Vec<String> = submitted.into_iter().map(|submitted| submitted.id).collect();
        if let Some((condition, next)) = &children.next {
            self.submit_after(next, origin("next"), &ids, *condition).await?;
        }
        Ok(())
    }

    /// Stores how the work ended, and everything that follows from it, except the settle of the item. Idempotent.
    pub(super) async fn store_result(
        self: &Arc<Engine>,
        envelope: &Envelope,
        record: &ResultRecord,
    ) -> Result<(), PortError> {
        let text = serde_json::to_string(record).map_err(|error| PortError::Refused(error.to_string()))?;
        let key = self.keys.result(&envelope.id);
        let mut retention = self.config.result_retention;
        if envelope.keyed {
            // A submitter that uses the key again must find the result.
            retention = retention.max(IDEMPOTENCY_KEY_TTL + KEYED_RESULT_MARGIN);
        }
        self.backend.store.set(&key, text, retention).await?;
        self.remove_state(&envelope.id).await;
        self.propagate_result(envelope, record).await
    }

    /// Tells dependents, the group and waiters of a stored result. Idempotent.
    pub(super) async fn propagate_result(
        self: &Arc<Engine>,
        envelope: &Envelope,
        record: &ResultRecord,
    ) -> Result<(), PortError> {
        self.notify_dependents(&envelope.id, record).await?;
        self.leave_group(envelope, record).await?;
        self.publish("done", &envelope.id).await;
        Ok(())
    }

    /// Commits or fails the item in its queue. The result must be stored before.
    pub(super) async fn settle_item(
        &self,
        attempt: &Attempt,
        record: &ResultRecord,
    ) -> Result<(), PortError> {
        let envelope = &attempt.envelope;
        match (&record.error, &attempt.source) {
            (None, Source::Queue(queue, lease)) => queue.commit(lease).await?,
            (Some(error), Source::Queue(queue, lease)) => {
                queue.fail(lease, Some(envelope.dead_letter().text()), error).await?;
            }
            (_, Source::Local) => {}
        }
        let id_and_kind = || (envelope.id.clone(), envelope.kind.clone());
        match &record.error {
            None => self.emit_with(Some(&self.counters.completed), || {
                let (id, kind) = id_and_kind();
                Event::Completed { id, kind }
            }),
            Some(error) => {
                let ((id, kind), error) = (id_and_kind(), error.clone());
                self.emit(&Event::Failed { id, kind, error });
            }
        }
        Ok(())
    }

    pub(super) async fn fail(self: &Arc<Engine>, attempt: &Attempt, error: String) -> Result<(), PortError> {
        let joined = self.is_joined_root(&attempt.envelope).await?;
        let record = ResultRecord::failed(&attempt.envelope, error, joined);
        self.store_result(&attempt.envelope, &record).await?;
        self.settle_item(attempt, &record).await
    }

    async fn retry(
        self: &Arc<Engine>,
        attempt: &Attempt,
        error: String,
        after: Option<Duration>,
    ) -> Result<(), PortError> {
        let envelope = &attempt.envelope;
        if attempt.number >= envelope.retry.attempts {
            return self.fail(attempt, error).await;
        }
        let pause = after.unwrap_or_else(|| envelope.retry.pause(attempt.number, self.entropy.fraction()));
        let start_at = self.clock.now().after(pause);
        if let Some(deadline) = envelope.deadline.filter(|deadline| *deadline <= start_at) {
            let late = start_at.since(deadline);
            let error = format!("{error}; the next attempt would start {late:?} after the deadline");
            return self.fail(attempt, error).await;
        }
        let next = Envelope { start_at: Some(start_at), ..(**envelope).clone() };
        self.mark_pending(envelope).await;
        match &attempt.source {
            Source::Queue(queue, lease) => {
                let redelivery = Redelivery { delay: pause, payload: Some(next.text()) };
                queue.retry(lease, redelivery, &error).await?;
            }
            Source::Local => {
                // The queue counts attempts from 1 again.
                let retry = Retry { attempts: next.retry.attempts - 1, ..next.retry };
                self.submit_envelope(&Envelope { retry, ..next }, self.queue_of(&attempt.kind), true).await?;
            }
        }
        let (id, kind) = (envelope.id.clone(), envelope.kind.clone());
        self.emit(&Event::Retried { id, kind, attempt: attempt.number, error, pause });
        Ok(())
    }

    async fn defer(self: &Arc<Engine>, attempt: &Attempt, until: DeferUntil) -> Result<(), PortError> {
        let (envelope, now) = (&attempt.envelope, self.clock.now());
        let start_at = match until {
            DeferUntil::After(delay) => now.after(delay),
            DeferUntil::At(at) => at,
        };
        if envelope.deadline.is_some_and(|deadline| deadline <= start_at) {
            return self.fail(attempt, "the work was deferred beyond its deadline".to_owned()).await;
        }
        let delay = start_at.since(now);
        let next = Envelope { start_at: Some(start_at), ..(**envelope).clone() };
        self.mark_pending(envelope).await;
        match &attempt.source {
            Source::Queue(queue, lease) => {
                queue.defer(lease, Redelivery { delay, payload: Some(next.text()) }).await?;
            }
            Source::Local => {
                self.submit_envelope(&next, self.queue_of(&attempt.kind), true).await?;
            }
        }
        self.emit(&Event::Deferred { id: envelope.id.clone(), kind: envelope.kind.clone(), delay });
        Ok(())
    }
}
