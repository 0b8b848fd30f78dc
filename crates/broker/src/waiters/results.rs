//! Callers that wait for an item or a group to end.

use parking_lot::{Mutex, MutexGuard};
use std::collections::HashMap;
use std::hash::Hash;
use tokio::sync::oneshot;

/// A woken waiter reads the state again: a wake-up does not prove that the item or group has ended.
pub(crate) struct Results<K>(Mutex<HashMap<K, Vec<oneshot::Sender<()>>>>);

impl<K> Default for Results<K> {
    fn default() -> Results<K> {
        Results(Mutex::default())
    }
}

impl<K: Copy + Eq + Hash> Results<K> {
    fn lock(&self) -> MutexGuard<'_, HashMap<K, Vec<oneshot::Sender<()>>>> {
        self.0.lock()
    }

    pub(crate) fn register(&self, id: K) -> Registration<'_, K> {
        let (wake, woken) = oneshot::channel();
        self.lock().entry(id).or_default().push(wake);
        Registration { results: self, id, woken }
    }

    pub(crate) fn look_again(&self, ids: &[K]) {
        let mut waiting = self.lock();
        if waiting.is_empty() {
            return;
        }
        let waiters: Vec<_> = ids.iter().filter_map(|id| waiting.remove(id)).flatten().collect();
        drop(waiting);
        wake(waiters.into_iter());
    }

    /// Wakes every waiter, when it is unknown what ended.
    pub(crate) fn look_again_all(&self) {
        let waiting = std::mem::take(&mut *self.lock());
        wake(waiting.into_values().flatten());
    }
}

/// One waiter, until it is dropped.
pub(crate) struct Registration<'a, K: Copy + Eq + Hash> {
    results: &'a Results<K>,
    id: K,
    woken: oneshot::Receiver<()>,
}

impl<K: Copy + Eq + Hash> Registration<'_, K> {
    pub(crate) async fn woken(&mut self) {
        // If the broker is gone, look again as well.
        let _ = (&mut self.woken).await;
    }
}

impl<K: Copy + Eq + Hash> Drop for Registration<'_, K> {
    fn drop(&mut self) {
        self.woken.close();
        let mut waiting = self.results.lock();
        if let Some(waiters) = waiting.get_mut(&self.id) {
            waiters.retain(|waiter| !waiter.is_closed());
            if waiters.is_empty() {
                waiting.remove(&self.id);
            }
        }
    }
}

/// Ignores waiters that have disconnected.
fn wake(waiters: impl Iterator<Item = oneshot::Sender<()>>) {
    for waiter in waiters {
        let _ = waiter.send(());
    }
}
