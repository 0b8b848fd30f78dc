//! What is to be done about a schedule now: the whole of the rhythm, without a clock or a store.

use super::rhythm::Times;
use towline_domain::schedule::{CatchUp, Schedule, ScheduleError};
use towline_domain::{Millis, Timestamp};
use towline_store::OperationError;

/// An occurrence that is later than this is caught up with, or missed: until then it is merely a little late.
pub(crate) const LATE_MAX: Millis = Millis::minutes(1);
/// Occurrences that are counted when they were missed; beyond that only the first ones are.
const MISSED_MAX: u64 = 10_000;

#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Step {
    /// Nothing until then; `None`: until somebody changes it.
    Wait(Option<Timestamp>),
    /// Nothing is made up for: it goes on from here.
    Miss(Box<Schedule>),
    /// Make the item of this occurrence, and go on from here.
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
    // What the record says comes next comes next, also if times are computed in another way today.
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

/// Occurrences after one and up to another.
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

/// The occurrence made this item.
pub(crate) fn fired(mut after: Box<Schedule>, occurrence: Timestamp) -> Box<Schedule> {
    after.last = Some(occurrence);
    after.last_item = Some(after.item_id(occurrence));
    after.tally.submitted += 1;
    after.error = None;
    after
}

/// The item before is unfinished.
pub(crate) fn skipped(mut after: Box<Schedule>) -> Box<Schedule> {
    after.tally.skipped += 1;
    after
}

/// The occurrence is lost, and this is why.
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
