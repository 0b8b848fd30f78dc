//! The reference store behind an interceptor, for tests that watch it, slow it down or make it fail.

use crate::ReferenceStore;
use towline_domain::kv::KvRecord;
use towline_domain::{FieldSet, ItemId, QueueName, Timestamp};
use towline_store::{BoxFuture, KvPage, QueueView, Store, StoredItem};
use towline_store::{CountPage, Cursor, Filter, Page};
use towline_store::{Events, EventsFrom};
use towline_store::{Operation, Result, Updated};
use towline_store::{StoreIdentity, StoreMetrics};
use towline_store::{TallyRange, TallyRow};

/// Passes every call on to the store by default.
pub trait Interceptor: Send + Sync {
    fn update<'a>(
        &'a self,
        store: &'a ReferenceStore,
        batch: Vec<Operation>,
    ) -> BoxFuture<'a, Result<Updated>> {
        store.update(batch)
    }

    fn events<'a>(
        &'a self,
        store: &'a ReferenceStore,
        from: EventsFrom,
        limit: usize,
    ) -> BoxFuture<'a, Result<Events>> {
        store.events(from, limit)
    }

    fn kv_list<'a>(
        &'a self,
        store: &'a ReferenceStore,
        page: KvPage,
    ) -> BoxFuture<'a, Result<Vec<(String, KvRecord)>>> {
        store.kv_list(page)
    }

    fn get<'a>(
        &'a self,
        store: &'a ReferenceStore,
        ids: Vec<ItemId>,
        fields: FieldSet,
    ) -> BoxFuture<'a, Result<Vec<Option<StoredItem>>>> {
        store.get(ids, fields)
    }

    /// Called before each read. An error becomes the answer to the read.
    fn read(&self) -> Result<()> {
        Ok(())
    }
}

#[derive(Debug)]
pub struct InterceptedStore<G> {
    pub store: ReferenceStore,
    pub guard: G,
}

impl<G: Interceptor> InterceptedStore<G> {
    fn read<'a, T: Send + 'a>(&'a self, answer: BoxFuture<'a, Result<T>>) -> BoxFuture<'a, Result<T>> {
        Box::pin(async move {
            self.guard.read()?;
            answer.await
        })
    }
}

impl<G: Interceptor> Store for InterceptedStore<G> {
    fn update(&self, batch: Vec<Operation>) -> BoxFuture<'_, Result<Updated>> {
        self.guard.update(&self.store, batch)
    }

    fn queue(&self, name: QueueName) -> BoxFuture<'_, Result<Option<QueueView>>> {
        self.read(self.store.queue(name))
    }

    fn queues(&self, after: Option<QueueName>, limit: usize) -> BoxFuture<'_, Result<Vec<QueueView>>> {
        self.read(self.store.queues(after, limit))
    }

    fn get(&self, ids: Vec<ItemId>, fields: FieldSet) -> BoxFuture<'_, Result<Vec<Option<StoredItem>>>> {
        self.read(self.guard.get(&self.store, ids, fields))
    }

    fn list(
        &self,
        filter: Filter,
        after: Option<Cursor>,
        limit: usize,
        fields: FieldSet,
    ) -> BoxFuture<'_, Result<Page>> {
        self.read(self.store.list(filter, after, limit, fields))
    }

    fn count(&self, filter: Filter, after: Option<Cursor>) -> BoxFuture<'_, Result<CountPage>> {
        self.read(self.store.count(filter, after))
    }

    fn next_wake(&self) -> BoxFuture<'_, Result<Option<Timestamp>>> {
        self.read(self.store.next_wake())
    }

    fn tally(&self, queue: QueueName, asked: TallyRange) -> BoxFuture<'_, Result<Option<Vec<TallyRow>>>> {
        self.read(self.store.tally(queue, asked))
    }

    fn metrics(&self) -> BoxFuture<'_, Result<StoreMetrics>> {
        self.read(self.store.metrics())
    }

    fn kv_get(&self, keys: Vec<String>) -> BoxFuture<'_, Result<Vec<Option<KvRecord>>>> {
        self.read(self.store.kv_get(keys))
    }

    fn kv_list(&self, page: KvPage) -> BoxFuture<'_, Result<Vec<(String, KvRecord)>>> {
        self.read(self.guard.kv_list(&self.store, page))
    }

    fn events(&self, from: EventsFrom, limit: usize) -> BoxFuture<'_, Result<Events>> {
        self.read(self.guard.events(&self.store, from, limit))
    }

    fn issued(&self, id: ItemId) -> bool {
        self.store.issued(id)
    }

    fn identity(&self) -> StoreIdentity {
        self.store.identity()
    }
}
