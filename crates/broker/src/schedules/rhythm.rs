//! The times of a schedule's occurrences.
//!
//! **Invariant:** the times depend on the schedule alone, so every server computes the same.

use towline_domain::calendar::Calendar;
use towline_domain::schedule::{Rhythm, Schedule, Spec};
use towline_domain::{Millis, Refusal, Timestamp};

/// The occurrence times of a schedule.
#[derive(Debug, Clone)]
pub(crate) struct Times {
    source: Source,
    start: Option<Timestamp>,
    end: Option<Timestamp>,
}

#[derive(Debug, Clone)]
enum Source {
    Cron(Calendar),
    Every { anchor: Timestamp, every: Millis },
}

impl Times {
    pub(crate) fn of(schedule: &Schedule) -> Result<Times, Refusal> {
        Times::new(&schedule.spec, schedule.anchor)
    }

    /// `anchor`: the time from which intervals count.
    pub(crate) fn new(spec: &Spec, anchor: Timestamp) -> Result<Times, Refusal> {
        let source = match &spec.rhythm {
            Rhythm::Cron { cron, time_zone } => Source::Cron(Calendar::parse(cron, time_zone)?),
            Rhythm::Every { every } => Source::Every { anchor, every: *every },
        };
        Ok(Times { source, start: spec.start, end: spec.end })
    }

    /// The first occurrence after a time, if there is one.
    pub(crate) fn after(&self, time: Timestamp) -> Option<Timestamp> {
        // The start itself may be an occurrence.
        let before_start = self.start.map(|start| Timestamp(start.0.saturating_sub(1)));
        let time = before_start.map_or(time, |before| before.max(time));
        let next = match &self.source {
            Source::Cron(calendar) => calendar.after(time)?,
            Source::Every { anchor, every } => {
                let count = time.since(*anchor).0 / every.0 + u64::from(time >= *anchor);
                let next = anchor.0.checked_add(count.checked_mul(every.0)?)?;
                Timestamp(next)
            }
        };
        (next > time && next <= Timestamp::MAX && self.end.is_none_or(|end| next < end)).then_some(next)
    }

    /// The latest occurrences from `first` to `last` inclusive, `most` at most, in ascending order.
    pub(crate) fn latest(&self, first: Timestamp, last: Timestamp, most: usize) -> Vec<Timestamp> {
        let mut found = Vec::new();
        let last = self.end.map_or(last, |end| last.min(Timestamp(end.0.saturating_sub(1))));
        let first = self.start.map_or(first, |start| first.max(start));
        let mut from = last;
        while found.len() < most {
            let Some(time) = self.before(from, found.is_empty()).filter(|&time| time >= first) else { break };
            found.push(time);
            from = time;
        }
        found.reverse();
        found
    }

    /// The last occurrence before a time, or at it.
    fn before(&self, time: Timestamp, or_at: bool) -> Option<Timestamp> {
        match &self.source {
            Source::Cron(calendar) => calendar.before(time, or_at),
            Source::Every { anchor, every } => {
                let time = if or_at { time } else { Timestamp(time.0.checked_sub(1)?) };
                let count = time.0.checked_sub(anchor.0)? / every.0;
                Some(Timestamp(anchor.0 + count * every.0))
            }
        }
    }
}
