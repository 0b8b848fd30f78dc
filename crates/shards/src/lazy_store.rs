//! A store that is opened on first use, so that a server can start while a shard is down.

use futures::future::ready;
use futures::lock::Mutex;
use std::sync::{Arc, OnceLock};
use towline_domain::kv::KvRecord;
use towline_domain::{FieldSet, ItemId, QueueName, Timestamp};
use towline_store::{
    BoxFuture, CountPage, Cursor, Events, EventsFrom, Filter, KvPage, Operation, Page, QueueView, Result,
    Store, StoreError, StoreIdentity, StoreMetrics, StoredItem, TallyRange, TallyRow, Updated,
};

type Open = dyn Fn() -> BoxFuture<'static, Result<Arc<dyn Store>>> + Send + Sync;

/// [`Store::queues`] opens the store: [`Shards`](crate::Shards) probes a shard with it. Before that, every other call is
/// refused.
pub struct LazyStore {
    open: Box<Open>,
    opening: Mutex<()>,
    opened: OnceLock<Arc<dyn Store>>,
}

impl std::fmt::Debug for LazyStore {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "LazyStore({})", if self.opened.get().is_some() { "opened" } else { "not opened" })
    }
}

impl LazyStore {
    pub fn new(
        open: impl Fn() -> BoxFuture<'static, Result<Arc<dyn Store>>> + Send + Sync + 'static,
    ) -> LazyStore {
        LazyStore { open: Box::new(open), opening: Mutex::new(()), opened: OnceLock::new() }
    }

    async fn open(&self) -> Result<&dyn Store> {
        if let Some(store) = self.opened.get() {
            return Ok(&**store);
        }
        let _one_at_a_time = self.opening.lock().await;
        // Another call may have opened it meanwhile.
        let store = match self.opened.get() {
            Some(store) => store,
            None => {
                let store = (self.open)().await?;
                self.opened.get_or_init(|| store)
            }
        };
        Ok(&**store)
    }

    /// Calls the store, if it is open.
    fn call<'a, T: Send + 'a>(
        &'a self,
        call: impl FnOnce(&'a dyn Store) -> BoxFuture<'a, Result<T>>,
    ) -> BoxFuture<'a, Result<T>> {
        match self.opened.get() {
            Some(store) => call(&**store),
            None => {
                let cause = "the store is not open yet".to_owned();
                Box::pin(async { Err(StoreError::Unavailable { cause }) })
            }
        }
    }
}

impl Store for LazyStore {
    fn update(&self, batch: Vec<Operation>) -> BoxFuture<'_, Result<Updated>> {
        self.call(|store| store.update(batch))
    }

    fn queue(&self, name: QueueName) -> BoxFuture<'_, Result<Option<QueueView>>> {
        self.call(|store| store.queue(name))
    }

    fn queues(&self, after: Option<QueueName>, limit: usize) -> BoxFuture<'_, Result<Vec<QueueView>>> {
        Box::pin(async move { self.open().await?.queues(after, limit).await })
    }

    fn get(&self, ids: Vec<ItemId>, fields: FieldSet) -> BoxFuture<'_, Result<Vec<Option<StoredItem>>>> {
        self.call(|store| store.get(ids, fields))
    }

    fn list(
        &self,
        filter: Filter,
        after: Option<Cursor>,
        limit: usize,
        fields: FieldSet,
    ) -> BoxFuture<'_, Result<Page>> {
        self.call(|store| store.list(filter, after, limit, fields))
    }

    fn count(&self, filter: Filter, after: Option<Cursor>) -> BoxFuture<'_, Result<CountPage>> {
        self.call(|store| store.count(filter, after))
    }

    fn next_wake(&self) -> BoxFuture<'_, Result<Option<Timestamp>>> {
        self.call(|store| store.next_wake())
    }

    fn tally(&self, queue: QueueName, range: TallyRange) -> BoxFuture<'_, Result<Option<Vec<TallyRow>>>> {
        self.call(|store| store.tally(queue, range))
    }

    fn metrics(&self) -> BoxFuture<'_, Result<StoreMetrics>> {
        match self.opened.get() {
            Some(store) => store.metrics(),
            // A store that is not open has counted nothing.
            None => Box::pin(ready(Ok(StoreMetrics::default()))),
        }
    }

    fn kv_list(&self, page: KvPage) -> BoxFuture<'_, Result<Vec<(String, KvRecord)>>> {
        self.call(|store| store.kv_list(page))
    }

    fn kv_get(&self, keys: Vec<String>) -> BoxFuture<'_, Result<Vec<Option<KvRecord>>>> {
        self.call(|store| store.kv_get(keys))
    }

    fn events(&self, from: EventsFrom, limit: usize) -> BoxFuture<'_, Result<Events>> {
        self.call(|store| store.events(from, limit))
    }

    fn issued(&self, id: ItemId) -> bool {
        self.opened.get().is_some_and(|store| store.issued(id))
    }

    fn identity(&self) -> StoreIdentity {
        self.opened.get().map_or_else(StoreIdentity::unknown, |store| store.identity())
    }
}
