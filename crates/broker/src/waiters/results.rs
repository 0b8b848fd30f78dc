//! Callers that wait for an item or a group to end.

use parking_lot::{Mutex, MutexGuard};
use std::collections::HashMap;
use std::hash::Hash;
use tokio::sync::oneshot;
use towline_domain::QueueName;

/// A woken waiter reads the state again: a wake-up does not prove that the item or group has ended.
pub(crate) struct Results<K>(Mutex<Waiters<K>>);

struct Waiters<K> {
    by_id: HashMap<K, Vec<Waiter>>,
    /// For tickets.
    numbers: u64,
}

struct Waiter {
    ticket: u64,
    /// Where the item was when its waiter read it. `None`: the waiter has not read it yet, or waits for a group.
    queue: Option<QueueName>,
    wake: oneshot::Sender<()>,
}

impl<K> Default for Results<K> {
    fn default() -> Results<K> {
        Results(Mutex::new(Waiters { by_id: HashMap::new(), numbers: 0 }))
    }
}

impl<K: Copy + Eq + Hash> Results<K> {
    fn lock(&self) -> MutexGuard<'_, Waiters<K>> {
        self.0.lock()
    }

    pub(crate) fn register(&self, id: K) -> Registration<'_, K> {
        let (wake, woken) = oneshot::channel();
        let mut waiting = self.lock();
        waiting.numbers += 1;
        let ticket = waiting.numbers;
        waiting.by_id.entry(id).or_default().push(Waiter { ticket, queue: None, wake });
        Registration { results: self, id, ticket, woken }
    }

    /// Wakes the waiters for these items or groups.
    pub(crate) fn wake<'a>(&self, ids: impl IntoIterator<Item = &'a K>)
    where
        K: 'a,
    {
        let mut waiting = self.lock();
        if waiting.by_id.is_empty() {
            return;
        }
        let waiters: Vec<_> = ids.into_iter().filter_map(|id| waiting.by_id.remove(id)).flatten().collect();
        drop(waiting);
        wake(waiters);
    }

    /// Wakes the waiters for items of some queues, when it is unknown which of their items ended. Wakes those as well
    /// that have not read their item yet.
    pub(crate) fn wake_queues(&self, is_concerned: impl Fn(&QueueName) -> bool) {
        let mut woken = Vec::new();
        self.lock().by_id.retain(|_, waiters| {
            woken.extend(waiters.extract_if(.., |waiter| waiter.queue.as_ref().is_none_or(&is_concerned)));
            !waiters.is_empty()
        });
        wake(woken);
    }

    /// Wakes every waiter, when it is unknown what ended.
    pub(crate) fn wake_all(&self) {
        let waiting = std::mem::take(&mut self.lock().by_id);
        wake(waiting.into_values().flatten());
    }
}

/// One waiter, until it is dropped.
pub(crate) struct Registration<'a, K: Copy + Eq + Hash> {
    results: &'a Results<K>,
    id: K,
    ticket: u64,
    woken: oneshot::Receiver<()>,
}

impl<K: Copy + Eq + Hash> Registration<'_, K> {
    /// Limits the wake-ups for whole queues to this one. If the item moves, its waiter is woken and registers again.
    pub(crate) fn set_queue(&self, queue: &QueueName) {
        let mut waiting = self.results.lock();
        let mut waiters = waiting.by_id.get_mut(&self.id).into_iter().flatten();
        if let Some(waiter) = waiters.find(|waiter| waiter.ticket == self.ticket) {
            waiter.queue = Some(queue.clone());
        }
    }

    pub(crate) async fn woken(&mut self) {
        // If the broker is gone, the waiter reads the state as well.
        let _ = (&mut self.woken).await;
    }
}

impl<K: Copy + Eq + Hash> Drop for Registration<'_, K> {
    fn drop(&mut self) {
        let mut waiting = self.results.lock();
        if let Some(waiters) = waiting.by_id.get_mut(&self.id) {
            waiters.retain(|waiter| waiter.ticket != self.ticket);
            if waiters.is_empty() {
                waiting.by_id.remove(&self.id);
            }
        }
    }
}

/// Ignores waiters that have disconnected.
fn wake(waiters: impl IntoIterator<Item = Waiter>) {
    for waiter in waiters {
        let _ = waiter.wake.send(());
    }
}
