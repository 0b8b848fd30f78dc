//! The store's handle: opens the store and implements [`Store`].

use crate::batch::receive_hints::ReceiveHints;
use crate::batch::worker::{self, Call};
use crate::catalog::{Catalog, CatalogCache};
use crate::clock::{SteadyClock, Time};
use crate::connection::address::{Address, Target};
use crate::connection::session::{self, configure};
use crate::encoding::sql::timestamp;
use crate::error::fault;
use crate::inbox;
use crate::maintenance::expiry;
use crate::maintenance::migrate;
use crate::maintenance::reclaim::ReclaimTimer;
use crate::maintenance::sweep_progress::SweepProgress;
use crate::notify::peers::{self, HintExchange, Listener};
use crate::options::{EventRetention, Options};
use crate::read::Reader;
use crate::statements::query;
use futures::future::ready;
use parking_lot::Mutex as StdMutex;
use std::sync::Arc;
use tokio::sync::{Mutex, mpsc, oneshot};
use tokio::task::AbortHandle;
use towline_domain::kv::KvRecord;
use towline_domain::{FieldSet, ItemId, QueueName, Timestamp, limits};
use towline_store::{
    BoxFuture, CountPage, Cursor, EventId, Events, EventsFrom, Filter, KvPage, Operation, Page, PeerHints,
    QueueView, Result, Store, StoreError, StoreIdentity, StoreMetrics, StoredItem, TallyRange, TallyRow,
    Updated,
};

/// The store on PostgreSQL. When it is dropped, its workers finish their present batches and end.
pub struct Postgres {
    calls: mpsc::Sender<Call>,
    reader: Reader,
    identity: StoreIdentity,
    waiting_max: usize,
    exchange: Arc<HintExchange>,
    metrics: Arc<StdMutex<StoreMetrics>>,
    /// Tasks that end with the store.
    tasks: Vec<AbortHandle>,
}

impl Drop for Postgres {
    fn drop(&mut self) {
        self.tasks.iter().for_each(AbortHandle::abort);
    }
}

impl std::fmt::Debug for Postgres {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Postgres")
    }
}

/// What the workers of a server share.
#[derive(Debug)]
pub(crate) struct Shared {
    pub(crate) target: Target,
    pub(crate) schema: String,
    pub(crate) salt: u64,
    /// The class of this store's advisory locks. Each store in a database has its own.
    pub(crate) locks: i32,
    pub(crate) clock: Arc<SteadyClock>,
    pub(crate) catalog: Arc<CatalogCache>,
    pub(crate) exchange: Arc<HintExchange>,
    pub(crate) hints: ReceiveHints,
    pub(crate) sweeps: SweepProgress,
    pub(crate) reclaim: ReclaimTimer,
    /// Metrics of committed batches.
    pub(crate) metrics: Arc<StdMutex<StoreMetrics>>,
    pub(crate) events: Option<EventRetention>,
}

impl Postgres {
    /// Connects, brings the schema up to date, and starts the workers on the caller's runtime.
    pub async fn open(address: &Address, options: Options, time: Time) -> Result<Postgres> {
        options.check()?;
        let target = configure(address, &options)?;
        let client = session::connect(&target).await?;
        migrate::prepare(&client, &options).await?;
        let read = async {
            client.execute(query!("update_home"), &[]).await?;
            let row = client.query_one("SELECT salt, history FROM catalog", &[]).await?;
            let (salt, history): (i64, i32) = (row.get(0), row.get(1));
            let (salt, history) = (salt.cast_unsigned(), history.cast_unsigned());
            let event_store = EventId::store_of(salt, history);
            let latest = client.query_one("SELECT max(decided_at) FROM sessions", &[]).await?;
            let latest = latest.get::<_, Option<i64>>(0).map_or(Timestamp(0), timestamp);
            let reading = timestamp(client.query_one(query!("read_clock"), &[]).await?.get(0));
            let queues = client.query(query!("read_changed_queues"), &[&-1_i64]).await?;
            let clock = SteadyClock::new(time, reading, latest);
            Ok((salt, history, event_store, clock, queues))
        };
        let (salt, history, event_store, clock, queues) = read.await.map_err(|error| fault(&error))?;
        let clock = Arc::new(clock);
        let mut queue_catalog = Catalog::default();
        queue_catalog.learn(&queues)?;
        let catalog = Arc::new(CatalogCache::default());
        catalog.put(Arc::new(queue_catalog));
        let metrics = Arc::new(StdMutex::new(StoreMetrics::default()));
        let reader = Reader::new(&target, &options, salt, event_store, clock.clone(), metrics.clone())?;
        let exchange = Arc::new(HintExchange::default());
        let mut tasks = Vec::new();
        if options.notify {
            let listener = Listener {
                target: target.clone(),
                schema: options.schema.clone(),
                channel: format!("towline_{salt:x}"),
                exchange: exchange.clone(),
                catalog: catalog.clone(),
            };
            tasks.push(tokio::spawn(peers::run(listener)).abort_handle());
        }
        let shared = Arc::new(Shared {
            target,
            schema: options.schema,
            salt,
            locks: (salt as u32).cast_signed(),
            clock,
            catalog,
            exchange: exchange.clone(),
            hints: ReceiveHints::default(),
            sweeps: SweepProgress::default(),
            reclaim: ReclaimTimer::default(),
            metrics: metrics.clone(),
            events: options.events,
        });
        let (calls, waiting_calls) = mpsc::channel(options.waiting_max);
        let waiting_calls = Arc::new(Mutex::new(waiting_calls));
        for _ in 0..options.workers {
            tokio::spawn(worker::run(shared.clone(), waiting_calls.clone()));
        }
        tasks.push(tokio::spawn(expiry::run(reader.clone(), shared.clock.clone())).abort_handle());
        tasks.push(tokio::spawn(inbox::run(shared, reader.clone())).abort_handle());
        let (identity, waiting_max) = (StoreIdentity::of(salt, history), options.waiting_max);
        Ok(Postgres { calls, reader, identity, waiting_max, exchange, metrics, tasks })
    }

    /// Waits for hints from other servers. Each hint is returned once, so only one task may call this.
    pub async fn peer_hints(&self) -> PeerHints {
        self.exchange.next().await
    }
}

impl Store for Postgres {
    fn update(&self, batch: Vec<Operation>) -> BoxFuture<'_, Result<Updated>> {
        if let Err(error) = StoreError::check_size("operations", batch.len(), limits::BATCH_MAX) {
            return Box::pin(ready(Err(error)));
        }
        let (reply, answers) = oneshot::channel();
        let sent = self.calls.try_send(Call::new(batch, reply));
        let waiting = self.waiting_max;
        Box::pin(async move {
            match sent {
                Ok(()) => {
                    let answered = answers.await.unwrap_or(Err(StoreError::Closed));
                    answered.inspect_err(|fault| self.reader.note_damage(fault))
                }
                Err(mpsc::error::TrySendError::Full(_)) => Err(StoreError::Busy { waiting }),
                Err(mpsc::error::TrySendError::Closed(_)) => Err(StoreError::Closed),
            }
        })
    }

    fn queue(&self, name: QueueName) -> BoxFuture<'_, Result<Option<QueueView>>> {
        self.reader.run(move |reader| async move { reader.queue(name).await })
    }

    fn queues(&self, after: Option<QueueName>, limit: usize) -> BoxFuture<'_, Result<Vec<QueueView>>> {
        self.reader.run(move |reader| async move { reader.queues(after, limit).await })
    }

    fn get(&self, ids: Vec<ItemId>, fields: FieldSet) -> BoxFuture<'_, Result<Vec<Option<StoredItem>>>> {
        if let Err(error) = StoreError::check_size("ids", ids.len(), limits::BATCH_MAX) {
            return Box::pin(ready(Err(error)));
        }
        self.reader.run(move |reader| async move { reader.get(ids, fields).await })
    }

    fn list(
        &self,
        filter: Filter,
        after: Option<Cursor>,
        limit: usize,
        fields: FieldSet,
    ) -> BoxFuture<'_, Result<Page>> {
        if let Err(error) = filter.check() {
            return Box::pin(ready(Err(error)));
        }
        self.reader.run(move |reader| async move { reader.list(filter, after, limit, fields).await })
    }

    fn count(&self, filter: Filter, after: Option<Cursor>) -> BoxFuture<'_, Result<CountPage>> {
        if let Err(error) = filter.check() {
            return Box::pin(ready(Err(error)));
        }
        self.reader.run(move |reader| async move { reader.count(filter, after).await })
    }

    fn next_wake(&self) -> BoxFuture<'_, Result<Option<Timestamp>>> {
        self.reader.run(|reader| async move { reader.next_wake().await })
    }

    fn events(&self, from: EventsFrom, limit: usize) -> BoxFuture<'_, Result<Events>> {
        let limit = limit.clamp(1, limits::EVENTS_PAGE_MAX);
        self.reader.run(move |reader| async move { reader.events(from, limit).await })
    }

    fn issued(&self, id: ItemId) -> bool {
        id.sequence(self.reader.salt).is_some()
    }

    fn identity(&self) -> StoreIdentity {
        self.identity.clone()
    }

    fn tally(&self, queue: QueueName, asked: TallyRange) -> BoxFuture<'_, Result<Option<Vec<TallyRow>>>> {
        self.reader.run(move |reader| async move { reader.tally(queue, asked).await })
    }

    fn metrics(&self) -> BoxFuture<'_, Result<StoreMetrics>> {
        let metrics = *self.metrics.lock();
        Box::pin(ready(Ok(metrics.with_clock(self.reader.clock.state()))))
    }

    fn kv_list(&self, page: KvPage) -> BoxFuture<'_, Result<Vec<(String, KvRecord)>>> {
        self.reader.run(move |reader| async move { reader.kv_list(page).await })
    }

    fn kv_get(&self, keys: Vec<String>) -> BoxFuture<'_, Result<Vec<Option<KvRecord>>>> {
        if let Err(error) = StoreError::check_size("keys", keys.len(), limits::BATCH_MAX) {
            return Box::pin(ready(Err(error)));
        }
        self.reader.run(move |reader| async move { reader.kv_get(keys).await })
    }
}
