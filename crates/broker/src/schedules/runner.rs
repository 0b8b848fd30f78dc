//! Submits the items of occurrences when they are due. Sleeps until the first one, and never scans.
//!
//! **Invariant:** the store submits the item of an occurrence and replaces the schedule's record in one step. So each
//! occurrence submits one item, however many servers try and whenever one of them is killed.

use super::record::{Seen, encode, key};
use super::rhythm::Times;
use super::step::{self, Step, step};
use crate::broker::Shared;
use futures::{StreamExt, stream};
use parking_lot::{Mutex, MutexGuard};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Weak};
use std::time::Duration;
use tokio::sync::Notify;
use towline_domain::command::RecordGuard;
use towline_domain::schedule::{Overlap, Schedule};
use towline_domain::{FieldSet, Millis, Refusal, ScheduleName, Timestamp, limits};
use towline_store::{Operation, OperationError, Result, StoreError};

/// Maximum time between two checks: the clock may have been set, and other servers may have changed schedules.
const CHECK_EVERY: Duration = Duration::from_secs(30);
/// The store's clock may be behind this server's. Then retry after an eighth of the time since the occurrence, within
/// these bounds.
const TOO_EARLY_RETRY: (Millis, Millis) = (Millis(25), Millis::seconds(1));
/// Delay before a temporarily refused occurrence is submitted again.
const RETRY_AFTER: Millis = Millis::seconds(5);
const NEVER: u64 = u64::MAX;
const AFTER_FAULT: Duration = Duration::from_secs(1);
/// Maximum number of schedules carried out at the same time.
const AT_ONCE: usize = 16;

/// When to check each schedule next, as far as this server knows.
pub(crate) struct ScheduleTimers {
    next_times: Mutex<BTreeMap<ScheduleName, Option<Timestamp>>>,
    /// No other server changes schedules.
    alone: bool,
    /// When all schedules were last read from the store.
    reloaded_at: AtomicU64,
    /// No schedule submits an item: an import is under way.
    held: AtomicBool,
    wake: Notify,
}

impl ScheduleTimers {
    pub(crate) fn new(alone: bool) -> ScheduleTimers {
        ScheduleTimers {
            next_times: Mutex::default(),
            alone,
            reloaded_at: AtomicU64::new(NEVER),
            held: AtomicBool::new(false),
            wake: Notify::new(),
        }
    }

    /// Stops schedules, or lets them go on. Then all of them are read again.
    pub(crate) fn hold(&self, held: bool) {
        self.held.store(held, Ordering::Release);
        if !held {
            self.reloaded_at.store(NEVER, Ordering::Release);
            self.wake();
        }
    }

    fn should_reload(&self, now: Timestamp) -> bool {
        match self.reloaded_at.load(Ordering::Acquire) {
            NEVER => true,
            _ if self.alone => false,
            // After the clock was set back, it is unknown how long ago that was.
            last => last > now.0 || Duration::from_millis(now.0 - last) >= CHECK_EVERY,
        }
    }

    fn next_times(&self) -> MutexGuard<'_, BTreeMap<ScheduleName, Option<Timestamp>>> {
        self.next_times.lock()
    }

    pub(crate) fn len(&self) -> usize {
        self.next_times().len()
    }

    pub(crate) fn wake(&self) {
        self.wake.notify_one();
    }

    /// Records a changed schedule. `None`: it was deleted.
    pub(crate) fn put(&self, name: &ScheduleName, schedule: Option<&Schedule>) {
        match schedule {
            Some(schedule) => drop(self.next_times().insert(name.clone(), schedule.next)),
            None => drop(self.next_times().remove(name)),
        }
        self.wake();
    }

    fn due(&self, now: Timestamp) -> Vec<(ScheduleName, Timestamp)> {
        let due = |(name, at): (&ScheduleName, &Option<Timestamp>)| Some((name.clone(), (*at)?));
        self.next_times().iter().filter_map(due).filter(|(_, at)| *at <= now).collect()
    }

    /// Records the check of a schedule that was due at `at`. An earlier time from a concurrent change stays.
    fn checked(&self, name: ScheduleName, at: Timestamp, next: Next) {
        let mut next_times = self.next_times();
        let put = next_times.get(&name).copied().filter(|put| *put != Some(at));
        let next = match next {
            Next::Gone if put.is_none() => {
                next_times.remove(&name);
                return;
            }
            Next::Gone | Next::Never => None,
            Next::At(next) => Some(next),
        };
        next_times.insert(name, [put.flatten(), next].into_iter().flatten().min());
    }

    fn first(&self) -> Option<Timestamp> {
        self.next_times().values().flatten().min().copied()
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
                tracing::warn!("cannot run schedules for now: {error}");
                tokio::time::sleep(AFTER_FAULT).await;
                continue;
            }
        };
        let woken = broker.schedule_timers.wake.notified();
        match first {
            None if broker.schedule_timers.alone => woken.await,
            first => {
                let wait = first.map(|at| Duration::from_millis(at.since(broker.clock.now()).0));
                let wait = wait.map_or(CHECK_EVERY, |wait| wait.min(CHECK_EVERY));
                let _ = tokio::time::timeout(wait, woken).await;
            }
        }
    }
}

/// Carries out due occurrences. Returns when the next one is due.
pub(crate) async fn run_due(shared: &Arc<Shared>) -> Result<Option<Timestamp>> {
    let timers = &shared.schedule_timers;
    if timers.held.load(Ordering::Acquire) {
        return Ok(None);
    }
    let now = shared.clock.now();
    // Also on a busy server: the server that created a schedule may stop before its first occurrence.
    if timers.should_reload(now) {
        reload(shared).await?;
        timers.reloaded_at.store(now.0, Ordering::Release);
    }
    let due = timers.due(shared.clock.now());
    let carried_out = stream::iter(due).map(|(name, at)| async move {
        let next = carry_out(shared, &name).await;
        (name, at, next)
    });
    let carried_out: Vec<_> = carried_out.buffer_unordered(AT_ONCE).collect().await;
    for (name, at, next) in carried_out {
        let next = next.unwrap_or_else(|error| {
            tracing::warn!(schedule = %name, "cannot submit an occurrence for now: {error}");
            Next::At(shared.clock.now().after(Millis::seconds(1)))
        });
        timers.checked(name, at, next);
    }
    Ok(timers.first())
}

/// Reads all schedules from the store, a page at a time.
async fn reload(shared: &Arc<Shared>) -> Result<()> {
    let (mut names, mut after): (BTreeSet<ScheduleName>, Option<ScheduleName>) = Default::default();
    loop {
        let page = shared.list_schedules(after.as_ref(), limits::KV_PAGE_MAX).await?;
        let Some(last) = page.last() else { break };
        after = Some(last.name.clone());
        names.extend(page.iter().map(|schedule| schedule.name.clone()));
        let mut next_times = shared.schedule_timers.next_times();
        for schedule in page {
            // A concurrent change may be newer. An early check does no harm.
            let known = next_times.entry(schedule.name).or_insert(schedule.next);
            *known = [*known, schedule.next].into_iter().flatten().min();
        }
    }
    // Forget schedules that another server deleted. One with a next time is forgotten when that comes.
    shared.schedule_timers.next_times().retain(|name, at| at.is_some() || names.contains(name));
    Ok(())
}

/// When to check a schedule again.
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
                // Another server accepted it: this one may lack the time zone.
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

/// A lost race does not matter: the caller reads the record again.
async fn replace(shared: &Arc<Shared>, seen: &Seen, after: &Schedule) -> Result<()> {
    let replaced = shared.replace_schedule(&after.name, Some(seen.bytes.clone()), Some(after)).await;
    replaced.map(drop).map_err(OperationError::into_fault)
}

/// Submits the item of an occurrence. Returns when to try again, if it cannot be submitted now.
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
        // If another server submits the occurrence first, it has cancelled the same item.
        let reason = format!("replaced by the occurrence of schedule {} at {occurrence}", schedule.name);
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
            let (least, most) = TOO_EARLY_RETRY;
            Ok(Some(now.after(Millis(now.since(occurrence).0 / 8).clamp(least, most))))
        }
        // The item exists, but the record is older: only one of the two was restored from a backup.
        OperationError::Refused(Refusal::IdTaken { .. }) => {
            replace(shared, seen, &fired).await.map(|()| None)
        }
        error if is_temporary(error) => {
            let error = step::error(occurrence, error, now);
            if schedule.error.as_ref().is_none_or(|known| known.code != error.code) {
                let noted = Schedule { error: Some(error), ..schedule.clone() };
                replace(shared, seen, &noted).await?;
            }
            Ok(Some(now.after(RETRY_AFTER)))
        }
        error => {
            tracing::warn!(schedule = %schedule.name, "an occurrence was refused: {error}");
            replace(shared, seen, &step::refused(after, occurrence, error, now)).await?;
            Ok(None)
        }
    }
}

/// Whether the same submit may succeed later without a change of the schedule.
fn is_temporary(error: &OperationError) -> bool {
    match error {
        OperationError::Refused(refusal) => matches!(
            refusal,
            Refusal::QueueFull { .. } | Refusal::StoreFull { .. } | Refusal::DiskFull { .. }
        ),
        OperationError::Failed(_) => true,
    }
}
