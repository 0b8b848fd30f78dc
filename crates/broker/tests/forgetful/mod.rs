//! A store that loses answers.

use std::sync::atomic::{AtomicU32, Ordering};
use towline_domain::kv::KvRecord;
use towline_domain::{FieldSet, ItemId, QueueName, Timestamp};
use towline_store::{
    Answered, BoxFuture, Cursor, Filter, KvPage, Memory, Operation, Page, QueueView, Result, Store,
    StoreError, StoredItem, TallyRange, TallyRow,
};

/// It does what it was asked, and says of submits now and then that it could not.
pub struct Forgetful {
    pub store: Memory,
    asked: AtomicU32,
    /// 0: never.
    every: AtomicU32,
}

impl Forgetful {
    pub fn new(store: Memory) -> Forgetful {
        Forgetful { store, asked: AtomicU32::new(0), every: AtomicU32::new(0) }
    }

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

impl Store for Forgetful {
    fn update(&self, batch: Vec<Operation>) -> BoxFuture<'_, Result<Vec<Answered>>> {
        let forgets = self.forgets(&batch);
        let answer = self.store.update(batch);
        if forgets {
            return Box::pin(async {
                Err(StoreError::Unavailable { cause: "the answer was lost".to_owned() })
            });
        }
        answer
    }

    fn queue(&self, name: QueueName) -> BoxFuture<'_, Result<Option<QueueView>>> {
        self.store.queue(name)
    }

    fn queues(&self, after: Option<QueueName>, limit: usize) -> BoxFuture<'_, Result<Vec<QueueView>>> {
        self.store.queues(after, limit)
    }

    fn get(&self, ids: Vec<ItemId>, fields: FieldSet) -> BoxFuture<'_, Result<Vec<Option<StoredItem>>>> {
        self.store.get(ids, fields)
    }

    fn list(
        &self,
        filter: Filter,
        after: Option<Cursor>,
        limit: usize,
        fields: FieldSet,
    ) -> BoxFuture<'_, Result<Page>> {
        self.store.list(filter, after, limit, fields)
    }

    fn count(&self, filter: Filter, after: Option<Cursor>) -> BoxFuture<'_, Result<towline_store::Counted>> {
        self.store.count(filter, after)
    }

    fn next_wake(&self) -> BoxFuture<'_, Result<Option<Timestamp>>> {
        self.store.next_wake()
    }

    fn kv_get(&self, keys: Vec<String>) -> BoxFuture<'_, Result<Vec<Option<KvRecord>>>> {
        self.store.kv_get(keys)
    }

    fn tally(&self, queue: QueueName, asked: TallyRange) -> BoxFuture<'_, Result<Option<Vec<TallyRow>>>> {
        self.store.tally(queue, asked)
    }

    fn kv_list(&self, page: KvPage) -> BoxFuture<'_, Result<Vec<(String, KvRecord)>>> {
        self.store.kv_list(page)
    }

    fn made(&self, id: ItemId) -> bool {
        self.store.made(id)
    }
}
