//! Several stores used as one.
//!
//! Every shard has every queue. An item stays in one shard from its submit to its removal. An operation on an item goes
//! to the item's shard. A submit with an idempotency key or a replace key goes to the shard of that key. Any other submit
//! goes to the shards in turn.
//!
//! **Invariant:** when a shard is down, only operations on its items, keys and records fail, and operations that need
//! every shard.
//!
//! Some guarantees are weaker than those of one store: items are in order within a shard but not across shards, and each
//! shard applies limits on depth, concurrency and rate by itself.

mod cursor;
mod health;
mod lazy_store;
mod merge;
mod queues;
mod reads;
mod records;
mod route;
mod store;
mod update;

pub use health::ShardHealth;
pub use lazy_store::LazyStore;

use health::Health;
use parking_lot::Mutex;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use towline_domain::Effects;
use towline_store::{Result, Store, StoreError};

/// The maximum number of shards. Their number must fit into a cursor beside a sequence number.
pub const SHARDS_MAX: usize = 64;

/// The shards in a fixed order. A new shard must come last, because routes depend on the order.
pub struct Shards {
    shards: Vec<Shard>,
    turn: AtomicUsize,
}

struct Shard {
    name: String,
    store: Arc<dyn Store>,
    health: Health,
    /// Effects of updates that no client asked for: the next update reports them.
    unreported: Mutex<Effects>,
}

impl Shard {
    fn keep_effects(&self, effects: Effects) {
        self.unreported.lock().merge(effects);
    }

    fn take_effects(&self) -> Effects {
        std::mem::take(&mut *self.unreported.lock())
    }

    fn has_unreported_effects(&self) -> bool {
        !self.unreported.lock().is_empty()
    }
}

impl std::fmt::Debug for Shards {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_list().entries(self.shards.iter().map(|shard| &shard.name)).finish()
    }
}

impl Shards {
    /// The names appear in logs and errors.
    ///
    /// # Errors
    /// If there is no shard, or more than [`SHARDS_MAX`].
    pub fn new(stores: Vec<(String, Arc<dyn Store>)>) -> Result<Shards> {
        if stores.is_empty() {
            return Err(StoreError::Unavailable { cause: "no shard is configured".to_owned() });
        }
        StoreError::check_size("shards", stores.len(), SHARDS_MAX)?;
        let shards = stores.into_iter().map(|(name, store)| Shard {
            name,
            store,
            health: Health::default(),
            unreported: Mutex::default(),
        });
        Ok(Shards { shards: shards.collect(), turn: AtomicUsize::new(0) })
    }

    /// The shard whose turn it is: it takes the next operation that may go to any shard.
    fn turn(&self) -> usize {
        let turn = self.turn.fetch_add(1, Ordering::Relaxed);
        let count = self.shards.len();
        // If all shards are down, any of them can report it.
        (0..count)
            .map(|step| (turn + step) % count)
            .find(|&index| self.shards[index].health.is_up())
            .unwrap_or(turn % count)
    }
}
