//! What an export or an import transferred.

use serde::{Deserialize, Serialize};
use std::fmt;
use utoipa::ToSchema;

/// How much was transferred.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize, ToSchema)]
pub struct TransferSummary {
    pub queues: u64,
    pub items: u64,
    #[serde(default)]
    pub schedules: u64,
    #[serde(default)]
    pub records: u64,
    #[serde(default)]
    pub tokens: u64,
}

impl fmt::Display for TransferSummary {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let plural = |count: u64| if count == 1 { "" } else { "s" };
        let TransferSummary { queues, items, schedules, records, tokens } = *self;
        write!(f, "{queues} queue{}, {items} item{}", plural(queues), plural(items))?;
        for (count, what) in [(schedules, "schedule"), (records, "record"), (tokens, "token")] {
            if count > 0 {
                write!(f, ", {count} {what}{}", plural(count))?;
            }
        }
        Ok(())
    }
}
