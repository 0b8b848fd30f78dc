//! Makes the items of occurrences when they are due: sleeps until the first one, and never scans.
//!
//! **Invariant:** an occurrence's item and the record that says which occurrence comes next are one step of the store. So
//! an occurrence makes one item, whoever else tries, and wherever anybody is killed.

use super::record::{Seen, encode, key};
use super::rhythm::Times;
use super::step::{self, Step, step};
use crate::broker::Shared;
use futures::{StreamExt, stream};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::time::Duration;
use tokio::sync::Notify;
use towline_domain::command::RecordGuard;
use towline_domain::schedule::{Overlap, Schedule};
use towline_domain::{FieldSet, Millis, Refusal, ScheduleName, Timestamp, limits};
use towline_store::{Operation, OperationError, Result, StoreError};

/// It looks at the clock at least this often, which may have been set; and asks what other servers changed.
const LOOK_EVERY: Duration = Duration::from_secs(30);
/// By the store's own clock, which is another's, it is not time yet: it is tried again after the eighth part of what has
/// passed by this one, within these bounds.
const NOT_YET: (Millis, Millis) = (Millis(25), Millis::seconds(1));
/// How long an occurrence waits that cannot be submitted for now.
const TRY_AGAIN: Millis = Millis::seconds(5);
const NEVER: u64 = u64::MAX;
const AFTER_FAULT: Duration = Duration::from_secs(1);
/// Schedules carried out at the same time.
const AT_ONCE: usize = 16;

/// When which schedule is to be looked at next, as far as this server knows.
pub(crate) struct ScheduleTimers {
    waits: Mutex<BTreeMap<ScheduleName, Option<Timestamp>>>,
    /// Nobody else changes them.
    alone: bool,
    /// When the store was last asked for all of them.
    looked_up: AtomicU64,
    rang: Notify,
}

impl ScheduleTimers {
    pub(crate) fn new(alone: bool) -> ScheduleTimers {
        ScheduleTimers {
            waits: Mutex::default(),
            alone,
            looked_up: AtomicU64::new(NEVER),
            rang: Notify::new(),
        }
    }

    fn looks_up(&self, now: Timestamp) -> bool {
        match self.looked_up.load(Ordering::Acquire) {
            NEVER => true,
            _ if self.alone => false,
            // A clock that was set back says nothing of how long ago that was.
            last => last > now.0 || Duration::from_millis(now.0 - last) >= LOOK_EVERY,
        }
    }

    fn waits(&self) -> MutexGuard<'_, BTreeMap<ScheduleName, Option<Timestamp>>> {
        self.waits.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn len(&self) -> usize {
        self.waits().len()
    }

    pub(crate) fn ring(&self) {
        self.rang.notify_one();
    }

    /// This is what a schedule is now; `None`: it is gone.
    pub(crate) fn put(&self, name: &ScheduleName, schedule: Option<&Schedule>) {
        match schedule {
            Some(schedule) => drop(self.waits().insert(name.clone(), schedule.next)),
            None => drop(self.waits().remove(name)),
        }
        self.ring();
    }

    fn due(&self, now: Timestamp) -> Vec<(ScheduleName, Timestamp)> {
        let due = |(name, at): (&ScheduleName, &Option<Timestamp>)| Some((name.clone(), (*at)?));
        self.waits().iter().filter_map(due).filter(|(_, at)| *at <= now).collect()
    }

    /// It was due at `at`, and was looked at. What somebody put there meanwhile stays, if it is earlier.
    fn looked_at(&self, name: ScheduleName, at: Timestamp, next: Next) {
        let mut waits = self.waits();
        let put = waits.get(&name).copied().filter(|put| *put != Some(at));
        let next = match next {
            Next::Gone if put.is_none() => {
                waits.remove(&name);
                return;
            }
            Next::Gone | Next::Never => None,
            Next::At(next) => Some(next),
        };
        waits.insert(name, [put.flatten(), next].into_iter().flatten().min());
    }

    fn first(&self) -> Option<Timestamp> {
        self.waits().values().flatten().min().copied()
    }
}

pub(crate) async fn run(shared: Weak<Shared>) {
    loop {
        let Some(broker) = shared.upgrade() else { return };
        if broker.is_stopping() {
            return;
        }
        let first = match run_due(&broker).await {
            Ok(first) => first,
            Err(error) => {
                tracing::warn!("schedules wait: {error}");
                tokio::time::sleep(AFTER_FAULT).await;
                continue;
            }
        };
        let rang = broker.schedule_timers.rang.notified();
        match first {
            None if broker.schedule_timers.alone => rang.await,
            first => {
                let wait = first.map(|at| Duration::from_millis(at.since(broker.clock.now()).0));
                let wait = wait.map_or(LOOK_EVERY, |wait| wait.min(LOOK_EVERY));
                let _ = tokio::time::timeout(wait, rang).await;
            }
        }
    }
}

/// Carries out what is due; answers when something is due next.
pub(crate) async fn run_due(shared: &Arc<Shared>) -> Result<Option<Timestamp>> {
    let timers = &shared.schedule_timers;
    let now = shared.clock.now();
    // However often something is due here: a server that made a schedule may be gone before its first occurrence.
    if timers.looks_up(now) {
        look_up(shared).await?;
        timers.looked_up.store(now.0, Ordering::Release);
    }
    let due = timers.due(shared.clock.now());
    let carried_out = stream::iter(due).map(|(name, at)| async move {
        let next = carry_out(shared, &name).await;
        (name, at, next)
    });
    let carried_out: Vec<_> = carried_out.buffer_unordered(AT_ONCE).collect().await;
    for (name, at, next) in carried_out {
        let next = next.unwrap_or_else(|error| {
            tracing::warn!(schedule = %name, "an occurrence waits: {error}");
            Next::At(shared.clock.now().after(Millis::seconds(1)))
        });
        timers.looked_at(name, at, next);
    }
    Ok(timers.first())
}

/// Asks the store for all of them, a page at a time.
async fn look_up(shared: &Arc<Shared>) -> Result<()> {
    let (mut names, mut after): (BTreeSet<ScheduleName>, Option<ScheduleName>) = Default::default();
    loop {
        let page = shared.list_schedules(after.as_ref(), limits::KV_PAGE_MAX).await?;
        let Some(last) = page.last() else { break };
        after = Some(last.name.clone());
        names.extend(page.iter().map(|schedule| schedule.name.clone()));
        let mut waits = shared.schedule_timers.waits();
        for schedule in page {
            // What was put there meanwhile is newer. A look too early does no harm.
            let known = waits.entry(schedule.name).or_insert(schedule.next);
            *known = [*known, schedule.next].into_iter().flatten().min();
        }
    }
    // Deleted elsewhere. One that is due is looked at, and found to be gone then.
    shared.schedule_timers.waits().retain(|name, at| at.is_some() || names.contains(name));
    Ok(())
}

/// When a schedule is to be looked at again.
enum Next {
    At(Timestamp),
    Never,
    Gone,
}

async fn carry_out(shared: &Arc<Shared>, name: &ScheduleName) -> Result<Next> {
    loop {
        let Some(seen) = shared.read_schedule(name).await? else { return Ok(Next::Gone) };
        let times = match Times::of(&seen.schedule) {
            Ok(times) => times,
            Err(refusal) => {
                // It was good when it was made: this server knows less of time zones.
                tracing::error!(schedule = %name, "{refusal}");
                return Ok(Next::At(shared.clock.now().after(Millis::minutes(1))));
            }
        };
        let now = shared.clock.now();
        match step(&seen.schedule, &times, now) {
            Step::Wait(at) => return Ok(at.map_or(Next::Never, Next::At)),
            Step::Miss(after) => {
                tracing::warn!(schedule = %name, missed = after.tally.missed, "occurrences were missed");
                replace(shared, &seen, &after).await?;
            }
            Step::Fire { occurrence, after } => {
                if let Some(at) = fire(shared, &seen, occurrence, after, now).await? {
                    return Ok(Next::At(at));
                }
            }
        }
    }
}

/// Whether it won does not matter: what is there now is read again.
async fn replace(shared: &Arc<Shared>, seen: &Seen, after: &Schedule) -> Result<()> {
    let replaced = shared.replace_schedule(&after.name, Some(seen.bytes.clone()), Some(after)).await;
    replaced.map(drop).map_err(OperationError::into_fault)
}

/// Makes the item of an occurrence; answers when to try again, if it could not be made for now.
async fn fire(
    shared: &Arc<Shared>,
    seen: &Seen,
    occurrence: Timestamp,
    after: Box<Schedule>,
    now: Timestamp,
) -> Result<Option<Timestamp>> {
    let schedule = &seen.schedule;
    if let Some(before) = schedule.last_item.filter(|_| schedule.spec.overlap != Overlap::Allow)
        && let Some(found) = shared.store.get(vec![before], FieldSet::NONE).await?.pop().flatten()
        && !found.item.head.is_terminal()
    {
        if schedule.spec.overlap == Overlap::Skip {
            replace(shared, seen, &step::skipped(after)).await?;
            return Ok(None);
        }
        // If this is lost to another server, that one has cancelled the same item.
        let reason = format!("schedule {} came again at {occurrence}", schedule.name);
        Arc::clone(shared).update_attached(vec![Operation::Cancel { id: before, reason }]).await?;
    }
    let fired = step::fired(after.clone(), occurrence);
    let mut submission = schedule.submission(schedule.item_id(occurrence), Some(occurrence));
    submission.record_guard = Some(Box::new(RecordGuard {
        key: key(&schedule.name),
        seen: seen.bytes.clone(),
        next: encode(&fired)?,
        not_before: occurrence,
    }));
    let queue = schedule.spec.queue.clone();
    let submit = Operation::Submit { queue, submission: Box::new(submission) };
    let answered = Arc::clone(shared).update_attached(vec![submit]).await?.pop().ok_or(StoreError::Closed)?;
    let error = match answered {
        Ok(_) => return Ok(None),
        Err(error) => error,
    };
    match &error {
        OperationError::Refused(Refusal::RecordChanged { .. }) => Ok(None),
        OperationError::Refused(Refusal::TooEarly { .. }) => {
            let (least, most) = NOT_YET;
            Ok(Some(now.after(Millis(now.since(occurrence).0 / 8).clamp(least, most))))
        }
        // Its item is there, but its record is of before: a backup of the one and not of the other.
        OperationError::Refused(Refusal::IdTaken { .. }) => {
            replace(shared, seen, &fired).await.map(|()| None)
        }
        error if passes(error) => {
            let error = step::error(occurrence, error, now);
            if schedule.error.as_ref().is_none_or(|known| known.code != error.code) {
                let noted = Schedule { error: Some(error), ..schedule.clone() };
                replace(shared, seen, &noted).await?;
            }
            Ok(Some(now.after(TRY_AGAIN)))
        }
        error => {
            tracing::warn!(schedule = %schedule.name, "an occurrence was refused: {error}");
            replace(shared, seen, &step::refused(after, occurrence, error, now)).await?;
            Ok(None)
        }
    }
}

/// Whether it may be another in a while, without anybody doing anything about the schedule.
fn passes(error: &OperationError) -> bool {
    match error {
        OperationError::Refused(refusal) => matches!(
            refusal,
            Refusal::QueueFull { .. } | Refusal::StoreFull { .. } | Refusal::DiskFull { .. }
        ),
        OperationError::Failed(_) => true,
    }
}
