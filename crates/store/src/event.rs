//! The events of a store in order, and cursors into them.
//!
//! Every change has its events exactly once, in the order in which changes were carried out. A refused operation has none.
//! A store keeps events for a limited time. A reader whose cursor is too old gets [`Events::Gone`], never a gap.

use std::collections::BTreeMap;
use std::fmt;
use std::str::FromStr;
use towline_domain::{EventKind, ItemEvent, QueueName, Timestamp, digest};

/// The position of an event in one store. Later events have larger ids, also after the store is reopened.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct EventId {
    /// The store that the id belongs to.
    pub store: u32,
    /// The group of changes that became durable together.
    pub group: u64,
    pub nth: u32,
}

impl EventId {
    /// Identifies a store in event ids. Does not reveal the store's salt. A copy of a store (a restored backup or dump) has
    /// the same salt and another history, so the cursors of one are not valid in the other.
    #[must_use]
    pub fn store_of(salt: u64, history: u32) -> u32 {
        (digest::tag("events of", &format!("{salt} {history}")) >> 32) as u32
    }
}

/// The position of a reader: after one event of each store that it reads.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct EventCursor(BTreeMap<u32, (u64, u32)>);

/// At most 64 shards, with at most 40 characters each.
const CURSOR_BYTES_MAX: usize = 64 * 40;

impl EventCursor {
    /// Moves the position in the event's store to after the event, forward or back.
    pub fn pass(&mut self, id: EventId) {
        self.0.insert(id.store, (id.group, id.nth));
    }

    #[must_use]
    pub fn after(id: EventId) -> EventCursor {
        let mut cursor = EventCursor::default();
        cursor.pass(id);
        cursor
    }

    /// After all events of this group.
    #[must_use]
    pub fn after_group(store: u32, group: u64) -> EventCursor {
        EventCursor::after(EventId { store, group, nth: u32::MAX })
    }

    /// The number of stores that the reader has a position in.
    #[must_use]
    pub fn stores(&self) -> usize {
        self.0.len()
    }

    /// The position in one store.
    #[must_use]
    pub fn in_store(&self, store: u32) -> Option<EventId> {
        self.0.get(&store).map(|&(group, nth)| EventId { store, group, nth })
    }

    /// Takes the positions of the other cursor in all stores of that cursor.
    pub fn join(&mut self, other: &EventCursor) {
        self.0.extend(other.0.iter().map(|(&store, &at)| (store, at)));
    }

    /// Takes the positions of the other cursor that are later.
    pub fn advance(&mut self, other: &EventCursor) {
        for (&store, &at) in &other.0 {
            let mine = self.0.entry(store).or_insert(at);
            *mine = at.max(*mine);
        }
    }

    /// Whether the cursor is at or after this event.
    #[must_use]
    pub fn has_passed(&self, id: EventId) -> bool {
        self.in_store(id.store).is_some_and(|at| at >= id)
    }

    /// Whether the cursor is at or after the other in every store of the other.
    #[must_use]
    pub fn has_reached(&self, other: &EventCursor) -> bool {
        other.0.iter().all(|(store, at)| self.0.get(store).is_some_and(|mine| mine >= at))
    }
}

impl fmt::Display for EventCursor {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (at, (store, (group, nth))) in self.0.iter().enumerate() {
            let separator = if at > 0 { "." } else { "" };
            write!(f, "{separator}{store:08x}-{group}-{nth}")?;
        }
        Ok(())
    }
}

impl FromStr for EventCursor {
    type Err = String;

    fn from_str(text: &str) -> Result<EventCursor, String> {
        let wrong = || {
            format!(
                "{:?} is not an event id; use the id of an event",
                text.chars().take(64).collect::<String>()
            )
        };
        if text.len() > CURSOR_BYTES_MAX {
            return Err(wrong());
        }
        let mut cursor = EventCursor::default();
        for part in text.split('.') {
            let mut numbers = part.split('-');
            let (Some(store), Some(group), Some(nth), None) =
                (numbers.next(), numbers.next(), numbers.next(), numbers.next())
            else {
                return Err(wrong());
            };
            let digits = |text: &str| !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_hexdigit());
            if store.len() != 8 || !digits(store) || !digits(group) || !digits(nth) {
                return Err(wrong());
            }
            let store = u32::from_str_radix(store, 16).map_err(|_| wrong())?;
            let id = EventId {
                store,
                group: group.parse().map_err(|_| wrong())?,
                nth: nth.parse().map_err(|_| wrong())?,
            };
            cursor.pass(id);
        }
        Ok(cursor)
    }
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Event {
    pub id: EventId,
    /// When it happened, by the store's clock.
    pub at: Timestamp,
    pub kind: EventKind,
    /// `None`: the queue was deleted, and its name is no longer stored.
    pub queue: Option<QueueName>,
    pub item: Option<ItemEvent>,
}

/// Where to start reading events.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum EventsFrom {
    /// At the oldest stored event.
    Oldest,
    /// At the end: returns an empty page with the cursor of the end.
    Now,
    After(EventCursor),
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Events {
    Page(EventPage),
    /// Events after the cursor are no longer stored.
    Gone,
    /// The cursor belongs to other stores.
    Elsewhere,
}

/// Events in order. The work for a page is bounded, so an empty page can be followed by more.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct EventPage {
    pub events: Vec<Event>,
    pub next: EventCursor,
    /// More events follow.
    pub more: bool,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_cursor_is_printed_and_parsed() {
        let mut cursor = EventCursor::after(EventId { store: 0xab, group: 17, nth: 3 });
        assert_eq!(cursor.to_string(), "000000ab-17-3");
        cursor.join(&EventCursor::after_group(u32::MAX, u64::MAX));
        assert_eq!(cursor.to_string(), format!("000000ab-17-3.ffffffff-{}-{}", u64::MAX, u32::MAX));
        assert_eq!(cursor.to_string().parse(), Ok(cursor));
    }

    #[test]
    fn malformed_cursors_are_refused() {
        let long = vec!["000000ab-17-3"; 1000].join(".");
        let bad = [
            "",
            "x",
            "17",
            "ab-17-3",
            "000000ab-17",
            "000000ab-17-3-4",
            "000000ab-17-3.",
            "000000ab--3",
            "000000ab-+17-3",
            "000000ab-17-99999999999",
            "000000ab-99999999999999999999999-0",
            "+00000ab-1-1",
            &long,
        ];
        for bad in bad {
            assert!(bad.parse::<EventCursor>().is_err(), "{bad}");
        }
    }

    #[test]
    fn a_cursor_is_compared_with_events_and_cursors() {
        let id = |store, group, nth| EventId { store, group, nth };
        let cursor = EventCursor::after(id(1, 5, 2));
        assert!(cursor.has_passed(id(1, 5, 2)) && cursor.has_passed(id(1, 4, 9)));
        assert!(!cursor.has_passed(id(1, 5, 3)) && !cursor.has_passed(id(2, 0, 0)));
        let mut both = cursor.clone();
        both.pass(id(2, 1, 0));
        assert!(both.has_reached(&cursor) && !cursor.has_reached(&both));
    }
}
