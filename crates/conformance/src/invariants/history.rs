//! Calls and their order, as far as it is known.

use std::fmt;
use std::sync::Arc;
use towline_domain::Timestamp;
use towline_store::Operation;

/// Counts the inputs of the checker. One call came before another if its reply came before the other was sent.
pub(super) type Tick = u64;
pub(super) type Restarts = u32;

/// An operation: its call, and its index in the batch.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(super) struct Key {
    call: u64,
    index: u32,
}

impl Key {
    pub(super) fn call(self) -> u64 {
        self.call
    }

    pub(super) fn new(call: u64, index: usize) -> Key {
        let index = u32::try_from(index).unwrap_or(u32::MAX);
        Key { call, index }
    }

    pub(super) const SEVERAL: Key = Key { call: u64::MAX, index: 1 };

    /// Stands for a snapshot, which has no call.
    pub(super) const SNAPSHOT: Key = Key { call: u64::MAX, index: 0 };
}

impl fmt::Display for Key {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if *self == Key::SNAPSHOT {
            return f.write_str("a snapshot");
        }
        if *self == Key::SEVERAL {
            return f.write_str("calls that overlapped");
        }
        write!(f, "call {}[{}]", self.call, self.index)
    }
}

/// The interval in which an answered operation was decided.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Span {
    pub(super) key: Key,
    pub(super) invoked: Tick,
    pub(super) answered: Tick,
    pub(super) from: Timestamp,
    pub(super) to: Timestamp,
}

impl Span {
    /// The union of two intervals, when the order is unknown.
    pub(super) fn or(&self, other: &Span) -> Span {
        Span {
            key: Key::SEVERAL,
            invoked: self.invoked.min(other.invoked),
            answered: self.answered.max(other.answered),
            from: self.from.min(other.from),
            to: self.to.max(other.to),
        }
    }

    /// Whether this operation was certainly decided first.
    pub(super) fn before(&self, other: &Span) -> bool {
        self.answered < other.invoked
            || (self.key.call == other.key.call
                && self.key.index < other.key.index
                && self.invoked == other.invoked)
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Fate {
    InFlight,
    /// The reply was lost. Holds the number of restarts at that time.
    Lost(Restarts),
}

/// An operation without a known reply. It may have been carried out.
#[derive(Debug, Clone)]
pub(super) struct Open {
    pub(super) key: Key,
    pub(super) fate: Fate,
    pub(super) batch: Arc<[Operation]>,
    pub(super) invoked: Tick,
    pub(super) at: Timestamp,
}

impl Open {
    /// The operation without its precondition, because it may have been carried out.
    pub(super) fn operation(&self) -> &Operation {
        self.batch[self.key.index as usize].asked()
    }

    pub(super) fn is_lost(&self) -> bool {
        self.fate != Fate::InFlight
    }

    /// Whether a restart ended its chance to be carried out.
    pub(super) fn is_closed(&self, restarts: Restarts) -> bool {
        matches!(self.fate, Fate::Lost(then) if then < restarts)
    }
}

/// Whether an observation is explained.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Cause {
    Known,
    /// Only if one of these operations is carried out.
    Awaited(Vec<Key>),
    None,
}

impl Cause {
    /// The cause, given all operations that may explain the observation.
    pub(super) fn among<'a>(open: impl Iterator<Item = &'a Open>) -> Cause {
        let mut awaited = Vec::new();
        for open in open {
            if open.is_lost() {
                return Cause::Known;
            }
            awaited.push(open.key);
        }
        if awaited.is_empty() { Cause::None } else { Cause::Awaited(awaited) }
    }

    pub(super) fn or(self, other: impl FnOnce() -> Cause) -> Cause {
        match self {
            Cause::Known => Cause::Known,
            Cause::None => other(),
            Cause::Awaited(mut keys) => match other() {
                Cause::Known => Cause::Known,
                Cause::None => Cause::Awaited(keys),
                Cause::Awaited(more) => {
                    keys.extend(more);
                    Cause::Awaited(keys)
                }
            },
        }
    }

    pub(super) fn when(certain: bool) -> Cause {
        if certain { Cause::Known } else { Cause::None }
    }
}
