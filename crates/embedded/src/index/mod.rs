//! The index: all that the store knows without reading its log. It is in memory, and opening rebuilds it from the log.
//!
//! **Invariant:** only [`Index::apply`] changes it, with the content of a record ([`Index::tally`] also does, with what the end
//! of the frame will contain). A replay of the records gives the same index as the changes themselves.

mod labels;
mod membership;
mod places;
pub(crate) mod ready_queue;
pub(crate) mod references;
mod replay;
pub(crate) mod table;
mod tallies;
pub(crate) mod update;

pub use labels::AllOf;

use crate::events::queue_names::QueueNames;
use crate::index::ready_queue::ReadyQueue;
use crate::index::table::{Slot, Table};
use crate::index::update::{IndexUpdate, ItemUpdate};
use crate::log::record::{ERROR, Indexed, KeyClaim, RecordPlace};
use membership::{fairness_key, is_live, order_key};
use rustc_hash::FxHashMap;
use smallvec::SmallVec;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use tallies::Hours;
use towline_domain::digest::{self, ContentDigest};
use towline_domain::kv::KvRecord;
use towline_domain::{
    CountKind, Counts, EffectsRecorder, Head, Hour, ItemId, KeyTag, OrderKey, Queue, QueueId, QueueName,
    RateState, Timestamp,
};
use towline_store::{QueueLookup, QueueView};

/// Maximum number of items that one call makes ready. The next call continues; late items still get their position.
const READY_MAX: usize = 65_536;
/// Maximum number of expired key-value records that one call drops. Until then they count for the limit of their bytes only.
const KV_DROPPED_MAX: usize = 8192;

#[derive(Default)]
pub struct Index {
    pub table: Table,
    pub queues: FxHashMap<QueueId, QueueIndex>,
    pub names: BTreeMap<QueueName, QueueId>,
    /// Pending items that are not ready yet, by the time when they become ready.
    schedule: BTreeSet<(Timestamp, u64)>,
    /// Items that time alone will change (lapse, expire, remove), by due time.
    timers: BTreeSet<(Timestamp, u64)>,
    /// The items that claim an idempotency key or a replace key: at most one in each queue.
    keys: FxHashMap<ContentDigest, SmallVec<[(QueueId, u64); 1]>>,
    /// Ids that submitters chose. A tree, because submitters could choose ids that collide in a hash table.
    ids: BTreeMap<ItemId, u64>,
    labels: FxHashMap<u64, BTreeSet<u64>>,
    pub kv: BTreeMap<String, KvSlot>,
    kv_timers: BTreeSet<(Timestamp, String)>,
    pub kv_bytes: usize,
    tallies: FxHashMap<QueueId, Hours>,
    /// In the order in which they expire.
    tally_hours: BTreeSet<(Hour, QueueId)>,
    /// Live bytes by segment number.
    live: Vec<u64>,
    live_total: u64,
    /// A segment had fewer live bytes than a record that died, so the live bytes are wrong.
    is_miscounted: bool,
    /// The next sequence number at which to look for items of deleted queues.
    reap_from: Option<u64>,
    /// A queue was deleted during this round, so another round is needed.
    reap_again: bool,
    /// During a replay, items are in no ready queue, schedule or count: a queue may be carried behind its items.
    replaying: bool,
    /// The time up to which due items have become ready.
    pub now: Timestamp,
    pub(crate) queue_names: Arc<QueueNames>,
}

pub struct QueueIndex {
    pub queue: Queue,
    pub counts: Counts,
    pub(crate) ready_queue: ReadyQueue,
    place: RecordPlace,
    /// The state of the rate limit. Not in the log: after opening, one more burst may pass.
    pub rate: RateState,
}

pub struct KvSlot {
    pub record: KvRecord,
    place: RecordPlace,
}

/// A record that contradicts the records before it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct LogInconsistency(pub &'static str);

impl QueueIndex {
    /// Adapts the ready queue to a changed policy. Rebuilds it if keys now take turns, or no longer do; an item in two
    /// ready queues would be delivered twice. Counts the leases of each key if keys now have a limit.
    fn adapt_ready_queue(&mut self, table: &Table, replaying: bool) {
        let is_new = self.ready_queue.change(&self.queue.policy.flow);
        if is_new {
            self.rebuild_ready_queue(table);
        }
        let flow = &self.queue.policy.flow;
        let counts = if is_new { flow.concurrency_per_key.is_some() } else { self.ready_queue.limit(flow) };
        if counts && !replaying {
            table.scan(0, usize::MAX, |sequence, slot| {
                if slot.queue == self.queue.id && slot.kind() == CountKind::Processing {
                    self.ready_queue.leased(fairness_key(table, sequence));
                }
                true
            });
        }
    }

    fn rebuild_ready_queue(&mut self, table: &Table) {
        let policy = &self.queue.policy;
        let mut ready = self.ready_queue.entries();
        ready.retain(|&(rank, entry)| is_live(table, self.queue.id, &policy.order, rank, entry));
        ready.sort_unstable();
        self.ready_queue = ReadyQueue::new(&policy.order, &policy.flow);
        for (rank, entry) in ready {
            let key = OrderKey { rank, time: entry.time };
            self.ready_queue.push(fairness_key(table, entry.sequence), key, entry.sequence);
        }
    }
}

impl QueueLookup for Index {
    fn by_id(&self, id: QueueId) -> Option<(&Queue, Counts)> {
        self.queues.get(&id).map(|queue| (&queue.queue, queue.counts))
    }

    fn by_name(&self, name: &QueueName) -> Option<&Queue> {
        self.names.get(name).and_then(|id| self.queues.get(id)).map(|queue| &queue.queue)
    }
}

impl Index {
    pub fn new(salt: u64) -> Index {
        let mut index = Index::default();
        index.table.salt = salt;
        index
    }

    pub fn queue_named(&self, name: &QueueName) -> Option<&QueueIndex> {
        self.names.get(name).and_then(|id| self.queues.get(id))
    }

    /// The sequence number of the item with this id. `None`: the item or its queue does not exist.
    pub fn find(&self, id: ItemId) -> Option<u64> {
        let sequence = match self.ids.get(&id) {
            Some(&sequence) => sequence,
            None => {
                let sequence = id.sequence(self.table.salt)?;
                let slot = self.table.slot(sequence)?;
                let same = match self.table.extra(sequence) {
                    Some(extra) => extra.head.id == id,
                    None => ItemId::derive(self.table.salt, slot.ready_at, sequence) == id,
                };
                same.then_some(sequence)?
            }
        };
        self.queues.contains_key(&self.table.slot(sequence)?.queue).then_some(sequence)
    }

    /// The id that the submitter chose, if any.
    pub fn chosen_id(&self, sequence: u64) -> Option<ItemId> {
        self.table.extra(sequence)?.indexed.as_ref()?.id
    }

    pub fn key_owner(&self, queue: QueueId, key: ContentDigest) -> Option<(ItemId, ContentDigest)> {
        let sequence = self.keys.get(&key)?.iter().find(|owner| owner.0 == queue)?.1;
        let extra = self.table.extra(sequence)?;
        // An item of a deleted queue does not exist, though it may not have been reaped yet.
        self.queues.get(&extra.head.queue)?;
        if extra.head.has_freed_key() {
            return None;
        }
        let content = extra.indexed.as_ref()?.key?.content;
        Some((extra.head.id, content))
    }

    /// The latest item with this replace key, even if it cannot be replaced any more.
    pub fn replace_key_owner(&self, queue: QueueId, key: ContentDigest) -> Option<u64> {
        let sequence = self.keys.get(&key)?.iter().find(|owner| owner.0 == queue)?.1;
        self.queues.contains_key(&self.table.slot(sequence)?.queue).then_some(sequence)
    }

    /// Items with this idempotency key from `first` on, in all queues: the first ones in order, at least `limit` if there are
    /// so many.
    pub fn keyed(&self, key: &str, first: u64, limit: usize) -> Vec<u64> {
        let owners = self.keys.get(&digest::key(key)).into_iter().flatten().map(|owner| owner.1);
        let labelled =
            self.labels.get(&digest::key_label(key)).into_iter().flat_map(|set| set.range(first..));
        let mut found: Vec<u64> = labelled.copied().take(limit).collect();
        // Behind the last one there may be more that are not in the list.
        let end = if found.len() < limit { u64::MAX } else { found.last().copied().unwrap_or(u64::MAX) };
        found.extend(owners.filter(|owner| (first..=end).contains(owner)));
        found.sort_unstable();
        found.dedup();
        found
    }

    /// The items from `first` on that have all of these labels, in order of sequence number.
    pub fn labelled_all(&self, labels: &[u64], first: u64) -> AllOf<'_> {
        AllOf::new(labels.iter().map(|label| self.labels.get(label)), first)
    }

    /// The first ready item of a queue, or of one fairness key of it.
    pub fn first_ready(&mut self, queue: QueueId, key: Option<KeyTag>) -> Option<u64> {
        let Index { queues, table, .. } = self;
        let queue = queues.get_mut(&queue)?;
        let (id, order) = (queue.queue.id, &queue.queue.policy.order);
        queue
            .ready_queue
            .first(key, |rank, entry| is_live(table, id, order, rank, entry))
            .map(|(_, entry)| entry.sequence)
    }

    pub fn view(&mut self, queue: QueueId) -> Option<QueueView> {
        let Index { queues, table, .. } = self;
        let known = queues.get_mut(&queue)?;
        let order = &known.queue.policy.order;
        let oldest_ready = known.ready_queue.oldest(|rank, entry| is_live(table, queue, order, rank, entry));
        Some(QueueView { queue: known.queue.clone(), counts: known.counts, oldest_ready })
    }

    /// When time next changes an item or makes an item ready.
    pub fn next_wake(&self) -> Option<Timestamp> {
        let times = [self.timers.first().map(|timer| timer.0), self.schedule.first().map(|due| due.0)];
        times.into_iter().flatten().min()
    }

    /// The next item whose timer is due.
    pub fn next_due(&self, now: Timestamp) -> Option<u64> {
        self.timers.first().filter(|timer| timer.0 <= now).map(|timer| timer.1)
    }

    /// Makes items ready that are due by `now`. Writes no record: log and time give the same result at a replay.
    pub fn advance(&mut self, now: Timestamp, effects: &mut EffectsRecorder) {
        self.now = self.now.max(now);
        for _ in 0..READY_MAX {
            let Some(&(time, sequence)) = self.schedule.first() else { break };
            if time > self.now {
                break;
            }
            self.schedule.pop_first();
            let Some(slot) = self.table.slot_mut(sequence) else {
                continue;
            };
            slot.set_kind(CountKind::Pending);
            let id = slot.queue;
            let Some(queue) = self.queues.get_mut(&id) else {
                continue;
            };
            queue.counts.remove(CountKind::Scheduled);
            queue.counts.add(CountKind::Pending);
            let fairness_key = fairness_key(&self.table, sequence);
            if let Some(key) = order_key(&self.table, &queue.queue.policy.order, sequence) {
                queue.ready_queue.push(fairness_key, key, sequence);
            }
            effects.promoted(id, fairness_key);
        }
        for _ in 0..KV_DROPPED_MAX {
            match self.kv_timers.first() {
                Some((time, _)) if *time <= self.now => {}
                _ => break,
            }
            if let Some((_, key)) = self.kv_timers.pop_first() {
                self.drop_kv(&key);
            }
        }
        self.forget_hours(self.now);
    }

    pub fn apply(&mut self, entry: IndexUpdate) -> Result<(), LogInconsistency> {
        self.apply_update(entry)?;
        match self.is_miscounted {
            false => Ok(()),
            true => Err(LogInconsistency("a segment has fewer live bytes than the record that dies")),
        }
    }

    fn apply_update(&mut self, entry: IndexUpdate) -> Result<(), LogInconsistency> {
        match entry {
            IndexUpdate::Item(entry) => self.apply_item(entry),
            IndexUpdate::ItemRemoved { sequence } => {
                self.remove_item(sequence);
                Ok(())
            }
            IndexUpdate::Queue { queue, place } => {
                self.add_live(place);
                self.names.insert(queue.name.clone(), queue.id);
                self.queue_names.add(queue.id, &queue.name);
                match self.queues.get_mut(&queue.id) {
                    Some(known) => {
                        let old = std::mem::replace(&mut known.place, place);
                        known.queue = *queue;
                        known.adapt_ready_queue(&self.table, self.replaying);
                        self.drop_live(old);
                    }
                    None => {
                        let ready_queue = ReadyQueue::new(&queue.policy.order, &queue.policy.flow);
                        let known = QueueIndex {
                            counts: Counts::default(),
                            ready_queue,
                            place,
                            rate: RateState::default(),
                            queue: *queue,
                        };
                        self.queues.insert(known.queue.id, known);
                    }
                }
                Ok(())
            }
            IndexUpdate::QueueDeleted { id, name } => {
                self.queue_names.delete(id, name);
                if let Some(gone) = self.queues.remove(&id) {
                    self.drop_live(gone.place);
                    self.forget_tallies_of(id);
                    if self.names.get(&gone.queue.name) == Some(&id) {
                        self.names.remove(&gone.queue.name);
                    }
                    self.start_reaping();
                }
                Ok(())
            }
            IndexUpdate::Kv { key, record, place } => {
                self.drop_kv(&key);
                self.add_live(place);
                self.kv_bytes += record.bytes(&key);
                if let Some(at) = record.expires_at {
                    self.kv_timers.insert((at, key.clone()));
                }
                self.kv.insert(key, KvSlot { record, place });
                Ok(())
            }
            IndexUpdate::KvDeleted { key } => {
                self.drop_kv(&key);
                Ok(())
            }
            IndexUpdate::Tally { queue, key, tally, place } => {
                self.put_tally(queue, &key, tally, place);
                Ok(())
            }
        }
    }

    fn drop_kv(&mut self, key: &str) {
        if let Some(slot) = self.kv.remove(key) {
            self.kv_bytes -= slot.record.bytes(key);
            if let Some(at) = slot.record.expires_at {
                self.kv_timers.remove(&(at, key.to_owned()));
            }
            self.drop_live(slot.place);
        }
    }

    fn apply_item(&mut self, entry: ItemUpdate) -> Result<(), LogInconsistency> {
        let ItemUpdate { sequence, place, parts, head, indexed, error_ordinal } = entry;
        if self.table.slot(sequence).is_none() {
            let Some(mut head) = head else {
                return Err(LogInconsistency("the first record of an item has no head"));
            };
            if let Some(id) = indexed.as_ref().and_then(|indexed| indexed.id) {
                head.id = id;
            }
            self.add_live(place);
            self.table.insert(sequence, place, parts, &head);
            if indexed.is_some() || parts & ERROR != 0 || !self.table.is_plain(sequence, &head) {
                if let Some(extra) = self.table.make_extra(sequence) {
                    extra.base_parts = parts & !ERROR;
                    extra.head = head;
                    if parts & ERROR != 0 {
                        extra.errors.push((error_ordinal, place));
                    }
                }
                self.add_indexed(sequence, indexed);
            }
            self.index(sequence);
            return Ok(());
        }

        // A plain item whose whole record is carried forward stays plain.
        let carried_whole = |slot: &Slot, head: &Head| {
            slot.is_plain() && slot.plain_parts() == parts && self.table.is_plain(sequence, head)
        };
        if let (Some(slot), Some(head), None) = (self.table.slot(sequence), &head, &indexed)
            && carried_whole(slot, head)
        {
            self.add_live(place);
            if let Some(slot) = self.table.slot_mut(sequence) {
                let old = std::mem::replace(&mut slot.place, place);
                self.drop_live(old);
            }
            return Ok(());
        }
        if let Some(head) = head {
            self.unindex(sequence);
            self.set_parts(sequence, place, parts, error_ordinal, indexed);
            let Some(slot) = self.table.slot_mut(sequence) else {
                return Ok(());
            };
            (slot.queue, slot.ready_at, slot.priority) = (head.queue, head.ready_at, head.priority);
            if let Some(extra) = self.table.extra_mut(sequence) {
                let id = extra.indexed.as_ref().and_then(|indexed| indexed.id);
                extra.head = head;
                if let Some(id) = id {
                    extra.head.id = id;
                }
            }
            self.index(sequence);
        } else {
            self.set_parts(sequence, place, parts, error_ordinal, indexed);
        }
        Ok(())
    }

    fn add_indexed(&mut self, sequence: u64, indexed: Option<Box<Indexed>>) {
        let Some(indexed) = indexed else { return };
        if let Some(KeyClaim { queue, digest, .. }) = indexed.key {
            let owners = self.keys.entry(digest).or_default();
            match owners.iter_mut().find(|owner| owner.0 == queue) {
                // The latest item with a key owns it. An older item may be carried behind it.
                Some(owner) => owner.1 = owner.1.max(sequence),
                None => owners.push((queue, sequence)),
            }
        }
        if let Some(id) = indexed.id {
            self.ids.insert(id, sequence);
        }
        let before = self.table.extra_mut(sequence).and_then(|extra| extra.indexed.take());
        self.drop_labels(sequence, &before.map_or_else(Vec::new, |before| before.labels));
        for &label in &indexed.labels {
            self.labels.entry(label).or_default().insert(sequence);
        }
        if let Some(extra) = self.table.extra_mut(sequence) {
            if let Some(id) = indexed.id {
                extra.head.id = id;
            }
            extra.indexed = Some(indexed);
        }
    }

    fn drop_labels(&mut self, sequence: u64, labels: &[u64]) {
        for label in labels {
            if let Some(set) = self.labels.get_mut(label) {
                set.remove(&sequence);
                if set.is_empty() {
                    self.labels.remove(label);
                }
            }
        }
    }

    fn remove_item(&mut self, sequence: u64) {
        let places = self.places(sequence).unwrap_or_default();
        self.unindex(sequence);
        let Some((_, extra)) = self.table.remove(sequence) else {
            return;
        };
        for at in places {
            self.drop_live(at.place);
        }
        let Some(indexed) = extra.and_then(|extra| extra.indexed) else {
            return;
        };
        if let Some(KeyClaim { queue, digest, .. }) = indexed.key
            && let Some(owners) = self.keys.get_mut(&digest)
        {
            owners.retain(|owner| *owner != (queue, sequence));
            if owners.is_empty() {
                self.keys.remove(&digest);
            }
        }
        // After the queue was deleted, another item may have the same id.
        if let Some(id) = indexed.id
            && self.ids.get(&id) == Some(&sequence)
        {
            self.ids.remove(&id);
        }
        self.drop_labels(sequence, &indexed.labels);
    }

    pub fn head(&self, sequence: u64) -> Option<Head> {
        self.table.head(sequence)
    }
}
