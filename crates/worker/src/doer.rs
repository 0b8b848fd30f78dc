//! How many run at a time, and which of those that wait here comes next.

use crate::clock::Time;
use rustc_hash::FxHashMap;
use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use tokio::sync::oneshot;

/// More are taken when at least this part of the slots has nobody who waits for it.
const TOGETHER: usize = 8;

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
    /// How many may wait for them.
    line: usize,
    taken: usize,
    waiting: usize,
    serial: u64,
    kinds: FxHashMap<Arc<str>, OfKind>,
}

/// What runs and waits of one kind. Forgotten when nothing does.
#[derive(Debug, Default)]
struct OfKind {
    running: usize,
    waiting: BTreeMap<Rank, oneshot::Sender<Slot>>,
}

/// Whose turn it is, and who came first.
type Rank = (i64, u64);

/// What decides who is next.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct About {
    pub(crate) kind: Arc<str>,
    pub(crate) priority: i32,
    pub(crate) queued_at: Time,
}

/// Room for one, given back when it is dropped.
#[derive(Debug)]
pub(crate) struct Slot {
    doer: Doer,
    kind: Arc<str>,
}

/// A place among those who wait, given up when it is dropped.
#[derive(Debug)]
pub(crate) struct Turn {
    doer: Doer,
    kind: Arc<str>,
    rank: Rank,
    slot: oneshot::Receiver<Slot>,
}

impl Turn {
    /// It is its turn when this ends.
    pub(crate) async fn come(mut self) -> Option<Slot> {
        (&mut self.slot).await.ok()
    }
}

/// Whether there is room.
pub(crate) enum Entry {
    Now(Slot),
    Soon(Turn),
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
        let kinds = FxHashMap::default();
        let room = Room { order, slots, line: slots, taken: 0, waiting: 0, serial: 0, kinds };
        Doer(Arc::new(Mutex::new(room)))
    }

    /// It works for so many queues: however few slots it has, one of each may wait for them.
    pub(crate) fn serve(&self, queues: usize) {
        let mut room = self.lock();
        room.line = room.line.max(queues.saturating_add(room.slots / TOGETHER));
    }

    /// What is not worth taking: more are taken together.
    pub(crate) fn few(&self) -> usize {
        self.lock().slots / TOGETHER
    }

    /// How many places may be promised to what has yet to come. Whatever has a slot left takes `few` besides these, and at least one.
    pub(crate) fn promised_max(&self) -> usize {
        let room = self.lock();
        room.line - room.slots / TOGETHER
    }

    pub(crate) fn is_same(&self, other: &Doer) -> bool {
        Arc::ptr_eq(&self.0, &other.0)
    }

    /// How many more it takes: those that run, and as many again that wait for them. None until it takes several, if
    /// many run: they are taken together.
    pub(crate) fn available(&self) -> usize {
        let room = self.lock();
        let available = room.slots.saturating_add(room.line).saturating_sub(room.taken + room.waiting);
        if available < room.slots / TOGETHER { 0 } else { available }
    }

    pub(crate) fn enter(&self, about: About) -> Entry {
        let mut room = self.lock();
        let About { kind, priority, queued_at } = about;
        if room.taken < room.slots {
            return Entry::Now(self.take(&mut room, kind));
        }
        if room.waiting >= room.line {
            return Entry::Full;
        }
        room.serial += 1;
        let rank = match room.order {
            Order::Balanced => 0,
            Order::Priority => -i64::from(priority),
            Order::Age => i64::try_from(queued_at.0).unwrap_or(i64::MAX),
        };
        let rank = (rank, room.serial);
        let (go, slot) = oneshot::channel();
        room.waiting += 1;
        room.kinds.entry(Arc::clone(&kind)).or_default().waiting.insert(rank, go);
        Entry::Soon(Turn { doer: self.clone(), kind, rank, slot })
    }

    fn take(&self, room: &mut Room, kind: Arc<str>) -> Slot {
        room.taken += 1;
        room.kinds.entry(Arc::clone(&kind)).or_default().running += 1;
        Slot { doer: self.clone(), kind }
    }

    fn leave(&self, kind: &str) {
        let mut room = self.lock();
        room.taken -= 1;
        if let Some(of_kind) = room.kinds.get_mut(kind) {
            of_kind.running -= 1;
        }
        let mut unwanted = None;
        while room.taken < room.slots {
            let Some((kind, go)) = room.next() else { break };
            if let Err(slot) = go.send(self.take(&mut room, kind)) {
                // It goes to the next when it is dropped.
                unwanted = Some(slot);
                break;
            }
        }
        room.forget(kind);
        // Not under the lock: it comes here again.
        drop(room);
        drop(unwanted);
    }

    fn lock(&self) -> MutexGuard<'_, Room> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Room {
    /// Takes the next out of those who wait.
    fn next(&mut self) -> Option<(Arc<str>, oneshot::Sender<Slot>)> {
        let first = |of_kind: &OfKind| of_kind.waiting.first_key_value().map(|(rank, _)| *rank);
        let kinds = self.kinds.iter().filter_map(|(kind, of_kind)| {
            let rank = first(of_kind)?;
            let running = if self.order == Order::Balanced { of_kind.running } else { 0 };
            Some(((running, rank), kind))
        });
        let (_, kind) = kinds.min_by_key(|(order, _)| *order)?;
        let kind = Arc::clone(kind);
        let (_, go) = self.kinds.get_mut(&kind)?.waiting.pop_first()?;
        self.waiting -= 1;
        Some((kind, go))
    }

    fn forget(&mut self, kind: &str) {
        if self.kinds.get(kind).is_some_and(|of_kind| of_kind.running == 0 && of_kind.waiting.is_empty()) {
            self.kinds.remove(kind);
        }
    }
}

impl Drop for Slot {
    fn drop(&mut self) {
        self.doer.leave(&self.kind);
    }
}

impl Drop for Turn {
    fn drop(&mut self) {
        let mut room = self.doer.lock();
        let gone = room.kinds.get_mut(&self.kind).and_then(|of_kind| of_kind.waiting.remove(&self.rank));
        if gone.is_some() {
            room.waiting -= 1;
            room.forget(&self.kind);
        }
        // A slot that came is dropped after this, not under the lock.
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn about(kind: &str, priority: i32, queued_at: u64) -> About {
        About { kind: kind.into(), priority, queued_at: Time(queued_at) }
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
                if let Some(slot) = turn.as_mut().and_then(|turn| turn.slot.try_recv().ok()) {
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

    #[test]
    fn who_has_a_slot_left_takes_some_besides_what_was_promised() {
        for (slots, queues) in [(1, 1), (1, 5), (7, 3), (8, 8), (16, 15), (64, 2), (256, 1), (256, 300)] {
            let doer = Doer::balanced(slots);
            doer.serve(queues);
            assert!(doer.promised_max() >= queues, "{slots} slots, {queues} queues");
            let _running: Vec<Entry> = (1..slots).map(|_| doer.enter(about("a", 0, 0))).collect();
            let left = doer.available() - doer.promised_max();
            assert!(left >= doer.few().max(1), "{slots} slots, {queues} queues: {left}");
        }
        let unlimited = Doer::unlimited();
        unlimited.serve(3);
        assert!(unlimited.available() - unlimited.promised_max() >= unlimited.few());
    }

    #[test]
    fn where_many_run_several_are_taken_together() {
        let doer = Doer::balanced(16);
        let mut running: Vec<Entry> = (0..32).map(|_| doer.enter(about("a", 0, 0))).collect();
        assert_eq!(doer.available(), 0);
        running.pop();
        assert_eq!(doer.available(), 0, "one is left to others");
        running.pop();
        assert_eq!(doer.available(), 2);
    }
}
