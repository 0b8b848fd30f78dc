//! Reads from several shards, merged into one result.

use crate::{Shard, Shards, cursor, merge};
use futures::future::join_all;
use std::collections::BTreeMap;
use towline_domain::kv::KvRecord;
use towline_domain::{FieldSet, ItemId, QueueName, Timestamp, limits};
use towline_store::{
    BoxFuture, CountPage, Cursor, EventCursor, EventPage, Events, EventsFrom, Filter, KvPage, Page,
    QueueView, Result, Store, StoreError, StoreMetrics, StoredItem, TallyRange, TallyRow,
};

impl Shards {
    /// The results of all shards that are up. An error if no shard is.
    async fn call_shards_up<'a, T>(
        &'a self,
        call: impl Fn(&'a dyn Store) -> BoxFuture<'a, Result<T>>,
    ) -> Result<Vec<T>> {
        let up = self.shards.iter().filter(|shard| shard.health.is_up());
        let results = join_all(up.map(|shard| async { shard.observe(call(&*shard.store).await) })).await;
        let mut error = StoreError::Unavailable { cause: "every shard is down".to_owned() };
        let mut parts = Vec::new();
        for result in results {
            match result {
                Ok(part) => parts.push(part),
                Err(failure) => error = failure,
            }
        }
        if parts.is_empty() { Err(error) } else { Ok(parts) }
    }

    pub(crate) async fn view(&self, name: QueueName) -> Result<Option<QueueView>> {
        let parts = self.call_shards_up(|store| store.queue(name.clone())).await?;
        Ok(merge::views(parts.into_iter().flatten().collect()))
    }

    pub(crate) async fn views(&self, after: Option<QueueName>, limit: usize) -> Result<Vec<QueueView>> {
        let parts = self.call_shards_up(|store| store.queues(after.clone(), limit)).await?;
        let mut by_name: BTreeMap<QueueName, Vec<QueueView>> = BTreeMap::new();
        for view in parts.into_iter().flatten() {
            by_name.entry(view.queue.name.clone()).or_default().push(view);
        }
        Ok(by_name.into_values().filter_map(merge::views).take(limit.min(limits::PAGE_MAX)).collect())
    }

    /// Asks every shard for these items.
    pub(crate) async fn get_from_all(
        &self,
        ids: &[ItemId],
        fields: FieldSet,
    ) -> Vec<Result<Vec<Option<StoredItem>>>> {
        join_all(self.shards.iter().map(|shard| shard.call(|store| store.get(ids.to_vec(), fields)))).await
    }

    pub(crate) async fn items(&self, ids: Vec<ItemId>, fields: FieldSet) -> Result<Vec<Option<StoredItem>>> {
        StoreError::check_size("ids", ids.len(), limits::BATCH_MAX)?;
        let mut found: Vec<Option<StoredItem>> = vec![None; ids.len()];
        let mut requests: Vec<Vec<(usize, ItemId)>> = vec![Vec::new(); self.shards.len()];
        for (at, &id) in ids.iter().enumerate() {
            match self.issuer(id) {
                Some(shard) => requests[shard].push((at, id)),
                None => requests.iter_mut().for_each(|request| request.push((at, id))),
            }
        }
        let needed = requests.into_iter().zip(&self.shards).filter(|(requests, _)| !requests.is_empty());
        let answers = join_all(needed.map(|(requests, shard)| async move {
            let (at, ids): (Vec<usize>, Vec<ItemId>) = requests.into_iter().unzip();
            (at, shard.call(|store| store.get(ids, fields)).await)
        }))
        .await;
        let mut failed = Vec::new();
        for (at, answer) in answers {
            match answer {
                Ok(items) => {
                    for (at, item) in at.into_iter().zip(items) {
                        found[at] = found[at].take().or(item);
                    }
                }
                Err(error) => failed.push((at, error)),
            }
        }
        // An item that was not found may be in a shard that is down.
        for (at, error) in failed {
            if at.iter().any(|&at| found[at].is_none()) {
                return Err(error);
            }
        }
        Ok(found)
    }

    pub(crate) async fn page(
        &self,
        filter: Filter,
        after: Option<Cursor>,
        limit: usize,
        fields: FieldSet,
    ) -> Result<Page> {
        let (shard, within) = cursor::split(after);
        let Some(part) = self.shards.get(shard) else { return Ok(Page { items: Vec::new(), next: None }) };
        let page = part.call(|store| store.list(filter, within, limit, fields)).await?;
        let next = cursor::next(shard, page.next, self.shards.len());
        Ok(Page { items: page.items, next })
    }

    /// Counts one shard after the other. Fails if a shard is down, because the count would be too low.
    pub(crate) async fn count_page(&self, filter: Filter, after: Option<Cursor>) -> Result<CountPage> {
        let (shard, within) = cursor::split(after);
        let Some(part) = self.shards.get(shard) else { return Ok(CountPage::default()) };
        let counted = part.call(|store| store.count(filter, within)).await?;
        Ok(CountPage { count: counted.count, next: cursor::next(shard, counted.next, self.shards.len()) })
    }

    pub(crate) async fn earliest_wake(&self) -> Result<Option<Timestamp>> {
        if self.shards.iter().any(Shard::has_unreported_effects) {
            return Ok(Some(Timestamp(0)));
        }
        let times = self.call_shards_up(|store| store.next_wake()).await?;
        Ok(times.into_iter().flatten().min())
    }

    pub(crate) async fn merged_tally(
        &self,
        queue: QueueName,
        range: TallyRange,
    ) -> Result<Option<Vec<TallyRow>>> {
        let parts = self.call_shards_up(|store| store.tally(queue.clone(), range.clone())).await?;
        Ok(merge::tallies(parts.into_iter().flatten().collect()))
    }

    /// The sum over all shards, also those that are down, because counters must not decrease.
    pub(crate) async fn summed_metrics(&self) -> Result<StoreMetrics> {
        let parts = join_all(self.shards.iter().map(|shard| shard.store.metrics())).await;
        parts.into_iter().try_fold(StoreMetrics::default(), |sum, part| Ok(sum.plus(&part?)))
    }

    /// The events of all shards that are up. The reader's cursor keeps the position in a shard that is down. Events of a
    /// shard that is new, or was down when the reader began, start at the oldest one.
    pub(crate) async fn merged_events(&self, from: EventsFrom, limit: usize) -> Result<Events> {
        let each = (limit / self.shards.len()).max(1);
        let parts = self
            .call_shards_up(|store| {
                let from = from.clone();
                Box::pin(async move {
                    match store.events(from, each).await? {
                        Events::Elsewhere => Ok((store.events(EventsFrom::Oldest, each).await?, true)),
                        events => Ok((events, false)),
                    }
                })
            })
            .await?;
        let known = parts.iter().filter(|(_, elsewhere)| !elsewhere).count();
        if known == 0 {
            return Ok(Events::Elsewhere);
        }
        // A position in a store that is none of the shards: a shard was restored from a backup and has another history.
        if let EventsFrom::After(cursor) = &from
            && cursor.stores() > known + self.shards.len() - parts.len()
        {
            return Ok(Events::Gone);
        }
        let mut next = match from {
            EventsFrom::After(cursor) => cursor,
            EventsFrom::Oldest | EventsFrom::Now => EventCursor::default(),
        };
        let mut pages = Vec::new();
        let mut more = false;
        for (part, _) in parts {
            match part {
                Events::Page(page) => {
                    more |= page.more;
                    pages.push((page.events, page.next));
                }
                expired => return Ok(expired),
            }
        }
        let (events, ends) = merge::events(pages, limit);
        events.iter().for_each(|event| next.pass(event.id));
        more |= ends.iter().any(Option::is_none);
        ends.iter().flatten().for_each(|end| next.join(end));
        Ok(Events::Page(EventPage { events, next, more }))
    }

    pub(crate) async fn merged_records(&self, page: KvPage) -> Result<Vec<(String, KvRecord)>> {
        let parts = self.call_shards_up(|store| store.kv_list(page.clone())).await?;
        let mut records: Vec<(String, KvRecord)> = parts.into_iter().flatten().collect();
        records.sort_unstable_by(|(one, _), (other, _)| one.cmp(other));
        records.truncate(page.bounds().1);
        Ok(records)
    }

    pub(crate) async fn records(&self, keys: Vec<String>) -> Result<Vec<Option<KvRecord>>> {
        StoreError::check_size("keys", keys.len(), limits::BATCH_MAX)?;
        let mut found = vec![None; keys.len()];
        let mut requests: Vec<(Vec<usize>, Vec<String>)> = vec![Default::default(); self.shards.len()];
        for (at, key) in keys.into_iter().enumerate() {
            let of_shard = &mut requests[self.shard_of_text(&key)];
            of_shard.0.push(at);
            of_shard.1.push(key);
        }
        for ((at, keys), shard) in
            requests.into_iter().zip(&self.shards).filter(|((at, _), _)| !at.is_empty())
        {
            for (at, record) in at.into_iter().zip(shard.call(|store| store.kv_get(keys)).await?) {
                found[at] = record;
            }
        }
        Ok(found)
    }
}
