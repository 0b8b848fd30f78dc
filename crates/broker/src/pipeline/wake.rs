//! From effects to wake-ups.

use crate::broker::Shared;
use towline_domain::{Effects, QueueName};

impl Shared {
    /// Wakes exactly the callers that a batch concerns.
    pub(crate) fn wake(&self, effects: &Effects) {
        for (queue, touched) in &effects.queues {
            self.receivers.apply(queue, touched);
            self.submitters.apply(queue, touched);
        }
        // The waiter for an item that moved registers again, with the other queue.
        self.results.wake(effects.ended.iter().chain(&effects.moved));
        let is_deleted = |queue: &QueueName| effects.queues.get(queue).is_some_and(|queue| queue.deleted);
        if effects.queues.values().any(|queue| queue.deleted) {
            // The effects do not list the items of a deleted queue.
            self.results.wake_queues(is_deleted);
        }
        self.sweep_timer.updated(effects.due);
        self.feed.updated();
    }
}
