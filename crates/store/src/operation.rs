//! One element of a batch, and its answer.

use crate::StoreError;
use towline_domain::change::Answer;
use towline_domain::kv::{KvAnswer, KvCommand};
use towline_domain::policy::check_visibility;
use towline_domain::{
    FieldSet, Item, ItemId, LeaseCall, Millis, Policy, PolicyPatch, QueueName, QueueState, Refusal, Schema,
    StateName, Submission, TokenSeed, limits,
};

pub type Result<T> = std::result::Result<T, StoreError>;

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Operation {
    CreateQueue {
        queue: QueueName,
        schema: Box<Schema>,
        policy: Box<Policy>,
    },
    ChangePolicy {
        queue: QueueName,
        patch: Box<PolicyPatch>,
    },
    CloseQueue {
        queue: QueueName,
    },
    PauseQueue {
        queue: QueueName,
    },
    ResumeQueue {
        queue: QueueName,
    },
    /// Its items go with it.
    DeleteQueue {
        queue: QueueName,
        force: bool,
    },
    Submit {
        queue: QueueName,
        submission: Box<Submission>,
    },
    Receive(Box<ReceiveCall>),
    Lease {
        id: ItemId,
        call: Box<LeaseCall>,
    },
    Cancel {
        id: ItemId,
        reason: String,
    },
    Pause {
        id: ItemId,
    },
    Resume {
        id: ItemId,
    },
    Redrive {
        id: ItemId,
    },
    Delete {
        id: ItemId,
        force: bool,
        only: Option<StateName>,
    },
    /// Carries out what is due. Every update does so first; this is for when there is nothing else to do.
    Sweep,
    Kv {
        key: String,
        command: KvCommand,
    },
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ReceiveCall {
    pub queue: QueueName,
    pub max: u32,
    pub visibility: Option<Millis>,
    /// See [`towline_domain::command::Receive::assigned`].
    pub assigned: bool,
    pub seed: TokenSeed,
    /// Which payload fields to bring along.
    pub fields: FieldSet,
    /// See [`towline_domain::command::Receive::make_buffers`].
    pub make_buffers: bool,
}

impl ReceiveCall {
    /// Refuses numbers out of range, whether or not there is anything to receive.
    pub fn check(&self) -> std::result::Result<(), Refusal> {
        if self.max == 0 || self.max > limits::RECEIVE_MAX {
            let message = format!("{} is out of range; use 1 to {}", self.max, limits::RECEIVE_MAX);
            return Err(Refusal::Invalid { what: "max", message });
        }
        self.visibility.map_or(Ok(()), check_visibility)
    }
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Reply {
    Answer(Answer),
    Received(Received),
    /// How many items time changed in this call.
    Swept {
        changed: u64,
    },
    Kv(KvAnswer),
}

/// Items in the queue's order, each with a lease of its own.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Received {
    /// **Invariant:** never `completed` together with an item.
    pub queue: QueueState,
    pub items: Vec<Item>,
}

/// An element's own answer.
pub type Answered = std::result::Result<Reply, Refusal>;
