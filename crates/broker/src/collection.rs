//! Deletes unused objects from object storage: outputs that their attempt did not commit, offloaded fields that were
//! replaced or whose item was removed, and what crashes left.
//!
//! Each round lists all objects, page by page, and asks the store which items still use them. It keeps no state between
//! rounds, so a restart loses nothing.

use crate::broker::Shared;
use crate::pipeline::attachments::{Attachments, BufferBinding, FieldKey, KEPT};
use futures::FutureExt;
use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Weak};
use std::time::Duration;
use towline_buffers::{BufferError, SweepCursor};
use towline_domain::{BufferId, FieldSet, Item, ItemId, Millis, Reference};
use towline_store::{Store, StoreError};

/// Objects in one page.
const PAGE: usize = 500;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct CollectionRule {
    /// Between two rounds.
    pub every: Duration,
    /// Younger objects stay: an item may be about to name them. Must not be shorter than a write takes.
    pub grace: Millis,
}

impl Default for CollectionRule {
    fn default() -> CollectionRule {
        CollectionRule { every: Duration::from_secs(60), grace: Millis::minutes(10) }
    }
}

/// How many objects were deleted.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Collected {
    /// Buffers made for attempts that ended without committing them.
    pub outputs: u64,
    /// Payload fields that no item names.
    pub fields: u64,
    /// Buffers whose time to live has passed.
    pub expired: u64,
    /// Data and files that belong to no buffer.
    pub orphans: u64,
}

#[derive(Default)]
pub(crate) struct Totals {
    outputs: AtomicU64,
    fields: AtomicU64,
    expired: AtomicU64,
    orphans: AtomicU64,
}

impl Totals {
    pub(crate) fn read(&self) -> Collected {
        let read = |count: &AtomicU64| count.load(Ordering::Relaxed);
        Collected {
            outputs: read(&self.outputs),
            fields: read(&self.fields),
            expired: read(&self.expired),
            orphans: read(&self.orphans),
        }
    }
}

/// Why a round ended early. The next round starts from the beginning.
#[derive(Debug, thiserror::Error)]
#[error(transparent)]
enum CollectionError {
    Storage(#[from] BufferError),
    Store(#[from] StoreError),
}

pub(crate) async fn run(shared: Weak<Shared>, rule: CollectionRule) {
    loop {
        {
            let Some(broker) = shared.upgrade() else { return };
            if broker.is_stopping() {
                return;
            }
            let before = broker.collected.read();
            if let Err(error) = broker.collect(rule).await {
                tracing::warn!(cause = %error, "collection of unused objects failed; the next round starts again");
            }
            let after = broker.collected.read();
            if after != before {
                tracing::info!(total = ?after, "deleted unused objects from object storage");
            }
        }
        tokio::time::sleep(rule.every).await;
    }
}

impl Shared {
    async fn collect(self: &Arc<Self>, rule: CollectionRule) -> Result<(), CollectionError> {
        let Some(attachments) = &self.attachments else { return Ok(()) };
        self.collect_outputs(attachments).boxed().await?;
        self.collect_blobs(attachments, rule).boxed().await?;
        let mut from = SweepCursor::default();
        while !self.is_stopping() {
            let swept =
                attachments.buffers.sweep(from, PAGE, rule.grace.0, self.clock.now().0).boxed().await?;
            self.collected.expired.fetch_add(swept.expired_removed, Ordering::Relaxed);
            let orphans = swept.orphans_removed + swept.temporary_removed;
            self.collected.orphans.fetch_add(orphans, Ordering::Relaxed);
            match swept.next {
                Some(next) => from = next,
                None => break,
            }
        }
        Ok(())
    }

    async fn collect_outputs(&self, attachments: &Attachments) -> Result<(), CollectionError> {
        let mut after = None;
        loop {
            let page = attachments.buffers.list(after.as_deref(), PAGE, &BTreeMap::new()).await?;
            let ids = page.buffers.iter().filter_map(|listed| listed.id.parse::<BufferId>().ok());
            let made: Vec<(BufferId, ItemId)> =
                ids.filter_map(|id| Some((id.clone(), id.attempted()?))).collect();
            let items = items(&*self.store, made.iter().map(|(_, item)| *item), FieldSet::NONE).await?;
            for (id, item) in made {
                if self.is_stopping() {
                    return Ok(());
                }
                if matches!(
                    attachments.binding_to(&id, items.get(&item)).await?,
                    BufferBinding::Cut | BufferBinding::Gone
                ) {
                    attachments.buffers.delete(id.as_str()).await?;
                    self.collected.outputs.fetch_add(1, Ordering::Relaxed);
                }
            }
            after = page.next;
            if after.is_none() || self.is_stopping() {
                return Ok(());
            }
        }
    }

    async fn collect_blobs(
        &self,
        attachments: &Attachments,
        rule: CollectionRule,
    ) -> Result<(), CollectionError> {
        let mut after = None;
        loop {
            let page = attachments.buffers.list_blobs(after.as_deref(), PAGE).await?;
            let now = self.clock.now();
            let old =
                page.blobs.iter().filter(|blob| blob.written_at_ms.saturating_add(rule.grace.0) <= now.0);
            let (mut fields, mut kept_marks) = (Vec::new(), Vec::new());
            for blob in old {
                match (FieldKey::read(&blob.key), blob.key.strip_prefix(KEPT)) {
                    (Some(key), _) => fields.push((blob.key.clone(), key)),
                    (None, Some(id)) => kept_marks.push((blob.key.clone(), id.to_owned())),
                    // Not an object of this broker.
                    (None, None) => {}
                }
            }
            let items = items(&*self.store, fields.iter().map(|(_, key)| key.id), FieldSet::ALL).await?;
            for (key, parts) in fields {
                if self.is_stopping() {
                    return Ok(());
                }
                let named = items.get(&parts.id).and_then(|item| item.fields.get(parts.field));
                let named =
                    named.and_then(|bytes| Reference::read(bytes)).is_some_and(|named| named.key == key);
                if !named {
                    attachments.buffers.delete_blob(&key).await?;
                    self.collected.fields.fetch_add(1, Ordering::Relaxed);
                }
            }
            for (key, id) in kept_marks {
                if matches!(attachments.buffers.meta(&id).await, Err(BufferError::NotFound { .. })) {
                    attachments.buffers.delete_blob(&key).await?;
                }
            }
            after = page.next;
            if after.is_none() || self.is_stopping() {
                return Ok(());
            }
        }
    }
}

async fn items(
    store: &dyn Store,
    ids: impl Iterator<Item = ItemId>,
    fields: FieldSet,
) -> Result<BTreeMap<ItemId, Item>, StoreError> {
    let mut ids: Vec<ItemId> = ids.collect();
    ids.sort_unstable();
    ids.dedup();
    let found = store.get(ids, fields).await?;
    Ok(found.into_iter().flatten().map(|stored| (stored.item.head.id, stored.item)).collect())
}
