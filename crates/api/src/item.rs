//! An item as anybody may see it: everything but its lease.

use crate::group::DependencyBody;
use crate::params::{self, Params};
use crate::payload::Payload;
use crate::text::Text;
use crate::time::Time;
use crate::trace::TraceBody;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use towline_domain::{BufferId, CountKind, Item, ItemId, Policy, QueueName, SlotName, State, Timestamp};
use utoipa::ToSchema;

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct ItemShown {
    #[schema(value_type = String, format = Uuid)]
    pub id: Text<ItemId>,
    pub queue: String,
    /// `pending`, `scheduled`, `processing`, `paused`, `waiting`, `completed` or `failed`.
    pub state: String,
    /// Of a failed item: `explicit`, `retries_exhausted`, `expired`, `cancelled` or `poison`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub failure: Option<String>,
    pub priority: i16,
    /// 1 for the first.
    pub attempt: u32,
    pub retries: u32,
    /// How often it can still be retried under its queue's policy, or its own.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub retries_left: Option<u32>,
    pub deliveries: u32,
    /// Changes of state so far.
    pub transitions: u32,
    #[schema(value_type = String, format = DateTime)]
    pub created_at: Time,
    #[schema(value_type = String, format = DateTime)]
    pub ready_at: Time,
    #[schema(value_type = Option<String>, format = DateTime)]
    pub finished_at: Option<Time>,
    /// When it fails as `expired` if it is not finished.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<String>, format = DateTime)]
    pub expires_at: Option<Time>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<String>, format = DateTime)]
    pub lease_expires_at: Option<Time>,
    /// When a finished item is removed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<String>, format = DateTime)]
    pub remove_at: Option<Time>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub idempotency_key: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub replace_key: Option<String>,
    pub tags: BTreeMap<String, String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub fairness_key: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub group: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<String>, format = Uuid)]
    pub parent: Option<Text<ItemId>>,
    /// What an item waits for that is `waiting`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub after: Option<DependencyBody>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub source: Option<String>,
    /// The trace it is a part of.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub trace: Option<TraceBody>,
    /// Of a dead letter: where it came from.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub origin: Option<OriginShown>,
    #[serde(default)]
    pub inputs: BTreeMap<String, String>,
    #[serde(default, with = "params")]
    #[schema(value_type = HashMap<String, serde_json::Value>)]
    pub params: Params,
    #[serde(default)]
    pub outputs: BTreeMap<String, String>,
    #[serde(default, with = "params")]
    #[schema(value_type = HashMap<String, serde_json::Value>)]
    pub output_params: Params,
    /// Why attempts ended without a result, oldest first.
    pub errors: Vec<ItemError>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub fee: Option<u64>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub size_bytes: Option<u64>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tier: Option<String>,
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

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct ItemError {
    #[schema(value_type = String, format = DateTime)]
    pub at: Time,
    pub attempt: u32,
    /// `failed`, `retried`, `lapsed`, `unacknowledged`, `expired` or `cancelled`.
    pub kind: String,
    pub message: String,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct OriginShown {
    pub queue: String,
    #[schema(value_type = String, format = DateTime)]
    pub moved_at: Time,
}

pub(crate) fn buffers_shown(buffers: &BTreeMap<SlotName, BufferId>) -> BTreeMap<String, String> {
    buffers.iter().map(|(slot, buffer)| (slot.to_string(), buffer.to_string())).collect()
}

impl ItemShown {
    #[must_use]
    pub fn new(queue: &QueueName, item: Item, now: Timestamp, policy: Option<&Policy>) -> ItemShown {
        let Item { head, body, fields, outcome, errors } = item;
        let scheduled = head.count_kind(now) == CountKind::Scheduled;
        let (failure, remove_at) = match &head.state {
            State::Completed { remove_at, .. } => (None, *remove_at),
            State::Failed { remove_at, kind, .. } => (Some(kind.name().to_owned()), *remove_at),
            _ => (None, None),
        };
        let unfinished = !head.is_terminal();
        let origin = head.extras.as_ref().and_then(|extras| extras.origin.as_ref());
        ItemShown {
            id: head.id.into(),
            queue: queue.to_string(),
            state: if scheduled { "scheduled" } else { head.state_name() }.to_owned(),
            failure,
            priority: head.priority,
            attempt: head.attempt(),
            retries: head.retries,
            retries_left: policy.map(|policy| head.max_retries(policy).saturating_sub(head.retries)),
            deliveries: head.deliveries,
            transitions: head.transitions,
            created_at: head.created_at.into(),
            ready_at: head.ready_at.into(),
            finished_at: head.finished_at().map(Time::from),
            expires_at: head.expires_at.filter(|_| unfinished).map(Time::from),
            lease_expires_at: head.lease().map(|lease| lease.deadline.into()),
            remove_at: remove_at.map(Time::from),
            idempotency_key: body.idempotency_key,
            replace_key: body.replace_key,
            tags: body.tags,
            fairness_key: body.fairness_key,
            group: body.group,
            parent: body.parent.map(Text::from),
            after: head.dependency().map(DependencyBody::from),
            source: body.source,
            trace: body.trace.map(|trace| (*trace).into()),
            origin: origin.map(|origin| OriginShown {
                queue: origin.queue.to_string(),
                moved_at: origin.moved_at.into(),
            }),
            inputs: buffers_shown(&body.inputs),
            params: body.params,
            outputs: buffers_shown(&outcome.outputs),
            output_params: outcome.output_params,
            errors: errors
                .into_iter()
                .map(|error| ItemError {
                    at: error.at.into(),
                    attempt: error.attempt,
                    kind: error.kind.name().to_owned(),
                    message: error.message,
                })
                .collect(),
            fee: body.fee,
            size_bytes: body.size_bytes,
            tier: body.tier,
            payload: fields.blob.map(Payload::from),
            state_blob: fields.state_blob.map(Payload::from),
            metadata: fields.metadata.map(Payload::from),
            parameters: fields.parameters.map(Payload::from),
        }
    }

    /// What it has come to, without what went in and what came out.
    #[must_use]
    pub fn summary(&self) -> serde_json::Value {
        // Names and valid JSON: it always has a JSON form.
        let mut shown = serde_json::to_value(self).unwrap_or_default();
        if let Some(shown) = shown.as_object_mut() {
            let heavy = ["inputs", "params", "outputs", "output_params"];
            let fields = ["payload", "state_blob", "metadata", "parameters"];
            for name in heavy.into_iter().chain(fields) {
                shown.remove(name);
            }
        }
        shown
    }

    #[must_use]
    pub fn is_finished(&self) -> bool {
        matches!(self.state.as_str(), "completed" | "failed")
    }
}

/// Items in order of submission.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct ItemPage {
    pub items: Vec<ItemShown>,
    /// Where to go on; `null`: there are no more. A page may be short, even empty, and still go on.
    pub next: Option<String>,
}

/// How far a purge has come.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct PurgeResult {
    pub removed: u64,
    /// Of a dry run: how many it would have been.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub matched: Option<u64>,
    /// Where to go on; `null`: done.
    pub next: Option<String>,
}

/// How many match.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct CountShown {
    pub count: u64,
    /// Where to go on, if there was more to look at than fits into a few seconds: the counts add up. `null`: that was all.
    pub next: Option<String>,
}

/// How far an act on all that match has come.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize, ToSchema)]
pub struct BulkResult {
    /// Items that were found to match.
    pub matched: u64,
    /// Of these, those it was done to; none in a dry run.
    pub done: u64,
    /// Those that were left alone, by the code of the refusal.
    pub left: BTreeMap<String, u64>,
    /// Where to go on; `null`: done.
    pub next: Option<String>,
}
