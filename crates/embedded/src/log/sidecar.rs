//! A sidecar: the index of a sealed segment in a file of its own. Opening reads it instead of the segment and so skips the
//! payloads.
//!
//! A sidecar is a cache. Opening uses it only if its check matches and it names the segment's generation; otherwise opening
//! reads the segment. Segments of small records have no sidecar, because it would not be much smaller.
//!
//! ```text
//!  0 magic 8, salt u64, generation u64, first_frame u64, last_frame u64, end u64, length u64, check u32
//! 60 entries: offset u32, length u32, kind u8, parts u16, subject u64, ordinal u32, head u32 + bytes, indexed u32 + bytes
//! ```

use crate::index::update::{IndexUpdate, ItemUpdate};
use crate::log::disk::{Disk, read_full};
use crate::log::record::{self, Record, RecordError, RecordKind, RecordPlace};
use crate::log::segment::{self, SegmentHeader};
use crate::plant::{Bug, Plant};

const MAGIC: [u8; 8] = *b"TWIDX\0\0\x01";
const HEADER_BYTES: usize = 60;
/// A sidecar is written only if it is smaller than the segment by this factor.
const RATIO_MIN: usize = 4;

/// Builds the sidecar of the active segment, record by record. Gives up if the records are small.
#[derive(Debug, Default)]
pub struct SidecarBuilder {
    out: Vec<u8>,
    given_up: bool,
    /// For a planted bug: its length after the last frame and after the frame before.
    at_last: usize,
    before_last: usize,
}

impl SidecarBuilder {
    /// Adds the records in `bytes`, which will be stored at `offset` of the segment.
    pub fn add(&mut self, bytes: &[u8], offset: u64) {
        if self.given_up {
            return;
        }
        if self.out.is_empty() {
            self.out.resize(HEADER_BYTES, 0);
        }
        let mut records = Record::all_in(bytes).flatten();
        self.given_up =
            records.any(|(at, record)| encode(&mut self.out, &record, offset + at as u64).is_err());
        // Judge only after enough records.
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

    /// The complete sidecar. `None`: it would be too large to be useful.
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

/// A sidecar that belongs to its segment.
pub struct Sidecar {
    bytes: Vec<u8>,
    pub last_frame: u64,
    pub end: u64,
}

impl Sidecar {
    /// `None`: the segment has no valid sidecar.
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

    pub fn updates(
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
