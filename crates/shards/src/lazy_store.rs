//! A store that is opened when it can be: a shard that is gone must not keep a server from starting.

use futures::future::ready;
use futures::lock::Mutex;
use std::sync::{Arc, OnceLock};
use towline_domain::kv::KvRecord;
use towline_domain::{FieldSet, ItemId, QueueName, Timestamp};
use towline_store::{
    Answered, BoxFuture, CountPage, Cursor, Events, EventsFrom, Filter, KvPage, Operation, Page, QueueView,
    Result, Store, StoreError, StoreMetrics, StoredItem, TallyRange, TallyRow,
};

type Open = dyn Fn() -> BoxFuture<'static, Result<Arc<dyn Store>>> + Send + Sync;

/// Asking for its queues opens it, which is how [`Shards`](crate::Shards) finds out whether a shard is back. Until then
/// everything else is refused.
pub struct Later {
    open: Box<Open>,
    opening: Mutex<()>,
    opened: OnceLock<Arc<dyn Store>>,
}

impl std::fmt::Debug for Later {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Later({})", if self.opened.get().is_some() { "opened" } else { "not opened" })
    }
}

impl Later {
    pub fn new(
        open: impl Fn() -> BoxFuture<'static, Result<Arc<dyn Store>>> + Send + Sync + 'static,
    ) -> Later {
        Later { open: Box::new(open), opening: Mutex::new(()), opened: OnceLock::new() }
    }

    async fn opened(&self) -> Result<&dyn Store> {
        if let Some(store) = self.opened.get() {
            return Ok(&**store);
        }
        let _one_at_a_time = self.opening.lock().await;
        // Somebody else may have opened it meanwhile.
        let store = match self.opened.get() {
            Some(store) => store,
            None => {
                let store = (self.open)().await?;
                self.opened.get_or_init(|| store)
            }
        };
        Ok(&**store)
    }

    /// Lets it answer, if it is there.
    fn ask<'a, T: Send + 'a>(
        &'a self,
        ask: impl FnOnce(&'a dyn Store) -> BoxFuture<'a, Result<T>>,
    ) -> BoxFuture<'a, Result<T>> {
        match self.opened.get() {
            Some(store) => ask(&**store),
            None => {
                let cause = "it has not been opened yet".to_owned();
                Box::pin(async { Err(StoreError::Unavailable { cause }) })
            }
        }
    }
}

impl Store for Later {
    fn update(&self, batch: Vec<Operation>) -> BoxFuture<'_, Result<Vec<Answered>>> {
        self.ask(|store| store.update(batch))
    }

    fn queue(&self, name: QueueName) -> BoxFuture<'_, Result<Option<QueueView>>> {
        self.ask(|store| store.queue(name))
    }

    fn queues(&self, after: Option<QueueName>, limit: usize) -> BoxFuture<'_, Result<Vec<QueueView>>> {
        Box::pin(async move { self.opened().await?.queues(after, limit).await })
    }

    fn get(&self, ids: Vec<ItemId>, fields: FieldSet) -> BoxFuture<'_, Result<Vec<Option<StoredItem>>>> {
        self.ask(|store| store.get(ids, fields))
    }

    fn list(
        &self,
        filter: Filter,
        after: Option<Cursor>,
        limit: usize,
        fields: FieldSet,
    ) -> BoxFuture<'_, Result<Page>> {
        self.ask(|store| store.list(filter, after, limit, fields))
    }

    fn count(&self, filter: Filter, after: Option<Cursor>) -> BoxFuture<'_, Result<CountPage>> {
        self.ask(|store| store.count(filter, after))
    }

    fn next_wake(&self) -> BoxFuture<'_, Result<Option<Timestamp>>> {
        self.ask(|store| store.next_wake())
    }

    fn tally(&self, queue: QueueName, asked: TallyRange) -> BoxFuture<'_, Result<Option<Vec<TallyRow>>>> {
        self.ask(|store| store.tally(queue, asked))
    }

    fn metrics(&self) -> BoxFuture<'_, Result<StoreMetrics>> {
        match self.opened.get() {
            Some(store) => store.metrics(),
            // It has done nothing yet.
            None => Box::pin(ready(Ok(StoreMetrics::default()))),
        }
    }

    fn kv_list(&self, page: KvPage) -> BoxFuture<'_, Result<Vec<(String, KvRecord)>>> {
        self.ask(|store| store.kv_list(page))
    }

    fn kv_get(&self, keys: Vec<String>) -> BoxFuture<'_, Result<Vec<Option<KvRecord>>>> {
        self.ask(|store| store.kv_get(keys))
    }

    fn events(&self, from: EventsFrom, limit: usize) -> BoxFuture<'_, Result<Events>> {
        self.ask(|store| store.events(from, limit))
    }

    fn issued(&self, id: ItemId) -> bool {
        self.opened.get().is_some_and(|store| store.issued(id))
    }
}
