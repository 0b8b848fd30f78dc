//! What `decide` decided: the item and the queue after the change, and the answer to the caller.

use crate::command::{LeaseCall, OutputSet};
use crate::dependency::GroupTag;
use crate::event::EventKind;
use crate::fields::{FieldEdits, Fields};
use crate::id::{ItemId, QueueId};
use crate::item::{AttemptError, Body, Head, Item, Outcome, StateKind};
use crate::item_state::ItemState;
use crate::kv::KvRecord;
use crate::limits;
use crate::queue::Queue;
use crate::round_robin::KeyTag;
use crate::time::{Millis, Timestamp};
use serde::{Deserialize, Serialize};

/// One decided change. A store applies changes; it cannot create them.
///
/// ```compile_fail,E0451
/// fn forge(change: towline_domain::Change) -> towline_domain::Change {
///     towline_domain::Change { event: None, ..change }
/// }
/// ```
///
/// ```compile_fail,E0599
/// let forged = towline_domain::Change::default();
/// ```
///
/// ```compile_fail,E0451
/// fn reopen(change: towline_domain::Change) {
///     let towline_domain::Change { item, .. } = change;
/// }
/// ```
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Change {
    pub(crate) event: Option<EventKind>,
    pub(crate) answer: Answer,
    pub(crate) item: Option<ItemChange>,
    pub(crate) queue: Option<QueueChange>,
    pub(crate) record: Option<Box<(String, KvRecord)>>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct ItemChange {
    pub(crate) before: Option<Before>,
    pub(crate) after: Option<Head>,
    pub(crate) body: Option<Box<(Body, Fields)>>,
    pub(crate) edits: FieldEdits,
    pub(crate) outcome: Option<Box<Outcome>>,
    pub(crate) error: Option<Box<AttemptError>>,
}

/// The item when this was decided. A store that finds another revision has lost a race.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Before {
    pub id: ItemId,
    pub queue: QueueId,
    pub revision: u32,
    /// The group of an item that is removed unfinished.
    pub leaves: Option<GroupTag>,
    pub state: StateKind,
    pub ready_at: Timestamp,
    pub fairness_key: KeyTag,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum QueueChange {
    Put(Box<Queue>),
    Deleted,
}

/// The answer to the caller.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Answer {
    Queue(Box<Queue>),
    QueueDeleted,
    Submitted {
        id: ItemId,
        created: bool,
    },
    /// The submission replaced this pending item.
    Replaced {
        id: ItemId,
    },
    /// The lease is valid until the deadline.
    Leased {
        deadline: Timestamp,
    },
    /// The state of the item now. For a repeated settle: the state the first call left it in.
    State(ItemState),
    /// The item is completed, and these items were submitted in the same step.
    HandedOff(HandedOff),
    Removed,
    /// Nothing was changed: the commit uses buffers that were made for the attempt, and `decide` cannot read them. The
    /// broker checks them and repeats the call with `buffers_whole`.
    CheckBuffers(Box<BufferCheck>),
}

/// The items that a commit submitted, in the order of its `then_submit`.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct HandedOff {
    pub items: Vec<HandedOffItem>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct HandedOffItem {
    pub id: ItemId,
    pub submitted: Submitted,
}

/// What a submit did.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Submitted {
    Created,
    /// It replaced a pending item with the same replace key.
    Replaced,
    /// An item with the same idempotency key and content exists.
    Known,
}

/// The buffers to check before a commit can be decided, and the call to repeat.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct BufferCheck {
    pub id: ItemId,
    pub buffers: OutputSet,
    /// How long they are kept after the commit.
    pub output_ttl: Option<Millis>,
    pub call: LeaseCall,
}

impl Change {
    #[must_use]
    pub fn event(&self) -> Option<EventKind> {
        self.event
    }

    #[must_use]
    pub fn answer(&self) -> &Answer {
        &self.answer
    }

    /// Whether there is nothing to store.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.item.is_none() && self.queue.is_none()
    }

    #[must_use]
    pub fn queue(&self) -> Option<&QueueChange> {
        self.queue.as_ref()
    }

    /// The key-value record that is replaced together with the rest.
    #[must_use]
    pub fn record(&self) -> Option<(&String, &KvRecord)> {
        self.record.as_deref().map(|(key, record)| (key, record))
    }

    /// The item's head after the change, unless the change removes the item.
    #[must_use]
    pub fn head(&self) -> Option<&Head> {
        self.item.as_ref().and_then(|item| item.after.as_ref())
    }

    #[must_use]
    pub fn removes_item(&self) -> bool {
        self.item.as_ref().is_some_and(|item| item.after.is_none())
    }

    #[must_use]
    pub fn before(&self) -> Option<Before> {
        self.item.as_ref().and_then(|item| item.before)
    }

    /// What was submitted, if this is a submit. It replaces an item if there is a [`Change::before`].
    #[must_use]
    pub fn submitted(&self) -> Option<(&Body, &Fields)> {
        self.item.as_ref().and_then(|item| item.body.as_ref()).map(|body| (&body.0, &body.1))
    }

    #[must_use]
    pub fn edits(&self) -> Option<&FieldEdits> {
        self.item.as_ref().map(|item| &item.edits).filter(|edits| !edits.is_empty())
    }

    #[must_use]
    pub fn outcome(&self) -> Option<&Outcome> {
        self.item.as_ref().and_then(|item| item.outcome.as_deref())
    }

    #[must_use]
    pub fn error(&self) -> Option<&AttemptError> {
        self.item.as_ref().and_then(|item| item.error.as_deref())
    }

    /// Takes the parts a store keeps, without copying them.
    #[must_use]
    pub fn into_head_and_answer(self) -> (Option<Head>, Answer) {
        (self.item.and_then(|item| item.after), self.answer)
    }

    /// The item after the change, from the item before it. Every store must read back the same.
    #[must_use]
    pub fn apply(&self, item: Option<Item>) -> Option<Item> {
        let Some(change) = &self.item else {
            return item;
        };
        let head = change.after.clone()?;
        let mut item = match (&change.body, item) {
            // A replaced item never had an outcome or an error.
            (Some(body), _) => Item {
                head: head.clone(),
                body: body.0.clone(),
                fields: body.1.clone(),
                outcome: Outcome::default(),
                errors: Errors::default(),
            },
            (None, Some(item)) => item,
            (None, None) => return None,
        };
        item.head = head;
        change.edits.apply(&mut item.fields);
        if let Some(outcome) = &change.outcome {
            item.outcome = (**outcome).clone();
        }
        if let Some(error) = &change.error {
            item.errors.push((**error).clone());
        }
        Some(item)
    }
}

/// The errors of an item's attempts: the first and the latest, at most [`limits::ERRORS_KEPT_MAX`].
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Errors(Vec<AttemptError>);

impl Errors {
    pub fn push(&mut self, error: AttemptError) {
        if self.0.len() == limits::ERRORS_KEPT_MAX {
            self.0.remove(1);
        }
        self.0.push(error);
    }

    pub fn iter(&self) -> std::slice::Iter<'_, AttemptError> {
        self.0.iter()
    }

    #[must_use]
    pub fn len(&self) -> usize {
        self.0.len()
    }

    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}

impl IntoIterator for Errors {
    type Item = AttemptError;
    type IntoIter = std::vec::IntoIter<AttemptError>;
    fn into_iter(self) -> Self::IntoIter {
        self.0.into_iter()
    }
}

impl FromIterator<AttemptError> for Errors {
    fn from_iter<T: IntoIterator<Item = AttemptError>>(errors: T) -> Errors {
        let mut kept = Errors::default();
        errors.into_iter().for_each(|error| kept.push(error));
        kept
    }
}

impl<'a> IntoIterator for &'a Errors {
    type Item = &'a AttemptError;
    type IntoIter = std::slice::Iter<'a, AttemptError>;
    fn into_iter(self) -> Self::IntoIter {
        self.0.iter()
    }
}
