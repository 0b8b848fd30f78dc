//! Who did what when, as far as the order can be known.

use std::fmt;
use std::sync::Arc;
use towline_domain::Timestamp;
use towline_store::Operation;

/// Counts what the checker was told: of two calls, one was first if its answer came before the other was made.
pub(super) type Tick = u64;
pub(super) type Restarts = u32;

/// One operation: its call, and its place in the batch.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
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

    /// What a snapshot showed has no call.
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

/// When an answered operation was decided: somewhere inside.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Span {
    pub(super) key: Key,
    pub(super) invoked: Tick,
    pub(super) answered: Tick,
    pub(super) from: Timestamp,
    pub(super) to: Timestamp,
}

impl Span {
    /// This one or the other, nobody knows which was last.
    pub(super) fn or(&self, other: &Span) -> Span {
        Span {
            key: Key::SEVERAL,
            invoked: self.invoked.min(other.invoked),
            answered: self.answered.max(other.answered),
            from: self.from.min(other.from),
            to: self.to.max(other.to),
        }
    }

    /// Certainly first: not merely possibly.
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
    /// The answer never came; the number of restarts then.
    Lost(Restarts),
}

/// An operation that may have happened.
#[derive(Debug, Clone)]
pub(super) struct Open {
    pub(super) key: Key,
    pub(super) fate: Fate,
    pub(super) batch: Arc<[Operation]>,
    pub(super) invoked: Tick,
    pub(super) at: Timestamp,
}

impl Open {
    /// What was asked, whatever it depended on: it may have been carried out.
    pub(super) fn operation(&self) -> &Operation {
        self.batch[self.key.index as usize].asked()
    }

    pub(super) fn is_lost(&self) -> bool {
        self.fate != Fate::InFlight
    }

    /// It happened before this many restarts, or never.
    pub(super) fn is_closed(&self, restarts: Restarts) -> bool {
        matches!(self.fate, Fate::Lost(then) if then < restarts)
    }
}

/// Whether something that must have had a cause had one.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Cause {
    Known,
    /// Only if one of these is carried out.
    Awaited(Vec<Key>),
    None,
}

impl Cause {
    /// From the operations that may be the cause.
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
