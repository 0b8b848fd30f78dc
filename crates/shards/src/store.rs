//! [`Store`] for [`Shards`]: each call goes to the shards that it concerns.

use crate::Shards;
use towline_domain::kv::KvRecord;
use towline_domain::{FieldSet, ItemId, QueueName, Timestamp, limits};
use towline_store::{
    BoxFuture, CountPage, Cursor, Events, EventsFrom, Filter, KvPage, Operation, Page, QueueView, Result,
    Store, StoreError, StoreIdentity, StoreMetrics, StoredItem, TallyRange, TallyRow, Updated,
};

impl Store for Shards {
    fn update(&self, batch: Vec<Operation>) -> BoxFuture<'_, Result<Updated>> {
        Box::pin(async move {
            StoreError::check_size("operations", batch.len(), limits::BATCH_MAX)?;
            self.carry_out(batch).await
        })
    }

    fn queue(&self, name: QueueName) -> BoxFuture<'_, Result<Option<QueueView>>> {
        Box::pin(self.view(name))
    }

    fn queues(&self, after: Option<QueueName>, limit: usize) -> BoxFuture<'_, Result<Vec<QueueView>>> {
        Box::pin(self.views(after, limit))
    }

    fn get(&self, ids: Vec<ItemId>, fields: FieldSet) -> BoxFuture<'_, Result<Vec<Option<StoredItem>>>> {
        Box::pin(self.items(ids, fields))
    }

    fn list(
        &self,
        filter: Filter,
        after: Option<Cursor>,
        limit: usize,
        fields: FieldSet,
    ) -> BoxFuture<'_, Result<Page>> {
        Box::pin(self.page(filter, after, limit, fields))
    }

    fn count(&self, filter: Filter, after: Option<Cursor>) -> BoxFuture<'_, Result<CountPage>> {
        Box::pin(self.count_page(filter, after))
    }

    fn next_wake(&self) -> BoxFuture<'_, Result<Option<Timestamp>>> {
        Box::pin(self.earliest_wake())
    }

    fn tally(&self, queue: QueueName, range: TallyRange) -> BoxFuture<'_, Result<Option<Vec<TallyRow>>>> {
        Box::pin(self.merged_tally(queue, range))
    }

    fn metrics(&self) -> BoxFuture<'_, Result<StoreMetrics>> {
        Box::pin(self.summed_metrics())
    }

    fn kv_list(&self, page: KvPage) -> BoxFuture<'_, Result<Vec<(String, KvRecord)>>> {
        Box::pin(self.merged_records(page))
    }

    fn kv_get(&self, keys: Vec<String>) -> BoxFuture<'_, Result<Vec<Option<KvRecord>>>> {
        Box::pin(self.records(keys))
    }

    fn events(&self, from: EventsFrom, limit: usize) -> BoxFuture<'_, Result<Events>> {
        Box::pin(self.merged_events(from, limit))
    }

    fn issued(&self, id: ItemId) -> bool {
        self.issuer(id).is_some()
    }

    fn identity(&self) -> StoreIdentity {
        StoreIdentity::merge(self.shards.iter().map(|shard| shard.store.identity()))
    }
}
