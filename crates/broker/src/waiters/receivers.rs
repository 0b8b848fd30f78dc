//! Receivers that wait for items, queue by queue, first come, first served.
//!
//! A receiver waits only while no receive of its own is under way. A receive that comes back empty joins the waiters,
//! unless the queue's wake generation has changed since it began.
//!
//! A queue at one of its limits is throttled: a submit wakes no receiver until a lease ends or the time comes that the
//! store named. Where only some fairness keys are at their limit, items of the other keys still wake receivers.
//!
//! **Invariant:** while a receiver waits and an item can be delivered, some receiver asks the store or is about to. A
//! receiver that disconnects after being woken passes the wake-up on.

use crate::broker::Shared;
use crate::delivery::Delivery;
use parking_lot::{Mutex, MutexGuard};
use std::collections::{BTreeMap, HashMap, VecDeque};
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::oneshot;
use tokio::task::AbortHandle;
use towline_domain::{FullKeys, KeyTag, Millis, QueueEffects, QueueName, Throttle};
use towline_store::ReceiveCall;

/// What a waiting receiver gets.
pub(crate) enum WakeUp {
    Delivered(Delivery),
    /// The receiver should ask the store again.
    Recheck,
}

/// A receiver that found nothing and waits.
pub(crate) struct Waiter {
    pub(crate) call: Box<ReceiveCall>,
    pub(crate) hand_over: oneshot::Sender<WakeUp>,
}

impl Waiter {
    /// A receiver that disconnected drops what it is handed, and the items go back to their queue.
    pub(crate) fn hand(self, wake_up: WakeUp) {
        let _ = self.hand_over.send(wake_up);
    }

    pub(crate) fn recheck(self) {
        self.hand(WakeUp::Recheck);
    }
}

/// The order of waiters: lower tickets are served first.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
struct Ticket(u64);

/// Numbers that change when a queue does. A receiver reads them before it asks the store and compares them before it waits.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct WakeGeneration {
    /// An item became ready.
    arrived: u64,
    /// An item became ready whose fairness key is below its limit, as far as is known.
    deliverable: u64,
    /// A lease ended.
    freed: u64,
}

impl WakeGeneration {
    fn all(number: u64) -> WakeGeneration {
        WakeGeneration { arrived: number, deliverable: number, freed: number }
    }
}

/// Why no waiter of a queue would receive an item.
enum ActiveThrottle {
    Concurrency,
    Rate {
        _timer: Timer,
    },
    /// Items of these fairness keys.
    Keys(FullKeys),
}

/// Wakes a receiver, unless it is dropped before.
struct Timer(AbortHandle);

impl Drop for Timer {
    fn drop(&mut self) {
        self.0.abort();
    }
}

/// Maximum time without a receive from a throttled queue: its policy may have changed on another server.
const THROTTLE_MAX: Duration = Duration::from_secs(1);

impl Timer {
    fn set(broker: &Arc<Shared>, queue: &QueueName, wait: Millis) -> Timer {
        let (broker, queue) = (Arc::downgrade(broker), queue.clone());
        let wait = Duration::from_millis(wait.0).clamp(Duration::from_millis(1), THROTTLE_MAX);
        let task = tokio::spawn(async move {
            tokio::time::sleep(wait).await;
            if let Some(broker) = broker.upgrade() {
                broker.receivers.wake_one(&queue);
            }
        });
        Timer(task.abort_handle())
    }
}

/// What limits the leases of a queue.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum LeaseLimit {
    Concurrency,
    Keys,
}

struct QueueWaiters {
    /// In order of their tickets.
    waiters: VecDeque<(Ticket, Waiter)>,
    generation: WakeGeneration,
    throttle: Option<ActiveThrottle>,
    /// The limit that a receiver last met. It outlives the throttle: the receiver that is woken when a lease ends may
    /// take the item without meeting the limit again.
    lease_limit: Option<LeaseLimit>,
    /// Receivers that wait or are about to.
    guards: usize,
}

impl QueueWaiters {
    fn is_rate_throttled(&self) -> bool {
        matches!(self.throttle, Some(ActiveThrottle::Rate { .. }))
    }

    /// Records the store's throttle. Returns whether it still holds: nothing that ends it has happened since `seen`.
    fn apply_throttle(
        &mut self,
        throttle: &Throttle,
        seen: WakeGeneration,
        queue: &QueueName,
        broker: &Arc<Shared>,
    ) -> bool {
        match throttle {
            Throttle::Rate(wait) => {
                self.throttle = Some(ActiveThrottle::Rate { _timer: Timer::set(broker, queue, *wait) });
                true
            }
            _ if self.generation.freed != seen.freed => false,
            Throttle::Concurrency => {
                self.lease_limit = Some(LeaseLimit::Concurrency);
                self.throttle = Some(ActiveThrottle::Concurrency);
                true
            }
            Throttle::Keys(full) => {
                self.lease_limit = Some(LeaseLimit::Keys);
                // A rate that another receiver met meanwhile stays: only its timer ends it.
                if !self.is_rate_throttled() {
                    self.throttle = (!full.is_empty()).then(|| ActiveThrottle::Keys(full.clone()));
                }
                self.generation.deliverable == seen.deliverable
            }
        }
    }

    /// How many of these ready items may be delivered, as far as is known.
    fn deliverable(&self, ready: &BTreeMap<KeyTag, u64>) -> u64 {
        match &self.throttle {
            Some(ActiveThrottle::Keys(full)) => {
                ready.iter().filter(|(key, _)| !full.has(**key)).map(|(_, count)| count).sum()
            }
            _ => ready.values().sum(),
        }
    }

    /// The first waiter that is still connected.
    fn next(&mut self) -> Option<Waiter> {
        while let Some((_, waiter)) = self.waiters.pop_front() {
            if !waiter.hand_over.is_closed() {
                return Some(waiter);
            }
        }
        None
    }

    fn wake(&mut self, count: u64) {
        let mut woken = 0;
        while woken < count
            && let Some(waiter) = self.next()
        {
            waiter.recheck();
            woken += 1;
        }
    }
}

#[derive(Default)]
struct Queues {
    queues: HashMap<QueueName, QueueWaiters>,
    /// For generations and tickets. No number is used twice, even after the waiters of a queue were forgotten.
    numbers: u64,
}

impl Queues {
    fn number(&mut self) -> u64 {
        self.numbers += 1;
        self.numbers
    }
}

/// The receivers that wait at this broker.
#[derive(Default)]
pub(crate) struct ReceiveWaiters(Mutex<Queues>);

/// A receiver's stay at a queue. When it is dropped, the receiver leaves. A queue without receivers is forgotten.
pub(crate) struct WaiterGuard<'a> {
    receivers: &'a ReceiveWaiters,
    queue: &'a QueueName,
    ticket: Option<Ticket>,
    /// It has waited, and may have been woken for an item it has not asked for: if it leaves, another receiver rechecks.
    owes_recheck: bool,
}

impl WaiterGuard<'_> {
    /// Read this before a receive, and pass it to [`WaiterGuard::join`] after it.
    pub(crate) fn generation(&self) -> WakeGeneration {
        let all = self.receivers.lock();
        all.queues.get(self.queue).map_or(WakeGeneration::all(0), |queue| queue.generation)
    }

    /// Waits after an empty receive. Returns the waiter if another receive might find an item.
    pub(crate) fn join(
        &mut self,
        waiter: Waiter,
        seen: WakeGeneration,
        throttle: Option<&Throttle>,
        broker: &Arc<Shared>,
    ) -> Result<(), Waiter> {
        let mut all = self.receivers.lock();
        let ticket = Ticket(all.number());
        let Some(queue) = all.queues.get_mut(self.queue) else { return Err(waiter) };
        let may_wait = match throttle {
            None => {
                let nothing_new = queue.generation.arrived == seen.arrived;
                if nothing_new {
                    (queue.throttle, queue.lease_limit) = (None, None);
                }
                nothing_new
            }
            Some(throttle) => queue.apply_throttle(throttle, seen, self.queue, broker),
        };
        if !may_wait {
            return Err(waiter);
        }
        queue.waiters.push_back((ticket, waiter));
        self.ticket = Some(ticket);
        self.owes_recheck = true;
        Ok(())
    }

    /// Stops waiting. `false`: the waiter has already been chosen for a wake-up.
    pub(crate) fn leave(&mut self) -> bool {
        let Some(ticket) = self.ticket.take() else { return false };
        let mut all = self.receivers.lock();
        let Some(queue) = all.queues.get_mut(self.queue) else { return false };
        let at = queue.waiters.binary_search_by_key(&ticket, |(ticket, _)| *ticket);
        let was_waiting = at.is_ok_and(|at| queue.waiters.remove(at).is_some());
        self.owes_recheck &= !was_waiting;
        was_waiting
    }

    /// The receiver has asked the store again and handled the result. Returns whether it owed that.
    pub(crate) fn has_rechecked(&mut self) -> bool {
        std::mem::replace(&mut self.owes_recheck, false)
    }
}

impl Drop for WaiterGuard<'_> {
    fn drop(&mut self) {
        self.leave();
        let mut all = self.receivers.lock();
        let Some(queue) = all.queues.get_mut(self.queue) else { return };
        queue.guards = queue.guards.saturating_sub(1);
        if queue.guards == 0 {
            all.queues.remove(self.queue);
        } else if self.owes_recheck {
            queue.wake(1);
        }
    }
}

impl ReceiveWaiters {
    fn lock(&self) -> MutexGuard<'_, Queues> {
        self.0.lock()
    }

    pub(crate) fn enter<'a>(&'a self, queue: &'a QueueName) -> WaiterGuard<'a> {
        let mut all = self.lock();
        match all.queues.get_mut(queue) {
            Some(known) => known.guards += 1,
            None => {
                let generation = WakeGeneration::all(all.number());
                let new = QueueWaiters {
                    waiters: VecDeque::new(),
                    generation,
                    throttle: None,
                    lease_limit: None,
                    guards: 1,
                };
                all.queues.insert(queue.clone(), new);
            }
        }
        WaiterGuard { receivers: self, queue, ticket: None, owes_recheck: false }
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.lock().queues.is_empty()
    }

    /// Takes a waiter for each of these fairness keys that is below its limit, `max` at most, with the current
    /// generation.
    pub(crate) fn take_for(
        &self,
        queue: &QueueName,
        keys: impl Iterator<Item = KeyTag>,
        max: usize,
    ) -> Vec<(Waiter, WakeGeneration)> {
        let mut all = self.lock();
        let Some(waiting) = all.queues.get_mut(queue).filter(|queue| !queue.waiters.is_empty()) else {
            return Vec::new();
        };
        let count = match &waiting.throttle {
            None => keys.take(max).count(),
            Some(ActiveThrottle::Keys(full)) => keys.filter(|key| !full.has(*key)).take(max).count(),
            Some(ActiveThrottle::Concurrency | ActiveThrottle::Rate { .. }) => 0,
        };
        let generation = waiting.generation;
        (0..count).map_while(|_| waiting.next()).map(|waiter| (waiter, generation)).collect()
    }

    /// Wakes receivers for what a batch did to their queue.
    pub(crate) fn apply(&self, queue: &QueueName, effects: &QueueEffects) {
        let mut all = self.lock();
        if all.queues.is_empty() {
            return;
        }
        let number = all.number();
        let Some(waiting) = all.queues.get_mut(queue) else { return };
        if effects.completed || effects.deleted {
            waiting.generation = WakeGeneration::all(number);
            waiting.throttle = None;
            return waiting.wake(u64::MAX);
        }
        let ready = effects.ready_count();
        let deliverable = waiting.deliverable(&effects.ready);
        if ready > 0 {
            waiting.generation.arrived = number;
        }
        if deliverable > 0 {
            waiting.generation.deliverable = number;
        }
        let mut wake = match &waiting.throttle {
            None | Some(ActiveThrottle::Keys(_)) => deliverable,
            Some(ActiveThrottle::Concurrency | ActiveThrottle::Rate { .. }) => 0,
        };
        if effects.leases_ended > 0 || effects.key_leases_ended > 0 {
            waiting.generation.freed = number;
            let freed = match waiting.lease_limit {
                Some(LeaseLimit::Concurrency) => effects.leases_ended,
                Some(LeaseLimit::Keys) => effects.key_leases_ended,
                None => 0,
            };
            if freed > 0 && !waiting.is_rate_throttled() {
                waiting.throttle = None;
                wake = wake.saturating_add(freed);
            }
        }
        if effects.reconfigured {
            waiting.generation = WakeGeneration::all(number);
            waiting.throttle = None;
            wake = wake.max(1);
        }
        waiting.wake(wake);
    }

    /// A peer says that this number of items may be deliverable.
    pub(crate) fn hint(&self, queue: &QueueName, count: u64) {
        let mut all = self.lock();
        let number = all.number();
        let Some(waiting) = all.queues.get_mut(queue) else { return };
        waiting.generation = WakeGeneration::all(number);
        if !waiting.is_rate_throttled() {
            waiting.throttle = None;
            waiting.wake(count);
        }
    }

    /// Ends the throttle of a queue after its time, and wakes one receiver.
    pub(crate) fn wake_one(&self, queue: &QueueName) {
        let mut all = self.lock();
        let number = all.number();
        if let Some(waiting) = all.queues.get_mut(queue) {
            waiting.generation = WakeGeneration::all(number);
            waiting.throttle = None;
            waiting.wake(1);
        }
    }

    /// Wakes one receiver of every queue to recheck for updates that this broker does not know of.
    pub(crate) fn wake_one_of_each(&self) {
        let mut all = self.lock();
        let number = all.number();
        for waiting in all.queues.values_mut() {
            waiting.generation = WakeGeneration::all(number);
            if !waiting.is_rate_throttled() {
                waiting.wake(1);
            }
        }
    }

    /// After a receive with items: throttles the other receivers, or wakes them for the items left.
    pub(crate) fn wake_next(
        &self,
        queue: &QueueName,
        throttle: Option<&Throttle>,
        more: usize,
        seen: WakeGeneration,
        broker: &Arc<Shared>,
    ) {
        let mut all = self.lock();
        let Some(waiting) = all.queues.get_mut(queue).filter(|queue| !queue.waiters.is_empty()) else {
            return;
        };
        match throttle {
            None => waiting.wake(more as u64),
            Some(throttle) => {
                if !waiting.apply_throttle(throttle, seen, queue, broker) {
                    waiting.wake(1);
                }
            }
        }
    }

    /// Throttles a queue for a time, after a fault of the store or at its rate limit.
    pub(crate) fn back_off(&self, queue: &QueueName, wait: Millis, broker: &Arc<Shared>) {
        let mut all = self.lock();
        if let Some(waiting) = all.queues.get_mut(queue).filter(|queue| !queue.waiters.is_empty()) {
            let seen = waiting.generation;
            waiting.apply_throttle(&Throttle::Rate(wait), seen, queue, broker);
        }
    }

    /// Ends all waits without an item: the broker stops.
    pub(crate) fn dismiss(&self) {
        let queues = std::mem::take(&mut self.lock().queues);
        drop(queues);
    }
}
