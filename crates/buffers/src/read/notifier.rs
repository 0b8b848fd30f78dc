//! Wakes readers in this process when a buffer changes.

use parking_lot::{Mutex, MutexGuard};
use std::collections::HashMap;
use std::sync::Arc;

use tokio::sync::Notify;

/// Has an entry for each buffer with a waiting reader, and for no other buffer.
#[derive(Debug, Default)]
pub(crate) struct Notifier {
    waiting: Mutex<HashMap<String, Arc<Notify>>>,
}

/// A reader that waits for a change of one buffer.
#[derive(Debug)]
pub(crate) struct Waiter<'a> {
    notifier: &'a Notifier,
    id: &'a str,
    notify: Arc<Notify>,
}

impl Notifier {
    pub fn waiter<'a>(&'a self, id: &'a str) -> Waiter<'a> {
        let notify = Arc::clone(self.lock().entry(id.to_owned()).or_default());
        Waiter { notifier: self, id, notify }
    }

    pub fn notify(&self, id: &str) {
        if let Some(notify) = self.lock().get(id) {
            notify.notify_waiters();
        }
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<String, Arc<Notify>>> {
        self.waiting.lock()
    }
}

impl Waiter<'_> {
    /// Completes at the next change after this call, even if the caller awaits it only later.
    pub fn notified(&self) -> tokio::sync::futures::Notified<'_> {
        self.notify.notified()
    }
}

impl Drop for Waiter<'_> {
    fn drop(&mut self) {
        let mut waiting = self.notifier.lock();
        // The map has one reference and this waiter has the other. The lock keeps new waiters out.
        if Arc::strong_count(&self.notify) == 2 {
            waiting.remove(self.id);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_change_before_the_waiter_awaits_is_not_lost() {
        let notifier = Notifier::default();
        let waiter = notifier.waiter("a");
        let wake_up = waiter.notified();
        notifier.notify("a");
        wake_up.await;
    }

    #[test]
    fn the_last_waiter_removes_the_entry() {
        let notifier = Notifier::default();
        let (one, two) = (notifier.waiter("a"), notifier.waiter("a"));
        drop(one);
        assert_eq!(notifier.lock().len(), 1);
        drop(two);
        assert_eq!(notifier.lock().len(), 0);
    }
}
