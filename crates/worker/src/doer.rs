//! How many run at a time, and which of those that wait here comes next.

use crate::clock::Time;
use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use tokio::sync::oneshot;

/// Clones are the same: kinds that share one share its room.
#[derive(Debug, Clone)]
pub struct Doer(Arc<Mutex<Room>>);

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Order {
    Balanced,
    Priority,
    Age,
}

#[derive(Debug)]
struct Room {
    order: Order,
    slots: usize,
    running: HashMap<String, usize>,
    taken: usize,
    waiting: Vec<Waiting>,
    serial: u64,
}

#[derive(Debug)]
struct Waiting {
    about: About,
    serial: u64,
    go: oneshot::Sender<Slot>,
}

/// What decides who is next.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct About {
    pub(crate) kind: String,
    pub(crate) priority: i32,
    pub(crate) queued_at: Time,
}

/// Room for one, given back when it is dropped.
#[derive(Debug)]
pub(crate) struct Slot {
    doer: Doer,
    kind: String,
}

/// Whether there is room.
pub(crate) enum Entry {
    Now(Slot),
    /// It is its turn when this comes.
    Soon(oneshot::Receiver<Slot>),
    Full,
}

impl Doer {
    /// As many as come.
    #[must_use]
    pub fn unlimited() -> Doer {
        Doer::new(Order::Balanced, usize::MAX)
    }

    /// Up to so many; the kind that has the fewest running comes next.
    #[must_use]
    pub fn balanced(slots: usize) -> Doer {
        Doer::new(Order::Balanced, slots)
    }

    /// Up to so many; the highest priority comes next.
    #[must_use]
    pub fn priority(slots: usize) -> Doer {
        Doer::new(Order::Priority, slots)
    }

    /// Up to so many; the oldest comes next.
    #[must_use]
    pub fn age(slots: usize) -> Doer {
        Doer::new(Order::Age, slots)
    }

    fn new(order: Order, slots: usize) -> Doer {
        let slots = slots.max(1);
        Doer(Arc::new(Mutex::new(Room {
            order,
            slots,
            running: HashMap::new(),
            taken: 0,
            waiting: Vec::new(),
            serial: 0,
        })))
    }

    pub(crate) fn is_same(&self, other: &Doer) -> bool {
        Arc::ptr_eq(&self.0, &other.0)
    }

    /// How many more it takes: those that run, and as many again that wait for them.
    pub(crate) fn available(&self) -> usize {
        let room = self.lock();
        room.slots.saturating_mul(2).saturating_sub(room.taken + room.waiting.len())
    }

    pub(crate) fn enter(&self, about: About) -> Entry {
        let mut room = self.lock();
        if room.taken < room.slots {
            return Entry::Now(self.take(&mut room, about.kind));
        }
        if room.waiting.len() >= room.slots {
            return Entry::Full;
        }
        room.serial += 1;
        let (go, turn) = oneshot::channel();
        let serial = room.serial;
        room.waiting.push(Waiting { about, serial, go });
        Entry::Soon(turn)
    }

    fn take(&self, room: &mut Room, kind: String) -> Slot {
        room.taken += 1;
        *room.running.entry(kind.clone()).or_default() += 1;
        Slot { doer: self.clone(), kind }
    }

    fn leave(&self, kind: &str) {
        let mut room = self.lock();
        room.taken -= 1;
        if let Some(running) = room.running.get_mut(kind) {
            *running -= 1;
            if *running == 0 {
                room.running.remove(kind);
            }
        }
        let mut unwanted = None;
        while room.taken < room.slots {
            // Who left meanwhile gets nothing.
            room.waiting.retain(|waiting| !waiting.go.is_closed());
            let Some(next) = room.next() else { break };
            let next = room.waiting.swap_remove(next);
            let slot = self.take(&mut room, next.about.kind);
            if let Err(slot) = next.go.send(slot) {
                unwanted = Some(slot);
                break;
            }
        }
        // Not under the lock: it comes here again.
        drop(room);
        drop(unwanted);
    }

    fn lock(&self) -> MutexGuard<'_, Room> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Room {
    fn next(&self) -> Option<usize> {
        let running = |waiting: &Waiting| self.running.get(&waiting.about.kind).copied().unwrap_or_default();
        let all = self.waiting.iter().enumerate();
        let next = match self.order {
            Order::Balanced => all.min_by_key(|(_, waiting)| (running(waiting), waiting.serial)),
            Order::Priority => {
                all.min_by_key(|(_, waiting)| (std::cmp::Reverse(waiting.about.priority), waiting.serial))
            }
            Order::Age => all.min_by_key(|(_, waiting)| (waiting.about.queued_at, waiting.serial)),
        };
        next.map(|(at, _)| at)
    }
}

impl Drop for Slot {
    fn drop(&mut self) {
        self.doer.leave(&self.kind);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn about(kind: &str, priority: i32, queued_at: u64) -> About {
        About { kind: kind.to_owned(), priority, queued_at: Time(queued_at) }
    }

    /// In what order those who wait come, while three of kind `a` end one after the other.
    fn order(doer: &Doer) -> Vec<usize> {
        let slot = |about| match doer.enter(about) {
            Entry::Now(slot) => slot,
            _ => panic!("there is room"),
        };
        let mut running: Vec<Slot> = (0..3).map(|_| slot(about("a", 0, 0))).collect();
        let all = [about("a", 1, 10), about("b", 0, 30), about("a", 5, 20)];
        let mut waiting: Vec<_> = all
            .into_iter()
            .map(|about| match doer.enter(about) {
                Entry::Soon(turn) => Some(turn),
                _ => panic!("there is room to wait"),
            })
            .collect();
        assert!(matches!(doer.enter(about("c", 9, 1)), Entry::Full));
        assert_eq!(doer.available(), 0);
        let (mut came, mut begun) = (Vec::new(), Vec::new());
        while let Some(slot) = running.pop() {
            drop(slot);
            for (at, turn) in waiting.iter_mut().enumerate() {
                if let Some(slot) = turn.as_mut().and_then(|turn| turn.try_recv().ok()) {
                    came.push(at);
                    begun.push(slot);
                    *turn = None;
                }
            }
        }
        drop(begun);
        assert_eq!(doer.available(), 6);
        came
    }

    #[test]
    fn who_comes_next_is_as_was_said() {
        assert_eq!(order(&Doer::balanced(3)), [1, 0, 2], "the kind of which none runs");
        assert_eq!(order(&Doer::priority(3)), [2, 0, 1]);
        assert_eq!(order(&Doer::age(3)), [0, 2, 1]);
    }

    #[test]
    fn who_left_is_passed_over() {
        let doer = Doer::balanced(1);
        let Entry::Now(slot) = doer.enter(about("a", 0, 0)) else { panic!() };
        let Entry::Soon(turn) = doer.enter(about("a", 0, 0)) else { panic!() };
        drop(turn);
        drop(slot);
        assert!(matches!(doer.enter(about("a", 0, 0)), Entry::Now(_)));
        assert_eq!(doer.available(), 2);
    }
}
