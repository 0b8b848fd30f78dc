//! Reads. Each one uses one snapshot, on a separate pool of connections, so that it never waits behind writes.

mod count;
pub(crate) mod filter_plan;
mod list;

use crate::batch::content_request::ContentRequest;
use crate::batch::fetch::{counts_of, kv_record};
use crate::batch::outcome::Contents;
use crate::batch::plan::ItemLookup;
use crate::catalog::read_queue;
use crate::clock::SteadyClock;
use crate::connection::address::Target;
use crate::encoding::sql::{millis, queue_id, queue_number, timestamp};
use crate::error::{Failure, damaged, fault};
use crate::events::watermark::EventWatermark;
use crate::options::Options;
use crate::pages::snapshot::{ItemSnapshot, read_page};
use crate::statements::query;
use deadpool_postgres::{
    Manager, ManagerConfig, Object, Pool, RecyclingMethod, Runtime, Status, TimeoutType, Transaction,
};
use futures::FutureExt;
use parking_lot::Mutex;
use rustc_hash::{FxHashMap, FxHashSet};
use std::ops::Bound;
use std::sync::Arc;
use std::time::Duration;
use tokio_postgres::{IsolationLevel, Row};
use towline_domain::kv::KvRecord;
use towline_domain::select::READ_BYTES_MAX;
use towline_domain::{CountKind, FieldSet, Item, ItemId, QueueId, QueueName, Timestamp, limits};
use towline_store::{BoxFuture, KvPage, QueueView, StoreError, StoreMetrics, StoredItem};

/// The outcomes, errors and edited bodies of this many items are small enough to be read without asking for their size.
const SIDES_UNMEASURED: usize = 16;

/// Reads again once if the first read finds damage. A snapshot does not keep partitions from being truncated: it may see half
/// of an item that was removed after it was taken. The next snapshot does not see the item.
macro_rules! retry_if_truncated {
    ($read:expr) => {
        match $read.await {
            Err(Failure::Fault(StoreError::Corrupt { .. })) => $read.await,
            read => read,
        }
    };
}
pub(crate) use retry_if_truncated;

#[derive(Clone)]
pub(crate) struct Reader {
    pool: Pool,
    runtime: tokio::runtime::Handle,
    pub(crate) salt: u64,
    /// The store in event ids.
    pub(crate) event_store: u32,
    pub(crate) clock: Arc<SteadyClock>,
    pub(crate) watermark: Arc<EventWatermark>,
    metrics: Arc<Mutex<StoreMetrics>>,
}

impl Reader {
    pub(crate) fn new(
        target: &Target,
        options: &Options,
        salt: u64,
        event_store: u32,
        clock: Arc<SteadyClock>,
        metrics: Arc<Mutex<StoreMetrics>>,
    ) -> Result<Reader, StoreError> {
        let recycling = ManagerConfig { recycling_method: RecyclingMethod::Fast };
        let wait = Some(Duration::from_millis(options.statement_timeout_ms.into()));
        let pool =
            Pool::builder(Manager::from_config(target.config.clone(), target.connector.clone(), recycling))
                .max_size(options.readers)
                .runtime(Runtime::Tokio1)
                .wait_timeout(wait)
                .create_timeout(wait)
                .build()
                .map_err(|error| StoreError::Unavailable { cause: error.to_string() })?;
        Ok(Reader {
            pool,
            runtime: tokio::runtime::Handle::current(),
            salt,
            event_store,
            clock,
            watermark: Arc::default(),
            metrics,
        })
    }

    /// Runs a read on the store's runtime, whatever executor the caller uses.
    pub(crate) fn run<T, F>(&self, read: impl FnOnce(Reader) -> F) -> BoxFuture<'_, Result<T, StoreError>>
    where
        T: Send + 'static,
        F: Future<Output = Result<T, Failure>> + Send + 'static,
    {
        let read = self.runtime.spawn(read(self.clone()));
        read.map(|ended| match ended {
            Ok(answer) => answer.map_err(StoreError::from).inspect_err(|error| self.note_damage(error)),
            Err(_) => Err(StoreError::Closed),
        })
        .boxed()
    }

    /// Counts a fault that is damage, and writes it to the log.
    pub(crate) fn note_damage(&self, fault: &StoreError) {
        if matches!(fault, StoreError::Corrupt { .. }) {
            tracing::error!("{fault}");
            self.metrics.lock().damages += 1;
        }
    }

    pub(crate) async fn client(&self) -> Result<Object, Failure> {
        self.pool.get().await.map_err(|error| {
            Failure::Fault(match error {
                deadpool_postgres::PoolError::Backend(error) => fault(&error),
                deadpool_postgres::PoolError::Timeout(TimeoutType::Wait) => {
                    let Status { max_size, waiting, .. } = self.pool.status();
                    let cause = format!(
                        "all {max_size} connections for reading are busy, and {} reads wait; try again later, or raise the \
                         number of readers",
                        waiting.max(1)
                    );
                    StoreError::Unavailable { cause }
                }
                deadpool_postgres::PoolError::Timeout(_) => {
                    let cause = "PostgreSQL took too long to accept a connection".to_owned();
                    StoreError::Unavailable { cause }
                }
                deadpool_postgres::PoolError::Closed => StoreError::Closed,
                error => StoreError::Unavailable { cause: error.to_string() },
            })
        })
    }

    pub(crate) async fn now(&self, client: &Object) -> Result<Timestamp, Failure> {
        if let Some(now) = self.clock.injected() {
            return Ok(now);
        }
        let clock = client.prepare_cached(query!("read_clock")).await?;
        Ok(self.clock.steady(timestamp(client.query_one(&clock, &[]).await?.get(0))))
    }

    pub(crate) async fn queue(&self, name: QueueName) -> Result<Option<QueueView>, Failure> {
        let views = self.views(None, Some(name.as_str()), 1).await?;
        Ok(views.into_iter().next())
    }

    pub(crate) async fn queues(
        &self,
        after: Option<QueueName>,
        limit: usize,
    ) -> Result<Vec<QueueView>, Failure> {
        self.views(after.as_ref().map(QueueName::as_str), None, limit.min(limits::PAGE_MAX)).await
    }

    async fn views(
        &self,
        after: Option<&str>,
        name: Option<&str>,
        limit: usize,
    ) -> Result<Vec<QueueView>, Failure> {
        let client = self.client().await?;
        let now = millis(self.now(&client).await?);
        let statement = client.prepare_cached(query!("view_queues")).await?;
        let limit = i64::try_from(limit).unwrap_or(i64::MAX);
        let rows = client.query(&statement, &[&now, &after.unwrap_or(""), &name, &limit]).await?;
        let view = |row: &Row| {
            let mut counts = counts_of(row, 1);
            let ready_by_now = u64::try_from(row.get::<_, i64>(7)).unwrap_or(0);
            counts.pending += ready_by_now;
            counts.scheduled = counts.scheduled.saturating_sub(ready_by_now);
            let oldest_ready = row.get::<_, Option<i64>>(8).map(timestamp);
            Ok(QueueView { queue: read_queue(row.get(0))?, counts, oldest_ready })
        };
        rows.iter().map(view).collect()
    }

    pub(crate) async fn get(
        &self,
        ids: Vec<ItemId>,
        fields: FieldSet,
    ) -> Result<Vec<Option<StoredItem>>, Failure> {
        retry_if_truncated!(self.get_once(&ids, fields))
    }

    async fn get_once(&self, ids: &[ItemId], fields: FieldSet) -> Result<Vec<Option<StoredItem>>, Failure> {
        let asked: FxHashSet<ItemId> = ids.iter().copied().collect();
        let items = ItemLookup::of(ids, self.salt, true);
        let mut client = self.client().await?;
        let snapshot = snapshot(&mut client).await?;
        let (pages, terminal_pages) = tokio::try_join!(
            snapshot.prepare_cached(query!(
                "fragments/with_asked_items",
                "fragments/select_pages",
                "fragments/pages_holding_items"
            )),
            snapshot.prepare_cached(query!(
                "fragments/with_asked_items",
                "fragments/select_terminal_pages",
                "fragments/terminal_pages_holding_items"
            )),
        )?;
        let parameters = items.parameters();
        let (pages, terminal_pages) = tokio::try_join!(
            snapshot.query(&pages, &parameters),
            snapshot.query(&terminal_pages, &parameters)
        )?;
        let mut snapshots = Vec::with_capacity(ids.len());
        for row in pages.iter().chain(&terminal_pages) {
            let (_, items) = read_page(row, self.salt)?;
            snapshots.extend(items.into_iter().filter(|item| asked.contains(&item.head.id)));
        }
        let bytes: u64 = item_bytes(&snapshot, &snapshots, fields).await?.iter().sum();
        if bytes > READ_BYTES_MAX && snapshots.len() > 1 {
            let (given, max) = (usize::try_from(bytes).unwrap_or(usize::MAX), READ_BYTES_MAX as usize);
            return Err(Failure::Fault(StoreError::BatchTooLarge { what: "bytes", given, max }));
        }
        let found = complete(&snapshot, snapshots, fields).await?;
        let by_id: FxHashMap<ItemId, StoredItem> =
            found.into_iter().map(|stored| (stored.item.head.id, stored)).collect();
        Ok(ids.iter().map(|id| by_id.get(id).cloned()).collect())
    }

    pub(crate) async fn next_wake(&self) -> Result<Option<Timestamp>, Failure> {
        let mut client = self.client().await?;
        let now = self.now(&client).await?;
        let snapshot = snapshot(&mut client).await?;
        let statement = snapshot.prepare_cached(query!("read_next_wake")).await?;
        let ahead =
            snapshot.query_one(&statement, &[&millis(now)]).await?.get::<_, Option<i64>>(0).map(timestamp);
        let statement =
            snapshot.prepare_cached(query!("fragments/select_pages", "fragments/overdue")).await?;
        let mut next = ahead;
        for row in snapshot.query(&statement, &[&millis(now)]).await? {
            for ItemSnapshot { head, counted, .. } in read_page(&row, self.salt)?.1 {
                // An item that is counted as scheduled although its time has come is in no update's effects yet.
                let ready = (counted == CountKind::Scheduled).then_some(head.ready_at);
                next = [next, head.timer(), ready].into_iter().flatten().min();
            }
        }
        Ok(next)
    }

    pub(crate) async fn kv_list(&self, page: KvPage) -> Result<Vec<(String, KvRecord)>, Failure> {
        let client = self.client().await?;
        let now = self.now(&client).await?;
        let statement = client.prepare_cached(query!("list_kv")).await?;
        let (first, limit) = page.bounds();
        let (from, itself) = match first {
            Bound::Included(key) => (key, true),
            Bound::Excluded(key) => (key, false),
            Bound::Unbounded => ("", true),
        };
        let (from, prefix) = (from.as_bytes(), page.prefix.as_bytes());
        let (limit, now) = (i64::try_from(limit).unwrap_or(i64::MAX), millis(now));
        let rows = client.query(&statement, &[&from, &itself, &prefix, &now, &limit]).await?;
        let text = |row: &Row| String::from_utf8_lossy(row.get(0)).into_owned();
        Ok(rows.iter().map(|row| (text(row), kv_record(row))).collect())
    }

    pub(crate) async fn kv_get(&self, keys: Vec<String>) -> Result<Vec<Option<KvRecord>>, Failure> {
        let client = self.client().await?;
        let now = self.now(&client).await?;
        let statement = client.prepare_cached(query!("read_kv")).await?;
        let asked: Vec<&[u8]> = keys.iter().map(String::as_bytes).collect();
        let rows = client.query(&statement, &[&asked]).await?;
        let found: FxHashMap<&[u8], KvRecord> =
            rows.iter().map(|row| (row.get::<_, &[u8]>(0), kv_record(row))).collect();
        let live = |key: &String| found.get(key.as_bytes()).filter(|record| record.is_live(now)).cloned();
        Ok(keys.iter().map(live).collect())
    }
}

/// A transaction whose statements all see the same snapshot.
pub(crate) async fn snapshot(client: &mut Object) -> Result<Transaction<'_>, Failure> {
    let transaction = client.build_transaction();
    Ok(transaction.isolation_level(IsolationLevel::RepeatableRead).read_only(true).start().await?)
}

/// The bytes to read for each of these items.
pub(crate) async fn item_bytes(
    snapshot: &Transaction<'_>,
    items: &[ItemSnapshot],
    fields: FieldSet,
) -> Result<Vec<u64>, Failure> {
    if fields == FieldSet::HEADS {
        return Ok(vec![0; items.len()]);
    }
    let sides: Vec<i64> =
        items.iter().filter(|item| item.kept.side).map(|item| item.seq.cast_signed()).collect();
    let mut side_bytes: FxHashMap<i64, i64> = FxHashMap::default();
    if sides.len() > SIDES_UNMEASURED {
        let statement = snapshot.prepare_cached(query!("read_side_bytes")).await?;
        let rows = snapshot.query(&statement, &[&sides]).await?;
        side_bytes
            .extend(rows.iter().map(|row| (row.get::<_, i64>(0), row.get::<_, Option<i64>>(1).unwrap_or(0))));
    }
    let bytes = |item: &ItemSnapshot| {
        let side = side_bytes.get(&item.seq.cast_signed()).copied().unwrap_or(0);
        let content = if fields.has_any() { item.kept.bytes(fields) } else { item.kept.at.bytes_of(fields) };
        content + side.cast_unsigned()
    };
    Ok(items.iter().map(bytes).collect())
}

/// The complete items, in the order of their snapshots.
pub(crate) async fn complete(
    snapshot: &Transaction<'_>,
    items: Vec<ItemSnapshot>,
    fields: FieldSet,
) -> Result<Vec<StoredItem>, Failure> {
    if items.is_empty() {
        return Ok(Vec::new());
    }
    let numbers: Vec<i32> = items.iter().map(|item| queue_number(item.head.queue)).collect();
    let request = (fields != FieldSet::HEADS).then(|| ContentRequest::all(&items, fields));
    let (queues, mut contents) = tokio::try_join!(names(snapshot, &numbers), contents(snapshot, request))?;
    let stored = items.into_iter().map(|ItemSnapshot { seq, head, .. }| {
        let Some(queue) = queues.get(&head.queue).cloned() else {
            return Err(Failure::Fault(damaged(format_args!("{seq} of pages"), "its queue is missing")));
        };
        let item = match &mut contents {
            Some(contents) => contents.item(seq, head)?,
            None => Item::of_head(head),
        };
        Ok(StoredItem { queue, item })
    });
    stored.collect()
}

async fn names(snapshot: &Transaction<'_>, queues: &[i32]) -> Result<FxHashMap<QueueId, QueueName>, Failure> {
    let statement = snapshot.prepare_cached(query!("read_queue_names")).await?;
    let mut names = FxHashMap::default();
    for row in snapshot.query(&statement, &[&queues]).await? {
        let name = row.get::<_, &str>(1).parse().map_err(|error| damaged("of queues", error))?;
        names.insert(queue_id(row.get(0)), name);
    }
    Ok(names)
}

async fn contents(
    snapshot: &Transaction<'_>,
    request: Option<ContentRequest>,
) -> Result<Option<Contents>, Failure> {
    let Some(request) = request else { return Ok(None) };
    let (payloads, edits, errors, outcomes) = tokio::try_join!(
        snapshot.prepare_cached(query!("read_payloads")),
        snapshot.prepare_cached(query!("read_edits")),
        snapshot.prepare_cached(query!("read_errors")),
        snapshot.prepare_cached(query!("read_outcomes")),
    )?;
    let (of_payloads, of_edits, of_errors) = (request.payloads(), request.edits(), request.errors());
    let (payloads, edits, errors, outcomes) = tokio::try_join!(
        snapshot.query(&payloads, &of_payloads),
        snapshot.query(&edits, &of_edits),
        snapshot.query(&errors, &of_errors),
        snapshot.query(&outcomes, &of_errors),
    )?;
    drop((of_payloads, of_edits, of_errors));
    Ok(Some(request.contents(&payloads, &edits, &errors, &outcomes)))
}
