//! The handle of an open store: sends requests to the writer thread, waits for answers, reads items back.

use crate::engine::Engine;
use crate::engine::select::is_indexed;
use crate::error::OpenError;
use crate::events::{EventRange, EventReader, EventStart};
use crate::log::disk::{Disk, RealDisk};
use crate::log::meta::Meta;
use crate::log::reader::ItemReader;
use crate::options::Options;
use crate::outcome::{CallOutcome, Found, Outcome, Query, Status};
use crate::reader_pool::ReaderPool;
use crate::writer::{self, Request, Shared, Writer};
use crossbeam_channel::{Sender, TrySendError};
use futures::FutureExt;
use futures::channel::oneshot;
use std::any::Any;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::thread::JoinHandle;
use towline_domain::kv::KvRecord;
use towline_domain::{FieldSet, ItemId, QueueName, Timestamp, limits};
use towline_store::{
    BoxFuture, Clock, CountPage, Cursor, EventPage, Events, EventsFrom, Filter, KvPage, Operation, Page,
    QueueView, Result, Store, StoreError, StoreIdentity, StoreMetrics, StoredItem, TallyRange, TallyRow,
    Updated,
};

/// Items read at a time for a count that the index cannot evaluate.
const READ_TO_COUNT: usize = 2000;

/// An open store. Dropping it stops it cleanly.
pub struct Embedded {
    requests: Sender<Request>,
    shared: Arc<Shared>,
    reader: ItemReader,
    readers: ReaderPool,
    event_reader: Arc<EventReader>,
    waiting_max: usize,
    waiting_bytes_max: usize,
    threads: Vec<JoinHandle<()>>,
    disk: Arc<dyn Disk>,
    clock: Arc<dyn Clock>,
    meta: Meta,
    _lock: Box<dyn Any + Send + Sync>,
}

impl std::fmt::Debug for Embedded {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Embedded({})", self.disk.directory())
    }
}

impl Embedded {
    /// Opens the store in a directory, or creates one.
    pub fn open(
        path: &Path,
        options: Options,
        clock: Arc<dyn Clock>,
    ) -> std::result::Result<Embedded, OpenError> {
        let disk = RealDisk::new(path).map_err(|source| OpenError::Io {
            directory: path.display().to_string(),
            file: String::new(),
            source,
            remedy: "choose a directory that can be created and written",
        })?;
        Embedded::open_on(Arc::new(disk), options, clock)
    }

    pub fn open_on(
        disk: Arc<dyn Disk>,
        options: Options,
        clock: Arc<dyn Clock>,
    ) -> std::result::Result<Embedded, OpenError> {
        let lock = disk.lock().map_err(|error| OpenError::io(&*disk, "LOCK", error))?;
        let Some(lock) = lock else {
            return Err(OpenError::InUse { directory: disk.directory() });
        };
        let (waiting_max, waiting_bytes_max) = (options.waiting_max, options.waiting_bytes_max);
        let (durability, alone_bytes) = (options.durability, options.alone_bytes);
        let engine = Engine::open(disk.clone(), options, &*clock)?;
        let salt = engine.salt;
        let meta = Meta { salt, segment_bytes: engine.segment_bytes, history: engine.history };
        let event_reader = Arc::new(EventReader::new(meta, engine.index.queue_names.clone()));
        let readers = ReaderPool::start(&*disk, waiting_max)?;
        let shared = Arc::new(Shared::default());
        let (requests, incoming) = crossbeam_channel::bounded(waiting_max);
        let (written, to_sync) = crossbeam_channel::bounded(64);
        let (chores, to_do) = crossbeam_channel::bounded(1024);
        let writer = Writer {
            engine,
            clock: clock.clone(),
            requests: incoming,
            written,
            chores,
            shared: shared.clone(),
            durability,
            alone_bytes,
            handed: 0,
        };
        let (sync_shared, chore_disk) = (shared.clone(), disk.clone());
        let start = |name: &str, work: Box<dyn FnOnce() + Send>| {
            let thread = std::thread::Builder::new().name(name.to_owned()).spawn(work);
            thread.map_err(|error| OpenError::io(&*disk, "", error))
        };
        let threads = vec![
            start("towline-writer", Box::new(move || writer.run()))?,
            start("towline-sync", Box::new(move || writer::sync_loop(&to_sync, &sync_shared, durability)))?,
            start("towline-chores", Box::new(move || writer::chore_loop(&to_do, &*chore_disk)))?,
        ];
        let reader = ItemReader { salt, unchecked: false };
        Ok(Embedded {
            requests,
            shared,
            reader,
            readers,
            event_reader,
            waiting_max,
            waiting_bytes_max,
            threads,
            disk,
            clock,
            meta,
            _lock: lock,
        })
    }

    pub fn status(&self) -> BoxFuture<'_, Result<Status>> {
        async {
            match self.ask(Query::Status).await? {
                Found::Status(status) => {
                    let damage = self.shared.damage.first().or(status.damage);
                    Ok(Status { damage, ..status })
                }
                _ => Err(StoreError::Closed),
            }
        }
        .boxed()
    }

    /// The number of syncs so far.
    #[must_use]
    pub fn syncs(&self) -> u64 {
        self.shared.syncs.load(Ordering::Relaxed)
    }

    pub(crate) fn disk(&self) -> Arc<dyn Disk> {
        self.disk.clone()
    }

    pub(crate) fn meta(&self) -> Meta {
        self.meta
    }

    pub(crate) fn send(&self, request: Request) -> Result<()> {
        self.requests.try_send(request).map_err(|error| match error {
            TrySendError::Full(_) => StoreError::Busy { waiting: self.waiting_max },
            TrySendError::Disconnected(_) => StoreError::Closed,
        })
    }

    async fn ask(&self, query: Query) -> Result<Found> {
        let (reply, answer) = oneshot::channel();
        self.send(Request::Query { query, reply })?;
        answer.await.unwrap_or(Err(StoreError::Closed))
    }

    /// Notes damage that a read found, for the status and the log.
    fn noted<T>(&self, read: Result<T>) -> Result<T> {
        read.inspect_err(|fault| {
            self.shared.damage.note(fault);
        })
    }

    async fn read_events(&self, range: EventRange, limit: usize) -> Result<EventPage> {
        let reader = self.event_reader.clone();
        self.readers.read(range.bytes(), move || reader.read(&range, limit)).await?
    }
}

impl Drop for Embedded {
    fn drop(&mut self) {
        // If the channel is full, this waits: the writer thread is alive and takes a request soon.
        let _ = self.requests.send(Request::Stop);
        for thread in self.threads.drain(..) {
            let _ = thread.join();
        }
    }
}

impl Store for Embedded {
    fn update(&self, batch: Vec<Operation>) -> BoxFuture<'_, Result<Updated>> {
        let (reply, answer) = oneshot::channel();
        let sent = StoreError::check_size("operations", batch.len(), limits::BATCH_MAX).and_then(|()| {
            let bytes = batch.iter().map(crate::engine::operation_bytes).sum();
            let waiting = self.shared.waiting_bytes.fetch_add(bytes, Ordering::AcqRel);
            // A request is accepted whatever its size if no other request waits.
            if waiting > 0 && waiting + bytes > self.waiting_bytes_max {
                self.shared.waiting_bytes.fetch_sub(bytes, Ordering::AcqRel);
                return Err(StoreError::Busy { waiting: self.requests.len() });
            }
            self.send(Request::Update { batch, bytes, reply }).inspect_err(|_| {
                self.shared.waiting_bytes.fetch_sub(bytes, Ordering::AcqRel);
            })
        });
        async move {
            sent?;
            let CallOutcome { outcomes, effects } = answer.await.unwrap_or(Err(StoreError::Closed))?;
            let bytes = outcomes.iter().map(Outcome::bytes).sum();
            let (reader, shared) = (self.reader, self.shared.clone());
            let finish = move || {
                let mut damage = |fault: StoreError| {
                    shared.damage.note(&fault);
                };
                outcomes.into_iter().map(|outcome| outcome.finish(&reader, &mut damage)).collect()
            };
            Ok(Updated { answers: self.readers.read(bytes, finish).await?, effects })
        }
        .boxed()
    }

    fn queue(&self, name: QueueName) -> BoxFuture<'_, Result<Option<QueueView>>> {
        async {
            match self.ask(Query::Queue(name)).await? {
                Found::Queue(view) => Ok(view.map(|view| *view)),
                _ => Err(StoreError::Closed),
            }
        }
        .boxed()
    }

    fn queues(&self, after: Option<QueueName>, limit: usize) -> BoxFuture<'_, Result<Vec<QueueView>>> {
        async move {
            match self.ask(Query::Queues { after, limit }).await? {
                Found::Queues(views) => Ok(views),
                _ => Err(StoreError::Closed),
            }
        }
        .boxed()
    }

    fn get(&self, ids: Vec<ItemId>, fields: FieldSet) -> BoxFuture<'_, Result<Vec<Option<StoredItem>>>> {
        async move {
            StoreError::check_size("ids", ids.len(), limits::BATCH_MAX)?;
            match self.ask(Query::Get { ids, fields }).await? {
                found @ (Found::Items { .. } | Found::TooLarge { .. }) => {
                    let reader = self.reader;
                    let read = self.readers.read(found.bytes(), move || found.into_items(&reader));
                    self.noted(read.await.flatten())
                }
                _ => Err(StoreError::Closed),
            }
        }
        .boxed()
    }

    fn list(
        &self,
        filter: Filter,
        after: Option<Cursor>,
        limit: usize,
        fields: FieldSet,
    ) -> BoxFuture<'_, Result<Page>> {
        async move {
            filter.check()?;
            let fields = if filter.is_of_heads() { fields } else { fields.with_bodies() };
            match self.ask(Query::List { filter: Box::new(filter), after, limit, fields }).await? {
                found @ Found::Page { .. } => {
                    let reader = self.reader;
                    let read = self.readers.read(found.bytes(), move || found.into_page(&reader));
                    self.noted(read.await.flatten())
                }
                _ => Err(StoreError::Closed),
            }
        }
        .boxed()
    }

    fn count(&self, filter: Filter, after: Option<Cursor>) -> BoxFuture<'_, Result<CountPage>> {
        async move {
            filter.check()?;
            if !is_indexed(&filter) {
                let page = self.list(filter, after, READ_TO_COUNT, FieldSet::NONE).await?;
                return Ok(CountPage { count: page.items.len() as u64, next: page.next });
            }
            match self.ask(Query::Count { filter: Box::new(filter), after }).await? {
                Found::Counted(counted) => Ok(counted),
                _ => Err(StoreError::Closed),
            }
        }
        .boxed()
    }

    fn next_wake(&self) -> BoxFuture<'_, Result<Option<Timestamp>>> {
        async {
            match self.ask(Query::NextWake).await? {
                Found::NextWake(at) => Ok(at),
                _ => Err(StoreError::Closed),
            }
        }
        .boxed()
    }

    fn events(&self, from: EventsFrom, limit: usize) -> BoxFuture<'_, Result<Events>> {
        async move {
            let start = match from {
                EventsFrom::Oldest => EventStart::Oldest,
                EventsFrom::Now => EventStart::Now,
                EventsFrom::After(cursor) => match cursor.in_store(self.event_reader.store) {
                    Some(at) => EventStart::After(at.group, at.nth),
                    None => return Ok(Events::Elsewhere),
                },
            };
            match self.ask(Query::Events(start)).await? {
                Found::Events(Some(range)) => {
                    let page = self.read_events(range, limit.clamp(1, limits::EVENTS_PAGE_MAX)).await;
                    self.noted(page).map(Events::Page)
                }
                Found::Events(None) => Ok(Events::Gone),
                _ => Err(StoreError::Closed),
            }
        }
        .boxed()
    }

    fn issued(&self, id: ItemId) -> bool {
        id.sequence(self.meta.salt).is_some()
    }

    fn identity(&self) -> StoreIdentity {
        StoreIdentity::of(self.meta.salt, self.meta.history)
    }

    fn tally(&self, queue: QueueName, range: TallyRange) -> BoxFuture<'_, Result<Option<Vec<TallyRow>>>> {
        async move {
            match self.ask(Query::Tally { queue, range }).await? {
                Found::Tally(rows) => Ok(rows),
                _ => Err(StoreError::Closed),
            }
        }
        .boxed()
    }

    fn metrics(&self) -> BoxFuture<'_, Result<StoreMetrics>> {
        async {
            match self.ask(Query::StoreMetrics).await? {
                Found::StoreMetrics(mut metrics) => {
                    metrics.damages += self.shared.damage.count();
                    Ok(metrics.with_clock(self.clock.state()))
                }
                _ => Err(StoreError::Closed),
            }
        }
        .boxed()
    }

    fn kv_list(&self, page: KvPage) -> BoxFuture<'_, Result<Vec<(String, KvRecord)>>> {
        async move {
            match self.ask(Query::KvList(page)).await? {
                Found::KvPage(records) => Ok(records),
                _ => Err(StoreError::Closed),
            }
        }
        .boxed()
    }

    fn kv_get(&self, keys: Vec<String>) -> BoxFuture<'_, Result<Vec<Option<KvRecord>>>> {
        async move {
            StoreError::check_size("keys", keys.len(), limits::BATCH_MAX)?;
            match self.ask(Query::KvGet(keys)).await? {
                Found::Kv(records) => Ok(records),
                _ => Err(StoreError::Closed),
            }
        }
        .boxed()
    }
}
