//! Wire types of the tally: how many items finished in each hour or day.

use crate::time::Time;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use towline_domain::{Ending, Tally, Timestamp, tally_names, tally_values};
use utoipa::ToSchema;

/// Rows in order of time and tag value. A period in which no item finished has no row.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct TallyShown {
    /// `hour` or `day`, in UTC.
    pub by: String,
    /// The tag by which rows are split, or two tags: `team+type`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tag: Option<String>,
    pub rows: Vec<TallyRowShown>,
}

/// How many items finished in one period, by outcome.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct TallyRowShown {
    /// Start of the period.
    #[schema(value_type = String, format = DateTime)]
    pub from: Time,
    /// The value of the requested tag. Absent: all values beyond the queue's `tally_values_max` in an hour.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub value: Option<String>,
    /// The values of two requested tags, by tag.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub values: BTreeMap<String, String>,
    pub completed: u64,
    /// The sum of the following fields.
    pub failed: u64,
    pub explicit: u64,
    pub retries_exhausted: u64,
    pub expired: u64,
    pub cancelled: u64,
    pub poison: u64,
}

impl TallyRowShown {
    #[must_use]
    /// `tag`: the entry of the queue's `tally_tags` by which rows are split.
    pub fn new(from: Timestamp, tag: Option<&str>, value: Option<String>, tally: &Tally) -> TallyRowShown {
        let names: Vec<&str> = tag.into_iter().flat_map(tally_names).collect();
        let pair = tag.filter(|_| names.len() > 1).zip(value.as_deref());
        let values = pair.map_or_else(Vec::new, |(tag, value)| tally_values(tag, value));
        let values: BTreeMap<String, String> =
            names.iter().zip(values).map(|(name, value)| ((*name).to_owned(), value.to_owned())).collect();
        TallyRowShown {
            from: from.into(),
            value: value.filter(|_| names.len() == 1),
            values,
            completed: tally.get(Ending::Completed),
            failed: tally.total().saturating_sub(tally.get(Ending::Completed)),
            explicit: tally.get(Ending::Explicit),
            retries_exhausted: tally.get(Ending::RetriesExhausted),
            expired: tally.get(Ending::Expired),
            cancelled: tally.get(Ending::Cancelled),
            poison: tally.get(Ending::Poison),
        }
    }
}
