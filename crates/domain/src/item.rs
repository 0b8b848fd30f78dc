//! An item: a small head that changes with every step, and a body that changes only when the item is replaced.

use crate::backoff::Backoff;
use crate::change::Errors;
use crate::counts::CountKind;
use crate::dependency::{Dependency, GroupTag};
use crate::digest::ContentDigest;
use crate::fields::Fields;
use crate::id::{ItemId, LeaseToken, QueueId};
use crate::item_state::ItemState;
use crate::json::Json;
use crate::name::{BufferId, QueueName, SlotName};
use crate::policy::{Overrides, Policy};
use crate::round_robin::KeyTag;
use crate::score::ScoreWeights;
use crate::time::{Millis, Timestamp};
use crate::trace::Trace;
use serde::{Deserialize, Deserializer, Serialize};
use std::collections::BTreeMap;

/// The small part of an item that every decision needs, and the only part that most decisions change.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Head {
    pub id: ItemId,
    pub queue: QueueId,
    pub state: State,
    pub priority: i16,
    pub created_at: Timestamp,
    /// Not delivered before this time.
    pub ready_at: Timestamp,
    /// Attempts that ended without a result. `attempt` is one more.
    pub retries: u32,
    /// How often the item was delivered.
    pub deliveries: u32,
    /// Every change adds one. A store that lost a race sees another revision.
    pub revision: u32,
    /// Changes of state and of queue, for auditing.
    pub transitions: u32,
    /// When the item fails as `expired` if it is not finished.
    pub expires_at: Option<Timestamp>,
    /// The latest settle, so that its repetition gets the same answer.
    pub last_settle: Option<Settle>,
    /// The body's group, here because the end of an item is counted without reading its body.
    #[serde(default)]
    pub group: Option<GroupTag>,
    /// The body's fairness key, here because items are selected without reading their bodies.
    #[serde(default)]
    pub fairness_key: KeyTag,
    /// When the state or the queue last changed, unless the rest of the head says so: see [`Head::last_transition`].
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub changed_at: Option<Timestamp>,
    /// The latest heartbeat of the present lease.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub heartbeat_at: Option<Timestamp>,
    pub extras: Option<Box<Extras>>,
}

/// What few items have. It is boxed, so that most heads stay small.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct Extras {
    pub overrides: Overrides,
    pub origin: Option<Origin>,
    /// Leases that lapsed in a row.
    pub lapses: u32,
    pub first_received_at: Option<Timestamp>,
    /// The static part of the item's score, for queues in `score` order.
    pub score: i64,
    /// The tags that the queue tallied when the item was submitted, here because finished items are tallied without
    /// reading their bodies.
    #[serde(default)]
    pub tally_tags: Vec<(String, String)>,
    /// The item's dependency. **Invariant:** the item is paused while it waits.
    #[serde(default)]
    pub after: Option<Box<Dependency>>,
    /// How the item has its idempotency key.
    #[serde(default)]
    pub key_hold: KeyHold,
    /// What its submitter offers for it: a queue in `score` order that it moves to computes its score from this. The last
    /// field, and left out if there is none: stores of earlier builds end before it.
    #[serde(default, skip_serializing_if = "Option::is_none", deserialize_with = "if_any")]
    pub offer: Option<Box<Offer>>,
}

/// How an item has its idempotency key.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum KeyHold {
    #[default]
    WhileExists,
    WhileUnfinished,
    /// The item was terminal. Another item may have the key, so a redrive does not give it back.
    Freed,
}

/// What counts for a score, besides the age.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct Offer {
    pub fee: u64,
    pub size_bytes: u64,
    pub tier: Option<String>,
}

impl Offer {
    /// The offer of a submit. `payload_bytes` is the size if the submit does not say one.
    #[must_use]
    pub fn of(body: &Body, payload_bytes: u64) -> Offer {
        let size_bytes = body.size_bytes.unwrap_or(payload_bytes);
        Offer { fee: body.fee.unwrap_or(0), size_bytes, tier: body.tier.clone() }
    }

    #[must_use]
    pub fn score(&self, weights: &ScoreWeights, submitted_at: Timestamp) -> i64 {
        weights.static_score(self.fee, self.size_bytes, self.tier.as_deref(), submitted_at)
    }
}

/// Reads the last field of a record, which is left out if it is empty: an encoding without names ends before it.
fn if_any<'de, T: Deserialize<'de> + Default, D: Deserializer<'de>>(stored: D) -> Result<T, D::Error> {
    Ok(T::deserialize(stored).unwrap_or_default())
}

/// Where a dead letter came from.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Origin {
    pub queue: QueueName,
    pub queue_id: QueueId,
    pub moved_at: Timestamp,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum State {
    Pending,
    Processing(Lease),
    Paused,
    Completed { at: Timestamp, remove_at: Option<Timestamp> },
    Failed { at: Timestamp, remove_at: Option<Timestamp>, kind: FailureKind },
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum FailureKind {
    /// A worker called `fail`.
    Explicit,
    RetriesExhausted,
    Expired,
    Cancelled,
    /// Its leases lapsed too many times in a row.
    Poison,
}

/// A state without its data.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum StateKind {
    Pending,
    Processing,
    Paused,
    Completed,
    Failed,
}

impl StateKind {
    /// In the order of the codes in stored events. Append new ones.
    pub const ALL: [StateKind; 5] = [
        StateKind::Pending,
        StateKind::Processing,
        StateKind::Paused,
        StateKind::Completed,
        StateKind::Failed,
    ];

    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            StateKind::Pending => "pending",
            StateKind::Processing => "processing",
            StateKind::Paused => "paused",
            StateKind::Completed => "completed",
            StateKind::Failed => "failed",
        }
    }

    #[must_use]
    pub fn is_terminal(self) -> bool {
        matches!(self, StateKind::Completed | StateKind::Failed)
    }
}

impl State {
    #[must_use]
    pub fn kind(&self) -> StateKind {
        match self {
            State::Pending => StateKind::Pending,
            State::Processing(_) => StateKind::Processing,
            State::Paused => StateKind::Paused,
            State::Completed { .. } => StateKind::Completed,
            State::Failed { .. } => StateKind::Failed,
        }
    }

    #[must_use]
    pub fn name(&self) -> &'static str {
        self.kind().name()
    }
}

impl FailureKind {
    pub const ALL: [FailureKind; 5] = [
        FailureKind::Explicit,
        FailureKind::RetriesExhausted,
        FailureKind::Expired,
        FailureKind::Cancelled,
        FailureKind::Poison,
    ];

    #[must_use]
    pub fn parse(text: &str) -> Option<FailureKind> {
        match text.to_ascii_lowercase().as_str() {
            "canceled" => Some(FailureKind::Cancelled),
            text => FailureKind::ALL.into_iter().find(|kind| kind.name() == text),
        }
    }

    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            FailureKind::Explicit => "explicit",
            FailureKind::RetriesExhausted => "retries_exhausted",
            FailureKind::Expired => "expired",
            FailureKind::Cancelled => "cancelled",
            FailureKind::Poison => "poison",
        }
    }
}

/// The right to settle one delivery, until `deadline` (exclusive) by the store's clock.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Lease {
    pub token: LeaseToken,
    pub deadline: Timestamp,
    pub visibility: Millis,
    /// An assigned lease that the worker has not acknowledged yet.
    pub unacknowledged: bool,
    pub renewals: u32,
    /// Output buffers of this attempt. They are deleted if it ends without a commit.
    pub buffers: Option<Box<BTreeMap<SlotName, BufferId>>>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum SettleVerb {
    Commit,
    Fail,
    Retry,
    Release,
    Defer,
    Pause,
    Cancel,
}

impl SettleVerb {
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            SettleVerb::Commit => "commit",
            SettleVerb::Fail => "fail",
            SettleVerb::Retry => "retry",
            SettleVerb::Release => "release",
            SettleVerb::Defer => "defer",
            SettleVerb::Pause => "pause",
            SettleVerb::Cancel => "cancel",
        }
    }
}

impl std::fmt::Display for SettleVerb {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(self.name())
    }
}

/// The states in which a settle can leave an item.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum Settled {
    Pending,
    Completed,
    Failed,
    Paused,
}

impl From<Settled> for ItemState {
    fn from(settled: Settled) -> ItemState {
        match settled {
            Settled::Pending => ItemState::Pending,
            Settled::Completed => ItemState::Completed,
            Settled::Failed => ItemState::Failed,
            Settled::Paused => ItemState::Paused,
        }
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Settle {
    pub token: LeaseToken,
    pub verb: SettleVerb,
    /// The state in which it left the item.
    pub left: Settled,
    /// A digest of everything else in the call. A repetition with another digest is refused.
    pub digest: u64,
}

impl Head {
    #[must_use]
    pub fn attempt(&self) -> u32 {
        self.retries.saturating_add(1)
    }

    /// When the state or the queue last changed. `None` if an earlier build stored the item, which did not keep it.
    #[must_use]
    pub fn last_transition(&self) -> Option<Timestamp> {
        self.changed_at.or_else(|| match &self.state {
            State::Processing(lease) => Some(lease.token.issued_at()),
            State::Completed { at, .. } | State::Failed { at, .. } => Some(*at),
            State::Pending | State::Paused => (self.transitions == 0).then_some(self.created_at),
        })
    }

    /// Leases that lapsed in a row.
    #[must_use]
    pub fn lapses(&self) -> u32 {
        self.extras.as_ref().map_or(0, |extras| extras.lapses)
    }

    #[must_use]
    pub fn is_terminal(&self) -> bool {
        matches!(self.state, State::Completed { .. } | State::Failed { .. })
    }

    /// The queue in which a dead letter failed. A redrive brings it back there.
    #[must_use]
    pub fn origin(&self) -> Option<&QueueName> {
        Some(&self.extras.as_ref()?.origin.as_ref()?.queue)
    }

    #[must_use]
    pub fn lease(&self) -> Option<&Lease> {
        match &self.state {
            State::Processing(lease) => Some(lease),
            _ => None,
        }
    }

    #[must_use]
    pub fn count_kind(&self, now: Timestamp) -> CountKind {
        match self.state {
            State::Pending if self.ready_at > now => CountKind::Scheduled,
            State::Pending => CountKind::Pending,
            State::Processing(_) => CountKind::Processing,
            State::Paused => CountKind::Paused,
            State::Completed { .. } => CountKind::Completed,
            State::Failed { .. } => CountKind::Failed,
        }
    }

    /// The state as a client sees it. It does not tell a scheduled item from a ready one, because that needs the time.
    #[must_use]
    pub fn item_state(&self) -> ItemState {
        if self.dependency().is_some() { ItemState::Waiting } else { self.state.kind().into() }
    }

    #[must_use]
    pub fn dependency(&self) -> Option<&Dependency> {
        self.extras.as_ref().and_then(|extras| extras.after.as_deref())
    }

    /// Whether a submit with the same replace key replaces this item: it is pending, and its state has never changed.
    ///
    /// **Invariant:** an item that is not replaceable never becomes so again. So at most one item of a key is replaceable.
    #[must_use]
    pub fn is_replaceable(&self) -> bool {
        self.state == State::Pending && self.transitions == 0
    }

    /// How often the item changed without a change of state. A replacement is such a change.
    #[must_use]
    pub fn version(&self) -> u32 {
        self.revision.wrapping_sub(self.transitions)
    }

    /// Whether the idempotency key of the item is free for another item.
    #[must_use]
    pub fn has_freed_key(&self) -> bool {
        self.key_hold() == KeyHold::Freed
    }

    #[must_use]
    pub fn key_hold(&self) -> KeyHold {
        self.extras.as_ref().map(|extras| extras.key_hold).unwrap_or_default()
    }

    /// Frees the idempotency key of an item that is terminal.
    pub(crate) fn free_key(&mut self) {
        if let Some(extras) =
            self.extras.as_mut().filter(|extras| extras.key_hold == KeyHold::WhileUnfinished)
        {
            extras.key_hold = KeyHold::Freed;
        }
    }

    pub(crate) fn clear_dependency(&mut self) {
        if self.dependency().is_some() {
            self.extras_mut().after = None;
            self.extras = self.extras.take().filter(|extras| **extras != Extras::default());
        }
    }

    #[must_use]
    pub fn finished_at(&self) -> Option<Timestamp> {
        match self.state {
            State::Completed { at, .. } | State::Failed { at, .. } => Some(at),
            _ => None,
        }
    }

    /// When time alone next changes this item: its lease lapses, it expires, or it is removed.
    ///
    /// Becoming ready is not included, because no change is written for it.
    #[must_use]
    pub fn timer(&self) -> Option<Timestamp> {
        match &self.state {
            State::Pending | State::Paused => self.expires_at,
            // **Invariant:** a deadline is never later than the expiry.
            State::Processing(lease) => Some(lease.deadline),
            State::Completed { remove_at, .. } | State::Failed { remove_at, .. } => *remove_at,
        }
    }

    #[must_use]
    pub fn max_retries(&self, policy: &Policy) -> u32 {
        self.overrides().and_then(|o| o.max_retries).unwrap_or(policy.max_retries)
    }

    pub(crate) fn backoff<'a>(&'a self, policy: &'a Policy) -> &'a Backoff {
        self.overrides().and_then(|o| o.backoff.as_ref()).unwrap_or(&policy.backoff)
    }

    pub(crate) fn overrides(&self) -> Option<&Overrides> {
        self.extras.as_ref().map(|extras| &extras.overrides)
    }

    pub(crate) fn extras_mut(&mut self) -> &mut Extras {
        self.extras.get_or_insert_with(Box::default)
    }
}

/// What was submitted, apart from the payload fields. Changes only when the item is replaced.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct Body {
    pub idempotency_key: Option<String>,
    /// Set by `decide`.
    pub claim: Option<Claim>,
    pub tags: BTreeMap<String, String>,
    pub fairness_key: Option<String>,
    pub group: Option<String>,
    pub parent: Option<ItemId>,
    /// The system that the item came from, for routing between systems.
    pub source: Option<String>,
    pub inputs: BTreeMap<SlotName, BufferId>,
    pub params: BTreeMap<String, Json>,
    pub fee: Option<u64>,
    pub size_bytes: Option<u64>,
    pub tier: Option<String>,
    /// The submitter's trace. Not part of the content: a repeated submit in another trace is the same submit.
    #[serde(default)]
    pub trace: Option<Box<Trace>>,
    /// The next submit with the same key replaces this item while it is [replaceable](Head::is_replaceable).
    /// **Invariant:** an item with a replace key has a claim and no idempotency key.
    #[serde(default)]
    pub replace_key: Option<String>,
}

/// The queue and the content for which an item owns its idempotency key. They stay the same if the item moves to another
/// queue. For an item with a replace key: the queue in which the key holds.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Claim {
    pub queue: QueueId,
    pub content: ContentDigest,
}

/// The result of a commit.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct Outcome {
    pub outputs: BTreeMap<SlotName, BufferId>,
    pub output_params: BTreeMap<String, Json>,
    /// The items that the commit submitted. Set by `decide`. Outcomes of earlier builds end before it.
    #[serde(default, skip_serializing_if = "Vec::is_empty", deserialize_with = "if_any")]
    pub handed_off: Vec<ItemId>,
}

impl Outcome {
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.outputs.is_empty() && self.output_params.is_empty() && self.handed_off.is_empty()
    }
}

/// Why one attempt ended without a result.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct AttemptError {
    pub at: Timestamp,
    pub attempt: u32,
    pub kind: ErrorKind,
    pub message: String,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ErrorKind {
    Failed,
    Retried,
    Lapsed,
    Unacknowledged,
    Expired,
    Cancelled,
}

impl ErrorKind {
    pub const ALL: [ErrorKind; 6] = [
        ErrorKind::Failed,
        ErrorKind::Retried,
        ErrorKind::Lapsed,
        ErrorKind::Unacknowledged,
        ErrorKind::Expired,
        ErrorKind::Cancelled,
    ];

    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            ErrorKind::Failed => "failed",
            ErrorKind::Retried => "retried",
            ErrorKind::Lapsed => "lapsed",
            ErrorKind::Unacknowledged => "unacknowledged",
            ErrorKind::Expired => "expired",
            ErrorKind::Cancelled => "cancelled",
        }
    }
}

/// A whole item, as a store returns it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Item {
    pub head: Head,
    pub body: Body,
    pub fields: Fields,
    pub outcome: Outcome,
    pub errors: Errors,
}

impl Item {
    /// An item with a head and nothing else.
    #[must_use]
    pub fn of_head(head: Head) -> Item {
        let (body, fields, outcome, errors) = Default::default();
        Item { head, body, fields, outcome, errors }
    }
}
