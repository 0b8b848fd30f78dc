//! What is asked of all shards.

use crate::{SHARDS_MAX, Shards, merge};
use futures::future::join_all;
use std::collections::BTreeMap;
use towline_domain::kv::KvRecord;
use towline_domain::{FieldSet, ItemId, QueueName, Timestamp, limits};
use towline_store::{
    Answered, BoxFuture, CountPage, Cursor, EventCursor, EventPage, Events, EventsFrom, Filter, KvPage,
    Operation, Page, QueueView, Result, Store, StoreError, StoreMetrics, StoredItem, TallyRange, TallyRow,
};

/// A cursor is a shard and the cursor in it.
const SHARD_SHIFT: u32 = 64 - SHARDS_MAX.ilog2();

impl Shards {
    /// The parts of those that answer; an error if nobody does.
    async fn of_those_up<'a, T>(
        &'a self,
        ask: impl Fn(&'a dyn Store) -> BoxFuture<'a, Result<T>>,
    ) -> Result<Vec<T>> {
        let up = self.shards.iter().filter(|shard| shard.health.is_up());
        let asked = join_all(up.map(|shard| async { shard.seen(ask(&*shard.store).await) })).await;
        let mut error = StoreError::Unavailable { cause: "every shard is gone".to_owned() };
        let mut parts = Vec::new();
        for answer in asked {
            match answer {
                Ok(part) => parts.push(part),
                Err(one) => error = one,
            }
        }
        if parts.is_empty() { Err(error) } else { Ok(parts) }
    }

    pub(crate) async fn view(&self, name: QueueName) -> Result<Option<QueueView>> {
        let parts = self.of_those_up(|store| store.queue(name.clone())).await?;
        Ok(merge::views(parts.into_iter().flatten().collect()))
    }

    async fn views(&self, after: Option<QueueName>, limit: usize) -> Result<Vec<QueueView>> {
        let parts = self.of_those_up(|store| store.queues(after.clone(), limit)).await?;
        let mut by_name: BTreeMap<QueueName, Vec<QueueView>> = BTreeMap::new();
        for view in parts.into_iter().flatten() {
            by_name.entry(view.queue.name.clone()).or_default().push(view);
        }
        Ok(by_name.into_values().filter_map(merge::views).take(limit.min(limits::PAGE_MAX)).collect())
    }

    /// What each shard has of these.
    pub(crate) async fn look_for(
        &self,
        ids: &[ItemId],
        fields: FieldSet,
    ) -> Vec<Result<Vec<Option<StoredItem>>>> {
        join_all(self.shards.iter().map(|shard| shard.ask(|store| store.get(ids.to_vec(), fields)))).await
    }

    async fn items(&self, ids: Vec<ItemId>, fields: FieldSet) -> Result<Vec<Option<StoredItem>>> {
        StoreError::check_size("ids", ids.len(), limits::BATCH_MAX)?;
        let mut found: Vec<Option<StoredItem>> = vec![None; ids.len()];
        let mut asked: Vec<Vec<(usize, ItemId)>> = vec![Vec::new(); self.shards.len()];
        for (at, &id) in ids.iter().enumerate() {
            match self.maker(id) {
                Some(home) => asked[home].push((at, id)),
                None => asked.iter_mut().for_each(|asked| asked.push((at, id))),
            }
        }
        let some = asked.into_iter().zip(&self.shards).filter(|(asked, _)| !asked.is_empty());
        let answers = join_all(some.map(|(asked, shard)| async move {
            let (at, ids): (Vec<usize>, Vec<ItemId>) = asked.into_iter().unzip();
            (at, shard.ask(|store| store.get(ids, fields)).await)
        }))
        .await;
        let mut gone = Vec::new();
        for (at, answer) in answers {
            match answer {
                Ok(items) => {
                    for (at, item) in at.into_iter().zip(items) {
                        found[at] = found[at].take().or(item);
                    }
                }
                Err(error) => gone.push((at, error)),
            }
        }
        // Whether what was not found is in a shard that is gone, nobody knows.
        for (at, error) in gone {
            if at.iter().any(|&at| found[at].is_none()) {
                return Err(error);
            }
        }
        Ok(found)
    }

    async fn page(
        &self,
        filter: Filter,
        after: Option<Cursor>,
        limit: usize,
        fields: FieldSet,
    ) -> Result<Page> {
        let (shard, within) = place_of(after);
        let Some(here) = self.shards.get(shard) else { return Ok(Page { items: Vec::new(), next: None }) };
        let page = here.ask(|store| store.list(filter, within, limit, fields)).await?;
        let next = self.next_place(shard, page.next);
        Ok(Page { items: page.items, next })
    }

    /// One shard after the other, all that are there: a count without those of one that is gone would be wrong.
    async fn counted(&self, filter: Filter, after: Option<Cursor>) -> Result<CountPage> {
        let (shard, within) = place_of(after);
        let Some(here) = self.shards.get(shard) else { return Ok(CountPage::default()) };
        let part = here.ask(|store| store.count(filter, within)).await?;
        Ok(CountPage { count: part.count, next: self.next_place(shard, part.next) })
    }

    /// Where to go on after a part of a shard.
    fn next_place(&self, shard: usize, within: Option<Cursor>) -> Option<Cursor> {
        let place = |shard: usize, within: u64| Cursor((shard as u64) << SHARD_SHIFT | within);
        match within {
            Some(Cursor(within)) => Some(place(shard, within)),
            None => (shard + 1 < self.shards.len()).then(|| place(shard + 1, 0)),
        }
    }

    async fn wake(&self) -> Result<Option<Timestamp>> {
        let times = self.of_those_up(|store| store.next_wake()).await?;
        Ok(times.into_iter().flatten().min())
    }

    async fn tallied(&self, queue: QueueName, asked: TallyRange) -> Result<Option<Vec<TallyRow>>> {
        let parts = self.of_those_up(|store| store.tally(queue.clone(), asked.clone())).await?;
        Ok(merge::tallies(parts.into_iter().flatten().collect()))
    }

    /// Of those that are gone, too: what was counted does not become less.
    async fn all_figures(&self) -> Result<StoreMetrics> {
        let parts = join_all(self.shards.iter().map(|shard| shard.store.metrics())).await;
        parts.into_iter().try_fold(StoreMetrics::default(), |sum, part| Ok(sum.plus(&part?)))
    }

    /// What the shards tell that answer. One that is gone goes on where it was when it is back; one that is new, or was
    /// gone when the reader began, is told from the oldest on.
    async fn told(&self, from: EventsFrom, limit: usize) -> Result<Events> {
        let each = (limit / self.shards.len()).max(1);
        let parts = self
            .of_those_up(|store| {
                let from = from.clone();
                Box::pin(async move {
                    match store.events(from, each).await? {
                        Events::Elsewhere => Ok((store.events(EventsFrom::Oldest, each).await?, true)),
                        told => Ok((told, false)),
                    }
                })
            })
            .await?;
        if parts.iter().all(|(_, elsewhere)| *elsewhere) {
            return Ok(Events::Elsewhere);
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
                gone => return Ok(gone),
            }
        }
        let (events, ends) = merge::events(pages, limit);
        events.iter().for_each(|event| next.pass(event.id));
        more |= ends.iter().any(Option::is_none);
        ends.iter().flatten().for_each(|end| next.join(end));
        Ok(Events::Page(EventPage { events, next, more }))
    }

    async fn records_of(&self, page: KvPage) -> Result<Vec<(String, KvRecord)>> {
        let parts = self.of_those_up(|store| store.kv_list(page.clone())).await?;
        let mut records: Vec<(String, KvRecord)> = parts.into_iter().flatten().collect();
        records.sort_unstable_by(|(one, _), (other, _)| one.cmp(other));
        records.truncate(page.bounds().1);
        Ok(records)
    }

    async fn records(&self, keys: Vec<String>) -> Result<Vec<Option<KvRecord>>> {
        StoreError::check_size("keys", keys.len(), limits::BATCH_MAX)?;
        let mut found = vec![None; keys.len()];
        let mut asked: Vec<(Vec<usize>, Vec<String>)> = vec![Default::default(); self.shards.len()];
        for (at, key) in keys.into_iter().enumerate() {
            let of_shard = &mut asked[self.of_text(&key)];
            of_shard.0.push(at);
            of_shard.1.push(key);
        }
        for ((at, keys), shard) in asked.into_iter().zip(&self.shards).filter(|((at, _), _)| !at.is_empty()) {
            for (at, record) in at.into_iter().zip(shard.ask(|store| store.kv_get(keys)).await?) {
                found[at] = record;
            }
        }
        Ok(found)
    }
}

/// The shard, and the place in it.
fn place_of(cursor: Option<Cursor>) -> (usize, Option<Cursor>) {
    let Some(Cursor(at)) = cursor else { return (0, None) };
    let within = at & ((1 << SHARD_SHIFT) - 1);
    (usize::try_from(at >> SHARD_SHIFT).unwrap_or(usize::MAX), Some(Cursor(within)).filter(|_| within > 0))
}

impl Store for Shards {
    fn update(&self, batch: Vec<Operation>) -> BoxFuture<'_, Result<Vec<Answered>>> {
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
        Box::pin(self.counted(filter, after))
    }

    fn next_wake(&self) -> BoxFuture<'_, Result<Option<Timestamp>>> {
        Box::pin(self.wake())
    }

    fn tally(&self, queue: QueueName, asked: TallyRange) -> BoxFuture<'_, Result<Option<Vec<TallyRow>>>> {
        Box::pin(self.tallied(queue, asked))
    }

    fn metrics(&self) -> BoxFuture<'_, Result<StoreMetrics>> {
        Box::pin(self.all_figures())
    }

    fn kv_list(&self, page: KvPage) -> BoxFuture<'_, Result<Vec<(String, KvRecord)>>> {
        Box::pin(self.records_of(page))
    }

    fn kv_get(&self, keys: Vec<String>) -> BoxFuture<'_, Result<Vec<Option<KvRecord>>>> {
        Box::pin(self.records(keys))
    }

    fn events(&self, from: EventsFrom, limit: usize) -> BoxFuture<'_, Result<Events>> {
        Box::pin(self.told(from, limit))
    }

    fn issued(&self, id: ItemId) -> bool {
        self.maker(id).is_some()
    }
}
