//! What a batch fetched, with what was decided so far on top: each operation sees what those before it did.
//!
//! Nothing here talks to the database. What is written in the end is taken from the entries that changed.

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
    AttemptError, Body, Change, CountKind, Counts, EffectsRecorder, EventPayload, FieldEdits, Fields, Flow,
    FullKeys, Head, ItemId, KeyTag, Order, OrderKey, Outcome, Queue, QueueId, QueueName, RateState,
    RoundRobin, State, Timestamp,
};
use towline_store::{QueueLookup, StoreMetrics};

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
    /// How far rates are used up, and whether that is news.
    pub(crate) spent: BTreeMap<QueueId, (RateState, bool)>,
    /// Whose turn it is, where keys take turns.
    pub(crate) turns: BTreeMap<QueueId, TurnSlot>,
    /// How many items of each key were in hand at the beginning, of the queues that are locked and have a limit on that.
    pub(crate) leased: FxHashMap<QueueId, FxHashMap<KeyTag, i64>>,
    /// How many more or less are since, of all queues with such a limit.
    pub(crate) leases: FxHashMap<(QueueId, KeyTag), i64>,
    /// First numbers of pages that are laid out anew though nothing in them changes: they are of no key, in a queue whose keys
    /// take turns, or what is in hand in them was not counted, in one whose keys have a limit.
    pub(crate) anew: BTreeSet<u64>,
    /// Boxed: they are moved about.
    pub(crate) entries: FxHashMap<u64, Box<Entry>>,
    pub(crate) by_id: FxHashMap<ItemId, u64>,
    /// By key where keys take turns; then in the queue's order.
    pub(crate) ready: FxHashMap<QueueId, BTreeSet<(KeyTag, OrderPosition)>>,
    pub(crate) keys: FxHashMap<(QueueId, String), KeyOwner>,
    pub(crate) replace_keys: FxHashMap<(QueueId, String), ReplaceOwner>,
    pub(crate) kv: BTreeMap<String, Slot>,
    /// Sequence numbers for new items.
    pub(crate) fresh: Range<u64>,
    pub(crate) fresh_queue: Option<QueueId>,

    /// Pages that were fetched and locked, with the numbers of their items, in order.
    pub(crate) pages: BTreeMap<u64, (PageRow, Vec<u64>)>,
    /// Who is at it: what is touched together is stored together.
    pub(crate) touch: u32,
    /// Stored items that are gone, and whether they had rows in other tables.
    pub(crate) removed: FxHashMap<u64, bool>,
    /// Finished pages that went as a whole and had rows in other tables: their first and last numbers.
    pub(crate) gone: Vec<(i64, i64)>,
    /// The partition of `bodies` for what is new.
    pub(crate) body_slot: u8,
    pub(crate) counted: FxHashMap<QueueId, [i64; 6]>,
    pub(crate) tallies: Tallies,
    pub(crate) figures: StoreMetrics,
    pub(crate) effects: EffectsRecorder,
    pub(crate) queues: BTreeMap<QueueId, Option<Queue>>,
    /// What this batch tells, in order, if it tells anything, and the partition of `events` for it.
    pub(crate) tells: bool,
    pub(crate) told: Vec<EventPayload>,
    pub(crate) event_slot: i16,
    /// Items that time changed.
    pub(crate) swept: u64,
    /// Payload that may still be brought along.
    pub(crate) read_budget: u64,
}

#[derive(Debug)]
pub(crate) struct Entry {
    pub(crate) head: Head,
    pub(crate) counted: CountKind,
    /// Of an item that is stored.
    pub(crate) kept: PayloadRef,
    pub(crate) stored: bool,
    pub(crate) changed: bool,
    /// Who touched it last.
    pub(crate) touch: u32,
    /// Of an item that is new.
    pub(crate) submitted: Option<Box<(Body, Fields)>>,
    pub(crate) chosen_id: bool,
    /// Of an item that is stored: submitted in its place.
    pub(crate) replaced: Option<Box<Body>>,
    pub(crate) edits: Vec<FieldEdits>,
    /// With the revision each came with.
    pub(crate) errors: Vec<(u32, AttemptError)>,
    pub(crate) outcome: Option<Outcome>,
}

impl Entry {
    /// At most this much payload.
    pub(crate) fn bytes(&self) -> u64 {
        match &self.submitted {
            Some(submitted) => payload_bytes(&submitted.0, &submitted.1),
            None => self.kept.bytes(),
        }
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
pub(crate) struct TurnSlot {
    pub(crate) turn: RoundRobin,
    /// It is news.
    pub(crate) changed: bool,
    /// Its keys begin to take turns.
    pub(crate) begins: bool,
}

/// Who was the latest to be submitted with a replace key.
#[derive(Debug, Clone, Copy)]
pub(crate) struct ReplaceOwner {
    pub(crate) seq: u64,
    pub(crate) id: ItemId,
    /// Who is stored as such.
    pub(crate) stored: Option<u64>,
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

    /// Takes in a page that was fetched and locked.
    pub(crate) fn fetched(&mut self, (page, images): (PageRow, Vec<ItemSnapshot>)) {
        if self.pages.contains_key(&page.first) {
            return;
        }
        self.entries.reserve(images.len());
        self.pages.insert(page.first, (page, images.iter().map(|image| image.seq).collect()));
        for ItemSnapshot { seq, head, counted, kept } in images {
            self.by_id.insert(head.id, seq);
            // What another server, a moment ahead, has put there is not ready yet.
            if counted == CountKind::Pending
                && head.ready_at <= self.now
                && let Some(queue) = self.catalog.by_id(head.queue)
            {
                let whose = if queue.policy.flow.takes_turns() { head.fairness_key } else { KeyTag::NONE };
                let place = (queue.policy.order.key(&head), seq);
                self.ready.entry(head.queue).or_default().insert((whose, place));
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

    /// Keys of ready items of a queue that were fetched and have not expired, in order.
    fn lasting(&self, queue: QueueId) -> impl Iterator<Item = KeyTag> + '_ {
        let lasts = |seq: &u64| {
            self.entries.get(seq).is_some_and(|entry| entry.head.expires_at.is_none_or(|at| at > self.now))
        };
        let ready = self.ready.get(&queue).into_iter().flatten();
        ready.filter(move |(_, (_, seq))| lasts(seq)).map(|(key, _)| *key)
    }

    /// Ready items of a queue that were fetched and can be given out.
    pub(crate) fn usable(&self, queue: QueueId) -> i64 {
        let Some(flow) = self.flow_of(queue).filter(|flow| flow.limits_keys()) else {
            return self.lasting(queue).count() as i64;
        };
        let (mut last, mut count) = (None, 0);
        let has_room = |key: &KeyTag| {
            count = if last.replace(*key) == Some(*key) { count + 1 } else { 0 };
            flow.has_room(self.leased_of(queue, *key) + count)
        };
        self.lasting(queue).filter(has_room).count() as i64
    }

    /// Items of a queue that were fetched as ready and cannot be given out, by key: they have expired, or are not ready by this
    /// clock.
    pub(crate) fn spoiled(&self, queue: QueueId) -> BTreeMap<KeyTag, i64> {
        let mut spoiled: BTreeMap<KeyTag, i64> = BTreeMap::new();
        for entry in self.entries.values() {
            let head = &entry.head;
            let lasts = head.ready_at <= self.now && head.expires_at.is_none_or(|at| at > self.now);
            if head.queue == queue && entry.counted == CountKind::Pending && !lasts {
                *spoiled.entry(head.fairness_key).or_default() += 1;
            }
        }
        spoiled
    }

    /// Counts finished pages that went as a whole: rows that `queries/remove_due.sql` returns.
    pub(crate) fn removed_whole(&mut self, rows: &[Row]) {
        for row in rows {
            let (completed, failed): (i32, i32) = (row.get(1), row.get(2));
            let counted = self.counted.entry(queue_id(row.get(0))).or_default();
            counted[CountKind::Completed as usize] -= i64::from(completed);
            counted[CountKind::Failed as usize] -= i64::from(failed);
            self.swept += u64::try_from(completed + failed).unwrap_or(0);
            if row.get(3) {
                self.gone.push((row.get(4), row.get(5)));
            }
        }
    }

    /// `queue`: what the change is about, if it is a queue as a whole.
    fn tell(&mut self, change: &Change, queue: Option<QueueId>) {
        if self.tells {
            self.told.extend(change.events(queue));
        }
    }

    fn order_of(&self, queue: QueueId) -> &Order {
        self.by_id(queue).map_or(&Order::Fifo, |(queue, _)| &queue.policy.order)
    }

    /// Its place in the order while it is pending, whether it is ready or not.
    pub(crate) fn key(&self, head: &Head) -> Option<OrderKey> {
        (head.state == State::Pending).then(|| self.order_of(head.queue).key(head))
    }

    /// Where an item stands that is counted like this.
    pub(crate) fn standing(&self, head: &Head, counted: CountKind) -> IndexKeys {
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

    /// How many items of a key are in hand now, in a queue that is locked.
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

    /// Whose it is, where keys take turns.
    pub(crate) fn whose(&self, head: &Head) -> Option<KeyTag> {
        self.takes_turns(head.queue).then_some(head.fairness_key)
    }

    fn place_of(&self, seq: u64, entry: &Entry) -> Option<(KeyTag, OrderPosition)> {
        if entry.counted != CountKind::Pending {
            return None;
        }
        let (queue, _) = self.by_id(entry.head.queue)?;
        let whose = self.whose(&entry.head).unwrap_or_default();
        Some((whose, (queue.policy.order.key(&entry.head), seq)))
    }
}
