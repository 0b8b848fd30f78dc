//! Times by cron expressions, in time zones.
//!
//! **Invariant:** times come from the expression and the zone alone. Whoever computes them gets the same.

use crate::{Refusal, Timestamp};
use croner::parser::{CronParser, Seconds, Year};
use croner::{Cron, errors::CronError};
use jiff::tz::TimeZone;
use jiff::{ToSpan, Zoned};

/// An expression in a zone, ready to be asked.
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

    /// The first time it names after this one.
    #[must_use]
    pub fn after(&self, time: Timestamp) -> Option<Timestamp> {
        let mut found = self.cron.find_next_occurrence(&zoned(time, &self.zone)?, false).ok()?;
        while !is_meant(&self.cron, &found)? {
            found = self.cron.find_next_occurrence(&found, false).ok()?;
        }
        timestamp(&found)
    }

    /// The last time it names before this one, or at it.
    #[must_use]
    pub fn before(&self, time: Timestamp, or_at: bool) -> Option<Timestamp> {
        let mut found = self.cron.find_previous_occurrence(&zoned(time, &self.zone)?, or_at).ok()?;
        while !is_meant(&self.cron, &found)? {
            found = self.cron.find_previous_occurrence(&found, false).ok()?;
        }
        // An hour that comes twice must not lead back to where it began.
        timestamp(&found).filter(|&found| found < time || or_at && found == time)
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

#[cfg(test)]
mod tests {
    use super::*;

    fn at(text: &str) -> Timestamp {
        let time: jiff::Timestamp = text.parse().unwrap();
        Timestamp(time.as_millisecond().try_into().unwrap())
    }

    #[test]
    fn an_hour_that_is_left_out_makes_nothing_that_was_not_named() {
        // On 29 March 2026 it is 3:00 in Vienna after 1:59.
        let at_one = Calendar::parse("1 1 * * *", "Europe/Vienna").unwrap();
        assert_eq!(at_one.after(at("2026-03-28T12:00:00Z")), Some(at("2026-03-29T00:01:00Z")));
        assert_eq!(at_one.after(at("2026-03-29T00:01:00Z")), Some(at("2026-03-29T23:01:00Z")));
        assert_eq!(at_one.before(at("2026-03-29T12:00:00Z"), false), Some(at("2026-03-29T00:01:00Z")));
        // What is named in it comes at its end.
        let in_gap = Calendar::parse("30 2 * * *", "Europe/Vienna").unwrap();
        assert_eq!(in_gap.after(at("2026-03-28T12:00:00Z")), Some(at("2026-03-29T01:00:00Z")));
    }

    #[test]
    fn what_is_wrong_is_named() {
        let wrong = |cron, zone| Calendar::parse(cron, zone).unwrap_err().to_string();
        assert!(wrong("5/15 * * * *", "UTC").contains("minute \"5/15\""));
        assert!(wrong("* * * * *", "Middle/Earth").contains("Middle/Earth"));
    }
}
