//! Pages as columns: one array a column, for statements that write many rows at once.

use crate::connection::session::Parameters;
use crate::encoding::sql::{millis, queue_number};
use crate::pages::split::{Finished, Laid};
use towline_domain::{KeyTag, Timestamp};

/// Rows of `pages`.
#[derive(Debug, Default)]
pub(crate) struct Pages {
    first: Vec<i64>,
    last: Vec<i64>,
    queue: Vec<i32>,
    ready: Vec<i32>,
    rank: Vec<Option<i64>>,
    place: Vec<Option<i64>>,
    foremost: Vec<Option<i64>>,
    scheduled: Vec<i32>,
    due: Vec<Option<i64>>,
    wake: Vec<Option<i64>>,
    heads: Vec<Vec<u8>>,
    key: Vec<Option<i64>>,
    leased: Vec<Option<i32>>,
}

impl Pages {
    pub(crate) fn is_empty(&self) -> bool {
        self.first.is_empty()
    }

    pub(crate) fn push(&mut self, page: Laid) {
        self.first.push(page.first.cast_signed());
        self.last.push(page.last.cast_signed());
        self.queue.push(queue_number(page.queue));
        self.ready.push(page.ready);
        self.rank.push(page.place.map(|(key, _)| key.rank));
        self.place.push(page.place.map(|(key, _)| millis(key.time)));
        self.foremost.push(page.place.map(|(_, seq)| seq.cast_signed()));
        self.scheduled.push(page.scheduled);
        self.due.push(page.due.map(millis));
        self.wake.push(page.wake.map(millis));
        self.heads.push(page.heads);
        self.key.push(page.whose.map(KeyTag::number));
        self.leased.push(page.leased);
    }

    /// What `queries/insert_pages.sql` and `queries/update_pages.sql` take.
    pub(crate) fn parameters(&self) -> Parameters<'_> {
        vec![
            &self.first,
            &self.last,
            &self.queue,
            &self.ready,
            &self.rank,
            &self.place,
            &self.foremost,
            &self.scheduled,
            &self.due,
            &self.wake,
            &self.heads,
            &self.key,
            &self.leased,
        ]
    }
}

/// Rows of `finished`.
#[derive(Debug, Default)]
pub(crate) struct FinishedPages {
    slot: Vec<i16>,
    first: Vec<i64>,
    last: Vec<i64>,
    queue: Vec<i32>,
    completed: Vec<i32>,
    failed: Vec<i32>,
    remove_at: Vec<Option<i64>>,
    side: Vec<bool>,
    heads: Vec<Vec<u8>>,
}

impl FinishedPages {
    pub(crate) fn is_empty(&self) -> bool {
        self.first.is_empty()
    }

    pub(crate) fn push(&mut self, page: Laid, finished: Finished, now: Timestamp) {
        self.slot.push(slot_of(finished.remove_at, now));
        self.first.push(page.first.cast_signed());
        self.last.push(page.last.cast_signed());
        self.queue.push(queue_number(page.queue));
        self.completed.push(finished.completed);
        self.failed.push(finished.failed);
        self.remove_at.push(finished.remove_at.map(millis));
        self.side.push(finished.side);
        self.heads.push(page.heads);
    }

    /// What `queries/insert_terminal_pages.sql` takes.
    pub(crate) fn parameters(&self) -> Parameters<'_> {
        vec![
            &self.slot,
            &self.first,
            &self.last,
            &self.queue,
            &self.completed,
            &self.failed,
            &self.remove_at,
            &self.side,
            &self.heads,
        ]
    }
}

const HOUR_MS: u64 = 3_600_000;
/// Rings of partitions: for what is kept up to this long, in slots of a quarter of it.
const RINGS: [u64; 4] = [HOUR_MS, 48 * HOUR_MS, 16 * 24 * HOUR_MS, 512 * 24 * HOUR_MS];
/// One more than are in use at any time, and the one that is about to be emptied.
const SLOTS_OF_RING: u64 = 6;
/// What stays for longer, or for ever.
const LAST_SLOT: i16 = 24;

/// The partition of `finished` for what goes then: it shares it with what goes at about the same time.
fn slot_of(remove_at: Option<Timestamp>, now: Timestamp) -> i16 {
    let Some(at) = remove_at else { return LAST_SLOT };
    let kept = at.0.saturating_sub(now.0);
    let slot = RINGS.iter().zip(0_u64..).find(|(span, _)| kept <= **span).map(|(span, ring)| {
        let width = span / 4;
        ring * SLOTS_OF_RING + at.0 / width % SLOTS_OF_RING
    });
    slot.and_then(|slot| i16::try_from(slot).ok()).unwrap_or(LAST_SLOT)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_goes_at_the_same_time_lies_together_and_apart_from_the_rest() {
        let now = Timestamp(1_800_000_000_000);
        let after = |ms: u64| slot_of(Some(Timestamp(now.0 + ms)), now);
        assert_eq!(after(1000), after(2000));
        assert_ne!(after(HOUR_MS), after(1000));
        assert_ne!(after(2 * HOUR_MS), after(HOUR_MS), "another ring");
        assert!((0..100).all(|day| (0..=LAST_SLOT).contains(&after(day * 24 * HOUR_MS))));
        assert_eq!(slot_of(None, now), LAST_SLOT);
        assert_eq!(after(1000 * 24 * HOUR_MS), LAST_SLOT);
    }
}
