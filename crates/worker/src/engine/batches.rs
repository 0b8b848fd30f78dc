//! Batches: work that waits for other work of its kind, to run together.

use super::Engine;
use super::run::task_failure;
use crate::handler::{Handler, HandlerInput, HandlerResult};
use crate::outcome::Failure;
use crate::work::Kind;
use parking_lot::{Mutex, MutexGuard};
use std::collections::HashMap;
use std::sync::Arc;
use tokio::sync::oneshot;

/// The batches that are being filled, by kind.
#[derive(Default)]
pub(super) struct Batches(Mutex<HashMap<Arc<str>, OpenBatch>>);

#[derive(Default)]
struct OpenBatch {
    /// The number of the batch. A timer of an earlier batch must not start this one.
    serial: u64,
    entries: Vec<(HandlerInput, oneshot::Sender<HandlerResult>)>,
}

impl Batches {
    /// Adds work to the batch of its kind, and waits for its outcome.
    pub(super) async fn run(
        &self,
        engine: &Arc<Engine>,
        kind: &Arc<Kind>,
        input: HandlerInput,
    ) -> HandlerResult {
        let Handler::Batch { size, wait, .. } = &kind.handler else {
            return Err(Failure::fail("this kind of work does not run in batches"));
        };
        let (outcome, outcome_received) = oneshot::channel();
        let (count, serial) = {
            let mut batches = self.lock();
            let batch = batches.entry(Arc::clone(&kind.name)).or_default();
            // Attempts that ended meanwhile (a lost lease, a time limit) leave the batch.
            batch.entries.retain(|(_, outcome)| !outcome.is_closed());
            batch.entries.push((input, outcome));
            (batch.entries.len(), batch.serial)
        };
        if count >= *size || engine.is_stopping() {
            self.start(kind, serial);
        } else if count == 1 {
            let (engine, kind, wait) = (Arc::clone(engine), Arc::clone(kind), *wait);
            tokio::spawn(async move {
                let start_at = engine.clock.now().after(wait);
                engine.sleep_unless_stopping(start_at).await;
                engine.batches.start(&kind, serial);
            });
        }
        outcome_received.await.unwrap_or_else(|_| Err(Failure::retry("the batch ended without an outcome")))
    }

    fn start(&self, kind: &Arc<Kind>, serial: u64) {
        let Handler::Batch { run, .. } = &kind.handler else { return };
        let entries = {
            let mut batches = self.lock();
            let Some(batch) = batches.get_mut(&kind.name).filter(|batch| batch.serial == serial) else {
                return;
            };
            batch.serial += 1;
            std::mem::take(&mut batch.entries)
        };
        let (inputs, outcomes): (Vec<_>, Vec<_>) =
            entries.into_iter().filter(|(_, outcome)| !outcome.is_closed()).unzip();
        if inputs.is_empty() {
            return;
        }
        let handler = tokio::spawn(run(inputs));
        tokio::spawn(async move {
            let results = handler.await.unwrap_or_else(|error| {
                let failure = task_failure(error);
                outcomes.iter().map(|_| Err(failure.clone())).collect()
            });
            for (outcome, result) in outcomes.into_iter().zip(results) {
                // An attempt that ended meanwhile does not want its outcome.
                let _ = outcome.send(result);
            }
        });
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<Arc<str>, OpenBatch>> {
        self.0.lock()
    }
}
