//! Points in time and durations, in whole milliseconds.

use serde::{Deserialize, Serialize};
use std::fmt;

/// Milliseconds since the Unix epoch, by the store's clock.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Timestamp(pub u64);

impl Timestamp {
    /// The latest time of an id, a timer or a client (the year 10889: 48 bits, as in a UUIDv7).
    pub const MAX: Timestamp = Timestamp((1 << 48) - 1);

    #[must_use]
    pub fn after(self, span: Millis) -> Timestamp {
        Timestamp(self.0.saturating_add(span.0)).min(Timestamp::MAX)
    }

    #[must_use]
    pub fn since(self, earlier: Timestamp) -> Millis {
        Millis(self.0.saturating_sub(earlier.0))
    }
}

impl fmt::Display for Timestamp {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match i64::try_from(self.0).ok().and_then(|ms| jiff::Timestamp::from_millisecond(ms).ok()) {
            Some(time) => write!(f, "{time:.3}"),
            None => write!(f, "{} ms after 1970", self.0),
        }
    }
}

/// A duration in milliseconds.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Millis(pub u64);

#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum DurationError {
    #[error("duration {0:?} has no unit; write {0}ms, {0}s, {0}m, {0}h or {0}d")]
    NoUnit(String),
    #[error("{0:?} is not a duration; write it like 500ms, 90s, 5m, 2h45m, 7d or PT1H30M")]
    Malformed(String),
    #[error("duration {0:?} is negative; use a positive one")]
    Negative(String),
    #[error("duration {0:?} is longer than 100 years; use a shorter one")]
    TooLong(String),
}

impl Millis {
    pub const ZERO: Millis = Millis(0);
    /// The longest duration a client may send: 100 years.
    pub const MAX: Millis = Millis(100 * 366 * 24 * 3_600_000);

    #[must_use]
    pub const fn seconds(count: u64) -> Millis {
        Millis(count * 1000)
    }

    #[must_use]
    pub const fn minutes(count: u64) -> Millis {
        Millis(count * 60_000)
    }

    #[must_use]
    pub const fn hours(count: u64) -> Millis {
        Millis(count * 3_600_000)
    }

    #[must_use]
    pub const fn days(count: u64) -> Millis {
        Millis(count * 86_400_000)
    }

    /// Parses `500ms`, `90s`, `5m`, `2h45m`, `7d` (a day is 24 hours) and ISO 8601 durations.
    pub fn parse(text: &str) -> Result<Millis, DurationError> {
        let text = text.trim();
        if !text.is_empty() && text.bytes().all(|b| b.is_ascii_digit()) {
            return Err(DurationError::NoUnit(text.to_owned()));
        }
        let malformed = || DurationError::Malformed(text.chars().take(64).collect());
        let span: jiff::Span = text.parse().map_err(|_| malformed())?;
        let duration =
            span.to_duration(jiff::SpanRelativeTo::days_are_24_hours()).map_err(|_| malformed())?;
        if duration.is_negative() {
            return Err(DurationError::Negative(text.to_owned()));
        }
        let millis =
            u64::try_from(duration.as_millis()).map_err(|_| DurationError::TooLong(text.to_owned()))?;
        if millis > Millis::MAX.0 {
            return Err(DurationError::TooLong(text.to_owned()));
        }
        Ok(Millis(millis))
    }
}

impl std::str::FromStr for Millis {
    type Err = DurationError;
    fn from_str(text: &str) -> Result<Millis, DurationError> {
        Millis::parse(text)
    }
}

impl fmt::Display for Millis {
    /// A form that [`Millis::parse`] accepts: `7d`, `2h45m`, `1s500ms`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.0 == 0 {
            return f.write_str("0s");
        }
        let mut rest = self.0;
        for (unit, size) in [("d", 86_400_000), ("h", 3_600_000), ("m", 60_000), ("s", 1000), ("ms", 1)] {
            if rest >= size {
                write!(f, "{}{unit}", rest / size)?;
                rest %= size;
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn durations_are_parsed() {
        for (text, millis) in [
            ("500ms", 500),
            ("90s", 90_000),
            ("5m", 300_000),
            ("2h45m", 9_900_000),
            ("7d", 604_800_000),
            ("PT1H30M", 5_400_000),
            ("0s", 0),
        ] {
            assert_eq!(Millis::parse(text), Ok(Millis(millis)), "{text}");
        }
    }

    #[test]
    fn the_error_for_a_bare_number_names_the_units() {
        let error = Millis::parse("30").unwrap_err().to_string();
        assert!(error.contains("30s") && error.contains("30ms"), "{error}");
    }

    #[test]
    fn malformed_durations_are_refused() {
        for text in
            ["", "m", "five minutes ago", "-5s", "1000000y", "5m ago", "\u{0}", "9999999999999999999999s"]
        {
            assert!(Millis::parse(text).is_err(), "{text:?}");
        }
    }

    proptest! {
        #[test]
        fn display_is_read_back(millis in 0..=Millis::MAX.0) {
            prop_assert_eq!(Millis::parse(&Millis(millis).to_string()), Ok(Millis(millis)));
        }

        #[test]
        fn no_text_panics(text in ".{0,80}") {
            let _ = Millis::parse(&text);
        }
    }
}
