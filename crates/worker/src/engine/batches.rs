//! Pieces that wait for others of their kind, to be done together.

use super::Shared;
use super::run::died;
use crate::outcome::Failure;
use crate::work::{Ended, Kind, Run, Taken};
use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use tokio::sync::oneshot;

#[derive(Default)]
pub(super) struct Batches(Mutex<HashMap<Arc<str>, Gathering>>);

#[derive(Default)]
struct Gathering {
    /// Which batch this is: a timer of an earlier one has nothing to say.
    serial: u64,
    pieces: Vec<(Taken, oneshot::Sender<Ended>)>,
}

impl Batches {
    pub(super) async fn add(&self, shared: &Arc<Shared>, kind: &Arc<Kind>, taken: Taken) -> Ended {
        let Run::Batch { size, wait, .. } = &kind.run else {
            return Err(Failure::abort("it is not done in batches"));
        };
        let (answer, answered) = oneshot::channel();
        let (count, serial) = {
            let mut all = self.lock();
            let gathering = all.entry(Arc::clone(&kind.name)).or_default();
            // Who does not wait for an answer any more is not done.
            gathering.pieces.retain(|(_, answer)| !answer.is_closed());
            gathering.pieces.push((taken, answer));
            (gathering.pieces.len(), gathering.serial)
        };
        if count >= *size || shared.is_stopping() {
            self.go(kind, serial);
        } else if count == 1 {
            let (shared, kind, wait) = (Arc::clone(shared), Arc::clone(kind), *wait);
            tokio::spawn(async move {
                let mut stopping = shared.stopping.subscribe();
                tokio::select! {
                    () = shared.sleep(wait) => {}
                    _ = stopping.wait_for(|stopping| *stopping) => {}
                }
                shared.batches.go(&kind, serial);
            });
        }
        answered.await.unwrap_or_else(|_| Err(Failure::retry("its batch ended without an answer")))
    }

    fn go(&self, kind: &Arc<Kind>, serial: u64) {
        let Run::Batch { run, .. } = &kind.run else { return };
        let pieces = {
            let mut all = self.lock();
            let Some(gathering) = all.get_mut(&kind.name).filter(|gathering| gathering.serial == serial)
            else {
                return;
            };
            gathering.serial += 1;
            std::mem::take(&mut gathering.pieces)
        };
        let (taken, answers): (Vec<_>, Vec<_>) =
            pieces.into_iter().filter(|(_, answer)| !answer.is_closed()).unzip();
        if taken.is_empty() {
            return;
        }
        let running = tokio::spawn(run(taken));
        tokio::spawn(async move {
            let ended = match running.await {
                Ok(ended) => ended,
                Err(error) => {
                    let failure = died(error);
                    answers.iter().map(|_| Err(failure.clone())).collect()
                }
            };
            for (answer, ended) in answers.into_iter().zip(ended) {
                // Who does not wait any more lost the lease.
                let _ = answer.send(ended);
            }
        });
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<Arc<str>, Gathering>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
