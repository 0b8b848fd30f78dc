//! Received items that the receiver has not accepted yet.

use crate::broker::Shared;
use std::sync::Arc;
use towline_domain::command::When;
use towline_domain::{Item, QueueState, Throttle};
use towline_store::Received;

/// The result of a receive. **Invariant:** items that are dropped before they are accepted go back to their queue, and
/// the delivery does not count as an attempt.
pub(crate) struct Delivery {
    /// `None`: it was accepted.
    received: Option<Received>,
    state: QueueState,
    broker: Arc<Shared>,
}

impl Delivery {
    pub(crate) fn new(broker: &Arc<Shared>, received: Received) -> Delivery {
        Delivery { state: received.queue, received: Some(received), broker: Arc::clone(broker) }
    }

    pub(crate) fn accept(mut self) -> Received {
        self.received.take().unwrap_or_else(|| Received::nothing(self.state))
    }

    pub(crate) fn state(&self) -> QueueState {
        self.state
    }

    pub(crate) fn items_mut(&mut self) -> &mut Vec<Item> {
        &mut self.received.get_or_insert_with(|| Received::nothing(self.state)).items
    }

    pub(crate) fn throttle(&self) -> Option<&Throttle> {
        self.received.as_ref().and_then(|received| received.throttle.as_ref())
    }

    pub(crate) fn is_completed(&self) -> bool {
        matches!(self.state, QueueState::Completed { .. })
    }

    /// Whether the receive was cut short before its first item. Then the receiver repeats it.
    pub(crate) fn was_cut_short(&self) -> bool {
        self.received.as_ref().is_some_and(|received| received.items.is_empty() && received.more > 0)
    }

    /// Whether the receiver returns with it: it has items, or the queue is completed.
    pub(crate) fn is_useful(&self) -> bool {
        self.is_completed() || self.received.as_ref().is_some_and(|received| !received.items.is_empty())
    }
}

impl Drop for Delivery {
    fn drop(&mut self) {
        if let Some(received) = self.received.take().filter(|received| !received.items.is_empty()) {
            Arc::clone(&self.broker).give_back(received.items, When::NOW);
        }
    }
}
