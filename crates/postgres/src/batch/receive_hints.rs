//! Where in a queue's order the next receive may begin to look.
//!
//! What was given out leaves dead entries at the beginning of the index, for as long as anybody's snapshot may see
//! them. A receive that begins after the last place given out does not walk over them again.
//!
//! Within one server a hint never skips what is ready: whatever is put before it moves it back, after the commit and
//! before anybody is told. What another server puts before it is found by the next receive that begins at the start:
//! every [`FULL_EVERY`]th, and every one that finds less than it wants.

use rustc_hash::FxHashMap;
use std::collections::VecDeque;
use std::sync::{Mutex, PoisonError};
use towline_domain::{OrderKey, QueueId, Timestamp};

/// Receives of a queue after which one looks from the start.
const FULL_EVERY: u32 = 64;
/// More than this many puts during one receive, and it does not move the hint.
const PUTS_KEPT: usize = 32;

/// A place in the order, with the sequence number that breaks ties.
pub(crate) type Place = (OrderKey, u64);

/// Before every place.
pub(crate) const START: Place = (OrderKey { rank: i64::MIN, time: Timestamp(0) }, 0);

#[derive(Debug, Default)]
pub(crate) struct Hints(Mutex<FxHashMap<QueueId, Hint>>);

#[derive(Debug, Default)]
struct Hint {
    after: Option<Place>,
    /// Counts what was put into the queue.
    generation: u64,
    /// The latest of that.
    puts: VecDeque<Place>,
    uses: u32,
}

/// Where a receive begins, and what it has to show to move the hint.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Begin {
    pub(crate) after: Place,
    generation: u64,
}

impl Hints {
    fn with<T>(&self, queue: QueueId, act: impl FnOnce(&mut Hint) -> T) -> T {
        let mut hints = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        act(hints.entry(queue).or_default())
    }

    pub(crate) fn begin(&self, queue: QueueId) -> Begin {
        self.with(queue, |hint| {
            hint.uses += 1;
            if hint.uses >= FULL_EVERY {
                (hint.uses, hint.after) = (0, None);
            }
            Begin { after: hint.after.unwrap_or(START), generation: hint.generation }
        })
    }

    /// All up to here was given out, as far as the one who began there saw.
    pub(crate) fn given(&self, queue: QueueId, begin: Begin, last: Place) {
        self.with(queue, |hint| {
            // Who looked before something was put there did not see it, and must not pass it.
            let unseen = usize::try_from(hint.generation - begin.generation).unwrap_or(usize::MAX);
            if unseen <= hint.puts.len()
                && hint.puts.iter().rev().take(unseen).all(|put| *put > last)
                && hint.after.is_none_or(|after| after < last)
            {
                hint.after = Some(last);
            }
        });
    }

    /// Something is ready here now.
    pub(crate) fn put(&self, queue: QueueId, place: Place) {
        self.with(queue, |hint| {
            hint.note(place);
            if hint.after.is_some_and(|after| place <= after) {
                hint.after = None;
            }
        });
    }

    /// Nothing is known any more: look from the start.
    pub(crate) fn reset(&self, queue: QueueId) {
        self.put(queue, START);
    }

    pub(crate) fn forget_all(&self) {
        let mut hints = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        for hint in hints.values_mut() {
            hint.note(START);
            hint.after = None;
        }
    }
}

impl Hint {
    fn note(&mut self, place: Place) {
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

    fn place(time: u64) -> Place {
        (OrderKey { rank: 0, time: Timestamp(time) }, 1)
    }

    #[test]
    fn it_moves_forward_and_back() {
        let hints = Hints::default();
        let begin = hints.begin(QUEUE);
        assert_eq!(begin.after, START);
        hints.given(QUEUE, begin, place(5));
        assert_eq!(hints.begin(QUEUE).after, place(5));
        hints.put(QUEUE, place(6));
        assert_eq!(hints.begin(QUEUE).after, place(5), "what comes later is found anyway");
        hints.put(QUEUE, place(4));
        assert_eq!(hints.begin(QUEUE).after, START);
    }

    #[test]
    fn who_looked_before_something_was_put_there_does_not_move_it() {
        let hints = Hints::default();
        let begin = hints.begin(QUEUE);
        hints.put(QUEUE, place(4));
        hints.given(QUEUE, begin, place(5));
        assert_eq!(hints.begin(QUEUE).after, START);
        let begin = hints.begin(QUEUE);
        hints.put(QUEUE, place(6));
        hints.given(QUEUE, begin, place(5));
        assert_eq!(hints.begin(QUEUE).after, place(5), "what was put behind it does not matter");
        for _ in 0..=PUTS_KEPT {
            hints.put(QUEUE, place(9));
        }
        hints.given(QUEUE, begin, place(8));
        assert_eq!(hints.begin(QUEUE).after, place(5), "more happened than is remembered");
    }

    #[test]
    fn now_and_then_it_looks_from_the_start() {
        let hints = Hints::default();
        let begin = hints.begin(QUEUE);
        hints.given(QUEUE, begin, place(5));
        assert!((0..FULL_EVERY).any(|_| hints.begin(QUEUE).after == START));
    }
}
