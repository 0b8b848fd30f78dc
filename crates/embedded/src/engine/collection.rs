//! Collection: carries the live records of the oldest segment forward to the end of the log, so that the segment can be reused.
//!
//! **Invariant:** always the oldest segment first. A removal is behind the records of the item that it removes. In another order,
//! the removal could be dropped before those records, and the item would reappear at the next opening.

use crate::engine::Engine;
use crate::index::references::{ReferenceCheck, Referenced};
use crate::index::update::{IndexUpdate, ItemUpdate};
use crate::log::disk::read_full;
use crate::log::frame;
use crate::log::record::{self, Parts, Record, RecordEncoder, RecordKind, RecordPlace};
use crate::log::segment::{self, HEADER_BYTES, Segment};
use crate::plant::Bug;
use std::sync::Arc;
use towline_domain::{EventKind, QueueId};
use towline_store::StoreError;

/// A segment that is being emptied.
pub(crate) struct Collection {
    segment: Arc<Segment>,
    generation: u64,
    /// The next frame to read.
    offset: u64,
    end: u64,
    /// The records of the present frame, and how many bytes of them are done.
    records: Vec<u8>,
    records_at: u64,
    done: usize,
    /// For a planted bug: the heads when the frame was read.
    stale: Vec<(u64, Vec<u8>)>,
    /// A segment without live bytes is not read. What is to be checked instead.
    check: Option<ReferenceCheck>,
}

/// What a step of such a check costs of the bytes that one call carries forward.
const CHECK_BYTES: usize = 16 << 10;

impl Engine {
    /// Whether the log is larger than twice its live bytes and two more segments.
    pub(crate) fn should_collect(&self) -> bool {
        // A record that does not fit leaves up to its length unused at the end of a segment.
        let usable =
            (self.segment_bytes - HEADER_BYTES).saturating_sub(self.longest).max(self.segment_bytes / 4);
        let usable = if self.longest * 8 < self.segment_bytes { self.segment_bytes } else { usable };
        let allowed = 2 * self.index.live_bytes() / usable + 2;
        let oldest = self.log.front().map_or(u64::MAX, |&number| self.index.live_bytes_of(number));
        // A segment without live records costs nothing to collect. On a full disk, also collect a segment that is half dead, if its
        // live records surely fit.
        let fits = self.room_left() >= oldest.saturating_mul(5) / 4 + self.segment_bytes / 4;
        let gain = oldest == 0 || (self.status.full.is_some() && oldest < self.segment_bytes / 2 && fits);
        self.log.len() > 1 && (self.log.len() as u64 > allowed || gain) && self.status.damage.is_none()
    }

    /// Carries about `budget` bytes forward. Returns whether there is more to do.
    pub fn collect(&mut self, budget: usize) -> Result<bool, StoreError> {
        self.check_poison()?;
        let mut left = budget;
        while left > 0 {
            if self.collection.is_none() && !self.start_collection() {
                return Ok(false);
            }
            let Some(mut collection) = self.collection.take() else {
                return Ok(false);
            };
            let result = self.step(&mut collection, &mut left);
            match result {
                Ok(true) => self.finish_collection(&collection)?,
                Ok(false) => self.collection = Some(collection),
                Err(error) => return Err(error),
            }
        }
        Ok(true)
    }

    fn start_collection(&mut self) -> bool {
        if !self.should_collect() {
            return false;
        }
        let nth = if self.plant(Bug::CollectNewestFirst) { self.log.len() - 2 } else { 0 };
        let Some(in_use) = self.log.get(nth).and_then(|number| self.segments.get(number)) else {
            return false;
        };
        let nothing_lives = self.index.live_bytes_of(in_use.segment.number) == 0;
        self.collection = Some(Collection {
            segment: in_use.segment.clone(),
            generation: in_use.header.generation,
            offset: if nothing_lives { in_use.end } else { HEADER_BYTES },
            end: in_use.end,
            records: Vec::new(),
            records_at: 0,
            done: 0,
            stale: Vec::new(),
            check: nothing_lives.then_some(ReferenceCheck::QueuesAndTallies),
        });
        true
    }

    /// Carries some records forward. Returns whether the segment is done.
    fn step(&mut self, collection: &mut Collection, left: &mut usize) -> Result<bool, StoreError> {
        if let Some(check) = collection.check.take() {
            *left = left.saturating_sub(CHECK_BYTES);
            collection.check = self.check_references(collection.segment.number, check)?;
            return Ok(collection.check.is_none());
        }
        if collection.done >= collection.records.len() {
            if collection.offset >= collection.end {
                return Ok(true);
            }
            if let Err(what) = collection.read_frame(self.salt) {
                let file = segment::file_name(collection.segment.number);
                self.status.damage = Some(format!("{file} at {}: {what}", collection.offset));
                self.stalled = true;
                *left = 0;
                return Ok(false);
            }
            if self.plant(Bug::CarryStaleHead) {
                self.remember_heads(collection);
            }
        }
        while collection.done < collection.records.len() && *left > 0 {
            let bytes = &collection.records[collection.done..];
            let place = |length: usize| RecordPlace {
                segment: collection.segment.number,
                offset: u32::try_from(collection.records_at + collection.done as u64).unwrap_or(u32::MAX),
                length: u32::try_from(length).unwrap_or(u32::MAX),
            };
            // The check of the frame matched, so this is a bug of the store.
            let Ok(record) = Record::peek(bytes) else {
                return Err(self.poison("a record in an intact frame does not read"));
            };
            if !self.can_carry(record.bytes.len()) {
                self.stalled = true;
                *left = 0;
                return Ok(false);
            }
            let before = self.frame.len();
            self.carry(&record, place(record.bytes.len()), &collection.stale)?;
            let carried = self.frame.len().saturating_sub(before);
            self.status.bytes_carried += carried as u64;
            collection.done += record.bytes.len();
            *left = left.saturating_sub(carried + 64);
            if self.group_is_full() {
                self.seal()?;
            }
        }
        Ok(false)
    }

    /// Checks a part of the index: no record of a segment that counts as dead may be current. Returns what is left to check.
    fn check_references(
        &mut self,
        number: u32,
        check: ReferenceCheck,
    ) -> Result<Option<ReferenceCheck>, StoreError> {
        self.index.check_references(number, check).map_err(|Referenced(what)| {
            let file = segment::file_name(number);
            self.poison(&format!("no bytes of {file} count as live, but {what} has a record in it"))
        })
    }

    /// Whether a record fits. On a full disk, the rest of the active segment is reserved for operations that end items.
    fn can_carry(&mut self, bytes: usize) -> bool {
        // The head that is carried along may have grown.
        let needed = bytes as u64 + 4096;
        if self.free.is_empty() && self.room_left() < needed {
            self.make_spare();
        }
        !self.free.is_empty()
            || self.status.full.is_none()
            || self.room_left() >= needed + self.segment_bytes / 8
    }

    /// Appends the current parts of a record to the log again.
    fn carry(
        &mut self,
        record: &Record<'_>,
        at: RecordPlace,
        stale: &[(u64, Vec<u8>)],
    ) -> Result<(), StoreError> {
        let start = self.frame.len();
        match record.kind {
            RecordKind::Item => {
                let sequence = record.subject;
                let parts = self.index.current_parts(sequence, at);
                if parts == 0 {
                    return Ok(());
                }
                // An item of a deleted queue is dead. If it were carried, it could take its id back from a newer item.
                let queue = self.index.table.slot(sequence).map(|slot| slot.queue);
                if queue.is_none_or(|queue| !self.index.queues.contains_key(&queue)) {
                    return self.apply(IndexUpdate::ItemRemoved { sequence });
                }
                self.carry_item(record, parts, stale)
            }
            RecordKind::Queue => {
                let id = QueueId(u32::try_from(record.subject).unwrap_or(u32::MAX));
                let queue = self.index.queues.get(&id).map(|queue| queue.queue.clone());
                let Some(queue) = queue.filter(|_| self.index.queue_is_at(id, at)) else {
                    return Ok(());
                };
                let length =
                    record::encode_queue(&mut self.frame, &queue, Some(EventKind::Carried), self.salt);
                let start = self.fit(start)?;
                let place = self.place(start, length);
                self.apply(IndexUpdate::Queue { queue: Box::new(queue), place })
            }
            RecordKind::Kv => {
                let Ok((key, value)) = record.need(record::HEAD).and_then(record::decode_kv) else {
                    return Err(self.poison("a key-value record in an intact frame does not read"));
                };
                if !self.index.kv_is_at(&key, at) {
                    return Ok(());
                }
                let length = record::encode_kv(&mut self.frame, &key, &value, self.salt);
                let start = self.fit(start)?;
                let place = self.place(start, length);
                self.apply(IndexUpdate::Kv { key, record: value, place })
            }
            RecordKind::Tally => {
                let queue = QueueId(u32::try_from(record.subject).unwrap_or(u32::MAX));
                let Ok((key, _)) = record.need(record::HEAD).and_then(record::decode_tally) else {
                    return Err(self.poison("a tally in an intact frame does not read"));
                };
                let tally = self.index.tallied(queue, &key);
                let Some(tally) = tally.filter(|_| self.index.tally_is_at(queue, &key, at)) else {
                    return Ok(());
                };
                let length = record::encode_tally(&mut self.frame, queue, &key, &tally, self.salt);
                let start = self.fit(start)?;
                let place = self.place(start, length);
                self.apply(IndexUpdate::Tally { queue, key, tally, place })
            }
            // The records that these remove were before them, and were collected.
            RecordKind::ItemRemoved | RecordKind::QueueDeleted | RecordKind::KvDeleted => Ok(()),
        }
    }

    fn carry_item(
        &mut self,
        record: &Record<'_>,
        mut parts: Parts,
        stale: &[(u64, Vec<u8>)],
    ) -> Result<(), StoreError> {
        if self.plant(Bug::CarryDropsErrors) {
            parts &= !record::ERROR;
        }
        let (start, sequence) = (self.frame.len(), record.subject);
        // Every record of an item contains the head: a record must not depend on an older one, which is collected first.
        let Some(head) = self.index.head(sequence) else {
            return Err(self.poison("the index names an item it does not hold"));
        };
        let mut encoder =
            RecordEncoder::new(&mut self.frame, RecordKind::Item, Some(EventKind::Carried), sequence);
        match stale.iter().find(|stale| stale.0 == sequence) {
            Some((_, stale)) => encoder.part(record::HEAD, Some(stale)),
            None => record::encode_head(&mut encoder, &head),
        }
        let mut kept = record::HEAD;
        for part in record.parts() {
            let Ok((part, bytes)) = part else {
                return Err(self.poison("a part of a record in an intact frame does not read"));
            };
            // An unset field is carried, too: the base record may still contain the old value.
            if parts & part != 0 && part != record::HEAD {
                encoder.part(part, bytes);
                kept |= part;
            }
        }
        let length = encoder.finish(self.salt);
        let start = self.fit(start)?;
        let place = self.place(start, length);
        let bytes = &self.frame[start..start + length as usize];
        let update =
            Record::peek(bytes).and_then(|record| IndexUpdate::from_record(&record, place, self.salt));
        match update {
            Ok(IndexUpdate::Item(update)) => {
                self.apply(IndexUpdate::Item(ItemUpdate { parts: kept, ..update }))
            }
            _ => Err(self.poison("a record in an intact frame does not decode")),
        }
    }

    fn finish_collection(&mut self, collection: &Collection) -> Result<(), StoreError> {
        let number = collection.segment.number;
        let live = self.index.live_bytes_of(number);
        // Reusing the segment could lose records. The log still has them, so the next opening finds them.
        if live != 0 {
            let file = segment::file_name(number);
            return Err(self.poison(&format!("{file} is emptied, but {live} bytes of it count as live")));
        }
        self.log.retain(|&other| other != number);
        let in_use = self.segments.remove(&number);
        if let Some(in_use) = in_use.filter(|_| self.retires()) {
            self.retire(in_use);
            return Ok(());
        }
        // The next frame is the first with the later tail. Until it is durable, opening needs this segment.
        self.emptied.push_back((collection.segment.clone(), self.next_frame));
        Ok(())
    }

    fn remember_heads(&self, collection: &mut Collection) {
        let records = Record::all_in(&collection.records).flatten().map(|(_, record)| record);
        let items = records.filter(|record| record.kind == RecordKind::Item);
        let heads =
            items.filter_map(|record| Some((record.subject, record.need(record::HEAD).ok()?.to_vec())));
        collection.stale = heads.collect();
    }
}

impl Collection {
    fn read_frame(&mut self, salt: u64) -> Result<(), String> {
        let mut header = [0; frame::HEADER_BYTES];
        let read = |buffer: &mut [u8], offset| {
            read_full(&*self.segment.file, buffer, offset).map_err(|error| error.to_string())
        };
        read(&mut header, self.offset)?;
        let length =
            frame::peek(&header, self.generation).map(|header| frame::padded(header.length as usize));
        let length = length.filter(|&length| self.offset + length as u64 <= self.end);
        let Some(length) = length else {
            return Err("the frame's header is damaged".to_owned());
        };
        let mut bytes = vec![0; length];
        read(&mut bytes, self.offset)?;
        let Some((header, _)) = frame::read(&bytes, self.generation, salt) else {
            return Err("the frame's checksum does not match".to_owned());
        };
        bytes.drain(..frame::HEADER_BYTES);
        bytes.truncate(header.length as usize);
        self.records = bytes;
        self.records_at = self.offset + frame::HEADER_BYTES as u64;
        self.done = 0;
        self.offset += length as u64;
        Ok(())
    }
}
