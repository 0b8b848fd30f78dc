//! A snapshot of a store: all its queues and items at a quiet moment.

use towline_domain::{FieldSet, Timestamp, limits};
use towline_store::Result;
use towline_store::{Filter, QueueView, Store, StoredItem};

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Snapshot {
    pub now: Timestamp,
    pub queues: Vec<QueueView>,
    /// The items with all their fields.
    pub items: Vec<StoredItem>,
}

/// Reads all queues and items, page by page. `now` is the time of the store's clock. The store must not change meanwhile.
pub async fn snapshot(store: &dyn Store, now: Timestamp) -> Result<Snapshot> {
    let mut queues: Vec<QueueView> = Vec::new();
    loop {
        let after = queues.last().map(|view| view.queue.name.clone());
        let page = store.queues(after, limits::PAGE_MAX).await?;
        if page.is_empty() {
            break;
        }
        queues.extend(page);
    }
    let mut items = Vec::new();
    let mut after = None;
    loop {
        let page = store.list(Filter::default(), after, limits::PAGE_MAX, FieldSet::ALL).await?;
        items.extend(page.items);
        if page.next.is_none() {
            return Ok(Snapshot { now, queues, items });
        }
        after = page.next;
    }
}
