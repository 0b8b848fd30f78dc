//! The builder of a [`System`]: its kinds of work, its backend and its settings.

use crate::clock::{Clock, SystemClock};
use crate::codec::{Codec, Json};
use crate::engine::{BacklogLimit, Callbacks, Config, Engine, OrphanedGroup};
use crate::envelope::PREFIX;
use crate::error::Error;
use crate::event::Event;
use crate::handler::Handler;
use crate::limiter::ConcurrencyLimiter;
use crate::options::Options;
use crate::ports::Backend;
use crate::schedule::Schedule;
use crate::system::System;
use crate::work::{Kind, Work};
use std::collections::HashMap;
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

/// The default number of handlers that run at a time.
const CONCURRENCY: usize = 64;

/// The settings of a system that has not started. [`System::on`] makes it.
#[must_use = "nothing runs until `start` is called"]
pub struct Builder {
    backend: Backend,
    prefix: String,
    codec: Arc<dyn Codec>,
    clock: Arc<dyn Clock>,
    kinds: Vec<Arc<Kind>>,
    schedules: Vec<Schedule>,
    limiter: ConcurrencyLimiter,
    config: Config,
    callbacks: Callbacks,
    single_process: bool,
}

impl fmt::Debug for Builder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Builder").field("prefix", &self.prefix).finish_non_exhaustive()
    }
}

impl Builder {
    pub(crate) fn new(backend: Backend) -> Builder {
        let config = Config {
            defaults: Options::new(),
            poll_interval: Duration::from_secs(1),
            visibility_timeout: Duration::from_secs(30),
            result_retention: Duration::from_secs(24 * 3600),
            unfinished_retention: Duration::from_secs(7 * 24 * 3600),
            backlog_alarm: None,
            backlog_limit: None,
            track_states: false,
        };
        Builder {
            backend,
            prefix: PREFIX.to_owned(),
            codec: Arc::new(Json),
            clock: Arc::new(SystemClock),
            kinds: Vec::new(),
            schedules: Vec::new(),
            limiter: ConcurrencyLimiter::balanced(CONCURRENCY),
            config,
            callbacks: Callbacks::default(),
            single_process: false,
        }
    }

    /// Runs work of this kind in this process.
    pub fn work<I, O>(mut self, work: &Work<I, O>) -> Builder {
        self.kinds.push(Arc::clone(&work.kind));
        self
    }

    /// Submits the occurrences of this schedule. Each occurrence runs once in the whole fleet.
    pub fn schedule(mut self, schedule: Schedule) -> Builder {
        self.schedules.push(schedule);
        self
    }

    /// Begins all keys in the backend, `work:` by default. Systems with different prefixes ignore each other's work. Give
    /// each system its own queue as well: otherwise they receive each other's items and defer them again and again.
    pub fn prefix(mut self, prefix: impl Into<String>) -> Builder {
        self.prefix = prefix.into();
        self
    }

    /// Sets the codec of kinds without their own codec, and of group values. The default is [`Json`].
    pub fn codec(mut self, codec: impl Codec + 'static) -> Builder {
        self.codec = Arc::new(codec);
        self
    }

    pub fn clock(mut self, clock: Arc<dyn Clock>) -> Builder {
        self.clock = clock;
        self
    }

    /// Sets the options that neither the job nor its kind sets.
    pub fn defaults(mut self, defaults: Options) -> Builder {
        self.config.defaults = defaults;
        self
    }

    /// Sets the limiter of kinds without their own. The default is [`ConcurrencyLimiter::balanced`] with 64 slots.
    pub fn concurrency(mut self, limiter: ConcurrencyLimiter) -> Builder {
        self.limiter = limiter;
        self
    }

    /// Sets the maximum poll interval, 1 s by default. While polls find items, the engine polls up to 16 times as often.
    pub fn poll_interval(mut self, interval: Duration) -> Builder {
        self.config.poll_interval = interval;
        self
    }

    /// Sets the visibility timeout, 30 s by default: if a worker dies, another worker gets its work after this time. The
    /// engine sends heartbeats at least every third of it.
    pub fn visibility_timeout(mut self, timeout: Duration) -> Builder {
        self.config.visibility_timeout = timeout;
        self
    }

    /// Sets how long results are retained, 1 day by default.
    pub fn result_retention(mut self, retention: Duration) -> Builder {
        self.config.result_retention = retention;
        self
    }

    /// Sets how long the store retains a group, or work that waits for dependencies, after its last change: 1 week by
    /// default. Work whose dependencies end later than that never runs.
    pub fn unfinished_retention(mut self, retention: Duration) -> Builder {
        self.config.unfinished_retention = retention;
        self
    }

    /// Reports [`Event::Backlog`] while more than `depth` items wait in a queue.
    pub fn backlog_alarm(mut self, depth: u64) -> Builder {
        self.config.backlog_alarm = Some(depth);
        self
    }

    /// Makes submitters wait while `depth` items wait in the queue, due or not. After `wait` they get
    /// [`Error::QueueFull`]. Submits by handlers, schedules and dependents do not wait. Each process estimates the depth
    /// by itself, up to four times a second, so several processes may exceed the limit somewhat.
    pub fn backpressure(mut self, depth: u64, wait: Duration) -> Builder {
        self.config.backlog_limit = Some(BacklogLimit { depth, wait });
        self
    }

    /// Stores that work is pending or processing, and which members a group has, so that [`crate::Context::state`] and
    /// [`crate::Handle::group_states`] know it. Costs three writes and a read for each piece of work, and two more
    /// writes for a member of a group.
    pub fn track_states(mut self) -> Builder {
        self.config.track_states = true;
        self
    }

    /// Calls `on_event` for everything that happens in this system. The call is synchronous: it must not block.
    pub fn on_event(mut self, on_event: impl Fn(&Event) + Send + Sync + 'static) -> Builder {
        self.callbacks.on_event = Some(Arc::new(on_event));
        self
    }

    /// Calls `on_orphan` for a group that ended while no waiter waited for it, once in the whole fleet.
    pub fn on_orphan(mut self, on_orphan: impl Fn(OrphanedGroup) + Send + Sync + 'static) -> Builder {
        self.callbacks.on_orphan = Some(Arc::new(on_orphan));
        self
    }

    /// Asks `accept` for each item whether this process runs its kind now. Items that it declines go to other processes.
    pub fn accept(mut self, accept: impl Fn(&str) -> bool + Send + Sync + 'static) -> Builder {
        self.callbacks.accept = Some(Arc::new(accept));
        self
    }

    /// Declares that no other process uses this backend. Only then may the store count in one process only
    /// ([`crate::ports::Store::is_shared`]).
    pub fn single_process(mut self) -> Builder {
        self.single_process = true;
        self
    }

    /// Starts the system. Must be called within a Tokio runtime.
    pub fn start(self) -> Result<System, Error> {
        if !self.single_process && !self.backend.store.is_shared() {
            let message = "the store's counters are not atomic across processes; use another store, or call \
                           `Builder::single_process` if this is the only process";
            return Err(Error::Configuration(message.to_owned()));
        }
        let Config { visibility_timeout, poll_interval, .. } = self.config;
        if visibility_timeout < Duration::from_millis(3) || poll_interval.is_zero() {
            let message = format!(
                "a visibility timeout of {visibility_timeout:?} and a poll interval of {poll_interval:?} are too \
                 short; use seconds"
            );
            return Err(Error::Configuration(message));
        }
        let mut kinds = HashMap::new();
        for kind in self.kinds.into_iter().filter(|kind| !matches!(kind.handler, Handler::Remote)) {
            let name = Arc::clone(&kind.name);
            if kinds.insert(Arc::clone(&name), kind).is_some() {
                let message = format!("two kinds of work are named {name:?}; rename one of them");
                return Err(Error::Configuration(message));
            }
        }
        let has_work = !kinds.is_empty();
        let engine = Arc::new(Engine::new(
            self.backend,
            self.prefix,
            self.codec,
            self.clock,
            self.config,
            kinds,
            self.limiter,
            self.callbacks,
        ));
        if has_work {
            tokio::spawn(Arc::clone(&engine).poll());
        }
        for schedule in self.schedules {
            tokio::spawn(schedule.run(Arc::clone(&engine)));
        }
        Ok(System { engine })
    }
}
