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

    pub(crate) fn register(&self, id: ItemId) -> oneshot::Receiver<()> {
        let (tell, told) = oneshot::channel();
        let mut waiting = self.lock();
        let waiters = waiting.entry(id).or_default();
        waiters.retain(|waiter| !waiter.is_closed());
        waiters.push(tell);
        told
    }

    pub(crate) fn look_again(&self, id: ItemId) {
        let waiters = self.lock().remove(&id);
        tell(waiters.into_iter().flatten());
    }

    /// Time has ended something; which, only the store knows.
    pub(crate) fn look_again_all(&self) {
        let waiting = std::mem::take(&mut *self.lock());
        tell(waiting.into_values().flatten());
    }
}

/// Who is gone needs no telling.
fn tell(waiters: impl Iterator<Item = oneshot::Sender<()>>) {
    for waiter in waiters {
        let _ = waiter.send(());
    }
}
