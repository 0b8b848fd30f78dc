//! An item as it is stored, and where it stands; the rows of `pages` and `finished`, read.

use crate::encoding::sql::queue_id;
use crate::error::damaged;
use crate::pages::codec;
use tokio_postgres::Row;
use towline_domain::{CountKind, Head, Order, OrderKey, Timestamp};
use towline_store::StoreError;

/// Parts of what was submitted: the body, then the four fields.
pub(crate) const PARTS: usize = 5;

/// An item as it is stored.
#[derive(Debug, Clone)]
pub(crate) struct Image {
    pub(crate) seq: u64,
    pub(crate) head: Head,
    /// How the counters count it: what became ready unnoticed still counts as scheduled.
    pub(crate) counted: CountKind,
    pub(crate) kept: Kept,
}

/// What of an item is kept elsewhere.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct Kept {
    pub(crate) at: Location,
    /// Fields were edited: they are in `edits`, and all of its payload may be this much.
    pub(crate) edited: Option<u64>,
    /// It has rows in tables that most items have none in.
    pub(crate) side: bool,
}

impl Kept {
    /// At most this much payload.
    pub(crate) fn bytes(&self) -> u64 {
        self.edited.unwrap_or_else(|| self.at.bytes())
    }
}

/// Where in `bodies` something lies.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct Location {
    pub(crate) slot: u8,
    /// The first number of its row.
    pub(crate) chunk: u64,
    pub(crate) offset: u32,
    /// A bit for each part that is there, and how long it is.
    pub(crate) has: u8,
    pub(crate) lengths: [u32; PARTS],
}

impl Location {
    /// What is there, and how long it is.
    pub(crate) fn parts(&self) -> impl Iterator<Item = (usize, u32)> + use<'_> {
        (0..PARTS).filter(|part| self.has & 1 << part != 0).map(|part| (part, self.lengths[part]))
    }

    pub(crate) fn bytes(&self) -> u64 {
        self.parts().map(|(_, length)| u64::from(length)).sum()
    }

    /// What comes behind it in the same row.
    pub(crate) fn after(&self) -> Location {
        let offset = self.offset.saturating_add(u32::try_from(self.bytes()).unwrap_or(u32::MAX));
        Location { offset, has: 0, lengths: [0; PARTS], ..*self }
    }

    pub(crate) fn is_followed_by(&self, next: &Location) -> bool {
        let after = self.after();
        (after.slot, after.chunk, after.offset) == (next.slot, next.chunk, next.offset)
    }
}

/// Where an item stands at a time.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Standing {
    pub(crate) counted: CountKind,
    /// Its place among the ready.
    pub(crate) place: Option<OrderKey>,
    pub(crate) due: Option<Timestamp>,
    pub(crate) wake: Option<Timestamp>,
}

impl Standing {
    pub(crate) fn of(head: &Head, order: &Order, counted: CountKind) -> Standing {
        let due = (counted == CountKind::Scheduled).then_some(head.ready_at);
        Standing {
            counted,
            place: (counted == CountKind::Pending).then(|| order.key(head)),
            due,
            wake: [head.timer(), due].into_iter().flatten().min(),
        }
    }
}

/// Which table a page is in.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Home {
    Pages,
    Finished { slot: i16 },
}

/// A row of either, without its items.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Page {
    pub(crate) first: u64,
    pub(crate) last: u64,
    pub(crate) home: Home,
}

/// Reads a row that begins with the first number, the last, the queue and the heads, and goes on with the slot if it is one
/// of `finished`.
pub(crate) fn read_page(row: &Row, salt: u64) -> Result<(Page, Vec<Image>), StoreError> {
    let (first, last): (i64, i64) = (row.get(0), row.get(1));
    let (table, home) = match row.len() {
        4 => ("pages", Home::Pages),
        _ => match row.get(4) {
            Some(slot) => ("terminal_pages", Home::Finished { slot }),
            None => ("pages", Home::Pages),
        },
    };
    let wrong = |what: &str| damaged(format_args!("{first} of {table}"), what);
    if first < 0 || last < first {
        return Err(wrong("numbers out of order"));
    }
    let page = Page { first: first.cast_unsigned(), last: last.cast_unsigned(), home };
    let queue = queue_id(row.get(2));
    let images = codec::unpack(row.get(3), page.first, page.last, queue, salt).map_err(wrong)?;
    Ok((page, images))
}
