//! Writes tallies in the same frame as the items that they count, so that a replay applies both or neither.

use super::Engine;
use crate::index::update::IndexUpdate;
use crate::log::record::{self, TallyKey};
use smallvec::SmallVec;
use towline_domain::{Change, Ending, QueueId, limits};
use towline_store::StoreError;

/// The tallies that a finished item adds to.
pub(super) struct Finished {
    queue: QueueId,
    ending: Ending,
    keys: SmallVec<[TallyKey; 1]>,
    /// An upper bound on their bytes, without the tallies that wait to be written anyway.
    pub(super) bytes: usize,
}

/// Tallies to write at the end of the frame.
#[derive(Debug, Default)]
pub(crate) struct UnwrittenTallies {
    keys: Vec<(QueueId, TallyKey)>,
    /// An upper bound on their bytes.
    pub(super) bytes: usize,
}

impl Engine {
    pub(super) fn finished(&self, change: &Change) -> Option<Finished> {
        let finish = change.finish()?;
        let hour = self.index.hour(finish.queue, finish.hour);
        let queue = self.index.queues.get(&finish.queue);
        let values_max =
            queue.map_or(limits::TALLY_VALUES_DEFAULT, |queue| queue.queue.policy.tally_values_max);
        let mut keys = SmallVec::new();
        keys.push((finish.hour, None));
        let none = Default::default();
        let tags = finish.tags.iter().map(|(name, value)| hour.unwrap_or(&none).tag(name, value, values_max));
        keys.extend(tags.map(|tag| (finish.hour, Some(tag))));
        let new = keys.iter().filter(|key| !self.index.is_unwritten(finish.queue, key));
        let bytes = new.map(|(_, tag)| record::tally_bytes(tag.as_ref())).sum();
        Some(Finished { queue: finish.queue, ending: finish.ending, keys, bytes })
    }

    /// Counts a finished item. The caller has decided which frame the item is in.
    pub(super) fn count(&mut self, finished: Finished) {
        let Finished { queue, ending, keys, bytes } = finished;
        self.unwritten_tallies.bytes += bytes;
        for key in keys {
            if self.index.tally(queue, &key, ending) {
                self.unwritten_tallies.keys.push((queue, key));
            }
        }
    }

    /// Writes the tallies that changed in this frame, behind all other records.
    pub(super) fn append_tallies(&mut self) -> Result<(), StoreError> {
        let UnwrittenTallies { mut keys, .. } = std::mem::take(&mut self.unwritten_tallies);
        for (queue, key) in keys.drain(..) {
            // The queue may have been deleted in this frame.
            let Some(tally) = self.index.tallied(queue, &key) else { continue };
            let start = self.frame.len();
            let length = record::encode_tally(&mut self.frame, queue, &key, &tally, self.salt);
            self.sidecar.add(&self.frame[start..], self.active_offset + start as u64);
            let place = self.place(start, length);
            self.apply(IndexUpdate::Tally { queue, key, tally, place })?;
        }
        self.unwritten_tallies.keys = keys;
        Ok(())
    }
}
