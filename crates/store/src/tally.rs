//! Queries of a queue's tallies.

use std::collections::BTreeMap;
use std::ops::Range;
use towline_domain::{Hour, HourTally, Tally, Timestamp};

/// A range of hours.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TallyRange {
    /// The range starts with the hour of this time.
    pub from: Timestamp,
    /// The range ends with the last hour that begins before this time.
    pub until: Timestamp,
    /// One row for each value of this tag. `None`: all items together.
    pub tag: Option<String>,
}

/// The tally of one hour, or of one hour and tag value.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TallyRow {
    pub hour: Hour,
    /// The value of the range's tag. `None`: all values that are tallied together, or the range has no tag.
    pub value: Option<String>,
    pub tally: Tally,
}

impl TallyRange {
    /// The hours of the range that are still kept.
    #[must_use]
    pub fn hours(&self, now: Timestamp) -> Range<Hour> {
        let first = Hour::of(self.from).max(Hour::oldest(now));
        let last = Timestamp(self.until.0.saturating_add(3_599_999));
        first..Hour::of(last).max(first)
    }

    /// The rows of a queue whose hours are in memory.
    pub fn rows<T: Default>(
        &self,
        hours: &BTreeMap<Hour, HourTally<T>>,
        now: Timestamp,
        tally: impl Fn(&T) -> Tally,
    ) -> Vec<TallyRow> {
        let hours = hours.range(self.hours(now));
        let rows = hours.flat_map(|(&hour, counts)| {
            counts.rows(self.tag.as_deref()).map(move |(value, count)| (hour, value, count))
        });
        let row = |(hour, value, count): (Hour, Option<&str>, &T)| TallyRow {
            hour,
            value: value.map(str::to_owned),
            tally: tally(count),
        };
        rows.map(row).filter(|row| row.tally.total() > 0).collect()
    }
}
