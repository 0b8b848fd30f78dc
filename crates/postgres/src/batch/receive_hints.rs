//! Receive hints: the position in a queue's order at which the next receive starts to look.
//!
//! Delivered items leave dead entries at the start of the index, for as long as an open snapshot might see them. A receive
//! that starts behind the last delivered position does not walk over them again.
//!
//! Within one server a hint never skips a ready item: an item that becomes ready before the hint moves it back, after the
//! commit and before callers get their answers. An item that another server makes ready before the hint is found by the
//! next receive that starts at the beginning: every [`FULL_EVERY`]th one, and every one that finds too few items.

use parking_lot::Mutex;
use rustc_hash::FxHashMap;
use std::collections::VecDeque;
use towline_domain::{OrderKey, QueueId, Timestamp};

/// After this many receives of a queue, one looks from the start.
const FULL_EVERY: u32 = 64;
/// A receive during which more items became ready than this does not move the hint.
const PUTS_KEPT: usize = 32;

/// A position in a queue's order. The sequence number breaks ties.
pub(crate) type OrderPosition = (OrderKey, u64);

/// The position before all others.
pub(crate) const START: OrderPosition = (OrderKey { rank: i64::MIN, time: Timestamp(0) }, 0);

#[derive(Debug, Default)]
pub(crate) struct ReceiveHints(Mutex<FxHashMap<QueueId, ReceiveHint>>);

#[derive(Debug, Default)]
struct ReceiveHint {
    after: Option<OrderPosition>,
    /// Rises with every item that becomes ready.
    generation: u64,
    /// The positions of the latest of them.
    puts: VecDeque<OrderPosition>,
    uses: u32,
}

/// Where a receive starts, and the generation that it saw.
#[derive(Debug, Clone, Copy)]
pub(crate) struct ReceiveStart {
    pub(crate) after: OrderPosition,
    generation: u64,
}

impl ReceiveHints {
    fn with<T>(&self, queue: QueueId, act: impl FnOnce(&mut ReceiveHint) -> T) -> T {
        let mut hints = self.0.lock();
        act(hints.entry(queue).or_default())
    }

    pub(crate) fn begin(&self, queue: QueueId) -> ReceiveStart {
        self.with(queue, |hint| {
            hint.uses += 1;
            if hint.uses >= FULL_EVERY {
                (hint.uses, hint.after) = (0, None);
            }
            ReceiveStart { after: hint.after.unwrap_or(START), generation: hint.generation }
        })
    }

    /// The receive that began at `begin` delivered everything it saw up to `last`.
    pub(crate) fn given(&self, queue: QueueId, begin: ReceiveStart, last: OrderPosition) {
        self.with(queue, |hint| {
            // The receive did not see items that became ready after it began. The hint must not pass them.
            let unseen = usize::try_from(hint.generation - begin.generation).unwrap_or(usize::MAX);
            if unseen <= hint.puts.len()
                && hint.puts.iter().rev().take(unseen).all(|put| *put > last)
                && hint.after.is_none_or(|after| after < last)
            {
                hint.after = Some(last);
            }
        });
    }

    /// An item became ready at this position.
    pub(crate) fn put(&self, queue: QueueId, place: OrderPosition) {
        self.with(queue, |hint| {
            hint.note(place);
            if hint.after.is_some_and(|after| place <= after) {
                hint.after = None;
            }
        });
    }

    /// The next receive looks from the start.
    pub(crate) fn reset(&self, queue: QueueId) {
        self.put(queue, START);
    }

    pub(crate) fn forget_all(&self) {
        let mut hints = self.0.lock();
        for hint in hints.values_mut() {
            hint.note(START);
            hint.after = None;
        }
    }
}

impl ReceiveHint {
    fn note(&mut self, place: OrderPosition) {
        self.generation += 1;
        if self.puts.len() == PUTS_KEPT {
            self.puts.pop_front();
        }
        self.puts.push_back(place);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const QUEUE: QueueId = QueueId(1);

    fn place(time: u64) -> OrderPosition {
        (OrderKey { rank: 0, time: Timestamp(time) }, 1)
    }

    #[test]
    fn a_delivery_moves_the_hint_forward_and_a_ready_item_moves_it_back() {
        let hints = ReceiveHints::default();
        let begin = hints.begin(QUEUE);
        assert_eq!(begin.after, START);
        hints.given(QUEUE, begin, place(5));
        assert_eq!(hints.begin(QUEUE).after, place(5));
        hints.put(QUEUE, place(6));
        assert_eq!(hints.begin(QUEUE).after, place(5), "a later item is found anyway");
        hints.put(QUEUE, place(4));
        assert_eq!(hints.begin(QUEUE).after, START);
    }

    #[test]
    fn a_receive_does_not_move_the_hint_past_an_item_that_it_did_not_see() {
        let hints = ReceiveHints::default();
        let begin = hints.begin(QUEUE);
        hints.put(QUEUE, place(4));
        hints.given(QUEUE, begin, place(5));
        assert_eq!(hints.begin(QUEUE).after, START);
        let begin = hints.begin(QUEUE);
        hints.put(QUEUE, place(6));
        hints.given(QUEUE, begin, place(5));
        assert_eq!(
            hints.begin(QUEUE).after,
            place(5),
            "an item behind the last delivered one does not matter"
        );
        for _ in 0..=PUTS_KEPT {
            hints.put(QUEUE, place(9));
        }
        hints.given(QUEUE, begin, place(8));
        assert_eq!(hints.begin(QUEUE).after, place(5), "more items became ready than are remembered");
    }

    #[test]
    fn every_64th_receive_looks_from_the_start() {
        let hints = ReceiveHints::default();
        let begin = hints.begin(QUEUE);
        hints.given(QUEUE, begin, place(5));
        assert!((0..FULL_EVERY).any(|_| hints.begin(QUEUE).after == START));
    }
}
