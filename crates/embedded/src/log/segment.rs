//! A file of fixed size that holds a run of frames, and is written over again when nothing in it lives.
//!
//! The header stands twice, in two sectors, so that one damaged sector does not hide a segment:
//! ```text
//!  0 magic        8 bytes "TWSEG\0\0\1"
//!  8 store        u64   the store's salt: a file of another store is not taken for ours
//! 16 number       u32   also in the file's name
//! 20 next_queue   u32
//! 24 generation   u64   one more for each use of any segment: the order of the log
//! 32 first_frame  u64
//! 40 time         u64
//! 48 next_item    u64
//! 56 tail         u64   generation of the oldest segment still in use
//! 64 size         u64
//! 72 check        u32
//! ```

use crate::error::OpenError;
use crate::log::disk::{Disk, DiskFile, read_full, write_full};
use std::io;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError, Weak};

/// Frames begin after this.
pub const HEADER_BYTES: u64 = 4096;
const COPY_AT: usize = 2048;
const USED: usize = 76;
const MAGIC: [u8; 8] = *b"TWSEG\0\0\x01";

#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct SegmentHeader {
    pub number: u32,
    pub next_queue: u32,
    pub generation: u64,
    pub first_frame: u64,
    pub time: u64,
    pub next_item: u64,
    pub tail: u64,
    pub size: u64,
}

impl SegmentHeader {
    pub fn encode(&self, salt: u64) -> Vec<u8> {
        let mut copy = Vec::with_capacity(USED);
        copy.extend_from_slice(&MAGIC);
        copy.extend_from_slice(&salt.to_le_bytes());
        copy.extend_from_slice(&self.number.to_le_bytes());
        copy.extend_from_slice(&self.next_queue.to_le_bytes());
        for word in [self.generation, self.first_frame, self.time, self.next_item, self.tail, self.size] {
            copy.extend_from_slice(&word.to_le_bytes());
        }
        copy.extend_from_slice(&crc32c::crc32c(&copy).to_le_bytes());
        let mut block = vec![0; HEADER_BYTES as usize];
        block[..USED].copy_from_slice(&copy);
        block[COPY_AT..COPY_AT + USED].copy_from_slice(&copy);
        block
    }

    fn decode(bytes: &[u8], salt: u64) -> Option<SegmentHeader> {
        SegmentHeader::decode_any(bytes).filter(|found| found.0 == salt).map(|found| found.1)
    }

    /// A header of whatever store, and that store's salt.
    fn decode_any(bytes: &[u8]) -> Option<(u64, SegmentHeader)> {
        let bytes = bytes.get(..USED)?;
        let long = |at: usize| bytes[at..at + 8].try_into().map_or(0, u64::from_le_bytes);
        let word = |at: usize| bytes[at..at + 4].try_into().map_or(0, u32::from_le_bytes);
        let good = bytes[..8] == MAGIC && word(72) == crc32c::crc32c(&bytes[..72]);
        let header = || SegmentHeader {
            number: word(16),
            next_queue: word(20),
            generation: long(24),
            first_frame: long(32),
            time: long(40),
            next_item: long(48),
            tail: long(56),
            size: long(64),
        };
        good.then(|| (long(8), header()))
    }

    /// The header a segment file has by either copy, and the salt of the store it is of.
    pub fn read_any(file: &dyn DiskFile) -> io::Result<Option<(u64, SegmentHeader)>> {
        let mut block = vec![0; HEADER_BYTES as usize];
        let length = read_full(file, &mut block, 0)?;
        let copy = block[..length].get(COPY_AT..).and_then(SegmentHeader::decode_any);
        Ok(SegmentHeader::decode_any(&block[..length]).or(copy))
    }

    /// The header of a segment file, from whichever copy is whole.
    pub fn read(file: &dyn DiskFile, salt: u64) -> io::Result<Option<SegmentHeader>> {
        let mut block = vec![0; HEADER_BYTES as usize];
        let length = read_full(file, &mut block, 0)?;
        let block = &block[..length];
        let first = SegmentHeader::decode(block, salt);
        let second = block.get(COPY_AT..).and_then(|copy| SegmentHeader::decode(copy, salt));
        // A torn header write leaves the old one in one sector: the later use of the file counts.
        Ok(match (first, second) {
            (Some(a), Some(b)) => Some(if a.generation >= b.generation { a } else { b }),
            (a, b) => a.or(b),
        })
    }
}

/// An open segment file. Readers hold it to keep it from being written over.
#[derive(Debug)]
pub struct Segment {
    pub number: u32,
    pub file: Arc<dyn DiskFile>,
    /// Why a sync of it failed. The system tells a failure once, to whoever asks first; everybody has to know.
    failed: Mutex<Option<String>>,
    /// Bytes from the beginning that belong to the log: a fill keeps away from them.
    used: Mutex<u64>,
    /// Perhaps never written but for its header.
    fresh: AtomicBool,
}

/// Written at a time by a fill, and then synced, so that the log's own syncs have little of it to carry.
const FILL_BYTES: u64 = 1 << 20;

pub fn file_name(number: u32) -> String {
    format!("segment-{number:08}.log")
}

pub fn sidecar_name(number: u32) -> String {
    format!("segment-{number:08}.idx")
}

/// The number in a segment's file name.
pub fn parse_name(name: &str) -> Option<u32> {
    let digits = name.strip_prefix("segment-")?.strip_suffix(".log")?;
    (digits.len() >= 8 && digits.bytes().all(|b| b.is_ascii_digit())).then(|| digits.parse().ok())?
}

impl Segment {
    fn new(number: u32, file: Arc<dyn DiskFile>) -> Segment {
        let (failed, used, fresh) = (Mutex::new(None), Mutex::new(0), AtomicBool::new(true));
        Segment { number, file, failed, used, fresh }
    }

    /// Writes to the log's part of the file.
    pub fn write(&self, bytes: &[u8], offset: u64) -> io::Result<()> {
        // A fill under way has at most one piece to write before it sees this.
        let mut used = self.used.lock().unwrap_or_else(PoisonError::into_inner);
        *used = (*used).max(offset + bytes.len() as u64);
        drop(used);
        write_full(&*self.file, bytes, offset)
    }

    /// Nothing in it lives any more. It has been written all over, so there is nothing to fill.
    pub fn clear(&self) {
        *self.used.lock().unwrap_or_else(PoisonError::into_inner) = 0;
        self.fresh.store(false, Ordering::Relaxed);
    }

    /// Whether a fill is worth it. Says so once.
    pub fn wants_fill(&self) -> bool {
        self.fresh.swap(false, Ordering::Relaxed)
    }

    /// Writes zeros over reserved space ahead of the log, where zeros are read anyway: syncs into blocks that were
    /// written before take half the time. Stops where the log catches up.
    pub fn fill(segment: &Weak<Segment>, size: u64) -> io::Result<()> {
        let zeros = vec![0; FILL_BYTES.min(size) as usize];
        let mut at = HEADER_BYTES;
        while at < size {
            // Nobody needs it any more, once the store is closed.
            let Some(segment) = segment.upgrade() else { return Ok(()) };
            let piece = &zeros[..(size - at).min(FILL_BYTES) as usize];
            let used = segment.used.lock().unwrap_or_else(PoisonError::into_inner);
            if *used > at {
                // Just taken into use: go on a piece ahead of the log. Later: the log is faster.
                if at > HEADER_BYTES {
                    return Ok(());
                }
                at = used.next_multiple_of(HEADER_BYTES) + FILL_BYTES.min(size / 16);
                continue;
            }
            write_full(&*segment.file, piece, at)?;
            drop(used);
            segment.sync()?;
            at += piece.len() as u64;
        }
        Ok(())
    }

    /// Makes everything written to it durable. After one failure it never succeeds again.
    pub fn sync(&self) -> io::Result<()> {
        let mut failed = self.failed.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(cause) = &*failed {
            return Err(io::Error::other(cause.clone()));
        }
        let result = self.file.sync();
        if let Err(error) = &result {
            *failed = Some(error.to_string());
        }
        result
    }

    /// Makes a file with room for a whole segment, and no header yet.
    pub fn create(disk: &dyn Disk, number: u32, size: u64) -> io::Result<Segment> {
        let name = file_name(number);
        let make = || {
            let file = disk.create(&name)?;
            file.reserve(size)?;
            file.sync()?;
            disk.sync_directory()?;
            Ok(file)
        };
        match make() {
            Ok(file) => Ok(Segment::new(number, file)),
            Err(error) => {
                // Half a file would take the space that is short. If it cannot be removed, opening will.
                let _ = disk.remove(&name);
                Err(error)
            }
        }
    }

    /// Takes the file into use. Durable before any frame goes in, so a header that does not read is of no segment in use.
    pub fn write_header(&self, header: &SegmentHeader, salt: u64) -> io::Result<()> {
        self.write(&header.encode(salt), 0)?;
        self.sync()
    }

    /// Whether the file can be used again as a whole segment. Those of a backup are cut to what they hold.
    pub fn has_room(&self, size: u64) -> bool {
        self.file.size().is_ok_and(|found| found >= size)
    }

    pub fn open(disk: &dyn Disk, number: u32) -> Result<Segment, OpenError> {
        let name = file_name(number);
        let file = disk.open(&name).map_err(|error| OpenError::io(disk, &name, error))?;
        Ok(Segment::new(number, file))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names() {
        assert_eq!(parse_name(&file_name(17)), Some(17));
        for name in ["segment-1.log", "segment-00000001.idx", "segment-0000000x.log", "other"] {
            assert_eq!(parse_name(name), None);
        }
    }

    #[test]
    fn either_copy_of_a_header_will_do_and_every_bit_counts() {
        let header = SegmentHeader {
            number: 3,
            next_queue: 2,
            generation: 9,
            first_frame: 100,
            time: 5,
            next_item: 77,
            tail: 4,
            size: 1 << 20,
        };
        let block = header.encode(42);
        assert_eq!(SegmentHeader::decode(&block, 42), Some(header));
        assert_eq!(SegmentHeader::decode(&block[COPY_AT..], 42), Some(header));
        assert_eq!(SegmentHeader::decode(&block, 43), None);
        for bit in 0..USED * 8 {
            let mut damaged = block.clone();
            damaged[bit / 8] ^= 1 << (bit % 8);
            assert_eq!(SegmentHeader::decode(&damaged, 42), None, "bit {bit}");
        }
    }
}
