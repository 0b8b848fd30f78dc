//! Wire types of queues.

use crate::object::object;
use crate::order::OrderBody;
use crate::policy::PolicyBody;
use crate::time::Time;
use serde::{Deserialize, Deserializer, Serialize, de};
use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
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
    /// What differs in the schema or the order of a queue that exists. Neither can be changed. A schema that is not given is the same.
    pub fn fixed_differences(&self, queue: &Queue) -> Result<Vec<SettingChange>, Refusal> {
        let mut differs = Vec::new();
        if self.schema != SchemaBody::default() {
            // The stored schema has the names in order. The order of the body means nothing.
            let schema = Schema::try_from(self.schema.clone())?;
            let (before, after) = (json(&SchemaBody::from(&queue.schema)), json(&SchemaBody::from(&schema)));
            differs = SettingChange::between("schema.", &before, &after);
        }
        let order = self.policy.order.clone().map(Order::try_from).transpose()?;
        if let Some(order) = order.filter(|order| *order != queue.policy.order) {
            let (before, after) = (OrderBody::from(&queue.policy.order), OrderBody::from(&order));
            let setting = "policy.order".to_owned();
            differs.push(SettingChange { setting, before: json(&before), after: json(&after) });
        }
        Ok(differs)
    }

    /// What changes in the policy of a queue that exists.
    pub fn into_patch(self) -> Result<PolicyPatch, Refusal> {
        PolicyBody { order: None, ..self.policy }.try_into()
    }
}

fn json(value: &impl Serialize) -> serde_json::Value {
    // A wire type always has a JSON form.
    serde_json::to_value(value).unwrap_or_default()
}

/// What an apply did, or what it would do.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct QueueApplied {
    pub created: bool,
    /// The settings of the policy that changed. Empty for a new queue.
    pub changed: Vec<SettingChange>,
    /// The queue. In a dry run: as it would be.
    pub queue: QueueShown,
}

/// A setting that changed.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct SettingChange {
    pub setting: String,
    /// The value before. `null`: it was not set.
    pub before: serde_json::Value,
    /// The value after. `null`: it is not set.
    pub after: serde_json::Value,
}

impl SettingChange {
    /// What changes in a policy.
    #[must_use]
    pub fn between_policies(before: &Policy, after: &Policy) -> Vec<SettingChange> {
        SettingChange::between("", &json(&PolicyBody::from(before)), &json(&PolicyBody::from(after)))
    }

    /// The members that differ between two objects.
    pub(crate) fn between(
        prefix: &str,
        before: &serde_json::Value,
        after: &serde_json::Value,
    ) -> Vec<SettingChange> {
        let (Some(old), Some(new)) = (before.as_object(), after.as_object()) else { return Vec::new() };
        let names: BTreeSet<&String> = old.keys().chain(new.keys()).collect();
        let change = |name: &String| {
            let value = |members: &serde_json::Map<_, _>| members.get(name).cloned().unwrap_or_default();
            let (before, after) = (value(old), value(new));
            (before != after).then(|| SettingChange { setting: format!("{prefix}{name}"), before, after })
        };
        names.into_iter().filter_map(change).collect()
    }
}

impl fmt::Display for SettingChange {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {} -> {}", self.setting, self.before, self.after)
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
