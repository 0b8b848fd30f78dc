//! One element of a batch, and its answer.

use crate::{OperationError, QueueLookup, StoreError, StoredItem};
use std::collections::BTreeMap;
use std::sync::Arc;
use towline_domain::change::Answer;
use towline_domain::kv::{KvAnswer, KvCommand};
use towline_domain::policy::check_visibility;
use towline_domain::{
    Claim, Command, DependencyState, Effects, FieldSet, HandOff, Item, ItemId, LeaseCall, Millis, Policy,
    PolicyPatch, Precondition, Queue, QueueId, QueueName, QueueState, Refusal, Schema, Submission, Throttle,
    TokenSeed, limits,
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
    /// Deletes the items, too.
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
    },
    SetPriority {
        id: ItemId,
        priority: i16,
    },
    Move {
        id: ItemId,
        to: QueueName,
    },
    /// Reports the state of an item's dependency. The item is resumed if it is met, and cancelled if it cannot be met.
    ResolveDependency {
        id: ItemId,
        state: Box<DependencyState>,
    },
    /// An operation on one item, carried out only if the item still matches.
    Guarded {
        precondition: Arc<Precondition>,
        then: Box<Operation>,
    },
    /// Copies a whole item of another store into an open queue.
    Restore(Box<Restore>),
    /// Carries out what is due. Every update does this first; the sweeper sends it when there is no other update.
    Sweep,
    Kv {
        key: String,
        command: KvCommand,
    },
}

impl Operation {
    /// The operation without its preconditions.
    #[must_use]
    pub fn asked(&self) -> &Operation {
        match self {
            Operation::Guarded { then, .. } => then.asked(),
            other => other,
        }
    }

    /// The item of an operation on one item.
    #[must_use]
    pub fn item(&self) -> Option<ItemId> {
        match self {
            Operation::Lease { id, .. }
            | Operation::Cancel { id, .. }
            | Operation::Pause { id }
            | Operation::Resume { id }
            | Operation::Redrive { id }
            | Operation::Delete { id, .. }
            | Operation::SetPriority { id, .. }
            | Operation::Move { id, .. }
            | Operation::ResolveDependency { id, .. } => Some(*id),
            Operation::Guarded { then, .. } => then.item(),
            _ => None,
        }
    }

    /// The items that a commit submits.
    #[must_use]
    pub fn handed_off(&self) -> &[HandOff] {
        match self {
            Operation::Lease { call, .. } => &call.adjust.then_submit,
            _ => &[],
        }
    }

    /// What the operation submits: itself, or as a commit that hands off.
    pub fn submissions(&self) -> impl Iterator<Item = &Submission> {
        let submission = match self {
            Operation::Submit { submission, .. } => Some(&**submission),
            _ => None,
        };
        submission.into_iter().chain(self.handed_off().iter().map(|item| &item.submission))
    }

    pub fn submissions_mut(&mut self) -> impl Iterator<Item = &mut Submission> {
        let (submission, handed_off) = match self {
            Operation::Submit { submission, .. } => (Some(&mut **submission), None),
            Operation::Lease { call, .. } => (None, Some(&mut call.adjust.then_submit)),
            _ => (None, None),
        };
        let handed_off = handed_off.into_iter().flatten().map(|item| &mut item.submission);
        submission.into_iter().chain(handed_off)
    }

    /// The refusal of a guarded operation that is not on one item.
    #[must_use]
    pub fn without_item(&self) -> Refusal {
        let message = "only what is asked of one item can depend on that item".to_owned();
        Refusal::Invalid { what: "operation", message }
    }

    /// Converts an operation on one item to a command. Returns any other operation unchanged.
    pub fn of_item(self) -> std::result::Result<(ItemId, Command), Operation> {
        Ok(match self {
            Operation::Lease { id, call } => (id, Command::Lease(call)),
            Operation::Cancel { id, reason } => (id, Command::Cancel { reason }),
            Operation::Pause { id } => (id, Command::Pause),
            Operation::Resume { id } => (id, Command::Resume),
            Operation::Redrive { id } => (id, Command::Redrive),
            Operation::Delete { id, force } => (id, Command::Delete { force }),
            Operation::SetPriority { id, priority } => (id, Command::SetPriority { priority }),
            Operation::Move { id, to } => (id, Command::Move { queue: to }),
            Operation::ResolveDependency { id, state } => (id, Command::ResolveDependency(state)),
            Operation::Guarded { precondition, then } => match then.of_item() {
                Ok((id, then)) => (id, Command::Guarded { precondition, then: Box::new(then) }),
                Err(then) => return Err(Operation::Guarded { precondition, then: Box::new(then) }),
            },
            other => return Err(other),
        })
    }
}

/// The operations that name the dead-letter queues of queues that were created without. A dead-letter queue that was deleted
/// is not named again.
#[must_use]
pub fn name_dead_letter_queues(queues: &[Queue]) -> Vec<Operation> {
    let exists = |name: &&QueueName| queues.iter().any(|queue| queue.name == **name);
    let named = queues.iter().filter_map(|queue| {
        let dead_letter_queue = Some(queue.policy.dead_letter_queue.as_ref().filter(exists)?.clone());
        let patch = PolicyPatch { dead_letter_queue: Some(dead_letter_queue), ..PolicyPatch::default() };
        Some(Operation::ChangePolicy { queue: queue.name.clone(), patch: Box::new(patch) })
    });
    named.collect()
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ReceiveCall {
    pub queue: QueueName,
    pub max: u32,
    pub visibility: Option<Millis>,
    /// See [`towline_domain::command::Receive::assigned`].
    pub assigned: bool,
    pub seed: TokenSeed,
    /// The payload fields to return.
    pub fields: FieldSet,
    /// See [`towline_domain::command::Receive::make_buffers`].
    pub make_buffers: bool,
}

impl ReceiveCall {
    pub fn check(&self) -> std::result::Result<(), Refusal> {
        if self.max == 0 || self.max > limits::RECEIVE_MAX {
            let message = format!("{} is out of range; use 1 to {}", self.max, limits::RECEIVE_MAX);
            return Err(Refusal::Invalid { what: "max", message });
        }
        self.visibility.map_or(Ok(()), check_visibility)
    }
}

/// An item of another store, with the names of the queues it refers to.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Restore {
    pub queue: QueueName,
    pub item: Item,
    /// The queue of its claim, if that still exists.
    pub claimed_in: Option<QueueName>,
    /// The origin of a dead letter, if that queue still exists.
    pub came_from: Option<QueueName>,
}

impl Restore {
    /// `names` are the queues of the other store.
    #[must_use]
    pub fn of(stored: StoredItem, names: &BTreeMap<QueueId, QueueName>) -> Restore {
        let StoredItem { queue, item } = stored;
        let name = |id: QueueId| names.get(&id).cloned();
        let claimed_in = item.body.claim.and_then(|claim| name(claim.queue));
        let origin = item.head.extras.as_ref().and_then(|extras| extras.origin.as_ref());
        let came_from = origin.and_then(|origin| name(origin.queue_id));
        Restore { queue, item, claimed_in, came_from }
    }

    /// The item with this store's queue ids.
    pub fn item(self, queues: &impl QueueLookup) -> Item {
        let number =
            |name: Option<QueueName>| name.and_then(|name| queues.by_name(&name)).map(|queue| queue.id);
        let Restore { mut item, claimed_in, came_from, .. } = self;
        let claimed_in = number(claimed_in);
        let claim = item.body.claim.take();
        item.body.claim = claim.zip(claimed_in).map(|(claim, queue)| Claim { queue, ..claim });
        if let Some(origin) = item.head.extras.as_mut().and_then(|extras| extras.origin.as_mut()) {
            // No queue has this id, so a redrive stays in the dead-letter queue.
            origin.queue_id = number(came_from).unwrap_or(QueueId(u32::MAX));
        }
        item
    }
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Reply {
    Answer(Answer),
    Received(Received),
    /// How many items were due and changed in this call.
    Swept {
        changed: u64,
    },
    Kv(KvAnswer),
}

/// Items in the queue's order, each with its own lease.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Received {
    /// **Invariant:** never `completed` together with an item.
    pub queue: QueueState,
    pub items: Vec<Item>,
    /// Why the next receive would get nothing although items are ready.
    pub throttle: Option<Throttle>,
    /// Whether the queue is paused, and so delivers nothing.
    pub paused: bool,
    /// A lower bound of how many items the next receive would get now. If `items` is empty and this is above zero, the
    /// receive was cut short, and the receiver should call again.
    pub more: usize,
}

impl Received {
    #[must_use]
    pub fn nothing(queue: QueueState) -> Received {
        Received { queue, items: Vec::new(), throttle: None, paused: false, more: 0 }
    }
}

/// The answer to one operation.
pub type Answered = OperationResult<Reply>;

/// The result of one operation.
pub type OperationResult<T> = std::result::Result<T, OperationError>;

/// The result of an update.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Updated {
    /// One for each operation, in their order.
    pub answers: Vec<Answered>,
    /// What the batch did, and what was due in the same update. If a store gathers the batches of several callers into one
    /// group, each effect is in the result of one of them.
    pub effects: Effects,
}
