//! Names of queues by id, shared by the writer thread and event readers.

use parking_lot::RwLock;
use rustc_hash::FxHashMap;
use std::collections::BTreeSet;
use towline_domain::{QueueId, QueueName};

/// How many deleted queues are remembered.
const DELETED_MAX: usize = 10_000;

/// Also names queues that were deleted recently: the log still has events of them.
#[derive(Debug, Default)]
pub(crate) struct QueueNames(RwLock<Known>);

#[derive(Debug, Default)]
struct Known {
    names: FxHashMap<QueueId, QueueName>,
    deleted: BTreeSet<QueueId>,
}

impl QueueNames {
    pub(crate) fn get(&self, id: QueueId) -> Option<QueueName> {
        self.0.read().names.get(&id).cloned()
    }

    pub(crate) fn add(&self, id: QueueId, name: &QueueName) {
        if self.get(id).is_none() {
            let mut known = self.0.write();
            known.names.insert(id, name.clone());
        }
    }

    /// The queue was deleted. `name` is the name in its last record.
    pub(crate) fn delete(&self, id: QueueId, name: Option<QueueName>) {
        let mut known = self.0.write();
        if let Some(name) = name {
            known.names.insert(id, name);
        }
        known.deleted.insert(id);
        if known.deleted.len() > DELETED_MAX
            && let Some(oldest) = known.deleted.pop_first()
        {
            known.names.remove(&oldest);
        }
    }
}
