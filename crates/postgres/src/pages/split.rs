//! Splits the items of a page into new pages after some of them changed.
//!
//! Items that one call changed stay together, apart from the items that it did not change: the next call on the changed items
//! then does not rewrite the unchanged ones. The unchanged items are split into pages that grow with their distance from the
//! changed ones. Calls on single items therefore end up with small pages, and each item is rewritten a number of times that
//! is logarithmic in the size of the page.

use crate::pages::codec::{ItemSnapshotRef, PageEncoder};
use crate::pages::snapshot::IndexKeys;
use towline_domain::{CountKind, KeyTag, OrderKey, QueueId, State, Timestamp};

/// A page of this many items or fewer is not split.
const SMALL: usize = 4;
/// How much larger the next page of unchanged items is.
const GROWTH: usize = 4;
/// A page ends at this many items or bytes. PostgreSQL stores a row of this size in one of its 8 KiB blocks.
const ITEMS_MAX: usize = 512;
const BYTES_MAX: usize = 7600;

/// No call of this batch changed the item.
pub(crate) const UNTOUCHED: u32 = 0;

/// An item that is about to be written, with what decides its page.
#[derive(Debug, Clone, Copy)]
pub(crate) struct PageItem<'a> {
    pub(crate) snapshot: ItemSnapshotRef<'a>,
    pub(crate) index: IndexKeys,
    /// Its position in the queue's order while it is pending, whether ready or not.
    pub(crate) order: Option<OrderKey>,
    /// Set in queues with fairness keys.
    pub(crate) fairness_key: Option<KeyTag>,
    /// Set in queues with a concurrency limit for each key: the page counts its leases.
    pub(crate) counts_leases: bool,
    /// Which call of the batch changed the item last, or [`UNTOUCHED`].
    pub(crate) touched_by: u32,
}

/// A page to write. The fields are the columns of `pages`.
#[derive(Debug)]
pub(crate) struct NewPage {
    pub(crate) first: u64,
    pub(crate) last: u64,
    pub(crate) queue: QueueId,
    pub(crate) fairness_key: Option<KeyTag>,
    pub(crate) leased_count: Option<i32>,
    pub(crate) ready_count: i32,
    pub(crate) order: Option<(OrderKey, u64)>,
    pub(crate) scheduled_count: i32,
    pub(crate) ready_at: Option<Timestamp>,
    pub(crate) wake_at: Option<Timestamp>,
    /// Set if every item is terminal: the page goes to `terminal_pages`.
    pub(crate) terminal: Option<TerminalSummary>,
    pub(crate) items: Vec<u8>,
}

#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct TerminalSummary {
    pub(crate) completed_count: i32,
    pub(crate) failed_count: i32,
    pub(crate) remove_at: Option<Timestamp>,
    pub(crate) has_side_rows: bool,
}

/// The values that all items of a page share. `None`: the page may have items with any value.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct PageConstraint {
    queue: QueueId,
    fairness_key: Option<KeyTag>,
    /// Of pending items: the position in the order, and when they become ready.
    pending: Option<(OrderKey, Timestamp)>,
    /// Of terminal items: when they are removed, if ever.
    removal: Option<Option<Timestamp>>,
}

impl PageConstraint {
    fn of(item: &PageItem<'_>) -> PageConstraint {
        let head = item.snapshot.head;
        let removal = match head.state {
            State::Completed { remove_at, .. } | State::Failed { remove_at, .. } => Some(remove_at),
            _ => None,
        };
        let pending = item.order.map(|order| (order, head.ready_at));
        PageConstraint { queue: head.queue, fairness_key: item.fairness_key, pending, removal }
    }

    /// The constraint of both together, if they agree.
    fn with(self, other: PageConstraint) -> Option<PageConstraint> {
        let agree = self.queue == other.queue
            && self.fairness_key == other.fairness_key
            && (self.pending.is_none() || other.pending.is_none() || self.pending == other.pending)
            && (self.removal.is_none() || other.removal.is_none() || self.removal == other.removal);
        agree.then_some(PageConstraint {
            queue: self.queue,
            fairness_key: self.fairness_key,
            pending: self.pending.or(other.pending),
            removal: self.removal.or(other.removal),
        })
    }
}

/// Splits the items that are left of one page, or new items with consecutive numbers, into pages.
pub(crate) fn split(items: &[PageItem<'_>], salt: u64) -> Vec<NewPage> {
    let mut pages = Vec::new();
    let mut rest = items;
    for size in run_lengths(items) {
        let (run, later) = rest.split_at(size);
        encode_run(run, salt, &mut pages);
        rest = later;
    }
    pages
}

/// Lengths of the runs of items that may share a page, by the call that changed them.
fn run_lengths(items: &[PageItem<'_>]) -> Vec<usize> {
    if items.len() <= SMALL {
        return vec![items.len()];
    }
    let touched = items.iter().filter(|item| item.touched_by != UNTOUCHED).count();
    let mut sizes = Vec::new();
    let mut begin = 0;
    for run in items.chunk_by(|one, next| one.touched_by == next.touched_by) {
        let is_last = begin + run.len() == items.len();
        if run[0].touched_by != UNTOUCHED || touched == 0 {
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
            // The smaller runs are next to the changed items.
            if begin == 0 && !is_last {
                sizes[from..].reverse();
            }
        }
        begin += run.len();
    }
    sizes
}

/// Encodes a run as few pages as the constraints and the size of a page allow.
fn encode_run(run: &[PageItem<'_>], salt: u64, pages: &mut Vec<NewPage>) {
    let mut rest = run;
    while let Some(first) = rest.first() {
        let mut constraint = PageConstraint::of(first);
        let mut encoder = PageEncoder::new(salt, first.snapshot.seq);
        let mut count = 0;
        for item in rest {
            match constraint.with(PageConstraint::of(item)) {
                Some(both) if count < ITEMS_MAX && encoder.len() < BYTES_MAX => constraint = both,
                _ => break,
            }
            encoder.push(item.snapshot);
            count += 1;
        }
        let (page, later) = rest.split_at(count);
        pages.push(NewPage::of(page, encoder.finish()));
        rest = later;
    }
}

impl NewPage {
    fn of(page_items: &[PageItem<'_>], items: Vec<u8>) -> NewPage {
        let [item, ..] = page_items else { unreachable!("a page has at least one item") };
        let (first, last) = (item.snapshot, page_items[page_items.len() - 1].snapshot);
        let mut page = NewPage {
            first: first.seq,
            last: last.seq,
            queue: first.head.queue,
            fairness_key: item.fairness_key,
            leased_count: item.counts_leases.then_some(0),
            ready_count: 0,
            order: None,
            scheduled_count: 0,
            ready_at: None,
            wake_at: None,
            terminal: None,
            items,
        };
        let mut terminal = TerminalSummary::default();
        for PageItem { snapshot, index, .. } in page_items {
            if let Some(order) = index.order {
                page.ready_count += 1;
                page.order.get_or_insert((order, snapshot.seq));
            }
            page.scheduled_count += i32::from(index.ready_at.is_some());
            page.leased_count =
                page.leased_count.map(|count| count + i32::from(index.counted == CountKind::Processing));
            page.ready_at = index.ready_at.or(page.ready_at);
            page.wake_at = [page.wake_at, index.wake_at].into_iter().flatten().min();
            terminal.completed_count += i32::from(index.counted == CountKind::Completed);
            terminal.failed_count += i32::from(index.counted == CountKind::Failed);
            terminal.has_side_rows |= snapshot.kept.side;
        }
        if usize::try_from(terminal.completed_count + terminal.failed_count) == Ok(page_items.len()) {
            terminal.remove_at = first.head.timer();
            page.terminal = Some(terminal);
        }
        page
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::pages::snapshot::PayloadRef;
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
            changed_at: None,
            heartbeat_at: None,
            extras: None,
        }
    }

    /// First and last numbers of the pages that the items are split into. `touched_by` says which call changed each item.
    fn ranges(heads: &[Head], touched_by: impl Fn(usize) -> u32) -> Vec<(u64, u64)> {
        let items = heads.iter().enumerate().map(|(index, head)| {
            let counted = CountKind::Pending;
            PageItem {
                snapshot: ItemSnapshotRef { seq: index as u64, head, counted, kept: PayloadRef::default() },
                index: IndexKeys::of(head, &Order::Fifo, counted),
                order: Some(Order::Fifo.key(head)),
                fairness_key: Some(head.fairness_key),
                counts_leases: true,
                touched_by: touched_by(index),
            }
        });
        let items: Vec<PageItem<'_>> = items.collect();
        split(&items, 1).iter().map(|page| (page.first, page.last)).collect()
    }

    fn alike(count: u64) -> Vec<Head> {
        (0..count).map(|seq| head(seq, 5)).collect()
    }

    #[test]
    fn pages_of_unchanged_items_grow_with_the_distance() {
        let heads = alike(100);
        assert_eq!(
            ranges(&heads, |index| u32::from(index == 0)),
            [(0, 0), (1, 4), (5, 20), (21, 84), (85, 99)]
        );
        assert_eq!(ranges(&heads, |index| u32::from(index == 99)).last(), Some(&(99, 99)));
        assert_eq!(ranges(&heads, |index| u32::from(index == 99))[..2], [(0, 14), (15, 78)]);
        assert_eq!(ranges(&heads, |index| u32::from(index < 50)), [(0, 49), (50, 99)]);
    }

    #[test]
    fn items_that_one_call_changed_share_a_page() {
        assert_eq!(ranges(&alike(100), |index| 1 + (index / 40) as u32), [(0, 39), (40, 79), (80, 99)]);
        assert_eq!(ranges(&alike(100), |_| 1), [(0, 99)]);
        assert_eq!(ranges(&alike(4), |index| u32::from(index == 2)), [(0, 3)], "too small to be split");
    }

    #[test]
    fn items_at_different_positions_in_the_order_do_not_share_a_page() {
        let mut heads = alike(4);
        heads[2] = head(2, 6);
        assert_eq!(ranges(&heads, |_| 1), [(0, 1), (2, 2), (3, 3)]);
    }

    #[test]
    fn items_with_different_fairness_keys_do_not_share_a_page() {
        let mut heads = alike(6);
        heads[3].fairness_key = KeyTag::of("a");
        heads[4].fairness_key = KeyTag::of("a");
        assert_eq!(ranges(&heads, |_| 1), [(0, 2), (3, 4), (5, 5)]);
    }

    #[test]
    fn a_page_has_at_most_512_items() {
        assert_eq!(ranges(&alike(1000), |_| 1), [(0, 511), (512, 999)]);
    }
}
