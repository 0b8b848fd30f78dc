//! A point in time on the wire: RFC 3339 text, or milliseconds since 1970.

use crate::invalid::invalid;
use serde::{Deserialize, Deserializer, Serialize, Serializer, de};
use std::fmt;
use towline_domain::{Refusal, Timestamp};
use utoipa::openapi::RefOr;
use utoipa::openapi::schema::{KnownFormat, ObjectBuilder, OneOfBuilder, Schema, SchemaFormat, Type};
use utoipa::{PartialSchema, ToSchema};

/// The latest time that can be written as text and parsed again, in the last days of the year 9999.
const LATEST: Timestamp = Timestamp(253_402_207_200_000);

/// Decoding never fails. [`Time::into_domain`] refuses a bad value.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Time(Result<Timestamp, String>);

impl Time {
    pub fn into_domain(self, what: &'static str) -> Result<Timestamp, Refusal> {
        self.0.map_err(|message| invalid(what, message))
    }

    /// Parses RFC 3339 text. The time zone is required.
    #[must_use]
    pub fn parse(text: &str) -> Time {
        let remedy = "write a time like 2030-01-31T08:00:00Z";
        let shown = || text.chars().take(64).collect::<String>();
        Time(match text.parse::<jiff::Timestamp>() {
            Ok(time) => Time::milliseconds(time.as_millisecond()).0,
            Err(_) if is_too_late(text) => {
                Err(format!("{:?} is out of range; use a time before {LATEST}", shown()))
            }
            Err(_) => Err(format!("{:?} is not a time with a time zone; {remedy}", shown())),
        })
    }

    fn milliseconds(count: i64) -> Time {
        // A time before 1970 has passed, like 1970 itself.
        let count = u64::try_from(count).unwrap_or(0);
        Time(match Timestamp(count) {
            time if time <= LATEST => Ok(time),
            _ => Err(format!("{count} ms after 1970 is out of range; use a time before {LATEST}")),
        })
    }
}

/// Whether the text begins with one of the last days of the year 9999, which cannot be a time in every time zone, or with a later
/// year.
fn is_too_late(text: &str) -> bool {
    let later_year = text.split_once('-').is_some_and(|(year, _)| {
        let year = year.strip_prefix('+').unwrap_or(year).trim_start_matches('0');
        year.len() > 4 && year.bytes().all(|byte| byte.is_ascii_digit())
    });
    later_year
        || text.starts_with("9999-12-3")
            && text.get(..10).is_some_and(|date| date.parse::<jiff::civil::Date>().is_ok())
}

impl From<Timestamp> for Time {
    fn from(time: Timestamp) -> Time {
        Time(Ok(time))
    }
}

impl fmt::Display for Time {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.0 {
            Ok(time) => time.fmt(f),
            Err(text) => f.write_str(text),
        }
    }
}

impl ToSchema for Time {}

impl PartialSchema for Time {
    /// The schema of requests. Answers always contain text.
    fn schema() -> RefOr<Schema> {
        let format = |format| Some(SchemaFormat::KnownFormat(format));
        let text = ObjectBuilder::new()
            .schema_type(Type::String)
            .format(format(KnownFormat::DateTime))
            .examples(["2030-01-31T08:00:00Z"]);
        let number = ObjectBuilder::new()
            .schema_type(Type::Integer)
            .format(format(KnownFormat::Int64))
            .description(Some("Milliseconds since 1970."))
            .maximum(Some(LATEST.0));
        OneOfBuilder::new().item(text).item(number).into()
    }
}

impl Serialize for Time {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for Time {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Time, D::Error> {
        struct Visitor;
        impl de::Visitor<'_> for Visitor {
            type Value = Time;
            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a time like \"2030-01-31T08:00:00Z\", or milliseconds since 1970")
            }
            fn visit_str<E>(self, text: &str) -> Result<Time, E> {
                Ok(Time::parse(text))
            }
            fn visit_u64<E>(self, count: u64) -> Result<Time, E> {
                Ok(Time::milliseconds(i64::try_from(count).unwrap_or(i64::MAX)))
            }
            fn visit_i64<E>(self, count: i64) -> Result<Time, E> {
                Ok(Time::milliseconds(count))
            }
            fn visit_f64<E>(self, count: f64) -> Result<Time, E> {
                Ok(Time(Err(format!("{count} is not a whole number of milliseconds"))))
            }
        }
        deserializer.deserialize_any(Visitor)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_latest_time_parses_to_the_same_time() {
        let latest = Time::from(LATEST);
        assert_eq!(Time::parse(&latest.to_string()), latest);
        for late in ["9999-12-31", "9999-12-31T23:59:59Z", "10000-01-01T00:00:00Z", "+010000-01-01T00:00:00Z"]
        {
            let refused = Time::parse(late).into_domain("ready_at").unwrap_err().to_string();
            assert!(refused.contains("out of range") && !refused.contains("zone"), "{refused}");
        }
        assert!(Time::milliseconds(253_402_207_200_001).into_domain("ready_at").is_err());
    }
}
