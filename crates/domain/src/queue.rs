//! A queue: its name, schema, policy and state.

use crate::id::QueueId;
use crate::name::QueueName;
use crate::policy::Policy;
use crate::refusal::Refusal;
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

impl Queue {
    /// Refuses to add an item to a closed queue.
    pub fn check_open(&self) -> Result<(), Refusal> {
        match self.state {
            QueueState::Open => Ok(()),
            state => Err(Refusal::QueueClosed { name: self.name.to_string(), state }),
        }
    }
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

impl std::fmt::Display for QueueState {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            QueueState::Open => f.write_str(self.name()),
            QueueState::Closed { since } | QueueState::Completed { since } => {
                write!(f, "{} since {since}", self.name())
            }
        }
    }
}
