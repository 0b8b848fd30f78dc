//! The trait.

use crate::operation::{Result, Updated};
use crate::{
    ClockState, CountPage, Cursor, Events, EventsFrom, Filter, Operation, Page, StoreMetrics, TallyRange,
    TallyRow,
};
use std::collections::BTreeMap;
use std::ops::Bound;
use std::sync::atomic::{AtomicU64, Ordering};
use towline_domain::kv::KvRecord;
use towline_domain::{Counts, FieldSet, Item, ItemId, Queue, QueueName, Timestamp, limits};

pub use futures::future::BoxFuture;

/// The authority on time, injected. A store never lets it go back.
pub trait Clock: Send + Sync {
    fn now(&self) -> Timestamp;

    /// A store was opened whose latest time is this. A clock that is behind it goes on from there, so that the store's time does
    /// not stand still.
    fn resume(&self, _latest: Timestamp) {}

    /// How it differs from the clock that it reads.
    fn state(&self) -> ClockState {
        ClockState::default()
    }
}

/// A clock that stands still until it is moved.
#[derive(Debug, Default)]
pub struct ManualClock(AtomicU64);

impl ManualClock {
    #[must_use]
    pub fn new(now: Timestamp) -> ManualClock {
        ManualClock(AtomicU64::new(now.0))
    }

    pub fn set(&self, now: Timestamp) {
        self.0.store(now.0, Ordering::SeqCst);
    }

    pub fn advance(&self, millis: u64) {
        self.0.fetch_add(millis, Ordering::SeqCst);
    }
}

impl Clock for ManualClock {
    fn now(&self) -> Timestamp {
        Timestamp(self.0.load(Ordering::SeqCst))
    }
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct QueueView {
    pub queue: Queue,
    pub counts: Counts,
    /// Since when the item waits that is ready for longest; `None`: none is, or the queue is in `score` order, where nobody
    /// can tell without looking at them all.
    pub oldest_ready: Option<Timestamp>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StoredItem {
    pub queue: QueueName,
    pub item: Item,
}

/// Which key-value records to list.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct KvPage {
    pub prefix: String,
    pub after: Option<String>,
    pub limit: usize,
}

impl KvPage {
    /// The first key to look at, whether it is part of the page, and how many to take.
    #[must_use]
    pub fn bounds(&self) -> (Bound<&str>, usize) {
        let first = match &self.after {
            Some(after) if *after >= self.prefix => Bound::Excluded(after.as_str()),
            _ => Bound::Included(self.prefix.as_str()),
        };
        (first, self.limit.min(limits::KV_PAGE_MAX))
    }

    /// Of records in order of key.
    pub fn take<'a, T>(
        &self,
        records: &'a BTreeMap<String, T>,
        record: impl Fn(&'a T) -> &'a KvRecord,
        now: Timestamp,
    ) -> Vec<(String, KvRecord)> {
        let (first, limit) = self.bounds();
        let all = records.range::<str, _>((first, Bound::Unbounded)).map(|(key, at)| (key, record(at)));
        let wanted = all
            .take_while(|(key, _)| key.starts_with(&self.prefix))
            .filter(|(_, record)| record.is_live(now));
        wanted.take(limit).map(|(key, record)| (key.clone(), record.clone())).collect()
    }
}

/// What Towline needs of a backend. `towline-conformance` holds the contract as a test suite.
pub trait Store: Send + Sync {
    /// Carries out each operation in order and answers each by itself. An answer means it is durable.
    ///
    /// An error is nobody's answer: some of the batch may have happened, or none of it.
    fn update(&self, batch: Vec<Operation>) -> BoxFuture<'_, Result<Updated>>;

    /// A queue, how many items it has in each state, and since when one is ready: in a time that does not grow with their
    /// number.
    fn queue(&self, name: QueueName) -> BoxFuture<'_, Result<Option<QueueView>>>;

    /// Queues in order of name, after `after`.
    fn queues(&self, after: Option<QueueName>, limit: usize) -> BoxFuture<'_, Result<Vec<QueueView>>>;

    /// Items by id, in the order asked for.
    fn get(&self, ids: Vec<ItemId>, fields: FieldSet) -> BoxFuture<'_, Result<Vec<Option<StoredItem>>>>;

    /// Items in order of submission. An item that stays is seen exactly once over all pages, whatever happens to others.
    fn list(
        &self,
        filter: Filter,
        after: Option<Cursor>,
        limit: usize,
        fields: FieldSet,
    ) -> BoxFuture<'_, Result<Page>>;

    /// How many match: one part of the count, found in bounded time. State alone costs nothing, and is counted at once.
    fn count(&self, filter: Filter, after: Option<Cursor>) -> BoxFuture<'_, Result<CountPage>>;

    /// When time next changes something or makes something ready; `None`: never, as things stand.
    fn next_wake(&self) -> BoxFuture<'_, Result<Option<Timestamp>>>;

    /// How many items of a queue finished in each hour that `asked` covers, in order of time and value; `None`: there is no
    /// such queue. An hour in which none did has no row.
    fn tally(&self, queue: QueueName, asked: TallyRange) -> BoxFuture<'_, Result<Option<Vec<TallyRow>>>>;

    /// What has been done here since the store was opened.
    fn metrics(&self) -> BoxFuture<'_, Result<StoreMetrics>>;

    fn kv_get(&self, keys: Vec<String>) -> BoxFuture<'_, Result<Vec<Option<KvRecord>>>>;

    /// Records whose keys begin with `prefix`, in byte order of key, after `after`: at most
    /// [`KV_PAGE_MAX`](towline_domain::limits::KV_PAGE_MAX) at a time.
    fn kv_list(&self, page: KvPage) -> BoxFuture<'_, Result<Vec<(String, KvRecord)>>>;

    /// What happened, in the order in which it did; at most [`EVENTS_PAGE_MAX`](towline_domain::limits::EVENTS_PAGE_MAX)
    /// events, and only of what is durable. Nothing is left out between two pages.
    fn events(&self, from: EventsFrom, limit: usize) -> BoxFuture<'_, Result<Events>>;

    /// Whether this store, and no other, made the id. Of an id that was chosen nobody can say.
    fn issued(&self, id: ItemId) -> bool;
}
