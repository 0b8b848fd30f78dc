//! Schedules: created, changed, shown and carried out. Every server carries them out; the store decides which server
//! submits the item of an occurrence.

mod record;
mod rhythm;
mod runner;
mod step;
#[cfg(test)]
mod tests;

pub(crate) use runner::{ScheduleTimers, run};

use crate::broker::Broker;
use crate::entropy;
use record::{Seen, encode, key};
use rhythm::Times;
use towline_domain::change::Answer;
use towline_domain::command::RecordGuard;
use towline_domain::schedule::{Rhythm, Schedule, ScheduleTally, Spec};
use towline_domain::{ItemId, Refusal, ScheduleName, Timestamp, limits};
use towline_store::{Operation, OperationError, OperationResult, Reply, Result, StoreError};

/// Attempts of a change, if other changes come first.
const TRIES: usize = 32;

/// What a put does to a schedule that exists and differs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum IfDifferent {
    Refuse,
    Change,
    /// Changes and creates nothing: the answer says what would change.
    OnlyShow,
}

/// What a put did.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PutSchedule {
    pub schedule: Schedule,
    pub created: bool,
    /// The changed fields.
    pub changed: Vec<&'static str>,
    /// The schedule before the change.
    pub before: Option<Box<Schedule>>,
}

impl Broker {
    /// Creates a schedule. If it exists, `if_different` says what becomes of it. Its next occurrence stays unless its times
    /// change.
    pub async fn put_schedule(
        &self,
        name: &ScheduleName,
        spec: Spec,
        paused: Option<bool>,
        if_different: IfDifferent,
    ) -> OperationResult<PutSchedule> {
        spec.check()?;
        for _ in 0..TRIES {
            let now = self.now();
            let seen = self.0.read_schedule(name).await?;
            let put = match &seen {
                Some(Seen { schedule, .. }) => changed(schedule, &spec, paused, now),
                None => {
                    let held = self.0.schedule_timers.len();
                    if held >= limits::SCHEDULES_MAX {
                        let held = held as u64;
                        return Err(Refusal::StoreFull { what: "schedules", held }.into());
                    }
                    created(name, spec.clone(), paused.unwrap_or(false), now)
                }
            };
            let put = put?;
            let differs = put.created || !put.changed.is_empty();
            if !differs || if_different == IfDifferent::OnlyShow {
                return Ok(put);
            }
            if !put.created && if_different == IfDifferent::Refuse {
                let (name, what) = (name.to_string(), put.changed.join(", "));
                return Err(Refusal::ScheduleExists { name, what }.into());
            }
            let seen = seen.map(|seen| seen.bytes);
            if self.0.replace_schedule(name, seen, Some(&put.schedule)).await? {
                return Ok(put);
            }
        }
        Err(contended(name).into())
    }

    pub async fn schedule(&self, name: &ScheduleName) -> Result<Option<Schedule>> {
        Ok(self.0.read_schedule(name).await?.map(|seen| seen.schedule))
    }

    /// In order of name.
    pub async fn schedules(&self, after: Option<&ScheduleName>, limit: usize) -> Result<Vec<Schedule>> {
        self.0.list_schedules(after, limit).await
    }

    /// Keeps the items that the schedule submitted.
    pub async fn delete_schedule(&self, name: &ScheduleName) -> OperationResult<()> {
        for _ in 0..TRIES {
            let Some(seen) = self.0.read_schedule(name).await? else { return Err(not_found(name).into()) };
            if self.0.replace_schedule(name, Some(seen.bytes), None).await? {
                return Ok(());
            }
        }
        Err(contended(name).into())
    }

    /// A paused schedule submits no items. A resumed schedule continues with the next occurrence from now.
    pub async fn pause_schedule(&self, name: &ScheduleName, paused: bool) -> OperationResult<Schedule> {
        for _ in 0..TRIES {
            let Some(seen) = self.0.read_schedule(name).await? else { return Err(not_found(name).into()) };
            if seen.schedule.paused == paused {
                return Ok(seen.schedule);
            }
            let now = self.now();
            let mut after = Schedule { paused, changed_at: now, ..seen.schedule };
            after.next = next(&after, now)?;
            if self.0.replace_schedule(name, Some(seen.bytes), Some(&after)).await? {
                return Ok(after);
            }
        }
        Err(contended(name).into())
    }

    /// Submits an item now, also for a schedule that is paused or has ended. Its next occurrence stays.
    pub async fn run_schedule(&self, name: &ScheduleName) -> OperationResult<ItemId> {
        let id = ItemId(entropy::uuid(self.now()));
        for _ in 0..TRIES {
            let Some(Seen { schedule, bytes }) = self.0.read_schedule(name).await? else {
                return Err(not_found(name).into());
            };
            let mut submission = schedule.submission(id, None);
            let after = Schedule { last_item: Some(id), ..schedule.clone() };
            let not_before = Timestamp::default();
            let once = RecordGuard { key: key(name), seen: bytes, next: encode(&after)?, not_before };
            submission.record_guard = Some(Box::new(once));
            let queue = schedule.spec.queue.clone();
            let submit = Operation::Submit { queue, submission: Box::new(submission) };
            match self.update(vec![submit]).await?.pop() {
                Some(Ok(Reply::Answer(Answer::Submitted { id, .. }))) => return Ok(id),
                Some(Err(OperationError::Refused(Refusal::RecordChanged { .. }))) => {}
                // An earlier attempt whose answer was lost.
                Some(Err(OperationError::Refused(Refusal::IdTaken { id: taken }))) if taken == id => {
                    return Ok(id);
                }
                Some(Err(error)) => return Err(error),
                _ => return Err(StoreError::Closed.into()),
            }
        }
        Err(contended(name).into())
    }

    /// The next occurrences. For a paused schedule: as if it were resumed now.
    pub fn next_times(
        &self,
        schedule: &Schedule,
        count: usize,
    ) -> std::result::Result<Vec<Timestamp>, Refusal> {
        let times = Times::of(schedule)?;
        let first = match schedule.next.filter(|_| !schedule.paused) {
            Some(next) => Some(next),
            None => times.after(self.now()),
        };
        let following = std::iter::successors(first, |&time| times.after(time));
        Ok(following.take(count.min(limits::NEXT_TIMES_MAX)).collect())
    }

    /// Carries out due occurrences, as the broker does by itself. Returns when the next one is due.
    pub async fn run_due_schedules(&self) -> Result<Option<Timestamp>> {
        runner::run_due(&self.0).await
    }
}

fn created(
    name: &ScheduleName,
    spec: Spec,
    paused: bool,
    now: Timestamp,
) -> std::result::Result<PutSchedule, Refusal> {
    let mut schedule = Schedule {
        name: name.clone(),
        uid: entropy::uuid(now),
        anchor: spec.start.unwrap_or(now),
        spec,
        created_at: now,
        changed_at: now,
        paused,
        next: None,
        last: None,
        last_item: None,
        tally: ScheduleTally::default(),
        error: None,
    };
    begin(&mut schedule, now)?;
    Ok(PutSchedule { schedule, created: true, changed: Vec::new(), before: None })
}

fn changed(
    before: &Schedule,
    spec: &Spec,
    paused: Option<bool>,
    now: Timestamp,
) -> std::result::Result<PutSchedule, Refusal> {
    let mut changed = before.spec.differences(spec);
    let paused = paused.unwrap_or(before.paused);
    if paused != before.paused {
        changed.push("paused");
    }
    let mut schedule = Schedule { spec: spec.clone(), paused, changed_at: now, ..before.clone() };
    if !spec.same_times(&before.spec) {
        schedule.anchor = spec.start.unwrap_or(now);
        begin(&mut schedule, now)?;
    } else if paused != before.paused {
        schedule.next = next(&schedule, now)?;
    }
    if changed.is_empty() {
        schedule = before.clone();
    }
    Ok(PutSchedule { schedule, created: false, changed, before: Some(Box::new(before.clone())) })
}

/// Sets the first occurrence. Refuses times without any occurrence.
fn begin(schedule: &mut Schedule, now: Timestamp) -> std::result::Result<(), Refusal> {
    let times = Times::of(schedule)?;
    // No occurrence is repeated.
    let from = schedule.last.map_or(now, |last| last.max(now));
    let Some(first) = times.after(from) else {
        return Err(match (&schedule.spec.rhythm, schedule.spec.end) {
            (_, Some(end)) => Refusal::Invalid {
                what: "end",
                message: format!(
                    "no occurrence before {end}; nothing would ever be submitted; use a later end"
                ),
            },
            (Rhythm::Cron { cron, .. }, None) => Refusal::Invalid {
                what: "cron",
                message: format!("{cron:?} never comes: no such date is left; use a date that exists"),
            },
            (Rhythm::Every { every }, None) => Refusal::Invalid {
                what: "every",
                message: format!("{every} is too long: there is no such time; use a shorter interval"),
            },
        });
    };
    schedule.next = (!schedule.paused).then_some(first);
    Ok(())
}

fn next(schedule: &Schedule, now: Timestamp) -> std::result::Result<Option<Timestamp>, Refusal> {
    if schedule.paused {
        return Ok(None);
    }
    Ok(Times::of(schedule)?.after(schedule.last.map_or(now, |last| last.max(now))))
}

fn not_found(name: &ScheduleName) -> Refusal {
    Refusal::ScheduleNotFound { name: name.to_string() }
}

fn contended(name: &ScheduleName) -> StoreError {
    StoreError::Unavailable { cause: format!("schedule {name} keeps changing; try again") }
}
