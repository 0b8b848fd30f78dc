//! From effects to wake-ups.

use crate::broker::Shared;
use towline_domain::Effects;

impl Shared {
    /// Wakes exactly the callers that a batch concerns.
    pub(crate) fn wake(&self, effects: &Effects) {
        for (queue, touched) in &effects.queues {
            self.receivers.apply(queue, touched);
            self.submitters.apply(queue, touched);
        }
        self.results.look_again(&effects.ended);
        if effects.queues.values().any(|queue| queue.deleted) {
            // The effects do not list the items of a deleted queue.
            self.results.look_again_all();
        }
        self.sweep_timer.updated(effects.due);
        self.feed.updated();
    }
}
