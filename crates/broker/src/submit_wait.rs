//! Submits that wait for room.

use crate::broker::Broker;
use std::pin::pin;
use std::time::Duration;
use towline_domain::{QueueName, Refusal};
use towline_store::{Answered, Operation, Result};

/// How often the first in line looks unasked: other servers make room, too, and time does.
const LOOK_EVERY: Duration = Duration::from_secs(1);

impl Broker {
    /// Submits to one queue; while that is full, waits for room, for that long at most. What finds room is submitted, what does
    /// not is refused as it would be at once. Before the first wait, `admit` reserves what a waiting batch needs, for as long as
    /// it waits; if it cannot, the batch does not wait.
    pub async fn submit<T>(
        &self,
        queue: &QueueName,
        batch: Vec<Operation>,
        wait: Duration,
        admit: impl FnOnce() -> Option<T>,
    ) -> Result<Vec<Answered>> {
        if wait.is_zero() {
            return self.update(batch).await;
        }
        let guard = self.0.submitters.enter(queue);
        let (mut admit, mut admitted) = (Some(admit), None);
        let mut over = pin!(tokio::time::sleep(wait));
        let mut answers: Vec<Option<Answered>> = vec![None; batch.len()];
        let mut left: Vec<(usize, Operation)> = batch.into_iter().enumerate().collect();
        loop {
            let generation = guard.generation();
            let operations = left.iter().map(|(_, operation)| operation.clone()).collect();
            let answered = match self.update(operations).await {
                Ok(answered) => answered,
                // What was submitted before is to be answered; of the rest nobody knows.
                Err(fault) if answers.iter().any(Option::is_some) => {
                    for (at, _) in left {
                        answers[at] = Some(Err(Refusal::StoreUnavailable { detail: fault.to_string() }));
                    }
                    break;
                }
                Err(fault) => return Err(fault),
            };
            let mut full = Vec::new();
            for ((at, operation), answer) in left.into_iter().zip(answered) {
                if let Err(Refusal::QueueFull { .. }) = &answer {
                    full.push((at, operation));
                }
                answers[at] = Some(answer);
            }
            left = full;
            if left.is_empty() || over.is_elapsed() || self.0.is_stopping() {
                break;
            }
            if let Some(admit) = admit.take() {
                admitted = admit();
            }
            if admitted.is_none() {
                break;
            }
            let Some(mut woken) = guard.join(generation) else { continue };
            loop {
                tokio::select! {
                    _ = &mut woken => break,
                    () = &mut over => break,
                    () = tokio::time::sleep(LOOK_EVERY) => {
                        if guard.is_first() {
                            break;
                        }
                    }
                }
            }
            if over.is_elapsed() {
                break;
            }
        }
        Ok(answers.into_iter().flatten().collect())
    }
}
