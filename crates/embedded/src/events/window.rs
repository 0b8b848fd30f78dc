//! Reads a segment in large pieces.

use super::positions::FramePosition;
use super::range::FrameRange;
use crate::log::disk::read_full;
use crate::log::frame::{self, FrameHeader};
use crate::log::segment::file_name;
use towline_store::StoreError;

/// Bytes read at a time.
const WINDOW_BYTES: usize = 256 << 10;

/// A window of bytes of a segment.
pub(super) struct Window<'a> {
    range: &'a FrameRange,
    start: u64,
    bytes: Vec<u8>,
}

impl<'a> Window<'a> {
    pub(super) fn new(range: &'a FrameRange) -> Window<'a> {
        Window { range, start: 0, bytes: Vec::new() }
    }

    fn get(&mut self, offset: u64, length: usize) -> Result<&[u8], StoreError> {
        let has = self.start <= offset && offset + length as u64 <= self.start + self.bytes.len() as u64;
        if !has {
            let left = usize::try_from(self.range.end.saturating_sub(offset)).unwrap_or(usize::MAX);
            self.bytes.resize(length.max(WINDOW_BYTES).min(left), 0);
            self.start = offset;
            let read = read_full(&*self.range.segment.file, &mut self.bytes, offset)
                .map_err(|error| self.damaged(offset, &error.to_string()))?;
            self.bytes.truncate(read);
        }
        let from = (offset - self.start) as usize;
        match self.bytes.get(from..from + length) {
            Some(bytes) => Ok(bytes),
            None => Err(self.damaged(offset, "the frame is cut short")),
        }
    }

    /// Reads the header of a frame.
    pub(super) fn header(&mut self, at: FramePosition) -> Result<FrameHeader, StoreError> {
        let header = frame::peek(self.get(at.offset, frame::HEADER_BYTES)?, at.generation);
        let header = header.filter(|header| header.sequence == at.frame);
        header.ok_or_else(|| self.damaged(at.offset, "the frame's header is damaged"))
    }

    /// Reads the records of a frame, and verifies their checks.
    pub(super) fn records(
        &mut self,
        at: FramePosition,
        header: &FrameHeader,
        salt: u64,
    ) -> Result<&[u8], StoreError> {
        let bytes = self.get(at.offset, frame::HEADER_BYTES + header.length as usize)?;
        // Get the bytes again: the borrow must end before the error is made.
        if frame::read(bytes, at.generation, salt).is_none() {
            return Err(self.damaged(at.offset, "the frame's checksum does not match"));
        }
        let bytes = self.get(at.offset, frame::HEADER_BYTES + header.length as usize)?;
        Ok(&bytes[frame::HEADER_BYTES..])
    }

    fn damaged(&self, offset: u64, what: &str) -> StoreError {
        let file = file_name(self.range.segment.number);
        StoreError::Corrupt { file, what: format!("{what}, at byte {offset}") }
    }
}
