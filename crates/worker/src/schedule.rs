//! Work that is queued again and again: by the calendar, at intervals, or as a function says.
//!
//! Every process of a fleet queues every occurrence, under a name made of the schedule's and the time. The queue takes
//! it once. So it does not matter which of them runs, or dies.

use crate::clock::Time;
use crate::engine::{HeldUp, Shared, Submitted};
use crate::error::Error;
use crate::event::Event;
use crate::ports::KEY_KEPT;
use crate::work::{AnyJob, Job};
use std::fmt;
use std::sync::Arc;
use std::time::Duration;
use towline_domain::Timestamp;
use towline_domain::calendar::Calendar;

type Next = dyn Fn(Time) -> Option<Time> + Send + Sync;
type Make = dyn Fn(Time) -> AnyJob + Send + Sync;

/// The longest pause between two tries.
const PAUSE_MAX: Duration = Duration::from_secs(30);
/// The longest sleep at a time: a machine may be suspended, or its clock set, meanwhile.
const SLEEP_MAX: Duration = Duration::from_secs(30);

pub struct Schedule {
    name: String,
    next: Box<Next>,
    make: Box<Make>,
}

impl fmt::Debug for Schedule {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Schedule").field("name", &self.name).finish_non_exhaustive()
    }
}

impl Schedule {
    /// As `function` says: the first time after the one it is given, or never again.
    pub fn new<O>(
        name: impl Into<String>,
        function: impl Fn(Time) -> Option<Time> + Send + Sync + 'static,
        make: impl Fn(Time) -> Job<O> + Send + Sync + 'static,
    ) -> Schedule {
        let make = move |at| make(at).any();
        Schedule { name: name.into(), next: Box::new(function), make: Box::new(make) }
    }

    /// By a cron expression, with seconds or without, in a time zone like `Europe/Zurich`.
    pub fn cron<O>(
        name: impl Into<String>,
        expression: &str,
        zone: &str,
        make: impl Fn(Time) -> Job<O> + Send + Sync + 'static,
    ) -> Result<Schedule, Error> {
        let calendar =
            Calendar::parse(expression, zone).map_err(|refusal| Error::Configuration(refusal.to_string()))?;
        let next = move |after: Time| calendar.after(Timestamp(after.0)).map(|next| Time(next.0));
        Ok(Schedule::new(name, next, make))
    }

    /// At whole multiples of the interval, so that all processes mean the same times.
    pub fn every<O>(
        name: impl Into<String>,
        interval: Duration,
        make: impl Fn(Time) -> Job<O> + Send + Sync + 'static,
    ) -> Schedule {
        let step = u64::try_from(interval.as_millis()).unwrap_or(u64::MAX).max(1);
        Schedule::new(
            name,
            move |after: Time| Some(Time((after.0 / step).checked_add(1)?.checked_mul(step)?)),
            make,
        )
    }

    pub(crate) async fn run(self, shared: Arc<Shared>) {
        let mut after = shared.clock.now();
        while let Some(at) = (self.next)(after).filter(|at| *at > after) {
            while shared.clock.now() < at {
                let until = at.min(shared.clock.now().after(SLEEP_MAX));
                if !shared.sleep_unless_stopping(until).await {
                    return;
                }
            }
            // Whether it was queued is forgotten by then.
            if shared.clock.now().since(at) < KEY_KEPT {
                self.fire(&shared, at).await;
            }
            after = at;
        }
    }

    /// Until it is queued, or the next one is due.
    async fn fire(&self, shared: &Arc<Shared>, at: Time) {
        let next = (self.next)(at).filter(|next| *next > at);
        for n in 1u32.. {
            let id = format!("schedule:{}:{}", self.name, at.0);
            match shared
                .submit(&(self.make)(at), Submitted { parent: None, id: Some(id) }, HeldUp::Never)
                .await
            {
                Ok(_) => {
                    shared.tell(&Event::Fired { schedule: self.name.clone() });
                    return;
                }
                Err(error) => {
                    shared
                        .tell(&Event::Trouble { doing: "queueing for a schedule", error: error.to_string() });
                    let later = shared.clock.now().after(PAUSE_MAX.min(Duration::from_secs(u64::from(n))));
                    if next.is_some_and(|next| next <= later) || !shared.sleep_unless_stopping(later).await {
                        return;
                    }
                }
            }
        }
    }
}
