//! The queue, with the leases and the redelivery of a distributed one.

use crate::clock::{Clock, Time};
use crate::ports::{Again, Answer, DeadLetter, KEY_KEPT, Lease, PortError, Pulled, Push, Queue};
use futures::future::BoxFuture;
use rustc_hash::FxHashMap;
use std::cmp::Reverse;
use std::collections::{BTreeSet, HashMap};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;
use tokio::sync::Notify;

#[derive(Debug)]
pub struct MemoryQueue {
    clock: Arc<dyn Clock>,
    entries: Mutex<Entries>,
    ready: Notify,
}

#[derive(Debug, Default)]
struct Entries {
    serial: u64,
    entries: FxHashMap<u64, Entry>,
    /// By priority, then in order of arrival.
    ready: BTreeSet<(Reverse<i32>, u64, u64)>,
    delayed: BTreeSet<(Time, u64)>,
    leased: BTreeSet<(Time, u64)>,
    keys: HashMap<String, Time>,
    key_ends: BTreeSet<(Time, String)>,
    dead: Vec<(Entry, String)>,
}

#[derive(Debug)]
struct Entry {
    body: String,
    priority: i32,
    attempt: u32,
    deliveries: u32,
    place: Place,
}

/// Which of the sets it is in.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Place {
    Ready { arrived: u64 },
    Delayed { until: Time },
    Leased { until: Time, delivery: u32 },
    Dead,
}

impl MemoryQueue {
    #[must_use]
    pub fn new(clock: Arc<dyn Clock>) -> MemoryQueue {
        MemoryQueue { clock, entries: Mutex::default(), ready: Notify::new() }
    }

    /// What was given up, oldest first.
    #[must_use]
    pub fn dead(&self) -> Vec<DeadLetter> {
        let entries = self.lock();
        let letter =
            |(entry, error): &(Entry, String)| DeadLetter { body: entry.body.clone(), error: error.clone() };
        entries.dead.iter().map(letter).collect()
    }

    /// How many are in it, held or not.
    #[must_use]
    pub fn size(&self) -> usize {
        self.lock().entries.len()
    }

    fn lock(&self) -> MutexGuard<'_, Entries> {
        self.entries.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Ends when something may have become ready.
    fn ready(&self) -> BoxFuture<'_, ()> {
        let notified = self.ready.notified();
        let next = {
            let entries = self.lock();
            if !entries.ready.is_empty() {
                return Box::pin(std::future::ready(()));
            }
            let next = [entries.delayed.first(), entries.leased.first()].into_iter().flatten().min();
            next.map(|(at, _)| self.clock.sleep_until(*at))
        };
        Box::pin(async move {
            match next {
                None => notified.await,
                Some(next) => {
                    futures::future::select(std::pin::pin!(notified), next).await;
                }
            }
        })
    }

    /// Takes an entry from its holder, if it is the holder.
    fn settle(
        &self,
        lease: &Lease,
        then: impl FnOnce(&mut Entries, Entry, u64, Time),
    ) -> Result<(), PortError> {
        let now = self.clock.now();
        let mut entries = self.lock();
        let id = entries.held(lease, now).ok_or(PortError::LeaseLost)?;
        let entry = entries.take(id).ok_or(PortError::LeaseLost)?;
        then(&mut entries, entry, id, now);
        let is_back = entries.entries.contains_key(&id);
        drop(entries);
        if is_back {
            self.ready.notify_waiters();
        }
        Ok(())
    }
}

impl Entries {
    /// `false`: the key was known.
    fn add(&mut self, push: Push, now: Time) -> bool {
        if push.dedupe_key.is_some_and(|key| !self.is_new(key, now)) {
            return false;
        }
        self.serial += 1;
        let id = self.serial;
        let entry =
            Entry { body: push.body, priority: push.priority, attempt: 1, deliveries: 0, place: Place::Dead };
        self.put(id, entry, now, push.delay);
        true
    }

    fn put(&mut self, id: u64, mut entry: Entry, now: Time, delay: Duration) {
        if delay.is_zero() {
            self.serial += 1;
            let arrived = self.serial;
            self.ready.insert((Reverse(entry.priority), arrived, id));
            entry.place = Place::Ready { arrived };
        } else {
            let until = now.after(delay);
            self.delayed.insert((until, id));
            entry.place = Place::Delayed { until };
        }
        self.entries.insert(id, entry);
    }

    /// What time has made ready, in that order: delays that are over, and leases that lapsed.
    fn catch_up(&mut self, now: Time) {
        let next = |entries: &Entries| {
            let next = [entries.delayed.first(), entries.leased.first()].into_iter().flatten().min();
            next.copied().filter(|(at, _)| *at <= now)
        };
        while let Some((_, id)) = next(self) {
            let Some(mut entry) = self.take(id) else { break };
            // Its holder died, or forgot: that was an attempt.
            entry.attempt += u32::from(matches!(entry.place, Place::Leased { .. }));
            self.put(id, entry, now, Duration::ZERO);
        }
    }

    fn take(&mut self, id: u64) -> Option<Entry> {
        let entry = self.entries.remove(&id)?;
        match entry.place {
            Place::Ready { arrived } => self.ready.remove(&(Reverse(entry.priority), arrived, id)),
            Place::Delayed { until } => self.delayed.remove(&(until, id)),
            Place::Leased { until, .. } => self.leased.remove(&(until, id)),
            Place::Dead => false,
        };
        Some(entry)
    }

    fn held(&self, lease: &Lease, now: Time) -> Option<u64> {
        let (id, delivery) = lease.0.split_once('.')?;
        let (id, delivery): (u64, u32) = (id.parse().ok()?, delivery.parse().ok()?);
        match self.entries.get(&id)?.place {
            Place::Leased { until, delivery: held } => (held == delivery && now < until).then_some(id),
            _ => None,
        }
    }

    /// Of one that is not in `ready` any more.
    fn lease(&mut self, id: u64, until: Time) -> Option<Pulled> {
        let entry = self.entries.get_mut(&id)?;
        entry.deliveries += 1;
        entry.place = Place::Leased { until, delivery: entry.deliveries };
        self.leased.insert((until, id));
        Some(Pulled {
            body: entry.body.clone(),
            lease: Lease(format!("{id}.{}", entry.deliveries)),
            attempt: entry.attempt,
            delivery: entry.deliveries,
        })
    }

    /// Whether the key is new; remembered if it is.
    fn is_new(&mut self, key: String, now: Time) -> bool {
        while let Some((end, old)) = self.key_ends.pop_first() {
            if end > now {
                self.key_ends.insert((end, old));
                break;
            }
            self.keys.remove(&old);
        }
        let end = now.after(KEY_KEPT);
        if self.keys.contains_key(&key) {
            return false;
        }
        self.keys.insert(key.clone(), end);
        self.key_ends.insert((end, key));
        true
    }
}

fn done<T: Send + 'static>(result: Result<T, PortError>) -> Answer<'static, T> {
    Box::pin(std::future::ready(result))
}

impl Queue for MemoryQueue {
    fn push(&self, push: Push) -> Answer<'_, bool> {
        let now = self.clock.now();
        let mut entries = self.lock();
        entries.catch_up(now);
        let is_new = entries.add(push, now);
        drop(entries);
        if is_new {
            self.ready.notify_waiters();
        }
        done(Ok(is_new))
    }

    fn push_all(&self, pushes: Vec<Push>) -> Answer<'_, Vec<bool>> {
        let now = self.clock.now();
        let mut entries = self.lock();
        entries.catch_up(now);
        let new = pushes.into_iter().map(|push| entries.add(push, now)).collect();
        drop(entries);
        self.ready.notify_waiters();
        done(Ok(new))
    }

    fn pop(&self, max: usize, visibility: Duration) -> Answer<'_, Vec<Pulled>> {
        let now = self.clock.now();
        let mut entries = self.lock();
        entries.catch_up(now);
        let until = now.after(visibility);
        let mut pulled = Vec::with_capacity(max.min(entries.ready.len()));
        while pulled.len() < max
            && let Some((_, _, id)) = entries.ready.pop_first()
        {
            pulled.extend(entries.lease(id, until));
        }
        done(Ok(pulled))
    }

    fn heartbeat<'a>(&'a self, lease: &'a Lease, visibility: Duration) -> Answer<'a, ()> {
        done(self.settle(lease, |entries, mut entry, id, now| {
            if let Place::Leased { until, .. } = &mut entry.place {
                *until = now.after(visibility);
                entries.leased.insert((*until, id));
            }
            entries.entries.insert(id, entry);
        }))
    }

    fn ack<'a>(&'a self, lease: &'a Lease) -> Answer<'a, ()> {
        done(self.settle(lease, |_, _, _, _| {}))
    }

    fn put_back<'a>(&'a self, lease: &'a Lease, again: Again) -> Answer<'a, ()> {
        done(self.settle(lease, |entries, mut entry, id, now| {
            entry.body = again.body.unwrap_or(entry.body);
            entries.put(id, entry, now, again.delay);
        }))
    }

    fn retry<'a>(&'a self, lease: &'a Lease, again: Again, _error: &'a str) -> Answer<'a, ()> {
        done(self.settle(lease, |entries, mut entry, id, now| {
            entry.body = again.body.unwrap_or(entry.body);
            entry.attempt += 1;
            entries.put(id, entry, now, again.delay);
        }))
    }

    fn dead_letter<'a>(&'a self, lease: &'a Lease, body: Option<String>, error: &'a str) -> Answer<'a, ()> {
        done(self.settle(lease, |entries, mut entry, _, _| {
            entry.body = body.unwrap_or(entry.body);
            entry.place = Place::Dead;
            entries.dead.push((entry, error.to_owned()));
        }))
    }

    fn redrive(&self, max: usize) -> Answer<'_, usize> {
        let now = self.clock.now();
        let mut entries = self.lock();
        let count = max.min(entries.dead.len());
        let dead: Vec<(Entry, String)> = entries.dead.drain(..count).collect();
        for (entry, _) in dead {
            entries.serial += 1;
            let id = entries.serial;
            entries.put(id, Entry { attempt: 1, ..entry }, now, Duration::ZERO);
        }
        drop(entries);
        self.ready.notify_waiters();
        done(Ok(count))
    }

    fn letters(&self, max: usize) -> Answer<'_, Vec<DeadLetter>> {
        let mut letters = self.dead();
        letters.truncate(max);
        done(Ok(letters))
    }

    fn depth(&self) -> Answer<'_, Option<u64>> {
        let entries = self.lock();
        let depth = (entries.ready.len() + entries.delayed.len()) as u64;
        done(Ok(Some(depth)))
    }

    fn size(&self) -> Answer<'_, Option<u64>> {
        done(Ok(Some(MemoryQueue::size(self) as u64)))
    }

    fn wait(&self, max: usize, visibility: Duration) -> Answer<'_, Vec<Pulled>> {
        Box::pin(async move {
            loop {
                self.ready().await;
                let pulled = self.pop(max, visibility).await?;
                if !pulled.is_empty() {
                    return Ok(pulled);
                }
            }
        })
    }
}
