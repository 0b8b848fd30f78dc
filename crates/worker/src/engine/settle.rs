//! What came of a piece of work: stored, told, and then taken from the queue.

use super::{HeldUp, Shared, State, Submitted};
use crate::envelope::{Envelope, child_id};
use crate::error::Error;
use crate::event::Event;
use crate::outcome::{Children, Failure, Until};
use crate::ports::{Again, KEY_KEPT, Lease, PortError, Queue};
use crate::work::{Ended, Kind, Told};
use serde::{Deserialize, Serialize};
use std::sync::Arc;
use std::time::Duration;

/// The queue hears of an ending after it is stored.
const KEY_MARGIN: Duration = Duration::from_secs(3600);

/// How a piece of work ended.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Record {
    kind: String,
    round: u32,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) result: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    error: Option<String>,
    /// Of a root: others had joined its group.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub(crate) joined: bool,
}

impl Record {
    fn completed(envelope: &Envelope, result: Option<String>, joined: bool) -> Record {
        Record { kind: envelope.kind.clone(), round: envelope.round, result, error: None, joined }
    }

    pub(crate) fn failed(envelope: &Envelope, error: String, joined: bool) -> Record {
        let (kind, round) = (envelope.kind.clone(), envelope.round);
        Record { kind, round, result: None, error: Some(error), joined }
    }

    /// Of a root: its group's count when nobody is left.
    pub(crate) fn last(&self) -> i64 {
        -i64::from(self.joined)
    }

    pub(crate) fn round(&self) -> u32 {
        self.round
    }

    pub(crate) fn into_state(self) -> State {
        self.error.map_or(State::Completed, |error| State::Failed { error })
    }

    pub(crate) fn is_well(&self) -> bool {
        self.error.is_none()
    }

    pub(crate) fn ending(&self) -> Result<(), String> {
        self.error.clone().map_or(Ok(()), Err)
    }

    /// Its result, if it has one; if it did not end well, that is the error.
    pub(crate) fn into_result(self, id: &str) -> Result<Option<String>, Error> {
        match self.error {
            Some(error) => Err(Error::Failed { id: id.to_owned(), kind: self.kind, error }),
            None => Ok(self.result),
        }
    }
}

/// A piece of work in the hands of this process.
#[derive(Clone)]
pub(crate) struct Held {
    pub(crate) envelope: Arc<Envelope>,
    pub(crate) kind: Arc<Kind>,
    pub(crate) attempt: u32,
    pub(crate) from: From,
}

#[derive(Clone)]
pub(crate) enum From {
    Queue(Arc<dyn Queue>, Lease),
    /// It did not come through a queue.
    Here,
}

impl Shared {
    /// How it ended, if it has.
    pub(crate) async fn record(&self, id: &str) -> Result<Option<Record>, PortError> {
        let key = self.keys.result(id);
        let Some(text) = self.backend.store.get(&key).await? else { return Ok(None) };
        let record = serde_json::from_str(&text);
        record.map(Some).map_err(|error| PortError::Refused(format!("{key} holds no ending: {error}")))
    }

    /// Whether an earlier delivery of it has ended: then only the queue has not heard of it.
    pub(crate) async fn ended_before(&self, envelope: &Envelope) -> Result<Option<Record>, PortError> {
        Ok(self.record(&envelope.id).await?.filter(|record| record.round == envelope.round))
    }

    /// What few pieces of work need is boxed: every one would carry it.
    pub(crate) async fn settle(self: &Arc<Shared>, held: &Held, ended: &Ended) -> Result<(), PortError> {
        match ended {
            Ok(told) => match self.complete(held, told).await {
                // The same will be refused the next time, too: too large, or too many.
                Err(PortError::Refused(refusal)) => Box::pin(self.give_up(held, refusal)).await,
                completed => completed,
            },
            Err(Failure::Defer(until)) => Box::pin(self.defer(held, *until)).await,
            Err(Failure::Abort { error }) => Box::pin(self.give_up(held, error.clone())).await,
            Err(Failure::Retry { error, after }) => {
                Box::pin(self.try_again(held, error.clone(), *after)).await
            }
        }
    }

    async fn complete(self: &Arc<Shared>, held: &Held, told: &Told) -> Result<(), PortError> {
        let envelope = &held.envelope;
        let (result, joined) = match told {
            Told::Result { own, group, append } => {
                let joined = self.is_joined(envelope).await?;
                let group = group.as_ref().unwrap_or(own);
                // What a root says that is alone is found in its record.
                if joined || *append || own != group || !envelope.is_root() {
                    Box::pin(self.add_to_group(envelope, group, *append)).await?;
                }
                (Some(own.clone()), joined)
            }
            Told::Queue(children) => match Box::pin(self.queue_children(envelope, children)).await {
                Ok(()) => (None, self.is_joined(envelope).await?),
                Err(Error::Port(error)) => return Err(error),
                // The same children cannot be queued the next time either.
                Err(error) => return Box::pin(self.give_up(held, error.to_string())).await,
            },
            Told::Void => (None, self.is_joined(envelope).await?),
        };
        let record = Record::completed(envelope, result, joined);
        self.ended(envelope, &record).await?;
        self.finish(held, &record).await
    }

    /// Each has a name of its own: queued again after a crash in the middle, it is the same one.
    async fn queue_children(
        self: &Arc<Shared>,
        parent: &Arc<Envelope>,
        children: &Children,
    ) -> Result<(), Error> {
        // Before any of them: the group does not end before its parent has.
        self.open_group(parent).await?;
        let named = |what: &str| Submitted { parent: Some(parent), id: Some(child_id(parent, what)) };
        let jobs = children.jobs.iter().enumerate();
        let all = jobs.map(|(n, job)| self.prepare(job, named(&n.to_string()))).collect::<Result<_, _>>()?;
        let placed = self.enqueue_all(all, HeldUp::Never).await?;
        let ids: Vec<String> = placed.into_iter().map(|placed| placed.id).collect();
        if let Some((when, next)) = &children.next {
            self.submit_after(next, named("next"), &ids, *when).await?;
        }
        Ok(())
    }

    /// Everything about an ending but for the queue. Done again, nothing changes.
    pub(crate) async fn ended(
        self: &Arc<Shared>,
        envelope: &Envelope,
        record: &Record,
    ) -> Result<(), PortError> {
        let text = serde_json::to_string(record).map_err(|error| PortError::Refused(error.to_string()))?;
        let key = self.keys.result(&envelope.id);
        let mut kept = self.config.results_kept;
        if envelope.keyed {
            // Who queues it again while the key is known finds how it ended.
            kept = kept.max(KEY_KEPT + KEY_MARGIN);
        }
        self.backend.store.set(&key, text, kept).await?;
        self.forget_state(&envelope.id).await;
        self.after_ending(envelope, record).await
    }

    /// What follows from an ending that is stored.
    pub(crate) async fn after_ending(
        self: &Arc<Shared>,
        envelope: &Envelope,
        record: &Record,
    ) -> Result<(), PortError> {
        self.tell_dependents(&envelope.id, record).await?;
        self.close_group(envelope, record).await?;
        self.publish("done", &envelope.id).await;
        Ok(())
    }

    /// The queue hears of an ending that is stored.
    pub(crate) async fn finish(&self, held: &Held, record: &Record) -> Result<(), PortError> {
        match (&record.error, &held.from) {
            (None, From::Queue(queue, lease)) => queue.ack(lease).await?,
            (Some(error), From::Queue(queue, lease)) => {
                queue.dead_letter(lease, Some(held.envelope.given_up().text()), error).await?;
            }
            (_, From::Here) => {}
        }
        let named = || (held.envelope.id.clone(), held.envelope.kind.clone());
        match &record.error {
            None => self.tell_often(Some(&self.counters.completed), || {
                let (id, kind) = named();
                Event::Completed { id, kind }
            }),
            Some(error) => {
                let ((id, kind), error) = (named(), error.clone());
                self.tell(&Event::Failed { id, kind, error });
            }
        }
        Ok(())
    }

    pub(crate) async fn give_up(self: &Arc<Shared>, held: &Held, error: String) -> Result<(), PortError> {
        let record = Record::failed(&held.envelope, error, self.is_joined(&held.envelope).await?);
        self.ended(&held.envelope, &record).await?;
        self.finish(held, &record).await
    }

    async fn try_again(
        self: &Arc<Shared>,
        held: &Held,
        error: String,
        after: Option<Duration>,
    ) -> Result<(), PortError> {
        let envelope = &held.envelope;
        if held.attempt >= envelope.retry.attempts {
            return self.give_up(held, error).await;
        }
        let pause = after.unwrap_or_else(|| envelope.retry.pause(held.attempt, self.entropy.fraction()));
        let start_at = self.clock.now().after(pause);
        if let Some(deadline) = envelope.deadline.filter(|deadline| *deadline <= start_at) {
            let told = format!(
                "{error}; the next attempt would be {:?} after its deadline",
                start_at.since(deadline)
            );
            return self.give_up(held, told).await;
        }
        let body = Envelope { start_at: Some(start_at), ..(**envelope).clone() };
        self.note(envelope, None).await;
        match &held.from {
            From::Queue(queue, lease) => {
                let again = Again { delay: pause, body: Some(body.text()) };
                queue.retry(lease, again, &error).await?;
            }
            From::Here => {
                // In the queue it begins with one attempt less.
                let retry = crate::options::Retry { attempts: body.retry.attempts - 1, ..body.retry };
                self.push(&Envelope { retry, ..body }, self.queue_of(&held.kind), true).await?;
            }
        }
        let (id, kind) = (envelope.id.clone(), envelope.kind.clone());
        self.tell(&Event::Retried { id, kind, attempt: held.attempt, error, pause });
        Ok(())
    }

    async fn defer(self: &Arc<Shared>, held: &Held, until: Until) -> Result<(), PortError> {
        let (envelope, now) = (&held.envelope, self.clock.now());
        let start_at = match until {
            Until::Passed(delay) => now.after(delay),
            Until::At(at) => at,
        };
        if envelope.deadline.is_some_and(|deadline| deadline <= start_at) {
            return self.give_up(held, "it was deferred beyond its deadline".to_owned()).await;
        }
        let (delay, body) =
            (start_at.since(now), Envelope { start_at: Some(start_at), ..(**envelope).clone() });
        self.note(envelope, None).await;
        match &held.from {
            From::Queue(queue, lease) => {
                queue.put_back(lease, Again { delay, body: Some(body.text()) }).await?;
            }
            From::Here => {
                self.push(&body, self.queue_of(&held.kind), true).await?;
            }
        }
        self.tell(&Event::Deferred { id: envelope.id.clone(), kind: envelope.kind.clone(), delay });
        Ok(())
    }
}
