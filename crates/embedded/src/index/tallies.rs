//! Tallies: how many items finished, by queue and hour. The only part of the index that is ahead of the log: an item counts at
//! once, and the changed tallies are written together at the end of the frame.

use super::Index;
use crate::log::record::{RecordPlace, TallyKey};
use std::collections::BTreeMap;
use towline_domain::{Ending, Hour, HourTally, QueueId, Tally, Timestamp};
use towline_store::{TallyRange, TallyRow};

/// Maximum number of hours of queues that one call drops.
const DROPPED_MAX: usize = 256;

/// A tally and its latest record.
#[derive(Debug, Default)]
pub struct IndexedTally {
    tally: Tally,
    /// `None`: not written yet.
    place: Option<RecordPlace>,
    /// The tally is newer than its record, and waits for the end of the frame.
    unwritten: bool,
}

pub type Hours = BTreeMap<Hour, HourTally<IndexedTally>>;

impl Index {
    /// The tallies of a queue in an hour. `None`: no item finished.
    pub fn hour(&self, queue: QueueId, hour: Hour) -> Option<&HourTally<IndexedTally>> {
        self.tallies.get(&queue)?.get(&hour)
    }

    /// Whether the tally already waits for the end of the frame.
    pub fn is_unwritten(&self, queue: QueueId, key: &TallyKey) -> bool {
        let counted = self.hour(queue, key.0).and_then(|hour| hour.get(key.1.as_ref()));
        counted.is_some_and(|counted| counted.unwritten)
    }

    /// Counts one item. Returns whether the tally now waits for the end of the frame and did not before.
    pub fn tally(&mut self, queue: QueueId, key: &TallyKey, ending: Ending) -> bool {
        let counted = self.counted(queue, key);
        counted.tally.add(ending);
        !std::mem::replace(&mut counted.unwritten, true)
    }

    pub fn tallied(&self, queue: QueueId, key: &TallyKey) -> Option<Tally> {
        self.hour(queue, key.0)?.get(key.1.as_ref()).map(|counted| counted.tally)
    }

    pub fn tally_is_at(&self, queue: QueueId, key: &TallyKey, place: RecordPlace) -> bool {
        let counted = self.hour(queue, key.0).and_then(|hour| hour.get(key.1.as_ref()));
        counted.is_some_and(|counted| counted.place == Some(place))
    }

    /// Whether a segment has the latest record of a tally.
    pub(super) fn has_tally_in(&self, segment: u32) -> bool {
        let every = self.tallies.values().flat_map(BTreeMap::values).flat_map(HourTally::every);
        every.filter_map(|(_, counted)| counted.place).any(|place| place.segment == segment)
    }

    /// All tallies of all queues, in order.
    pub fn all_tallies(&self) -> Vec<(QueueId, TallyKey, Tally)> {
        let mut all = Vec::new();
        for (&queue, hours) in self.tallies.iter().filter(|(queue, _)| self.queues.contains_key(queue)) {
            for (&hour, counts) in hours {
                all.extend(counts.every().map(|(tag, counted)| (queue, (hour, tag), counted.tally)));
            }
        }
        all.sort_by_key(|(queue, (hour, _), _)| (*queue, *hour));
        all
    }

    pub fn tally_rows(&self, queue: QueueId, range: &TallyRange) -> Vec<TallyRow> {
        let hours = self.tallies.get(&queue);
        hours.map_or_else(Vec::new, |hours| range.rows(hours, self.now, |counted| counted.tally))
    }

    pub(super) fn put_tally(&mut self, queue: QueueId, key: &TallyKey, tally: Tally, place: RecordPlace) {
        self.add_live(place);
        let counted = self.counted(queue, key);
        counted.tally = tally;
        counted.unwritten = false;
        let old = counted.place.replace(place);
        old.into_iter().for_each(|old| self.drop_live(old));
    }

    fn counted(&mut self, queue: QueueId, (hour, tag): &TallyKey) -> &mut IndexedTally {
        let hours = self.tallies.entry(queue).or_default();
        if !hours.contains_key(hour) {
            self.tally_hours.insert((*hour, queue));
        }
        hours.entry(*hour).or_default().slot(tag.as_ref())
    }

    /// Drops hours that are past their retention. Writes no record: log and time give the same result at a replay. Returns
    /// whether there may be more.
    pub(super) fn forget_hours(&mut self, now: Timestamp) -> bool {
        let oldest = Hour::oldest(now);
        for _ in 0..DROPPED_MAX {
            let Some(&(hour, queue)) = self.tally_hours.first().filter(|first| first.0 < oldest) else {
                return false;
            };
            self.tally_hours.pop_first();
            let hours = self.tallies.get_mut(&queue);
            if let Some(gone) = hours.and_then(|hours| hours.remove(&hour)) {
                self.drop_hour(&gone);
            }
        }
        true
    }

    pub(super) fn forget_tallies_of(&mut self, queue: QueueId) {
        for (hour, gone) in self.tallies.remove(&queue).unwrap_or_default() {
            self.tally_hours.remove(&(hour, queue));
            self.drop_hour(&gone);
        }
    }

    fn drop_hour(&mut self, gone: &HourTally<IndexedTally>) {
        for place in gone.every().filter_map(|(_, counted)| counted.place) {
            self.drop_live(place);
        }
    }
}
