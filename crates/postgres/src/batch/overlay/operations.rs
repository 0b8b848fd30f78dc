//! The overlay as the transaction driver's workspace.

use super::{KeyOwner, NeedsLock, Overlay, RoundRobinSlot, Slot};
use crate::batch::outcome::{DeliveredItem, Outcome};
use crate::batch::receive_hints::START;
use std::borrow::Cow;
use std::sync::Arc;
use towline_domain::change::{Answer, QueueChange};
use towline_domain::digest::ContentDigest;
use towline_domain::kv::KvRecord;
use towline_domain::{
    Change, EffectsRecorder, FieldSet, FullKeys, Head, ItemId, KeyTag, QueueId, RateState, RoundRobin,
    Timestamp, Weights,
};
use towline_store::Operation;
use towline_store::transaction::{self, Workspace};

/// Values of `touch`: the sweep, calls that name items, and the first receive.
pub(super) const BY_TIME: u32 = 1;
const BY_CALLS: u32 = 2;
const FIRST_RECEIVE: u32 = 3;

impl Overlay {
    /// `number` is the index of the operation in its batch.
    pub(crate) fn run(&mut self, operation: Operation, number: usize) -> Result<Outcome, NeedsLock> {
        // One worker settles all items of a receive, so they share pages.
        self.touch = match operation {
            Operation::Receive(_) => u32::try_from(number).unwrap_or(u32::MAX).saturating_add(FIRST_RECEIVE),
            _ => BY_CALLS,
        };
        transaction::run(self, operation)
    }

    /// Whether the item that claims a key still exists, and has not freed it.
    pub(crate) fn owns(&self, owner: &KeyOwner) -> bool {
        let seq = owner.seq.cast_signed();
        if self.entries.get(&owner.seq).is_some_and(|entry| entry.head.has_freed_key()) {
            return false;
        }
        match owner.stored {
            true => {
                !self.removed.contains_key(&owner.seq)
                    && !self.removed_pages.iter().any(|(first, last)| (*first..=*last).contains(&seq))
            }
            false => self.entries.contains_key(&owner.seq),
        }
    }

    fn put_kv(&mut self, key: String, record: Option<KvRecord>) {
        let stored = self.kv.get(&key).is_some_and(|slot| slot.stored);
        self.kv.insert(key, Slot { record, stored, changed: true });
    }
}

impl Workspace for Overlay {
    type Fault = NeedsLock;
    type Delivery = DeliveredItem;

    fn now(&self) -> Timestamp {
        self.now
    }

    fn find(&self, id: ItemId) -> Option<u64> {
        self.by_id.get(&id).copied()
    }

    fn head(&self, sequence: u64) -> Option<Cow<'_, Head>> {
        self.entries.get(&sequence).map(|entry| Cow::Borrowed(&entry.head))
    }

    fn key_owner(&self, queue: QueueId, key: &str) -> Option<(ItemId, ContentDigest)> {
        let owner = self.keys.get(&(queue, key.to_owned())).filter(|owner| self.owns(owner))?;
        Some((owner.id, owner.content))
    }

    fn replace_key_owner(&self, queue: QueueId, key: &str) -> Option<u64> {
        self.replace_keys.get(&(queue, key.to_owned())).map(|owner| owner.seq)
    }

    fn record(&self, key: &str) -> Option<&KvRecord> {
        self.kv.get(key)?.record.as_ref()
    }

    fn queue_count(&self) -> usize {
        self.catalog.len()
    }

    fn swept(&self) -> u64 {
        self.swept
    }

    fn next_sequence(&self) -> u64 {
        if self.fresh.is_empty() {
            unreachable!("a number was drawn for every new item");
        }
        self.fresh.start
    }

    fn new_id(&self, sequence: u64) -> ItemId {
        ItemId::derive(self.salt, self.now, sequence)
    }

    fn next_queue_id(&self) -> QueueId {
        self.fresh_queue.unwrap_or_else(|| unreachable!("a number was drawn for every new queue"))
    }

    fn need_exact_counts(&self, queue: QueueId) -> Result<(), NeedsLock> {
        if self.locked.contains_key(&queue) { Ok(()) } else { Err(NeedsLock(queue)) }
    }

    fn first_ready(&mut self, queue: QueueId, key: Option<KeyTag>) -> Option<u64> {
        let ready = self.ready.get(&queue)?;
        let first = match key {
            None => ready.first(),
            Some(key) => ready.range((key, START)..).next().filter(|(first, _)| *first == key),
        };
        first.map(|(_, (_, seq))| *seq)
    }

    fn open_key(&self, queue: QueueId, from: KeyTag) -> Option<KeyTag> {
        let (ready, flow) = (self.ready.get(&queue)?, self.flow_of(queue)?);
        let first = |from: KeyTag| ready.range((from, START)..).next().map(|(key, _)| *key);
        let mut key = first(from)?;
        while !flow.has_room(self.leased_of(queue, key)) {
            key = first(key.after())?;
        }
        Some(key)
    }

    fn ready_left(&mut self, queue: QueueId, delivered_all: bool) -> u64 {
        if self.locked.contains_key(&queue) && !self.limits_keys(queue) {
            return self.counts(queue).pending;
        }
        // For a receive that got all it asked for, no more was fetched.
        let fetched = match self.limits_keys(queue) {
            true => u64::from(self.open_key(queue, KeyTag::NONE).is_some()),
            false => self.ready.get(&queue).map_or(0, |ready| ready.len() as u64),
        };
        fetched.max(u64::from(delivered_all))
    }

    fn full_keys(&self, queue: QueueId) -> FullKeys {
        self.flow_of(queue).map(|flow| self.keys_at_limit(queue, flow)).unwrap_or_default()
    }

    fn rate_state(&self, queue: QueueId) -> RateState {
        self.rates.get(&queue).map(|rate| rate.0).unwrap_or_default()
    }

    fn round_robin(&self, queue: QueueId) -> (RoundRobin, Arc<Weights>) {
        let weights = self.flow_of(queue).map(Weights::of).unwrap_or_default();
        (self.round_robins.get(&queue).map(|slot| slot.round_robin).unwrap_or_default(), Arc::new(weights))
    }

    fn record_delivery(&mut self, queue: QueueId, rate: RateState, round_robin: Option<RoundRobin>) {
        if rate != self.rate_state(queue) {
            self.rates.insert(queue, (rate, true));
        }
        if let Some(round_robin) = round_robin {
            let slot = self.round_robins.entry(queue).or_default();
            (slot.round_robin, slot.changed) = (round_robin, true);
        }
    }

    fn read_bytes(&self, sequence: u64, fields: FieldSet) -> u64 {
        self.entries.get(&sequence).map_or(0, |entry| entry.bytes(fields))
    }

    fn read_budget(&mut self) -> &mut u64 {
        &mut self.read_budget
    }

    fn delivery(&mut self, sequence: u64) -> Option<DeliveredItem> {
        let entry = self.entries.get(&sequence)?;
        let place = (self.order_of(entry.head.queue).key(&entry.head), sequence);
        Some(DeliveredItem::of(sequence, place, entry))
    }

    fn effects(&mut self) -> &mut EffectsRecorder {
        &mut self.effects
    }

    fn apply_item(&mut self, sequence: u64, id: Option<ItemId>, change: Change) -> Result<Answer, NeedsLock> {
        if change.before().is_none() && change.submitted().is_some() {
            self.fresh.start = self.fresh.start.max(sequence + 1);
            self.add(sequence, id.is_some(), &change);
            if let Some((key, record)) = change.record() {
                self.put_kv(key.clone(), Some(record.clone()));
            }
        } else {
            self.apply(sequence, &change);
        }
        Ok(change.answer().clone())
    }

    fn apply_queue(&mut self, queue: Option<QueueId>, change: Change) -> Result<Answer, NeedsLock> {
        self.record_events(&change, queue);
        match (change.queue(), queue) {
            (Some(QueueChange::Put(after)), Some(id))
                if after.policy.flow.takes_turns() && !self.takes_turns(id) =>
            {
                self.round_robins.insert(
                    id,
                    RoundRobinSlot { round_robin: RoundRobin::default(), changed: true, begins: true },
                );
            }
            (Some(QueueChange::Deleted), Some(id)) => drop(self.queues.insert(id, None)),
            _ => {}
        }
        self.put_queue(&change);
        Ok(change.answer().clone())
    }

    fn apply_records(&mut self, after: Vec<(String, Option<KvRecord>)>) -> Result<(), NeedsLock> {
        after.into_iter().for_each(|(key, record)| self.put_kv(key, record));
        Ok(())
    }

    /// The rows of a deleted queue's items are removed by the batch that deletes it.
    fn forget_orphan(&mut self, _: u64) -> Result<(), NeedsLock> {
        Ok(())
    }
}
