//! The engine's results before the log is read: answers, and the places of their items in the log.

use crate::engine::READ_BYTES_MAX;
use crate::events::{EventRange, EventStart};
use crate::index::table::PartsAt;
use crate::log::reader::ItemReader;
use crate::log::record::{Parts, parts_of};
use crate::log::segment::Segment;
use smallvec::SmallVec;
use std::sync::Arc;
use towline_domain::kv::KvRecord;
use towline_domain::{Effects, FieldSet, Head, ItemId, QueueName, Timestamp};
use towline_store::transaction::{Decided, Deliveries};
use towline_store::{
    Answered, CountPage, Cursor, Filter, KvPage, Page, QueueView, Reply, StoreError, StoreMetrics,
    StoredItem, TallyRange, TallyRow,
};

/// An item that still has to be read: its head, and the places of its other parts.
#[derive(Debug)]
pub struct Unread {
    pub head: Head,
    pub sequence: u64,
    pub places: SmallVec<[PartsAt; 2]>,
    pub queue: Option<QueueName>,
}

impl Unread {
    /// The bytes of the records with these parts.
    pub fn bytes(&self, needed: Parts) -> u64 {
        let places = self.places.iter().filter(|at| at.parts & needed != 0);
        places.map(|at| u64::from(at.place.length)).sum()
    }
}

/// Items to read. **Invariant:** it holds the segments of its items, so that the store does not overwrite them.
#[derive(Debug, Default)]
pub struct UnreadItems {
    pub items: Vec<Unread>,
    pub segments: SmallVec<[Arc<Segment>; 4]>,
}

impl UnreadItems {
    /// The bytes of the records to read.
    pub fn bytes(&self, fields: FieldSet) -> u64 {
        self.items.iter().map(|item| item.bytes(parts_of(fields))).sum()
    }
}

/// The outcome of one operation.
#[derive(Debug)]
pub enum Outcome {
    Decided(Decided),
    Received { deliveries: Deliveries<u64>, items: UnreadItems },
}

/// The outcomes of one call.
#[derive(Debug, Default)]
pub struct CallOutcome {
    pub outcomes: Vec<Outcome>,
    pub effects: Effects,
}

/// A read-only request.
#[derive(Debug, Clone)]
pub enum Query {
    Queue(QueueName),
    Queues { after: Option<QueueName>, limit: usize },
    Get { ids: Vec<ItemId>, fields: FieldSet },
    List { filter: Box<Filter>, after: Option<Cursor>, limit: usize, fields: FieldSet },
    Count { filter: Box<Filter>, after: Option<Cursor> },
    NextWake,
    KvGet(Vec<String>),
    Tally { queue: QueueName, range: TallyRange },
    KvList(KvPage),
    Events(EventStart),
    Status,
    StoreMetrics,
}

#[derive(Debug)]
pub enum Found {
    Queue(Option<Box<QueueView>>),
    Queues(Vec<QueueView>),
    /// `found` has the index into `items` for each requested id.
    Items {
        items: UnreadItems,
        found: Vec<Option<usize>>,
        fields: FieldSet,
    },
    /// The items are larger than one call may read.
    TooLarge {
        bytes: u64,
    },
    Page {
        items: UnreadItems,
        next: Option<Cursor>,
        filter: Box<Filter>,
        now: Timestamp,
        fields: FieldSet,
    },
    Counted(CountPage),
    NextWake(Option<Timestamp>),
    Kv(Vec<Option<KvRecord>>),
    Tally(Option<Vec<TallyRow>>),
    KvPage(Vec<(String, KvRecord)>),
    /// `None`: the events after the start are no longer stored.
    Events(Option<EventRange>),
    Status(Status),
    StoreMetrics(Box<StoreMetrics>),
}

/// Figures of a store, and its faults.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Status {
    pub items: u64,
    pub queues: u64,
    pub live_bytes: u64,
    pub segments: u64,
    /// Segments kept for reuse.
    pub segments_free: u64,
    pub segment_bytes: u64,
    pub frames: u64,
    pub bytes_written: u64,
    /// Bytes that collection carried forward.
    pub bytes_carried: u64,
    pub rotations: u64,
    /// Bytes of all key-value records, and how many there may be.
    pub kv_bytes: u64,
    pub kv_bytes_max: u64,
    /// Item numbers that were given out. They are never used again.
    pub item_numbers: u64,
    /// Why the store has no space for submits.
    pub full: Option<String>,
    /// Damage that collection or a reader found first. Collection leaves the damaged segment as it is.
    pub damage: Option<String>,
}

impl Outcome {
    /// The bytes of the records to read.
    pub fn bytes(&self) -> u64 {
        match self {
            Outcome::Decided(_) => 0,
            Outcome::Received { deliveries, items } => items.bytes(deliveries.fields),
        }
    }

    /// Reads the delivered items. An item with a damaged record is left out and reported to `damage`; its lease lapses.
    /// All other items are delivered.
    pub fn finish(self, reader: &ItemReader, damage: &mut dyn FnMut(StoreError)) -> Answered {
        match self {
            Outcome::Decided(decided) => decided.map_err(Into::into),
            Outcome::Received { deliveries, items } => {
                let received = deliveries.received(|_, fields| {
                    reader.read(&items, fields).unwrap_or_else(|_| {
                        let one_by_one = items.items.into_iter().map(|item| {
                            let segments = items.segments.clone();
                            reader.read(&UnreadItems { items: vec![item], segments }, fields)
                        });
                        one_by_one.filter_map(|item| item.map_err(&mut *damage).ok()).flatten().collect()
                    })
                });
                Ok(Reply::Received(received))
            }
        }
    }
}

impl Found {
    /// The bytes of the records to read.
    pub fn bytes(&self) -> u64 {
        match self {
            Found::Items { items, fields, .. } | Found::Page { items, fields, .. } => items.bytes(*fields),
            _ => 0,
        }
    }

    /// The items of a get.
    pub fn into_items(self, reader: &ItemReader) -> Result<Vec<Option<StoredItem>>, StoreError> {
        let too_large = |bytes: u64| {
            let (given, max) = (usize::try_from(bytes).unwrap_or(usize::MAX), READ_BYTES_MAX as usize);
            StoreError::BatchTooLarge { what: "bytes", given, max }
        };
        let (items, found, fields) = match self {
            Found::Items { items, found, fields } => (items, found, fields),
            Found::TooLarge { bytes } => return Err(too_large(bytes)),
            _ => return Err(StoreError::Closed),
        };
        let asked = items.items.len();
        let (stored, bytes) = read_stored(reader, items, fields)?;
        if stored.len() < asked {
            return Err(too_large(bytes));
        }
        Ok(found.into_iter().map(|nth| stored.get(nth?).cloned()).collect())
    }

    /// A page of items. Checks the parts of the filter that the index does not know.
    pub fn into_page(self, reader: &ItemReader) -> Result<Page, StoreError> {
        let Found::Page { items, mut next, filter, now, fields } = self else {
            return Err(StoreError::Closed);
        };
        let sequences: Vec<u64> = items.items.iter().map(|item| item.sequence).collect();
        let (mut items, _) = read_stored(reader, items, fields)?;
        if let (Some(&last), true) =
            (sequences.get(items.len().saturating_sub(1)), items.len() < sequences.len())
        {
            next = Some(Cursor(last));
        }
        items.retain(|stored| filter.matches(stored, now));
        Ok(Page { items, next })
    }
}

/// The first of these items, and the bytes read: at most about [`READ_BYTES_MAX`], besides one item.
fn read_stored(
    reader: &ItemReader,
    mut unread: UnreadItems,
    fields: FieldSet,
) -> Result<(Vec<StoredItem>, u64), StoreError> {
    let (items, bytes) = reader.read_up_to(READ_BYTES_MAX, &unread, fields)?;
    let names = unread.items.iter_mut().map(|unread| unread.queue.take());
    let with_names = names.zip(items).filter_map(|(queue, item)| Some(StoredItem { queue: queue?, item }));
    Ok((with_names.collect(), bytes))
}
