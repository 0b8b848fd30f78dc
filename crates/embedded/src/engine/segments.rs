//! Segments: going on in the next one, keeping one in reserve, taking emptied ones back, and running out of them.

use super::{Chore, Engine, SegmentInUse};
use crate::log::segment::{self, HEADER_BYTES, Segment, SegmentHeader};
use crate::plant::Bug;
use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;
use towline_domain::command::Verb;
use towline_domain::kv::KvCommand;
use towline_domain::{Body, Fields, Item, Json, Millis, Outcome, Refusal, limits};
use towline_store::{Operation, StoreError};

/// Segments in reserve: one to go on in, and one that a full disk leaves to what frees space and to the next opening.
pub(crate) const SPARES: usize = 2;
/// A segment that lasts this long leaves time to fill the next one.
const FILL_AFTER: Millis = Millis::seconds(1);

/// Counts of an item that ends, by every tag it may be counted by: at most.
const TALLIES: usize =
    limits::TALLY_TAGS_MAX * (limits::TAG_KEY_BYTES_MAX + limits::TAG_VALUE_BYTES_MAX + 128) + 128;

impl Engine {
    /// Generation of the oldest segment in use.
    pub(crate) fn tail(&self) -> u64 {
        self.log
            .front()
            .and_then(|number| self.segments.get(number))
            .map_or(self.next_generation, |in_use| in_use.header.generation)
    }

    /// Goes on in another segment. Everything before it is durable first, so the log has one end at most.
    pub(crate) fn rotate(&mut self) -> Result<(), StoreError> {
        if !self.log.is_empty() && !self.plant(Bug::RecycledTooEarly) {
            self.sync()?;
        }
        self.make_spare();
        let Some(segment) = self.free.pop() else {
            let detail = self.status.full.clone().unwrap_or_default();
            return Err(self.poison(&format!("no segment to go on in: {detail}")));
        };
        let generation = self.next_generation;
        let header = SegmentHeader {
            number: segment.number,
            next_queue: self.next_queue,
            generation,
            first_frame: self.next_frame,
            time: self.index.now.0,
            next_item: self.next_item,
            tail: if self.log.is_empty() { generation } else { self.tail() },
            size: self.segment_bytes,
        };
        if let Err(error) = segment.write_header(&header, self.salt) {
            return Err(self.poison(&format!("{}: {error}", segment::file_name(segment.number))));
        }
        let sidecar = std::mem::take(&mut self.sidecar);
        if let Some(sealed) = self.log.back().and_then(|number| self.segments.get(number))
            && sealed.written_here
        {
            let plant = self.options.plant;
            let bytes = sidecar.finish(&sealed.header, sealed.end, sealed.last_frame, self.salt, plant);
            self.chores.extend(bytes.map(|bytes| Chore::Sidecar { number: sealed.header.number, bytes }));
        }
        if self.status.rotations == 0 {
            // Nobody had the time to do it before.
            self.have_filled(&segment);
        }
        self.rotated_at = self.index.now;
        self.next_generation += 1;
        self.status.rotations += 1;
        self.active_offset = HEADER_BYTES;
        self.log.push_back(segment.number);
        let last_frame = self.next_frame - 1;
        let in_use = SegmentInUse { header, end: HEADER_BYTES, last_frame, written_here: true, segment };
        self.segments.insert(in_use.segment.number, in_use);
        Ok(())
    }

    /// Keeps a segment in reserve once the one being written is half full, and has it filled.
    pub(super) fn ensure_spare(&mut self) {
        if self.active_offset >= self.segment_bytes / 2 || self.status.full.is_some() {
            self.make_spare();
            // A log that grows this fast has better use for the disk, and soon has segments to write over.
            if self.index.now.since(self.rotated_at) >= FILL_AFTER
                && let Some(next) = self.free.last().cloned()
            {
                self.have_filled(&next);
            }
        }
    }

    fn have_filled(&mut self, segment: &Arc<Segment>) {
        if self.options.fill && segment.wants_fill() {
            let size = self.segment_bytes;
            self.chores.push(Chore::Fill { segment: Arc::downgrade(segment), size });
        }
    }

    pub(crate) fn make_spare(&mut self) {
        while self.free.len() < SPARES {
            match Segment::create(&*self.disk, self.next_number, self.segment_bytes) {
                Ok(segment) => {
                    self.next_number += 1;
                    self.free.push(Arc::new(segment));
                }
                Err(error) => {
                    self.status.full = Some(format!("{}: {error}", self.disk.directory()));
                    return;
                }
            }
        }
        self.status.full = None;
    }

    /// Takes back emptied segments that nobody reads any more and that the durable log no longer needs.
    pub(super) fn reclaim(&mut self) {
        let early = self.plant(Bug::RecycledTooEarly);
        let mut kept = VecDeque::new();
        for (segment, frame) in std::mem::take(&mut self.emptied) {
            if (frame > self.synced && !early) || Arc::strong_count(&segment) > 1 {
                kept.push_back((segment, frame));
            } else if self.free.len() < SPARES && segment.has_room(self.segment_bytes) {
                segment.clear();
                self.free.push(segment);
            } else {
                self.chores.push(Chore::Remove { segment });
            }
        }
        self.emptied = kept;
    }

    /// Whether emptied segments wait for the log to be durable, or for their readers.
    pub fn is_reclaiming(&self) -> bool {
        !self.emptied.is_empty()
    }

    /// No spare segment, and the one being written is nearly full: nothing more can be taken.
    pub(super) fn out_of_room(&self) -> bool {
        self.free.is_empty() && self.room_left() < self.segment_bytes / 32
    }

    /// Whether one more lease has a place to go. On a full disk leases leave the last segment to what frees space.
    pub(super) fn has_room(&mut self) -> bool {
        if self.room_left() < self.segment_bytes / 8 && self.free.len() < SPARES {
            self.make_spare();
        }
        self.status.full.is_none() || self.room_left() >= self.segment_bytes / 8
    }

    /// Bytes that still fit into the segment being written.
    pub(crate) fn room_left(&self) -> u64 {
        let taken = self.frame.len() + self.unwritten_tallies.bytes;
        self.segment_bytes.saturating_sub(self.active_offset + taken as u64)
    }

    /// Refuses what is too large for a segment and, on a full disk, first submits, then leases, last what frees space.
    pub(super) fn check_room(&mut self, operation: &Operation) -> Option<Refusal> {
        let bytes = operation_bytes(operation) as u64;
        let max = self.segment_bytes - 4 * HEADER_BYTES;
        if bytes > max {
            return Some(Refusal::TooLarge { what: "the item", bytes, max });
        }
        let bytes = bytes + TALLIES as u64;
        let left = self.room_left();
        if left < bytes && self.free.len() < SPARES {
            self.make_spare();
        }
        let detail = self.status.full.as_ref()?;
        let (needed, may_go_on) = match operation.asked() {
            Operation::Submit { .. } | Operation::Restore(_) | Operation::CreateQueue { .. } => {
                (self.segment_bytes / 4, false)
            }
            Operation::Receive(_) => (self.segment_bytes / 8, false),
            Operation::Lease { call, .. } if matches!(call.verb, Verb::Heartbeat { .. } | Verb::Edit) => {
                (self.segment_bytes / 8, false)
            }
            Operation::Kv {
                command:
                    KvCommand::Set { .. }
                    | KvCommand::SetIfAbsent { .. }
                    | KvCommand::Replace { value: Some(_), .. },
                ..
            } => (self.segment_bytes / 8, false),
            Operation::Sweep => return None,
            _ => (0, !self.free.is_empty()),
        };
        let fits = left >= bytes + needed || may_go_on;
        (!fits).then(|| Refusal::DiskFull { detail: detail.clone() })
    }
}

/// What an item waits for, at most: ids, or a name.
const AFTER_BYTES: usize = limits::AFTER_ITEMS_MAX * 20 + limits::LABEL_BYTES_MAX;

/// An upper bound on what an operation adds to the log, payload aside from a small constant.
pub(crate) fn operation_bytes(operation: &Operation) -> usize {
    const OVERHEAD: usize = 1024;
    let variable = match operation.asked() {
        Operation::Submit { submission, .. } => {
            let record = submission.record_guard.as_ref().map_or(0, |once| once.key.len() + once.next.len());
            let after = submission.after.as_ref().map_or(0, |_| AFTER_BYTES);
            content_bytes(&submission.body, &submission.fields) + record + after
        }
        Operation::Restore(restore) => {
            let Item { body, fields, outcome, errors, .. } = &restore.item;
            let errors = errors.iter().map(|error| error.message.len() + OVERHEAD);
            let after = restore.item.head.dependency().map_or(0, |_| AFTER_BYTES);
            content_bytes(body, fields) + outcome_bytes(outcome) + errors.sum::<usize>() + after
        }
        Operation::Lease { call, .. } => {
            let edits = &call.adjust.edits;
            let fields =
                towline_domain::Field::ALL.into_iter().filter_map(|field| edits.get(field)?.as_ref());
            let outcome = match &call.verb {
                Verb::Commit(outcome) => outcome_bytes(outcome),
                _ => limits::REASON_BYTES_MAX,
            };
            fields.map(bytes::Bytes::len).sum::<usize>() + outcome
        }
        Operation::Kv { key, command } => {
            key.len()
                + match command {
                    KvCommand::Set { value, .. }
                    | KvCommand::SetIfAbsent { value, .. }
                    | KvCommand::Replace { value: Some(value), .. } => value.len(),
                    _ => 0,
                }
        }
        Operation::ResolveDependency { .. } => AFTER_BYTES + limits::REASON_BYTES_MAX,
        _ => 0,
    };
    OVERHEAD + variable
}

fn content_bytes(body: &Body, fields: &Fields) -> usize {
    let tags: usize = body.tags.iter().map(|(name, value)| name.len() + value.len() + 24).sum();
    let inputs = body.inputs.iter().map(|(slot, buffer)| slot.as_str().len() + buffer.as_str().len() + 8);
    let trace = body.trace.as_ref().map_or(0, |_| limits::TRACESTATE_BYTES_MAX + 32);
    let labels = 4 * limits::LABEL_BYTES_MAX;
    fields.bytes() + params_bytes(&body.params) + tags + inputs.sum::<usize>() + labels + trace
}

fn outcome_bytes(outcome: &Outcome) -> usize {
    params_bytes(&outcome.output_params) + outcome.outputs.len() * 400
}

fn params_bytes(params: &BTreeMap<String, Json>) -> usize {
    params.iter().map(|(name, value)| name.len() + value.as_str().len() + 8).sum()
}
