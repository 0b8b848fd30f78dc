//! Calls the store.

use crate::broker::Shared;
use crate::counters::VerbCounts;
use crate::delivery::Delivery;
use crate::latency::Latencies;
use crate::waiters::receivers::{Waiter, WakeGeneration, WakeUp};
use std::collections::HashMap;
use std::sync::Arc;
use towline_domain::{KeyTag, QueueName, Submission, Timestamp, limits};
use towline_store::{Answered, Operation, Reply, Result, Updated};

/// Maximum number of piggybacked receives in one batch.
pub(crate) const PIGGYBACKED_MAX: usize = 64;

impl Shared {
    /// Calls the store, and wakes waiting callers from the effects.
    pub(crate) async fn execute(&self, batch: Vec<Operation>) -> Result<Vec<Answered>> {
        let verbs = VerbCounts::of(&batch);
        let timed = Latencies::begin(batch.first());
        let updated = self.store.update(batch).await;
        self.latencies.end(&timed);
        let Updated { answers, effects } = updated?;
        self.counters.add(verbs, &answers);
        self.wake(&effects);
        Ok(answers)
    }

    /// Adds the receives of waiting receivers after the submits that may serve them: item and lease share one sync.
    pub(crate) async fn execute_with_receivers(
        self: &Arc<Self>,
        mut batch: Vec<Operation>,
    ) -> Result<Vec<Answered>> {
        let own_count = batch.len();
        let piggybacked = self.take_receivers(&batch);
        batch.extend(piggybacked.iter().map(|(waiter, _)| Operation::Receive(waiter.call.clone())));
        let mut answers = match self.execute(batch).await {
            Ok(answers) => answers,
            Err(fault) => {
                piggybacked.into_iter().for_each(|(waiter, _)| waiter.recheck());
                return Err(fault);
            }
        };
        let received = answers.split_off(own_count.min(answers.len()));
        for ((waiter, generation), answer) in piggybacked.into_iter().zip(received) {
            self.hand_over(waiter, generation, answer);
        }
        Ok(answers)
    }

    /// Takes the receivers that the submits of a batch may serve.
    fn take_receivers(&self, batch: &[Operation]) -> Vec<(Waiter, WakeGeneration)> {
        let max = PIGGYBACKED_MAX.min(limits::BATCH_MAX.saturating_sub(batch.len()));
        if max == 0 || self.receivers.is_empty() {
            return Vec::new();
        }
        let now = self.clock.now();
        let mut submits: HashMap<&QueueName, Vec<&Submission>> = HashMap::new();
        for (queue, submission) in batch.iter().flat_map(submits_of) {
            if is_ready(submission, now) {
                submits.entry(queue).or_default().push(submission);
            }
        }
        let mut taken = Vec::new();
        for (queue, submissions) in submits {
            let keys =
                submissions.iter().map(|submission| KeyTag::of_any(submission.body.fairness_key.as_deref()));
            taken.extend(self.receivers.take_for(queue, keys, max - taken.len()));
            if taken.len() == max {
                break;
            }
        }
        taken
    }

    fn hand_over(self: &Arc<Self>, waiter: Waiter, generation: WakeGeneration, answer: Answered) {
        match answer {
            Ok(Reply::Received(received)) => {
                let queue = waiter.call.queue.clone();
                let (throttle, more) = (received.throttle.clone(), received.more);
                let has_items = !received.items.is_empty();
                let delivery = Delivery::new(self, received);
                match delivery.is_useful() {
                    true => waiter.hand(WakeUp::Delivered(delivery)),
                    false => waiter.recheck(),
                }
                if has_items {
                    self.receivers.wake_next(&queue, throttle.as_ref(), more, generation, self);
                }
            }
            // The receiver gets the refusal from a receive of its own.
            _ => waiter.recheck(),
        }
    }
}

fn submits_of(operation: &Operation) -> impl Iterator<Item = (&QueueName, &Submission)> {
    let own = match operation {
        Operation::Submit { queue, submission } => Some((queue, &**submission)),
        _ => None,
    };
    own.into_iter().chain(operation.handed_off().iter().map(|item| (&item.queue, &item.submission)))
}

/// Whether an item can be delivered as soon as it is submitted.
fn is_ready(submission: &Submission, now: Timestamp) -> bool {
    submission.after.is_none() && submission.ready.resolve(now) <= now
}
