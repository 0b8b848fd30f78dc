//! Callers who wait for an item to end.

use std::collections::HashMap;
use std::sync::{Mutex, MutexGuard, PoisonError};
use tokio::sync::oneshot;
use towline_domain::ItemId;

/// Whoever is told looks again: an item that may have ended need not have.
#[derive(Default)]
pub(crate) struct Results(Mutex<HashMap<ItemId, Vec<oneshot::Sender<()>>>>);

impl Results {
    fn lock(&self) -> MutexGuard<'_, HashMap<ItemId, Vec<oneshot::Sender<()>>>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn register(&self, id: ItemId) -> Registration<'_> {
        let (tell, told) = oneshot::channel();
        self.lock().entry(id).or_default().push(tell);
        Registration { results: self, id, told }
    }

    pub(crate) fn look_again(&self, ids: &[ItemId]) {
        let mut waiting = self.lock();
        if waiting.is_empty() {
            return;
        }
        let waiters: Vec<_> = ids.iter().filter_map(|id| waiting.remove(id)).flatten().collect();
        drop(waiting);
        tell(waiters.into_iter());
    }

    /// Time has ended something; which, only the store knows.
    pub(crate) fn look_again_all(&self) {
        let waiting = std::mem::take(&mut *self.lock());
        tell(waiting.into_values().flatten());
    }
}

/// Somebody who wants to know. Dropped, it is forgotten.
pub(crate) struct Registration<'a> {
    results: &'a Results,
    id: ItemId,
    told: oneshot::Receiver<()>,
}

impl Registration<'_> {
    pub(crate) async fn told(&mut self) {
        // A teller that is gone has nothing to tell: look again all the same.
        let _ = (&mut self.told).await;
    }
}

impl Drop for Registration<'_> {
    fn drop(&mut self) {
        self.told.close();
        let mut waiting = self.results.lock();
        if let Some(waiters) = waiting.get_mut(&self.id) {
            waiters.retain(|waiter| !waiter.is_closed());
            if waiters.is_empty() {
                waiting.remove(&self.id);
            }
        }
    }
}

/// Who is gone needs no telling.
fn tell(waiters: impl Iterator<Item = oneshot::Sender<()>>) {
    for waiter in waiters {
        let _ = waiter.send(());
    }
}
