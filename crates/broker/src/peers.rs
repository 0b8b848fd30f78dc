//! Peers: other brokers on the same store. They tell what they did as hints, and are asked where hints may be missing.

use crate::broker::{Broker, Shared};
use crate::pipeline::PIGGYBACKED_MAX;
use std::sync::Weak;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;
use tokio::sync::Notify;
use towline_domain::QueueName;

/// While hints arrive, only one poll in so many looks at the store.
const SELDOM: u32 = 10;

#[derive(Default)]
pub(crate) struct Peers {
    are_heard: AtomicBool,
    /// A hint may have been missed: poll now.
    unsure: Notify,
}

impl Broker {
    /// Says whether hints of peers arrive at the moment. The broker polls seldom while they do.
    pub fn peers_heard(&self, are_heard: bool) {
        if self.0.peers.are_heard.swap(are_heard, Ordering::AcqRel) != are_heard {
            tracing::debug!(are_heard, "hints of other servers");
        }
    }

    /// A peer says that so many items may be deliverable in a queue.
    pub fn peer_hint(&self, queue: &QueueName, count: usize) {
        self.0.receivers.hint(queue, count.min(PIGGYBACKED_MAX) as u64);
        self.0.feed.updated();
    }

    /// Hints were missed: anything may have happened.
    pub fn peer_hints_missed(&self) {
        self.0.peers.unsure.notify_one();
        self.0.feed.updated();
    }
}

/// Looks for what peers did while callers wait here.
pub(crate) async fn poll(shared: Weak<Shared>, every: Duration) {
    let mut skipped = 0;
    loop {
        let Some(broker) = shared.upgrade() else { return };
        let unsure = tokio::time::timeout(every, broker.peers.unsure.notified()).await.is_ok();
        if broker.is_stopping() {
            return;
        }
        skipped += 1;
        if unsure || skipped >= SELDOM || !broker.peers.are_heard.load(Ordering::Acquire) {
            skipped = 0;
            broker.receivers.wake_one_of_each();
        }
        // Hints do not name items that ended.
        broker.results.look_again_all();
    }
}
