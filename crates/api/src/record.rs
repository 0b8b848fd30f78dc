//! Records that callers keep, and topics that they publish to and listen to.

use crate::invalid::invalid;
use crate::span::Span;
use crate::time::Time;
use serde::{Deserialize, Serialize};
use towline_domain::kv::{KvCommand, KvRecord};
use towline_domain::{Millis, Refusal};
use utoipa::ToSchema;

/// A record as it is now.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct RecordShown {
    pub key: String,
    pub value: String,
    /// When it is forgotten.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<String>, format = DateTime)]
    pub expires_at: Option<Time>,
}

impl RecordShown {
    /// Values are text: nothing else is taken.
    #[must_use]
    pub fn new(key: String, record: &KvRecord) -> RecordShown {
        let value = String::from_utf8_lossy(&record.value).into_owned();
        RecordShown { key, value, expires_at: record.expires_at.map(Into::into) }
    }
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct RecordPage {
    pub records: Vec<RecordShown>,
    /// Give this as `cursor` to go on.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub next: Option<String>,
}

#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct SetRecord {
    /// At most 1 MiB.
    pub value: String,
    /// Forgotten after this; without it, never.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ttl: Option<Span>,
    /// Only if there is none.
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

/// Whether the value is this caller's: `false` if there was another.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct RecordSet {
    pub set: bool,
}

/// Whether there was one.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct RecordDeleted {
    pub deleted: bool,
}

#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct IncrementRecord {
    /// 1 unless it is said.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub by: Option<i64>,
    /// What is counted: told again within `ttl`, nothing changes and the answer is the first one. Needs a `ttl`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub once: Option<String>,
    /// Forgotten after this, from now on; without it, the record keeps the time it has.
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

/// The number afterwards.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct RecordNumber {
    pub value: i64,
}
