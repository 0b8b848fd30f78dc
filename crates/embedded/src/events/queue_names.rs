//! The names of queues, for whoever reads the log beside the writer.

use rustc_hash::FxHashMap;
use std::collections::BTreeSet;
use std::sync::{PoisonError, RwLock};
use towline_domain::{QueueId, QueueName};

/// Deleted queues whose names are known still.
const GONE_MAX: usize = 10_000;

/// Also of queues that were deleted lately: what is told of them lies in the log before their end.
#[derive(Debug, Default)]
pub(crate) struct QueueNames(RwLock<Known>);

#[derive(Debug, Default)]
struct Known {
    names: FxHashMap<QueueId, QueueName>,
    gone: BTreeSet<QueueId>,
}

impl QueueNames {
    pub(crate) fn get(&self, id: QueueId) -> Option<QueueName> {
        self.0.read().unwrap_or_else(PoisonError::into_inner).names.get(&id).cloned()
    }

    pub(crate) fn learn(&self, id: QueueId, name: &QueueName) {
        if self.get(id).is_none() {
            let mut known = self.0.write().unwrap_or_else(PoisonError::into_inner);
            known.names.insert(id, name.clone());
        }
    }

    /// It is deleted; `name`: as its last record says.
    pub(crate) fn gone(&self, id: QueueId, name: Option<QueueName>) {
        let mut known = self.0.write().unwrap_or_else(PoisonError::into_inner);
        if let Some(name) = name {
            known.names.insert(id, name);
        }
        known.gone.insert(id);
        if known.gone.len() > GONE_MAX
            && let Some(oldest) = known.gone.pop_first()
        {
            known.names.remove(&oldest);
        }
    }
}
