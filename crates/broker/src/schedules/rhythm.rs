//! When a schedule's occurrences are.
//!
//! **Invariant:** times come from the schedule alone. Whoever computes them, on whatever server, gets the same.

use towline_domain::calendar::Calendar;
use towline_domain::schedule::{Rhythm, Schedule, Spec};
use towline_domain::{Millis, Refusal, Timestamp};

/// The times of a schedule, ready to be asked.
#[derive(Debug, Clone)]
pub(crate) struct Times {
    beat: Beat,
    start: Option<Timestamp>,
    end: Option<Timestamp>,
}

#[derive(Debug, Clone)]
enum Beat {
    Cron(Calendar),
    Every { anchor: Timestamp, every: Millis },
}

impl Times {
    pub(crate) fn of(schedule: &Schedule) -> Result<Times, Refusal> {
        Times::new(&schedule.spec, schedule.anchor)
    }

    /// `anchor`: where intervals are counted from.
    pub(crate) fn new(spec: &Spec, anchor: Timestamp) -> Result<Times, Refusal> {
        let beat = match &spec.rhythm {
            Rhythm::Cron { cron, time_zone } => Beat::Cron(Calendar::parse(cron, time_zone)?),
            Rhythm::Every { every } => Beat::Every { anchor, every: *every },
        };
        Ok(Times { beat, start: spec.start, end: spec.end })
    }

    /// The first occurrence after a time; `None`: there is none any more.
    pub(crate) fn after(&self, time: Timestamp) -> Option<Timestamp> {
        // An occurrence may be at the start itself.
        let before_start = self.start.map(|start| Timestamp(start.0.saturating_sub(1)));
        let time = before_start.map_or(time, |before| before.max(time));
        let next = match &self.beat {
            Beat::Cron(calendar) => calendar.after(time)?,
            Beat::Every { anchor, every } => {
                let passed = time.since(*anchor).0 / every.0 + u64::from(time >= *anchor);
                let next = anchor.0.checked_add(passed.checked_mul(every.0)?)?;
                Timestamp(next)
            }
        };
        (next > time && next <= Timestamp::MAX && self.end.is_none_or(|end| next < end)).then_some(next)
    }

    /// The latest occurrences from `first` up to `last`, both included: at most `most`, the earliest of them first.
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
        match &self.beat {
            Beat::Cron(calendar) => calendar.before(time, or_at),
            Beat::Every { anchor, every } => {
                let time = if or_at { time } else { Timestamp(time.0.checked_sub(1)?) };
                let passed = time.0.checked_sub(anchor.0)? / every.0;
                Some(Timestamp(anchor.0 + passed * every.0))
            }
        }
    }
}
