//! What can be asked of a queue or an item. Durations, tokens and seeds come with the command; time does not.

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
    /// With `force`, unfinished items go with it.
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
    /// With `force`, also under its holder.
    Delete {
        force: bool,
    },
    /// Of an item that waits.
    SetPriority {
        priority: i16,
    },
    /// Of an item that waits, to another queue.
    Move {
        queue: QueueName,
    },
    /// How those stand that the item waits for.
    ResolveDependency(Box<DependencyState>),
    /// Not if the item is another than was meant by now.
    Guarded {
        precondition: Arc<Precondition>,
        then: Box<Command>,
    },
    /// Time has come: lapse, expire or remove, whichever is due.
    Elapse,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NewQueue {
    pub id: QueueId,
    pub name: QueueName,
    pub schema: Schema,
    pub policy: Policy,
}

/// When an item is to be given out: a span from now by the store's clock, or a time on the calendar.
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

/// Ties a submit to a key-value record: the item is made if the record is what its submitter saw, and the record is
/// replaced in the same step. Both happen, or neither.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RecordGuard {
    pub key: String,
    pub seen: Bytes,
    pub next: Bytes,
    /// Refused before this time, by the store's clock.
    pub not_before: Timestamp,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Submission {
    /// Chosen by the submitter; `None`: the store makes one.
    pub id: Option<ItemId>,
    pub record_guard: Option<Box<RecordGuard>>,
    /// Not given out before these have ended.
    pub after: Option<Box<Dependency>>,
    pub priority: i16,
    pub ready: When,
    /// However often it is replaced, no later than this after the first submit.
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
    /// The holder did not ask for it, so it must acknowledge within the queue's `ack_timeout`.
    pub assigned: bool,
    /// Make a buffer for each output slot the queue declares.
    pub make_buffers: bool,
}

/// A call by somebody who says they hold the item.
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
    /// Changes what `adjust` names, and nothing else.
    Edit,
    Commit(Outcome),
    /// Ends the item: no retry.
    Fail {
        reason: String,
    },
    /// This attempt failed: counted, error kept, backoff unless a delay is given.
    Retry {
        error: String,
        delay: Option<Millis>,
        seed: u64,
    },
    /// Given back: counted, no error, no backoff.
    Release {
        delay: Millis,
    },
    /// Not now: not counted.
    Defer {
        until: When,
    },
}

/// What else changes in the same step.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Adjust {
    pub edits: FieldEdits,
    pub priority: Option<i16>,
    /// Where to give the item back, if not to its own queue.
    pub queue: Option<QueueName>,
    /// The buffers made for this attempt were seen to be whole. A commit that would use them is refused without.
    pub buffers_whole: bool,
}

impl Adjust {
    #[must_use]
    pub fn is_empty(&self) -> bool {
        *self == Adjust::default()
    }
}
