//! What is asked of a queue's tallies, and how it is answered.

use std::collections::BTreeMap;
use std::ops::Range;
use towline_domain::{Hour, HourTally, Tally, Timestamp};

/// Hours of which something is wanted to be known.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TallyRange {
    /// From the hour that this is in.
    pub from: Timestamp,
    /// Up to this, exclusively: an hour that begins before it is in.
    pub until: Timestamp,
    /// Counts the values of this tag separately; `None`: all items together.
    pub tag: Option<String>,
}

/// What finished in one hour.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TallyRow {
    pub hour: Hour,
    /// Of the tag that was asked for; `None`: all values that are not told apart, or no tag was asked for.
    pub value: Option<String>,
    pub tally: Tally,
}

impl TallyRange {
    /// The hours, those left out that are not kept any more.
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
        let asked = hours.range(self.hours(now));
        let rows = asked.flat_map(|(&hour, counts)| {
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
