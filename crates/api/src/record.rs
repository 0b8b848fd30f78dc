//! Wire types of key-value records.

use crate::element::Element;
use crate::invalid::invalid;
use crate::object::elements;
use crate::problem::RefusedElement;
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
    /// Pass this as `cursor` to get the next page. `null`: this is the last page. A page can be short and still have a next
    /// one.
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
    /// Set the record only if it has this value (compare and set). Without a `ttl`, the record keeps its expiry.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub if_value: Option<String>,
}

impl TryFrom<SetRecord> for KvCommand {
    type Error = Refusal;

    fn try_from(body: SetRecord) -> Result<KvCommand, Refusal> {
        let (value, ttl) = (body.value.into(), span(body.ttl)?);
        match (body.if_absent, body.if_value) {
            (true, Some(_)) => Err(invalid("if_value", "`if_absent` is also given; choose one")),
            (true, None) => Ok(KvCommand::SetIfAbsent { value, ttl }),
            (false, Some(seen)) => {
                Ok(KvCommand::Replace { seen: Some(seen.into()), value: Some(value), ttl })
            }
            (false, None) => Ok(KvCommand::Set { value, ttl }),
        }
    }
}

/// Whether the record was set. `false`: the condition (`if_absent`, `if_value`) was not met.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct RecordSet {
    pub set: bool,
}

/// Whether the record was deleted. `false`: it did not exist, or it had another value.
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

/// What to do with a record in a batch.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum RecordVerb {
    #[default]
    Get,
    Set,
    Increment,
    Delete,
}

/// One call of a batch about records.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct RecordAction {
    pub verb: RecordVerb,
    /// The key, at most 512 bytes.
    pub key: String,
    /// set: the value, at most 1 MiB.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub value: Option<String>,
    /// set, increment: delete the record after this time.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ttl: Option<Span>,
    /// set: only if the record does not exist.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub if_absent: bool,
    /// set, delete: only if the record has this value.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub if_value: Option<String>,
    /// increment: how much to add. Default: 1.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub by: Option<i64>,
    /// increment: identifies the thing that is counted. Needs a `ttl`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub once: Option<String>,
}

impl RecordAction {
    /// The key, and the command. `None`: get.
    pub fn into_domain(self) -> Result<(String, Option<KvCommand>), Refusal> {
        let RecordAction { verb, key, value, ttl, if_absent, if_value, by, once } = self;
        let foreign = [
            ("value", value.is_some(), &[RecordVerb::Set][..]),
            ("ttl", ttl.is_some(), &[RecordVerb::Set, RecordVerb::Increment]),
            ("if_absent", if_absent, &[RecordVerb::Set]),
            ("if_value", if_value.is_some(), &[RecordVerb::Set, RecordVerb::Delete]),
            ("by", by.is_some(), &[RecordVerb::Increment]),
            ("once", once.is_some(), &[RecordVerb::Increment]),
        ];
        if let Some((what, ..)) = foreign.iter().find(|(_, given, verbs)| *given && !verbs.contains(&verb)) {
            return Err(invalid(what, "does not go with this verb; leave it out"));
        }
        let command = match verb {
            RecordVerb::Get => None,
            RecordVerb::Set => {
                let value = value.ok_or_else(|| invalid("value", "missing; give the value to set"))?;
                Some(SetRecord { value, ttl, if_absent, if_value }.try_into()?)
            }
            RecordVerb::Increment => Some(IncrementRecord { by, once, ttl }.try_into()?),
            RecordVerb::Delete => Some(match if_value {
                Some(seen) => KvCommand::Replace { seen: Some(seen.into()), value: None, ttl: None },
                None => KvCommand::Delete,
            }),
        };
        Ok((key, command))
    }
}

/// Calls about records to carry out.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct RecordsRequest {
    /// At most 10,000 calls, of which at most 64 are `get`. The server makes them in order.
    pub actions: Vec<RecordAction>,
}

/// A [`RecordsRequest`] as the server reads it.
#[derive(Debug, Clone, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct RecordsBody {
    #[serde(deserialize_with = "elements")]
    pub actions: Vec<Element<RecordAction>>,
}

/// Results in the order of the request.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct RecordsAnswer {
    pub results: Vec<RecordResult>,
}

/// The result of one call: that of the single call, or why it was refused.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(untagged)]
pub enum RecordResult {
    Shown(RecordShown),
    Set(RecordSet),
    Number(RecordNumber),
    Deleted(RecordDeleted),
    Refused(RefusedElement),
}
