//! Peers: other brokers on the same store. They send hints of their updates. Where hints may be missing, this broker
//! polls.

use crate::broker::{Broker, Shared};
use crate::pipeline::PIGGYBACKED_MAX;
use std::sync::Weak;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;
use tokio::sync::Notify;
use towline_domain::QueueName;

/// While hints arrive, only one poll in so many wakes receivers.
const POLLS_WITH_HINTS: u32 = 10;

#[derive(Default)]
pub(crate) struct Peers {
    are_heard: AtomicBool,
    /// A hint may have been missed: poll now.
    unsure: Notify,
}

impl Broker {
    /// Says whether hints of peers arrive at the moment. While they do, the broker polls less often.
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

    /// Hints were missed: any queue may have changed.
    pub fn peer_hints_missed(&self) {
        self.0.peers.unsure.notify_one();
        self.0.feed.updated();
    }
}

/// Wakes waiting callers at intervals to look for updates of peers.
pub(crate) async fn poll(shared: Weak<Shared>, every: Duration) {
    let mut skipped = 0;
    loop {
        let Some(broker) = shared.upgrade() else { return };
        let unsure = tokio::time::timeout(every, broker.peers.unsure.notified()).await.is_ok();
        if broker.is_stopping() {
            return;
        }
        skipped += 1;
        if unsure || skipped >= POLLS_WITH_HINTS || !broker.peers.are_heard.load(Ordering::Acquire) {
            skipped = 0;
            broker.receivers.wake_one_of_each();
        }
        // Hints do not include ended items.
        broker.results.look_again_all();
    }
}
