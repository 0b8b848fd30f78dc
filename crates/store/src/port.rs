//! The store trait, and the clock that a store gets.

use crate::operation::{Result, Updated};
use crate::{
    ClockState, CountPage, Cursor, Events, EventsFrom, Filter, Operation, Page, StoreIdentity, StoreMetrics,
    TallyRange, TallyRow,
};
use std::collections::BTreeMap;
use std::ops::Bound;
use std::sync::atomic::{AtomicU64, Ordering};
use towline_domain::kv::KvRecord;
use towline_domain::{Counts, FieldSet, Item, ItemId, Queue, QueueName, Timestamp, limits};

pub use futures::future::BoxFuture;

/// The store's clock. A store never lets time go back.
pub trait Clock: Send + Sync {
    fn now(&self) -> Timestamp;

    /// Called when a store is opened, with its latest time. A clock that is behind continues from that time. Otherwise the
    /// store's time would stand still until the clock reaches it.
    fn resume(&self, _latest: Timestamp) {}

    /// How it differs from the clock that it reads.
    fn state(&self) -> ClockState {
        ClockState::default()
    }
}

/// A clock that changes only when it is set.
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
    /// Since when the oldest ready item is ready. `None`: no item is ready, or the queue is in `score` order, which does not
    /// know without reading all items.
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
    /// The lower bound of the keys, and how many records to return.
    #[must_use]
    pub fn bounds(&self) -> (Bound<&str>, usize) {
        let first = match &self.after {
            Some(after) if *after >= self.prefix => Bound::Excluded(after.as_str()),
            _ => Bound::Included(self.prefix.as_str()),
        };
        (first, self.limit.min(limits::KV_PAGE_MAX))
    }

    /// The page of a map of records.
    pub fn take<'a, T>(
        &self,
        records: &'a BTreeMap<String, T>,
        record: impl Fn(&'a T) -> &'a KvRecord,
        now: Timestamp,
    ) -> Vec<(String, KvRecord)> {
        let (first, limit) = self.bounds();
        let all = records.range::<str, _>((first, Bound::Unbounded)).map(|(key, at)| (key, record(at)));
        let matching = all
            .take_while(|(key, _)| key.starts_with(&self.prefix))
            .filter(|(_, record)| record.is_live(now));
        matching.take(limit).map(|(key, record)| (key.clone(), record.clone())).collect()
    }
}

/// A backend. `towline-conformance` has the contract as a test suite.
pub trait Store: Send + Sync {
    /// Carries out each operation in order and answers each by itself. An answered operation is durable.
    ///
    /// After an error it is unknown which operations of the batch were carried out.
    fn update(&self, batch: Vec<Operation>) -> BoxFuture<'_, Result<Updated>>;

    /// A queue with its counts and its oldest ready item. The cost does not depend on the number of items.
    fn queue(&self, name: QueueName) -> BoxFuture<'_, Result<Option<QueueView>>>;

    /// Queues in order of name, after `after`.
    fn queues(&self, after: Option<QueueName>, limit: usize) -> BoxFuture<'_, Result<Vec<QueueView>>>;

    /// Items by id, in the order of `ids`.
    fn get(&self, ids: Vec<ItemId>, fields: FieldSet) -> BoxFuture<'_, Result<Vec<Option<StoredItem>>>>;

    /// Items in order of submission. An item that exists throughout is returned exactly once over all pages, whatever
    /// happens to other items.
    fn list(
        &self,
        filter: Filter,
        after: Option<Cursor>,
        limit: usize,
        fields: FieldSet,
    ) -> BoxFuture<'_, Result<Page>>;

    /// One part of the number of matching items, found in bounded time. A filter on state alone is O(1) and has one part.
    fn count(&self, filter: Filter, after: Option<Cursor>) -> BoxFuture<'_, Result<CountPage>>;

    /// When something is due next, or an item becomes ready. `None`: never, unless an update changes that.
    fn next_wake(&self) -> BoxFuture<'_, Result<Option<Timestamp>>>;

    /// How many items of a queue finished in each hour of the range, in order of time and value. `None`: no such queue. An
    /// hour in which no item finished has no row.
    fn tally(&self, queue: QueueName, range: TallyRange) -> BoxFuture<'_, Result<Option<Vec<TallyRow>>>>;

    /// The counters since the store was opened.
    fn metrics(&self) -> BoxFuture<'_, Result<StoreMetrics>>;

    fn kv_get(&self, keys: Vec<String>) -> BoxFuture<'_, Result<Vec<Option<KvRecord>>>>;

    /// Records whose keys begin with `prefix`, in byte order of key, after `after`: at most
    /// [`KV_PAGE_MAX`](towline_domain::limits::KV_PAGE_MAX) at a time.
    fn kv_list(&self, page: KvPage) -> BoxFuture<'_, Result<Vec<(String, KvRecord)>>>;

    /// Events in order: at most [`EVENTS_PAGE_MAX`](towline_domain::limits::EVENTS_PAGE_MAX), and only of durable changes.
    /// There are no gaps between pages.
    fn events(&self, from: EventsFrom, limit: usize) -> BoxFuture<'_, Result<Events>>;

    /// Whether this store derived the id. `false` for an id that a submitter chose.
    fn issued(&self, id: ItemId) -> bool;

    /// Which store this is. The same after every reopening, and on every server of the store.
    fn identity(&self) -> StoreIdentity;
}
