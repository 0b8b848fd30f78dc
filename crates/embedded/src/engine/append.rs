//! Appends decided changes to the frame and applies them to the index.

use super::Engine;
use super::tallies::Finished;
use crate::index::update::{IndexUpdate, ItemUpdate};
use crate::log::frame::{self, FrameHeader};
use crate::log::record::{self, Indexed, Parts, RecordPlace};
use crate::log::segment;
use crate::plant::{Bug, Plant};
use towline_domain::change::{Answer, QueueChange};
use towline_domain::{Change, EventKind, QueueId};
use towline_store::StoreError;

/// A decided change of an item.
pub(super) struct AppendedItem {
    pub(super) sequence: u64,
    pub(super) change: Change,
    /// What the index keeps of a new item.
    pub(super) indexed: Option<Indexed>,
}

/// A change of an item, encoded at the end of the frame and not yet applied.
struct Encoded {
    sequence: u64,
    change: Change,
    indexed: Option<Indexed>,
    queue_length: u32,
    kv_length: u32,
    length: u32,
    parts: Parts,
}

impl Encoded {
    fn bytes(&self) -> usize {
        self.queue_length as usize + self.kv_length as usize + self.length as usize
    }
}

impl Engine {
    pub(super) fn append_item(&mut self, item: AppendedItem) -> Result<Answer, StoreError> {
        let start = self.frame.len();
        let finished = self.finished(&item.change);
        let encoded = self.encode_item(item);
        let start = self.fit_with(start, finished.as_ref().map_or(0, |finished| finished.bytes))?;
        if let Some(finished) = finished {
            self.count(finished);
        }
        self.apply_encoded(start, encoded)
    }

    /// Appends the changes of one step. They are in one frame, so that a replay applies all of them or none.
    pub(super) fn append_items(&mut self, items: Vec<AppendedItem>) -> Result<(), StoreError> {
        let start = self.frame.len();
        let finishes: Vec<Finished> = items.iter().filter_map(|item| self.finished(&item.change)).collect();
        let encoded: Vec<Encoded> = items.into_iter().map(|item| self.encode_item(item)).collect();
        let mut start = self.fit_with(start, finishes.iter().map(|finished| finished.bytes).sum())?;
        for finished in finishes {
            self.count(finished);
        }
        for encoded in encoded {
            let bytes = encoded.bytes();
            self.apply_encoded(start, encoded)?;
            start += bytes;
        }
        Ok(())
    }

    /// Encodes a change of an item. The completion of its queue and the guarded record come first, in the same frame, so that a
    /// replay applies all of them or none.
    fn encode_item(&mut self, item: AppendedItem) -> Encoded {
        let AppendedItem { sequence, change, indexed } = item;
        let queue_length = match change.queue() {
            Some(QueueChange::Put(queue)) => {
                record::encode_queue(&mut self.frame, queue, Some(EventKind::QueueCompleted), self.salt)
            }
            _ => 0,
        };
        let kv_length = match change.record() {
            Some((key, after)) => record::encode_kv(&mut self.frame, key, after, self.salt),
            None => 0,
        };
        let chosen = match &indexed {
            Some(indexed) => indexed.id,
            None => self.index.chosen_id(sequence),
        };
        let (length, parts) =
            record::encode_change(&mut self.frame, &change, sequence, indexed.as_ref(), chosen, self.salt);
        self.metrics.add(&change, self.index.now);
        Encoded { sequence, change, indexed, queue_length, kv_length, length, parts }
    }

    /// Applies a change whose records begin at `start` of the frame.
    fn apply_encoded(&mut self, start: usize, encoded: Encoded) -> Result<Answer, StoreError> {
        let Encoded { sequence, change, indexed, queue_length, kv_length, length, mut parts } = encoded;
        let kv_start = start + queue_length as usize;
        let place = self.place(kv_start + kv_length as usize, length);
        if let Some(QueueChange::Put(queue)) = change.queue() {
            let place = self.place(start, queue_length);
            self.apply(IndexUpdate::Queue { queue: queue.clone(), place })?;
        }
        if let Some((key, after)) = change.record() {
            let place = self.place(kv_start, kv_length);
            self.apply(IndexUpdate::Kv { key: key.clone(), record: after.clone(), place })?;
        }
        if self.plant(Bug::EditOverwritesAll) && parts & record::FIELDS != 0 {
            parts |= record::FIELDS;
        }
        let (head, answer) = change.into_head_and_answer();
        let entry = match head {
            None => IndexUpdate::ItemRemoved { sequence },
            Some(head) => {
                let error_ordinal = head.revision;
                let indexed = indexed.map(Box::new);
                IndexUpdate::Item(ItemUpdate {
                    sequence,
                    place,
                    parts,
                    head: Some(head),
                    indexed,
                    error_ordinal,
                })
            }
        };
        if self.plant(Bug::KeyOutsideBatch)
            && let IndexUpdate::Item(item) = &entry
            && item.indexed.is_some()
        {
            self.keys_withheld.push(entry);
            return Ok(answer);
        }
        self.apply(entry)?;
        Ok(answer)
    }

    pub(super) fn append_queue(&mut self, id: Option<QueueId>, change: &Change) -> Result<(), StoreError> {
        let start = self.frame.len();
        match (change.queue(), id) {
            (Some(QueueChange::Put(queue)), _) => {
                let length = record::encode_queue(&mut self.frame, queue, change.event(), self.salt);
                let start = self.fit(start)?;
                let place = self.place(start, length);
                self.apply(IndexUpdate::Queue { queue: queue.clone(), place })
            }
            (Some(QueueChange::Deleted), Some(id)) => {
                let name = self.index.queues.get(&id).map(|queue| queue.queue.name.clone());
                record::encode_queue_deleted(&mut self.frame, id, name.as_ref(), self.salt);
                self.fit(start)?;
                self.apply(IndexUpdate::QueueDeleted { id, name })
            }
            _ => Ok(()),
        }
    }

    pub(crate) fn apply(&mut self, entry: IndexUpdate) -> Result<(), StoreError> {
        self.index.apply(entry).map_err(|error| self.poison(error.0))
    }

    /// Keeps the records encoded from `start` on in one frame: moves them to the next segment if this one is full. Returns
    /// their start in the frame.
    pub(crate) fn fit(&mut self, start: usize) -> Result<usize, StoreError> {
        self.fit_with(start, 0)
    }

    /// Like [`Engine::fit`], with space for `more` bytes at the end of the frame.
    pub(super) fn fit_with(&mut self, start: usize, more: usize) -> Result<usize, StoreError> {
        let mut start = start;
        let length = self.frame.len() - frame::HEADER_BYTES + self.unwritten_tallies.bytes + more;
        if self.active_offset + frame::padded(length) as u64 > self.segment_bytes {
            let moved = self.frame.split_off(start);
            if self.frame.len() > frame::HEADER_BYTES {
                self.write_frame()?;
            }
            self.rotate()?;
            frame::begin(&mut self.frame);
            start = self.frame.len();
            self.frame.extend_from_slice(&moved);
        }
        self.longest = self.longest.max((self.frame.len() - start) as u64);
        self.sidecar.add(&self.frame[start..], self.active_offset + start as u64);
        Ok(start)
    }

    /// The place of a record of the present frame.
    pub(crate) fn place(&self, start: usize, length: u32) -> RecordPlace {
        RecordPlace {
            segment: self.log.back().copied().unwrap_or(u32::MAX),
            offset: u32::try_from(self.active_offset + start as u64).unwrap_or(u32::MAX),
            length,
        }
    }

    pub(super) fn write_frame(&mut self) -> Result<(), StoreError> {
        self.append_tallies()?;
        let Some(&number) = self.log.back() else {
            return Err(self.poison("there is no active segment"));
        };
        let tail = self.tail();
        let Some(in_use) = self.segments.get_mut(&number) else {
            return Err(self.poison("the active segment is unknown"));
        };
        let header = FrameHeader {
            length: 0,
            sequence: self.next_frame,
            generation: in_use.header.generation,
            synced: self.synced,
            time: self.index.now.0,
            next_item: self.next_item,
            tail,
            next_queue: self.next_queue,
        };
        frame::finish(&mut self.frame, header, self.salt);
        let result = in_use.segment.write(&self.frame, self.active_offset);
        in_use.last_frame = self.next_frame;
        self.active_offset += self.frame.len() as u64;
        in_use.end = self.active_offset;
        self.sidecar.frame_written();
        self.next_frame += 1;
        self.status.frames += 1;
        self.status.bytes_written += self.frame.len() as u64;
        frame::begin(&mut self.frame);
        match result {
            Err(error) if !Plant::has(self.options.plant, Bug::IgnoreWriteError) => {
                Err(self.poison(&format!("{}: write: {error}", segment::file_name(number))))
            }
            _ => Ok(()),
        }
    }
}
