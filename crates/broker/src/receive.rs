//! Receives, and waits for a first item.

use crate::broker::{Broker, Shared};
use crate::delivery::Delivery;
use crate::entropy;
use crate::waiters::receivers::{Waiter, WakeGeneration, WakeUp};
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::oneshot;
use towline_domain::command::{Verb, When};
use towline_domain::{Adjust, FieldSet, Item, LeaseCall, Millis, QueueName, Refusal, Throttle};
use towline_store::{Operation, OperationError, OperationResult, ReceiveCall, Received, Reply, StoreError};

/// Back-off of a queue's receivers after a fault of the store.
const AFTER_FAULT: Millis = Millis(100);
/// Maximum pause between two attempts to give items back.
const AFTER_FAULT_MAX: Duration = Duration::from_secs(5);
/// Maximum number of receives without a pause, if each is cut short.
const CUT_SHORT_MAX: usize = 16;
/// Pause between further ones.
const CUT_SHORT_PAUSE: Duration = Duration::from_millis(10);

#[derive(Debug, Clone)]
pub struct ReceiveRequest {
    pub queue: QueueName,
    pub max: u32,
    /// How long to wait for a first item.
    pub wait: Duration,
    pub visibility: Option<Millis>,
    pub fields: FieldSet,
    /// Make a buffer for each output slot the queue declares.
    pub make_buffers: bool,
}

impl ReceiveRequest {
    fn call(&self) -> Box<ReceiveCall> {
        Box::new(ReceiveCall {
            queue: self.queue.clone(),
            max: self.max,
            visibility: self.visibility,
            assigned: false,
            seed: entropy::token_seed(),
            fields: self.fields,
            make_buffers: self.make_buffers,
        })
    }
}

impl Broker {
    /// Receives, waiting for a first item if there is none.
    pub async fn receive(&self, request: ReceiveRequest) -> OperationResult<Received> {
        let shared = &self.0;
        let mut limit = None;
        // Dropping this future at any point gives its items back: see `Delivery`.
        let received = match request.wait.is_zero() {
            true => Some(shared.receive_now(&request).await),
            false => shared.receive_or_wait(&request, &mut limit).await,
        };
        if let Some(received) = received {
            return received;
        }
        // Read the state again: the queue may have been paused, closed or deleted during the wait.
        match shared.store.queue(request.queue.clone()).await? {
            Some(view) => {
                let (paused, nothing) = (view.queue.paused, Received::nothing(view.queue.state));
                Ok(Received { throttle: limit, paused, ..nothing })
            }
            None => Err(Refusal::QueueNotFound { name: request.queue.to_string() }.into()),
        }
    }
}

impl Shared {
    async fn receive_now(self: &Arc<Self>, request: &ReceiveRequest) -> OperationResult<Received> {
        let guard = self.receivers.enter(&request.queue);
        for tried in 1.. {
            let delivery = Arc::clone(self).attempt(request.call(), guard.generation()).await?;
            if delivery.was_cut_short() && tried < CUT_SHORT_MAX {
                continue;
            }
            let state = delivery.state();
            match self.fetch_attachments(delivery).await? {
                Some(received) => return Ok(received),
                None if tried < CUT_SHORT_MAX => {}
                None => return Ok(Received::nothing(state)),
            }
        }
        Err(StoreError::Closed.into())
    }

    /// One receive. It is finished even if the receiver disconnects: then its items go back.
    async fn attempt(
        self: Arc<Self>,
        call: Box<ReceiveCall>,
        seen: WakeGeneration,
    ) -> OperationResult<Delivery> {
        let (send, outcome) = oneshot::channel();
        tokio::spawn(async move {
            let queue = call.queue.clone();
            let answered = self.execute(vec![Operation::Receive(call)]).await;
            let answer = match answered.map(|mut answers| answers.pop()) {
                Err(fault) => Err(fault.into()),
                Ok(Some(Ok(Reply::Received(received)))) => {
                    let (throttle, more) = (received.throttle.clone(), received.more);
                    if !received.items.is_empty() {
                        self.receivers.wake_next(&queue, throttle.as_ref(), more, seen, &self);
                    } else if let Some(Throttle::Rate(wait)) = throttle {
                        // Also if this receiver has disconnected: the same rate limits the other receivers.
                        self.receivers.back_off(&queue, wait, &self);
                    }
                    Ok(Delivery::new(&self, received))
                }
                Ok(Some(Err(error))) => Err(error),
                Ok(_) => Err(StoreError::Closed.into()),
            };
            // If the receiver has disconnected, dropping the answer gives the items back.
            let _ = send.send(answer);
        });
        outcome.await.unwrap_or(Err(StoreError::Closed.into()))
    }

    /// `None`: the wait is over, or the broker is stopping. Then `limit` is what held the items back when the receiver asked the store
    /// last.
    async fn receive_or_wait(
        self: &Arc<Self>,
        request: &ReceiveRequest,
        limit: &mut Option<Throttle>,
    ) -> Option<OperationResult<Received>> {
        // The timeout does not cut off a receive under way: its items would have to go back.
        let mut over = pin!(tokio::time::sleep(request.wait));
        let mut guard = self.receivers.enter(&request.queue);
        let mut cut_short = 0;
        loop {
            let seen = guard.generation();
            let delivery = match Arc::clone(self).attempt(request.call(), seen).await {
                Ok(delivery) => delivery,
                Err(error) => {
                    if matches!(error, OperationError::Failed(_)) && guard.has_rechecked() {
                        // The next receiver asks later: at once it would meet the same fault.
                        self.receivers.back_off(&request.queue, AFTER_FAULT, self);
                    }
                    return Some(Err(error));
                }
            };
            if delivery.is_useful() {
                guard.has_rechecked();
                if let Some(received) = self.fetch_attachments(delivery).await.transpose() {
                    return Some(received);
                }
                if self.is_stopping() || over.is_elapsed() {
                    return None;
                }
                continue;
            }
            *limit = delivery.throttle().cloned();
            if self.is_stopping() || over.is_elapsed() {
                return None;
            }
            // The end of a rate limit, by the clock of the wait.
            let allowed_at = match &limit {
                Some(Throttle::Rate(wait)) => {
                    Some(tokio::time::sleep(Duration::from_millis(wait.0)).deadline())
                }
                _ => None,
            };
            if delivery.was_cut_short() {
                // It must not wait beside ready items: no other receiver is woken for them.
                cut_short += 1;
                if cut_short >= CUT_SHORT_MAX {
                    tokio::time::sleep(CUT_SHORT_PAUSE).await;
                }
                continue;
            }
            let (hand_over, mut handed_over) = oneshot::channel();
            let waiter = Waiter { call: request.call(), hand_over };
            if guard.join(waiter, seen, delivery.throttle(), self).is_err() {
                continue;
            }
            if self.is_stopping() {
                return None;
            }
            let wake_up = tokio::select! {
                wake_up = &mut handed_over => wake_up,
                () = &mut over => {
                    if guard.leave() {
                        let left = allowed_at.map(|at| at.saturating_duration_since(over.deadline()));
                        if let Some(left) = left {
                            *limit = (!left.is_zero()).then(|| Throttle::Rate(Millis(u64::try_from(left.as_millis()).unwrap_or(u64::MAX))));
                        }
                        return None;
                    }
                    // The waiter has already been chosen: its wake-up is on the way.
                    handed_over.await
                }
            };
            match wake_up {
                Ok(WakeUp::Delivered(delivery)) => {
                    guard.has_rechecked();
                    if let Some(received) = self.fetch_attachments(delivery).await.transpose() {
                        return Some(received);
                    }
                }
                Ok(WakeUp::Recheck) => {}
                Err(_) => return None,
            }
        }
    }

    /// Gives items back that no receiver took. The delivery does not count as an attempt.
    pub(crate) fn give_back(self: Arc<Self>, items: Vec<Item>, until: When) {
        let defer = |item: Item| {
            let token = item.head.lease()?.token;
            let verb = Verb::Defer { until };
            let call = LeaseCall { token, verb, adjust: Adjust::default() };
            Some(Operation::Lease { id: item.head.id, call: Box::new(call) })
        };
        let leases = items.iter().filter_map(|item| item.head.lease());
        let visibility =
            leases.map(|lease| Duration::from_millis(lease.visibility.0)).min().unwrap_or_default();
        let batch: Vec<Operation> = items.into_iter().filter_map(defer).collect();
        if let Ok(runtime) = tokio::runtime::Handle::try_current() {
            // If this fails the leases lapse, as they would for any receiver that vanished.
            runtime.spawn(tokio::time::timeout(visibility, self.defer_all(batch)));
        }
    }

    /// Tries again while the store is busy or does not answer: a lease that lapses counts as an attempt.
    async fn defer_all(self: Arc<Self>, batch: Vec<Operation>) {
        let mut pause = Duration::from_millis(AFTER_FAULT.0);
        while let Err(StoreError::Busy { .. } | StoreError::Unavailable { .. }) =
            Arc::clone(&self).update(batch.clone()).await
        {
            if self.is_stopping() {
                return;
            }
            tokio::time::sleep(pause).await;
            pause = (2 * pause).min(AFTER_FAULT_MAX);
        }
    }
}
