//! Positions of frames in segments. A reader that continues finds its position without walking the segment again.

use crate::log::segment::HEADER_BYTES;
use std::collections::{BTreeMap, VecDeque};

/// How many ends of pages are remembered.
const ENDS_MAX: usize = 32;
/// Minimum distance of remembered positions in bytes, and their maximum number.
const MARK_EVERY: u64 = 256 << 10;
const MARKS_MAX: usize = 1 << 16;

/// Where a frame starts.
#[derive(Debug, Clone, Copy)]
pub(super) struct FramePosition {
    pub(super) generation: u64,
    pub(super) frame: u64,
    pub(super) offset: u64,
}

#[derive(Debug, Default)]
pub(super) struct FramePositions {
    /// Where recent pages ended.
    ends: VecDeque<FramePosition>,
    /// Offsets by generation and frame, at intervals, of all segments that were walked.
    marks: BTreeMap<(u64, u64), u64>,
}

impl FramePositions {
    /// The closest known position at or before a frame.
    pub(super) fn before(&self, generation: u64, frame: u64) -> Option<FramePosition> {
        let ends = self.ends.iter().filter(|at| at.generation == generation && at.frame <= frame);
        let mark = self.mark(generation, frame);
        ends.copied().chain(mark).max_by_key(|at| at.frame)
    }

    fn mark(&self, generation: u64, frame: u64) -> Option<FramePosition> {
        let (&(of, frame), &offset) = self.marks.range(..=(generation, frame)).next_back()?;
        (of == generation).then_some(FramePosition { generation, frame, offset })
    }

    /// Remembers a position on the way, unless a position close to it is known.
    pub(super) fn pass(&mut self, at: FramePosition) {
        let last = self.mark(at.generation, at.frame).map_or(HEADER_BYTES, |mark| mark.offset);
        if at.offset - last >= MARK_EVERY {
            self.marks.insert((at.generation, at.frame), at.offset);
            if self.marks.len() > MARKS_MAX {
                self.marks.pop_first();
            }
        }
    }

    /// Remembers where a page ended.
    pub(super) fn end(&mut self, at: FramePosition) {
        self.ends.retain(|known| (known.generation, known.frame) != (at.generation, at.frame));
        self.ends.push_back(at);
        if self.ends.len() > ENDS_MAX {
            self.ends.pop_front();
        }
    }
}
