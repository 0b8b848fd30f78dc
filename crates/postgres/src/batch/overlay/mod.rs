//! The overlay: what a batch fetched, and what it decided so far. Each operation sees the changes of the operations before it.
//!
//! The overlay does not access the database. The batch writes the entries that changed.

mod items;
pub(crate) mod operations;
mod sweep;

use crate::batch::receive_hints::OrderPosition;
use crate::batch::tally::Tallies;
use crate::catalog::Catalog;
use crate::encoding::sql::queue_id;
use crate::pages::snapshot::{IndexKeys, ItemSnapshot, PageRow, PayloadRef};
use crate::pages::split::UNTOUCHED;
use rustc_hash::FxHashMap;
use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;
use std::sync::Arc;
use tokio_postgres::Row;
use towline_domain::digest::ContentDigest;
use towline_domain::kv::KvRecord;
use towline_domain::{
    AttemptError, Body, Change, CountKind, Counts, EffectsRecorder, EventPayload, FieldEdits, FieldSet,
    Fields, Flow, FullKeys, Head, ItemId, KeyTag, Order, OrderKey, Outcome, Queue, QueueId, QueueName,
    RateState, RoundRobin, State, Timestamp, limits,
};
use towline_store::{QueueLookup, StoreMetrics};

/// The batch must start again with the lock of this queue, because it needs exact counts.
#[derive(Debug)]
pub(crate) struct NeedsLock(pub(crate) QueueId);

#[derive(Debug)]
pub(crate) struct Overlay {
    pub(crate) now: Timestamp,
    pub(crate) salt: u64,
    pub(crate) catalog: Arc<Catalog>,
    /// The counts of the locked queues before the batch.
    pub(crate) locked: FxHashMap<QueueId, Counts>,
    /// Rate states, and whether the batch changed them.
    pub(crate) rates: BTreeMap<QueueId, (RateState, bool)>,
    /// The round robins of queues with fairness.
    pub(crate) round_robins: BTreeMap<QueueId, RoundRobinSlot>,
    /// How many items of each key were leased before the batch, in the locked queues with a limit per key.
    pub(crate) leased: FxHashMap<QueueId, FxHashMap<KeyTag, i64>>,
    /// By how many the batch changed that number, in all queues with a limit per key.
    pub(crate) leases: FxHashMap<(QueueId, KeyTag), i64>,
    /// `first_seq` of pages that are written again although their items do not change. Fairness was turned on, and the page has
    /// no fairness key yet. Or leases of each key got a limit, and the page has no count of its leases yet.
    pub(crate) rewritten: BTreeSet<u64>,
    /// Boxed, because entries are moved often.
    pub(crate) entries: FxHashMap<u64, Box<Entry>>,
    pub(crate) by_id: FxHashMap<ItemId, u64>,
    /// Sorted by key in queues with fairness, then in the queue's order.
    pub(crate) ready: FxHashMap<QueueId, BTreeSet<(KeyTag, OrderPosition)>>,
    pub(crate) keys: FxHashMap<(QueueId, String), KeyOwner>,
    /// New items whose idempotency keys other new items have taken over.
    pub(crate) earlier_owners: Vec<(QueueId, String, KeyOwner)>,
    pub(crate) replace_keys: FxHashMap<(QueueId, String), ReplaceOwner>,
    pub(crate) kv: BTreeMap<String, Slot>,
    /// Sequence numbers for new items.
    pub(crate) fresh: Range<u64>,
    pub(crate) fresh_queue: Option<QueueId>,

    /// The fetched and locked pages, with the numbers of their items in order.
    pub(crate) pages: BTreeMap<u64, (PageRow, Vec<u64>)>,
    /// The number of the call that runs now. Items that one call changes share a page.
    pub(crate) touch: u32,
    /// Stored items that were removed, and whether they had side rows.
    pub(crate) removed: FxHashMap<u64, bool>,
    /// Terminal pages with side rows that were removed as a whole: their first and last numbers.
    pub(crate) removed_pages: Vec<(i64, i64)>,
    /// The partition of `payloads` for new payloads.
    pub(crate) body_slot: u8,
    pub(crate) counted: FxHashMap<QueueId, [i64; 6]>,
    pub(crate) tallies: Tallies,
    pub(crate) metrics: StoreMetrics,
    pub(crate) effects: EffectsRecorder,
    pub(crate) queues: BTreeMap<QueueId, Option<Queue>>,
    /// Whether the store writes events.
    pub(crate) writes_events: bool,
    /// The events of this batch, in order, and the partition of `events` for them.
    pub(crate) events: Vec<EventPayload>,
    pub(crate) event_slot: i16,
    /// How many items the sweep changed.
    pub(crate) swept: u64,
    /// How many bytes of payload the answers may still read.
    pub(crate) read_budget: u64,
}

#[derive(Debug)]
pub(crate) struct Entry {
    pub(crate) head: Head,
    pub(crate) counted: CountKind,
    /// Where the payload of a stored item is.
    pub(crate) kept: PayloadRef,
    pub(crate) stored: bool,
    pub(crate) changed: bool,
    /// The number of the call that changed it last.
    pub(crate) touch: u32,
    /// The content of a new item.
    pub(crate) submitted: Option<Box<(Body, Fields)>>,
    pub(crate) chosen_id: bool,
    /// The new body of a stored item that a submit replaced.
    pub(crate) replaced: Option<Box<Body>>,
    pub(crate) edits: Vec<FieldEdits>,
    /// The errors that this batch adds, each with the revision of the item.
    pub(crate) errors: Vec<(u32, AttemptError)>,
    pub(crate) outcome: Option<Outcome>,
}

impl Entry {
    /// Upper bound of the bytes of a delivery with these fields.
    pub(crate) fn bytes(&self, fields: FieldSet) -> u64 {
        let errors =
            self.head.retries.min(limits::ERRORS_KEPT_MAX as u32) as usize * limits::REASON_BYTES_MAX;
        let content = match &self.submitted {
            _ if fields == FieldSet::HEADS => return 0,
            Some(submitted) => payload_bytes(&submitted.0, &submitted.1),
            None => self.kept.bytes(fields),
        };
        content + errors as u64
    }
}

fn payload_bytes(body: &Body, fields: &Fields) -> u64 {
    let params = body.params.iter().map(|(name, value)| name.len() + value.as_str().len());
    (fields.bytes() + params.sum::<usize>()) as u64
}

#[derive(Debug, Clone)]
pub(crate) struct KeyOwner {
    pub(crate) seq: u64,
    pub(crate) id: ItemId,
    pub(crate) content: ContentDigest,
    pub(crate) stored: bool,
}

#[derive(Debug, Default, Clone, Copy)]
pub(crate) struct RoundRobinSlot {
    pub(crate) round_robin: RoundRobin,
    pub(crate) changed: bool,
    /// The batch turned fairness on.
    pub(crate) begins: bool,
}

/// The latest item that was submitted with a replace key.
#[derive(Debug, Clone, Copy)]
pub(crate) struct ReplaceOwner {
    pub(crate) seq: u64,
    pub(crate) id: ItemId,
    /// The item that owns the key in the database.
    pub(crate) stored: Option<u64>,
}

/// A key-value record that exists or not.
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
    /// The present counts. For a queue that is not locked: only the changes of this batch.
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

    /// Adds a page that was fetched and locked.
    pub(crate) fn fetched(&mut self, (page, snapshots): (PageRow, Vec<ItemSnapshot>)) {
        if self.pages.contains_key(&page.first) {
            return;
        }
        self.entries.reserve(snapshots.len());
        self.pages.insert(page.first, (page, snapshots.iter().map(|snapshot| snapshot.seq).collect()));
        for ItemSnapshot { seq, head, counted, kept } in snapshots {
            self.by_id.insert(head.id, seq);
            // If the clock of another server is ahead, it may have promoted an item that is not ready yet by this clock.
            if counted == CountKind::Pending
                && head.ready_at <= self.now
                && let Some(queue) = self.catalog.by_id(head.queue)
            {
                let key = if queue.policy.flow.takes_turns() { head.fairness_key } else { KeyTag::NONE };
                let place = (queue.policy.order.key(&head), seq);
                self.ready.entry(head.queue).or_default().insert((key, place));
            }
            let entry = Entry {
                head,
                counted,
                kept,
                stored: true,
                changed: false,
                touch: UNTOUCHED,
                submitted: None,
                chosen_id: false,
                replaced: None,
                edits: Vec::new(),
                errors: Vec::new(),
                outcome: None,
            };
            self.entries.insert(seq, Box::new(entry));
        }
    }

    /// The keys of fetched items that are ready and have not expired, in order.
    fn deliverable_keys(&self, queue: QueueId) -> impl Iterator<Item = KeyTag> + '_ {
        let lasts = |seq: &u64| {
            self.entries.get(seq).is_some_and(|entry| entry.head.expires_at.is_none_or(|at| at > self.now))
        };
        let ready = self.ready.get(&queue).into_iter().flatten();
        ready.filter(move |(_, (_, seq))| lasts(seq)).map(|(key, _)| *key)
    }

    /// How many fetched items of a queue can be delivered.
    pub(crate) fn deliverable(&self, queue: QueueId) -> i64 {
        let Some(flow) = self.flow_of(queue).filter(|flow| flow.limits_keys()) else {
            return self.deliverable_keys(queue).count() as i64;
        };
        let (mut last, mut count) = (None, 0);
        let has_room = |key: &KeyTag| {
            count = if last.replace(*key) == Some(*key) { count + 1 } else { 0 };
            flow.has_room(self.leased_of(queue, *key) + count)
        };
        self.deliverable_keys(queue).filter(has_room).count() as i64
    }

    /// How many items of each key were fetched as ready but cannot be delivered: they have expired, or are not ready yet by
    /// this server's clock.
    pub(crate) fn undeliverable(&self, queue: QueueId) -> BTreeMap<KeyTag, i64> {
        let mut undeliverable: BTreeMap<KeyTag, i64> = BTreeMap::new();
        for entry in self.entries.values() {
            let head = &entry.head;
            let lasts = head.ready_at <= self.now && head.expires_at.is_none_or(|at| at > self.now);
            if head.queue == queue && entry.counted == CountKind::Pending && !lasts {
                *undeliverable.entry(head.fairness_key).or_default() += 1;
            }
        }
        undeliverable
    }

    /// Counts the terminal pages that were removed as a whole. Takes the rows of `remove_due_terminal_pages.sql`.
    pub(crate) fn count_removed_pages(&mut self, rows: &[Row]) {
        for row in rows {
            let (completed, failed): (i32, i32) = (row.get(1), row.get(2));
            let counted = self.counted.entry(queue_id(row.get(0))).or_default();
            counted[CountKind::Completed as usize] -= i64::from(completed);
            counted[CountKind::Failed as usize] -= i64::from(failed);
            self.swept += u64::try_from(completed + failed).unwrap_or(0);
            if row.get(3) {
                self.removed_pages.push((row.get(4), row.get(5)));
            }
        }
    }

    /// `queue` is set if the change is about a queue as a whole.
    fn record_events(&mut self, change: &Change, queue: Option<QueueId>) {
        if self.writes_events {
            self.events.extend(change.events(queue));
        }
    }

    /// How many values of a tag the queue tallies separately.
    pub(super) fn tally_values_max(&self, queue: QueueId) -> u32 {
        self.by_id(queue).map_or(limits::TALLY_VALUES_DEFAULT, |(queue, _)| queue.policy.tally_values_max)
    }

    fn order_of(&self, queue: QueueId) -> &Order {
        self.by_id(queue).map_or(&Order::Fifo, |(queue, _)| &queue.policy.order)
    }

    /// The position of a pending item in the order, whether it is ready or not.
    pub(crate) fn key(&self, head: &Head) -> Option<OrderKey> {
        (head.state == State::Pending).then(|| self.order_of(head.queue).key(head))
    }

    pub(crate) fn index_keys(&self, head: &Head, counted: CountKind) -> IndexKeys {
        IndexKeys::of(head, self.order_of(head.queue), counted)
    }

    fn flow_of(&self, queue: QueueId) -> Option<&Flow> {
        self.by_id(queue).map(|(queue, _)| &queue.policy.flow)
    }

    pub(crate) fn takes_turns(&self, queue: QueueId) -> bool {
        self.flow_of(queue).is_some_and(Flow::takes_turns)
    }

    pub(crate) fn limits_keys(&self, queue: QueueId) -> bool {
        self.flow_of(queue).is_some_and(Flow::limits_keys)
    }

    /// How many items of a key are leased now, in a locked queue.
    fn leased_of(&self, queue: QueueId, key: KeyTag) -> u64 {
        let before = self.leased.get(&queue).and_then(|by_key| by_key.get(&key)).copied().unwrap_or(0);
        let change = self.leases.get(&(queue, key)).copied().unwrap_or(0);
        u64::try_from(before + change).unwrap_or(0)
    }

    fn keys_at_limit(&self, queue: QueueId, flow: &Flow) -> FullKeys {
        let before = self.leased.get(&queue).into_iter().flatten().map(|(&key, _)| key);
        let since = self.leases.keys().filter(|(id, _)| *id == queue).map(|(_, key)| *key);
        let keys = before.chain(since).filter(|_| flow.limits_keys());
        keys.filter(|&key| !flow.has_room(self.leased_of(queue, key))).collect()
    }

    /// The fairness key of an item; `None` in a queue without fairness.
    pub(crate) fn fairness_key(&self, head: &Head) -> Option<KeyTag> {
        self.takes_turns(head.queue).then_some(head.fairness_key)
    }

    fn place_of(&self, seq: u64, entry: &Entry) -> Option<(KeyTag, OrderPosition)> {
        if entry.counted != CountKind::Pending {
            return None;
        }
        let (queue, _) = self.by_id(entry.head.queue)?;
        let key = self.fairness_key(&entry.head).unwrap_or_default();
        Some((key, (queue.policy.order.key(&entry.head), seq)))
    }
}
