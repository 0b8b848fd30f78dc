//! Peers: other brokers on the same store. They send hints of their updates. Where hints may be missing, this broker
//! polls.

use crate::broker::{Broker, Shared};
use crate::pipeline::PIGGYBACKED_MAX;
use parking_lot::Mutex;
use std::collections::BTreeSet;
use std::sync::Weak;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;
use tokio::sync::Notify;
use towline_domain::QueueName;
use towline_store::PeerHints;

/// While hints arrive, one poll of this many wakes receivers and result waiters.
const POLLS_WITH_HINTS: u32 = 10;

#[derive(Default)]
pub(crate) struct Peers {
    are_heard: AtomicBool,
    /// A hint may have been missed: poll now.
    unsure: Notify,
    /// Queues that items left since the last poll, without a hint that names the items.
    left_unnamed: Mutex<BTreeSet<QueueName>>,
}

impl Broker {
    /// Says whether hints of peers arrive at the moment. While they do, the broker polls less often.
    pub fn peers_heard(&self, are_heard: bool) {
        if self.0.peers.are_heard.swap(are_heard, Ordering::AcqRel) != are_heard {
            tracing::debug!(are_heard, "hints of other servers");
        }
    }

    /// Wakes the callers that hints of peers concern. Does not read `listening`.
    pub fn peer_hints(&self, hints: &PeerHints) {
        let shared = &self.0;
        for (queue, &count) in &hints.ready {
            shared.receivers.hint(queue, u64::from(count).min(PIGGYBACKED_MAX as u64));
        }
        shared.results.wake(&hints.left);
        if !hints.left_unnamed.is_empty() {
            // Many items leave these queues. Their waiters read at most once in a poll interval.
            shared.peers.left_unnamed.lock().extend(hints.left_unnamed.iter().cloned());
        }
        if hints.anything {
            shared.peers.unsure.notify_one();
        }
        shared.feed.updated();
    }
}

/// Wakes waiting callers at intervals, so that they find updates of peers.
pub(crate) async fn poll(shared: Weak<Shared>, every: Duration) {
    let mut skipped = 0;
    loop {
        let Some(broker) = shared.upgrade() else { return };
        let unsure = tokio::time::timeout(every, broker.peers.unsure.notified()).await.is_ok();
        if broker.is_stopping() {
            return;
        }
        skipped += 1;
        let left = std::mem::take(&mut *broker.peers.left_unnamed.lock());
        if unsure || skipped >= POLLS_WITH_HINTS || !broker.peers.are_heard.load(Ordering::Acquire) {
            skipped = 0;
            broker.receivers.wake_one_of_each();
            broker.results.wake_all();
        } else if !left.is_empty() {
            broker.results.wake_queues(|queue| left.contains(queue));
        }
    }
}
