//! A server's cache of the queues, with the catalog version that it was read at.

use crate::encoding::code;
use crate::encoding::sql::queue_id;
use crate::error::damaged;
use parking_lot::Mutex;
use rustc_hash::FxHashMap;
use std::collections::BTreeMap;
use std::sync::Arc;
use tokio_postgres::Row;
use towline_domain::{Queue, QueueId, QueueName};
use towline_store::StoreError;

/// **Invariant:** a batch uses it only if the catalog version, read under the store's lock, is the same.
#[derive(Debug, Clone, Default)]
pub(crate) struct Catalog {
    pub(crate) version: i64,
    by_id: FxHashMap<QueueId, Arc<Queue>>,
    by_name: BTreeMap<QueueName, QueueId>,
}

impl Catalog {
    pub(crate) fn by_id(&self, id: QueueId) -> Option<&Queue> {
        self.by_id.get(&id).map(AsRef::as_ref)
    }

    pub(crate) fn by_name(&self, name: &QueueName) -> Option<&Queue> {
        self.by_name.get(name).and_then(|&id| self.by_id(id))
    }

    pub(crate) fn len(&self) -> usize {
        self.by_name.len()
    }

    fn forget(&mut self, id: QueueId) {
        if let Some(removed) = self.by_id.remove(&id)
            && self.by_name.get(&removed.name) == Some(&id)
        {
            self.by_name.remove(&removed.name);
        }
    }

    /// Takes the rows of `read_changed_queues.sql`.
    pub(crate) fn learn(&mut self, rows: &[Row]) -> Result<(), StoreError> {
        for row in rows {
            let id = queue_id(row.get(0));
            self.forget(id);
            if let Some(text) = row.get::<_, Option<&str>>(1) {
                let queue = read_queue(text)?;
                self.by_name.insert(queue.name.clone(), id);
                self.by_id.insert(id, Arc::new(queue));
            }
            self.version = self.version.max(row.get(2));
        }
        Ok(())
    }
}

pub(crate) fn read_queue(definition: &str) -> Result<Queue, StoreError> {
    code::from_json(definition).map_err(|error| damaged("of queues", error))
}

/// The latest catalog that a worker of this server has read.
#[derive(Debug, Default)]
pub(crate) struct CatalogCache(Mutex<Arc<Catalog>>);

impl CatalogCache {
    pub(crate) fn get(&self) -> Arc<Catalog> {
        self.0.lock().clone()
    }

    pub(crate) fn put(&self, catalog: Arc<Catalog>) {
        *self.0.lock() = catalog;
    }
}
