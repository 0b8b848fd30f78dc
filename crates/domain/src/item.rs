//! An item: a small head that changes with every step, and a body that was submitted once.

use crate::backoff::Backoff;
use crate::change::Errors;
use crate::counts::CountKind;
use crate::dependency::{Dependency, GroupTag};
use crate::digest::ContentDigest;
use crate::fields::Fields;
use crate::id::{ItemId, LeaseToken, QueueId};
use crate::json::Json;
use crate::name::{BufferId, QueueName, SlotName};
use crate::policy::{Overrides, Policy};
use crate::round_robin::KeyTag;
use crate::score::ScoreWeights;
use crate::time::{Millis, Timestamp};
use crate::trace::Trace;
use serde::{Deserialize, Deserializer, Serialize};
use std::collections::BTreeMap;

/// All that a decision needs to know of an item, and all that most decisions change.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Head {
    pub id: ItemId,
    pub queue: QueueId,
    pub state: State,
    pub priority: i16,
    pub created_at: Timestamp,
    /// Not given out before this.
    pub ready_at: Timestamp,
    /// Attempts that ended without a result; `attempt` is one more.
    pub retries: u32,
    /// Times the item was given out.
    pub deliveries: u32,
    /// Every change adds one: a store that lost a race sees it here.
    pub revision: u32,
    /// Changes of state and of queue, for auditing.
    pub transitions: u32,
    /// When the item fails as `expired` if it is not finished.
    pub expires_at: Option<Timestamp>,
    /// The settle that ended the latest finished delivery, so that its repetition gets the same answer.
    pub last_settle: Option<Settle>,
    /// What it is counted under when it ends, without its body.
    #[serde(default)]
    pub group: Option<GroupTag>,
    /// Whose item it is where keys take turns, without its body.
    #[serde(default)]
    pub fairness_key: KeyTag,
    pub extras: Option<Box<Extras>>,
}

/// What few items have: kept out of line so that the others stay small.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct Extras {
    pub overrides: Overrides,
    pub origin: Option<Origin>,
    /// Deliveries in a row whose holder vanished without a word.
    pub lapses: u32,
    pub first_received_at: Option<Timestamp>,
    /// The static part of its score, for queues in `score` order.
    pub score: i64,
    /// Its tags that its queue wanted to be counted by when it was submitted: known when it finishes, without its body.
    #[serde(default)]
    pub tally_tags: Vec<(String, String)>,
    /// What it waits for. **Invariant:** it is paused while it does.
    #[serde(default)]
    pub after: Option<Box<Dependency>>,
    /// What its submitter offers for it: a queue in `score` order that it moves to computes its score from this. The last
    /// field, and left out if there is none: stores of earlier builds end before it.
    #[serde(default, skip_serializing_if = "Option::is_none", deserialize_with = "offer_if_any")]
    pub offer: Option<Box<Offer>>,
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

fn offer_if_any<'de, D: Deserializer<'de>>(stored: D) -> Result<Option<Box<Offer>>, D::Error> {
    // An encoding without names ends here if there is no offer.
    Ok(Option::deserialize(stored).unwrap_or(None))
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
    /// A holder said `fail`.
    Explicit,
    RetriesExhausted,
    Expired,
    Cancelled,
    /// Its holders vanished too many times in a row.
    Poison,
}

/// A state without what belongs to it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum StateKind {
    Pending,
    Processing,
    Paused,
    Completed,
    Failed,
}

impl StateKind {
    /// In the order in which event codecs number them: a new one comes last.
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
    /// An assigned lease its holder has not acknowledged yet.
    pub unacknowledged: bool,
    pub renewals: u32,
    /// Output buffers made for this attempt, deleted if it ends without a commit.
    pub buffers: Option<Box<BTreeMap<SlotName, BufferId>>>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum SettleVerb {
    Commit,
    Fail,
    Retry,
    Release,
    Defer,
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
        }
    }
}

/// Where a settle can leave an item.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum Settled {
    Pending,
    Completed,
    Failed,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Settle {
    pub token: LeaseToken,
    pub verb: SettleVerb,
    /// The state it left the item in.
    pub left: Settled,
    /// Of everything else in the call: a repetition is the same call, or it is refused.
    pub digest: u64,
}

impl Head {
    #[must_use]
    pub fn attempt(&self) -> u32 {
        self.retries.saturating_add(1)
    }

    #[must_use]
    pub fn is_terminal(&self) -> bool {
        matches!(self.state, State::Completed { .. } | State::Failed { .. })
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

    /// The state's name where one word must do.
    #[must_use]
    pub fn state_name(&self) -> &'static str {
        if self.dependency().is_some() { "waiting" } else { self.state.name() }
    }

    /// What it waits for.
    #[must_use]
    pub fn dependency(&self) -> Option<&Dependency> {
        self.extras.as_ref().and_then(|extras| extras.after.as_deref())
    }

    /// Whether nothing has happened to it since it was submitted: only such an item is replaced by its key. What is not
    /// will never be again, so of all items with a key one at most is.
    #[must_use]
    pub fn is_replaceable(&self) -> bool {
        self.state == State::Pending && self.transitions == 0
    }

    /// How often it has changed otherwise than by a change of state: being replaced is one of these.
    #[must_use]
    pub fn version(&self) -> u32 {
        self.revision.wrapping_sub(self.transitions)
    }

    /// Forgets what it waited for.
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
    /// Becoming ready is not among these: nothing is written for it.
    #[must_use]
    pub fn timer(&self) -> Option<Timestamp> {
        match &self.state {
            State::Pending | State::Paused => self.expires_at,
            // A deadline is never later than the expiry.
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
    /// What the key claims; set when the submit is decided.
    pub claim: Option<Claim>,
    pub tags: BTreeMap<String, String>,
    pub fairness_key: Option<String>,
    pub group: Option<String>,
    pub parent: Option<ItemId>,
    /// Where the item came from, for whoever routes between systems.
    pub source: Option<String>,
    pub inputs: BTreeMap<SlotName, BufferId>,
    pub params: BTreeMap<String, Json>,
    pub fee: Option<u64>,
    pub size_bytes: Option<u64>,
    pub tier: Option<String>,
    /// What its submitter was at. Not content: the same submit in another trace is the same.
    #[serde(default)]
    pub trace: Option<Box<Trace>>,
    /// The next submit with the same key takes the place of this one, while it waits untouched. **Invariant:** it has a claim,
    /// and no idempotency key.
    #[serde(default)]
    pub replace_key: Option<String>,
}

/// One idempotency key, one item: in the queue it was submitted to, wherever the item goes, with the content it had then.
/// Of an item with a replace key, the queue where that holds.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Claim {
    pub queue: QueueId,
    pub content: ContentDigest,
}

/// What a commit brought.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct Outcome {
    pub outputs: BTreeMap<SlotName, BufferId>,
    pub output_params: BTreeMap<String, Json>,
}

impl Outcome {
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.outputs.is_empty() && self.output_params.is_empty()
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

/// An item whole, as a store shows it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Item {
    pub head: Head,
    pub body: Body,
    pub fields: Fields,
    pub outcome: Outcome,
    pub errors: Errors,
}

impl Item {
    /// One of which nothing else is known.
    #[must_use]
    pub fn of_head(head: Head) -> Item {
        let (body, fields, outcome, errors) = Default::default();
        Item { head, body, fields, outcome, errors }
    }
}
