//! The trait.

use crate::operation::{Answered, Result};
use crate::{Cursor, Filter, Operation, Page, TallyRange, TallyRow};
use std::sync::atomic::{AtomicU64, Ordering};
use towline_domain::kv::KvRecord;
use towline_domain::{Counts, FieldSet, Item, ItemId, Queue, QueueName, Timestamp};

pub use futures::future::BoxFuture;

/// The authority on time, injected. A store never lets it go back.
pub trait Clock: Send + Sync {
    fn now(&self) -> Timestamp;
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
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StoredItem {
    pub queue: QueueName,
    pub item: Item,
}

/// What Towline needs of a backend. The contract is [`crate::conformance`].
pub trait Store: Send + Sync {
    /// Carries out each operation in order and answers each by itself. An answer means it is durable.
    ///
    /// An error is nobody's answer: some of the batch may have happened, or none of it.
    fn update(&self, batch: Vec<Operation>) -> BoxFuture<'_, Result<Vec<Answered>>>;

    /// A queue and how many items it has in each state, in constant time.
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

    /// When time next changes something or makes something ready; `None`: never, as things stand.
    fn next_wake(&self) -> BoxFuture<'_, Result<Option<Timestamp>>>;

    /// How many items of a queue finished in each hour that `asked` covers, in order of time and value; `None`: there is no
    /// such queue. An hour in which none did has no row.
    fn tally(&self, queue: QueueName, asked: TallyRange) -> BoxFuture<'_, Result<Option<Vec<TallyRow>>>>;

    fn kv_get(&self, keys: Vec<String>) -> BoxFuture<'_, Result<Vec<Option<KvRecord>>>>;

    /// Whether this store, and no other, made the id. Of an id that was chosen nobody can say.
    fn made(&self, id: ItemId) -> bool;
}
