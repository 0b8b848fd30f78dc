//! The life of segments: rotation, spares, and reuse of emptied segments.

use super::{Chore, Engine, SegmentInUse};
use crate::log::segment::{self, HEADER_BYTES, Segment, SegmentHeader};
use crate::plant::Bug;
use std::collections::VecDeque;
use std::sync::Arc;
use towline_domain::Millis;
use towline_store::StoreError;

/// Spare segments: one for the next rotation, and one that a full disk reserves for operations that free space and for the next
/// opening.
pub(crate) const SPARES: usize = 2;
/// If the active segment lasts this long, there is time to fill the next one.
const FILL_AFTER: Millis = Millis::seconds(1);

impl Engine {
    /// Generation of the oldest segment in use.
    pub(crate) fn tail(&self) -> u64 {
        self.log
            .front()
            .and_then(|number| self.segments.get(number))
            .map_or(self.next_generation, |in_use| in_use.header.generation)
    }

    /// Continues the log in another segment. Syncs the active segment first, so that only the newest can have a torn tail.
    pub(crate) fn rotate(&mut self) -> Result<(), StoreError> {
        if !self.log.is_empty() && !self.plant(Bug::RecycledTooEarly) {
            self.sync()?;
        }
        self.make_spare();
        let Some(segment) = self.free.pop() else {
            let detail = self.status.full.clone().unwrap_or_default();
            return Err(self.poison(&format!("no spare segment: {detail}")));
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
        self.link_newest()?;
        let sidecar = std::mem::take(&mut self.sidecar);
        if let Some(sealed) = self.log.back().and_then(|number| self.segments.get(number))
            && sealed.written_here
        {
            let plant = self.options.plant;
            let bytes = sidecar.finish(&sealed.header, sealed.end, sealed.last_frame, self.salt, plant);
            self.chores.extend(bytes.map(|bytes| Chore::Sidecar { number: sealed.header.number, bytes }));
        }
        if self.status.rotations == 0 {
            // The first segment had no time to be filled before.
            self.request_fill(&segment);
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

    /// Says in the newest segment that the log goes on behind it. The next segment has a header, and no frame yet.
    fn link_newest(&mut self) -> Result<(), StoreError> {
        let newest = self.log.back().and_then(|number| self.segments.get(number));
        let Some(newest) = newest else { return Ok(()) };
        match newest.segment.write_link(&newest.header, self.salt) {
            Ok(()) => Ok(()),
            Err(error) => {
                let file = segment::file_name(newest.segment.number);
                Err(self.poison(&format!("{file}: {error}")))
            }
        }
    }

    /// Makes spare segments once the active segment is half full, and has the next one filled.
    pub(super) fn ensure_spare(&mut self) {
        if self.active_offset >= self.segment_bytes / 2 || self.status.full.is_some() {
            self.make_spare();
            // A faster log needs the disk itself, and soon has emptied segments to reuse.
            if self.index.now.since(self.rotated_at) >= FILL_AFTER
                && let Some(next) = self.free.last().cloned()
            {
                self.request_fill(&next);
            }
        }
    }

    /// Collection needs a segment to write to besides the one that it empties. If the log is one used segment of which little
    /// lives, a full disk would stay full. So the log goes on in the last spare, and collection makes that segment the spare.
    pub(super) fn leave_dead_segment(&mut self) -> Result<(), StoreError> {
        let Some(&active) = self.log.back().filter(|_| self.log.len() == 1) else { return Ok(()) };
        let is_stuck = self.status.full.is_some() && self.room_left() < self.segment_bytes / 2;
        if is_stuck && !self.free.is_empty() && self.index.live_bytes_of(active) <= self.segment_bytes / 4 {
            self.rotate()?;
        }
        Ok(())
    }

    fn request_fill(&mut self, segment: &Arc<Segment>) {
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

    /// Reuses or removes emptied segments that no reader holds and that the durable log does not need.
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

    /// Whether emptied segments wait for a sync or for their readers.
    pub fn is_reclaiming(&self) -> bool {
        !self.emptied.is_empty()
    }
}
