//! The engine: takes work from the queues, runs it, and sees to it that what came of it is known.
//!
//! **Invariant:** what must be known of an ending is stored before the queue hears of it. A worker that dies between
//! the two leaves an item that is delivered again; the next one finds the ending and only tells the queue.

mod batches;
mod dependents;
mod groups;
mod keep;
mod poll;
mod pressure;
mod run;
mod settle;
mod states;
mod submit;

pub(crate) use keep::Holding;
pub(crate) use pressure::{HeldUp, Limit};
pub(crate) use settle::Record;
pub use states::State;
pub(crate) use submit::{Placed, Submitted};

use crate::clock::Clock;
use crate::codec::Codec;
use crate::doer::Doer;
use crate::entropy::Entropy;
use crate::error::Error;
use crate::event::{Counters, Event};
use crate::keys::Keys;
use crate::options::Options;
use crate::ports::{Backend, PortError, Queue};
use crate::work::Kind;
use batches::Batches;
use keep::Keeper;
use poll::Promised;
use pressure::Pressure;
use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;
use tokio::sync::{Notify, watch};

/// Between two looks at whether anything is left to do; each is longer than the one before.
const IDLE_PAUSE: Duration = Duration::from_millis(10);
const IDLE_PAUSE_MAX: Duration = Duration::from_secs(1);

/// What everything in the engine knows.
pub(crate) struct Shared {
    pub(crate) backend: Backend,
    pub(crate) keys: Keys,
    pub(crate) codec: Arc<dyn Codec>,
    pub(crate) clock: Arc<dyn Clock>,
    pub(crate) config: Config,
    /// What is done here.
    pub(crate) kinds: HashMap<Arc<str>, Arc<Kind>>,
    /// Each once.
    pub(crate) queues: Vec<Arc<dyn Queue>>,
    /// For kinds that have none of their own.
    pub(crate) doer: Doer,
    /// All that are used here, each once.
    doers: Vec<Doer>,
    promised: Promised,
    pressure: Pressure,
    pub(crate) entropy: Entropy,
    pub(crate) counters: Counters,
    pub(crate) watchers: Watchers,
    batches: Batches,
    /// Whether anything may still be taken from the queues.
    polling: AtomicU64,
    /// Told when something ends.
    room: Notify,
    /// No more is taken.
    stopping: watch::Sender<bool>,
    keeper: Keeper,
}

#[derive(Debug, Clone)]
pub(crate) struct Config {
    pub(crate) defaults: Options,
    pub(crate) poll_interval: Duration,
    pub(crate) visibility: Duration,
    pub(crate) results_kept: Duration,
    pub(crate) unfinished_kept: Duration,
    pub(crate) backlog_alarm: Option<u64>,
    pub(crate) pressure: Option<Limit>,
    /// Whether it is written down that something is queued or runs.
    pub(crate) states: bool,
}

type OnEvent = dyn Fn(&Event) + Send + Sync;
type OnOrphan = dyn Fn(OrphanedGroup) + Send + Sync;
type Accept = dyn Fn(&str) -> bool + Send + Sync;

/// What the program wants to be asked or told.
#[derive(Clone, Default)]
pub(crate) struct Watchers {
    pub(crate) on_event: Option<Arc<OnEvent>>,
    pub(crate) on_orphan: Option<Arc<OnOrphan>>,
    pub(crate) accept: Option<Arc<Accept>>,
}

/// A group that ended, and nobody waited.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct OrphanedGroup {
    pub group: String,
    /// As the system's codec wrote it.
    pub result: Option<String>,
    /// How its members stand, the first thousand of them, in systems that keep states ([`crate::Builder::keep_states`]).
    pub states: Vec<(String, State)>,
}

impl Shared {
    #[expect(clippy::too_many_arguments, reason = "the builder's parts, once")]
    pub(crate) fn new(
        backend: Backend,
        prefix: String,
        codec: Arc<dyn Codec>,
        clock: Arc<dyn Clock>,
        config: Config,
        kinds: HashMap<Arc<str>, Arc<Kind>>,
        doer: Doer,
        watchers: Watchers,
    ) -> Shared {
        let mut queues = vec![Arc::clone(&backend.queue)];
        for queue in kinds.values().filter_map(|kind| kind.queue.as_ref()) {
            if !queues.iter().any(|known| Arc::ptr_eq(known, queue)) {
                queues.push(Arc::clone(queue));
            }
        }
        let mut doers: Vec<Doer> = Vec::new();
        for doer in kinds.values().map(|kind| kind.doer.as_ref().unwrap_or(&doer)) {
            if !doers.iter().any(|known| known.is_same(doer)) {
                doers.push(doer.clone());
            }
        }
        let promised = Promised::new(&doers, queues.len());
        Shared {
            backend,
            keys: Keys(prefix),
            codec,
            clock,
            config,
            kinds,
            queues,
            doer,
            doers,
            promised,
            pressure: Pressure::default(),
            entropy: Entropy::new(),
            counters: Counters::default(),
            watchers,
            batches: Batches::default(),
            polling: AtomicU64::new(0),
            room: Notify::new(),
            stopping: watch::Sender::new(false),
            keeper: Keeper::default(),
        }
    }

    pub(crate) fn tell(&self, event: &Event) {
        self.counters.count(event);
        if let Some(on_event) = &self.watchers.on_event {
            on_event(event);
        }
    }

    /// Of what happens with every piece of work: put into words only if somebody listens.
    pub(crate) fn tell_often(&self, counter: Option<&AtomicU64>, event: impl FnOnce() -> Event) {
        match &self.watchers.on_event {
            None => {
                counter.map(|counter| counter.fetch_add(1, Ordering::Relaxed));
            }
            Some(_) => self.tell(&event()),
        }
    }

    fn trouble(&self, doing: &'static str, error: &PortError) {
        self.tell(&Event::Trouble { doing, error: error.to_string() });
    }

    /// A counter as it stands; 0 if there is none.
    pub(crate) async fn counter(&self, key: &str) -> Result<i64, PortError> {
        Ok(self.counter_if_any(key).await?.unwrap_or_default())
    }

    async fn counter_if_any(&self, key: &str) -> Result<Option<i64>, PortError> {
        Ok(self.backend.store.get(key).await?.and_then(|count| count.parse().ok()))
    }

    pub(crate) fn is_stopping(&self) -> bool {
        *self.stopping.borrow()
    }

    /// Until nothing is in the queues, waiting or held, and nothing runs here.
    pub(crate) async fn idle(&self) -> Result<(), Error> {
        let mut pause = IDLE_PAUSE;
        while !self.is_idle().await? {
            let ended = self.room.notified();
            tokio::select! {
                () = ended => {}
                () = self.sleep(pause) => pause = (pause * 2).min(IDLE_PAUSE_MAX),
            }
        }
        Ok(())
    }

    async fn is_idle(&self) -> Result<bool, Error> {
        for queue in &self.queues {
            match queue.size().await? {
                Some(0) => {}
                Some(_) => return Ok(false),
                None => {
                    let told =
                        "a queue does not tell what is in it; implement `Queue::size`, or wait for handles";
                    return Err(Error::Configuration(told.to_owned()));
                }
            }
        }
        Ok(self.running() == 0)
    }

    async fn sleep(&self, span: Duration) {
        self.clock.sleep_until(self.clock.now().after(span)).await;
    }

    /// `false`: it was stopped before.
    pub(crate) async fn sleep_unless_stopping(&self, at: crate::clock::Time) -> bool {
        let mut stopping = self.stopping.subscribe();
        tokio::select! {
            () = self.clock.sleep_until(at) => true,
            _ = stopping.wait_for(|stopping| *stopping) => false,
        }
    }

    /// Takes no more; `true`: all that ran has ended within `limit`. The rest is dropped, and comes back when its leases
    /// lapse.
    pub(crate) async fn stop(&self, limit: Duration) -> bool {
        self.stopping.send_replace(true);
        let end = self.clock.now().after(limit);
        let mut over = std::pin::pin!(self.clock.sleep_until(end));
        loop {
            let ended = self.room.notified();
            if self.running() == 0 && self.polling.load(Ordering::SeqCst) == 0 {
                return true;
            }
            tokio::select! {
                () = ended => {}
                () = &mut over => break,
            }
        }
        self.keeper.cut();
        self.running() == 0
    }
}
