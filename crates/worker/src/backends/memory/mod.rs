//! The backend in memory: for tests, and for work that may be lost with its process.

mod pubsub;
mod queue;
mod store;

pub use pubsub::MemoryPubSub;
pub use queue::MemoryQueue;
pub use store::MemoryStore;

use crate::clock::{Clock, SystemClock};
use crate::ports::Backend;
use std::sync::Arc;

/// A backend in memory. Clones share their data, so that several systems can work on it like a fleet.
#[derive(Debug, Clone)]
pub struct Memory {
    pub queue: Arc<MemoryQueue>,
    pub pubsub: Arc<MemoryPubSub>,
    pub store: Arc<MemoryStore>,
}

impl Memory {
    #[must_use]
    pub fn new() -> Memory {
        Memory::with_clock(Arc::new(SystemClock))
    }

    #[must_use]
    pub fn with_clock(clock: Arc<dyn Clock>) -> Memory {
        Memory {
            queue: Arc::new(MemoryQueue::new(Arc::clone(&clock))),
            pubsub: Arc::default(),
            store: Arc::new(MemoryStore::new(clock)),
        }
    }
}

impl Default for Memory {
    fn default() -> Memory {
        Memory::new()
    }
}

impl From<Memory> for Backend {
    fn from(memory: Memory) -> Backend {
        Backend { queue: memory.queue, pubsub: memory.pubsub, store: memory.store }
    }
}
