//! Walks the frames of a segment, and distinguishes a torn tail from damage.
//!
//! A crash can cut the last write short: the log then ends in a torn tail, which was never acknowledged. Every frame stores
//! which frames were durable when it was written. So a missing frame is damage if a later frame calls it durable.

use crate::log::disk::read_full;
use crate::log::frame::{self, FrameHeader};
use crate::log::segment::{HEADER_BYTES, Segment, SegmentHeader};
use std::io;

/// All bytes of a segment.
pub struct SegmentBytes {
    bytes: Vec<u8>,
}

/// Where the intact frames of a segment end.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct FramesEnd {
    pub offset: u64,
    pub next_frame: u64,
    pub last: Option<FrameHeader>,
}

/// Which checks a scan makes.
#[derive(Debug, Clone, Copy)]
pub struct Checks {
    pub salt: u64,
    /// For planted bugs: accept frames of an earlier use of the segment, and damaged frames.
    pub no_generation: bool,
    pub no_frame: bool,
}

impl Checks {
    pub fn all(salt: u64) -> Checks {
        Checks { salt, no_generation: false, no_frame: false }
    }
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

    /// The bytes from `offset` to the end.
    pub fn from(&self, offset: u64) -> Option<&[u8]> {
        self.bytes.get(usize::try_from(offset).ok()?..)
    }

    pub fn len(&self) -> u64 {
        self.bytes.len() as u64
    }

    fn frame(&self, offset: u64, generation: u64, checks: Checks) -> Option<(FrameHeader, &[u8])> {
        let bytes = self.from(offset)?;
        let generation = if checks.no_generation { frame::claimed_generation(bytes)? } else { generation };
        if checks.no_frame {
            let header = frame::peek(bytes, generation)?;
            let records = bytes.get(frame::HEADER_BYTES..frame::HEADER_BYTES + header.length as usize)?;
            return Some((header, records));
        }
        frame::read(bytes, generation, checks.salt)
    }

    /// Calls `visit` for each intact frame in order, with its header, the offset of its records, and the records.
    pub fn frames<E>(
        &self,
        header: &SegmentHeader,
        checks: Checks,
        mut visit: impl FnMut(&FrameHeader, u64, &[u8]) -> Result<(), E>,
    ) -> Result<FramesEnd, E> {
        let mut end = FramesEnd { offset: HEADER_BYTES, next_frame: header.first_frame, last: None };
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

    /// The first frame of the highest generation in the file.
    pub fn newest_frame(&self, checks: Checks) -> Option<FrameHeader> {
        let mut newest: Option<FrameHeader> = None;
        let mut at = HEADER_BYTES;
        while let Some(rest) = self.from(at).filter(|rest| rest.len() >= frame::HEADER_BYTES) {
            let found = frame::claimed_generation(rest)
                .filter(|&generation| newest.is_none_or(|newest| generation > newest.generation))
                .and_then(|generation| self.frame(at, generation, checks));
            newest = found.map(|(found, _)| found).or(newest);
            at += 8;
        }
        newest
    }

    /// The last frames up to `end`, from the first that no frame calls durable: their offset and their bytes.
    pub fn unsynced(&self, header: &SegmentHeader, end: &FramesEnd, checks: Checks) -> (u64, Vec<u8>) {
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

    /// An intact frame behind `end` that calls the frame missing at `end` durable. It proves damage.
    pub fn proof_of_damage(
        &self,
        header: &SegmentHeader,
        end: &FramesEnd,
        checks: Checks,
    ) -> Option<FrameHeader> {
        self.later_frames(end.offset + 1, header.generation, checks)
            .map(|(_, found)| found)
            .find(|found| found.sequence > end.next_frame && found.synced >= end.next_frame)
    }

    /// The intact frames of a generation from `offset` on. Skips bytes that are not such a frame.
    pub fn later_frames(
        &self,
        offset: u64,
        generation: u64,
        checks: Checks,
    ) -> impl Iterator<Item = (u64, FrameHeader)> + '_ {
        let mut at = offset.next_multiple_of(8);
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
