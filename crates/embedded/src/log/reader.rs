//! The item reader: reads items back from the log, on the caller's thread.
//!
//! **Invariant:** it returns a record only if the record's check matches and the record belongs to the item.

use crate::log::disk::read_full;
use crate::log::record::{self, Parts, Record, RecordError, RecordPlace, field_part};
use crate::log::segment::file_name;
use crate::outcome::{Unread, UnreadItems};
use towline_domain::{Field, FieldSet, Item};
use towline_store::StoreError;

/// Records with a smaller gap between them are read together.
const GAP_MAX: u32 = 4096;
const READ_MAX: u32 = 1 << 20;

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
}

impl ItemReader {
    pub fn read(&self, unread: &UnreadItems, fields: FieldSet) -> Result<Vec<Item>, StoreError> {
        let always =
            if fields == FieldSet::HEADS { 0 } else { record::BODY | record::OUTCOME | record::ERROR };
        let needed = Field::ALL
            .into_iter()
            .filter(|&field| fields.contains(field))
            .fold(always, |parts, field| parts | field_part(field));
        let spans = self.load(unread, needed)?;
        unread.items.iter().map(|item| self.assemble(item, &spans, needed)).collect()
    }

    /// Reads all needed records with few large reads, in ascending order.
    fn load(&self, unread: &UnreadItems, needed: Parts) -> Result<Vec<Span>, StoreError> {
        let places = unread.items.iter().flat_map(|item| item.places.iter());
        let mut places: Vec<RecordPlace> =
            places.filter(|at| at.parts & needed != 0).map(|at| at.place).collect();
        places.sort_unstable_by_key(|place| (place.segment, place.offset));
        let mut spans: Vec<Span> = Vec::new();
        let mut rest = &places[..];
        while let [first, ..] = rest {
            let mut end = first.offset + first.length;
            let mut count = 1;
            for next in &rest[1..] {
                let near = next.segment == first.segment
                    && next.offset <= end.saturating_add(GAP_MAX)
                    && next.offset + next.length - first.offset <= READ_MAX;
                if !near {
                    break;
                }
                end = end.max(next.offset + next.length);
                count += 1;
            }
            rest = &rest[count..];
            let Some(segment) = unread.segments.iter().find(|segment| segment.number == first.segment) else {
                let what = "the index names a segment that does not exist".to_owned();
                return Err(StoreError::Corrupt { file: file_name(first.segment), what });
            };
            let mut bytes = vec![0; (end - first.offset) as usize];
            let length = read_full(&*segment.file, &mut bytes, u64::from(first.offset)).map_err(|error| {
                StoreError::Unavailable { cause: format!("{}: {error}", file_name(first.segment)) }
            })?;
            bytes.truncate(length);
            spans.push(Span { segment: first.segment, offset: first.offset, bytes: bytes.into() });
        }
        Ok(spans)
    }

    fn record<'a>(
        &self,
        spans: &'a [Span],
        place: RecordPlace,
        sequence: u64,
    ) -> Result<(&'a Span, Record<'a>), StoreError> {
        let corrupt = |what: &str| StoreError::Corrupt {
            file: file_name(place.segment),
            what: format!("{what}, at byte {}", place.offset),
        };
        let at = spans.partition_point(|span| (span.segment, span.offset) <= (place.segment, place.offset));
        let span =
            at.checked_sub(1).and_then(|at| spans.get(at)).filter(|span| span.segment == place.segment);
        let Some(span) = span else {
            return Err(corrupt("the record was not read"));
        };
        let start = (place.offset - span.offset) as usize;
        let bytes = span.bytes.get(start..start + place.length as usize);
        let bytes = bytes.ok_or_else(|| corrupt("the file ends inside the record"))?;
        let record = if self.unchecked { Record::peek(bytes) } else { Record::read(bytes, self.salt) };
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
            decode().map_err(|error| StoreError::Corrupt {
                file: file_name(at.place.segment),
                what: format!("{error}, at byte {}", at.place.offset),
            })?;
        }
        errors.sort_unstable_by_key(|error| error.0);
        item.errors = errors.into_iter().map(|error| error.1).collect();
        Ok(item)
    }
}
