//! A store that loses answers.

use std::sync::atomic::{AtomicU32, Ordering};
use towline_conformance::{InterceptedStore, Interceptor, ReferenceStore};
use towline_store::{BoxFuture, Operation, Result, Store, StoreError, Updated};

/// It lets the store do what it was asked, and says of submits now and then that it could not.
#[derive(Default)]
pub struct Forgetful {
    asked: AtomicU32,
    /// 0: never.
    every: AtomicU32,
}

/// In front of a store.
pub fn forgetful(store: ReferenceStore) -> InterceptedStore<Forgetful> {
    InterceptedStore { store, guard: Forgetful::default() }
}

impl Forgetful {
    /// From now on, the first and then one of so many.
    pub fn forget_every(&self, every: u32) {
        self.every.store(every, Ordering::SeqCst);
    }

    fn forgets(&self, batch: &[Operation]) -> bool {
        let every = self.every.load(Ordering::SeqCst);
        every > 0
            && batch.iter().any(|operation| matches!(operation, Operation::Submit { .. }))
            && self.asked.fetch_add(1, Ordering::SeqCst).is_multiple_of(every)
    }
}

impl Interceptor for Forgetful {
    fn update<'a>(
        &'a self,
        store: &'a ReferenceStore,
        batch: Vec<Operation>,
    ) -> BoxFuture<'a, Result<Updated>> {
        let forgets = self.forgets(&batch);
        let answer = store.update(batch);
        if forgets {
            return Box::pin(async {
                Err(StoreError::Unavailable { cause: "the answer was lost".to_owned() })
            });
        }
        answer
    }
}
