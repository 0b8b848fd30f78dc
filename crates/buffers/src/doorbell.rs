//! Wakes readers that wait in this process when something happens to their buffer.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tokio::sync::Notify;

/// A bell for each buffer that somebody waits for, and for no other.
#[derive(Debug, Default)]
pub(crate) struct Doorbells {
    bells: Mutex<HashMap<String, Arc<Notify>>>,
}

/// One reader's ear at the bell of a buffer.
#[derive(Debug)]
pub(crate) struct Ear<'a> {
    bells: &'a Doorbells,
    id: &'a str,
    bell: Arc<Notify>,
}

impl Doorbells {
    pub fn listen<'a>(&'a self, id: &'a str) -> Ear<'a> {
        let bell = Arc::clone(self.lock().entry(id.to_owned()).or_default());
        Ear { bells: self, id, bell }
    }

    pub fn ring(&self, id: &str) {
        if let Some(bell) = self.lock().get(id) {
            bell.notify_waiters();
        }
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<String, Arc<Notify>>> {
        self.bells.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Ear<'_> {
    /// Ready at the next ring after this call, whether or not it is being awaited then.
    pub fn next_ring(&self) -> tokio::sync::futures::Notified<'_> {
        self.bell.notified()
    }
}

impl Drop for Ear<'_> {
    fn drop(&mut self) {
        let mut bells = self.bells.lock();
        // The map's and ours: nobody else listens, and nobody can begin while the map is locked.
        if Arc::strong_count(&self.bell) == 2 {
            bells.remove(self.id);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_ring_between_listening_and_waiting_is_heard() {
        let bells = Doorbells::default();
        let ear = bells.listen("a");
        let ring = ear.next_ring();
        bells.ring("a");
        ring.await;
    }

    #[test]
    fn bells_go_with_the_last_listener() {
        let bells = Doorbells::default();
        let (one, two) = (bells.listen("a"), bells.listen("a"));
        drop(one);
        assert_eq!(bells.lock().len(), 1);
        drop(two);
        assert_eq!(bells.lock().len(), 0);
    }
}
