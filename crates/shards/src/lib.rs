//! Several stores as one.
//!
//! Every queue is in every shard; an item lives in one of them from its submit to its removal. What names an item goes to
//! its shard, what has an idempotency key goes where that key belongs, everything else goes wherever there is room.
//!
//! **Invariant:** a shard that is gone fails what is in it, and nothing else.
//!
//! What is weaker than in one store: items are in order within a shard, not across; a depth limit is that of each shard.

mod agree;
mod health;
mod later;
mod merge;
mod reads;
mod route;
mod update;

pub use health::ShardHealth;
pub use later::Later;

use health::Health;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use towline_store::{Result, Store, StoreError};

/// As many as fit beside a sequence number in a cursor.
pub const SHARDS_MAX: usize = 64;

/// Stores in an order that must stay: a new one comes last.
pub struct Shards {
    shards: Vec<Shard>,
    turn: AtomicUsize,
}

struct Shard {
    name: String,
    store: Arc<dyn Store>,
    health: Health,
}

impl std::fmt::Debug for Shards {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_list().entries(self.shards.iter().map(|shard| &shard.name)).finish()
    }
}

impl Shards {
    /// Names are for people.
    ///
    /// # Errors
    /// If there are none, or more than [`SHARDS_MAX`].
    pub fn new(stores: Vec<(String, Arc<dyn Store>)>) -> Result<Shards> {
        if stores.is_empty() {
            return Err(StoreError::Unavailable { cause: "no shard was named".to_owned() });
        }
        StoreError::check_size("shards", stores.len(), SHARDS_MAX)?;
        let shards = stores.into_iter().map(|(name, store)| Shard { name, store, health: Health::default() });
        Ok(Shards { shards: shards.collect(), turn: AtomicUsize::new(0) })
    }

    /// The shard whose turn it is to take what may go anywhere, and to be asked first.
    fn turn(&self) -> usize {
        let turn = self.turn.fetch_add(1, Ordering::Relaxed);
        let count = self.shards.len();
        // If all are gone, it does not matter which one says so.
        (0..count)
            .map(|step| (turn + step) % count)
            .find(|&at| self.shards[at].health.is_up())
            .unwrap_or(turn % count)
    }
}
