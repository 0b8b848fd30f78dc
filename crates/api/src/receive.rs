//! Receiving: what a worker asks for, and the items it is given.

use crate::invalid::not_one_of;
use crate::item::buffers_shown;
use crate::params::{self, Params};
use crate::payload::Payload;
use crate::span::Span;
use crate::text::Text;
use crate::time::Time;
use crate::trace::TraceBody;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use towline_domain::{Field, FieldSet, Item, ItemId, LeaseToken, QueueName, Refusal};
use utoipa::ToSchema;

/// Everything is optional.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields, default)]
pub struct ReceiveRequest {
    /// At most so many items: 1, up to 10,000.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(minimum = 1, maximum = 10000)]
    pub max: Option<i64>,
    /// How long to wait for a first item: not at all, up to 5m.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub wait: Option<Span>,
    /// In place of the queue's.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub visibility_timeout: Option<Span>,
    /// Make a buffer for every output slot.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub create_output_buffers: Option<bool>,
    /// Which of `payload`, `state_blob`, `metadata`, `parameters` to bring along: all.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub fields: Option<Vec<String>>,
}

/// Reads the names of payload fields.
pub fn field_set<'a>(names: impl IntoIterator<Item = &'a str>) -> Result<FieldSet, Refusal> {
    names.into_iter().try_fold(FieldSet::NONE, |set, name| Ok(set.with(field(name)?)))
}

pub(crate) fn field(name: &str) -> Result<Field, Refusal> {
    match name {
        "payload" => Ok(Field::Blob),
        _ => Field::ALL
            .into_iter()
            .find(|field| field.name() == name)
            .ok_or_else(|| not_one_of("fields", name, "payload, state_blob, metadata, parameters")),
    }
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct ReceiveAnswer {
    /// The queue's state: `open`, `closed` or `completed`. Never `completed` together with an item.
    pub status: String,
    pub items: Vec<ReceivedItem>,
}

/// An item to work on, until `lease_expires_at` unless a heartbeat extends it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct ReceivedItem {
    #[schema(value_type = String, format = Uuid)]
    pub id: Text<ItemId>,
    /// To be given with every call about this delivery.
    #[schema(value_type = String)]
    pub lease: Text<LeaseToken>,
    #[schema(value_type = String)]
    pub queue: QueueName,
    /// 1 for the first.
    pub attempt: u32,
    pub retries: u32,
    pub deliveries: u32,
    pub priority: i16,
    #[schema(value_type = String, format = DateTime)]
    pub created_at: Time,
    #[schema(value_type = String, format = DateTime)]
    pub lease_expires_at: Time,
    /// Input slot -> buffer.
    pub inputs: BTreeMap<String, String>,
    /// Output slot -> buffer made for this attempt.
    pub outputs: BTreeMap<String, String>,
    #[serde(with = "params")]
    #[schema(value_type = HashMap<String, serde_json::Value>)]
    pub params: Params,
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub tags: BTreeMap<String, String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub idempotency_key: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub replace_key: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub fairness_key: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub group: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<String>, format = Uuid)]
    pub parent: Option<Text<ItemId>>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub source: Option<String>,
    /// The trace it is a part of: what its worker does goes on there.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub trace: Option<TraceBody>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<String>, content_encoding = "base64")]
    pub payload: Option<Payload>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<String>, content_encoding = "base64")]
    pub state_blob: Option<Payload>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<String>, content_encoding = "base64")]
    pub metadata: Option<Payload>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<String>, content_encoding = "base64")]
    pub parameters: Option<Payload>,
}

impl ReceivedItem {
    /// `None`: nobody holds the item.
    #[must_use]
    pub fn new(queue: &QueueName, item: Item) -> Option<ReceivedItem> {
        let Item { head, body, fields, .. } = item;
        let lease = head.lease()?;
        Some(ReceivedItem {
            id: head.id.into(),
            lease: lease.token.into(),
            queue: queue.clone(),
            attempt: head.attempt(),
            retries: head.retries,
            deliveries: head.deliveries,
            priority: head.priority,
            created_at: head.created_at.into(),
            lease_expires_at: lease.deadline.into(),
            inputs: buffers_shown(&body.inputs),
            outputs: lease.buffers.as_deref().map(buffers_shown).unwrap_or_default(),
            params: body.params,
            tags: body.tags,
            idempotency_key: body.idempotency_key,
            replace_key: body.replace_key,
            fairness_key: body.fairness_key,
            group: body.group,
            parent: body.parent.map(Text::from),
            source: body.source,
            trace: body.trace.map(|trace| (*trace).into()),
            payload: fields.blob.map(Payload::from),
            state_blob: fields.state_blob.map(Payload::from),
            metadata: fields.metadata.map(Payload::from),
            parameters: fields.parameters.map(Payload::from),
        })
    }
}
