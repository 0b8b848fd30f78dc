//! One piece of work: taken or put back, kept alive while it runs, settled.

use super::Shared;
use super::settle::{From, Held};
use crate::context::Context;
use crate::doer::{About, Doer, Entry, Slot};
use crate::envelope::Envelope;
use crate::event::Event;
use crate::outcome::Failure;
use crate::ports::{Again, PortError, Pulled, Queue};
use crate::work::{Codecs, Ended, Kind, Run, Taken};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;
use tokio::sync::watch;

/// Another process may know it.
const UNKNOWN_DELAY: Duration = Duration::from_secs(5);
/// Backends that cannot wait that long give things out early. This early is on time.
const EARLY_MAX: Duration = Duration::from_secs(1);
/// How often it is tried to settle before it is left to the lease.
const SETTLES_MAX: u32 = 5;

/// What is to be done with something from the queue.
enum Verdict {
    Run(Held, Entry),
    PutBack {
        kind: String,
        why: &'static str,
        delay: Duration,
    },
    /// It ended: now, or before.
    Settled,
}

impl Shared {
    /// `true`: it runs now.
    pub(crate) async fn take(self: &Arc<Shared>, queue: &Arc<dyn Queue>, pulled: Pulled) -> bool {
        let lease = pulled.lease.clone();
        match self.judge(queue, pulled).await {
            Ok(Verdict::Run(held, entry)) => {
                self.start(held, entry);
                true
            }
            Ok(Verdict::PutBack { kind, why, delay }) => {
                match queue.put_back(&lease, Again { delay, body: None }).await {
                    Ok(()) => self.tell(&Event::PutBack { kind, why }),
                    Err(error) => self.trouble("putting something back", &error),
                }
                false
            }
            Ok(Verdict::Settled) => true,
            Err(error) => {
                // It comes back when its lease lapses.
                self.trouble("looking at what came from the queue", &error);
                false
            }
        }
    }

    async fn judge(self: &Arc<Shared>, queue: &Arc<dyn Queue>, pulled: Pulled) -> Result<Verdict, PortError> {
        let Pulled { body, lease, attempt, delivery } = pulled;
        let envelope = match Envelope::read(&body) {
            Ok(envelope) => Arc::new(envelope),
            Err(error) => {
                queue.dead_letter(&lease, None, &error).await?;
                let (id, kind) = (String::new(), String::new());
                self.tell(&Event::Failed { id, kind, error });
                return Ok(Verdict::Settled);
            }
        };
        if self.is_stopping() {
            return Ok(Verdict::PutBack {
                kind: envelope.kind.clone(),
                why: "stopping",
                delay: Duration::ZERO,
            });
        }
        let now = self.clock.now();
        let put_back = |why, delay| Ok(Verdict::PutBack { kind: envelope.kind.clone(), why, delay });
        if let Some(start_at) = envelope.start_at.filter(|start_at| start_at.since(now) > EARLY_MAX) {
            return put_back("not due", start_at.since(now));
        }
        if envelope.prefix != self.keys.0 {
            return put_back("of another system", UNKNOWN_DELAY);
        }
        let Some(kind) = self.kinds.get(&envelope.kind) else {
            return put_back("unknown", UNKNOWN_DELAY);
        };
        if self.watchers.accept.as_ref().is_some_and(|accept| !accept(&envelope.kind)) {
            return put_back("not accepted", self.config.poll_interval);
        }
        let from = From::Queue(Arc::clone(queue), lease);
        let held = Held { envelope: Arc::clone(&envelope), kind: Arc::clone(kind), attempt, from };
        if delivery > 1
            && let Some(record) = self.ended_before(&envelope).await?
        {
            self.after_ending(&envelope, &record).await?;
            self.finish(&held, &record).await?;
            return Ok(Verdict::Settled);
        }
        if envelope.deadline.is_some_and(|deadline| deadline <= now) {
            self.give_up(&held, "its deadline passed before it ran".to_owned()).await?;
            return Ok(Verdict::Settled);
        }
        if attempt > envelope.retry.attempts {
            let told = format!("all {} attempts ended without a word: did it kill its workers?", attempt - 1);
            self.give_up(&held, told).await?;
            return Ok(Verdict::Settled);
        }
        match self.doer_of(kind).enter(about(&envelope)) {
            Entry::Full => put_back("no room", self.config.poll_interval),
            entry => Ok(Verdict::Run(held, entry)),
        }
    }

    pub(crate) fn doer_of<'a>(&'a self, kind: &'a Kind) -> &'a Doer {
        kind.doer.as_ref().unwrap_or(&self.doer)
    }

    /// Without the queue, whether there is room or not.
    pub(crate) fn run_here(self: &Arc<Shared>, envelope: Envelope, kind: Arc<Kind>) {
        let entry = match self.doer_of(&kind).enter(about(&envelope)) {
            Entry::Full => None,
            entry => Some(entry),
        };
        let held = Held { envelope: Arc::new(envelope), kind, attempt: 1, from: From::Here };
        self.spawn(held, entry);
    }

    fn start(self: &Arc<Shared>, held: Held, entry: Entry) {
        self.spawn(held, Some(entry));
    }

    fn spawn(self: &Arc<Shared>, held: Held, entry: Option<Entry>) {
        let running = Running::new(self);
        tokio::spawn(async move {
            let shared = &running.0;
            let mut cut = shared.cut.subscribe();
            let (cancel, cancelled) = watch::channel(false);
            let outcome = tokio::select! {
                outcome = shared.run(&held, entry, cancelled) => outcome,
                error = shared.keep(&held) => Err(error),
                _ = cut.wait_for(|cut| *cut) => Ok(()),
            };
            cancel.send_replace(true);
            match outcome {
                Ok(()) => {}
                Err(PortError::LeaseLost) => {
                    let (id, kind) = (held.envelope.id.clone(), held.envelope.kind.clone());
                    shared.tell(&Event::LeaseLost { id, kind });
                }
                // It comes back when its lease lapses.
                Err(error) => shared.trouble("settling", &error),
            }
        });
    }

    /// Beats for as long as it is held; ends only when that is over.
    async fn keep(&self, held: &Held) -> PortError {
        let From::Queue(queue, lease) = &held.from else { return std::future::pending().await };
        let visibility = self.config.visibility;
        loop {
            self.sleep(visibility / 3).await;
            match queue.heartbeat(lease, visibility).await {
                Ok(()) => {}
                Err(PortError::LeaseLost) => return PortError::LeaseLost,
                Err(error) => self.trouble("keeping a lease", &error),
            }
        }
    }

    async fn run(
        self: &Arc<Shared>,
        held: &Held,
        entry: Option<Entry>,
        cancelled: watch::Receiver<bool>,
    ) -> Result<(), PortError> {
        let slot: Option<Slot> = match entry {
            Some(Entry::Now(slot)) => Some(slot),
            Some(Entry::Soon(turn)) => turn.await.ok(),
            Some(Entry::Full) | None => None,
        };
        let envelope = &held.envelope;
        let (id, kind, attempt) = (envelope.id.clone(), envelope.kind.clone(), held.attempt);
        self.tell(&Event::Started { id, kind, attempt });
        let context =
            Context { shared: Arc::clone(self), envelope: Arc::clone(envelope), attempt, cancelled };
        let own = held.kind.codec.as_ref().unwrap_or(&self.codec);
        let codecs = Codecs { own: Arc::clone(own), group: Arc::clone(&self.codec) };
        let taken = Taken { input: envelope.input.clone(), codecs, context };
        let ended = match self.limit(held) {
            None => self.handle(&held.kind, taken).await,
            Some(limit) => tokio::select! {
                ended = self.handle(&held.kind, taken) => ended,
                () = self.sleep(limit) => Err(Failure::retry(format!("it took longer than {limit:?}"))),
            },
        };
        drop(slot);
        self.settle_patiently(held, ended).await
    }

    /// An attempt ends with its own time, and with the time of the whole.
    fn limit(&self, held: &Held) -> Option<Duration> {
        let left = held.envelope.deadline.map(|deadline| deadline.since(self.clock.now()));
        held.envelope.timeout.into_iter().chain(left).min()
    }

    async fn handle(self: &Arc<Shared>, kind: &Arc<Kind>, taken: Taken) -> Ended {
        match &kind.run {
            Run::One(run) => {
                // A task of its own: a handler that panics ends its piece of work and nothing else.
                let mut task = Task(tokio::spawn(run(taken)));
                (&mut task.0).await.unwrap_or_else(|error| Err(died(error)))
            }
            Run::Batch { .. } => self.batches.add(self, kind, taken).await,
            Run::Elsewhere => Err(Failure::abort("nothing here does this kind of work")),
        }
    }

    /// What was computed is not thrown away because the backend stumbled: settling again changes nothing.
    async fn settle_patiently(self: &Arc<Shared>, held: &Held, ended: Ended) -> Result<(), PortError> {
        let mut pause = Duration::from_millis(50);
        for _ in 1..SETTLES_MAX {
            match self.settle(held, &ended).await {
                Err(error @ PortError::Unavailable(_)) => self.trouble("settling", &error),
                settled => return settled,
            }
            self.sleep(pause).await;
            pause *= 2;
        }
        self.settle(held, &ended).await
    }
}

fn about(envelope: &Envelope) -> About {
    About { kind: envelope.kind.clone(), priority: envelope.priority, queued_at: envelope.queued_at }
}

pub(super) fn died(error: tokio::task::JoinError) -> Failure {
    let told = match error.try_into_panic() {
        Ok(panic) => {
            let text = panic.downcast_ref::<&str>().map(|text| (*text).to_owned());
            text.or_else(|| panic.downcast_ref::<String>().cloned()).unwrap_or_default()
        }
        Err(error) => error.to_string(),
    };
    Failure::retry(format!("its handler panicked: {told}"))
}

/// A task that ends when nobody waits for it any more.
struct Task<T>(tokio::task::JoinHandle<T>);

impl<T> Drop for Task<T> {
    fn drop(&mut self) {
        self.0.abort();
    }
}

/// Counted while it exists.
struct Running(Arc<Shared>);

impl Running {
    fn new(shared: &Arc<Shared>) -> Running {
        shared.running.fetch_add(1, Ordering::SeqCst);
        Running(Arc::clone(shared))
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        self.0.running.fetch_sub(1, Ordering::SeqCst);
        self.0.room.notify_one();
        self.0.room.notify_waiters();
    }
}
