//! Wire types of queues.

use crate::object::object;
use crate::policy::PolicyBody;
use crate::time::Time;
use serde::{Deserialize, Deserializer, Serialize, de};
use std::collections::BTreeMap;
use towline_domain::{
    Counts, Order, Policy, PolicyPatch, Queue, QueueState, Refusal, Schema, SlotName, Timestamp,
};
use utoipa::ToSchema;

/// A queue to create. If the queue exists with the same settings, the call succeeds; if its settings differ,
/// it is refused.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields, default)]
pub struct PutQueue {
    #[serde(deserialize_with = "object")]
    pub schema: SchemaBody,
    #[serde(deserialize_with = "object")]
    pub policy: PolicyBody,
}

/// A change of a queue's policy. The policy may also be the whole body, without `{"policy": ...}`.
#[derive(Debug, Clone, PartialEq, Default, Serialize, ToSchema)]
pub struct PatchQueue {
    pub policy: PolicyBody,
}

impl<'de> Deserialize<'de> for PatchQueue {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<PatchQueue, D::Error> {
        let mut given = serde_json::Map::<String, serde_json::Value>::deserialize(deserializer)?;
        let policy = match given.remove("policy") {
            Some(policy) if given.is_empty() => policy,
            Some(_) => return Err(de::Error::custom("only the policy of a queue can be changed")),
            None => given.into(),
        };
        object(policy).map(|policy| PatchQueue { policy }).map_err(de::Error::custom)
    }
}

/// Names of slots and parameters. A name that ends in `?` is optional. A queue with an empty schema accepts
/// anything.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields, default)]
pub struct SchemaBody {
    pub inputs: Vec<String>,
    pub outputs: Vec<String>,
    pub input_params: Vec<String>,
    pub output_params: Vec<String>,
}

impl PutQueue {
    pub fn into_domain(self) -> Result<(Schema, Policy), Refusal> {
        Ok((self.schema.try_into()?, self.policy.try_into()?))
    }
}

impl PutQueue {
    /// What changes in a queue that exists. Refuses another schema or order. A schema that is not given is the same.
    pub fn into_patch(self, queue: &Queue) -> Result<PolicyPatch, Refusal> {
        let PutQueue { schema, mut policy } = self;
        let order = policy.order.take().map(Order::try_from).transpose()?;
        let mut differs = Vec::new();
        if schema != SchemaBody::default() {
            differs.extend(queue.schema.differences(&schema.try_into()?));
        }
        differs.extend(order.filter(|order| *order != queue.policy.order).map(|_| "policy.order"));
        if !differs.is_empty() {
            return Err(Refusal::QueueExists { name: queue.name.to_string(), what: differs.join(", ") });
        }
        policy.try_into()
    }
}

/// What an apply did, or what it would do.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct QueueApplied {
    pub created: bool,
    /// The settings of the policy that changed. Empty for a new queue.
    pub changed: Vec<PolicyChange>,
    /// The queue. Absent if a dry run found none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub queue: Option<QueueShown>,
}

/// A setting of a policy that changed.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct PolicyChange {
    pub setting: String,
    pub before: serde_json::Value,
    pub after: serde_json::Value,
}

impl PolicyChange {
    #[must_use]
    pub fn between(before: &Policy, after: &Policy) -> Vec<PolicyChange> {
        let settings = |policy: &Policy| match serde_json::to_value(PolicyBody::from(policy)) {
            Ok(serde_json::Value::Object(settings)) => settings,
            _ => serde_json::Map::new(),
        };
        let (before, after) = (settings(before), settings(after));
        let differs = |(name, _): &(&String, &serde_json::Value)| before.get(*name) != after.get(*name);
        let change = |(setting, value): (&String, &serde_json::Value)| PolicyChange {
            setting: setting.clone(),
            before: before.get(setting).cloned().unwrap_or_default(),
            after: value.clone(),
        };
        after.iter().filter(differs).map(change).collect()
    }
}

impl TryFrom<SchemaBody> for Schema {
    type Error = Refusal;

    fn try_from(body: SchemaBody) -> Result<Schema, Refusal> {
        type Slots = Result<BTreeMap<SlotName, bool>, Refusal>;
        let declare =
            |names: Vec<String>| -> Slots { names.iter().map(|name| Schema::declare(name)).collect() };
        Ok(Schema {
            inputs: declare(body.inputs)?,
            outputs: declare(body.outputs)?,
            input_params: declare(body.input_params)?,
            output_params: declare(body.output_params)?,
        })
    }
}

impl From<&Schema> for SchemaBody {
    fn from(schema: &Schema) -> SchemaBody {
        let names = |slots: &BTreeMap<SlotName, bool>| {
            slots
                .iter()
                .map(|(name, required)| format!("{name}{}", if *required { "" } else { "?" }))
                .collect()
        };
        SchemaBody {
            inputs: names(&schema.inputs),
            outputs: names(&schema.outputs),
            input_params: names(&schema.input_params),
            output_params: names(&schema.output_params),
        }
    }
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct QueueShown {
    pub name: String,
    /// `open`, `closed` or `completed`.
    pub state: String,
    /// A paused queue accepts items and delivers none.
    pub paused: bool,
    #[schema(value_type = String, format = DateTime)]
    pub created_at: Time,
    /// When the queue was closed or completed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<String>, format = DateTime)]
    pub since: Option<Time>,
    pub counts: CountsShown,
    /// When the oldest ready item became ready. Absent if no item is ready, and for queues in `score` order.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<String>, format = DateTime)]
    pub oldest_ready_at: Option<Time>,
    pub schema: SchemaBody,
    pub policy: PolicyBody,
    /// The clients that received from this server, the latest first, up to 100. Only when one queue is shown.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub consumers: Vec<ConsumerShown>,
}

/// A client that received from a queue. The server remembers it in memory, until it restarts.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct ConsumerShown {
    /// The header `x-towline-client` of the client, or its `user-agent`.
    pub client: String,
    /// The name of the client's token. Only for callers that may administer the queue.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub token: Option<String>,
    /// When it last asked for items, or got some.
    #[schema(value_type = String, format = DateTime)]
    pub last_receive_at: Time,
    /// Receives that wait for items now.
    pub waiting: u64,
    /// Items that it has received.
    pub received: u64,
    /// Items that it holds now: received, not settled, and the lease has not lapsed.
    pub in_flight: u64,
}

/// How many items are in each state. `pending` items are ready now; `scheduled` items are ready later.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct CountsShown {
    pub pending: u64,
    pub scheduled: u64,
    pub processing: u64,
    pub paused: u64,
    pub completed: u64,
    pub failed: u64,
}

impl From<&Counts> for CountsShown {
    fn from(counts: &Counts) -> CountsShown {
        CountsShown {
            pending: counts.pending,
            scheduled: counts.scheduled,
            processing: counts.processing,
            paused: counts.paused,
            completed: counts.completed,
            failed: counts.failed,
        }
    }
}

impl QueueShown {
    #[must_use]
    pub fn new(queue: &Queue, counts: &Counts, oldest_ready: Option<Timestamp>) -> QueueShown {
        QueueShown {
            name: queue.name.to_string(),
            state: queue.state.name().to_owned(),
            paused: queue.paused,
            created_at: queue.created_at.into(),
            since: match queue.state {
                QueueState::Open => None,
                QueueState::Closed { since } | QueueState::Completed { since } => Some(since.into()),
            },
            counts: counts.into(),
            oldest_ready_at: oldest_ready.map(Time::from),
            schema: (&queue.schema).into(),
            policy: (&queue.policy).into(),
            consumers: Vec::new(),
        }
    }
}

/// A page of queues in order of name.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct QueuePage {
    pub queues: Vec<QueueShown>,
    /// Pass this as `cursor` to get the next page. `null`: this is the last page.
    pub next: Option<String>,
}
