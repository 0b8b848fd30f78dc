//! Item snapshots: an item as a page stores it, and the page rows that items are read from.

use crate::encoding::sql::queue_id;
use crate::error::damaged;
use crate::pages::codec;
use tokio_postgres::Row;
use towline_domain::{CountKind, Field, FieldSet, Head, Order, OrderKey, Timestamp};
use towline_store::StoreError;

/// Parts of a payload: the body, then the four fields.
pub(crate) const PARTS: usize = 5;

/// An item as a page stores it.
#[derive(Debug, Clone)]
pub(crate) struct ItemSnapshot {
    pub(crate) seq: u64,
    pub(crate) head: Head,
    /// The state that the counters count the item under. An item that became ready still counts as scheduled until a batch
    /// promotes it.
    pub(crate) counted: CountKind,
    pub(crate) kept: PayloadRef,
}

/// What an item has outside its page.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct PayloadRef {
    pub(crate) at: PayloadLocation,
    /// Set if the item has a row in `edits`: an upper bound of its payload in bytes.
    pub(crate) edited: Option<u64>,
    /// The item has rows in edits, errors, outcomes, chosen_ids, keys or tags.
    pub(crate) side: bool,
}

impl PayloadRef {
    /// Upper bound of the body and of these fields in bytes.
    pub(crate) fn bytes(&self, fields: FieldSet) -> u64 {
        match self.edited {
            _ if fields == FieldSet::HEADS => 0,
            Some(bytes) => bytes,
            None => self.at.bytes_of(fields),
        }
    }
}

/// Where in `payloads` the payload of an item is.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct PayloadLocation {
    pub(crate) partition: u8,
    /// `first_seq` of its row.
    pub(crate) chunk: u64,
    pub(crate) offset: u32,
    /// One bit for each part that exists, and the length of each part.
    pub(crate) has: u8,
    pub(crate) lengths: [u32; PARTS],
}

impl PayloadLocation {
    /// The parts that exist, with their lengths.
    pub(crate) fn parts(&self) -> impl Iterator<Item = (usize, u32)> + use<'_> {
        (0..PARTS).filter(|part| self.has & 1 << part != 0).map(|part| (part, self.lengths[part]))
    }

    fn bytes(&self) -> u64 {
        self.bytes_of(FieldSet::ALL)
    }

    /// The bytes of the body and of these fields.
    pub(crate) fn bytes_of(&self, fields: FieldSet) -> u64 {
        let wanted = |part: usize| part == 0 || fields.contains(Field::ALL[part - 1]);
        self.parts().filter(|(part, _)| wanted(*part)).map(|(_, length)| u64::from(length)).sum()
    }

    /// The location directly behind this one, in the same row.
    pub(crate) fn after(&self) -> PayloadLocation {
        let offset = self.offset.saturating_add(u32::try_from(self.bytes()).unwrap_or(u32::MAX));
        PayloadLocation { offset, has: 0, lengths: [0; PARTS], ..*self }
    }

    pub(crate) fn is_followed_by(&self, next: &PayloadLocation) -> bool {
        let after = self.after();
        (after.partition, after.chunk, after.offset) == (next.partition, next.chunk, next.offset)
    }
}

/// What the indexes of `pages` and the counters need to know of an item.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct IndexKeys {
    pub(crate) counted: CountKind,
    /// Its position in the queue's order, if it is ready.
    pub(crate) order: Option<OrderKey>,
    /// When it becomes ready, if it counts as scheduled.
    pub(crate) ready_at: Option<Timestamp>,
    /// When it becomes ready, lapses, expires or is removed, whichever is first.
    pub(crate) wake_at: Option<Timestamp>,
}

impl IndexKeys {
    pub(crate) fn of(head: &Head, order: &Order, counted: CountKind) -> IndexKeys {
        let ready_at = (counted == CountKind::Scheduled).then_some(head.ready_at);
        IndexKeys {
            counted,
            order: (counted == CountKind::Pending).then(|| order.key(head)),
            ready_at,
            wake_at: [head.timer(), ready_at].into_iter().flatten().min(),
        }
    }
}

/// The table that a page is stored in.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum PageTable {
    Live,
    Terminal { partition: i16 },
}

/// A row of `pages` or `terminal_pages`, without its items.
#[derive(Debug, Clone, Copy)]
pub(crate) struct PageRow {
    pub(crate) first: u64,
    pub(crate) last: u64,
    pub(crate) table: PageTable,
}

/// Reads a row with the columns first_seq, last_seq, queue, items and, if it may come from `terminal_pages`, partition.
pub(crate) fn read_page(row: &Row, salt: u64) -> Result<(PageRow, Vec<ItemSnapshot>), StoreError> {
    let (first, last): (i64, i64) = (row.get(0), row.get(1));
    let (name, table) = match row.len() {
        4 => ("pages", PageTable::Live),
        _ => match row.get(4) {
            Some(partition) => ("terminal_pages", PageTable::Terminal { partition }),
            None => ("pages", PageTable::Live),
        },
    };
    let wrong = |what: &str| damaged(format_args!("{first} of {name}"), what);
    if first < 0 || last < first {
        return Err(wrong("first_seq is above last_seq"));
    }
    let page = PageRow { first: first.cast_unsigned(), last: last.cast_unsigned(), table };
    let queue = queue_id(row.get(2));
    let items = codec::decode(row.get(3), page.first, page.last, queue, salt).map_err(wrong)?;
    Ok((page, items))
}
