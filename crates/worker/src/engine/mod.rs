//! The engine: receives items from the queues, runs their handlers, and settles them.
//!
//! **Invariant:** the engine stores how work ended before it settles the item. If a worker dies between the two, the item
//! is delivered again; the next worker finds the result record and only settles.

mod backpressure;
mod batches;
mod dependents;
mod dispatch;
mod groups;
mod heartbeat;
mod long_polls;
mod poll;
mod result_record;
mod run;
mod running;
mod settle;
mod states;
mod submit;
mod submit_batch;

pub(crate) use backpressure::{BacklogLimit, Backpressure};
pub use groups::OrphanedGroup;
pub(crate) use result_record::ResultRecord;
pub(crate) use running::RunningAttempt;
pub use states::State;
pub(crate) use submit::{Origin, SubmittedWork};

use crate::clock::{Clock, Time};
use crate::codec::Codec;
use crate::entropy::Entropy;
use crate::error::Error;
use crate::event::{Counters, Event};
use crate::limiter::ConcurrencyLimiter;
use crate::options::Options;
use crate::ports::{Backend, PortError, Queue};
use crate::store_keys::StoreKeys;
use crate::work::Kind;
use backpressure::BacklogEstimates;
use batches::Batches;
use long_polls::Reservations;
use running::RunningAttempts;
use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;
use tokio::sync::{Notify, watch};

/// The first pause between two checks whether the system is idle. Each pause is twice the one before.
const IDLE_PAUSE: Duration = Duration::from_millis(10);
const IDLE_PAUSE_MAX: Duration = Duration::from_secs(1);

/// The store calls that the engine makes at the same time for one group of jobs.
const CONCURRENT_CALLS_MAX: usize = 64;

/// The state of a system, shared by its tasks.
pub(crate) struct Engine {
    pub(crate) backend: Backend,
    pub(crate) keys: StoreKeys,
    pub(crate) codec: Arc<dyn Codec>,
    pub(crate) clock: Arc<dyn Clock>,
    pub(crate) config: Config,
    /// The kinds that this process runs.
    pub(crate) kinds: HashMap<Arc<str>, Arc<Kind>>,
    /// The queue of the backend, and those of the kinds, without duplicates.
    pub(crate) queues: Vec<Arc<dyn Queue>>,
    /// The limiter of kinds without their own.
    limiter: ConcurrencyLimiter,
    /// The limiters of all kinds, without duplicates.
    limiters: Vec<ConcurrencyLimiter>,
    reservations: Reservations,
    backlog: BacklogEstimates,
    pub(crate) entropy: Entropy,
    pub(crate) counters: Counters,
    callbacks: Callbacks,
    batches: Batches,
    /// How many poll loops may still receive items.
    poll_loops: AtomicU64,
    /// Notified when an attempt ends.
    attempt_ended: Notify,
    stopping: watch::Sender<bool>,
    running: RunningAttempts,
}

#[derive(Debug, Clone)]
pub(crate) struct Config {
    pub(crate) defaults: Options,
    pub(crate) poll_interval: Duration,
    pub(crate) visibility_timeout: Duration,
    pub(crate) result_retention: Duration,
    pub(crate) unfinished_retention: Duration,
    pub(crate) backlog_alarm: Option<u64>,
    pub(crate) backlog_limit: Option<BacklogLimit>,
    pub(crate) track_states: bool,
}

type OnEvent = dyn Fn(&Event) + Send + Sync;
type OnOrphan = dyn Fn(OrphanedGroup) + Send + Sync;
type Accept = dyn Fn(&str) -> bool + Send + Sync;

/// The functions of the program that the engine calls.
#[derive(Clone, Default)]
pub(crate) struct Callbacks {
    pub(crate) on_event: Option<Arc<OnEvent>>,
    pub(crate) on_orphan: Option<Arc<OnOrphan>>,
    pub(crate) accept: Option<Arc<Accept>>,
}

impl Engine {
    #[expect(clippy::too_many_arguments, reason = "the parts of the builder, called once")]
    pub(crate) fn new(
        backend: Backend,
        prefix: String,
        codec: Arc<dyn Codec>,
        clock: Arc<dyn Clock>,
        config: Config,
        kinds: HashMap<Arc<str>, Arc<Kind>>,
        limiter: ConcurrencyLimiter,
        callbacks: Callbacks,
    ) -> Engine {
        let mut queues = vec![Arc::clone(&backend.queue)];
        for queue in kinds.values().filter_map(|kind| kind.queue.as_ref()) {
            if !queues.iter().any(|known| Arc::ptr_eq(known, queue)) {
                queues.push(Arc::clone(queue));
            }
        }
        let mut limiters: Vec<ConcurrencyLimiter> = Vec::new();
        for limiter in kinds.values().map(|kind| kind.limiter.as_ref().unwrap_or(&limiter)) {
            if !limiters.iter().any(|known| known.is_same(limiter)) {
                limiters.push(limiter.clone());
            }
        }
        let reservations = Reservations::new(&limiters, queues.len());
        Engine {
            backend,
            keys: StoreKeys(prefix),
            codec,
            clock,
            config,
            kinds,
            queues,
            limiter,
            limiters,
            reservations,
            backlog: BacklogEstimates::default(),
            entropy: Entropy::new(),
            counters: Counters::default(),
            callbacks,
            batches: Batches::default(),
            poll_loops: AtomicU64::new(0),
            attempt_ended: Notify::new(),
            stopping: watch::Sender::new(false),
            running: RunningAttempts::default(),
        }
    }

    fn limiter_of<'a>(&'a self, kind: &'a Kind) -> &'a ConcurrencyLimiter {
        kind.limiter.as_ref().unwrap_or(&self.limiter)
    }

    fn queue_of<'a>(&'a self, kind: &'a Kind) -> &'a Arc<dyn Queue> {
        kind.queue.as_ref().unwrap_or(&self.backend.queue)
    }

    pub(crate) fn emit(&self, event: &Event) {
        self.counters.count(event);
        if let Some(on_event) = &self.callbacks.on_event {
            on_event(event);
        }
    }

    /// Emits an event that occurs for every piece of work. Builds it only if the program has a callback for it.
    fn emit_with(&self, counter: Option<&AtomicU64>, event: impl FnOnce() -> Event) {
        match &self.callbacks.on_event {
            None => {
                counter.map(|counter| counter.fetch_add(1, Ordering::Relaxed));
            }
            Some(_) => self.emit(&event()),
        }
    }

    fn report_error(&self, operation: &'static str, error: &PortError) {
        self.emit(&Event::BackendError { operation, error: error.to_string() });
    }

    /// The value of a counter; 0 if there is none.
    pub(crate) async fn counter(&self, key: &str) -> Result<i64, PortError> {
        Ok(self.counter_if_any(key).await?.unwrap_or_default())
    }

    async fn counter_if_any(&self, key: &str) -> Result<Option<i64>, PortError> {
        Ok(self.backend.store.get(key).await?.and_then(|count| count.parse().ok()))
    }

    fn is_stopping(&self) -> bool {
        *self.stopping.borrow()
    }

    /// Waits until the queues are empty and no attempt runs here.
    pub(crate) async fn idle(&self) -> Result<(), Error> {
        let mut pause = IDLE_PAUSE;
        while !self.is_idle().await? {
            let ended = self.attempt_ended.notified();
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
                    let message =
                        "a queue does not report its size; implement `Queue::size`, or wait for handles";
                    return Err(Error::Configuration(message.to_owned()));
                }
            }
        }
        Ok(self.running_count() == 0)
    }

    async fn sleep(&self, span: Duration) {
        self.clock.sleep_until(self.clock.now().after(span)).await;
    }

    /// Returns `false` if the engine stops before that time.
    pub(crate) async fn sleep_unless_stopping(&self, at: Time) -> bool {
        let mut stopping = self.stopping.subscribe();
        tokio::select! {
            () = self.clock.sleep_until(at) => true,
            _ = stopping.wait_for(|stopping| *stopping) => false,
        }
    }

    /// Stops receiving, and waits up to `limit` for the running attempts. Returns `true` if all of them ended. Drops
    /// attempts that still run.
    pub(crate) async fn stop(&self, limit: Duration) -> bool {
        self.stopping.send_replace(true);
        let end = self.clock.now().after(limit);
        let mut limit_passed = std::pin::pin!(self.clock.sleep_until(end));
        loop {
            let ended = self.attempt_ended.notified();
            if self.running_count() == 0 && self.poll_loops.load(Ordering::SeqCst) == 0 {
                return true;
            }
            tokio::select! {
                () = ended => {}
                () = &mut limit_passed => break,
            }
        }
        self.running.cancel_all();
        self.running_count() == 0
    }
}
