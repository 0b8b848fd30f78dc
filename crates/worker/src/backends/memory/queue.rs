//! The queue in memory, with the leases and redeliveries of a distributed queue.

use crate::clock::{Clock, Time};
use crate::ports::{
    DeadLetter, Delivery, IDEMPOTENCY_KEY_TTL, Lease, PortError, PortFuture, Queue, Redelivery, SubmitRequest,
};
use futures::future::BoxFuture;
use parking_lot::{Mutex, MutexGuard};
use rustc_hash::FxHashMap;
use std::collections::{BTreeSet, HashSet};
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::Notify;

#[derive(Debug)]
pub struct MemoryQueue {
    clock: Arc<dyn Clock>,
    state: Mutex<QueueState>,
    /// Notified when an item may have become ready.
    item_ready: Notify,
}

#[derive(Debug, Default)]
struct QueueState {
    serial: u64,
    items: FxHashMap<u64, MemoryItem>,
    /// By priority, then in the order in which they became ready.
    ready: BTreeSet<(i16, u64, u64)>,
    delayed: BTreeSet<(Time, u64)>,
    leased: BTreeSet<(Time, u64)>,
    keys: HashSet<String>,
    /// When the queue forgets each idempotency key.
    key_ends: BTreeSet<(Time, String)>,
    dead: Vec<(MemoryItem, String)>,
}

#[derive(Debug)]
struct MemoryItem {
    payload: String,
    priority: i16,
    attempt: u32,
    deliveries: u32,
    /// Its place among the ready items of its priority. It keeps it while it is leased.
    place: u64,
    state: ItemState,
}

/// Which of the indexes an item is in.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum ItemState {
    /// In none: a dead letter, or an item that is being changed.
    Unindexed,
    Ready,
    Delayed {
        until: Time,
    },
    Leased {
        until: Time,
        delivery: u32,
    },
}

impl MemoryQueue {
    #[must_use]
    pub fn new(clock: Arc<dyn Clock>) -> MemoryQueue {
        MemoryQueue { clock, state: Mutex::default(), item_ready: Notify::new() }
    }

    /// The dead letters, oldest first.
    #[must_use]
    pub fn dead(&self) -> Vec<DeadLetter> {
        let dead_letter = |(item, error): &(MemoryItem, String)| DeadLetter {
            payload: item.payload.clone(),
            error: error.clone(),
        };
        self.lock().dead.iter().map(dead_letter).collect()
    }

    /// How many items wait or are leased.
    #[must_use]
    pub fn size(&self) -> usize {
        self.lock().items.len()
    }

    fn lock(&self) -> MutexGuard<'_, QueueState> {
        self.state.lock()
    }

    /// Returns when an item may have become ready.
    fn ready(&self) -> BoxFuture<'_, ()> {
        let notified = self.item_ready.notified();
        let next_due = {
            let state = self.lock();
            if !state.ready.is_empty() {
                return Box::pin(std::future::ready(()));
            }
            state.next_due().map(|(at, _)| self.clock.sleep_until(at))
        };
        Box::pin(async move {
            match next_due {
                None => notified.await,
                Some(next_due) => {
                    futures::future::select(std::pin::pin!(notified), next_due).await;
                }
            }
        })
    }

    /// Takes the item of a valid lease out of the queue. `then` decides what becomes of it.
    fn settle(
        &self,
        lease: &Lease,
        then: impl FnOnce(&mut QueueState, MemoryItem, u64, Time),
    ) -> Result<(), PortError> {
        let now = self.clock.now();
        let mut state = self.lock();
        let id = state.leased_item(lease, now).ok_or(PortError::LeaseLost)?;
        let item = state.remove(id).ok_or(PortError::LeaseLost)?;
        then(&mut state, item, id, now);
        let is_back = state.items.contains_key(&id);
        drop(state);
        if is_back {
            self.item_ready.notify_waiters();
        }
        Ok(())
    }
}

impl QueueState {
    /// Returns `false` if the idempotency key is known.
    fn submit(&mut self, request: SubmitRequest, now: Time) -> bool {
        if request.idempotency_key.is_some_and(|key| !self.remember_key(key, now)) {
            return false;
        }
        self.serial += 1;
        let id = self.serial;
        let item = MemoryItem {
            payload: request.payload,
            priority: request.priority,
            attempt: 1,
            deliveries: 0,
            place: 0,
            state: ItemState::Unindexed,
        };
        self.insert(id, item, now, request.delay);
        true
    }

    fn insert(&mut self, id: u64, mut item: MemoryItem, now: Time, delay: Duration) {
        if delay.is_zero() {
            self.serial += 1;
            item.place = self.serial;
            return self.insert_ready(id, item);
        }
        let until = now.after(delay);
        self.delayed.insert((until, id));
        item.state = ItemState::Delayed { until };
        self.items.insert(id, item);
    }

    /// Makes an item ready at its place.
    fn insert_ready(&mut self, id: u64, mut item: MemoryItem) {
        self.ready.insert((item.priority, item.place, id));
        item.state = ItemState::Ready;
        self.items.insert(id, item);
    }

    fn next_due(&self) -> Option<(Time, u64)> {
        [self.delayed.first(), self.leased.first()].into_iter().flatten().min().copied()
    }

    /// Makes items ready whose delay ended or whose lease lapsed, in the order of these times.
    fn promote_due(&mut self, now: Time) {
        while let Some((_, id)) = self.next_due().filter(|(at, _)| *at <= now) {
            let Some(mut item) = self.remove(id) else { break };
            // A lapsed lease counts as an attempt.
            if matches!(item.state, ItemState::Leased { .. }) {
                item.attempt += 1;
                self.insert_ready(id, item);
            } else {
                self.insert(id, item, now, Duration::ZERO);
            }
        }
    }

    fn remove(&mut self, id: u64) -> Option<MemoryItem> {
        let item = self.items.remove(&id)?;
        match item.state {
            ItemState::Ready => self.ready.remove(&(item.priority, item.place, id)),
            ItemState::Delayed { until } => self.delayed.remove(&(until, id)),
            ItemState::Leased { until, .. } => self.leased.remove(&(until, id)),
            ItemState::Unindexed => false,
        };
        Some(item)
    }

    /// The item of a lease, if the lease is valid now.
    fn leased_item(&self, lease: &Lease, now: Time) -> Option<u64> {
        let (id, number) = lease.0.split_once('.')?;
        let (id, number): (u64, u32) = (id.parse().ok()?, number.parse().ok()?);
        match self.items.get(&id)?.state {
            ItemState::Leased { until, delivery } => (delivery == number && now < until).then_some(id),
            _ => None,
        }
    }

    /// Leases an item that the caller has removed from `ready`.
    fn lease(&mut self, id: u64, until: Time) -> Option<Delivery> {
        let item = self.items.get_mut(&id)?;
        item.deliveries += 1;
        item.state = ItemState::Leased { until, delivery: item.deliveries };
        self.leased.insert((until, id));
        Some(Delivery {
            payload: item.payload.clone(),
            lease: Lease(format!("{id}.{}", item.deliveries)),
            attempt: item.attempt,
            deliveries: item.deliveries,
        })
    }

    /// Remembers a key, after forgetting those whose time is over. Returns `false` if the key is known.
    fn remember_key(&mut self, key: String, now: Time) -> bool {
        while let Some((end, old)) = self.key_ends.pop_first() {
            if end > now {
                self.key_ends.insert((end, old));
                break;
            }
            self.keys.remove(&old);
        }
        let is_new = self.keys.insert(key.clone());
        if is_new {
            self.key_ends.insert((now.after(IDEMPOTENCY_KEY_TTL), key));
        }
        is_new
    }
}

fn ready<T: Send + 'static>(result: Result<T, PortError>) -> PortFuture<'static, T> {
    Box::pin(std::future::ready(result))
}

impl Queue for MemoryQueue {
    fn submit(&self, request: SubmitRequest) -> PortFuture<'_, bool> {
        let now = self.clock.now();
        let mut state = self.lock();
        state.promote_due(now);
        let is_new = state.submit(request, now);
        drop(state);
        if is_new {
            self.item_ready.notify_waiters();
        }
        ready(Ok(is_new))
    }

    fn submit_all(&self, requests: Vec<SubmitRequest>) -> PortFuture<'_, Vec<bool>> {
        let now = self.clock.now();
        let mut state = self.lock();
        state.promote_due(now);
        let new = requests.into_iter().map(|request| state.submit(request, now)).collect();
        drop(state);
        self.item_ready.notify_waiters();
        ready(Ok(new))
    }

    fn receive(&self, max: usize, visibility: Duration) -> PortFuture<'_, Vec<Delivery>> {
        let now = self.clock.now();
        let mut state = self.lock();
        state.promote_due(now);
        let until = now.after(visibility);
        let mut deliveries = Vec::with_capacity(max.min(state.ready.len()));
        while deliveries.len() < max
            && let Some((_, _, id)) = state.ready.pop_first()
        {
            deliveries.extend(state.lease(id, until));
        }
        ready(Ok(deliveries))
    }

    fn long_poll(&self, max: usize, visibility: Duration) -> PortFuture<'_, Vec<Delivery>> {
        Box::pin(async move {
            loop {
                self.ready().await;
                let deliveries = self.receive(max, visibility).await?;
                if !deliveries.is_empty() {
                    return Ok(deliveries);
                }
            }
        })
    }

    fn heartbeat<'a>(&'a self, lease: &'a Lease, visibility: Duration) -> PortFuture<'a, ()> {
        ready(self.settle(lease, |state, mut item, id, now| {
            if let ItemState::Leased { until, .. } = &mut item.state {
                *until = now.after(visibility);
                state.leased.insert((*until, id));
            }
            state.items.insert(id, item);
        }))
    }

    fn commit<'a>(&'a self, lease: &'a Lease) -> PortFuture<'a, ()> {
        ready(self.settle(lease, |_, _, _, _| {}))
    }

    fn defer<'a>(&'a self, lease: &'a Lease, redelivery: Redelivery) -> PortFuture<'a, ()> {
        ready(self.settle(lease, |state, mut item, id, now| {
            item.payload = redelivery.payload.unwrap_or(item.payload);
            if redelivery.delay.is_zero() {
                state.insert_ready(id, item);
            } else {
                state.insert(id, item, now, redelivery.delay);
            }
        }))
    }

    fn retry<'a>(&'a self, lease: &'a Lease, redelivery: Redelivery, _error: &'a str) -> PortFuture<'a, ()> {
        ready(self.settle(lease, |state, mut item, id, now| {
            item.payload = redelivery.payload.unwrap_or(item.payload);
            item.attempt += 1;
            state.insert(id, item, now, redelivery.delay);
        }))
    }

    fn fail<'a>(&'a self, lease: &'a Lease, payload: Option<String>, error: &'a str) -> PortFuture<'a, ()> {
        ready(self.settle(lease, |state, mut item, _, _| {
            item.payload = payload.unwrap_or(item.payload);
            item.state = ItemState::Unindexed;
            state.dead.push((item, error.to_owned()));
        }))
    }

    fn redrive(&self, max: usize) -> PortFuture<'_, usize> {
        let now = self.clock.now();
        let mut state = self.lock();
        let count = max.min(state.dead.len());
        let dead: Vec<(MemoryItem, String)> = state.dead.drain(..count).collect();
        for (item, _) in dead {
            state.serial += 1;
            let id = state.serial;
            state.insert(id, MemoryItem { attempt: 1, ..item }, now, Duration::ZERO);
        }
        drop(state);
        self.item_ready.notify_waiters();
        ready(Ok(count))
    }

    fn dead_letters(&self, max: usize) -> PortFuture<'_, Vec<DeadLetter>> {
        let mut dead_letters = self.dead();
        dead_letters.truncate(max);
        ready(Ok(dead_letters))
    }

    fn depth(&self) -> PortFuture<'_, Option<u64>> {
        let state = self.lock();
        let depth = (state.ready.len() + state.delayed.len()) as u64;
        ready(Ok(Some(depth)))
    }

    fn size(&self) -> PortFuture<'_, Option<u64>> {
        ready(Ok(Some(MemoryQueue::size(self) as u64)))
    }
}
