//! Wire types of triggers: a run for each item of a queue.

use super::codespec::CodespecBody;
use super::reference::CodespecRef;
use crate::span::Span;
use crate::time::Time;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use utoipa::ToSchema;

/// A trigger to create.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields, default)]
pub struct NewTrigger {
    /// The job to run: `NAME`, `NAME@VERSION`, or a codespec.
    pub codespec: CodespecRef,
    /// The queue whose items it runs. A queue has at most one trigger.
    pub input_queue: String,
    /// Maximum number of runs at once, on all nodes together. Default: 1.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(minimum = 0, maximum = 1000)]
    pub concurrency: Option<u32>,
    /// Input slots of the queue, each with an input parameter of the codespec. Slots and parameters with equal names belong
    /// together without it.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub input_mapping: BTreeMap<String, String>,
    /// Output slots of the queue, each with an output parameter of the codespec, or the other way round: whichever fits by name.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub output_mapping: BTreeMap<String, String>,
    /// Queues that get an item with the outputs of each run.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub output_queues: Vec<OutputQueue>,
    /// A run fails if it has not ended this long after its start. Default: 12h.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub timeout: Option<Span>,
    /// The pool of nodes that may run it. Default: the pool of the codespec, or `default`.
    #[serde(alias = "nodePool", alias = "node_pool", skip_serializing_if = "Option::is_none")]
    pub pool: Option<String>,
}

/// A queue that gets an item after each run.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields, default)]
pub struct OutputQueue {
    pub queue: String,
    /// Input slots of this queue, each with an output parameter of the codespec. Default: equal names.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub mapping: BTreeMap<String, String>,
}

/// A change of the number of runs at once.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields, default)]
pub struct ScaleTrigger {
    #[schema(maximum = 1000)]
    pub concurrency: u32,
}

/// What a node needs to know of a slot of a trigger. It is the payload of the slot's item.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct SlotSpec {
    pub trigger: String,
    pub index: u32,
    pub codespec: String,
    pub spec: CodespecBody,
    pub input_queue: String,
    /// Input parameters of the codespec by input slot.
    pub inputs: BTreeMap<String, String>,
    /// Output parameters of the codespec by output slot.
    pub outputs: BTreeMap<String, String>,
    /// With output parameters of the codespec by input slot.
    pub output_queues: Vec<OutputQueue>,
    pub timeout_ms: u64,
}

/// What the node reports of a slot. It is the `state_blob` of the slot's item.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct SlotStatus {
    #[serde(skip_serializing_if = "Option::is_none")]
    pub node: Option<String>,
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct TriggerShown {
    pub name: String,
    /// `NAME@VERSION`.
    pub codespec: String,
    pub input_queue: String,
    pub concurrency: u32,
    /// How many slots nodes hold now.
    pub slots_held: u32,
    /// How many runs are under way.
    pub running: u64,
    /// Input parameters by input slot.
    pub input_mapping: BTreeMap<String, String>,
    /// Output parameters by output slot.
    pub output_mapping: BTreeMap<String, String>,
    pub output_queues: Vec<OutputQueue>,
    pub timeout: Span,
    pub pool: String,
    #[schema(value_type = String, format = DateTime)]
    pub created_at: Time,
    #[schema(value_type = String, format = DateTime)]
    pub changed_at: Time,
    /// What the operator may not expect, in words.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub notes: Vec<String>,
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct TriggerPage {
    pub triggers: Vec<TriggerShown>,
    /// Pass this as `cursor` to get the next page. `null`: this is the last page.
    pub next: Option<String>,
}
