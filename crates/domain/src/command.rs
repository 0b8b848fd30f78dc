//! The commands to a queue or an item. Durations, tokens and seeds come with the command; the time does not.

use crate::dependency::{Dependency, DependencyState};
use crate::fields::{FieldEdits, Fields};
use crate::id::{ItemId, LeaseToken, QueueId};
use crate::item::{Body, Outcome};
use crate::name::{BufferId, QueueName, SlotName};
use crate::policy::{Overrides, Policy, PolicyPatch};
use crate::precondition::Precondition;
use crate::schema::Schema;
use crate::time::{Millis, Timestamp};
use bytes::Bytes;
use std::collections::BTreeMap;
use std::sync::Arc;

pub type OutputSet = BTreeMap<SlotName, BufferId>;

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Command {
    CreateQueue(Box<NewQueue>),
    ChangePolicy(Box<PolicyPatch>),
    CloseQueue,
    PauseQueue,
    ResumeQueue,
    /// `force` deletes a queue with unfinished items.
    DeleteQueue {
        force: bool,
    },
    Submit(Box<Submission>),
    Receive(Receive),
    Lease(Box<LeaseCall>),
    Cancel {
        reason: String,
    },
    Pause,
    Resume,
    Redrive,
    /// `force` deletes a leased item.
    Delete {
        force: bool,
    },
    /// For pending and paused items.
    SetPriority {
        priority: i16,
    },
    /// Moves a pending or paused item to another queue.
    Move {
        queue: QueueName,
    },
    /// Reports the state of the item's dependency.
    ResolveDependency(Box<DependencyState>),
    /// Carried out only if the item still matches.
    Guarded {
        precondition: Arc<Precondition>,
        then: Box<Command>,
    },
    /// Lapses the lease, expires the item or removes it, whichever is due.
    Elapse,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NewQueue {
    pub id: QueueId,
    pub name: QueueName,
    pub schema: Schema,
    pub policy: Policy,
}

/// When an item becomes ready: a span from now by the store's clock, or a point in time.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum When {
    After(Millis),
    At(Timestamp),
}

impl When {
    pub const NOW: When = When::After(Millis::ZERO);

    /// A time in the past stays what it is: the item is ready now, and stands in the queue's order by that time.
    #[must_use]
    pub fn resolve(self, now: Timestamp) -> Timestamp {
        match self {
            When::After(span) => now.after(span),
            When::At(time) => time,
        }
    }
}

/// Ties a submit to a key-value record. The item is created if the record still has the value that the submitter saw, and
/// the record is replaced in the same step. Both happen, or neither.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RecordGuard {
    pub key: String,
    pub seen: Bytes,
    pub next: Bytes,
    /// The store refuses the submit before this time, by its own clock.
    pub not_before: Timestamp,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Submission {
    /// Chosen by the submitter. `None`: the store derives one.
    pub id: Option<ItemId>,
    pub record_guard: Option<Box<RecordGuard>>,
    /// Not delivered before this dependency is met.
    pub after: Option<Box<Dependency>>,
    pub priority: i16,
    pub ready: When,
    /// The longest delay after the first submit, however often the item is replaced.
    pub delay_max: Option<Millis>,
    pub overrides: Overrides,
    pub body: Body,
    pub fields: Fields,
}

impl Default for Submission {
    fn default() -> Submission {
        Submission {
            id: None,
            record_guard: None,
            after: None,
            priority: 0,
            ready: When::NOW,
            delay_max: None,
            overrides: Overrides::default(),
            body: Body::default(),
            fields: Fields::default(),
        }
    }
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Receive {
    pub token: LeaseToken,
    pub visibility: Option<Millis>,
    /// The worker did not ask for the item, so it must acknowledge within the queue's `ack_timeout`.
    pub assigned: bool,
    /// Name a buffer for each output slot that the queue declares.
    pub make_buffers: bool,
}

/// A call by a worker with a lease token.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LeaseCall {
    pub token: LeaseToken,
    pub verb: Verb,
    pub adjust: Adjust,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Verb {
    /// Extends the lease.
    Heartbeat {
        visibility: Option<Millis>,
    },
    /// Applies `adjust` and nothing else.
    Edit,
    Commit(Outcome),
    /// Fails the item without a retry.
    Fail {
        reason: String,
    },
    /// The attempt failed: counted, error kept. Backoff applies unless `delay` is set.
    Retry {
        error: String,
        delay: Option<Millis>,
        seed: u64,
    },
    /// Back to the queue: no error, no backoff. `counted`: it uses up an attempt.
    Release {
        delay: Millis,
        counted: bool,
    },
    /// Back to the queue until later: not counted.
    Defer {
        until: When,
    },
    /// Held back until an operator resumes the item: not counted.
    Pause,
    /// Fails the item as cancelled.
    Cancel {
        reason: String,
    },
}

/// Changes that ride along with a lease call, in the same step.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Adjust {
    pub edits: FieldEdits,
    pub priority: Option<i16>,
    /// The queue to which the item returns, if not its own.
    pub queue: Option<QueueName>,
    /// The broker has checked that the buffers of this attempt are whole. A commit that uses them is refused otherwise.
    pub buffers_whole: bool,
    /// A commit submits these items in the same step. If one of them is refused, nothing happens and the lease stays.
    pub then_submit: Vec<HandOff>,
}

/// An item that a commit submits.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct HandOff {
    pub queue: QueueName,
    /// Its parent is the committed item, unless it names another.
    pub submission: Submission,
}

impl Adjust {
    #[must_use]
    pub fn is_empty(&self) -> bool {
        *self == Adjust::default()
    }
}
