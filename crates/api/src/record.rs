//! Wire types of key-value records.

use crate::invalid::invalid;
use crate::span::Span;
use crate::time::Time;
use serde::{Deserialize, Serialize};
use towline_domain::kv::{KvCommand, KvRecord};
use towline_domain::{Millis, Refusal};
use utoipa::ToSchema;

/// A key-value record.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct RecordShown {
    pub key: String,
    pub value: String,
    /// When the record expires.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<String>, format = DateTime)]
    pub expires_at: Option<Time>,
}

impl RecordShown {
    /// Values are always text, because the API accepts only text.
    #[must_use]
    pub fn new(key: String, record: &KvRecord) -> RecordShown {
        let value = String::from_utf8_lossy(&record.value).into_owned();
        RecordShown { key, value, expires_at: record.expires_at.map(Into::into) }
    }
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct RecordPage {
    pub records: Vec<RecordShown>,
    /// Pass this as `cursor` to get the next page. Absent: this is the last page.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub next: Option<String>,
}

#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct SetRecord {
    /// The value, at most 1 MiB.
    pub value: String,
    /// Delete the record after this time. Default: never.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ttl: Option<Span>,
    /// Set the record only if it does not exist.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub if_absent: bool,
}

impl TryFrom<SetRecord> for KvCommand {
    type Error = Refusal;

    fn try_from(body: SetRecord) -> Result<KvCommand, Refusal> {
        let (value, ttl) = (body.value.into(), span(body.ttl)?);
        Ok(match body.if_absent {
            true => KvCommand::SetIfAbsent { value, ttl },
            false => KvCommand::Set { value, ttl },
        })
    }
}

/// Whether the record was set. `false`: with `if_absent`, the record exists already.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct RecordSet {
    pub set: bool,
}

/// Whether the record existed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct RecordDeleted {
    pub deleted: bool,
}

#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct IncrementRecord {
    /// How much to add. Default: 1.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub by: Option<i64>,
    /// Identifies the thing that is counted. A repeat with the same text within `ttl` changes nothing and
    /// returns the first result. Needs a `ttl`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub once: Option<String>,
    /// Delete the record this long from now. Default: the record keeps its expiry.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ttl: Option<Span>,
}

impl TryFrom<IncrementRecord> for KvCommand {
    type Error = Refusal;

    fn try_from(body: IncrementRecord) -> Result<KvCommand, Refusal> {
        let (by, ttl) = (body.by.unwrap_or(1), span(body.ttl)?);
        match (body.once, ttl) {
            (None, ttl) => Ok(KvCommand::Increment { by, ttl }),
            (Some(once), Some(ttl)) => Ok(KvCommand::IncrementOnce { by, once, ttl }),
            (Some(_), None) => Err(invalid("ttl", "missing; `once` needs a ttl")),
        }
    }
}

fn span(ttl: Option<Span>) -> Result<Option<Millis>, Refusal> {
    ttl.map(|ttl| ttl.into_domain("ttl")).transpose()
}

/// The value after the increment.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct RecordNumber {
    pub value: i64,
}
