//! Times by cron expressions, in time zones.
//!
//! **Invariant:** times depend on the expression and the zone alone, so every server computes the same.

use crate::{Refusal, Timestamp};
use croner::parser::{CronParser, Seconds, Year};
use croner::{Cron, errors::CronError};
use jiff::tz::TimeZone;
use jiff::{ToSpan, Zoned};

/// A parsed cron expression in a time zone.
#[derive(Debug, Clone)]
pub struct Calendar {
    cron: Box<Cron>,
    zone: TimeZone,
}

impl Calendar {
    /// `cron`: five fields, or six with seconds first, or seven with years last. `time_zone`: a name of the IANA database.
    pub fn parse(cron: &str, time_zone: &str) -> Result<Calendar, Refusal> {
        Ok(Calendar { cron: Box::new(parse(cron)?), zone: zone(time_zone)? })
    }

    /// The first occurrence after `time`.
    #[must_use]
    pub fn after(&self, time: Timestamp) -> Option<Timestamp> {
        let mut found = self.cron.find_next_occurrence(&zoned(time, &self.zone)?, false).ok()?;
        while !is_occurrence(&self.cron, &found)? {
            found = self.cron.find_next_occurrence(&found, false).ok()?;
        }
        timestamp(&found)
    }

    /// The last occurrence before `time`, or at it if `or_at`.
    #[must_use]
    pub fn before(&self, time: Timestamp, or_at: bool) -> Option<Timestamp> {
        let mut found = self.cron.find_previous_occurrence(&zoned(time, &self.zone)?, or_at).ok()?;
        while !is_occurrence(&self.cron, &found)? {
            found = self.cron.find_previous_occurrence(&found, false).ok()?;
        }
        // In the hour that a clock change repeats, croner can return a later time than `time`.
        timestamp(&found).filter(|&found| found < time || or_at && found == time)
    }
}

/// Whether the pattern matches this time, or a time in the gap that a clock change leaves just before it. croner returns
/// the end of a gap as an occurrence even if the pattern matches no time in the gap.
fn is_occurrence(cron: &Cron, found: &Zoned) -> Option<bool> {
    if cron.is_time_matching(found).ok()? {
        return Some(true);
    }
    let second_before = found.checked_sub(1.second()).ok()?;
    let gap_seconds = i64::from(found.offset().seconds() - second_before.offset().seconds());
    // The same wall-clock time in UTC, which has no gaps.
    let end = found.datetime().to_zoned(TimeZone::UTC).ok()?;
    let last_before = end.checked_sub((gap_seconds + 1).seconds()).ok()?;
    Some(cron.find_next_occurrence(&last_before, false).is_ok_and(|occurrence| occurrence < end))
}

fn zoned(time: Timestamp, zone: &TimeZone) -> Option<Zoned> {
    let time = jiff::Timestamp::from_millisecond(i64::try_from(time.0).ok()?).ok()?;
    Some(time.to_zoned(zone.clone()))
}

fn timestamp(time: &Zoned) -> Option<Timestamp> {
    let seconds = u64::try_from(time.timestamp().as_second()).ok()?;
    Some(Timestamp(seconds * 1000))
}

fn zone(name: &str) -> Result<TimeZone, Refusal> {
    TimeZone::get(name).map_err(|_| Refusal::Invalid {
        what: "time_zone",
        message: format!(
            "{name:?} is not a known time zone; use a name of the IANA database, like Europe/Vienna or UTC"
        ),
    })
}

fn parse(text: &str) -> Result<Cron, Refusal> {
    let parser = CronParser::builder().seconds(Seconds::Optional).year(Year::Optional).build();
    parser.parse(text).map_err(|error| {
        let place = wrong_field(&parser, text).map_or_else(String::new, |place| format!(" {place}:"));
        Refusal::Invalid { what: "cron", message: format!("{text:?}:{place} {}", describe(&error)) }
    })
}

fn describe(error: &CronError) -> String {
    match error {
        CronError::InvalidPattern(text)
        | CronError::IllegalCharacters(text)
        | CronError::ComponentError(text) => text.clone(),
        CronError::EmptyPattern => {
            "the expression is empty; write five to seven fields, like \"0 3 * * *\"".to_owned()
        }
        other => other.to_string(),
    }
}

/// The first field that is wrong by itself.
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

#[cfg(test)]
mod tests {
    use super::*;

    fn at(text: &str) -> Timestamp {
        let time: jiff::Timestamp = text.parse().unwrap();
        Timestamp(time.as_millisecond().try_into().unwrap())
    }

    #[test]
    fn a_clock_change_adds_no_occurrence() {
        // On 29 March 2026 clocks in Vienna go from 1:59 to 3:00.
        let at_one = Calendar::parse("1 1 * * *", "Europe/Vienna").unwrap();
        assert_eq!(at_one.after(at("2026-03-28T12:00:00Z")), Some(at("2026-03-29T00:01:00Z")));
        assert_eq!(at_one.after(at("2026-03-29T00:01:00Z")), Some(at("2026-03-29T23:01:00Z")));
        assert_eq!(at_one.before(at("2026-03-29T12:00:00Z"), false), Some(at("2026-03-29T00:01:00Z")));
        // An occurrence in the gap comes at its end.
        let in_gap = Calendar::parse("30 2 * * *", "Europe/Vienna").unwrap();
        assert_eq!(in_gap.after(at("2026-03-28T12:00:00Z")), Some(at("2026-03-29T01:00:00Z")));
    }

    #[test]
    fn an_error_names_the_wrong_field_or_zone() {
        let wrong = |cron, zone| Calendar::parse(cron, zone).unwrap_err().to_string();
        assert!(wrong("5/15 * * * *", "UTC").contains("minute \"5/15\""));
        assert!(wrong("* * * * *", "Middle/Earth").contains("Middle/Earth"));
    }
}
