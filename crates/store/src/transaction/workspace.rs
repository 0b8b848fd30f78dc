//! What the transaction driver needs of a store.

use crate::QueueLookup;
use std::borrow::Cow;
use std::sync::Arc;
use towline_domain::change::Answer;
use towline_domain::digest::ContentDigest;
use towline_domain::kv::KvRecord;
use towline_domain::{
    Change, Command, Context, EffectsRecorder, FieldSet, FullKeys, Head, ItemId, KeyTag, QueueId, RateState,
    Refusal, RoundRobin, Timestamp, Weights, decide,
};

/// A decided change of one item, as [`Workspace::apply_item`] takes it.
#[derive(Debug)]
pub struct ItemChange {
    pub sequence: u64,
    /// For a new item: the id its submitter chose.
    pub chosen_id: Option<ItemId>,
    pub change: Change,
}

/// A store as one batch sees it: every operation sees the changes of the operations before it.
///
/// Items are identified by sequence numbers. A store assigns one at submit and never reuses it.
///
/// **Invariant:** a workspace finds and applies. Only the driver calls `decide`, and nothing else changes state.
pub trait Workspace: QueueLookup {
    /// Why the batch cannot continue. Answers none of its operations.
    type Fault;
    /// A delivered item, as the store reads it back once the batch is durable.
    type Delivery;

    fn now(&self) -> Timestamp;

    // Lookup.

    fn find(&self, id: ItemId) -> Option<u64>;
    fn head(&self, sequence: u64) -> Option<Cow<'_, Head>>;
    /// The item that has an idempotency key in a queue, and its content.
    fn key_owner(&self, queue: QueueId, key: &str) -> Option<(ItemId, ContentDigest)>;
    /// The latest item submitted with this replace key, replaceable or not.
    fn replace_key_owner(&self, queue: QueueId, key: &str) -> Option<u64>;
    fn record(&self, key: &str) -> Option<&KvRecord>;
    fn queue_count(&self) -> usize;
    /// The number of items that were due and changed in this batch.
    fn swept(&self) -> u64;

    // New numbers and ids.

    fn next_sequence(&self) -> u64;
    fn new_id(&self, sequence: u64) -> ItemId;
    fn next_queue_id(&self) -> QueueId;

    // Checks before a decision.

    /// Called before a decision that depends on exact counts of a queue.
    fn need_exact_counts(&self, _queue: QueueId) -> Result<(), Self::Fault> {
        Ok(())
    }
    /// Refuses `more` new items if the store has no room for all of them.
    fn check_item_room(&self, _more: u64) -> Result<(), Refusal> {
        Ok(())
    }
    /// Refuses records that would exceed the store's room for them.
    fn check_record_room(&self, _after: &[(String, Option<KvRecord>)]) -> Result<(), Refusal> {
        Ok(())
    }
    /// Whether a receive may take another item. If not, it returns what it has.
    fn has_room_for_leases(&mut self) -> bool {
        true
    }

    // Ready items, in the queue's order.

    /// The first ready item of a queue, or of one of its fairness keys.
    fn first_ready(&mut self, queue: QueueId, key: Option<KeyTag>) -> Option<u64>;
    /// The first fairness key, from `from` on, that has a ready item and is below its limit.
    fn open_key(&self, queue: QueueId, from: KeyTag) -> Option<KeyTag>;
    /// A lower bound of the items that could be delivered now without the limits of concurrency and rate.
    /// `delivered_all`: the receive got as many as it asked for.
    fn ready_left(&mut self, queue: QueueId, delivered_all: bool) -> u64;
    fn full_keys(&self, queue: QueueId) -> FullKeys;
    fn rate_state(&self, queue: QueueId) -> RateState;
    /// The round robin of a queue and its weights. Called only for queues whose keys take turns.
    fn round_robin(&self, queue: QueueId) -> (RoundRobin, Arc<Weights>);
    fn record_delivery(&mut self, queue: QueueId, rate: RateState, round_robin: Option<RoundRobin>);

    // Reading delivered items back.

    /// Bytes to read for these fields of an item.
    fn read_bytes(&self, sequence: u64, fields: FieldSet) -> u64;
    fn read_budget(&mut self) -> &mut u64;
    fn delivery(&mut self, sequence: u64) -> Option<Self::Delivery>;

    // Deciding and applying.

    /// A store with a planted bug overrides this.
    fn decide(&self, context: &Context<'_>, command: Command) -> Result<Change, Refusal> {
        decide(context, command, self.now())
    }
    fn effects(&mut self) -> &mut EffectsRecorder;
    /// Applies a change to the item with this sequence number. For a new item, `id` is the id its submitter chose.
    fn apply_item(
        &mut self,
        sequence: u64,
        id: Option<ItemId>,
        change: Change,
    ) -> Result<Answer, Self::Fault>;
    /// Applies the changes of one step to several items: after a crash, the store has all of them or none.
    ///
    /// A store whose batch is one transaction needs no more than this.
    fn apply_together(&mut self, changes: Vec<ItemChange>) -> Result<(), Self::Fault> {
        for ItemChange { sequence, chosen_id, change } in changes {
            self.apply_item(sequence, chosen_id, change)?;
        }
        Ok(())
    }
    /// Applies a change to a queue. `queue` is `None` for a new one.
    fn apply_queue(&mut self, queue: Option<QueueId>, change: Change) -> Result<Answer, Self::Fault>;
    fn apply_records(&mut self, after: Vec<(String, Option<KvRecord>)>) -> Result<(), Self::Fault>;
    /// Forgets an item whose queue was deleted. An item that does not exist is a fault of the store.
    fn forget_orphan(&mut self, sequence: u64) -> Result<(), Self::Fault>;
}
