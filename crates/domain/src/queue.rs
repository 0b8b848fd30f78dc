//! A queue: its name, schema, policy and state.

use crate::id::QueueId;
use crate::name::QueueName;
use crate::policy::Policy;
use crate::schema::Schema;
use crate::time::Timestamp;
use serde::{Deserialize, Serialize};

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Queue {
    pub id: QueueId,
    pub name: QueueName,
    pub schema: Schema,
    pub policy: Policy,
    pub state: QueueState,
    /// A paused queue accepts items and delivers none.
    pub paused: bool,
    pub created_at: Timestamp,
    pub revision: u32,
}

/// `open -> closed -> completed`, never back.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum QueueState {
    Open,
    Closed { since: Timestamp },
    Completed { since: Timestamp },
}

impl QueueState {
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            QueueState::Open => "open",
            QueueState::Closed { .. } => "closed",
            QueueState::Completed { .. } => "completed",
        }
    }
}
