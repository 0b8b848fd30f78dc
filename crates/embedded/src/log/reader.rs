//! The item reader: reads items back from the log, on the caller's thread.
//!
//! **Invariant:** it returns a record only if the record's check matches and the record belongs to the item.

use crate::log::disk::read_full;
use crate::log::record::{self, Parts, Record, RecordError, RecordPlace, field_part, parts_of};
use crate::log::segment::file_name;
use crate::outcome::{Unread, UnreadItems};
use std::cell::Cell;
use towline_domain::{Field, FieldSet, Item};
use towline_store::StoreError;

/// Records with a smaller gap between them are read together.
const GAP_MAX: u32 = 4096;
const READ_MAX: u32 = 1 << 20;
/// A record up to this size is read whole, even if its payload is not needed. Of a larger one, this much is read first.
const SUMMARY_READ: u32 = 4096;
/// Records of this size together are in memory at a time, besides the items made of them.
const CHUNK_BYTES: u64 = 8 << 20;

/// Reads and verifies the records of one store.
#[derive(Debug, Clone, Copy)]
pub struct ItemReader {
    pub salt: u64,
    /// For a planted bug: checks are not verified.
    pub unchecked: bool,
}

/// A run of bytes of one segment.
struct Span {
    segment: u32,
    offset: u32,
    bytes: bytes::Bytes,
    /// The bytes are the summary of one record.
    is_summary: bool,
}

impl ItemReader {
    pub fn read(&self, unread: &UnreadItems, fields: FieldSet) -> Result<Vec<Item>, StoreError> {
        self.read_up_to(u64::MAX, unread, fields).map(|(items, _)| items)
    }

    /// The first of these items: once more than `bytes_max` were read, the rest is left out. Returns how many bytes were read.
    pub fn read_up_to(
        &self,
        bytes_max: u64,
        unread: &UnreadItems,
        fields: FieldSet,
    ) -> Result<(Vec<Item>, u64), StoreError> {
        let needed = parts_of(fields);
        let mut items = Vec::with_capacity(unread.items.len());
        let mut rest = &unread.items[..];
        let bytes_read = Cell::new(0);
        while !rest.is_empty() && bytes_read.get() <= bytes_max {
            let mut bytes = 0;
            let fits = rest.iter().take_while(|item| {
                bytes += item.bytes(needed);
                bytes <= CHUNK_BYTES
            });
            let (chunk, later) = rest.split_at(fits.count().max(1));
            let spans = self.load(chunk, unread, needed, &bytes_read)?;
            for item in chunk {
                items.push(self.assemble(item, &spans, needed)?);
            }
            rest = later;
        }
        Ok((items, bytes_read.get()))
    }

    /// Reads all needed records with few large reads, in ascending order.
    fn load(
        &self,
        items: &[Unread],
        unread: &UnreadItems,
        needed: Parts,
        bytes_read: &Cell<u64>,
    ) -> Result<Vec<Span>, StoreError> {
        let places = items.iter().flat_map(|item| item.places.iter());
        let mut places: Vec<RecordPlace> =
            places.filter(|at| at.parts & needed != 0).map(|at| at.place).collect();
        places.sort_unstable_by_key(|place| (place.segment, place.offset));
        let read = |place: RecordPlace| -> Result<bytes::Bytes, StoreError> {
            let Some(segment) = unread.segments.iter().find(|segment| segment.number == place.segment) else {
                let what = "the index names a segment that does not exist".to_owned();
                return Err(StoreError::Corrupt { file: file_name(place.segment), what });
            };
            let mut bytes = vec![0; place.length as usize];
            let length = read_full(&*segment.file, &mut bytes, u64::from(place.offset)).map_err(|error| {
                StoreError::Unavailable { cause: format!("{}: {error}", file_name(place.segment)) }
            })?;
            bytes.truncate(length);
            bytes_read.set(bytes_read.get() + length as u64);
            Ok(bytes.into())
        };
        let is_summary = |place: &RecordPlace| needed & record::FIELDS == 0 && place.length > SUMMARY_READ;
        let mut spans: Vec<Span> = Vec::new();
        let mut rest = &places[..];
        while let [first, later @ ..] = rest {
            let RecordPlace { segment, offset, .. } = *first;
            if is_summary(first) {
                let bytes = read_summary(*first, read)?;
                spans.push(Span { segment, offset, bytes, is_summary: true });
                rest = later;
                continue;
            }
            let mut end = offset + first.length;
            let mut count = 1;
            for next in later {
                let near = next.segment == segment
                    && next.offset <= end.saturating_add(GAP_MAX)
                    && next.offset + next.length - offset <= READ_MAX
                    && !is_summary(next);
                if !near {
                    break;
                }
                end = end.max(next.offset + next.length);
                count += 1;
            }
            rest = &rest[count..];
            let bytes = read(RecordPlace { length: end - offset, ..*first })?;
            spans.push(Span { segment, offset, bytes, is_summary: false });
        }
        Ok(spans)
    }

    fn record<'a>(
        &self,
        spans: &'a [Span],
        place: RecordPlace,
        sequence: u64,
    ) -> Result<(&'a Span, Record<'a>), StoreError> {
        let corrupt = |what: &str| corrupt(place, what);
        let at = spans.partition_point(|span| (span.segment, span.offset) <= (place.segment, place.offset));
        let span =
            at.checked_sub(1).and_then(|at| spans.get(at)).filter(|span| span.segment == place.segment);
        let Some(span) = span else {
            return Err(corrupt("the record was not read"));
        };
        let start = (place.offset - span.offset) as usize;
        let length = if span.is_summary { span.bytes.len() } else { place.length as usize };
        let bytes = span.bytes.get(start..start + length);
        let bytes = bytes.ok_or_else(|| corrupt("the file ends inside the record"))?;
        let record = match (span.is_summary, self.unchecked) {
            (true, unchecked) => Record::read_summary(bytes, (!unchecked).then_some(self.salt)),
            (false, true) => Record::peek(bytes),
            (false, false) => Record::read(bytes, self.salt),
        };
        match record {
            Ok(record) if self.unchecked || record.subject == sequence => Ok((span, record)),
            Ok(_) => Err(corrupt(&RecordError::Foreign.to_string())),
            Err(error) => Err(corrupt(&error.to_string())),
        }
    }

    fn assemble(&self, unread: &Unread, spans: &[Span], needed: Parts) -> Result<Item, StoreError> {
        let mut item = Item::of_head(unread.head.clone());
        let mut errors = Vec::new();
        for at in unread.places.iter().filter(|at| at.parts & needed != 0) {
            let (span, record) = self.record(spans, at.place, unread.sequence)?;
            let mut decode = || -> Result<(), RecordError> {
                for part in record.parts() {
                    let (part, bytes) = part?;
                    if at.parts & needed & part == 0 {
                        continue;
                    }
                    match (part, bytes) {
                        (record::BODY, Some(bytes)) => item.body = record::decode_body(bytes)?,
                        (record::OUTCOME, Some(bytes)) => item.outcome = record::decode_outcome(bytes)?,
                        (record::ERROR, Some(bytes)) => errors.push(record::decode_error(bytes)?),
                        _ => {
                            let field = Field::ALL.into_iter().find(|&field| field_part(field) == part);
                            if let Some(field) = field {
                                item.fields.set(field, bytes.map(|bytes| span.bytes.slice_ref(bytes)));
                            }
                        }
                    }
                }
                Ok(())
            };
            decode().map_err(|error| corrupt(at.place, &error.to_string()))?;
        }
        errors.sort_unstable_by_key(|error| error.0);
        item.errors = errors.into_iter().map(|error| error.1).collect();
        Ok(item)
    }
}

fn corrupt(place: RecordPlace, what: &str) -> StoreError {
    StoreError::Corrupt { file: file_name(place.segment), what: format!("{what}, at byte {}", place.offset) }
}

/// The summary of a record, without its payload.
fn read_summary(
    place: RecordPlace,
    read: impl Fn(RecordPlace) -> Result<bytes::Bytes, StoreError>,
) -> Result<bytes::Bytes, StoreError> {
    let mut length = SUMMARY_READ;
    loop {
        let bytes = read(RecordPlace { length, ..place })?;
        let needed = match Record::summary_bytes(&bytes) {
            Ok(needed) if needed <= place.length as usize => needed,
            Ok(_) => return Err(corrupt(place, &RecordError::Short.to_string())),
            Err(error) => return Err(corrupt(place, &error.to_string())),
        };
        if needed <= bytes.len() {
            return Ok(bytes.slice(..needed));
        }
        if bytes.len() < length as usize {
            return Err(corrupt(place, "the file ends inside the record"));
        }
        // Room for the header of the next part, too. A summary has six parts, so this ends.
        length = u32::try_from(needed + 64).unwrap_or(u32::MAX).min(place.length);
    }
}
