//! Operations: the engine as a workspace of the transaction driver.

use super::Engine;
use super::append::AppendedItem;
use crate::index::update::IndexUpdate;
use crate::log::record::{self, Indexed};
use crate::outcome::Outcome;
use crate::plant::Bug;
use std::borrow::Cow;
use std::sync::Arc;
use towline_domain::change::Answer;
use towline_domain::digest::ContentDigest;
use towline_domain::kv::{self, KvRecord};
use towline_domain::{
    Change, Command, Context, Counts, EffectsRecorder, EventKind, FieldSet, FullKeys, Head, ItemId, KeyTag,
    Queue, QueueId, QueueName, RateState, Refusal, RoundRobin, Timestamp, Weights, decide, digest,
};
use towline_store::transaction::{self, ItemChange, Workspace};
use towline_store::{Operation, QueueLookup, StoreError};

impl Engine {
    /// Carries out one operation. An error means that the store is poisoned.
    pub fn run(&mut self, operation: Operation) -> Result<Outcome, StoreError> {
        self.check_poison()?;
        self.sweep()?;
        if let Some(refusal) = self.check_room(&operation) {
            return Ok(Outcome::Decided(Err(refusal)));
        }
        Ok(match transaction::run(self, operation)? {
            transaction::Outcome::Decided(decided) => Outcome::Decided(decided),
            transaction::Outcome::Received(deliveries) => {
                let items = self.unread(&deliveries.items, false);
                Outcome::Received { deliveries, items }
            }
        })
    }
}

impl Engine {
    /// Draws the number of a new item, and finds what the index keeps of it.
    fn prepare_append(&mut self, item: ItemChange) -> AppendedItem {
        let ItemChange { sequence, chosen_id, change } = item;
        // A replaced item keeps the id that its first submitter chose.
        let chosen_id = if change.before().is_some() { self.index.chosen_id(sequence) } else { chosen_id };
        let submitted = change.head().zip(change.submitted());
        let indexed = submitted.and_then(|(head, (body, _))| Indexed::of(head, body, chosen_id));
        self.next_item = self.next_item.max(sequence + 1);
        AppendedItem { sequence, change, indexed }
    }
}

impl QueueLookup for Engine {
    fn by_id(&self, id: QueueId) -> Option<(&Queue, Counts)> {
        self.index.by_id(id)
    }

    fn by_name(&self, name: &QueueName) -> Option<&Queue> {
        self.index.by_name(name)
    }
}

impl Workspace for Engine {
    type Fault = StoreError;
    /// A sequence number: the item is read back from the log.
    type Delivery = u64;

    fn now(&self) -> Timestamp {
        self.index.now
    }

    fn find(&self, id: ItemId) -> Option<u64> {
        self.index.find(id)
    }

    fn head(&self, sequence: u64) -> Option<Cow<'_, Head>> {
        self.index.head(sequence).map(Cow::Owned)
    }

    fn key_owner(&self, queue: QueueId, key: &str) -> Option<(ItemId, ContentDigest)> {
        self.index.key_owner(queue, digest::key(key))
    }

    fn replace_key_owner(&self, queue: QueueId, key: &str) -> Option<u64> {
        self.index.replace_key_owner(queue, digest::replace_key(key))
    }

    fn record(&self, key: &str) -> Option<&KvRecord> {
        self.index.kv.get(key).map(|slot| &slot.record)
    }

    fn queue_count(&self) -> usize {
        self.index.queues.len()
    }

    fn swept(&self) -> u64 {
        self.swept
    }

    fn next_sequence(&self) -> u64 {
        self.next_item
    }

    fn new_id(&self, sequence: u64) -> ItemId {
        ItemId::derive(self.salt, self.index.now, sequence)
    }

    fn next_queue_id(&self) -> QueueId {
        QueueId(self.next_queue)
    }

    fn check_item_room(&self, more: u64) -> Result<(), Refusal> {
        match self.index.table.len() {
            held if held + more > self.options.items_max => Err(Refusal::StoreFull { what: "items", held }),
            _ => Ok(()),
        }
    }

    fn check_record_room(&self, after: &[(String, Option<KvRecord>)]) -> Result<(), Refusal> {
        kv::check_room(after, |key| self.record(key), self.index.kv_bytes, self.options.kv_bytes_max)
    }

    fn has_room_for_leases(&mut self) -> bool {
        self.has_room()
    }

    fn first_ready(&mut self, queue: QueueId, key: Option<KeyTag>) -> Option<u64> {
        self.index.first_ready(queue, key)
    }

    fn open_key(&self, queue: QueueId, from: KeyTag) -> Option<KeyTag> {
        self.index.queues.get(&queue)?.ready_queue.open_key(from)
    }

    fn ready_left(&mut self, queue: QueueId, _: bool) -> u64 {
        let Some(known) = self.index.queues.get(&queue) else { return 0 };
        // The ready items of keys at their limit are not counted separately.
        match known.queue.policy.flow.limits_keys() {
            true => u64::from(known.ready_queue.open_key(KeyTag::NONE).is_some()),
            false => known.counts.pending,
        }
    }

    fn full_keys(&self, queue: QueueId) -> FullKeys {
        self.index.queues.get(&queue).map(|known| known.ready_queue.full_keys()).unwrap_or_default()
    }

    fn rate_state(&self, queue: QueueId) -> RateState {
        self.index.queues.get(&queue).map(|known| known.rate).unwrap_or_default()
    }

    fn round_robin(&self, queue: QueueId) -> (RoundRobin, Arc<Weights>) {
        self.index.queues.get(&queue).map(|known| known.ready_queue.round_robin()).unwrap_or_default()
    }

    fn record_delivery(&mut self, queue: QueueId, rate: RateState, round_robin: Option<RoundRobin>) {
        if let Some(known) = self.index.queues.get_mut(&queue) {
            known.rate = rate;
            if let Some(round_robin) = round_robin {
                known.ready_queue.set_round_robin(round_robin);
            }
        }
    }

    fn read_bytes(&self, sequence: u64, fields: FieldSet) -> u64 {
        self.index.bytes_of(sequence, record::parts_of(fields))
    }

    fn read_budget(&mut self) -> &mut u64 {
        &mut self.read_budget
    }

    fn delivery(&mut self, sequence: u64) -> Option<u64> {
        Some(sequence)
    }

    fn decide(&self, context: &Context<'_>, mut command: Command) -> Result<Change, Refusal> {
        let mut now = self.index.now;
        if let Command::Lease(call) = &mut command {
            if self.plant(Bug::NoLeaseCheck)
                && let Some(lease) = context.item.and_then(Head::lease)
            {
                call.token = lease.token;
            }
            if self.plant(Bug::DeadlineOffByOne) {
                now = Timestamp(now.0.saturating_sub(1));
            }
        }
        decide(context, command, now)
    }

    fn effects(&mut self) -> &mut EffectsRecorder {
        &mut self.effects
    }

    fn apply_item(
        &mut self,
        sequence: u64,
        id: Option<ItemId>,
        change: Change,
    ) -> Result<Answer, StoreError> {
        let lapsed = self.plant(Bug::LapseNotCounted) && change.event() == Some(EventKind::Lapsed);
        let retries = self.index.head(sequence).filter(|_| lapsed).map(|head| head.retries);
        let item = self.prepare_append(ItemChange { sequence, chosen_id: id, change });
        let answer = self.append_item(item)?;
        if let Some(retries) = retries
            && let Some(extra) = self.index.table.extra_mut(sequence)
        {
            extra.head.retries = retries;
        }
        Ok(answer)
    }

    fn apply_together(&mut self, mut changes: Vec<ItemChange>) -> Result<(), StoreError> {
        if self.plant(Bug::HandOffInTwoFrames) {
            let commit = (!changes.is_empty()).then(|| changes.remove(0));
            let submits = changes.into_iter().map(|change| self.prepare_append(change)).collect();
            self.append_items(submits)?;
            self.write_frame()?;
            changes = commit.into_iter().collect();
        }
        let items = changes.into_iter().map(|change| self.prepare_append(change)).collect();
        self.append_items(items)
    }

    fn apply_queue(&mut self, queue: Option<QueueId>, change: Change) -> Result<Answer, StoreError> {
        self.next_queue += u32::from(queue.is_none());
        self.append_queue(queue, &change)?;
        Ok(change.answer().clone())
    }

    fn apply_records(&mut self, after: Vec<(String, Option<KvRecord>)>) -> Result<(), StoreError> {
        // All records are in one frame, so that a replay applies all of them or none.
        let first = self.frame.len();
        let lengths: Vec<u32> = after
            .iter()
            .map(|(key, after)| match after {
                Some(record) => record::encode_kv(&mut self.frame, key, record, self.salt),
                None => record::encode_kv_deleted(&mut self.frame, key, self.salt),
            })
            .collect();
        let mut start = self.fit(first)?;
        for ((key, after), length) in after.into_iter().zip(lengths) {
            let place = self.place(start, length);
            start += length as usize;
            self.apply(match after {
                Some(record) => IndexUpdate::Kv { key, record, place },
                None => IndexUpdate::KvDeleted { key },
            })?;
        }
        Ok(())
    }

    fn forget_orphan(&mut self, sequence: u64) -> Result<(), StoreError> {
        if self.index.head(sequence).is_none() {
            return Err(self.poison("the index names an item it does not hold"));
        }
        self.apply(IndexUpdate::ItemRemoved { sequence })
    }
}
