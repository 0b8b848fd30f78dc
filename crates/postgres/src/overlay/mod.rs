//! What a batch fetched, with what was decided so far on top: each operation sees what those before it did.
//!
//! Nothing here talks to the database. What is written in the end is taken from the entries that changed.

mod items;
pub(crate) mod operations;
mod sweep;

use crate::catalog::Catalog;
use crate::hint::Place;
use crate::image::{Image, Standing};
use rustc_hash::{FxHashMap, FxHashSet};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use towline_domain::digest::ContentDigest;
use towline_domain::kv::KvRecord;
use towline_domain::{
    AttemptError, Body, CountKind, Counts, FieldEdits, Fields, Head, ItemId, Outcome, Queue, QueueId,
    QueueName, Timestamp,
};
use towline_store::QueueLookup;

/// The batch has to begin anew, with the lock of this queue: its counts must be exact.
#[derive(Debug)]
pub(crate) struct NeedsLock(pub(crate) QueueId);

#[derive(Debug)]
pub(crate) struct Overlay {
    pub(crate) now: Timestamp,
    pub(crate) salt: u64,
    pub(crate) catalog: Arc<Catalog>,
    /// Counts at the beginning, of the queues that are locked.
    pub(crate) locked: FxHashMap<QueueId, Counts>,
    pub(crate) entries: FxHashMap<u64, Entry>,
    pub(crate) by_id: FxHashMap<ItemId, u64>,
    pub(crate) ready: FxHashMap<QueueId, BTreeSet<Place>>,
    pub(crate) keys: FxHashMap<(QueueId, String), KeyOwner>,
    pub(crate) kv: BTreeMap<String, Slot>,
    /// Sequence numbers for new items, the next one last.
    pub(crate) fresh: Vec<u64>,
    pub(crate) fresh_queue: Option<QueueId>,

    /// Stored items that are gone.
    pub(crate) removed: FxHashSet<u64>,
    pub(crate) counted: FxHashMap<QueueId, [i64; 6]>,
    pub(crate) queues: BTreeMap<QueueId, Option<Queue>>,
    /// Items that time changed.
    pub(crate) swept: u64,
    /// Payload that may still be brought along.
    pub(crate) read_budget: u64,
}

#[derive(Debug)]
pub(crate) struct Entry {
    pub(crate) head: Head,
    pub(crate) bytes: u64,
    pub(crate) counted: CountKind,
    pub(crate) stored: bool,
    pub(crate) changed: bool,
    /// Of an item that is new.
    pub(crate) submitted: Option<Box<(Body, Fields)>>,
    pub(crate) chosen_id: bool,
    pub(crate) edits: Vec<FieldEdits>,
    /// With the revision each came with.
    pub(crate) errors: Vec<(u32, AttemptError)>,
    pub(crate) outcome: Option<Outcome>,
}

#[derive(Debug, Clone)]
pub(crate) struct KeyOwner {
    pub(crate) seq: u64,
    pub(crate) id: ItemId,
    pub(crate) content: ContentDigest,
    pub(crate) stored: bool,
}

/// A key-value record, there or not.
#[derive(Debug, Default)]
pub(crate) struct Slot {
    pub(crate) record: Option<KvRecord>,
    pub(crate) stored: bool,
    pub(crate) changed: bool,
}

impl QueueLookup for Overlay {
    fn by_id(&self, id: QueueId) -> Option<(&Queue, Counts)> {
        let queue = match self.queues.get(&id) {
            Some(after) => after.as_ref(),
            None => self.catalog.by_id(id),
        };
        queue.map(|queue| (queue, self.counts(id)))
    }

    fn by_name(&self, name: &QueueName) -> Option<&Queue> {
        let changed = self.queues.values().flatten().find(|queue| queue.name == *name);
        let known = || self.catalog.by_name(name).filter(|queue| !self.queues.contains_key(&queue.id));
        changed.or_else(known)
    }
}

impl Overlay {
    /// Counts as they are now; of a queue that is not locked, only what this batch did.
    fn counts(&self, id: QueueId) -> Counts {
        let base = self.locked.get(&id).copied().unwrap_or_default();
        let Some(change) = self.counted.get(&id) else {
            return base;
        };
        let sum = |kind: CountKind| base.get(kind).saturating_add_signed(change[kind as usize]);
        Counts {
            pending: sum(CountKind::Pending),
            scheduled: sum(CountKind::Scheduled),
            processing: sum(CountKind::Processing),
            paused: sum(CountKind::Paused),
            completed: sum(CountKind::Completed),
            failed: sum(CountKind::Failed),
        }
    }

    /// Takes in an item that was fetched and locked.
    pub(crate) fn fetched(&mut self, image: Image) {
        if self.entries.contains_key(&image.seq) || self.removed.contains(&image.seq) {
            return;
        }
        let Image { seq, head, bytes, counted } = image;
        self.by_id.insert(head.id, seq);
        // What another server, a moment ahead, has put there is not ready yet.
        if counted == CountKind::Pending
            && head.ready_at <= self.now
            && let Some(queue) = self.catalog.by_id(head.queue)
        {
            let place = (queue.policy.order.key(&head), seq);
            self.ready.entry(head.queue).or_default().insert(place);
        }
        let entry = Entry {
            head,
            bytes,
            counted,
            stored: true,
            changed: false,
            submitted: None,
            chosen_id: false,
            edits: Vec::new(),
            errors: Vec::new(),
            outcome: None,
        };
        self.entries.insert(seq, entry);
    }

    /// Where an item stands now.
    pub(crate) fn standing(&self, head: &Head) -> Standing {
        let order = self.by_id(head.queue).map(|(queue, _)| &queue.policy.order);
        Standing::of(head, order.unwrap_or(&towline_domain::Order::Fifo), self.now)
    }

    fn place_of(&self, seq: u64, entry: &Entry) -> Option<Place> {
        if entry.counted != CountKind::Pending {
            return None;
        }
        let (queue, _) = self.by_id(entry.head.queue)?;
        Some((queue.policy.order.key(&entry.head), seq))
    }
}
