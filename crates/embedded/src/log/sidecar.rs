//! The index of a sealed segment, beside it: what opening needs of its records, without their payloads.
//!
//! A cache: it is believed only if its checksum holds and it names the segment's generation; otherwise the segment
//! itself is read. Small records are not worth one.
//!
//! ```text
//!  0 magic 8, salt u64, generation u64, first_frame u64, last_frame u64, end u64, length u64, check u32
//! 60 entries: offset u32, length u32, kind u8, parts u16, subject u64, ordinal u32, head u32 + bytes, indexed u32 + bytes
//! ```

use crate::engine::Chore;
use crate::index::update::{IndexUpdate, ItemUpdate};
use crate::log::disk::{Disk, read_full, write_full};
use crate::log::record::{self, Record, RecordError, RecordKind, RecordPlace};
use crate::log::segment::{self, Segment, SegmentHeader};
use crate::plant::{Bug, Plant};
use std::io;

const MAGIC: [u8; 8] = *b"TWIDX\0\0\x01";
const HEADER_BYTES: usize = 60;
/// Worth it only if it is this much smaller than the segment.
const RATIO_MIN: usize = 4;

impl Chore {
    /// Does the work. A failure is no fault of the store: a sidecar is a cache, a file left over is removed at opening.
    pub fn run(self, disk: &dyn Disk) -> io::Result<()> {
        match self {
            Chore::Sidecar { number, bytes } => {
                let name = segment::sidecar_name(number);
                let temporary = format!("{name}.new");
                let file = disk.create(&temporary)?;
                write_full(&*file, &bytes, 0)?;
                file.sync()?;
                disk.rename(&temporary, &name)
            }
            Chore::Fill { segment, size } => Segment::fill(&segment, size),
            Chore::Remove { segment } => {
                let sidecar = segment::sidecar_name(segment.number);
                disk.remove(&segment::file_name(segment.number))?;
                match disk.remove(&sidecar) {
                    Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
                    result => result,
                }
            }
        }
    }
}

/// Gathers the sidecar of the segment being written, record by record, unless its records turn out to be small.
#[derive(Debug, Default)]
pub struct Builder {
    out: Vec<u8>,
    given_up: bool,
    /// For a planted bug: how long it was after the last frame and the one before.
    at_last: usize,
    before_last: usize,
}

impl Builder {
    /// Takes note of the records in `bytes`, which will lie at `offset` of the segment.
    pub fn add(&mut self, bytes: &[u8], offset: u64) {
        if self.given_up {
            return;
        }
        if self.out.is_empty() {
            self.out.resize(HEADER_BYTES, 0);
        }
        let mut at = 0;
        while let Ok(record) = Record::peek(&bytes[at..]) {
            if encode(&mut self.out, &record, offset + at as u64).is_err() {
                self.given_up = true;
                break;
            }
            at += record.bytes.len();
        }
        // A few records are no measure.
        if self.out.len() > 16 << 10 && self.out.len() * RATIO_MIN > offset as usize {
            self.given_up = true;
        }
        if self.given_up {
            self.out = Vec::new();
        }
    }

    pub fn frame_written(&mut self) {
        self.before_last = std::mem::replace(&mut self.at_last, self.out.len());
    }

    /// The whole sidecar, if it is worth having.
    pub fn finish(
        self,
        header: &SegmentHeader,
        end: u64,
        last_frame: u64,
        salt: u64,
        plant: Plant,
    ) -> Option<Vec<u8>> {
        let mut out = self.out;
        if self.given_up || out.len() * RATIO_MIN > end as usize {
            return None;
        }
        if out.is_empty() {
            out.resize(HEADER_BYTES, 0);
        }
        if plant.has(Bug::SidecarBeforeLog) {
            out.truncate(self.before_last.max(HEADER_BYTES));
        }
        let length = (out.len() - HEADER_BYTES) as u64;
        out[..8].copy_from_slice(&MAGIC);
        let words = [salt, header.generation, header.first_frame, last_frame, end, length];
        for (nth, word) in words.into_iter().enumerate() {
            out[8 + nth * 8..16 + nth * 8].copy_from_slice(&word.to_le_bytes());
        }
        let check = crc32c::crc32c_append(crc32c::crc32c(&out[..HEADER_BYTES - 4]), &out[HEADER_BYTES..]);
        out[HEADER_BYTES - 4..HEADER_BYTES].copy_from_slice(&check.to_le_bytes());
        Some(out)
    }
}

fn encode(out: &mut Vec<u8>, record: &Record<'_>, offset: u64) -> Result<(), RecordError> {
    let word = |out: &mut Vec<u8>, value: usize| {
        out.extend_from_slice(&u32::try_from(value).unwrap_or(u32::MAX).to_le_bytes());
    };
    let ordinal = match record.part(record::ERROR)? {
        Some(bytes) => record::decode_error(bytes)?.0,
        None => 0,
    };
    word(out, usize::try_from(offset).unwrap_or(usize::MAX));
    word(out, record.bytes.len());
    out.push(record.kind as u8);
    out.extend_from_slice(&record.parts.to_le_bytes());
    out.extend_from_slice(&record.subject.to_le_bytes());
    out.extend_from_slice(&ordinal.to_le_bytes());
    for part in [record::HEAD, record::INDEXED] {
        let bytes = record.part(part)?.unwrap_or_default();
        word(out, bytes.len());
        out.extend_from_slice(bytes);
    }
    Ok(())
}

/// A sidecar that fits its segment.
pub struct Sidecar {
    bytes: Vec<u8>,
    pub last_frame: u64,
    pub end: u64,
}

impl Sidecar {
    /// `None`: there is none that can be believed.
    pub fn read(disk: &dyn Disk, header: &SegmentHeader, salt: u64) -> Option<Sidecar> {
        let file = disk.open(&segment::sidecar_name(header.number)).ok()?;
        let size = usize::try_from(file.size().ok()?).ok()?;
        if size < HEADER_BYTES || size as u64 > header.size {
            return None;
        }
        let mut bytes = vec![0; size];
        if read_full(&*file, &mut bytes, 0).ok()? != size || bytes[..8] != MAGIC {
            return None;
        }
        let word = |nth: usize| bytes[8 + nth * 8..16 + nth * 8].try_into().map_or(0, u64::from_le_bytes);
        let check = bytes[HEADER_BYTES - 4..HEADER_BYTES].try_into().map_or(0, u32::from_le_bytes);
        let good = word(0) == salt
            && word(1) == header.generation
            && word(2) == header.first_frame
            && word(5) == (size - HEADER_BYTES) as u64
            && check
                == crc32c::crc32c_append(crc32c::crc32c(&bytes[..HEADER_BYTES - 4]), &bytes[HEADER_BYTES..]);
        let (last_frame, end) = (word(3), word(4));
        good.then_some(Sidecar { bytes, last_frame, end })
    }

    pub fn entries(
        &self,
        segment: u32,
        salt: u64,
        mut visit: impl FnMut(IndexUpdate) -> Result<(), RecordError>,
    ) -> Result<(), RecordError> {
        let mut rest = &self.bytes[HEADER_BYTES..];
        while !rest.is_empty() {
            visit(decode(&mut rest, segment, salt)?)?;
        }
        Ok(())
    }
}

fn decode(rest: &mut &[u8], segment: u32, salt: u64) -> Result<IndexUpdate, RecordError> {
    fn take<'a>(rest: &mut &'a [u8], length: usize) -> Result<&'a [u8], RecordError> {
        let (taken, left) = rest.split_at_checked(length).ok_or(RecordError::Short)?;
        *rest = left;
        Ok(taken)
    }
    fn word(rest: &mut &[u8]) -> Result<u32, RecordError> {
        take(rest, 4)?.try_into().map(u32::from_le_bytes).map_err(|_| RecordError::Short)
    }
    let (offset, length) = (word(rest)?, word(rest)?);
    let kind = take(rest, 1)?[0];
    let parts = take(rest, 2)?.try_into().map(u16::from_le_bytes).map_err(|_| RecordError::Short)?;
    let subject = take(rest, 8)?.try_into().map(u64::from_le_bytes).map_err(|_| RecordError::Short)?;
    let error_ordinal = word(rest)?;
    let head_length = word(rest)?;
    let head = take(rest, head_length as usize)?;
    let indexed_length = word(rest)?;
    let indexed = take(rest, indexed_length as usize)?;
    let place = RecordPlace { segment, offset, length };
    Ok(match RecordKind::from_code(kind)? {
        RecordKind::Item => {
            let has = |part| parts & part != 0;
            IndexUpdate::Item(ItemUpdate {
                sequence: subject,
                place,
                parts: parts & record::INDEXED_PARTS,
                head: has(record::HEAD)
                    .then(|| record::decode_head(head, subject, None, salt))
                    .transpose()?,
                indexed: has(record::INDEXED)
                    .then(|| record::decode_indexed(indexed).map(Box::new))
                    .transpose()?,
                error_ordinal,
            })
        }
        RecordKind::ItemRemoved => IndexUpdate::ItemRemoved { sequence: subject },
        RecordKind::Queue => IndexUpdate::Queue { queue: Box::new(record::decode_queue(head)?), place },
        RecordKind::QueueDeleted => IndexUpdate::QueueDeleted {
            id: towline_domain::QueueId(u32::try_from(subject).map_err(|_| RecordError::Content)?),
            name: (!head.is_empty()).then(|| record::decode_queue_name(head)).transpose()?,
        },
        RecordKind::Kv => {
            let (key, record) = record::decode_kv(head)?;
            IndexUpdate::Kv { key, record, place }
        }
        RecordKind::KvDeleted => IndexUpdate::KvDeleted { key: record::decode_kv_key(head)? },
        RecordKind::Tally => IndexUpdate::tally(subject, head, place)?,
    })
}
