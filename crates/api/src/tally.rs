//! Wire types of the tally: how many items finished in each hour or day.

use crate::time::Time;
use serde::{Deserialize, Serialize};
use towline_domain::{Ending, Tally, Timestamp};
use utoipa::ToSchema;

/// Rows in order of time and tag value. A period in which no item finished has no row.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct TallyShown {
    /// `hour` or `day`, in UTC.
    pub by: String,
    /// The tag by which rows are split.
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
    /// The value of the requested tag. Absent: all values beyond the first hundred in an hour.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub value: Option<String>,
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
    pub fn new(from: Timestamp, value: Option<String>, tally: &Tally) -> TallyRowShown {
        TallyRowShown {
            from: from.into(),
            value,
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
