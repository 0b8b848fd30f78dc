//! Schedules: work that is submitted again and again, by cron, at intervals, or at times that a function computes.
//!
//! Every process of a fleet submits every occurrence, under an id made of the schedule's name and the time. The queue
//! accepts it once. So it does not matter which process submits an occurrence, or whether one dies.

use crate::clock::Time;
use crate::engine::{Backpressure, Engine, Origin};
use crate::error::Error;
use crate::event::Event;
use crate::job::{AnyJob, Job};
use crate::ports::IDEMPOTENCY_KEY_TTL;
use std::fmt;
use std::sync::Arc;
use std::time::Duration;
use towline_domain::Timestamp;
use towline_domain::calendar::Calendar;

type NextTime = dyn Fn(Time) -> Option<Time> + Send + Sync;
type MakeJob = dyn Fn(Time) -> AnyJob + Send + Sync;

/// The longest pause between two submits of one occurrence that fail.
const RETRY_PAUSE_MAX: Duration = Duration::from_secs(30);
/// The longest single sleep: the machine may be suspended, or its clock set.
const SLEEP_MAX: Duration = Duration::from_secs(30);

pub struct Schedule {
    name: String,
    next_time: Box<NextTime>,
    make_job: Box<MakeJob>,
}

impl fmt::Debug for Schedule {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Schedule").field("name", &self.name).finish_non_exhaustive()
    }
}

impl Schedule {
    /// `next_time` returns the first occurrence after the given time, or `None` if there is none.
    pub fn new<O>(
        name: impl Into<String>,
        next_time: impl Fn(Time) -> Option<Time> + Send + Sync + 'static,
        make_job: impl Fn(Time) -> Job<O> + Send + Sync + 'static,
    ) -> Schedule {
        let make_job = move |at| make_job(at).any();
        Schedule { name: name.into(), next_time: Box::new(next_time), make_job: Box::new(make_job) }
    }

    /// Occurrences by a cron expression, with or without seconds, in a time zone such as `Europe/Zurich`.
    pub fn cron<O>(
        name: impl Into<String>,
        expression: &str,
        zone: &str,
        make_job: impl Fn(Time) -> Job<O> + Send + Sync + 'static,
    ) -> Result<Schedule, Error> {
        let calendar =
            Calendar::parse(expression, zone).map_err(|refusal| Error::Configuration(refusal.to_string()))?;
        let next_time = move |after: Time| calendar.after(Timestamp(after.0)).map(|next| Time(next.0));
        Ok(Schedule::new(name, next_time, make_job))
    }

    /// Occurrences at whole multiples of the interval since 1970, so that all processes compute the same times.
    pub fn every<O>(
        name: impl Into<String>,
        interval: Duration,
        make_job: impl Fn(Time) -> Job<O> + Send + Sync + 'static,
    ) -> Schedule {
        let step = u64::try_from(interval.as_millis()).unwrap_or(u64::MAX).max(1);
        let next_time = move |after: Time| Some(Time((after.0 / step).checked_add(1)?.checked_mul(step)?));
        Schedule::new(name, next_time, make_job)
    }

    pub(crate) async fn run(self, engine: Arc<Engine>) {
        let mut after = engine.clock.now();
        while let Some(at) = (self.next_time)(after).filter(|at| *at > after) {
            while engine.clock.now() < at {
                let until = at.min(engine.clock.now().after(SLEEP_MAX));
                if !engine.sleep_unless_stopping(until).await {
                    return;
                }
            }
            // The queue no longer knows whether an older occurrence was submitted.
            if engine.clock.now().since(at) < IDEMPOTENCY_KEY_TTL {
                self.submit_occurrence(&engine, at).await;
            }
            after = at;
        }
    }

    /// Submits the occurrence until the queue has it, or until the next one is due.
    async fn submit_occurrence(&self, engine: &Arc<Engine>, at: Time) {
        let next = (self.next_time)(at).filter(|next| *next > at);
        for failures in 1u32.. {
            let id = format!("schedule:{}:{}", self.name, at.0);
            let origin = Origin { parent: None, id: Some(id) };
            let error = match engine.submit(&(self.make_job)(at), origin, Backpressure::Skip).await {
                Ok(_) => {
                    engine.emit(&Event::ScheduleFired { schedule: self.name.clone() });
                    return;
                }
                Err(error) => error.to_string(),
            };
            engine.emit(&Event::BackendError { operation: "submit an occurrence of a schedule", error });
            let pause = RETRY_PAUSE_MAX.min(Duration::from_secs(u64::from(failures)));
            let retry_at = engine.clock.now().after(pause);
            if next.is_some_and(|next| next <= retry_at) || !engine.sleep_unless_stopping(retry_at).await {
                return;
            }
        }
    }
}
