//! A segment: a file of fixed size with consecutive frames. The store overwrites it when it has no live records.
//!
//! The header is stored twice, in two sectors, so that one damaged sector does not lose the segment:
//! ```text
//!  0 magic        8 bytes "TWSEG\0\0\1"
//!  8 store        u64   the store's salt: identifies a file of another store
//! 16 number       u32   also in the file's name
//! 20 next_queue   u32
//! 24 generation   u64   rises by one with each use of any segment file: the order of the log
//! 32 first_frame  u64
//! 40 time         u64
//! 48 next_item    u64
//! 56 tail         u64   generation of the oldest segment in use
//! 64 size         u64
//! 72 check        u32   CRC32C of the bytes before
//! ```
//!
//! A link, in two more sectors, says that the log goes on in the segment of the next generation. The store writes it when that
//! segment has its header and before it has a frame. So a log whose newest segment is missing is not taken for one that ends
//! earlier. Stores that were written by older versions have no links.
//! ```text
//!  0 magic        8 bytes "TWNEXT\0\1"
//!  8 next         u64   generation of the next segment; otherwise, the link is of an earlier use of the file
//! 16 check        u32   CRC32C of the store's salt and of the bytes before
//! ```

use crate::error::OpenError;
use crate::log::disk::{Disk, DiskFile, read_full, write_full};
use parking_lot::Mutex;
use std::io;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Weak};

/// Frames start behind this many bytes.
pub const HEADER_BYTES: u64 = 4096;
const COPY_AT: usize = 2048;
const USED: usize = 76;
const MAGIC: [u8; 8] = *b"TWSEG\0\0\x01";
const LINKS_AT: [usize; 2] = [1024, 3072];
const LINK_USED: usize = 20;
const LINK_MAGIC: [u8; 8] = *b"TWNEXT\0\x01";

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

    /// The header of a segment that the log goes on behind.
    pub fn encode_linked(&self, salt: u64) -> Vec<u8> {
        let mut block = self.encode(salt);
        for at in LINKS_AT {
            block[at..at + LINK_USED].copy_from_slice(&self.link(salt));
        }
        block
    }

    fn link(&self, salt: u64) -> [u8; LINK_USED] {
        let mut link = [0; LINK_USED];
        link[..8].copy_from_slice(&LINK_MAGIC);
        link[8..16].copy_from_slice(&(self.generation + 1).to_le_bytes());
        let check = crc32c::crc32c_append(crc32c::crc32c(&salt.to_le_bytes()), &link[..16]);
        link[16..].copy_from_slice(&check.to_le_bytes());
        link
    }

    fn decode(bytes: &[u8], salt: u64) -> Option<SegmentHeader> {
        SegmentHeader::decode_any(bytes).filter(|found| found.0 == salt).map(|found| found.1)
    }

    /// A header of any store, and the salt of that store.
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

    /// Reads the header of a file of any store, from either copy. Returns it with the salt of its store.
    pub fn read_any(file: &dyn DiskFile) -> io::Result<Option<(u64, SegmentHeader)>> {
        let mut block = vec![0; HEADER_BYTES as usize];
        let length = read_full(file, &mut block, 0)?;
        let copy = block[..length].get(COPY_AT..).and_then(SegmentHeader::decode_any);
        Ok(SegmentHeader::decode_any(&block[..length]).or(copy))
    }

    /// Reads the header of a file of this store, from either copy.
    pub fn read(file: &dyn DiskFile, salt: u64) -> io::Result<Option<SegmentHeader>> {
        let mut block = vec![0; HEADER_BYTES as usize];
        let length = read_full(file, &mut block, 0)?;
        let block = &block[..length];
        let first = SegmentHeader::decode(block, salt);
        let second = block.get(COPY_AT..).and_then(|copy| SegmentHeader::decode(copy, salt));
        // A torn header write leaves the old header in one copy. The later use of the file counts.
        Ok(match (first, second) {
            (Some(a), Some(b)) => Some(if a.generation >= b.generation { a } else { b }),
            (a, b) => a.or(b),
        })
    }
}

/// An open segment file. The store does not overwrite it while a reader holds it.
#[derive(Debug)]
pub struct Segment {
    pub number: u32,
    pub file: Arc<dyn DiskFile>,
    /// Why a sync failed. The operating system reports a failure to one caller only; all callers must learn of it.
    failed: Mutex<Option<String>>,
    /// How many bytes from the start belong to the log. A fill does not touch them.
    used: Mutex<u64>,
    /// Whether blocks of the file may never have been written.
    fresh: AtomicBool,
}

/// A fill writes and syncs this many bytes at a time, so that the log's own syncs have little extra to write.
const FILL_BYTES: u64 = 1 << 20;

/// The damage of a segment that has data, but no valid header and no valid frame.
pub const UNREADABLE: &str = "it has data, but no valid header and no valid frame";

/// The damage of a segment whose frames show that it may belong to the log.
pub const HEADLESS: &str = "both copies of its header are damaged";

/// The damage of a segment whose frames are older than those of another segment.
pub const HEADLESS_OLD: &str = "both copies of its header are damaged; its frames are older than the newest segment, so the \
                                log may not need it: move this file out of the directory, and open the store again";

/// The damage of a log whose newest segment is missing.
pub fn missing_behind(header: &SegmentHeader) -> String {
    format!("the log goes on behind it, and the segment of generation {} is missing", header.generation + 1)
}

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
        // A running fill writes at most one more piece before it sees the new value.
        let mut used = self.used.lock();
        *used = (*used).max(offset + bytes.len() as u64);
        drop(used);
        write_full(&*self.file, bytes, offset)
    }

    /// Marks the segment as empty. All of its blocks were written, so it needs no fill.
    pub fn clear(&self) {
        *self.used.lock() = 0;
        self.fresh.store(false, Ordering::Relaxed);
    }

    /// Whether a fill is useful. Returns true at most once.
    pub fn wants_fill(&self) -> bool {
        self.fresh.swap(false, Ordering::Relaxed)
    }

    /// Writes zeros into the reserved blocks ahead of the log, which read as zeros anyway. A sync into blocks that were
    /// written before takes half the time. The fill stops when the log catches up.
    pub fn fill(segment: &Weak<Segment>, size: u64) -> io::Result<()> {
        let zeros = vec![0; FILL_BYTES.min(size) as usize];
        let mut at = HEADER_BYTES;
        while at < size {
            // The store is closed.
            let Some(segment) = segment.upgrade() else { return Ok(()) };
            let piece = &zeros[..(size - at).min(FILL_BYTES) as usize];
            let used = segment.used.lock();
            if *used > at {
                // At the first piece, the log has just started: continue a piece ahead of it. Later, the log is faster: stop.
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

    /// Makes all bytes written so far durable. After one failure it always fails.
    pub fn sync(&self) -> io::Result<()> {
        let mut failed = self.failed.lock();
        if let Some(cause) = &*failed {
            return Err(io::Error::other(cause.clone()));
        }
        let result = self.file.sync();
        if let Err(error) = &result {
            *failed = Some(error.to_string());
        }
        result
    }

    /// Creates a file with space for a whole segment, without a header.
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
                // A partial file would use space that is short. If this fails, the next opening removes the file.
                let _ = disk.remove(&name);
                Err(error)
            }
        }
    }

    /// Starts a use of the file. The header is durable before the first frame, so every segment in use has a header.
    pub fn write_header(&self, header: &SegmentHeader, salt: u64) -> io::Result<()> {
        self.write(&header.encode(salt), 0)?;
        self.sync()
    }

    /// Says that the log goes on in the next segment, durably.
    pub fn write_link(&self, header: &SegmentHeader, salt: u64) -> io::Result<()> {
        for at in LINKS_AT {
            self.write(&header.link(salt), at as u64)?;
        }
        self.sync()
    }

    /// Whether the log goes on in the next segment.
    pub fn is_linked(&self, header: &SegmentHeader, salt: u64) -> io::Result<bool> {
        let mut block = vec![0; HEADER_BYTES as usize];
        read_full(&*self.file, &mut block, 0)?;
        let link = header.link(salt);
        Ok(LINKS_AT.iter().any(|&at| block[at..at + LINK_USED] == link))
    }

    /// The first byte behind the header that is not zero. `None`: no frame was ever written to the file.
    pub fn first_byte_in_use(&self) -> io::Result<Option<u64>> {
        let (zeros, mut piece) = (vec![0; FILL_BYTES as usize], vec![0; FILL_BYTES as usize]);
        let mut at = HEADER_BYTES;
        loop {
            let length = read_full(&*self.file, &mut piece, at)?;
            if length == 0 {
                return Ok(None);
            }
            if piece[..length] != zeros[..length] {
                return Ok(piece[..length].iter().position(|&byte| byte != 0).map(|byte| at + byte as u64));
            }
            at += length as u64;
        }
    }

    /// Whether the file is large enough for a whole segment. The segments of a backup are cut to their content.
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
    fn a_file_name_contains_the_segment_number() {
        assert_eq!(parse_name(&file_name(17)), Some(17));
        for name in ["segment-1.log", "segment-00000001.idx", "segment-0000000x.log", "other"] {
            assert_eq!(parse_name(name), None);
        }
    }

    #[test]
    fn a_header_is_read_from_either_copy_and_every_flipped_bit_is_detected() {
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
        let block = header.encode_linked(42);
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
