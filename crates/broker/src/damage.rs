//! Damage met while payloads were read: counted, and written to the log once for each item.

use parking_lot::Mutex;
use std::collections::HashSet;
use std::sync::atomic::{AtomicU64, Ordering};
use towline_domain::ItemId;
use towline_store::OperationError;

/// Items remembered. Beyond that, an item may be logged and counted again.
const LOGGED_MAX: usize = 10_000;

#[derive(Debug, Default)]
pub(crate) struct DamagedPayloads {
    logged: Mutex<HashSet<ItemId>>,
    count: AtomicU64,
}

impl DamagedPayloads {
    pub(crate) fn note(&self, id: ItemId, why: &OperationError) {
        let mut logged = self.logged.lock();
        if logged.len() >= LOGGED_MAX {
            logged.clear();
        }
        if logged.insert(id) {
            self.count.fetch_add(1, Ordering::Relaxed);
            tracing::error!(item = %id, "the payload of an item is lost: {why}");
        }
    }

    pub(crate) fn count(&self) -> u64 {
        self.count.load(Ordering::Relaxed)
    }
}
