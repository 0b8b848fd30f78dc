//! A store that loses answers.

use std::sync::atomic::{AtomicU32, Ordering};
use towline_conformance::{InterceptedStore, Interceptor, ReferenceStore};
use towline_store::{BoxFuture, Operation, Result, Store, StoreError, Updated};

/// Lets the store carry out a batch with submits, but sometimes returns a fault instead of the answers.
#[derive(Default)]
pub struct LostAnswers {
    batches: AtomicU32,
    /// 0: never.
    every: AtomicU32,
}

pub fn losing_answers(store: ReferenceStore) -> InterceptedStore<LostAnswers> {
    InterceptedStore { store, guard: LostAnswers::default() }
}

impl LostAnswers {
    /// From now on, loses the first answer and then one of this number.
    pub fn lose_every(&self, every: u32) {
        self.every.store(every, Ordering::SeqCst);
    }

    fn loses(&self, batch: &[Operation]) -> bool {
        let every = self.every.load(Ordering::SeqCst);
        every > 0
            && batch.iter().any(|operation| matches!(operation, Operation::Submit { .. }))
            && self.batches.fetch_add(1, Ordering::SeqCst).is_multiple_of(every)
    }
}

impl Interceptor for LostAnswers {
    fn update<'a>(
        &'a self,
        store: &'a ReferenceStore,
        batch: Vec<Operation>,
    ) -> BoxFuture<'a, Result<Updated>> {
        let loses = self.loses(&batch);
        let answer = store.update(batch);
        if loses {
            return Box::pin(async {
                Err(StoreError::Unavailable { cause: "the answer was lost".to_owned() })
            });
        }
        answer
    }
}
