//! Event ranges: which frames an event page is read from. Retired segments: emptied segments kept for followers.

use crate::engine::{Engine, SegmentInUse};
use crate::log::segment::Segment;
use crate::options::Durability;
use std::sync::Arc;
use std::sync::atomic::Ordering;

/// How many emptied segments are kept for followers, and for how long after the last request of a follower.
const RETIRED_MAX: usize = 2;
const FOLLOWED_MS: u64 = 5000;
/// Stands for all records of a frame in a position.
pub(super) const ALL_RECORDS: u32 = u32::MAX;

/// Where a page starts.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum EventStart {
    Oldest,
    Now,
    /// Behind this record of this frame.
    After(u64, u32),
}

/// The frames of an event page. **Invariant:** it holds the segments that contain them.
#[derive(Debug)]
pub struct EventRange {
    /// A frame, and the last of its records that the reader has seen.
    pub(super) after: (u64, u32),
    /// The last durable frame.
    pub(super) through: u64,
    /// There are later frames that are not durable yet.
    pub(super) more: bool,
    pub(super) segments: Vec<FrameRange>,
}

/// The frames of one segment.
#[derive(Debug, Clone)]
pub(super) struct FrameRange {
    pub(super) segment: Arc<Segment>,
    pub(super) generation: u64,
    pub(super) first_frame: u64,
    pub(super) last_frame: u64,
    pub(super) end: u64,
}

impl EventRange {
    /// About how many bytes a reader reads to get to the page, at most. 0: there are no later events.
    pub(crate) fn bytes(&self) -> u64 {
        let is_over = self.after.1 == ALL_RECORDS && self.after.0 >= self.through;
        if is_over { 0 } else { self.segments.iter().map(|range| range.end).sum() }
    }
}

impl FrameRange {
    fn of(in_use: &SegmentInUse) -> FrameRange {
        FrameRange {
            segment: in_use.segment.clone(),
            generation: in_use.header.generation,
            first_frame: in_use.header.first_frame,
            last_frame: in_use.last_frame,
            end: in_use.end,
        }
    }
}

/// A segment without live records, kept for followers.
#[derive(Debug)]
pub(crate) struct RetiredSegment(FrameRange);

impl Engine {
    /// The frames to read for a page. `None`: the frames behind `start` were overwritten, or never written.
    pub(crate) fn event_range(&self, start: EventStart) -> Option<EventRange> {
        let through = match self.options.durability {
            // The store answers a query only after all earlier frames are durable.
            Durability::Sync => self.written(),
            Durability::Interval(_) => self.synced,
        };
        self.events_read_at.store(self.index.now.0, Ordering::Relaxed);
        let in_use = self.log.iter().filter_map(|number| self.segments.get(number));
        let all =
            || self.retired.iter().map(|retired| retired.0.clone()).chain(in_use.clone().map(FrameRange::of));
        let oldest = all().next().map_or(self.next_frame, |range| range.first_frame);
        let (frame, nth) = match start {
            EventStart::Oldest => (oldest - 1, ALL_RECORDS),
            EventStart::Now => (through, ALL_RECORDS),
            EventStart::After(frame, nth) => (frame, nth),
        };
        let first = if nth == ALL_RECORDS { frame.checked_add(1)? } else { frame };
        if first < oldest || frame > self.written() {
            return None;
        }
        let segments = all()
            .filter(|range| range.last_frame >= first && range.first_frame <= through)
            // A page never needs more.
            .take(2)
            .collect();
        Some(EventRange { after: (frame, nth), through, more: through < self.written(), segments })
    }

    /// Whether a follower asked for events within [`FOLLOWED_MS`], and the disk has space for retired segments.
    fn is_followed(&self) -> bool {
        let read_at = self.events_read_at.load(Ordering::Relaxed);
        let recently = read_at > 0 && self.index.now.0.saturating_sub(read_at) < FOLLOWED_MS;
        recently && self.status.full.is_none()
    }

    /// Whether to retire an emptied segment. While an older segment is retired, later segments must be, too: followers would
    /// not notice a gap.
    pub(crate) fn retires(&self) -> bool {
        self.is_followed() || !self.retired.is_empty()
    }

    /// Keeps an emptied segment for followers.
    pub(crate) fn retire(&mut self, in_use: SegmentInUse) {
        self.retired.push_back(RetiredSegment(FrameRange::of(&in_use)));
        if self.retired.len() > RETIRED_MAX {
            self.release_oldest();
        }
    }

    pub(crate) fn release_retired(&mut self) {
        while !self.retired.is_empty() && !self.is_followed() {
            self.release_oldest();
        }
    }

    fn release_oldest(&mut self) {
        if let Some(RetiredSegment(range)) = self.retired.pop_front() {
            // Frames with a later tail were written before. Waiting for one more does no harm.
            self.emptied.push_back((range.segment, self.next_frame));
        }
    }
}
