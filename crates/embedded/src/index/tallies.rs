//! What finished, hour by hour. The one part of the index that is ahead of its records: an ending counts at once, and the
//! counts it changed are written once, at the end of the frame that it is in.

use super::Index;
use crate::log::record::{RecordPlace, TallyKey};
use std::collections::BTreeMap;
use towline_domain::{Ending, Hour, HourTally, QueueId, Tally, Timestamp};
use towline_store::{TallyRange, TallyRow};

/// Hours of queues forgotten in one go.
const FORGOTTEN_MAX: usize = 256;

/// A count, and the record that says so.
#[derive(Debug, Default)]
pub struct Counted {
    tally: Tally,
    /// `None`: it has not been written yet.
    place: Option<RecordPlace>,
    /// Counted further than its record says.
    ahead: bool,
}

pub type Hours = BTreeMap<Hour, HourTally<Counted>>;

impl Index {
    /// The hour of a queue, if anything finished in it.
    pub fn hour(&self, queue: QueueId, hour: Hour) -> Option<&HourTally<Counted>> {
        self.tallies.get(&queue)?.get(&hour)
    }

    /// Whether the count is to be written at the end of the frame already.
    pub fn is_ahead(&self, queue: QueueId, key: &TallyKey) -> bool {
        let counted = self.hour(queue, key.0).and_then(|hour| hour.get(key.1.as_ref()));
        counted.is_some_and(|counted| counted.ahead)
    }

    /// Counts one more. Whether that is to be written now, and was not to be before.
    pub fn tally(&mut self, queue: QueueId, key: &TallyKey, ending: Ending) -> bool {
        let counted = self.counted(queue, key);
        counted.tally.add(ending);
        !std::mem::replace(&mut counted.ahead, true)
    }

    pub fn tallied(&self, queue: QueueId, key: &TallyKey) -> Option<Tally> {
        self.hour(queue, key.0)?.get(key.1.as_ref()).map(|counted| counted.tally)
    }

    pub fn tally_is_at(&self, queue: QueueId, key: &TallyKey, place: RecordPlace) -> bool {
        let counted = self.hour(queue, key.0).and_then(|hour| hour.get(key.1.as_ref()));
        counted.is_some_and(|counted| counted.place == Some(place))
    }

    /// Every count of every queue, in order.
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

    pub fn tally_rows(&self, queue: QueueId, asked: &TallyRange) -> Vec<TallyRow> {
        let hours = self.tallies.get(&queue);
        hours.map_or_else(Vec::new, |hours| asked.rows(hours, self.now, |counted| counted.tally))
    }

    pub(super) fn put_tally(&mut self, queue: QueueId, key: &TallyKey, tally: Tally, place: RecordPlace) {
        self.add_live(place);
        let counted = self.counted(queue, key);
        counted.tally = tally;
        counted.ahead = false;
        let old = counted.place.replace(place);
        old.into_iter().for_each(|old| self.drop_live(old));
    }

    fn counted(&mut self, queue: QueueId, (hour, tag): &TallyKey) -> &mut Counted {
        let hours = self.tallies.entry(queue).or_default();
        if !hours.contains_key(hour) {
            self.tally_hours.insert((*hour, queue));
        }
        hours.entry(*hour).or_default().slot(tag.as_ref())
    }

    /// Forgets hours that are not kept any more. Nothing is written for it: the same follows from the log and the time.
    pub(super) fn forget_hours(&mut self, now: Timestamp) -> bool {
        let oldest = Hour::oldest(now);
        for _ in 0..FORGOTTEN_MAX {
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

    fn drop_hour(&mut self, gone: &HourTally<Counted>) {
        for place in gone.every().filter_map(|(_, counted)| counted.place) {
            self.drop_live(place);
        }
    }
}
