//! What a change tells the world. Stored with the change, as one small number.

use serde::{Deserialize, Serialize};

macro_rules! events {
    ($($(#[$doc:meta])* $variant:ident = $code:literal $name:literal,)*) => {
        /// Events are hints: a reader re-reads what they name.
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

            /// The event a stored number stands for.
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
    /// It was another store's before.
    Restored = 33 "item.restored",
    Prioritized = 34 "item.prioritized",
    Moved = 35 "item.moved",
}
