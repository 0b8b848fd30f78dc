//! The fetch plan: what a batch has to fetch and lock before its operations can be decided.

use crate::catalog::Catalog;
use crate::connection::session::Parameters;
use crate::encoding::sql::queue_number;
use std::collections::{BTreeMap, BTreeSet};
use towline_domain::{Body, Flow, HandOff, ItemId, Queue, QueueId, Submission};
use towline_store::Operation;
use uuid::Uuid;

/// Items to look up, as parameters of a statement.
#[derive(Debug, Default)]
pub(crate) struct ItemLookup {
    /// First and last numbers of ranges of sequence numbers.
    pub(crate) low: Vec<i64>,
    pub(crate) high: Vec<i64>,
    /// Ids that submitters chose.
    pub(crate) chosen: Vec<Uuid>,
}

impl ItemLookup {
    /// Looks an item up by the sequence number in its id, or by the id if it has none. With `thorough`, by both: after an item
    /// was removed, a submitter may choose its id for a new item.
    pub(crate) fn of(ids: &[ItemId], salt: u64, thorough: bool) -> ItemLookup {
        let mut items = ItemLookup::default();
        let mut numbers = Vec::with_capacity(ids.len());
        for id in ids {
            let number = id.sequence(salt).and_then(|number| i64::try_from(number).ok());
            numbers.extend(number);
            if thorough || number.is_none() {
                items.chosen.push(id.0);
            }
        }
        numbers.sort_unstable();
        for number in numbers {
            match items.high.last_mut() {
                Some(high) if number <= *high + 1 => *high = number.max(*high),
                _ => {
                    items.low.push(number);
                    items.high.push(number);
                }
            }
        }
        items
    }

    pub(crate) fn parameters(&self) -> Parameters<'_> {
        vec![&self.low, &self.high, &self.chosen]
    }
}

#[derive(Debug, Default)]
pub(crate) struct FetchPlan {
    pub(crate) items: ItemLookup,
    /// The ids of the same items, to find out which were not found.
    pub(crate) named: Vec<ItemId>,
    pub(crate) key_queues: Vec<i32>,
    pub(crate) keys: Vec<Vec<u8>>,
    /// `keys` has replace keys. The items that own them must be locked.
    pub(crate) replaces: bool,
    pub(crate) kv_keys: Vec<Vec<u8>>,
    pub(crate) submits: usize,
    pub(crate) creates_queue: bool,
    /// No other batch may run at the same time.
    pub(crate) exclusive: bool,
    /// The batch sweeps first.
    pub(crate) sweeps: bool,
    /// A caller asked for a sweep.
    pub(crate) asked_to_sweep: bool,
    /// How many ready items of each queue the receives may need.
    pub(crate) receives: BTreeMap<QueueId, usize>,
    /// A queue that is about to get a concurrency limit for each key: its leases must be counted by key from then on.
    pub(crate) counts_leases: Option<QueueId>,
    /// Queues whose counts must be exact.
    pub(crate) locks: BTreeSet<QueueId>,
    /// How many ready items other operations may take away from the receives.
    may_take_ready: usize,
}

/// Whether the operation changes a queue as a whole. Such an operation runs in its own batch, and no other batch runs at the
/// same time.
pub(crate) fn is_structural(operation: &Operation) -> bool {
    matches!(
        operation,
        Operation::CreateQueue { .. }
            | Operation::ChangePolicy { .. }
            | Operation::CloseQueue { .. }
            | Operation::PauseQueue { .. }
            | Operation::ResumeQueue { .. }
            | Operation::DeleteQueue { .. }
    )
}

/// Upper bound of what one batch can deliver, if up to `lease_ends` leases end in it.
fn deliveries_max(flow: &Flow, lease_ends: usize) -> usize {
    let slots = flow.concurrency.map_or(usize::MAX, |max| (max as usize).saturating_add(lease_ends));
    slots.min(flow.rate.map_or(usize::MAX, |rate| rate.burst as usize))
}

/// The first byte of a replace key in `keys`. No text begins with it, so it distinguishes replace keys from idempotency keys.
const REPLACE_KEY: u8 = 0xff;

pub(crate) fn replace_key(key: &str) -> Vec<u8> {
    [&[REPLACE_KEY], key.as_bytes()].concat()
}

/// The text of a replace key; `None` for an idempotency key.
pub(crate) fn read_replace_key(stored: &[u8]) -> Option<&[u8]> {
    stored.strip_prefix(&[REPLACE_KEY])
}

impl FetchPlan {
    pub(crate) fn of(operations: &[Operation], catalog: &Catalog, salt: u64, thorough: bool) -> FetchPlan {
        let mut plan = FetchPlan::default();
        for operation in operations {
            plan.exclusive |= is_structural(operation);
            plan.add(operation.asked(), catalog);
        }
        let named = plan.named.len();
        for (queue, wanted) in &mut plan.receives {
            let flow = catalog.by_id(*queue).map(|queue| &queue.policy.flow);
            if let Some(flow) = flow.filter(|flow| flow.is_limited()) {
                *wanted = deliveries_max(flow, named).min(*wanted);
            }
            // Other operations of the batch may take away items before a receive gets them.
            *wanted += plan.may_take_ready;
        }
        plan.items = ItemLookup::of(&plan.named, salt, thorough);
        plan
    }

    fn add(&mut self, operation: &Operation, catalog: &Catalog) {
        match operation {
            Operation::Submit { queue, submission } => self.add_submit(catalog.by_name(queue), submission),
            Operation::Receive(call) => {
                if let Some(queue) = catalog.by_name(&call.queue).filter(|queue| !queue.paused)
                    && call.check().is_ok()
                {
                    *self.receives.entry(queue.id).or_default() += call.max as usize;
                    if queue.policy.flow.is_limited() {
                        self.locks.insert(queue.id);
                    }
                }
            }
            Operation::Lease { id, call } => {
                self.named.push(*id);
                for HandOff { queue, submission } in &call.adjust.then_submit {
                    self.add_submit(catalog.by_name(queue), submission);
                }
            }
            Operation::Resume { id }
            | Operation::Redrive { id }
            | Operation::ResolveDependency { id, .. } => {
                self.named.push(*id);
            }
            Operation::Cancel { id, .. }
            | Operation::Pause { id }
            | Operation::Delete { id, .. }
            | Operation::SetPriority { id, .. }
            | Operation::Move { id, .. } => {
                self.named.push(*id);
                self.may_take_ready += 1;
            }
            Operation::Kv { key, command } => {
                self.kv_keys.push(key.as_bytes().to_vec());
                self.kv_keys.extend(command.mark(key).map(String::into_bytes));
            }
            Operation::CreateQueue { .. } => self.creates_queue = true,
            Operation::ChangePolicy { queue, patch } => {
                let queue = catalog.by_name(queue);
                self.locks.extend(queue.map(|queue| queue.id));
                let limits = matches!(patch.concurrency_per_key, Some(Some(_)));
                let begins = queue.filter(|queue| limits && !queue.policy.flow.limits_keys());
                self.counts_leases = begins.map(|queue| queue.id);
            }
            Operation::CloseQueue { queue }
            | Operation::PauseQueue { queue }
            | Operation::ResumeQueue { queue }
            | Operation::DeleteQueue { queue, .. } => {
                self.locks.extend(catalog.by_name(queue).map(|queue| queue.id));
            }
            Operation::Restore(restore) => {
                self.submits += 1;
                self.named.push(restore.item.head.id);
                let claimed_in = restore.claimed_in.as_ref().and_then(|name| catalog.by_name(name));
                if let Some(queue) = claimed_in {
                    self.add_keys(queue.id, &restore.item.body);
                }
            }
            Operation::Sweep => self.asked_to_sweep = true,
            Operation::Guarded { .. } => {}
        }
    }

    fn add_submit(&mut self, queue: Option<&Queue>, submission: &Submission) {
        self.submits += 1;
        self.named.extend(submission.id);
        if let Some(guard) = &submission.record_guard {
            self.kv_keys.push(guard.key.as_bytes().to_vec());
        }
        let Some(queue) = queue else { return };
        self.add_keys(queue.id, &submission.body);
        self.may_take_ready += usize::from(submission.body.replace_key.is_some());
        if queue.policy.depth_limit.is_some() {
            self.locks.insert(queue.id);
        }
    }

    fn add_keys(&mut self, queue: QueueId, body: &Body) {
        if let Some(key) = &body.idempotency_key {
            self.key_queues.push(queue_number(queue));
            self.keys.push(key.as_bytes().to_vec());
        }
        if let Some(key) = &body.replace_key {
            self.replaces = true;
            self.key_queues.push(queue_number(queue));
            self.keys.push(replace_key(key));
        }
    }

    /// Adds these items to the plan.
    pub(crate) fn name(&mut self, ids: impl Iterator<Item = ItemId>, salt: u64, thorough: bool) {
        self.named.extend(ids);
        self.items = ItemLookup::of(&self.named, salt, thorough);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_receive_looks_for_no_more_items_than_the_limits_allow() {
        let rate = |text: &str| text.parse().ok();
        let slots = Flow { concurrency: Some(5), ..Flow::default() };
        assert_eq!(deliveries_max(&Flow::default(), 7), usize::MAX);
        assert_eq!(deliveries_max(&slots, 7), 12, "leases that end in the batch free capacity");
        assert_eq!(deliveries_max(&Flow { rate: rate("100/s,burst=3"), ..Flow::default() }, 7), 3);
        assert_eq!(deliveries_max(&Flow { rate: rate("100/s,burst=30"), ..slots }, 7), 12);
    }
}
