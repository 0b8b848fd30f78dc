//! A program's part of a fleet: the kinds of work it does, and the backend it does them on.

use crate::clock::{Clock, SystemClock};
use crate::codec::{Codec, Json};
use crate::doer::Doer;
use crate::engine::{Config, HeldUp, Limit, OrphanedGroup, Placed, Shared, State, Submitted, Watchers};
use crate::envelope::{PREFIX, group_of};
use crate::error::Error;
use crate::event::{Event, Stats};
use crate::handle::Handle;
use crate::memory::Memory;
use crate::options::Options;
use crate::outcome::When;
use crate::ports::{Backend, DeadLetter};
use crate::schedule::Schedule;
use crate::work::{AnyJob, Job, Kind, Run, Work};
use std::collections::HashMap;
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

/// How many run at a time unless it is said.
const CONCURRENCY: usize = 64;

/// What a system is made of.
#[must_use = "nothing runs until it is started"]
pub struct Builder {
    backend: Backend,
    prefix: String,
    codec: Arc<dyn Codec>,
    clock: Arc<dyn Clock>,
    kinds: Vec<Arc<Kind>>,
    schedules: Vec<Schedule>,
    doer: Doer,
    config: Config,
    watchers: Watchers,
    alone: bool,
}

impl fmt::Debug for Builder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Builder").field("prefix", &self.prefix).finish_non_exhaustive()
    }
}

impl Builder {
    /// Work of this kind is done here.
    pub fn work<I, O>(mut self, work: &Work<I, O>) -> Builder {
        self.kinds.push(Arc::clone(&work.kind));
        self
    }

    /// Queues something again and again, once in the whole fleet for each time.
    pub fn schedule(mut self, schedule: Schedule) -> Builder {
        self.schedules.push(schedule);
        self
    }

    /// Before all names in the backend, `work:` unless it is said: systems with different ones do not touch each other's
    /// work. Give each a queue of its own as well, or they pass each other's work on again and again.
    pub fn prefix(mut self, prefix: impl Into<String>) -> Builder {
        self.prefix = prefix.into();
        self
    }

    /// For kinds that have none of their own, and for what groups share.
    pub fn codec(mut self, codec: impl Codec + 'static) -> Builder {
        self.codec = Arc::new(codec);
        self
    }

    pub fn clock(mut self, clock: Arc<dyn Clock>) -> Builder {
        self.clock = clock;
        self
    }

    /// What holds where nothing else is said.
    pub fn defaults(mut self, defaults: Options) -> Builder {
        self.config.defaults = defaults;
        self
    }

    /// For kinds that have none of their own: up to 64 at a time unless it is said.
    pub fn doer(mut self, doer: Doer) -> Builder {
        self.doer = doer;
        self
    }

    /// How long it is between two looks at a queue that gives no hints, at most: 1 s unless it is said. While looks find something
    /// they come up to 16 times as often.
    pub fn poll_interval(mut self, interval: Duration) -> Builder {
        self.config.poll_interval = interval;
        self
    }

    /// How soon work whose worker died is given to another: 30 s unless it is said. It is renewed every third of it.
    pub fn visibility(mut self, visibility: Duration) -> Builder {
        self.config.visibility = visibility;
        self
    }

    /// How long results can be asked for: a day unless it is said.
    pub fn results_kept(mut self, kept: Duration) -> Builder {
        self.config.results_kept = kept;
        self
    }

    /// How long a group, or work that waits for other work, is remembered while nothing is heard of it: a week unless it is
    /// said. What waits for something that ends later than that is forgotten.
    pub fn unfinished_kept(mut self, kept: Duration) -> Builder {
        self.config.unfinished_kept = kept;
        self
    }

    /// Told with [`Event::Backlog`] while more than this waits in a queue.
    pub fn backlog_alarm(mut self, depth: u64) -> Builder {
        self.config.backlog_alarm = Some(depth);
        self
    }

    /// Whoever queues while so many wait in the queue, due or not, waits for room, up to `wait`, and is then told [`Error::Full`].
    /// Handlers, schedules and work that waited for other work are not held up. Each process looks for itself, up to four times
    /// a second: together they may queue somewhat more.
    pub fn backpressure(mut self, depth: u64, wait: Duration) -> Builder {
        self.config.pressure = Some(Limit { depth, wait });
        self
    }

    /// It is written down that work is queued or runs, and what belongs to a group, so that others can ask how it stands
    /// ([`crate::Context::state`]). It costs three writes and a read for each piece of work, and two more writes in a group.
    pub fn keep_states(mut self) -> Builder {
        self.config.states = true;
        self
    }

    /// Told of everything that happens here. It is called where it happens: it must not wait for anything.
    pub fn on_event(mut self, on_event: impl Fn(&Event) + Send + Sync + 'static) -> Builder {
        self.watchers.on_event = Some(Arc::new(on_event));
        self
    }

    /// Told of groups that ended while nobody waited for them, once in the whole fleet.
    pub fn on_orphan(mut self, on_orphan: impl Fn(OrphanedGroup) + Send + Sync + 'static) -> Builder {
        self.watchers.on_orphan = Some(Arc::new(on_orphan));
        self
    }

    /// Asked by kind whether this process takes it now; what it does not take, another one does.
    pub fn accept(mut self, accept: impl Fn(&str) -> bool + Send + Sync + 'static) -> Builder {
        self.watchers.accept = Some(Arc::new(accept));
        self
    }

    /// No other process works on this backend: a store whose counters hold in one process only will do.
    pub fn alone(mut self) -> Builder {
        self.alone = true;
        self
    }

    /// Starts to work. Must be called within a Tokio runtime.
    pub fn start(self) -> Result<System, Error> {
        if !self.alone && !self.backend.store.is_shared() {
            let told = "the store's counters do not hold against other processes; use another store, or say `alone` \
                        if this is the only process";
            return Err(Error::Configuration(told.to_owned()));
        }
        let mut kinds = HashMap::new();
        for kind in self.kinds.into_iter().filter(|kind| !matches!(kind.run, Run::Elsewhere)) {
            if kinds.contains_key(&kind.name) {
                let told =
                    format!("two kinds of work are named {:?}; give one of them another name", kind.name);
                return Err(Error::Configuration(told));
            }
            kinds.insert(Arc::clone(&kind.name), kind);
        }
        if self.config.visibility < Duration::from_millis(3) || self.config.poll_interval.is_zero() {
            let told = format!(
                "a visibility of {:?} and a poll interval of {:?} leave no time; use seconds",
                self.config.visibility, self.config.poll_interval
            );
            return Err(Error::Configuration(told));
        }
        let works = !kinds.is_empty();
        let shared = Arc::new(Shared::new(
            self.backend,
            self.prefix,
            self.codec,
            self.clock,
            self.config,
            kinds,
            self.doer,
            self.watchers,
        ));
        if works {
            tokio::spawn(Arc::clone(&shared).poll());
        }
        for schedule in self.schedules {
            tokio::spawn(schedule.run(Arc::clone(&shared)));
        }
        Ok(System { shared })
    }
}

/// A running system. Clones are the same; it runs until it is stopped.
#[derive(Clone)]
pub struct System {
    pub(crate) shared: Arc<Shared>,
}

impl fmt::Debug for System {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("System").field("stats", &self.stats()).finish_non_exhaustive()
    }
}

impl System {
    /// In memory: everything is lost with the process.
    pub fn in_memory() -> Builder {
        System::on(Memory::new())
    }

    pub fn on(backend: impl Into<Backend>) -> Builder {
        let config = Config {
            defaults: Options::new(),
            poll_interval: Duration::from_secs(1),
            visibility: Duration::from_secs(30),
            results_kept: Duration::from_secs(24 * 3600),
            unfinished_kept: Duration::from_secs(7 * 24 * 3600),
            backlog_alarm: None,
            pressure: None,
            states: false,
        };
        Builder {
            backend: backend.into(),
            prefix: PREFIX.to_owned(),
            codec: Arc::new(Json),
            clock: Arc::new(SystemClock),
            kinds: Vec::new(),
            schedules: Vec::new(),
            doer: Doer::balanced(CONCURRENCY),
            config,
            watchers: Watchers::default(),
            alone: false,
        }
    }

    /// It is in the queue when this ends.
    pub async fn queue<O>(&self, job: Job<O>) -> Result<Handle<O>, Error> {
        let codec = job.any.kind.codec.clone();
        let placed = self.shared.submit(&job.any, Submitted::default(), HeldUp::ByBacklog).await?;
        Ok(Handle::new(Arc::clone(&self.shared), placed, codec))
    }

    /// It comes into the queue when those have ended, and holds nothing until then.
    pub async fn queue_after<O>(&self, job: Job<O>, ids: &[String], when: When) -> Result<Handle<O>, Error> {
        let codec = job.any.kind.codec.clone();
        let placed = self.shared.submit_after(&job.any, Submitted::default(), ids, when).await?;
        Ok(Handle::new(Arc::clone(&self.shared), placed, codec))
    }

    /// Many, of any kinds; their ids. Those of one queue come into it together, up to 500 at a time. If it fails, some may be there.
    pub async fn queue_all(
        &self,
        jobs: impl IntoIterator<Item = impl Into<AnyJob>>,
    ) -> Result<Vec<String>, Error> {
        let prepare = |job: AnyJob| self.shared.prepare(&job, Submitted::default());
        let all = jobs.into_iter().map(|job| prepare(job.into())).collect::<Result<_, _>>()?;
        let placed = self.shared.enqueue_all(all, HeldUp::ByBacklog).await?;
        Ok(placed.into_iter().map(|placed| placed.id).collect())
    }

    /// To wait for something that was queued elsewhere.
    #[must_use]
    pub fn handle<I, O>(&self, work: &Work<I, O>, id: impl Into<String>) -> Handle<O> {
        let id = id.into();
        let placed = Placed { group: group_of(&id), id };
        Handle::new(Arc::clone(&self.shared), placed, work.kind.codec.clone())
    }

    /// Up to so many dead letters of each queue are tried again from the beginning; how many.
    pub async fn redrive(&self, max: usize) -> Result<usize, Error> {
        let mut count = 0;
        for queue in &self.shared.queues {
            count += queue.redrive(max).await?;
        }
        Ok(count)
    }

    /// Up to so many dead letters of each queue, oldest first.
    pub async fn dead_letters(&self, max: usize) -> Result<Vec<DeadLetter>, Error> {
        let mut letters = Vec::new();
        for queue in &self.shared.queues {
            letters.extend(queue.letters(max).await?);
        }
        Ok(letters)
    }

    /// How a piece of work stands; see [`crate::Context::state`].
    pub async fn state(&self, id: &str) -> Result<Option<State>, Error> {
        Ok(self.shared.state(id).await?)
    }

    /// Waits until there is nothing left to do: nothing is in the queues of this system, due or not, whoever has it, and nothing
    /// runs here.
    pub async fn idle(&self) -> Result<(), Error> {
        self.shared.idle().await
    }

    #[must_use]
    pub fn stats(&self) -> Stats {
        self.shared.counters.read(self.shared.running())
    }

    #[must_use]
    pub fn backend(&self) -> &Backend {
        &self.shared.backend
    }

    /// Takes no more, and waits for what runs; `true`: all of it has ended within `limit`. What has not is dropped, and
    /// comes back when its leases lapse.
    pub async fn stop(&self, limit: Duration) -> bool {
        self.shared.stop(limit).await
    }
}
