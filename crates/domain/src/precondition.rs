//! Filters on the heads of items.
//!
//! A bulk action finds the matching items first and changes them later. It checks the [`Precondition`] again when it
//! changes an item.

use crate::counts::CountKind;
use crate::item::{FailureKind, Head, State};
use crate::name::QueueName;
use crate::state_name::StateName;
use crate::time::Timestamp;

/// All set fields must match. `*_before` is exclusive; all other bounds are inclusive.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct HeadFilter {
    pub state: Option<StateName>,
    /// Matches failed items only.
    pub failure: Option<FailureKind>,
    pub priority_min: Option<i16>,
    pub priority_max: Option<i16>,
    pub attempt_min: Option<u32>,
    pub attempt_max: Option<u32>,
    pub created_from: Option<Timestamp>,
    pub created_before: Option<Timestamp>,
    /// Matches finished items only.
    pub finished_from: Option<Timestamp>,
    pub finished_before: Option<Timestamp>,
    pub ready_from: Option<Timestamp>,
    pub ready_before: Option<Timestamp>,
    pub deliveries_min: Option<u32>,
    pub deliveries_max: Option<u32>,
    /// States that do not match.
    pub not_states: StateSet,
    /// Kinds of failure that do not match. Items that have not failed match.
    pub not_failures: FailureSet,
}

/// A set of states.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct StateSet(u8);

impl StateSet {
    #[must_use]
    pub fn with(self, state: StateName) -> StateSet {
        let kinds = CountKind::ALL.into_iter().filter(|kind| state.matches(*kind));
        StateSet(kinds.fold(self.0, |bits, kind| bits | 1 << kind as u8))
    }

    #[must_use]
    pub fn contains(self, kind: CountKind) -> bool {
        self.0 & 1 << kind as u8 != 0
    }
}

/// A set of kinds of failure.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct FailureSet(u8);

impl FailureSet {
    #[must_use]
    pub fn with(self, kind: FailureKind) -> FailureSet {
        FailureSet(self.0 | 1 << kind as u8)
    }

    #[must_use]
    pub fn contains(self, kind: FailureKind) -> bool {
        self.0 & 1 << kind as u8 != 0
    }
}

/// What a filter reads of a head. A store may know it without reading the head.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Traits {
    pub kind: CountKind,
    pub priority: i16,
    pub attempt: u32,
    pub created_at: Timestamp,
    pub finished_at: Option<Timestamp>,
    pub failure: Option<FailureKind>,
    pub ready_at: Timestamp,
    pub deliveries: u32,
}

impl Traits {
    #[must_use]
    pub fn of(head: &Head, kind: CountKind) -> Traits {
        let failure = match head.state {
            State::Failed { kind, .. } => Some(kind),
            _ => None,
        };
        Traits {
            kind,
            priority: head.priority,
            attempt: head.attempt(),
            created_at: head.created_at,
            finished_at: head.finished_at(),
            failure,
            ready_at: head.ready_at,
            deliveries: head.deliveries,
        }
    }
}

impl HeadFilter {
    /// Whether the filter is on the state alone. Such a filter can be answered from [`crate::Counts`].
    #[must_use]
    pub fn is_state_alone(&self) -> bool {
        *self == HeadFilter { state: self.state, ..HeadFilter::default() }
    }

    /// Whether the filter is on states and priority alone.
    #[must_use]
    pub fn is_state_and_priority(&self) -> bool {
        let rest = HeadFilter { priority_min: None, priority_max: None, ..*self };
        HeadFilter { not_states: StateSet::default(), ..rest }.is_state_alone()
    }

    #[must_use]
    pub fn matches(&self, traits: &Traits) -> bool {
        let from = |start: Option<Timestamp>, time: Option<Timestamp>| {
            start.is_none_or(|start| time.is_some_and(|time| time >= start))
        };
        let before = |end: Option<Timestamp>, time: Option<Timestamp>| {
            end.is_none_or(|end| time.is_some_and(|time| time < end))
        };
        self.state.is_none_or(|state| state.matches(traits.kind))
            && self.failure.is_none_or(|failure| traits.failure == Some(failure))
            && self.priority_min.is_none_or(|min| traits.priority >= min)
            && self.priority_max.is_none_or(|max| traits.priority <= max)
            && self.attempt_min.is_none_or(|min| traits.attempt >= min)
            && self.attempt_max.is_none_or(|max| traits.attempt <= max)
            && from(self.created_from, Some(traits.created_at))
            && before(self.created_before, Some(traits.created_at))
            && from(self.finished_from, traits.finished_at)
            && before(self.finished_before, traits.finished_at)
            && from(self.ready_from, Some(traits.ready_at))
            && before(self.ready_before, Some(traits.ready_at))
            && self.deliveries_min.is_none_or(|min| traits.deliveries >= min)
            && self.deliveries_max.is_none_or(|max| traits.deliveries <= max)
            && !self.not_states.contains(traits.kind)
            && traits.failure.is_none_or(|failure| !self.not_failures.contains(failure))
    }
}

/// What must still be true of an item when an operation changes it.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Precondition {
    /// The item is still in this queue.
    pub queue: Option<QueueName>,
    pub head: HeadFilter,
    /// The item still has this [`Head::version`]: it was not replaced or edited.
    pub version: Option<u32>,
}

impl Precondition {
    #[must_use]
    pub fn in_state(state: StateName) -> Precondition {
        Precondition {
            head: HeadFilter { state: Some(state), ..HeadFilter::default() },
            ..Precondition::default()
        }
    }

    /// Adds the version of a replaceable item: after a replacement its tags may no longer match.
    #[must_use]
    pub fn unless_replaced(&self, head: &Head) -> Precondition {
        Precondition { version: head.is_replaceable().then(|| head.version()), ..self.clone() }
    }
}
