//! Events: what happened to queues and items. A change stores its event's kind as one small number.

use crate::change::{Change, QueueChange};
use crate::decide::cut;
use crate::dependency::GroupTag;
use crate::id::{ItemId, QueueId};
use crate::item::{AttemptError, FailureKind, Head, State, StateKind};
use crate::limits;
use crate::name::QueueName;
use crate::time::Timestamp;
use serde::{Deserialize, Serialize};

macro_rules! events {
    ($($(#[$doc:meta])* $variant:ident = $code:literal $name:literal,)*) => {
        /// Events are hints: a follower reads the item or the queue that an event names.
        #[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
        #[repr(u8)]
        pub enum EventKind {
            $($(#[$doc])* $variant = $code,)*
        }

        impl EventKind {
            pub const ALL: &[EventKind] = &[$(EventKind::$variant),*];

            #[must_use]
            pub fn name(self) -> &'static str {
                match self { $(EventKind::$variant => $name,)* }
            }

            #[must_use]
            pub fn parse(text: &str) -> Option<EventKind> {
                EventKind::ALL.iter().copied().find(|kind| kind.name() == text && kind.is_public())
            }

            /// The event with this stored code.
            #[must_use]
            pub fn from_code(code: u8) -> Option<EventKind> {
                match code { $($code => Some(EventKind::$variant),)* _ => None }
            }
        }
    };
}

// Codes are stored: never reuse one.
events! {
    QueueCreated = 1 "queue.created",
    QueueChanged = 2 "queue.changed",
    QueueClosed = 3 "queue.closed",
    QueueCompleted = 4 "queue.completed",
    QueuePaused = 5 "queue.paused",
    QueueResumed = 6 "queue.resumed",
    QueueDeleted = 7 "queue.deleted",
    Submitted = 16 "item.submitted",
    Received = 17 "item.received",
    LeaseRenewed = 18 "lease.renewed",
    Completed = 19 "item.completed",
    Failed = 20 "item.failed",
    Retried = 21 "item.retried",
    Released = 22 "item.released",
    Deferred = 23 "item.deferred",
    Lapsed = 24 "lease.lapsed",
    Expired = 25 "item.expired",
    Cancelled = 26 "item.cancelled",
    Paused = 27 "item.paused",
    Resumed = 28 "item.resumed",
    Redriven = 29 "item.redriven",
    Edited = 30 "item.edited",
    Removed = 31 "item.removed",
    /// A record carried forward by collection: nothing happened.
    Carried = 32 "carried",
    /// Copied from another store.
    Restored = 33 "item.restored",
    Prioritized = 34 "item.prioritized",
    Moved = 35 "item.moved",
    /// A submit with the same replace key replaced the item.
    Replaced = 36 "item.replaced",
}

impl EventKind {
    /// Whether followers see the event. A record that collection carried forward is not an event.
    #[must_use]
    pub fn is_public(self) -> bool {
        self != EventKind::Carried
    }
}

/// One event of a queue or an item.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct EventPayload {
    pub kind: EventKind,
    pub queue: QueueId,
    pub item: Option<ItemEvent>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ItemEvent {
    pub id: ItemId,
    /// For a removed item: only if it was unfinished.
    pub group: Option<GroupTag>,
    /// `None`: the item was removed.
    pub after: Option<ItemEventState>,
}

/// An item after a change, as far as events describe it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ItemEventState {
    /// [`StateKind::Paused`] also for an item that waits for a dependency: events do not distinguish the two.
    pub state: StateKind,
    pub attempt: u32,
    pub deliveries: u32,
    /// The deadline of its lease.
    pub deadline: Option<Timestamp>,
    pub failure: Option<FailureKind>,
    /// Why this change ended an attempt, cut to [`limits::EVENT_REASON_BYTES_MAX`].
    pub reason: Option<String>,
    /// The queue in which a dead letter failed.
    pub origin: Option<QueueName>,
}

impl ItemEventState {
    #[must_use]
    pub fn of(head: &Head, error: Option<&AttemptError>) -> ItemEventState {
        let failure = match head.state {
            State::Failed { kind, .. } => Some(kind),
            _ => None,
        };
        ItemEventState {
            state: head.state.kind(),
            attempt: head.attempt(),
            deliveries: head.deliveries,
            deadline: head.lease().map(|lease| lease.deadline),
            failure,
            reason: error
                .map(|error| cut(&error.message, limits::EVENT_REASON_BYTES_MAX).to_owned())
                .filter(|reason| !reason.is_empty()),
            origin: head
                .extras
                .as_ref()
                .and_then(|extras| extras.origin.as_ref())
                .map(|origin| origin.queue.clone()),
        }
    }
}

impl Change {
    /// The events of this change, in order: first the queue that its item completes, then the item. `queue` is the
    /// queue of a command on a whole queue.
    pub fn events(&self, queue: Option<QueueId>) -> impl Iterator<Item = EventPayload> {
        let of_item = self.item.as_ref().and_then(|item| {
            // An item with many errors is restored by many changes, with one event.
            let again = self.event == Some(EventKind::Restored) && item.body.is_none();
            let kind = self.event.filter(|_| !again)?;
            let (id, queue, group) = match (&item.after, item.before) {
                (Some(head), _) => (head.id, head.queue, head.group),
                (None, Some(before)) => (before.id, before.queue, before.leaves),
                (None, None) => return None,
            };
            let after = item.after.as_ref().map(|head| ItemEventState::of(head, item.error.as_deref()));
            Some(EventPayload { kind, queue, item: Some(ItemEvent { id, group, after }) })
        });
        let of_queue = self.queue.as_ref().and_then(|change| {
            let kind = if self.item.is_some() { Some(EventKind::QueueCompleted) } else { self.event };
            let queue = match change {
                QueueChange::Put(queue) => queue.id,
                QueueChange::Deleted => queue?,
            };
            Some(EventPayload { kind: kind?, queue, item: None })
        });
        of_queue.into_iter().chain(of_item)
    }
}
