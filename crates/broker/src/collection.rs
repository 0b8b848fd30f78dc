//! Deletes unused objects from object storage: outputs that their attempt did not commit or whose `output_ttl` is over, offloaded fields that were
//! replaced or whose item was removed, and what crashes left.
//!
//! Each round lists all objects, page by page, and asks the store which items still use them. It keeps no state between
//! rounds, so a restart loses nothing.

use crate::broker::Shared;
use crate::ownership::{Ownership, OwnershipError, TakeOver, claim_buffers};
use crate::pipeline::attachments::{Attachments, BufferBinding, FieldKey, KEPT};
use crate::pipeline::claims::claimed;
use futures::FutureExt;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Weak};
use std::time::Duration;
use towline_buffers::{BufferError, BufferState, ListedBuffer, Meta, SweepCursor};
use towline_domain::{BufferId, Field, FieldSet, Item, ItemId, Millis, Reference};
use towline_store::{Store, StoreError};

/// Objects in one page.
const PAGE: usize = 500;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct CollectionRule {
    /// The pause between two rounds.
    pub every: Duration,
    /// Minimum age of an object that a round removes. A younger object may belong to an item that is being submitted. Must be at
    /// least as long as the longest write. Does not apply to a buffer whose time to live is over.
    pub grace: Millis,
}

impl Default for CollectionRule {
    fn default() -> CollectionRule {
        CollectionRule { every: Duration::from_secs(60), grace: Millis::minutes(10) }
    }
}

/// How many rounds there were, and how much was removed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Collected {
    /// Rounds that went through everything.
    pub rounds: u64,
    /// Rounds that stopped early; the log says why.
    pub rounds_stopped: u64,
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
    rounds: AtomicU64,
    rounds_stopped: AtomicU64,
    outputs: AtomicU64,
    fields: AtomicU64,
    expired: AtomicU64,
    orphans: AtomicU64,
}

impl Totals {
    pub(crate) fn read(&self) -> Collected {
        let read = |count: &AtomicU64| count.load(Ordering::Relaxed);
        Collected {
            rounds: read(&self.rounds),
            rounds_stopped: read(&self.rounds_stopped),
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
    Ownership(#[from] OwnershipError),
}

impl Collected {
    fn removed(&self) -> u64 {
        self.outputs + self.fields + self.expired + self.orphans
    }
}

pub(crate) async fn run(shared: Weak<Shared>, rule: CollectionRule) {
    loop {
        {
            let Some(broker) = shared.upgrade() else { return };
            if broker.is_stopping() {
                return;
            }
            let before = broker.collected.read();
            let totals = &broker.collected;
            match broker.collect(rule).await {
                Ok(()) => &totals.rounds,
                Err(CollectionError::Ownership(error)) => {
                    tracing::error!("no buffers are collected: {error}");
                    &totals.rounds_stopped
                }
                Err(broke) => {
                    tracing::warn!(cause = %broke, "collection stopped early; the next round starts again");
                    &totals.rounds_stopped
                }
            }
            .fetch_add(1, Ordering::Relaxed);
            let after = broker.collected.read();
            if after.removed() != before.removed() {
                tracing::info!(total = ?after, "removed unused objects from object storage");
            }
        }
        tokio::time::sleep(rule.every).await;
    }
}

impl Shared {
    async fn collect(self: &Arc<Self>, rule: CollectionRule) -> Result<(), CollectionError> {
        let Some(attachments) = &self.attachments else { return Ok(()) };
        // Another store may have adopted the place since the start, or a database may have joined this one.
        let (buffers, identity) = (&attachments.buffers, self.store.identity());
        let owned = claim_buffers(buffers, &identity, TakeOver::Never, self.clock.now()).await?;
        if owned == Ownership::Undecided {
            return Ok(());
        }
        self.collect_outputs(attachments, rule).boxed().await?;
        self.collect_blobs(attachments, rule).boxed().await?;
        let mut from = SweepCursor::default();
        while !self.is_stopping() {
            let _deleting = self.deletions.read().await;
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

    async fn collect_outputs(
        &self,
        attachments: &Attachments,
        rule: CollectionRule,
    ) -> Result<(), CollectionError> {
        let mut after = None;
        loop {
            let _deleting = self.deletions.read().await;
            let page = attachments.buffers.list(after.as_deref(), PAGE, &BTreeMap::new()).await?;
            let now_ms = self.clock.now().0;
            let before_ms = now_ms.saturating_sub(rule.grace.0);
            let is_due = |listed: &&ListedBuffer| {
                listed.meta.created_at_ms <= before_ms || is_expired(&listed.meta, now_ms)
            };
            let made: Vec<(BufferId, ItemId, bool)> = (page.buffers.iter().filter(is_due))
                .filter_map(|listed| {
                    let id: BufferId = listed.id.parse().ok()?;
                    Some((id.clone(), id.attempted()?, is_expired(&listed.meta, now_ms)))
                })
                .collect();
            let ids = made.iter().map(|(_, item, _)| *item);
            let items = look_up(&*self.store, ids, FieldSet::NONE, |item| item).await?;
            for (id, item, is_expired) in made {
                if self.is_stopping() {
                    return Ok(());
                }
                let item = match items.get(&item) {
                    Some(Looked::Unreadable) => continue,
                    Some(Looked::Found(item)) => Some(item),
                    None => None,
                };
                let count = match attachments.binding_to(&*self.store, &id, item).await? {
                    BufferBinding::Cut | BufferBinding::Gone
                        if self.last_written(attachments, &id).await? <= before_ms =>
                    {
                        &self.collected.outputs
                    }
                    // Another item that committed it keeps it for good.
                    BufferBinding::Committed | BufferBinding::Kept
                        if is_expired && !attachments.is_claimed(&*self.store, &id).await? =>
                    {
                        &self.collected.expired
                    }
                    _ => continue,
                };
                attachments.buffers.delete(id.as_str()).await?;
                count.fetch_add(1, Ordering::Relaxed);
            }
            after = page.next;
            if after.is_none() || self.is_stopping() {
                return Ok(());
            }
        }
    }

    /// When a writer was last active in a buffer.
    async fn last_written(&self, attachments: &Attachments, id: &BufferId) -> Result<u64, CollectionError> {
        Ok(match attachments.buffers.show(id.as_str(), self.clock.now().0).await {
            Ok(shown) => match shown.state {
                BufferState::Empty => shown.meta.created_at_ms,
                BufferState::Writing { last_activity_ms, .. } => last_activity_ms,
                BufferState::Complete { finished_at_ms } | BufferState::Failed { finished_at_ms, .. } => {
                    finished_at_ms
                }
            },
            // Deleted meanwhile, or damaged: nothing in it can be used any more.
            Err(BufferError::NotFound { .. } | BufferError::Damaged { .. }) => 0,
            Err(error) => return Err(error.into()),
        })
    }

    async fn collect_blobs(
        &self,
        attachments: &Attachments,
        rule: CollectionRule,
    ) -> Result<(), CollectionError> {
        let mut after = None;
        loop {
            let _deleting = self.deletions.read().await;
            let page = attachments.buffers.list_blobs(after.as_deref(), PAGE).await?;
            let now = self.clock.now();
            let old =
                page.blobs.iter().filter(|blob| blob.written_at_ms.saturating_add(rule.grace.0) <= now.0);
            let (mut fields, mut kept_marks) = (Vec::new(), Vec::new());
            for blob in old {
                let marked = blob.key.strip_prefix(KEPT).or_else(|| claimed(&blob.key));
                match (FieldKey::read(&blob.key), marked) {
                    (Some(key), _) => fields.push((blob.key.clone(), key)),
                    (None, Some(id)) => kept_marks.push((blob.key.clone(), id.to_owned())),
                    // Not an object of this broker.
                    (None, None) => {}
                }
            }
            let ids = fields.iter().map(|(_, key)| key.id);
            let named = look_up(&*self.store, ids, FieldSet::ALL, |item| named_by(&item)).await?;
            for (key, parts) in fields {
                if self.is_stopping() {
                    return Ok(());
                }
                let is_named = match named.get(&parts.id) {
                    Some(Looked::Found(named)) => named.contains(&key),
                    Some(Looked::Unreadable) => true,
                    None => false,
                };
                if !is_named {
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

fn is_expired(meta: &Meta, now_ms: u64) -> bool {
    meta.expires_at_ms.is_some_and(|expires_at_ms| expires_at_ms <= now_ms)
}

/// The keys of the payload fields that an item keeps in object storage.
fn named_by(item: &Item) -> BTreeSet<String> {
    let references = Field::ALL.into_iter().filter_map(|field| Reference::read(item.fields.get(field)?));
    references.map(|reference| reference.key).collect()
}

/// An item that is there.
enum Looked<T> {
    Found(T),
    /// Its record is damaged: what it refers to is not known.
    Unreadable,
}

/// Looks up items, and keeps of each what is needed. Items that are too large for one answer are asked for in smaller parts.
async fn look_up<T>(
    store: &dyn Store,
    ids: impl Iterator<Item = ItemId>,
    fields: FieldSet,
    keep: impl Fn(Item) -> T,
) -> Result<BTreeMap<ItemId, Looked<T>>, StoreError> {
    let ids: BTreeSet<ItemId> = ids.collect();
    let mut parts = vec![Vec::from_iter(ids)];
    let mut looked = BTreeMap::new();
    while let Some(mut part) = parts.pop() {
        match store.get(part.clone(), fields).await {
            Ok(found) => {
                let found = found.into_iter().flatten();
                looked.extend(found.map(|stored| (stored.item.head.id, Looked::Found(keep(stored.item)))));
            }
            Err(StoreError::BatchTooLarge { .. } | StoreError::Corrupt { .. }) if part.len() > 1 => {
                parts.push(part.split_off(part.len() / 2));
                parts.push(part);
            }
            Err(StoreError::Corrupt { .. }) => {
                looked.extend(part.into_iter().map(|id| (id, Looked::Unreadable)));
            }
            Err(error) => return Err(error),
        }
    }
    Ok(looked)
}
