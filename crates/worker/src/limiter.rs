//! How many handlers run at a time, and which waiting work gets the next free slot.

use crate::clock::Time;
use parking_lot::{Mutex, MutexGuard};
use rustc_hash::FxHashMap;
use std::collections::BTreeMap;
use std::sync::Arc;
use tokio::sync::oneshot;

/// The engine receives more only when at least one slot in this many is free: one receive of several items costs less
/// than several receives of one.
const SLOTS_PER_RECEIVED_ITEM: usize = 8;

/// Limits how many handlers run at a time, and chooses which waiting work runs next.
///
/// Clones share their slots: give clones of one limiter to several kinds of work to limit these kinds together.
#[derive(Debug, Clone)]
pub struct ConcurrencyLimiter(Arc<Mutex<LimiterState>>);

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Order {
    Balanced,
    Priority,
    Age,
}

#[derive(Debug)]
struct LimiterState {
    order: Order,
    slots: usize,
    slots_used: usize,
    /// How many waiters there may be.
    waiters_max: usize,
    waiters: usize,
    serial: u64,
    kinds: FxHashMap<Arc<str>, KindState>,
}

/// The running and waiting work of one kind. Removed when there is none.
#[derive(Debug, Default)]
struct KindState {
    running: usize,
    waiters: BTreeMap<Rank, oneshot::Sender<Permit>>,
}

/// The sort key of the limiter's order, then the order of arrival.
type Rank = (i64, u64);

/// The properties of a piece of work that decide when it gets a slot.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct SlotRequest {
    pub(crate) kind: Arc<str>,
    pub(crate) priority: i16,
    pub(crate) submitted_at: Time,
}

/// The right to run one handler. Dropping it frees the slot.
#[derive(Debug)]
pub(crate) struct Permit {
    limiter: ConcurrencyLimiter,
    kind: Arc<str>,
}

/// A piece of work that waits for a slot. Dropping it gives up the wait.
#[derive(Debug)]
pub(crate) struct SlotWaiter {
    limiter: ConcurrencyLimiter,
    kind: Arc<str>,
    rank: Rank,
    slot: oneshot::Receiver<Permit>,
}

impl SlotWaiter {
    pub(crate) async fn slot(mut self) -> Option<Permit> {
        (&mut self.slot).await.ok()
    }
}

/// The answer to a [`SlotRequest`].
pub(crate) enum Admission {
    Granted(Permit),
    Waiting(SlotWaiter),
    Full,
}

impl ConcurrencyLimiter {
    /// Runs everything at once.
    #[must_use]
    pub fn unlimited() -> ConcurrencyLimiter {
        ConcurrencyLimiter::new(Order::Balanced, usize::MAX)
    }

    /// Runs up to `slots` handlers. The kind with the fewest running handlers comes next.
    #[must_use]
    pub fn balanced(slots: usize) -> ConcurrencyLimiter {
        ConcurrencyLimiter::new(Order::Balanced, slots)
    }

    /// Runs up to `slots` handlers. The lowest priority number comes next.
    #[must_use]
    pub fn priority(slots: usize) -> ConcurrencyLimiter {
        ConcurrencyLimiter::new(Order::Priority, slots)
    }

    /// Runs up to `slots` handlers. The work that was submitted first comes next.
    #[must_use]
    pub fn age(slots: usize) -> ConcurrencyLimiter {
        ConcurrencyLimiter::new(Order::Age, slots)
    }

    fn new(order: Order, slots: usize) -> ConcurrencyLimiter {
        let slots = slots.max(1);
        ConcurrencyLimiter(Arc::new(Mutex::new(LimiterState {
            order,
            slots,
            slots_used: 0,
            waiters_max: slots,
            waiters: 0,
            serial: 0,
            kinds: FxHashMap::default(),
        })))
    }

    /// Makes room for at least one waiter of each queue, however few slots there are.
    pub(crate) fn serve_queues(&self, queues: usize) {
        let mut state = self.lock();
        state.waiters_max = state.waiters_max.max(queues.saturating_add(state.receive_min()));
    }

    /// The engine does not receive fewer items than this.
    pub(crate) fn receive_min(&self) -> usize {
        self.lock().receive_min()
    }

    /// How many places long polls may reserve. A limiter with a free slot always has room for
    /// [`ConcurrencyLimiter::receive_min`] more items than that, and for at least one.
    pub(crate) fn reserved_max(&self) -> usize {
        let state = self.lock();
        state.waiters_max - state.receive_min()
    }

    pub(crate) fn is_same(&self, other: &ConcurrencyLimiter) -> bool {
        Arc::ptr_eq(&self.0, &other.0)
    }

    /// How many more items it admits: free slots and free waiting places. Returns 0 until that is worth a receive.
    pub(crate) fn available(&self) -> usize {
        let state = self.lock();
        let used = state.slots_used + state.waiters;
        let available = state.slots.saturating_add(state.waiters_max).saturating_sub(used);
        if available < state.receive_min() { 0 } else { available }
    }

    pub(crate) fn admit(&self, request: SlotRequest) -> Admission {
        let mut state = self.lock();
        let SlotRequest { kind, priority, submitted_at } = request;
        if state.slots_used < state.slots {
            return Admission::Granted(self.take_slot(&mut state, kind));
        }
        if state.waiters >= state.waiters_max {
            return Admission::Full;
        }
        state.serial += 1;
        let key = match state.order {
            Order::Balanced => 0,
            Order::Priority => i64::from(priority),
            Order::Age => i64::try_from(submitted_at.0).unwrap_or(i64::MAX),
        };
        let rank = (key, state.serial);
        let (grant, slot) = oneshot::channel();
        state.waiters += 1;
        state.kinds.entry(Arc::clone(&kind)).or_default().waiters.insert(rank, grant);
        Admission::Waiting(SlotWaiter { limiter: self.clone(), kind, rank, slot })
    }

    fn take_slot(&self, state: &mut LimiterState, kind: Arc<str>) -> Permit {
        state.slots_used += 1;
        state.kinds.entry(Arc::clone(&kind)).or_default().running += 1;
        Permit { limiter: self.clone(), kind }
    }

    fn free_slot(&self, kind: &str) {
        let mut state = self.lock();
        state.slots_used -= 1;
        if let Some(of_kind) = state.kinds.get_mut(kind) {
            of_kind.running -= 1;
        }
        let mut unwanted = None;
        while state.slots_used < state.slots {
            let Some((kind, grant)) = state.next_waiter() else { break };
            if let Err(slot) = grant.send(self.take_slot(&mut state, kind)) {
                // The waiter is gone. Dropping the slot grants it to the next waiter.
                unwanted = Some(slot);
                break;
            }
        }
        state.remove_if_empty(kind);
        // Dropping a slot takes the lock again.
        drop(state);
        drop(unwanted);
    }

    fn lock(&self) -> MutexGuard<'_, LimiterState> {
        self.0.lock()
    }
}

impl LimiterState {
    fn receive_min(&self) -> usize {
        self.slots / SLOTS_PER_RECEIVED_ITEM
    }

    fn next_waiter(&mut self) -> Option<(Arc<str>, oneshot::Sender<Permit>)> {
        let kinds = self.kinds.iter().filter_map(|(kind, of_kind)| {
            let (rank, _) = of_kind.waiters.first_key_value()?;
            let running = if self.order == Order::Balanced { of_kind.running } else { 0 };
            Some(((running, *rank), kind))
        });
        let (_, kind) = kinds.min_by_key(|(order, _)| *order)?;
        let kind = Arc::clone(kind);
        let (_, grant) = self.kinds.get_mut(&kind)?.waiters.pop_first()?;
        self.waiters -= 1;
        Some((kind, grant))
    }

    fn remove_if_empty(&mut self, kind: &str) {
        if self.kinds.get(kind).is_some_and(|of_kind| of_kind.running == 0 && of_kind.waiters.is_empty()) {
            self.kinds.remove(kind);
        }
    }
}

impl Drop for Permit {
    fn drop(&mut self) {
        self.limiter.free_slot(&self.kind);
    }
}

impl Drop for SlotWaiter {
    fn drop(&mut self) {
        let mut state = self.limiter.lock();
        let removed = state.kinds.get_mut(&self.kind).and_then(|of_kind| of_kind.waiters.remove(&self.rank));
        if removed.is_some() {
            state.waiters -= 1;
            state.remove_if_empty(&self.kind);
        }
        // A slot that was granted meanwhile is dropped after this function, when the lock is free again.
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn request(kind: &str, priority: i16, submitted_at: u64) -> SlotRequest {
        SlotRequest { kind: kind.into(), priority, submitted_at: Time(submitted_at) }
    }

    /// The order in which three waiters get their slots while three handlers of kind `a` end one after the other.
    fn order(limiter: &ConcurrencyLimiter) -> Vec<usize> {
        let slot = |request| match limiter.admit(request) {
            Admission::Granted(slot) => slot,
            _ => panic!("a slot is free"),
        };
        let mut running: Vec<Permit> = (0..3).map(|_| slot(request("a", 0, 0))).collect();
        let all = [request("a", -1, 10), request("b", 0, 30), request("a", -5, 20)];
        let mut waiters: Vec<_> = all
            .into_iter()
            .map(|request| match limiter.admit(request) {
                Admission::Waiting(waiter) => Some(waiter),
                _ => panic!("a waiting place is free"),
            })
            .collect();
        assert!(matches!(limiter.admit(request("c", -9, 1)), Admission::Full));
        assert_eq!(limiter.available(), 0);
        let (mut order, mut slots) = (Vec::new(), Vec::new());
        while let Some(slot) = running.pop() {
            drop(slot);
            for (at, waiter) in waiters.iter_mut().enumerate() {
                if let Some(slot) = waiter.as_mut().and_then(|waiter| waiter.slot.try_recv().ok()) {
                    order.push(at);
                    slots.push(slot);
                    *waiter = None;
                }
            }
        }
        drop(slots);
        assert_eq!(limiter.available(), 6);
        order
    }

    #[test]
    fn waiters_get_slots_in_the_order_of_the_limiter() {
        assert_eq!(order(&ConcurrencyLimiter::balanced(3)), [1, 0, 2], "kind b has no running handler");
        assert_eq!(order(&ConcurrencyLimiter::priority(3)), [2, 0, 1]);
        assert_eq!(order(&ConcurrencyLimiter::age(3)), [0, 2, 1]);
    }

    #[test]
    fn a_waiter_that_gave_up_gets_no_slot() {
        let limiter = ConcurrencyLimiter::balanced(1);
        let Admission::Granted(slot) = limiter.admit(request("a", 0, 0)) else { panic!() };
        let Admission::Waiting(waiter) = limiter.admit(request("a", 0, 0)) else { panic!() };
        drop(waiter);
        drop(slot);
        assert!(matches!(limiter.admit(request("a", 0, 0)), Admission::Granted(_)));
        assert_eq!(limiter.available(), 2);
    }

    #[test]
    fn a_limiter_with_a_free_slot_admits_more_than_long_polls_reserve() {
        for (slots, queues) in [(1, 1), (1, 5), (7, 3), (8, 8), (16, 15), (64, 2), (256, 1), (256, 300)] {
            let limiter = ConcurrencyLimiter::balanced(slots);
            limiter.serve_queues(queues);
            assert!(limiter.reserved_max() >= queues, "{slots} slots, {queues} queues");
            let _running: Vec<Admission> = (1..slots).map(|_| limiter.admit(request("a", 0, 0))).collect();
            let left = limiter.available() - limiter.reserved_max();
            assert!(left >= limiter.receive_min().max(1), "{slots} slots, {queues} queues: {left}");
        }
        let unlimited = ConcurrencyLimiter::unlimited();
        unlimited.serve_queues(3);
        assert!(unlimited.available() - unlimited.reserved_max() >= unlimited.receive_min());
    }

    #[test]
    fn a_limiter_with_many_slots_admits_several_items_together() {
        let limiter = ConcurrencyLimiter::balanced(16);
        let mut running: Vec<Admission> = (0..32).map(|_| limiter.admit(request("a", 0, 0))).collect();
        assert_eq!(limiter.available(), 0);
        running.pop();
        assert_eq!(limiter.available(), 0, "one place is not worth a receive");
        running.pop();
        assert_eq!(limiter.available(), 2);
    }
}
