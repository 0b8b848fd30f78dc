//! When a schedule's occurrences are.
//!
//! **Invariant:** times come from the schedule alone. Whoever computes them, on whatever server, gets the same.

use croner::parser::{CronParser, Seconds, Year};
use croner::{Cron, errors::CronError};
use jiff::tz::TimeZone;
use jiff::{ToSpan, Zoned};
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
    Cron { cron: Box<Cron>, zone: TimeZone },
    Every { anchor: Timestamp, every: Millis },
}

impl Times {
    pub(crate) fn of(schedule: &Schedule) -> Result<Times, Refusal> {
        Times::new(&schedule.spec, schedule.anchor)
    }

    /// `anchor`: where intervals are counted from.
    pub(crate) fn new(spec: &Spec, anchor: Timestamp) -> Result<Times, Refusal> {
        let beat = match &spec.rhythm {
            Rhythm::Cron { cron, time_zone } => {
                Beat::Cron { cron: Box::new(parse(cron)?), zone: zone(time_zone)? }
            }
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
            Beat::Cron { cron, zone } => {
                let mut found = cron.find_next_occurrence(&zoned(time, zone)?, false).ok()?;
                while !is_meant(cron, &found)? {
                    found = cron.find_next_occurrence(&found, false).ok()?;
                }
                timestamp(&found)?
            }
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
            Beat::Cron { cron, zone } => {
                let mut found = cron.find_previous_occurrence(&zoned(time, zone)?, or_at).ok()?;
                while !is_meant(cron, &found)? {
                    found = cron.find_previous_occurrence(&found, false).ok()?;
                }
                // An hour that comes twice must not lead back to where it began.
                timestamp(&found).filter(|&found| found < time || or_at && found == time)
            }
            Beat::Every { anchor, every } => {
                let time = if or_at { time } else { Timestamp(time.0.checked_sub(1)?) };
                let passed = time.0.checked_sub(anchor.0)? / every.0;
                Some(Timestamp(anchor.0 + passed * every.0))
            }
        }
    }
}

/// Whether the pattern names this time, or one that is left out just before it. A search that comes by a gap takes its end
/// for an occurrence, whatever the pattern says.
fn is_meant(cron: &Cron, found: &Zoned) -> Option<bool> {
    if cron.is_time_matching(found).ok()? {
        return Some(true);
    }
    let second_before = found.checked_sub(1.second()).ok()?;
    let left_out = i64::from(found.offset().seconds() - second_before.offset().seconds());
    // The same clock without gaps.
    let end = found.datetime().to_zoned(TimeZone::UTC).ok()?;
    let last_before = end.checked_sub((left_out + 1).seconds()).ok()?;
    Some(cron.find_next_occurrence(&last_before, false).is_ok_and(|named| named < end))
}

fn zoned(time: Timestamp, zone: &TimeZone) -> Option<Zoned> {
    let time = jiff::Timestamp::from_millisecond(i64::try_from(time.0).ok()?).ok()?;
    Some(time.to_zoned(zone.clone()))
}

fn timestamp(time: &Zoned) -> Option<Timestamp> {
    let whole = u64::try_from(time.timestamp().as_second()).ok()?;
    Some(Timestamp(whole * 1000))
}

fn zone(name: &str) -> Result<TimeZone, Refusal> {
    TimeZone::get(name).map_err(|_| Refusal::Invalid {
        what: "time_zone",
        message: format!("{name:?} is not known; use a name of the IANA database, like Europe/Vienna or UTC"),
    })
}

/// Five fields, or six with seconds first, or seven with years last.
fn parse(text: &str) -> Result<Cron, Refusal> {
    let parser = CronParser::builder().seconds(Seconds::Optional).year(Year::Optional).build();
    parser.parse(text).map_err(|error| {
        let place = wrong_field(&parser, text).map_or_else(String::new, |place| format!(" {place}:"));
        Refusal::Invalid { what: "cron", message: format!("{text:?}:{place} {}", said(&error)) }
    })
}

fn said(error: &CronError) -> String {
    match error {
        CronError::InvalidPattern(text)
        | CronError::IllegalCharacters(text)
        | CronError::ComponentError(text) => text.clone(),
        CronError::EmptyPattern => "it is empty; write five to seven fields, like \"0 3 * * *\"".to_owned(),
        other => other.to_string(),
    }
}

/// Which field is wrong by itself.
fn wrong_field(parser: &CronParser, text: &str) -> Option<String> {
    const NAMES: [&str; 7] = ["second", "minute", "hour", "day of month", "month", "day of week", "year"];
    let fields: Vec<&str> = text.split_whitespace().collect();
    let names = match fields.len() {
        5 => &NAMES[1..6],
        6 => &NAMES[..6],
        7 => &NAMES[..],
        _ => return None,
    };
    let is_wrong = |at: usize| {
        let mut alone = vec!["*"; fields.len()];
        alone[at] = fields[at];
        parser.parse(&alone.join(" ")).is_err()
    };
    let at = (0..fields.len()).find(|&at| is_wrong(at))?;
    Some(format!("{} {:?}", names[at], fields[at]))
}
