//! Wire types of compute: codespecs, runs, services, triggers and nodes.
//!
//! The server stores codespecs, services, triggers and the specifications of runs as the JSON of these types.

mod codespec;
mod environment;
mod lease_secret;
mod node;
mod reference;
mod run;
mod service;
mod size;
mod trigger;

pub use codespec::{
    BufferParams, CodespecApplied, CodespecBody, CodespecKind, CodespecPage, CodespecShown, HealthCheck,
    NewCodespec, PullPolicy, Resources,
};
pub use environment::{
    ExpandError, check_command, expand, expand_values, is_variable, param_variable, pipe_variable,
    queue_variable,
};
pub use lease_secret::LeaseSecret;
pub use node::{LogRequest, NodeBeat, NodePage, NodeShown, RunLog, StopRequest, StopRequests};
pub use reference::CodespecRef;
pub use run::{NewRun, RunPage, RunShown, RunSpec, RunState, RunStatus};
pub use service::{
    NewService, ReplicaShown, ReplicaSpec, ReplicaState, ReplicaStatus, Replicas, ScaleService, ServicePage,
    ServiceShown, ServiceState,
};
pub use size::Size;
pub use trigger::{NewTrigger, OutputQueue, ScaleTrigger, SlotSpec, SlotStatus, TriggerPage, TriggerShown};

/// The pool of runs, services and triggers that name none.
pub const POOL_DEFAULT: &str = "default";
/// The prefix of the names of the server's own queues.
pub const SYSTEM_QUEUES: &str = "towline:";
/// Default and maximum time limit of a run.
pub const RUN_TIMEOUT_DEFAULT: towline_domain::Millis = towline_domain::Millis::hours(12);

/// The queue of the work of a pool: runs, replicas of services, and slots of triggers.
#[must_use]
pub fn pool_queue(pool: &str) -> String {
    format!("{SYSTEM_QUEUES}pool:{pool}")
}

/// The buffer with the log of one attempt of a run, a replica or a run of a trigger.
#[must_use]
pub fn log_buffer(item: towline_domain::ItemId, delivery: u32) -> String {
    format!("log.{item}.{delivery}")
}

/// Tags of the items of a pool.
pub mod tag {
    /// `run`, `replica` or `slot`.
    pub const KIND: &str = "towline.kind";
    /// `NAME@VERSION`.
    pub const CODESPEC: &str = "towline.codespec";
    pub const SERVICE: &str = "towline.service";
    pub const TRIGGER: &str = "towline.trigger";
    /// Tags of clients do not begin with it.
    pub const PREFIX: &str = "towline.";
}
