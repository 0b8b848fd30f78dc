//! How the items of a page are laid out in pages again, after some of them changed.
//!
//! What was touched together stays together, apart from what was not touched, so that whoever comes for the one does
//! not rewrite the other. What is left beside it is cut into pieces that grow with their distance: single-item traffic
//! ends at small pages, after a number of rewrites an item that is logarithmic in the size of the page.

use crate::pages::codec::{Packed, Packer};
use crate::pages::snapshot::Standing;
use towline_domain::{CountKind, KeyTag, OrderKey, QueueId, State, Timestamp};

/// A page of this many items or fewer is not worth taking apart.
const SMALL: usize = 4;
/// How much larger the next piece is.
const GROWTH: usize = 4;
/// A page ends when it has this many items, or heads of this size: what fits into a page of the database is read and
/// written at once.
const ITEMS_MAX: usize = 512;
const BYTES_MAX: usize = 7600;

/// Touched by nobody in this batch.
pub(crate) const UNTOUCHED: u32 = 0;

/// An item, and what it is about to be part of a page with.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Piece<'a> {
    pub(crate) packed: Packed<'a>,
    pub(crate) standing: Standing,
    /// Its place in the order, while it is pending, whether ready or not.
    pub(crate) key: Option<OrderKey>,
    /// Where keys take turns: whose it is.
    pub(crate) whose: Option<KeyTag>,
    /// Where keys have a limit: what is in hand is counted by page.
    pub(crate) counts_leases: bool,
    /// Who touched it.
    pub(crate) touch: u32,
}

/// A page as it is to be written.
#[derive(Debug)]
pub(crate) struct Laid {
    pub(crate) first: u64,
    pub(crate) last: u64,
    pub(crate) queue: QueueId,
    pub(crate) whose: Option<KeyTag>,
    /// How many of its items are in hand, where that is counted.
    pub(crate) leased: Option<i32>,
    pub(crate) ready: i32,
    pub(crate) place: Option<(OrderKey, u64)>,
    pub(crate) scheduled: i32,
    pub(crate) due: Option<Timestamp>,
    pub(crate) wake: Option<Timestamp>,
    /// Of a page in which every item is finished.
    pub(crate) finished: Option<Finished>,
    pub(crate) heads: Vec<u8>,
}

#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Finished {
    pub(crate) completed: i32,
    pub(crate) failed: i32,
    pub(crate) remove_at: Option<Timestamp>,
    pub(crate) side: bool,
}

/// What all items of a page have in common that have it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Common {
    queue: QueueId,
    whose: Option<KeyTag>,
    waits: Option<(OrderKey, Timestamp)>,
    ends: Option<Option<Timestamp>>,
}

impl Common {
    fn of(piece: &Piece<'_>) -> Common {
        let head = piece.packed.head;
        let ends = match head.state {
            State::Completed { remove_at, .. } | State::Failed { remove_at, .. } => Some(remove_at),
            _ => None,
        };
        let waits = piece.key.map(|key| (key, head.ready_at));
        Common { queue: head.queue, whose: piece.whose, waits, ends }
    }

    /// Both, if they can be.
    fn with(self, other: Common) -> Option<Common> {
        let agree = self.queue == other.queue
            && self.whose == other.whose
            && (self.waits.is_none() || other.waits.is_none() || self.waits == other.waits)
            && (self.ends.is_none() || other.ends.is_none() || self.ends == other.ends);
        agree.then_some(Common {
            queue: self.queue,
            whose: self.whose,
            waits: self.waits.or(other.waits),
            ends: self.ends.or(other.ends),
        })
    }
}

/// Lays out what is left of one page, or what is new and has consecutive numbers.
pub(crate) fn lay(pieces: &[Piece<'_>], salt: u64) -> Vec<Laid> {
    let mut laid = Vec::new();
    let mut rest = pieces;
    for size in sizes(pieces) {
        let (together, later) = rest.split_at(size);
        pack(together, salt, &mut laid);
        rest = later;
    }
    laid
}

/// Cuts by who touched what.
fn sizes(pieces: &[Piece<'_>]) -> Vec<usize> {
    if pieces.len() <= SMALL {
        return vec![pieces.len()];
    }
    let touched = pieces.iter().filter(|piece| piece.touch != UNTOUCHED).count();
    let mut sizes = Vec::new();
    let mut begin = 0;
    for run in pieces.chunk_by(|one, next| one.touch == next.touch) {
        let is_last = begin + run.len() == pieces.len();
        if run[0].touch != UNTOUCHED || touched == 0 {
            sizes.push(run.len());
        } else {
            let from = sizes.len();
            let (mut left, mut size) = (run.len(), touched * GROWTH);
            while left > size {
                sizes.push(size);
                left -= size;
                size = size.saturating_mul(GROWTH);
            }
            sizes.push(left);
            // The smaller ones lie next to what was touched.
            if begin == 0 && !is_last {
                sizes[from..].reverse();
            }
        }
        begin += run.len();
    }
    sizes
}

/// Packs what may stay together, as far as it can.
fn pack(pieces: &[Piece<'_>], salt: u64, laid: &mut Vec<Laid>) {
    let mut rest = pieces;
    while let Some(first) = rest.first() {
        let mut common = Common::of(first);
        let mut packer = Packer::new(salt, first.packed.seq);
        let mut count = 0;
        for piece in rest {
            match common.with(Common::of(piece)) {
                Some(both) if count < ITEMS_MAX && packer.len() < BYTES_MAX => common = both,
                _ => break,
            }
            packer.push(piece.packed);
            count += 1;
        }
        let (page, later) = rest.split_at(count);
        laid.push(Laid::of(page, packer.finish()));
        rest = later;
    }
}

impl Laid {
    fn of(pieces: &[Piece<'_>], heads: Vec<u8>) -> Laid {
        let (first, last) = match pieces {
            [] => unreachable!("a page has an item"),
            [first, ..] => (first.packed, pieces[pieces.len() - 1].packed),
        };
        let whose = pieces.first().and_then(|piece| piece.whose);
        let counts_leases = pieces.first().is_some_and(|piece| piece.counts_leases);
        let mut page = Laid {
            first: first.seq,
            last: last.seq,
            queue: first.head.queue,
            whose,
            leased: counts_leases.then_some(0),
            ready: 0,
            place: None,
            scheduled: 0,
            due: None,
            wake: None,
            finished: None,
            heads,
        };
        let mut finished = Finished::default();
        for Piece { packed, standing, .. } in pieces {
            if let Some(place) = standing.place {
                page.ready += 1;
                page.place.get_or_insert((place, packed.seq));
            }
            page.scheduled += i32::from(standing.due.is_some());
            page.leased =
                page.leased.map(|leased| leased + i32::from(standing.counted == CountKind::Processing));
            page.due = standing.due.or(page.due);
            page.wake = [page.wake, standing.wake].into_iter().flatten().min();
            finished.completed += i32::from(standing.counted == CountKind::Completed);
            finished.failed += i32::from(standing.counted == CountKind::Failed);
            finished.side |= packed.kept.side;
        }
        if usize::try_from(finished.completed + finished.failed) == Ok(pieces.len()) {
            finished.remove_at = first.head.timer();
            page.finished = Some(finished);
        }
        page
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::pages::snapshot::Kept;
    use towline_domain::{Head, ItemId, Order};

    fn head(seq: u64, ready_at: u64) -> Head {
        Head {
            id: ItemId::derive(1, Timestamp(5), seq),
            queue: QueueId(1),
            state: State::Pending,
            priority: 0,
            created_at: Timestamp(5),
            ready_at: Timestamp(ready_at),
            retries: 0,
            deliveries: 0,
            revision: 1,
            transitions: 0,
            expires_at: None,
            last_settle: None,
            group: None,
            fairness_key: KeyTag::NONE,
            extras: None,
        }
    }

    /// First and last numbers of the pages that are left when these were touched.
    fn cut(heads: &[Head], touched: impl Fn(usize) -> u32) -> Vec<(u64, u64)> {
        let pieces = heads.iter().enumerate().map(|(index, head)| {
            let counted = CountKind::Pending;
            Piece {
                packed: Packed { seq: index as u64, head, counted, kept: Kept::default() },
                standing: Standing::of(head, &Order::Fifo, counted),
                key: Some(Order::Fifo.key(head)),
                whose: Some(head.fairness_key),
                counts_leases: true,
                touch: touched(index),
            }
        });
        let pieces: Vec<Piece<'_>> = pieces.collect();
        lay(&pieces, 1).iter().map(|page| (page.first, page.last)).collect()
    }

    fn alike(count: u64) -> Vec<Head> {
        (0..count).map(|seq| head(seq, 5)).collect()
    }

    #[test]
    fn what_is_left_is_cut_into_pieces_that_grow() {
        let heads = alike(100);
        assert_eq!(cut(&heads, |index| u32::from(index == 0)), [(0, 0), (1, 4), (5, 20), (21, 84), (85, 99)]);
        assert_eq!(cut(&heads, |index| u32::from(index == 99)).last(), Some(&(99, 99)));
        assert_eq!(cut(&heads, |index| u32::from(index == 99))[..2], [(0, 14), (15, 78)]);
        assert_eq!(cut(&heads, |index| u32::from(index < 50)), [(0, 49), (50, 99)]);
    }

    #[test]
    fn what_was_touched_together_stays_together() {
        assert_eq!(cut(&alike(100), |index| 1 + (index / 40) as u32), [(0, 39), (40, 79), (80, 99)]);
        assert_eq!(cut(&alike(100), |_| 1), [(0, 99)]);
        assert_eq!(cut(&alike(4), |index| u32::from(index == 2)), [(0, 3)], "too small to be cut");
    }

    #[test]
    fn what_stands_elsewhere_in_the_order_is_apart() {
        let mut heads = alike(4);
        heads[2] = head(2, 6);
        assert_eq!(cut(&heads, |_| 1), [(0, 1), (2, 2), (3, 3)]);
    }

    #[test]
    fn what_is_of_another_key_is_apart() {
        let mut heads = alike(6);
        heads[3].fairness_key = KeyTag::of("a");
        heads[4].fairness_key = KeyTag::of("a");
        assert_eq!(cut(&heads, |_| 1), [(0, 2), (3, 4), (5, 5)]);
    }

    #[test]
    fn a_page_ends() {
        assert_eq!(cut(&alike(1000), |_| 1), [(0, 511), (512, 999)]);
    }
}
