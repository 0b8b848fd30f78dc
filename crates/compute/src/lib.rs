//! The control plane of compute: codespecs, runs, services, triggers, and the nodes that carry them out.
//!
//! Whatever must be supervised is an item under a lease in the queue of its pool: a run, a replica of a service, a slot of a
//! trigger. A node receives it, works, and settles it. When the node dies, the lease lapses and another node receives the
//! item. So recovery, lists, retention and metrics are those of the queue.
//!
//! **Invariant:** this crate starts no process. It writes items and records; nodes (`towline-node`) act on them.

mod access;
mod codespecs;
mod error;
mod items;
mod nodes;
mod pools;
mod reconcile;
mod records;
mod runs;
mod services;
mod stops;
mod triggers;

pub use access::Rights;
pub use error::ComputeError;
pub use runs::RunQuery;

use parking_lot::Mutex;
use std::collections::HashMap;
use std::sync::Arc;
use tokio::sync::Notify;
use towline_broker::Broker;
use towline_buffers::Buffers;

pub type Result<T> = std::result::Result<T, ComputeError>;

/// Clones share the state.
#[derive(Clone)]
pub struct Compute(Arc<Shared>);

pub(crate) struct Shared {
    broker: Broker,
    buffers: Buffers,
    /// A stop was requested on this server.
    stops_changed: Notify,
    /// A service or a trigger changed on this server.
    changed: Notify,
    /// The records of nodes that this server wrote.
    nodes_written: Mutex<HashMap<String, nodes::Node>>,
}

impl std::fmt::Debug for Compute {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Compute")
    }
}

impl Compute {
    #[must_use]
    pub fn new(broker: Broker, buffers: Buffers) -> Compute {
        let nodes_written = Mutex::default();
        Compute(Arc::new(Shared {
            broker,
            buffers,
            stops_changed: Notify::new(),
            changed: Notify::new(),
            nodes_written,
        }))
    }

    pub(crate) fn broker(&self) -> &Broker {
        &self.0.broker
    }
}
