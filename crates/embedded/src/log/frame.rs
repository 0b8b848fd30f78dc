//! A frame: one atomic batch of records in the log. Opening replays all records of a frame, or none.
//!
//! ```text
//!  0 magic        u32   "TWF1"
//!  4 length       u32   bytes of records after the header
//!  8 sequence     u64   one more than that of the previous frame
//! 16 generation   u64   of the segment: frames of an earlier use of the file do not match
//! 24 synced       u64   the last frame known to be durable when this frame was written
//! 32 time         u64   the store's clock
//! 40 next_item    u64   all item sequence numbers below this are used
//! 48 tail         u64   generation of the oldest segment in use
//! 56 next_queue   u32
//! 60 check        u32   CRC32C of the store's salt, the header before this field, and the header of each record
//! ```
//! A record's header contains the check of the record's content, which the check of its payload continues. A frame is intact if its own check and the checks of all its
//! records match; no byte is summed twice. Integers are little-endian. Frames start at multiples of 8.

use crate::log::record::{self, Record};

pub const HEADER_BYTES: usize = 64;
const MAGIC: u32 = u32::from_le_bytes(*b"TWF1");

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct FrameHeader {
    pub length: u32,
    pub sequence: u64,
    pub generation: u64,
    pub synced: u64,
    pub time: u64,
    pub next_item: u64,
    pub tail: u64,
    pub next_queue: u32,
}

/// Starts a frame: empties the buffer and leaves space for the header.
pub fn begin(buffer: &mut Vec<u8>) {
    buffer.clear();
    buffer.resize(HEADER_BYTES, 0);
}

/// Fills in the header and pads the frame. The buffer contains the space of [`begin`] and the records.
pub fn finish(buffer: &mut Vec<u8>, mut header: FrameHeader, salt: u64) {
    header.length = u32::try_from(buffer.len() - HEADER_BYTES).unwrap_or(u32::MAX);
    let mut at = 0;
    let mut put = |bytes: &[u8]| {
        buffer[at..at + bytes.len()].copy_from_slice(bytes);
        at += bytes.len();
    };
    put(&MAGIC.to_le_bytes());
    put(&header.length.to_le_bytes());
    put(&header.sequence.to_le_bytes());
    put(&header.generation.to_le_bytes());
    put(&header.synced.to_le_bytes());
    put(&header.time.to_le_bytes());
    put(&header.next_item.to_le_bytes());
    put(&header.tail.to_le_bytes());
    put(&header.next_queue.to_le_bytes());
    let check = check(&buffer[..HEADER_BYTES - 4], &buffer[HEADER_BYTES..], salt);
    debug_assert!(check.is_some(), "a frame contains only records");
    let check = check.unwrap_or(0);
    buffer[HEADER_BYTES - 4..HEADER_BYTES].copy_from_slice(&check.to_le_bytes());
    buffer.resize(buffer.len().next_multiple_of(8), 0);
}

/// `None`: the bytes are not a sequence of records.
fn check(header: &[u8], records: &[u8], salt: u64) -> Option<u32> {
    let mut check = crc32c::crc32c_append(crc32c::crc32c(&salt.to_le_bytes()), header);
    for record in Record::all_in(records) {
        check = crc32c::crc32c_append(check, &record.ok()?.1.bytes[..record::HEADER_BYTES]);
    }
    Some(check)
}

/// Whether the check of every record matches.
fn records_are_intact(records: &[u8], salt: u64) -> bool {
    Record::all_in(records).all(|record| record.is_ok_and(|(_, record)| record.is_intact(salt)))
}

/// The bytes that a frame with this many bytes of records occupies in a segment.
pub fn padded(records: usize) -> usize {
    (HEADER_BYTES + records).next_multiple_of(8)
}

/// The generation in a frame header, without any check. `None`: the bytes do not start like a frame.
pub fn claimed_generation(bytes: &[u8]) -> Option<u64> {
    let magic = bytes.get(..4)?.try_into().ok().map(u32::from_le_bytes)?;
    let generation = bytes.get(16..24)?.try_into().ok().map(u64::from_le_bytes)?;
    (magic == MAGIC).then_some(generation)
}

/// Reads a header without verifying its check. `None`: this is not a frame of that generation.
pub fn peek(bytes: &[u8], generation: u64) -> Option<FrameHeader> {
    let word = |at: usize| bytes.get(at..at + 4).and_then(|b| b.try_into().ok()).map(u32::from_le_bytes);
    let long = |at: usize| bytes.get(at..at + 8).and_then(|b| b.try_into().ok()).map(u64::from_le_bytes);
    if word(0)? != MAGIC || long(16)? != generation {
        return None;
    }
    Some(FrameHeader {
        length: word(4)?,
        sequence: long(8)?,
        generation,
        synced: long(24)?,
        time: long(32)?,
        next_item: long(40)?,
        tail: long(48)?,
        next_queue: word(56)?,
    })
}

/// Reads the frame at the start of `bytes` and verifies all checks. Returns its header and its records.
pub fn read(bytes: &[u8], generation: u64, salt: u64) -> Option<(FrameHeader, &[u8])> {
    let header = peek(bytes, generation)?;
    let records = bytes.get(HEADER_BYTES..HEADER_BYTES.checked_add(header.length as usize)?)?;
    let stored = u32::from_le_bytes(bytes[HEADER_BYTES - 4..HEADER_BYTES].try_into().ok()?);
    let intact =
        check(&bytes[..HEADER_BYTES - 4], records, salt) == Some(stored) && records_are_intact(records, salt);
    intact.then_some((header, records))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn frame(records: &[u8]) -> Vec<u8> {
        let mut buffer = Vec::new();
        begin(&mut buffer);
        buffer.extend_from_slice(records);
        let header = FrameHeader {
            length: 0,
            sequence: 7,
            generation: 3,
            synced: 6,
            time: 1000,
            next_item: 9,
            tail: 1,
            next_queue: 2,
        };
        finish(&mut buffer, header, 42);
        buffer
    }

    /// Records of removed items, which are the smallest records, and one record with content.
    fn records(count: u64) -> Vec<u8> {
        let mut bytes = Vec::new();
        for sequence in 0..count {
            record::RecordEncoder::new(&mut bytes, record::RecordKind::ItemRemoved, None, sequence)
                .finish(42);
        }
        record::encode_kv_deleted(&mut bytes, "some key", 42);
        bytes
    }

    #[test]
    fn a_frame_is_read_back() {
        for records in [Vec::new(), records(0), records(100)] {
            let bytes = frame(&records);
            assert_eq!(bytes.len(), padded(records.len()));
            let (header, read_back) = read(&bytes, 3, 42).unwrap();
            assert_eq!((header.sequence, header.synced, read_back), (7, 6, &records[..]));
        }
    }

    #[test]
    fn a_frame_of_another_generation_or_store_is_not_read() {
        let bytes = frame(&records(1));
        assert!(read(&bytes, 4, 42).is_none());
        assert!(read(&bytes, 3, 43).is_none());
    }

    #[test]
    fn every_flipped_bit_and_every_truncation_is_detected() {
        let records = records(2);
        let bytes = frame(&records);
        let used = HEADER_BYTES + records.len();
        for bit in 0..used * 8 {
            let mut damaged = bytes.clone();
            damaged[bit / 8] ^= 1 << (bit % 8);
            assert!(read(&damaged, 3, 42).is_none(), "bit {bit}");
        }
        for length in 0..used {
            assert!(read(&bytes[..length], 3, 42).is_none(), "{length} bytes");
        }
    }
}
