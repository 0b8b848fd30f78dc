//! Everything a store holds, read at a moment when nobody changes it.

use towline_domain::{FieldSet, Timestamp, limits};
use towline_store::Result;
use towline_store::{Filter, QueueView, Store, StoredItem};

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Snapshot {
    pub now: Timestamp,
    pub queues: Vec<QueueView>,
    /// With all their fields.
    pub items: Vec<StoredItem>,
}

/// Reads everything, page by page. `now` is what the store's clock shows; nothing may change meanwhile.
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
