//! Pages as one array a column, for statements that write many rows at once.

use crate::connection::session::Parameters;
use crate::encoding::sql::{millis, queue_number};
use crate::pages::split::{NewPage, TerminalSummary};
use towline_domain::{KeyTag, Timestamp};

/// Rows of `pages`.
#[derive(Debug, Default)]
pub(crate) struct PageColumns {
    first: Vec<i64>,
    last: Vec<i64>,
    queue: Vec<i32>,
    ready_count: Vec<i32>,
    order_rank: Vec<Option<i64>>,
    order_time: Vec<Option<i64>>,
    order_seq: Vec<Option<i64>>,
    scheduled_count: Vec<i32>,
    ready_at: Vec<Option<i64>>,
    wake_at: Vec<Option<i64>>,
    items: Vec<Vec<u8>>,
    fairness_key: Vec<Option<i64>>,
    leased_count: Vec<Option<i32>>,
}

impl PageColumns {
    pub(crate) fn is_empty(&self) -> bool {
        self.first.is_empty()
    }

    pub(crate) fn push(&mut self, page: NewPage) {
        self.first.push(page.first.cast_signed());
        self.last.push(page.last.cast_signed());
        self.queue.push(queue_number(page.queue));
        self.ready_count.push(page.ready_count);
        self.order_rank.push(page.order.map(|(key, _)| key.rank));
        self.order_time.push(page.order.map(|(key, _)| millis(key.time)));
        self.order_seq.push(page.order.map(|(_, seq)| seq.cast_signed()));
        self.scheduled_count.push(page.scheduled_count);
        self.ready_at.push(page.ready_at.map(millis));
        self.wake_at.push(page.wake_at.map(millis));
        self.items.push(page.items);
        self.fairness_key.push(page.fairness_key.map(KeyTag::number));
        self.leased_count.push(page.leased_count);
    }

    /// The parameters of `insert_pages.sql` and `update_pages.sql`.
    pub(crate) fn parameters(&self) -> Parameters<'_> {
        vec![
            &self.first,
            &self.last,
            &self.queue,
            &self.ready_count,
            &self.order_rank,
            &self.order_time,
            &self.order_seq,
            &self.scheduled_count,
            &self.ready_at,
            &self.wake_at,
            &self.items,
            &self.fairness_key,
            &self.leased_count,
        ]
    }
}

/// Rows of `terminal_pages`.
#[derive(Debug, Default)]
pub(crate) struct TerminalPageColumns {
    partition: Vec<i16>,
    first: Vec<i64>,
    last: Vec<i64>,
    queue: Vec<i32>,
    completed_count: Vec<i32>,
    failed_count: Vec<i32>,
    remove_at: Vec<Option<i64>>,
    has_side_rows: Vec<bool>,
    items: Vec<Vec<u8>>,
}

impl TerminalPageColumns {
    pub(crate) fn is_empty(&self) -> bool {
        self.first.is_empty()
    }

    pub(crate) fn push(&mut self, page: NewPage, terminal: TerminalSummary, now: Timestamp) {
        self.partition.push(partition_of(terminal.remove_at, now));
        self.first.push(page.first.cast_signed());
        self.last.push(page.last.cast_signed());
        self.queue.push(queue_number(page.queue));
        self.completed_count.push(terminal.completed_count);
        self.failed_count.push(terminal.failed_count);
        self.remove_at.push(terminal.remove_at.map(millis));
        self.has_side_rows.push(terminal.has_side_rows);
        self.items.push(page.items);
    }

    /// The parameters of `insert_terminal_pages.sql`.
    pub(crate) fn parameters(&self) -> Parameters<'_> {
        vec![
            &self.partition,
            &self.first,
            &self.last,
            &self.queue,
            &self.completed_count,
            &self.failed_count,
            &self.remove_at,
            &self.has_side_rows,
            &self.items,
        ]
    }
}

const HOUR_MS: u64 = 3_600_000;
/// Rings of partitions. A ring takes pages that are kept up to this long; each of its partitions covers a quarter of it.
const RINGS: [u64; 4] = [HOUR_MS, 48 * HOUR_MS, 16 * 24 * HOUR_MS, 512 * 24 * HOUR_MS];
/// At most five partitions of a ring hold pages at any time; the sixth one is being emptied.
const PARTITIONS_OF_RING: u64 = 6;
/// For pages that are kept longer, or without limit.
const LAST_PARTITION: i16 = 24;

/// The partition of `terminal_pages` for a page that is removed at this time. Pages that are removed at about the same time
/// share a partition, which can then be truncated.
fn partition_of(remove_at: Option<Timestamp>, now: Timestamp) -> i16 {
    let Some(at) = remove_at else { return LAST_PARTITION };
    let kept = at.0.saturating_sub(now.0);
    let partition = RINGS.iter().zip(0_u64..).find(|(span, _)| kept <= **span).map(|(span, ring)| {
        let width = span / 4;
        ring * PARTITIONS_OF_RING + at.0 / width % PARTITIONS_OF_RING
    });
    partition.and_then(|partition| i16::try_from(partition).ok()).unwrap_or(LAST_PARTITION)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pages_that_are_removed_at_the_same_time_share_a_partition() {
        let now = Timestamp(1_800_000_000_000);
        let after = |ms: u64| partition_of(Some(Timestamp(now.0 + ms)), now);
        assert_eq!(after(1000), after(2000));
        assert_ne!(after(HOUR_MS), after(1000));
        assert_ne!(after(2 * HOUR_MS), after(HOUR_MS), "another ring");
        assert!((0..100).all(|day| (0..=LAST_PARTITION).contains(&after(day * 24 * HOUR_MS))));
        assert_eq!(partition_of(None, now), LAST_PARTITION);
        assert_eq!(after(1000 * 24 * HOUR_MS), LAST_PARTITION);
    }
}
