//! Wire types of receive.

use crate::invalid::{invalid, not_one_of};
use crate::item::buffers_shown;
use crate::params::{self, Params};
use crate::payload::{Form, Payload, with_payload_fields};
use crate::span::Span;
use crate::text::Text;
use crate::time::Time;
use crate::trace::TraceBody;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use towline_domain::{Field, FieldSet, Item, ItemId, LeaseToken, QueueName, Refusal, Throttle, Timestamp};
use utoipa::ToSchema;

/// A request for items. Every field is optional.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields, default)]
pub struct ReceiveRequest {
    /// Maximum number of items. Default: 1. Maximum: 10,000.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(minimum = 1, maximum = 10000)]
    pub max: Option<i64>,
    /// How long to wait for the first item, like `20s`. A number is milliseconds. Default: no wait. Maximum: 5m.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub wait: Option<Span>,
    /// How long the leases last without a heartbeat. Default: the queue's visibility timeout.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub visibility_timeout: Option<Span>,
    /// Create a buffer for every output slot.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub create_output_buffers: Option<bool>,
    /// Which payload fields to return: `payload`, `state_blob`, `metadata`, `parameters`. Default: all.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub fields: Option<Vec<String>>,
    /// The form of payload fields: `base64`, `text` (in `payload_text`) or `json` (in `payload_json`). A field that is not text
    /// or JSON comes as base64. Default: `base64`.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<Form>)]
    pub payload_as: Option<String>,
}

/// Parses names of payload fields, each given once.
pub fn field_set<'a>(names: impl IntoIterator<Item = &'a str>) -> Result<FieldSet, Refusal> {
    names.into_iter().try_fold(FieldSet::NONE, |set, name| match field("fields", name)? {
        field if set.contains(field) => Err(invalid("fields", format!("{name:?} is given twice"))),
        field => Ok(set.with(field)),
    })
}

pub(crate) fn field(what: &'static str, name: &str) -> Result<Field, Refusal> {
    match name {
        "payload" => Ok(Field::Blob),
        _ => Field::ALL
            .into_iter()
            .find(|field| field.name() == name)
            .ok_or_else(|| not_one_of(what, name, "payload, state_blob, metadata, parameters")),
    }
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct ReceiveAnswer {
    /// The queue's state: `open`, `closed` or `completed`. An answer with items is never `completed`.
    pub status: String,
    pub items: Vec<ReceivedItem>,
    /// Why the queue delivers nothing now, even if items are ready. Only in an answer without items.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub throttled: Option<Throttled>,
    /// With `throttled: rate`: when the rate allows the next item.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<String>, format = DateTime)]
    pub until: Option<Time>,
    /// What the client may not have meant, in words.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub notes: Vec<String>,
}

/// What holds ready items back.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum Throttled {
    /// The queue is paused.
    Paused,
    /// As many items are in processing as `concurrency` allows.
    Concurrency,
    /// The `rate` is used up until a time.
    Rate,
    /// Every fairness key that has ready items is at its `concurrency_per_key`.
    Keys,
}

impl ReceiveAnswer {
    /// What the queue's policy and pause say at `now`, if there are no items.
    #[must_use]
    pub fn new(
        status: &str,
        items: Vec<ReceivedItem>,
        paused: bool,
        throttle: Option<&Throttle>,
        now: Timestamp,
        notes: Vec<String>,
    ) -> ReceiveAnswer {
        let throttled = match throttle.filter(|_| items.is_empty()) {
            _ if paused && items.is_empty() => Some(Throttled::Paused),
            Some(Throttle::Concurrency) => Some(Throttled::Concurrency),
            Some(Throttle::Rate(_)) => Some(Throttled::Rate),
            Some(Throttle::Keys(_)) => Some(Throttled::Keys),
            None => None,
        };
        let until = match throttle {
            Some(Throttle::Rate(wait)) if throttled == Some(Throttled::Rate) => Some(now.after(*wait).into()),
            _ => None,
        };
        ReceiveAnswer { status: status.to_owned(), items, throttled, until, notes }
    }

    /// Whether the queue is completed, so that no item will ever come.
    #[must_use]
    pub fn is_completed(&self) -> bool {
        self.status == "completed"
    }
}

with_payload_fields! {
    /// An item to work on. The lease ends at `lease_expires_at` unless a heartbeat extends it.
    #[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
    pub struct ReceivedItem {
        {
            #[schema(value_type = String, format = Uuid)]
            pub id: Text<ItemId>,
            /// The lease token. Pass it with every call about this delivery.
            #[schema(value_type = String)]
            pub lease: Text<LeaseToken>,
            #[schema(value_type = String)]
            pub queue: QueueName,
            /// The current attempt; the first is 1.
            pub attempt: u32,
            pub retries: u32,
            pub deliveries: u32,
            /// Changes of state and of queue so far.
            pub transitions: u32,
            /// Leases that lapsed in a row before this delivery.
            pub lapses: u32,
            pub priority: i16,
            #[schema(value_type = String, format = DateTime)]
            pub created_at: Time,
            /// The time that orders the item among the ready items of its queue.
            #[schema(value_type = String, format = DateTime)]
            pub ready_at: Time,
            #[schema(value_type = String, format = DateTime)]
            pub lease_expires_at: Time,
            /// Buffers by input slot.
            pub inputs: BTreeMap<String, String>,
            /// Buffers by output slot, created for this attempt.
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
            /// The trace that the item belongs to. The worker continues it.
            #[serde(default, skip_serializing_if = "Option::is_none")]
            pub trace: Option<TraceBody>,
        }
        {}
        {}
    }
}

impl ReceivedItem {
    /// `None` if the item has no lease.
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
            transitions: head.transitions,
            lapses: head.lapses(),
            priority: head.priority,
            created_at: head.created_at.into(),
            ready_at: head.ready_at.into(),
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
            payload_text: None,
            payload_json: None,
            state_blob: fields.state_blob.map(Payload::from),
            state_blob_text: None,
            state_blob_json: None,
            metadata: fields.metadata.map(Payload::from),
            metadata_text: None,
            metadata_json: None,
            parameters: fields.parameters.map(Payload::from),
        })
    }

    /// Shows payload fields in this form, if their bytes allow it.
    #[must_use]
    pub fn payload_as(mut self, form: Form) -> ReceivedItem {
        form.apply(&mut self.payload, &mut self.payload_text, &mut self.payload_json);
        form.apply(&mut self.state_blob, &mut self.state_blob_text, &mut self.state_blob_json);
        form.apply(&mut self.metadata, &mut self.metadata_text, &mut self.metadata_json);
        self
    }
}
