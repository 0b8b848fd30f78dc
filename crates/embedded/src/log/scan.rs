//! Walks the frames of a segment, and tells a write cut short by a crash from damage.

use crate::log::disk::read_full;
use crate::log::frame::{self, FrameHeader};
use crate::log::segment::{HEADER_BYTES, Segment, SegmentHeader};
use std::io;

/// The bytes of a whole segment.
pub struct SegmentBytes {
    bytes: Vec<u8>,
}

/// Where the whole frames of a segment end.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct End {
    pub offset: u64,
    pub next_frame: u64,
    pub last: Option<FrameHeader>,
}

/// How suspicious to be.
#[derive(Debug, Clone, Copy)]
pub struct Checks {
    pub salt: u64,
    /// For planted bugs: frames left over from an earlier use of the segment are taken, and damaged ones.
    pub no_generation: bool,
    pub no_frame: bool,
}

impl SegmentBytes {
    pub fn read(segment: &Segment, size: u64, buffer: Vec<u8>) -> io::Result<SegmentBytes> {
        let mut bytes = buffer;
        bytes.resize(usize::try_from(size).unwrap_or(usize::MAX), 0);
        let length = read_full(&*segment.file, &mut bytes, 0)?;
        bytes.truncate(length);
        Ok(SegmentBytes { bytes })
    }

    pub fn into_buffer(self) -> Vec<u8> {
        self.bytes
    }

    pub fn len(&self) -> u64 {
        self.bytes.len() as u64
    }

    fn frame(&self, offset: u64, generation: u64, checks: Checks) -> Option<(FrameHeader, &[u8])> {
        let bytes = self.bytes.get(usize::try_from(offset).ok()?..)?;
        let generation = if checks.no_generation { frame::claimed_generation(bytes)? } else { generation };
        if checks.no_frame {
            let header = frame::peek(bytes, generation)?;
            let records = bytes.get(frame::HEADER_BYTES..frame::HEADER_BYTES + header.length as usize)?;
            return Some((header, records));
        }
        frame::read(bytes, generation, checks.salt)
    }

    /// Calls `visit` with each whole frame in turn: its header, where its records begin, and the records.
    pub fn frames<E>(
        &self,
        header: &SegmentHeader,
        checks: Checks,
        mut visit: impl FnMut(&FrameHeader, u64, &[u8]) -> Result<(), E>,
    ) -> Result<End, E> {
        let mut end = End { offset: HEADER_BYTES, next_frame: header.first_frame, last: None };
        while let Some((found, records)) = self.frame(end.offset, header.generation, checks) {
            if found.sequence != end.next_frame && !checks.no_generation {
                break;
            }
            visit(&found, end.offset + frame::HEADER_BYTES as u64, records)?;
            end.offset += frame::padded(found.length as usize) as u64;
            end.next_frame = found.sequence + 1;
            end.last = Some(found);
        }
        Ok(end)
    }

    /// The first frame, whatever generation it claims.
    pub fn first_frame(&self, checks: Checks) -> Option<FrameHeader> {
        let generation = frame::claimed_generation(self.bytes.get(HEADER_BYTES as usize..)?)?;
        self.frame(HEADER_BYTES, generation, checks).map(|(found, _)| found)
    }

    /// The frames up to `end` that the last of them does not know to be durable: where they begin, and their bytes.
    pub fn unsure(&self, header: &SegmentHeader, end: &End, checks: Checks) -> (u64, Vec<u8>) {
        let synced = end.last.map_or(0, |last| last.synced);
        let mut from = end.offset;
        let _ = self.frames(header, checks, |found, offset, _| {
            if found.sequence > synced {
                from = from.min(offset - frame::HEADER_BYTES as u64);
            }
            Ok::<_, ()>(())
        });
        (from, self.bytes[from as usize..end.offset as usize].to_vec())
    }

    /// A later whole frame that was written when the one missing at `end` was durable already: proof of damage.
    pub fn proof_of_damage(&self, header: &SegmentHeader, end: &End, checks: Checks) -> Option<FrameHeader> {
        self.later_frames(header, end.offset, checks)
            .map(|(_, found)| found)
            .find(|found| found.sequence > end.next_frame && found.synced >= end.next_frame)
    }

    /// Whole frames of this generation anywhere behind `offset`.
    fn later_frames(
        &self,
        header: &SegmentHeader,
        offset: u64,
        checks: Checks,
    ) -> impl Iterator<Item = (u64, FrameHeader)> + '_ {
        let generation = header.generation;
        let mut at = (offset + 1).next_multiple_of(8);
        std::iter::from_fn(move || {
            while at + frame::HEADER_BYTES as u64 <= self.len() {
                let here = at;
                at += 8;
                if let Some((found, _)) = self.frame(here, generation, checks) {
                    at = here + frame::padded(found.length as usize) as u64;
                    return Some((here, found));
                }
            }
            None
        })
    }
}
