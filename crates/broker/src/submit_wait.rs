//! Submits that wait for room in a full queue.

use crate::broker::Broker;
use std::pin::pin;
use std::time::Duration;
use towline_domain::{QueueName, Refusal};
use towline_store::{Answered, Operation, OperationError, Result};

/// Poll interval of the first waiting submitter: other servers and expiry make room without a wake-up.
const POLL_EVERY: Duration = Duration::from_secs(1);

impl Broker {
    /// Submits to one queue. While the queue is full, waits for room, for `wait` at most. Items that find no room in
    /// that time are refused with `QueueFull`. Before the first wait, `admit` reserves what a waiting batch needs, for as
    /// long as it waits. If it cannot, the batch does not wait.
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
                // Answer what was submitted before. It is unknown whether the store submitted the rest.
                Err(fault) if answers.iter().any(Option::is_some) => {
                    for (at, _) in left {
                        answers[at] = Some(Err(fault.clone().into()));
                    }
                    break;
                }
                Err(fault) => return Err(fault),
            };
            let mut full = Vec::new();
            for ((at, operation), answer) in left.into_iter().zip(answered) {
                if let Err(OperationError::Refused(Refusal::QueueFull { .. })) = &answer {
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
                    () = tokio::time::sleep(POLL_EVERY) => {
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
