//! Other brokers on the same store: what they bring to those who wait here is told by them, or asked for.

use crate::broker::{Broker, RIDERS_MAX, Shared};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Weak};
use std::time::Duration;
use tokio::sync::Notify;
use towline_domain::QueueName;
use towline_store::Operation;

/// While others are heard, only every so many times does asking reach the store.
const SELDOM: u32 = 10;

#[derive(Default)]
pub(crate) struct Others {
    heard: AtomicBool,
    /// Something may have gone by unheard: ask now.
    unsure: Notify,
}

impl Broker {
    /// Whether others are heard at the moment. Asking goes on all the same, but seldom while they are.
    pub fn hears(&self, hears: bool) {
        let heard = &self.0.others.heard;
        if heard.swap(hears, Ordering::AcqRel) != hears {
            tracing::debug!(hears, "other servers");
        }
    }

    /// Another says that so many items may be ready in a queue.
    pub fn brought(&self, queue: &QueueName, count: usize) {
        self.0.wake_freed(queue, count.min(RIDERS_MAX));
        self.0.feed.updated();
    }

    /// Others may have brought anything.
    pub fn brought_anything(&self) {
        self.0.others.unsure.notify_one();
        self.0.feed.updated();
    }
}

/// Asks for what others bring, while somebody waits.
pub(crate) async fn ask_again(shared: Weak<Shared>, every: Duration) {
    let mut skipped = 0;
    loop {
        let Some(broker) = shared.upgrade() else { return };
        let unsure = tokio::time::timeout(every, broker.others.unsure.notified()).await.is_ok();
        if broker.is_stopping() {
            return;
        }
        skipped += 1;
        if unsure || skipped >= SELDOM || !broker.others.heard.load(Ordering::Acquire) {
            skipped = 0;
            if !broker.lines.waiting(false).is_empty() {
                // A sweep carries a receive for each queue with somebody in line. A fault is met by whoever asks next.
                let _ = Arc::clone(&broker).update(vec![Operation::Sweep]).await;
            }
        }
        // Nobody tells that an item has ended.
        broker.results.look_again_all();
    }
}
