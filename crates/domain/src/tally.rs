//! How many items of a queue finished, by hour and by how they ended. Tallies outlive the items.
//!
//! An item counts in the queue in which it finished, even if it then moves to the dead-letter queue. A redriven item counts
//! again when it finishes again. An item restored from another store was counted there.

use crate::change::Change;
use crate::event::EventKind;
use crate::id::QueueId;
use crate::item::{FailureKind, State};
use crate::limits;
use crate::refusal::Refusal;
use crate::time::{Millis, Timestamp};
use serde::{Deserialize, Serialize};
use std::collections::{BTreeMap, BTreeSet};

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

/// Between the names of two tags that are tallied together, in an entry of a policy's `tally_tags`.
const AND: char = '+';

/// The entry for these tags, as policies have it. The order of two names does not matter.
#[must_use]
pub fn tally_entry(names: &[impl AsRef<str>]) -> String {
    let mut names: Vec<&str> =
        names.iter().flat_map(|name| name.as_ref().split(AND)).map(str::trim).collect();
    names.sort_unstable();
    names.join("+")
}

/// The names of the tags of an entry.
pub fn tally_names(entry: &str) -> impl Iterator<Item = &str> {
    entry.split(AND)
}

/// What an item with these tags counts as under an entry. `None`: it lacks a tag.
#[must_use]
pub fn tally_value(entry: &str, tags: &BTreeMap<String, String>) -> Option<String> {
    match entry.split_once(AND) {
        None => tags.get(entry).cloned(),
        Some((one, other)) => {
            let (one, other) = (tags.get(one)?, tags.get(other)?);
            // The values are any text, so the length of the first says where the second begins.
            Some(format!("{}:{one}{other}", one.len()))
        }
    }
}

/// The values of the tags of an entry.
#[must_use]
pub fn tally_values<'a>(entry: &str, value: &'a str) -> Vec<&'a str> {
    let both = || {
        let (length, values) = value.split_once(':')?;
        values.split_at_checked(length.parse().ok()?)
    };
    match entry.contains(AND).then(both).flatten() {
        Some((one, other)) => vec![one, other],
        None => vec![value],
    }
}

/// Refuses the tally tags of a policy if a name or their number is beyond the limits.
pub(crate) fn check_entries(entries: &BTreeSet<String>) -> Result<(), Refusal> {
    if entries.len() > limits::TALLY_TAGS_MAX {
        let (given, max) = (entries.len(), limits::TALLY_TAGS_MAX);
        return Err(Refusal::invalid("tally_tags", format!("{given} tags; use at most {max}")));
    }
    for entry in entries {
        let names: Vec<&str> = tally_names(entry).collect();
        if let Some(name) =
            names.iter().find(|name| name.is_empty() || name.len() > limits::TAG_KEY_BYTES_MAX)
        {
            let message = format!("a name of {} bytes; use 1 to {}", name.len(), limits::TAG_KEY_BYTES_MAX);
            return Err(Refusal::invalid("tally_tags", message));
        }
        let problem = match names[..] {
            [_] => continue,
            [one, other] if one < other => continue,
            [one, other] if one == other => "names the same tag twice; name two tags",
            [_, _] => "has its two names out of order; sort them",
            _ => "names more than two tags; use one or two",
        };
        return Err(Refusal::invalid("tally_tags", format!("{entry:?} {problem}")));
    }
    Ok(())
}

/// A tag whose items are tallied separately.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct TallyTag {
    /// An entry of the policy's `tally_tags`.
    pub name: String,
    /// `None`: all values beyond the policy's `tally_values_max` in that hour.
    pub value: Option<String>,
}

/// An item that has just finished.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Finish<'a> {
    /// The queue in which it finished: for a dead letter, its origin.
    pub queue: QueueId,
    pub hour: Hour,
    pub ending: Ending,
    /// The entries that the queue tallied when the item was submitted, with the item's values.
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
    /// The tally of an item with this tag, if `values_max` values of a tag are tallied separately.
    #[must_use]
    pub fn tag(&self, name: &str, value: &str, values_max: u32) -> TallyTag {
        let full = self.tags.get(name).is_some_and(|values| {
            values.named.len() >= values_max as usize && !values.named.contains_key(value)
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
        for n in 0..105 {
            let tag = hour.tag("team", &n.to_string(), 100);
            hour.slot(Some(&tag)).add(Ending::Completed);
        }
        let known = hour.tag("team", "7", 100);
        assert_eq!(known.value.as_deref(), Some("7"));
        hour.slot(Some(&known)).add(Ending::Poison);
        let rows: Vec<_> = hour.rows(Some("team")).collect();
        assert_eq!(rows.len(), 101);
        assert_eq!(rows.last().map(|(value, count)| (*value, count.total())), Some((None, 5)));
        assert_eq!(hour.get(Some(&known)).map(Tally::total), Some(2));
        assert_eq!(hour.tag("region", "x", 100).value.as_deref(), Some("x"), "each tag has its own limit");
        assert_eq!(hour.tag("team", "late", 101).value.as_deref(), Some("late"), "the queue allows more now");
    }

    #[test]
    fn two_tags_are_tallied_by_both_values() {
        let entry = tally_entry(&["type", "team"]);
        assert_eq!((entry.as_str(), tally_entry(&["type+team"])), ("team+type", entry.clone()));
        for (one, other) in [("red", "build"), ("", ""), ("3:a", "+:"), ("ü", "")] {
            let tags = [("team", one), ("type", other), ("x", "y")];
            let tags: BTreeMap<String, String> =
                tags.map(|(name, value)| (name.to_owned(), value.to_owned())).into();
            let value = tally_value(&entry, &tags).unwrap();
            assert_eq!(tally_values(&entry, &value), [one, other]);
            assert_eq!(tally_value("team", &tags).as_deref(), Some(one));
            assert_eq!(tally_values("team", one), [one]);
        }
        let lacks = [("team".to_owned(), "red".to_owned())].into();
        assert_eq!(tally_value(&entry, &lacks), None);
        let check = |entry: &str| check_entries(&[entry.to_owned()].into());
        assert!(check("team+type").is_ok() && check("team").is_ok());
        for (entry, words) in [
            ("a+b+c", "more than two"),
            ("a+a", "twice"),
            ("b+a", "sort them"),
            ("a+", "a name of 0 bytes"),
            ("", "a name of 0 bytes"),
        ] {
            assert!(check(entry).unwrap_err().to_string().contains(words), "{entry}");
        }
    }

    #[test]
    fn hours_begin_on_the_hour() {
        let hour = Hour::of(Timestamp(3_600_000 * 5 + 17));
        assert_eq!((hour, hour.begin()), (Hour(5), Timestamp(3_600_000 * 5)));
        assert_eq!(Hour::of(Timestamp(3_600_000 * 6 - 1)), Hour(5));
        assert_eq!(Hour::oldest(Timestamp(17)), Hour(0));
    }
}
