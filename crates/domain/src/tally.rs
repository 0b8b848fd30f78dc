//! How many items of a queue finished, by hour and by how they ended. Tallies outlive the items.
//!
//! An item counts in the queue in which it finished, even if it then moves to the dead-letter queue. A redriven item counts
//! again when it finishes again. An item restored from another store was counted there.

use crate::change::Change;
use crate::event::EventKind;
use crate::id::QueueId;
use crate::item::{FailureKind, State};
use crate::limits;
use crate::time::{Millis, Timestamp};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// How an item ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Ending {
    Completed,
    Explicit,
    RetriesExhausted,
    Expired,
    Cancelled,
    Poison,
}

impl Ending {
    pub const ALL: [Ending; 6] = [
        Ending::Completed,
        Ending::Explicit,
        Ending::RetriesExhausted,
        Ending::Expired,
        Ending::Cancelled,
        Ending::Poison,
    ];

    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Ending::Completed => "completed",
            Ending::Explicit => FailureKind::Explicit.name(),
            Ending::RetriesExhausted => FailureKind::RetriesExhausted.name(),
            Ending::Expired => FailureKind::Expired.name(),
            Ending::Cancelled => FailureKind::Cancelled.name(),
            Ending::Poison => FailureKind::Poison.name(),
        }
    }

    fn of(state: &State) -> Option<Ending> {
        Some(match state {
            State::Completed { .. } => Ending::Completed,
            State::Failed { kind, .. } => match kind {
                FailureKind::Explicit => Ending::Explicit,
                FailureKind::RetriesExhausted => Ending::RetriesExhausted,
                FailureKind::Expired => Ending::Expired,
                FailureKind::Cancelled => Ending::Cancelled,
                FailureKind::Poison => Ending::Poison,
            },
            State::Pending | State::Processing(_) | State::Paused => return None,
        })
    }
}

/// Items by how they ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Tally([u64; Ending::ALL.len()]);

impl Tally {
    #[must_use]
    pub fn get(&self, ending: Ending) -> u64 {
        self.0[ending as usize]
    }

    pub fn add(&mut self, ending: Ending) {
        self.0[ending as usize] = self.0[ending as usize].saturating_add(1);
    }

    #[must_use]
    pub fn plus(&self, other: &Tally) -> Tally {
        let mut sum = *self;
        sum.0.iter_mut().zip(other.0).for_each(|(sum, other)| *sum = sum.saturating_add(other));
        sum
    }

    #[must_use]
    pub fn total(&self) -> u64 {
        self.0.iter().fold(0, |sum, count| sum.saturating_add(*count))
    }

    /// In the order of [`Ending::ALL`].
    #[must_use]
    pub fn counts(&self) -> [u64; Ending::ALL.len()] {
        self.0
    }

    #[must_use]
    pub fn of_counts(counts: [u64; Ending::ALL.len()]) -> Tally {
        Tally(counts)
    }
}

/// An hour, in hours since 1970.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Hour(pub u64);

impl Hour {
    #[must_use]
    pub fn of(time: Timestamp) -> Hour {
        Hour(time.0 / Millis::hours(1).0)
    }

    #[must_use]
    pub fn begin(self) -> Timestamp {
        Timestamp(self.0.saturating_mul(Millis::hours(1).0)).min(Timestamp::MAX)
    }

    /// The oldest hour that is still kept.
    #[must_use]
    pub fn oldest(now: Timestamp) -> Hour {
        Hour::of(Timestamp(now.0.saturating_sub(limits::TALLY_KEPT.0)))
    }
}

/// A tag whose items are tallied separately.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct TallyTag {
    pub name: String,
    /// `None`: all values beyond [`limits::TALLY_VALUES_MAX`] in that hour.
    pub value: Option<String>,
}

/// An item that has just finished.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Finish<'a> {
    /// The queue in which it finished: for a dead letter, its origin.
    pub queue: QueueId,
    pub hour: Hour,
    pub ending: Ending,
    /// The tags that the queue tallied when the item was submitted.
    pub tags: &'a [(String, String)],
}

impl Change {
    /// What to count, if the change finishes an item.
    #[must_use]
    pub fn finish(&self) -> Option<Finish<'_>> {
        let (head, before) = (self.head()?, self.before()?);
        if self.event() == Some(EventKind::Restored) {
            return None;
        }
        let tags = head.extras.as_ref().map_or(&[][..], |extras| &extras.tally_tags);
        let hour = Hour::of(head.finished_at()?);
        Some(Finish { queue: before.queue, hour, ending: Ending::of(&head.state)?, tags })
    }
}

/// The tallies of one hour of a queue. `T` is a tally with what a store keeps beside it.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct HourTally<T> {
    pub all: T,
    tags: BTreeMap<String, Values<T>>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
struct Values<T> {
    named: BTreeMap<String, T>,
    other: Option<T>,
}

impl<T> Default for Values<T> {
    fn default() -> Values<T> {
        Values { named: BTreeMap::new(), other: None }
    }
}

impl<T: Default> HourTally<T> {
    /// The tally of an item with this tag.
    #[must_use]
    pub fn tag(&self, name: &str, value: &str) -> TallyTag {
        let full = self.tags.get(name).is_some_and(|values| {
            values.named.len() >= limits::TALLY_VALUES_MAX && !values.named.contains_key(value)
        });
        TallyTag { name: name.to_owned(), value: (!full).then(|| value.to_owned()) }
    }

    #[must_use]
    pub fn get(&self, tag: Option<&TallyTag>) -> Option<&T> {
        let Some(tag) = tag else { return Some(&self.all) };
        let values = self.tags.get(&tag.name)?;
        match &tag.value {
            Some(value) => values.named.get(value),
            None => values.other.as_ref(),
        }
    }

    /// Inserts a missing tally.
    pub fn slot(&mut self, tag: Option<&TallyTag>) -> &mut T {
        let Some(tag) = tag else { return &mut self.all };
        let values = self.tags.entry(tag.name.clone()).or_default();
        match &tag.value {
            Some(value) => values.named.entry(value.clone()).or_default(),
            None => values.other.get_or_insert_default(),
        }
    }

    /// The tallies of one tag by value, the one of all further values last. Without a tag: the tally of all items.
    pub fn rows(&self, tag: Option<&str>) -> impl Iterator<Item = (Option<&str>, &T)> {
        let all = tag.is_none().then_some((None, &self.all));
        let values = tag.and_then(|name| self.tags.get(name));
        let named = values.into_iter().flat_map(|values| &values.named);
        let other = values.and_then(|values| values.other.as_ref()).map(|other| (None, other));
        all.into_iter().chain(named.map(|(value, count)| (Some(value.as_str()), count))).chain(other)
    }

    /// All tallies of the hour.
    pub fn every(&self) -> impl Iterator<Item = (Option<TallyTag>, &T)> {
        let tags = self.tags.keys().flat_map(|name| {
            self.rows(Some(name)).map(move |(value, count)| {
                (Some(TallyTag { name: name.clone(), value: value.map(str::to_owned) }), count)
            })
        });
        std::iter::once((None, &self.all)).chain(tags)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_beyond_the_limit_share_one_tally() {
        let mut hour = HourTally::<Tally>::default();
        for n in 0..limits::TALLY_VALUES_MAX + 5 {
            let tag = hour.tag("team", &n.to_string());
            hour.slot(Some(&tag)).add(Ending::Completed);
        }
        let known = hour.tag("team", "7");
        assert_eq!(known.value.as_deref(), Some("7"));
        hour.slot(Some(&known)).add(Ending::Poison);
        let rows: Vec<_> = hour.rows(Some("team")).collect();
        assert_eq!(rows.len(), limits::TALLY_VALUES_MAX + 1);
        assert_eq!(rows.last().map(|(value, count)| (*value, count.total())), Some((None, 5)));
        assert_eq!(hour.get(Some(&known)).map(Tally::total), Some(2));
        assert_eq!(hour.tag("region", "x").value.as_deref(), Some("x"), "each tag has its own limit");
    }

    #[test]
    fn hours_begin_on_the_hour() {
        let hour = Hour::of(Timestamp(3_600_000 * 5 + 17));
        assert_eq!((hour, hour.begin()), (Hour(5), Timestamp(3_600_000 * 5)));
        assert_eq!(Hour::of(Timestamp(3_600_000 * 6 - 1)), Hour(5));
        assert_eq!(Hour::oldest(Timestamp(17)), Hour(0));
    }
}
