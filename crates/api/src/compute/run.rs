//! Wire types of runs: a job that runs once.

use super::codespec::CodespecBody;
use super::reference::CodespecRef;
use crate::params::{self, Params};
use crate::span::Span;
use crate::text::Text;
use crate::time::Time;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::fmt;
use std::str::FromStr;
use towline_domain::ItemId;
use utoipa::ToSchema;

/// A run to create.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields, default)]
pub struct NewRun {
    /// The job to run: `NAME`, `NAME@VERSION`, or a codespec.
    pub codespec: CodespecRef,
    /// Buffers by buffer parameter. An output that is not given is created.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub buffers: BTreeMap<String, String>,
    /// Values for variables `PARAM_<NAME>`.
    #[serde(with = "params", skip_serializing_if = "BTreeMap::is_empty")]
    #[schema(value_type = HashMap<String, serde_json::Value>)]
    pub params: Params,
    /// More environment variables. They replace those of the codespec.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub env: BTreeMap<String, String>,
    /// The run fails if it has not ended this long after its start. Default: 12h.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub timeout: Option<Span>,
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub tags: BTreeMap<String, String>,
    /// The pool of nodes that may take the run. Default: the pool of the codespec, or `default`.
    #[serde(alias = "nodePool", alias = "node_pool", skip_serializing_if = "Option::is_none")]
    pub pool: Option<String>,
    /// Lower numbers start first. Default: 0.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(minimum = -32768, maximum = 32767)]
    pub priority: Option<i64>,
    /// How often the run starts again after its node was lost. Default: 3.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(minimum = 0, maximum = 10000)]
    pub max_retries: Option<i64>,
    /// A second create with the same key returns the first run.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub idempotency_key: Option<String>,
}

/// What a node needs to know of a run. It is the payload of the run's item.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct RunSpec {
    pub codespec: String,
    pub spec: CodespecBody,
    /// Buffers by input parameter.
    pub inputs: BTreeMap<String, String>,
    /// Buffers by output parameter.
    pub outputs: BTreeMap<String, String>,
    /// The outputs that the server created. A later attempt may replace them.
    pub created_outputs: Vec<String>,
    #[serde(with = "params")]
    pub params: Params,
    pub env: BTreeMap<String, String>,
    pub timeout_ms: u64,
}

/// What the node reports of a run. It is the `state_blob` of the run's item.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct RunStatus {
    #[serde(skip_serializing_if = "Option::is_none")]
    pub node: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub started_at: Option<Time>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub exit_code: Option<i32>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub signal: Option<i32>,
    /// Why the run failed, if it did.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
    /// Whether there is a log.
    pub logged: bool,
    /// Outputs that replace those of the specification.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub outputs: BTreeMap<String, String>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum RunState {
    /// It waits for a node.
    Pending,
    /// A node runs it.
    Running,
    /// It exited with 0, and its outputs are complete.
    Succeeded,
    Failed,
    /// It is being stopped.
    Canceling,
    Canceled,
}

impl RunState {
    pub const ALL: [RunState; 6] = [
        RunState::Pending,
        RunState::Running,
        RunState::Succeeded,
        RunState::Failed,
        RunState::Canceling,
        RunState::Canceled,
    ];

    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            RunState::Pending => "pending",
            RunState::Running => "running",
            RunState::Succeeded => "succeeded",
            RunState::Failed => "failed",
            RunState::Canceling => "canceling",
            RunState::Canceled => "canceled",
        }
    }

    #[must_use]
    pub fn is_terminal(self) -> bool {
        matches!(self, RunState::Succeeded | RunState::Failed | RunState::Canceled)
    }
}

impl fmt::Display for RunState {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

impl FromStr for RunState {
    type Err = String;
    fn from_str(text: &str) -> Result<RunState, String> {
        let found = RunState::ALL.into_iter().find(|state| state.name().eq_ignore_ascii_case(text));
        found.ok_or_else(|| format!("not one of {}", RunState::ALL.map(RunState::name).join(", ")))
    }
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct RunShown {
    #[schema(value_type = String, format = Uuid)]
    pub id: Text<ItemId>,
    pub state: RunState,
    /// `NAME@VERSION`.
    pub codespec: String,
    pub pool: String,
    /// Buffers by buffer parameter.
    pub buffers: BTreeMap<String, String>,
    #[serde(default, with = "params", skip_serializing_if = "BTreeMap::is_empty")]
    #[schema(value_type = HashMap<String, serde_json::Value>)]
    pub params: Params,
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub tags: BTreeMap<String, String>,
    pub attempt: u32,
    pub timeout: Span,
    #[schema(value_type = String, format = DateTime)]
    pub created_at: Time,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<String>, format = DateTime)]
    pub started_at: Option<Time>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<String>, format = DateTime)]
    pub finished_at: Option<Time>,
    /// The node that runs or ran it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub node: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub exit_code: Option<i32>,
    /// The number of the signal that ended it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub signal: Option<i32>,
    /// Why it failed or was canceled. For a pending run: why it does not start.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
    /// The buffer with its log, if it wrote any.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub log: Option<String>,
    /// The trigger that started it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub trigger: Option<String>,
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct RunPage {
    pub runs: Vec<RunShown>,
    /// Pass this as `cursor` to get the next page. `null`: this is the last page.
    pub next: Option<String>,
}
