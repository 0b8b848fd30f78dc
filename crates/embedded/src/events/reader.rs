//! The log as the stream of events that it is: each record says what its change told, so nothing is written twice.
//!
//! The writer only says where to read; whoever asks reads. A page is bounded by the bytes it looks at.
//!
//! **Invariant:** only frames that are durable are told, so no event is ever taken back.

use crate::engine::{Engine, SegmentInUse};
use crate::events::queue_names::QueueNames;
use crate::log::disk::read_full;
use crate::log::frame::{self, FrameHeader};
use crate::log::record::{self, Record, RecordError, RecordKind};
use crate::log::segment::{HEADER_BYTES, Segment, file_name};
use crate::options::Durability;
use std::collections::{BTreeMap, VecDeque};
use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex, PoisonError};
use towline_domain::{EventKind, ItemEvent, ItemEventState, QueueId, Timestamp};
use towline_store::{Event, EventCursor, EventId, EventPage, StoreError};

/// Bytes of the log that one page looks at, about.
const PAGE_BYTES: u64 = 1 << 20;
/// Read at a time.
const WINDOW_BYTES: usize = 256 << 10;
/// Readers that go on where they were without looking for it.
const PLACES_MAX: usize = 32;
/// Where frames begin is remembered so often, of whatever was walked over, and for so many places.
const MARK_EVERY: u64 = 256 << 10;
const MARKS_MAX: usize = 1 << 16;
/// Segments that are kept for those who follow, and how long after the last of them asked.
const RETIRED_MAX: usize = 2;
const FOLLOWED_MS: u64 = 5000;
/// All of a frame.
const WHOLE: u32 = u32::MAX;

/// From where on to tell.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum EventStart {
    Oldest,
    Now,
    /// After a record of a frame.
    After(u64, u32),
}

/// Where to read what is to be told. **Invariant:** it holds the segments that it names.
#[derive(Debug)]
pub struct EventRange {
    after: (u64, u32),
    /// The last frame that may be told.
    through: u64,
    /// There are frames that may not be told yet.
    more: bool,
    segments: Vec<Stretch>,
}

#[derive(Debug, Clone)]
struct Stretch {
    segment: Arc<Segment>,
    generation: u64,
    first_frame: u64,
    last_frame: u64,
    end: u64,
}

impl Stretch {
    fn of(in_use: &SegmentInUse) -> Stretch {
        Stretch {
            segment: in_use.segment.clone(),
            generation: in_use.header.generation,
            first_frame: in_use.header.first_frame,
            last_frame: in_use.last_frame,
            end: in_use.end,
        }
    }
}

/// A segment that nothing lives in, kept for those who follow.
#[derive(Debug)]
pub(crate) struct RetiredSegment(Stretch);

impl Engine {
    /// `None`: what followed there has been written over, or was never written.
    pub(crate) fn untold(&self, start: EventStart) -> Option<EventRange> {
        let through = match self.options.durability {
            // A question is answered when what came before it is durable.
            Durability::Sync => self.written(),
            Durability::Interval(_) => self.synced,
        };
        self.events_read_at.store(self.index.now.0, Ordering::Relaxed);
        let in_use = self.log.iter().filter_map(|number| self.segments.get(number));
        let all =
            || self.retired.iter().map(|retired| retired.0.clone()).chain(in_use.clone().map(Stretch::of));
        let oldest = all().next().map_or(self.next_frame, |stretch| stretch.first_frame);
        let (frame, nth) = match start {
            EventStart::Oldest => (oldest - 1, WHOLE),
            EventStart::Now => (through, WHOLE),
            EventStart::After(frame, nth) => (frame, nth),
        };
        let first = if nth == WHOLE { frame.checked_add(1)? } else { frame };
        if first < oldest || frame > self.written() {
            return None;
        }
        let segments = all()
            .filter(|stretch| stretch.last_frame >= first && stretch.first_frame <= through)
            // As much as a page can need.
            .take(2)
            .collect();
        Some(EventRange { after: (frame, nth), through, more: through < self.written(), segments })
    }
}

impl Engine {
    /// Whether somebody has asked for events lately, and there is room to wait for them.
    fn is_followed(&self) -> bool {
        let told_at = self.events_read_at.load(Ordering::Relaxed);
        let lately = told_at > 0 && self.index.now.0.saturating_sub(told_at) < FOLLOWED_MS;
        lately && self.status.full.is_none()
    }

    /// Whether an emptied segment is kept for a while. Behind one that is, it must be: a gap would not be seen.
    pub(crate) fn retires(&self) -> bool {
        self.is_followed() || !self.retired.is_empty()
    }

    /// Keeps an emptied segment for a while.
    pub(crate) fn retire(&mut self, in_use: SegmentInUse) {
        self.retired.push_back(RetiredSegment(Stretch::of(&in_use)));
        if self.retired.len() > RETIRED_MAX {
            self.release_oldest();
        }
    }

    pub(crate) fn release_retired(&mut self) {
        while !self.retired.is_empty() && !self.is_followed() {
            self.release_oldest();
        }
    }

    fn release_oldest(&mut self) {
        if let Some(RetiredSegment(stretch)) = self.retired.pop_front() {
            // The log has begun later for long; one more frame that says so does no harm.
            self.emptied.push_back((stretch.segment, self.next_frame));
        }
    }
}

/// Where a frame begins.
#[derive(Debug, Clone, Copy)]
struct FrameAt {
    generation: u64,
    frame: u64,
    offset: u64,
}

/// Reads events. Remembers where its pages ended: a reader that goes on need not look for its place.
#[derive(Debug)]
pub(crate) struct EventReader {
    pub(crate) store: u32,
    pub(crate) salt: u64,
    pub(crate) names: Arc<QueueNames>,
    places: Mutex<Places>,
}

/// Where frames begin.
#[derive(Debug, Default)]
struct Places {
    /// Where pages ended.
    ends: VecDeque<FrameAt>,
    /// By generation and frame: a place before each that was ever looked for, and not far before it.
    marks: BTreeMap<(u64, u64), u64>,
}

impl Places {
    /// The last known one up to a frame.
    fn before(&self, generation: u64, frame: u64) -> Option<FrameAt> {
        let ends = self.ends.iter().filter(|at| at.generation == generation && at.frame <= frame);
        let mark = self.mark(generation, frame);
        ends.copied().chain(mark).max_by_key(|at| at.frame)
    }

    fn mark(&self, generation: u64, frame: u64) -> Option<FrameAt> {
        let (&(of, frame), &offset) = self.marks.range(..=(generation, frame)).next_back()?;
        (of == generation).then_some(FrameAt { generation, frame, offset })
    }

    /// On the way; worth remembering if nothing near it is.
    fn pass(&mut self, at: FrameAt) {
        let last = self.mark(at.generation, at.frame).map_or(HEADER_BYTES, |mark| mark.offset);
        if at.offset - last >= MARK_EVERY {
            self.marks.insert((at.generation, at.frame), at.offset);
            if self.marks.len() > MARKS_MAX {
                self.marks.pop_first();
            }
        }
    }

    fn end(&mut self, at: FrameAt) {
        self.ends.retain(|known| (known.generation, known.frame) != (at.generation, at.frame));
        self.ends.push_back(at);
        if self.ends.len() > PLACES_MAX {
            self.ends.pop_front();
        }
    }
}

impl EventReader {
    pub(crate) fn new(salt: u64, names: Arc<QueueNames>) -> EventReader {
        EventReader { store: EventId::store_of(salt), salt, names, places: Mutex::default() }
    }

    /// Walks towards where a page begins, about as many bytes as a page looks at; whether it is there.
    pub(crate) fn approach(&self, untold: &EventRange) -> Result<bool, StoreError> {
        let (frame, nth) = untold.after;
        let first = if nth == WHOLE { frame + 1 } else { frame };
        let Some(stretch) = untold.segments.first() else { return Ok(true) };
        let mut at = self.place(stretch, first);
        let begun = at.offset;
        let mut window = Window { stretch, start: 0, bytes: Vec::new() };
        while at.frame < first && at.offset < stretch.end {
            if at.offset - begun >= PAGE_BYTES {
                self.with_places(|places| places.end(at));
                return Ok(false);
            }
            let length = frame::padded(window.peek(at)?.length as usize) as u64;
            at = FrameAt { frame: at.frame + 1, offset: at.offset + length, ..at };
            self.with_places(|places| places.pass(at));
        }
        self.with_places(|places| places.end(at));
        Ok(true)
    }

    pub(crate) fn read(&self, untold: &EventRange, limit: usize) -> Result<EventPage, StoreError> {
        let (mut frame, mut nth) = untold.after;
        let mut page = Page { events: Vec::new(), limit, bytes: 0 };
        let mut full = false;
        for stretch in &untold.segments {
            let first = if nth == WHOLE { frame + 1 } else { frame };
            if stretch.first_frame > first {
                let what = format!("frame {first} is missing");
                return Err(StoreError::Corrupt { file: file_name(stretch.segment.number), what });
            }
            let mut at = self.place(stretch, first);
            let mut window = Window { stretch, start: 0, bytes: Vec::new() };
            while !full && at.frame <= untold.through && at.offset < stretch.end {
                let header = window.peek(at)?;
                let length = frame::padded(header.length as usize) as u64;
                if at.frame >= first {
                    let records = window.records(at, &header, self.salt)?;
                    let skipped = if at.frame == frame { nth } else { WHOLE };
                    page.bytes += length;
                    let Some(stopped) = self.frame(&header, records, skipped, &mut page)? else {
                        (frame, nth) = (at.frame, WHOLE);
                        full = page.is_full();
                        at = FrameAt { frame: at.frame + 1, offset: at.offset + length, ..at };
                        continue;
                    };
                    (frame, nth, full) = (at.frame, stopped, true);
                    continue;
                }
                at = FrameAt { frame: at.frame + 1, offset: at.offset + length, ..at };
            }
            self.with_places(|places| {
                places.pass(at);
                places.end(at);
            });
            if full {
                break;
            }
        }
        let next = EventCursor::after(EventId { store: self.store, group: frame, nth });
        let more = untold.more || nth != WHOLE || frame < untold.through;
        Ok(EventPage { events: page.events, next, more })
    }

    /// Tells the records of a frame behind the one that is `skipped` ([`WHOLE`]: from the first on); where it stopped before
    /// the end of the frame.
    fn frame(
        &self,
        header: &FrameHeader,
        records: &[u8],
        skipped: u32,
        page: &mut Page,
    ) -> Result<Option<u32>, StoreError> {
        let (mut at, mut nth) = (0, 0_u32);
        let mut last = None;
        while at < records.len() {
            let damaged = |error: RecordError| StoreError::Corrupt {
                file: format!("frame {}", header.sequence),
                what: error.to_string(),
            };
            if let Some(last) = last.filter(|_| page.events.len() >= page.limit) {
                return Ok(Some(last));
            }
            let record = Record::peek(&records[at..]).map_err(damaged)?;
            if skipped == WHOLE || nth > skipped {
                let id = EventId { store: self.store, group: header.sequence, nth };
                if let Some(event) = self.event(&record, id, Timestamp(header.time)).map_err(damaged)? {
                    page.events.push(event);
                }
                last = Some(nth);
            }
            at += record.bytes.len();
            nth += 1;
        }
        Ok(None)
    }

    fn event(&self, record: &Record<'_>, id: EventId, at: Timestamp) -> Result<Option<Event>, RecordError> {
        // A number that is not known comes from a later version.
        let Some(kind) = EventKind::from_code(record.event).filter(|kind| kind.is_public()) else {
            return Ok(None);
        };
        let (queue, item) = match record.kind {
            RecordKind::Item => {
                // An item with many errors is restored by many records, and told of once.
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

    /// The best known place to look for a frame from.
    fn place(&self, stretch: &Stretch, frame: u64) -> FrameAt {
        let begin =
            FrameAt { generation: stretch.generation, frame: stretch.first_frame, offset: HEADER_BYTES };
        self.with_places(|places| places.before(stretch.generation, frame)).unwrap_or(begin)
    }

    fn with_places<T>(&self, with: impl FnOnce(&mut Places) -> T) -> T {
        with(&mut self.places.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

struct Page {
    events: Vec<Event>,
    limit: usize,
    bytes: u64,
}

impl Page {
    fn is_full(&self) -> bool {
        self.events.len() >= self.limit || self.bytes >= PAGE_BYTES
    }
}

/// Some bytes of a segment.
struct Window<'a> {
    stretch: &'a Stretch,
    start: u64,
    bytes: Vec<u8>,
}

impl Window<'_> {
    fn get(&mut self, offset: u64, length: usize) -> Result<&[u8], StoreError> {
        let has = self.start <= offset && offset + length as u64 <= self.start + self.bytes.len() as u64;
        if !has {
            let left = usize::try_from(self.stretch.end.saturating_sub(offset)).unwrap_or(usize::MAX);
            self.bytes.resize(length.max(WINDOW_BYTES).min(left), 0);
            self.start = offset;
            let read = read_full(&*self.stretch.segment.file, &mut self.bytes, offset)
                .map_err(|error| self.damaged(offset, &error.to_string()))?;
            self.bytes.truncate(read);
        }
        let from = (offset - self.start) as usize;
        match self.bytes.get(from..from + length) {
            Some(bytes) => Ok(bytes),
            None => Err(self.damaged(offset, "a frame is cut short")),
        }
    }

    fn peek(&mut self, at: FrameAt) -> Result<FrameHeader, StoreError> {
        let header = frame::peek(self.get(at.offset, frame::HEADER_BYTES)?, at.generation);
        let header = header.filter(|header| header.sequence == at.frame);
        header.ok_or_else(|| self.damaged(at.offset, "a frame's header is damaged"))
    }

    fn records(&mut self, at: FrameAt, header: &FrameHeader, salt: u64) -> Result<&[u8], StoreError> {
        let bytes = self.get(at.offset, frame::HEADER_BYTES + header.length as usize)?;
        // Read twice, for the borrow to end where it is damaged.
        if frame::read(bytes, at.generation, salt).is_none() {
            return Err(self.damaged(at.offset, "a frame's checksum does not match"));
        }
        let bytes = self.get(at.offset, frame::HEADER_BYTES + header.length as usize)?;
        Ok(&bytes[frame::HEADER_BYTES..])
    }

    fn damaged(&self, offset: u64, what: &str) -> StoreError {
        let file = file_name(self.stretch.segment.number);
        StoreError::Corrupt { file, what: format!("{what}, at byte {offset}") }
    }
}
