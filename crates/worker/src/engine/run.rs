//! One piece of work: taken or put back, kept alive while it runs, settled.

use super::Shared;
use super::keep::Holding;
use super::settle::{From, Held};
use crate::context::Context;
use crate::doer::{About, Doer, Entry, Slot};
use crate::envelope::Envelope;
use crate::event::Event;
use crate::outcome::Failure;
use crate::ports::{Again, Lease, PortError, Pulled, Queue};
use crate::work::{Codecs, Ended, Kind, Run, Taken};
use futures::FutureExt;
use std::any::Any;
use std::panic::AssertUnwindSafe;
use std::sync::Arc;
use std::time::Duration;

/// Another process may know it.
const UNKNOWN_DELAY: Duration = Duration::from_secs(5);
/// Backends that cannot wait that long give things out early. This early is on time.
const EARLY_MAX: Duration = Duration::from_secs(1);
/// How often it is tried to settle before it is left to the lease.
const SETTLES_MAX: u32 = 5;

impl Shared {
    /// `true`: it runs now, or has ended.
    pub(crate) async fn take(self: &Arc<Shared>, queue: &Arc<dyn Queue>, pulled: Pulled) -> bool {
        match self.judge(queue, pulled).await {
            Ok(taken) => taken,
            Err(error) => {
                // It comes back when its lease lapses.
                self.trouble("looking at what came from the queue", &error);
                false
            }
        }
    }

    async fn judge(self: &Arc<Shared>, queue: &Arc<dyn Queue>, pulled: Pulled) -> Result<bool, PortError> {
        let Pulled { body, lease, attempt, delivery } = pulled;
        let envelope = match Envelope::read(&body) {
            Ok(envelope) => envelope,
            Err(error) => {
                queue.dead_letter(&lease, None, &error).await?;
                let (id, kind) = (String::new(), String::new());
                self.tell(&Event::Failed { id, kind, error });
                return Ok(true);
            }
        };
        let now = self.clock.now();
        let put_back = |why, delay| self.put_back(queue, &lease, &envelope, why, delay);
        if self.is_stopping() {
            return put_back("stopping", Duration::ZERO).await;
        }
        if let Some(start_at) = envelope.start_at.filter(|start_at| start_at.since(now) > EARLY_MAX) {
            return put_back("not due", start_at.since(now)).await;
        }
        if envelope.prefix != self.keys.0 {
            return put_back("of another system", UNKNOWN_DELAY).await;
        }
        let Some(kind) = self.kinds.get(envelope.kind.as_str()) else {
            return put_back("unknown", UNKNOWN_DELAY).await;
        };
        if self.watchers.accept.as_ref().is_some_and(|accept| !accept(&envelope.kind)) {
            return put_back("not accepted", self.config.poll_interval).await;
        }
        let from = From::Queue(Arc::clone(queue), lease);
        let held = Held { envelope: Arc::new(envelope), kind: Arc::clone(kind), attempt, from };
        let envelope = &held.envelope;
        if delivery > 1
            && let Some(record) = self.ended_before(envelope).await?
        {
            self.after_ending(envelope, &record).await?;
            self.finish(&held, &record).await?;
            return Ok(true);
        }
        if envelope.deadline.is_some_and(|deadline| deadline <= now) {
            self.give_up(&held, "its deadline passed before it ran".to_owned()).await?;
            return Ok(true);
        }
        if attempt > envelope.retry.attempts {
            let told = format!("all {} attempts ended without a word: did it kill its workers?", attempt - 1);
            self.give_up(&held, told).await?;
            return Ok(true);
        }
        match (self.doer_of(kind).enter(about(kind, envelope)), &held.from) {
            (Entry::Full, From::Queue(queue, lease)) => {
                self.put_back(queue, lease, envelope, "no room", self.config.poll_interval).await
            }
            (entry, _) => {
                self.spawn(held, Some(entry));
                Ok(true)
            }
        }
    }

    async fn put_back(
        &self,
        queue: &Arc<dyn Queue>,
        lease: &Lease,
        envelope: &Envelope,
        why: &'static str,
        delay: Duration,
    ) -> Result<bool, PortError> {
        match queue.put_back(lease, Again { delay, body: None }).await {
            Ok(()) => self.tell(&Event::PutBack { kind: envelope.kind.clone(), why }),
            Err(error) => self.trouble("putting something back", &error),
        }
        Ok(false)
    }

    pub(crate) fn doer_of<'a>(&'a self, kind: &'a Kind) -> &'a Doer {
        kind.doer.as_ref().unwrap_or(&self.doer)
    }

    /// Without the queue, whether there is room or not.
    pub(crate) fn run_here(self: &Arc<Shared>, envelope: Envelope, kind: Arc<Kind>) {
        let entry = match self.doer_of(&kind).enter(about(&kind, &envelope)) {
            Entry::Full => None,
            entry => Some(entry),
        };
        let held = Held { envelope: Arc::new(envelope), kind, attempt: 1, from: From::Here };
        self.spawn(held, entry);
    }

    fn spawn(self: &Arc<Shared>, held: Held, entry: Option<Entry>) {
        let hold = self.hold(held);
        tokio::spawn(async move {
            let (shared, holding) = (&hold.shared, &hold.holding);
            let outcome = tokio::select! {
                // What needs no time is over before anybody waits for the other.
                biased;
                outcome = shared.run(holding, entry) => outcome,
                () = holding.over() => if holding.is_lost() { Err(PortError::LeaseLost) } else { Ok(()) },
            };
            match outcome {
                Ok(()) => {}
                Err(PortError::LeaseLost) => {
                    let envelope = &holding.held.envelope;
                    let (id, kind) = (envelope.id.clone(), envelope.kind.clone());
                    shared.tell(&Event::LeaseLost { id, kind });
                }
                // It comes back when its lease lapses.
                Err(error) => shared.trouble("settling", &error),
            }
        });
    }

    async fn run(self: &Arc<Shared>, holding: &Arc<Holding>, entry: Option<Entry>) -> Result<(), PortError> {
        let slot: Option<Slot> = match entry {
            Some(Entry::Now(slot)) => Some(slot),
            Some(Entry::Soon(turn)) => turn.come().await,
            Some(Entry::Full) | None => None,
        };
        let held = &holding.held;
        self.note(&held.envelope, Some(held.attempt)).await;
        self.tell_often(Some(&self.counters.started), || Event::Started {
            id: held.envelope.id.clone(),
            kind: held.envelope.kind.clone(),
            attempt: held.attempt,
        });
        let context = Context { shared: Arc::clone(self), holding: Arc::clone(holding) };
        let own = held.kind.codec.as_ref().unwrap_or(&self.codec);
        let codecs = Codecs { own: Arc::clone(own), group: Arc::clone(&self.codec) };
        let taken = Taken { codecs, context };
        let ended = match self.limit(held) {
            None => self.handle(&held.kind, taken).await,
            Some(limit) => Box::pin(self.handle_within(&held.kind, taken, limit)).await,
        };
        drop(slot);
        self.settle_patiently(held, ended).await
    }

    /// An attempt ends with its own time, and with the time of the whole.
    fn limit(&self, held: &Held) -> Option<Duration> {
        let left = held.envelope.deadline.map(|deadline| deadline.since(self.clock.now()));
        held.envelope.timeout.into_iter().chain(left).min()
    }

    /// A handler that panics ends its piece of work and nothing else.
    async fn handle(self: &Arc<Shared>, kind: &Arc<Kind>, taken: Taken) -> Ended {
        match &kind.run {
            Run::One(run) => {
                let running = AssertUnwindSafe(async { run(taken).await }).catch_unwind();
                running.await.unwrap_or_else(|panic| Err(panicked(panic)))
            }
            Run::Batch { .. } => Box::pin(self.batches.add(self, kind, taken)).await,
            Run::Elsewhere => Err(Failure::abort("nothing here does this kind of work")),
        }
    }

    /// In a task of its own: its time ends also if it does not let go of its thread.
    async fn handle_within(self: &Arc<Shared>, kind: &Arc<Kind>, taken: Taken, limit: Duration) -> Ended {
        let (shared, kind) = (Arc::clone(self), Arc::clone(kind));
        let mut task = Task(tokio::spawn(async move { shared.handle(&kind, taken).await }));
        tokio::select! {
            ended = &mut task.0 => ended.unwrap_or_else(|error| Err(died(error))),
            () = self.sleep(limit) => Err(Failure::retry(format!("it took longer than {limit:?}"))),
        }
    }

    /// What was computed is not thrown away because the backend stumbled: settling again changes nothing.
    async fn settle_patiently(self: &Arc<Shared>, held: &Held, ended: Ended) -> Result<(), PortError> {
        let mut pause = Duration::from_millis(50);
        let mut left = SETTLES_MAX;
        loop {
            left -= 1;
            match self.settle(held, &ended).await {
                Err(error @ PortError::Unavailable(_)) if left > 0 => self.trouble("settling", &error),
                settled => return settled,
            }
            self.sleep(pause).await;
            pause *= 2;
        }
    }
}

fn about(kind: &Kind, envelope: &Envelope) -> About {
    About { kind: Arc::clone(&kind.name), priority: envelope.priority, queued_at: envelope.queued_at }
}

pub(super) fn died(error: tokio::task::JoinError) -> Failure {
    match error.try_into_panic() {
        Ok(panic) => panicked(panic),
        Err(error) => Failure::retry(format!("its handler was stopped: {error}")),
    }
}

fn panicked(panic: Box<dyn Any + Send>) -> Failure {
    let text = panic.downcast_ref::<&str>().map(|text| (*text).to_owned());
    let told = text.or_else(|| panic.downcast_ref::<String>().cloned()).unwrap_or_default();
    Failure::retry(format!("its handler panicked: {told}"))
}

/// A task that ends when nobody waits for it any more.
struct Task<T>(tokio::task::JoinHandle<T>);

impl<T> Drop for Task<T> {
    fn drop(&mut self) {
        self.0.abort();
    }
}
