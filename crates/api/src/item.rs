//! An item as any reader sees it: everything except its lease token.

use crate::group::DependencyBody;
use crate::params::{self, Params};
use crate::payload::{Form, Payload, with_payload_fields};
use crate::text::Text;
use crate::time::Time;
use crate::trace::TraceBody;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use towline_domain::ItemState;
use towline_domain::{BufferId, CountKind, Item, ItemId, Policy, QueueName, SlotName, State, Timestamp};
use utoipa::ToSchema;

with_payload_fields! {
    #[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
    pub struct ItemShown {
        {
            #[schema(value_type = String, format = Uuid)]
            pub id: Text<ItemId>,
            pub queue: String,
            /// `pending`, `scheduled`, `processing`, `paused`, `waiting`, `completed` or `failed`.
            pub state: String,
            /// How the item failed: `explicit`, `retries_exhausted`, `expired`, `cancelled` or `poison`.
            #[serde(default, skip_serializing_if = "Option::is_none")]
            pub failure: Option<String>,
            pub priority: i16,
            /// The current attempt; the first is 1.
            pub attempt: u32,
            pub retries: u32,
            /// How many retries are left under the policy of the queue or of the item.
            #[serde(default, skip_serializing_if = "Option::is_none")]
            pub retries_left: Option<u32>,
            pub deliveries: u32,
            /// How many times the state has changed.
            pub transitions: u32,
            /// Leases that lapsed in a row.
            pub lapses: u32,
            #[schema(value_type = String, format = DateTime)]
            pub created_at: Time,
            #[schema(value_type = String, format = DateTime)]
            pub ready_at: Time,
            #[schema(value_type = Option<String>, format = DateTime)]
            pub finished_at: Option<Time>,
            /// When the item last changed its state or its queue.
            #[serde(default, skip_serializing_if = "Option::is_none")]
            #[schema(value_type = Option<String>, format = DateTime)]
            pub last_transition_at: Option<Time>,
            /// The latest heartbeat of the worker that holds the item.
            #[serde(default, skip_serializing_if = "Option::is_none")]
            #[schema(value_type = Option<String>, format = DateTime)]
            pub last_heartbeat_at: Option<Time>,
            /// When the item fails as `expired`, unless it has finished before.
            #[serde(default, skip_serializing_if = "Option::is_none")]
            #[schema(value_type = Option<String>, format = DateTime)]
            pub expires_at: Option<Time>,
            #[serde(default, skip_serializing_if = "Option::is_none")]
            #[schema(value_type = Option<String>, format = DateTime)]
            pub lease_expires_at: Option<Time>,
            /// When a finished item is deleted.
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
            /// What a `waiting` item waits for.
            #[serde(default, skip_serializing_if = "Option::is_none")]
            pub after: Option<DependencyBody>,
            #[serde(default, skip_serializing_if = "Option::is_none")]
            pub source: Option<String>,
            /// The trace that the item belongs to.
            #[serde(default, skip_serializing_if = "Option::is_none")]
            pub trace: Option<TraceBody>,
            /// Where a dead letter failed.
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
            /// The items that the commit submitted.
            #[serde(default, skip_serializing_if = "Vec::is_empty")]
            #[schema(value_type = Vec<String>)]
            pub handed_off: Vec<Text<ItemId>>,
            /// Why earlier attempts ended without a result, oldest first.
            pub errors: Vec<ItemError>,
            #[serde(default, skip_serializing_if = "Option::is_none")]
            pub fee: Option<u64>,
            #[serde(default, skip_serializing_if = "Option::is_none")]
            pub size_bytes: Option<u64>,
            #[serde(default, skip_serializing_if = "Option::is_none")]
            pub tier: Option<String>,
        }
        {}
        {}
    }
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
            state: if scheduled { ItemState::Scheduled } else { head.item_state() }.to_string(),
            failure,
            priority: head.priority,
            attempt: head.attempt(),
            retries: head.retries,
            retries_left: policy.map(|policy| head.max_retries(policy).saturating_sub(head.retries)),
            deliveries: head.deliveries,
            transitions: head.transitions,
            lapses: head.lapses(),
            created_at: head.created_at.into(),
            ready_at: head.ready_at.into(),
            finished_at: head.finished_at().map(Time::from),
            last_transition_at: head.last_transition().map(Time::from),
            last_heartbeat_at: head.heartbeat_at.map(Time::from),
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
            handed_off: outcome.handed_off.into_iter().map(Text::from).collect(),
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
            payload_text: None,
            payload_json: None,
            state_blob: fields.state_blob.map(Payload::from),
            state_blob_text: None,
            state_blob_json: None,
            metadata: fields.metadata.map(Payload::from),
            metadata_text: None,
            metadata_json: None,
            parameters: fields.parameters.map(Payload::from),
        }
    }

    /// Shows payload fields in this form, if their bytes allow it.
    #[must_use]
    pub fn payload_as(mut self, form: Form) -> ItemShown {
        form.apply(&mut self.payload, &mut self.payload_text, &mut self.payload_json);
        form.apply(&mut self.state_blob, &mut self.state_blob_text, &mut self.state_blob_json);
        form.apply(&mut self.metadata, &mut self.metadata_text, &mut self.metadata_json);
        self
    }

    /// The item without inputs, parameters, outputs and payload fields.
    #[must_use]
    pub fn summary(&self) -> serde_json::Value {
        // An item always has a JSON form: it holds only names and valid JSON.
        let mut shown = serde_json::to_value(self).unwrap_or_default();
        if let Some(shown) = shown.as_object_mut() {
            let fields = ["payload", "state_blob", "metadata", "parameters"];
            shown.retain(|name, _| {
                let heavy = ["inputs", "params", "outputs", "output_params"].contains(&name.as_str());
                !heavy && !fields.iter().any(|field| name.starts_with(field))
            });
        }
        shown
    }

    /// `None` for a state of a later version.
    #[must_use]
    pub fn item_state(&self) -> Option<ItemState> {
        ItemState::parse(&self.state)
    }

    #[must_use]
    pub fn is_finished(&self) -> bool {
        self.item_state().is_some_and(ItemState::is_terminal)
    }
}

/// A page of items in order of submission.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct ItemPage {
    pub items: Vec<ItemShown>,
    /// Pass this as `cursor` to get the next page. `null`: this is the last page. A page can be short or
    /// empty and still have a next one.
    pub next: Option<String>,
}

/// How many items match.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct CountShown {
    pub count: u64,
    /// Pass this as `cursor` to continue counting, and add up the counts. The server stops after a few
    /// seconds. `null`: the count is complete.
    pub next: Option<String>,
}

/// The progress of a bulk action.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize, ToSchema)]
pub struct BulkResult {
    /// Items that matched.
    pub matched: u64,
    /// Items that the action changed. 0 in a dry run.
    pub done: u64,
    /// Items that the action left unchanged, by the code of the refusal.
    pub left: BTreeMap<String, u64>,
    /// Pass this as `cursor` to continue. `null`: the bulk action is complete.
    pub next: Option<String>,
}
