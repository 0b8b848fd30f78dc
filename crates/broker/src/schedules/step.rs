//! Decides what a schedule does now. Pure: no clock, no store.

use super::rhythm::Times;
use towline_domain::schedule::{CatchUp, Schedule, ScheduleError};
use towline_domain::{Millis, Timestamp};
use towline_store::OperationError;

/// An occurrence later than this is missed, unless the catch-up policy submits it.
pub(crate) const LATE_MAX: Millis = Millis::minutes(1);
/// Maximum number of missed occurrences that are counted at once.
const MISSED_MAX: u64 = 10_000;

#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Step {
    /// Nothing until then. `None`: until the schedule is changed.
    Wait(Option<Timestamp>),
    /// Submit nothing; replace the schedule with this.
    Miss(Box<Schedule>),
    /// Submit the item of this occurrence; replace the schedule with `after`.
    Fire { occurrence: Timestamp, after: Box<Schedule> },
}

pub(crate) fn step(schedule: &Schedule, times: &Times, now: Timestamp) -> Step {
    let Some(next) = schedule.next.filter(|_| !schedule.paused) else { return Step::Wait(None) };
    if next > now {
        return Step::Wait(Some(next));
    }
    let most = match schedule.spec.catch_up {
        CatchUp::None | CatchUp::One => 1,
        CatchUp::All { max } => max as usize,
    };
    let latest = times.latest(next, now, most);
    let in_time = |at: Timestamp| schedule.spec.catch_up != CatchUp::None || now.since(at) <= LATE_MAX;
    // The recorded next occurrence counts, even if this version computes other times.
    let chosen = latest.first().copied().unwrap_or(next);
    let mut after = schedule.clone();
    if !in_time(chosen) {
        after.tally.missed += count(times, next, now) + 1;
        after.next = times.after(now);
        return Step::Miss(Box::new(after));
    }
    if chosen > next {
        after.tally.missed += count(times, next, Timestamp(chosen.0 - 1)) + 1;
    }
    after.next = times.after(chosen);
    Step::Fire { occurrence: chosen, after: Box::new(after) }
}

/// The number of occurrences after `from` and up to `to`.
fn count(times: &Times, mut from: Timestamp, to: Timestamp) -> u64 {
    let mut count = 0;
    while count < MISSED_MAX
        && let Some(next) = times.after(from).filter(|&next| next <= to)
    {
        from = next;
        count += 1;
    }
    count
}

/// The schedule after the item of an occurrence was submitted.
pub(crate) fn fired(mut after: Box<Schedule>, occurrence: Timestamp) -> Box<Schedule> {
    after.last = Some(occurrence);
    after.last_item = Some(after.item_id(occurrence));
    after.tally.submitted += 1;
    after.error = None;
    after
}

/// The schedule after an occurrence was skipped because the previous item is unfinished.
pub(crate) fn skipped(mut after: Box<Schedule>) -> Box<Schedule> {
    after.tally.skipped += 1;
    after
}

/// The schedule after the item of an occurrence was refused.
pub(crate) fn refused(
    mut after: Box<Schedule>,
    occurrence: Timestamp,
    refused: &OperationError,
    now: Timestamp,
) -> Box<Schedule> {
    after.tally.refused += 1;
    after.error = Some(error(occurrence, refused, now));
    after
}

pub(crate) fn error(occurrence: Timestamp, error: &OperationError, now: Timestamp) -> ScheduleError {
    ScheduleError { at: now, occurrence, code: error.code().to_owned(), message: error.to_string() }
}
