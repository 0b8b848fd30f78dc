//! The event reader: turns log records into pages of events.

use super::positions::{FramePosition, FramePositions};
use super::queue_names::QueueNames;
use super::range::{ALL_RECORDS, EventRange, FrameRange};
use super::window::Window;
use crate::log::frame::{self, FrameHeader};
use crate::log::meta::Meta;
use crate::log::record::{self, Record, RecordError, RecordKind};
use crate::log::segment::{HEADER_BYTES, file_name};
use parking_lot::Mutex;
use std::sync::Arc;
use towline_domain::{EventKind, ItemEvent, ItemEventState, QueueId, Timestamp};
use towline_store::{Event, EventCursor, EventId, EventPage, StoreError};

/// About how many bytes of the log one page reads.
const PAGE_BYTES: u64 = 1 << 20;

#[derive(Debug)]
pub(crate) struct EventReader {
    pub(crate) store: u32,
    pub(crate) salt: u64,
    pub(crate) names: Arc<QueueNames>,
    positions: Mutex<FramePositions>,
}

/// A page being read.
struct PageBuilder {
    events: Vec<Event>,
    limit: usize,
    bytes: u64,
}

impl PageBuilder {
    fn is_full(&self) -> bool {
        self.events.len() >= self.limit || self.bytes >= PAGE_BYTES
    }
}

impl EventReader {
    pub(crate) fn new(Meta { salt, history, .. }: Meta, names: Arc<QueueNames>) -> EventReader {
        EventReader { store: EventId::store_of(salt, history), salt, names, positions: Mutex::default() }
    }

    pub(crate) fn read(&self, events: &EventRange, limit: usize) -> Result<EventPage, StoreError> {
        let (mut frame, mut nth) = events.after;
        let mut page = PageBuilder { events: Vec::new(), limit, bytes: 0 };
        let mut full = false;
        for range in &events.segments {
            let first = if nth == ALL_RECORDS { frame + 1 } else { frame };
            if range.first_frame > first {
                let what = format!("frame {first} is missing");
                return Err(StoreError::Corrupt { file: file_name(range.segment.number), what });
            }
            let mut at = self.position(range, first);
            let mut window = Window::new(range);
            while !full && at.frame <= events.through && at.offset < range.end {
                let header = window.header(at)?;
                let length = frame::padded(header.length as usize) as u64;
                if at.frame >= first {
                    let records = window.records(at, &header, self.salt)?;
                    let skipped = if at.frame == frame { nth } else { ALL_RECORDS };
                    page.bytes += length;
                    let Some(stopped) = self.add_frame(&header, records, skipped, &mut page)? else {
                        (frame, nth) = (at.frame, ALL_RECORDS);
                        full = page.is_full();
                        at = FramePosition { frame: at.frame + 1, offset: at.offset + length, ..at };
                        continue;
                    };
                    (frame, nth, full) = (at.frame, stopped, true);
                    continue;
                }
                at = FramePosition { frame: at.frame + 1, offset: at.offset + length, ..at };
                self.with_positions(|positions| positions.pass(at));
            }
            self.with_positions(|positions| {
                positions.pass(at);
                positions.end(at);
            });
            if full {
                break;
            }
        }
        let next = EventCursor::after(EventId { store: self.store, group: frame, nth });
        let more = events.more || nth != ALL_RECORDS || frame < events.through;
        Ok(EventPage { events: page.events, next, more })
    }

    /// Adds the events of a frame to the page, from behind the record `skipped` on ([`ALL_RECORDS`]: from the first record on).
    /// Returns the last record read if the page is full before the frame ends.
    fn add_frame(
        &self,
        header: &FrameHeader,
        records: &[u8],
        skipped: u32,
        page: &mut PageBuilder,
    ) -> Result<Option<u32>, StoreError> {
        let mut last = None;
        for (nth, record) in (0_u32..).zip(Record::all_in(records)) {
            let damaged = |error: RecordError| StoreError::Corrupt {
                file: format!("frame {}", header.sequence),
                what: error.to_string(),
            };
            if let Some(last) = last.filter(|_| page.events.len() >= page.limit) {
                return Ok(Some(last));
            }
            let (_, record) = record.map_err(damaged)?;
            if skipped == ALL_RECORDS || nth > skipped {
                let id = EventId { store: self.store, group: header.sequence, nth };
                page.events.extend(self.event(&record, id, Timestamp(header.time)).map_err(damaged)?);
                last = Some(nth);
            }
        }
        Ok(None)
    }

    fn event(&self, record: &Record<'_>, id: EventId, at: Timestamp) -> Result<Option<Event>, RecordError> {
        // Skip a code that this version does not know.
        let Some(kind) = EventKind::from_code(record.event).filter(|kind| kind.is_public()) else {
            return Ok(None);
        };
        let (queue, item) = match record.kind {
            RecordKind::Item => {
                // A restore of an item with many errors has many records. Only the first is an event.
                if kind == EventKind::Restored && record.parts & record::INDEXED == 0 {
                    return Ok(None);
                }
                let chosen = record.part(record::CHOSEN_ID)?.map(record::decode_chosen_id).transpose()?;
                let head =
                    record::decode_head(record.need(record::HEAD)?, record.subject, chosen, self.salt)?;
                let error = match record.part(record::ERROR)? {
                    Some(bytes) => Some(record::decode_error(bytes)?.1),
                    None => None,
                };
                let after = ItemEventState::of(&head, error.as_ref());
                (
                    self.names.get(head.queue),
                    Some(ItemEvent { id: head.id, group: head.group, after: Some(after) }),
                )
            }
            RecordKind::ItemRemoved => {
                let (queue, id, group) =
                    record::decode_removal(record.need(record::HEAD)?, record.subject, self.salt)?;
                (self.names.get(queue), Some(ItemEvent { id, group, after: None }))
            }
            RecordKind::Queue => (Some(record::decode_queue(record.need(record::HEAD)?)?.name), None),
            RecordKind::QueueDeleted => match record.part(record::HEAD)? {
                Some(bytes) => (Some(record::decode_queue_name(bytes)?), None),
                None => (self.names.get(QueueId(record.subject as u32)), None),
            },
            RecordKind::Kv | RecordKind::KvDeleted | RecordKind::Tally => return Ok(None),
        };
        Ok(Some(Event { id, at, kind, queue, item }))
    }

    /// The closest known position at or before a frame.
    fn position(&self, range: &FrameRange, frame: u64) -> FramePosition {
        let begin =
            FramePosition { generation: range.generation, frame: range.first_frame, offset: HEADER_BYTES };
        self.with_positions(|positions| positions.before(range.generation, frame)).unwrap_or(begin)
    }

    fn with_positions<T>(&self, with: impl FnOnce(&mut FramePositions) -> T) -> T {
        with(&mut self.positions.lock())
    }
}
