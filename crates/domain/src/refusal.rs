//! Why a command was not carried out. A refusal is an answer, not a fault: nothing changed, and it names a remedy.

use crate::buffer_state::BufferStateKind;
use crate::id::ItemId;
use crate::item::SettleVerb;
use crate::item_state::ItemState;
use crate::queue::QueueState;
use crate::time::Timestamp;

#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Refusal {
    #[error("no queue named {name:?}; create it first")]
    QueueNotFound { name: String },
    #[error("queue {name:?} exists with another {what}; apply the change, or use another name")]
    QueueExists { name: String, what: String },
    #[error("queue {name:?} is {state}; submit to an open queue")]
    QueueClosed { name: String, state: QueueState },
    #[error("queue {name:?} has {unfinished} unfinished items; delete with force to lose them")]
    QueueBusy { name: String, unfinished: u64 },
    #[error("queue {name:?} is completed since {since} and takes no item back")]
    QueueCompleted { name: String, since: Timestamp },
    #[error("queue {name:?} holds {depth} waiting items, its limit is {limit}; submit again later")]
    QueueFull { name: String, depth: u64, limit: u64 },
    #[error("schedule {name:?} exists with another {what}; apply the change, or use another name")]
    ScheduleExists { name: String, what: String },
    #[error("no schedule named {name:?}; create it first")]
    ScheduleNotFound { name: String },
    #[error("no item {id}; it was never submitted, or it was removed")]
    ItemNotFound { id: ItemId },
    #[error("item {id} exists; ids are used once")]
    IdTaken { id: ItemId },
    #[error("idempotency key {key:?} belongs to item {id}, which has another content")]
    KeyConflict { key: String, id: ItemId },
    #[error("the lease on item {id} is lost: {why}; stop working on it")]
    LeaseLost { id: ItemId, why: LostWhy },
    #[error("the lease on item {id} was already settled by a {settled} call")]
    AlreadySettled { id: ItemId, settled: SettleVerb },
    #[error("item {id} is {state}; {remedy}")]
    WrongState { id: ItemId, state: ItemState, remedy: &'static str },
    #[error("item {id} no longer matches; it was left unchanged")]
    PreconditionFailed { id: ItemId },
    #[error("{message}")]
    SchemaMismatch { message: String },
    #[error("{what}: {message}")]
    Invalid { what: &'static str, message: String },
    #[error("{what}: no buffer {id}; create it first, and write to it")]
    BufferNotFound { what: String, id: String },
    #[error(
        "{what}: buffer {id}, made for this attempt, is gone; write the result to another buffer and commit with \
         that one, or release the item"
    )]
    BufferGone { what: String, id: String },
    #[error("{what}: the state of buffer {id} is {state}; {remedy}")]
    BufferNotReady { what: String, id: String, state: BufferStateKind, remedy: &'static str },
    #[error("{what}: {claims} commits that name buffer {id} did not succeed; copy it and commit the copy")]
    BufferClaimed { what: String, id: String, claims: u32 },
    #[error("{what} is {bytes} bytes; at most {max} are allowed, put larger data in a buffer")]
    TooLarge { what: &'static str, bytes: u64, max: u64 },
    #[error("lease of item {id} was renewed {max} times, the most its queue allows")]
    RenewalsExhausted { id: ItemId, max: u32 },
    #[error("item {id} is not due yet")]
    NotDue { id: ItemId },
    #[error("record {key:?} is not what it was; read it again")]
    RecordChanged { key: String },
    #[error("not allowed before {until}")]
    TooEarly { until: Timestamp },
    #[error("the store holds {held} {what}, its limit; remove some first")]
    StoreFull { what: &'static str, held: u64 },
    #[error(
        "the store has numbered {used} items, the most it can; export it to a new store with `towline export` and \
         `towline import`, and submit there"
    )]
    NumbersUsedUp { used: u64 },
    /// A commit was refused because of one of the items that it submits. The lease stays.
    #[error("then_submit[{index}]: {why}")]
    HandOff { index: usize, why: Box<Refusal> },
    #[error("no space left: {detail}; free some, or delete what is not needed, and try again")]
    DiskFull { detail: String },
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum LostWhy {
    /// The deadline passed.
    Lapsed,
    /// Another worker holds the item, or it went back to the queue.
    Superseded,
    /// The item was cancelled, expired or deleted while it was leased.
    Ended,
}

impl std::fmt::Display for LostWhy {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            LostWhy::Lapsed => "its deadline passed",
            LostWhy::Superseded => "it is not the item's current lease",
            LostWhy::Ended => "the item has ended",
        })
    }
}

impl Refusal {
    #[must_use]
    pub fn invalid(what: &'static str, message: impl Into<String>) -> Refusal {
        Refusal::Invalid { what, message: message.into() }
    }

    /// The refusal of a commit because of the item at this place in its `then_submit`.
    #[must_use]
    pub fn of_hand_off(self, index: usize) -> Refusal {
        Refusal::HandOff { index, why: Box::new(self) }
    }

    /// The stable code that clients match on.
    #[must_use]
    pub fn code(&self) -> &'static str {
        match self {
            Refusal::QueueNotFound { .. } => "queue_not_found",
            Refusal::QueueExists { .. } => "queue_exists",
            Refusal::QueueClosed { .. } => "queue_closed",
            Refusal::QueueBusy { .. } => "queue_busy",
            Refusal::QueueCompleted { .. } => "queue_completed",
            Refusal::QueueFull { .. } => "queue_full",
            Refusal::ScheduleExists { .. } => "schedule_exists",
            Refusal::ScheduleNotFound { .. } => "schedule_not_found",
            Refusal::ItemNotFound { .. } => "item_not_found",
            Refusal::IdTaken { .. } => "id_taken",
            Refusal::KeyConflict { .. } => "key_conflict",
            Refusal::LeaseLost { .. } => "lease_lost",
            Refusal::AlreadySettled { .. } => "already_settled",
            Refusal::WrongState { .. } | Refusal::PreconditionFailed { .. } => "wrong_state",
            Refusal::SchemaMismatch { .. } => "schema_mismatch",
            Refusal::Invalid { .. } => "invalid",
            Refusal::BufferNotFound { .. } | Refusal::BufferGone { .. } => "buffer_not_found",
            Refusal::BufferNotReady { .. } | Refusal::BufferClaimed { .. } => "buffer_not_ready",
            Refusal::TooLarge { .. } => "too_large",
            Refusal::RenewalsExhausted { .. } => "renewals_exhausted",
            Refusal::NotDue { .. } | Refusal::TooEarly { .. } => "not_due",
            Refusal::RecordChanged { .. } => "record_changed",
            Refusal::StoreFull { .. } | Refusal::NumbersUsedUp { .. } => "store_full",
            Refusal::HandOff { why, .. } => why.code(),
            Refusal::DiskFull { .. } => "disk_full",
        }
    }
}
