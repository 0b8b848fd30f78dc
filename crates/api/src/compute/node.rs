//! Wire types of nodes: programs that run what a pool has.

use crate::span::Span;
use crate::text::Text;
use crate::time::Time;
use serde::{Deserialize, Serialize};
use towline_domain::{ItemId, LeaseToken};
use utoipa::ToSchema;

/// What a node says of itself, every few seconds.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields, default)]
pub struct NodeBeat {
    /// A node that starts again is another instance.
    pub instance: String,
    pub pool: String,
    /// `process` or `container`.
    pub runner: String,
    /// How much it runs at most.
    pub slots: u32,
    /// What it runs now.
    #[schema(value_type = Vec<String>)]
    pub holds: Vec<Text<ItemId>>,
    pub version: String,
    /// How long to wait for something to stop. Default: no wait. Maximum: 5m.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub wait: Option<Span>,
}

/// What the node should stop.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize, ToSchema)]
pub struct StopRequests {
    pub stop: Vec<StopRequest>,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct StopRequest {
    #[schema(value_type = String, format = Uuid)]
    pub id: Text<ItemId>,
    pub reason: String,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct NodeShown {
    pub name: String,
    pub pool: String,
    pub runner: String,
    pub slots: u32,
    /// Slots in use.
    pub used: u32,
    pub version: String,
    #[schema(value_type = String, format = DateTime)]
    pub last_beat_at: Time,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct NodePage {
    pub nodes: Vec<NodeShown>,
    /// Pass this as `cursor` to get the next page. `null`: this is the last page.
    pub next: Option<String>,
}

/// A request for the buffer of a log.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields, default)]
pub struct LogRequest {
    /// The lease on the item.
    #[schema(value_type = String)]
    pub lease: Option<Text<LeaseToken>>,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct RunLog {
    pub buffer: String,
}
