//! What the operations of a batch name: all that has to be fetched before they can be decided.

use crate::catalog::Catalog;
use crate::connection::session::Parameters;
use crate::encoding::sql::queue_number;
use std::collections::{BTreeMap, BTreeSet};
use towline_domain::{Flow, ItemId, QueueId};
use towline_store::Operation;
use uuid::Uuid;

/// Items as statements are told of them.
#[derive(Debug, Default)]
pub(crate) struct Items {
    /// Ranges of sequence numbers.
    pub(crate) low: Vec<i64>,
    pub(crate) high: Vec<i64>,
    /// Ids that were chosen.
    pub(crate) chosen: Vec<Uuid>,
}

impl Items {
    /// By the number that an id carries, if it does, and else by the id. `thorough`: by both, because an id that carries a
    /// number may have been chosen again after its item was gone.
    pub(crate) fn of(ids: &[ItemId], salt: u64, thorough: bool) -> Items {
        let mut items = Items::default();
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
pub(crate) struct Plan {
    pub(crate) items: Items,
    /// The same, by id, to see what was not found.
    pub(crate) named: Vec<ItemId>,
    pub(crate) key_queues: Vec<i32>,
    pub(crate) keys: Vec<Vec<u8>>,
    /// Of these, replace keys: who has one is to be locked.
    pub(crate) replaces: bool,
    pub(crate) kv_keys: Vec<Vec<u8>>,
    pub(crate) submits: usize,
    pub(crate) creates_queue: bool,
    /// Nobody else may do anything meanwhile.
    pub(crate) exclusive: bool,
    /// What is due is carried out first.
    pub(crate) sweeps: bool,
    /// Somebody wants just that.
    pub(crate) asked_to_sweep: bool,
    /// How many ready items of a queue the receives may need.
    pub(crate) receives: BTreeMap<QueueId, usize>,
    /// A queue whose keys are about to have a limit: what is in hand is counted by key from then on.
    pub(crate) counts_leases: Option<QueueId>,
    /// Queues whose counts must be exact.
    pub(crate) locks: BTreeSet<QueueId>,
}

/// Whether the operation is about a queue as a whole: it runs alone, while nobody else does anything.
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

/// No more than these are given out by one batch, in which so many leases may end: more need not be looked for.
fn at_most(flow: &Flow, ends: usize) -> usize {
    let slots = flow.concurrency.map_or(usize::MAX, |max| (max as usize).saturating_add(ends));
    slots.min(flow.rate.map_or(usize::MAX, |rate| rate.burst as usize))
}

/// Lies before the text of a replace key, in the table that it shares with idempotency keys: no text begins with it.
const REPLACE_KEY: u8 = 0xff;

pub(crate) fn replace_key(key: &str) -> Vec<u8> {
    [&[REPLACE_KEY], key.as_bytes()].concat()
}

/// The text of a replace key; `None`: it is an idempotency key.
pub(crate) fn read_replace_key(stored: &[u8]) -> Option<&[u8]> {
    stored.strip_prefix(&[REPLACE_KEY])
}

impl Plan {
    pub(crate) fn of(operations: &[Operation], catalog: &Catalog, salt: u64, thorough: bool) -> Plan {
        let mut plan = Plan::default();
        let mut may_take_ready = 0;
        let mut limits: BTreeMap<QueueId, Flow> = BTreeMap::new();
        for operation in operations {
            plan.exclusive |= is_structural(operation);
            match operation.asked() {
                Operation::Submit { queue, submission } => {
                    plan.submits += 1;
                    if let Some(id) = submission.id {
                        plan.named.push(id);
                    }
                    if let Some(once) = &submission.record_guard {
                        plan.kv_keys.push(once.key.as_bytes().to_vec());
                    }
                    let Some(queue) = catalog.by_name(queue) else { continue };
                    if let Some(key) = &submission.body.idempotency_key {
                        plan.key_queues.push(queue_number(queue.id));
                        plan.keys.push(key.as_bytes().to_vec());
                    }
                    if let Some(key) = &submission.body.replace_key {
                        plan.replace(queue.id, key);
                        may_take_ready += 1;
                    }
                    if queue.policy.depth_limit.is_some() {
                        plan.locks.insert(queue.id);
                    }
                }
                Operation::Receive(call) => {
                    if let Some(queue) = catalog.by_name(&call.queue).filter(|queue| !queue.paused)
                        && call.check().is_ok()
                    {
                        *plan.receives.entry(queue.id).or_default() += call.max as usize;
                        if queue.policy.flow.is_limited() {
                            plan.locks.insert(queue.id);
                            limits.insert(queue.id, queue.policy.flow.clone());
                        }
                    }
                }
                Operation::Lease { id, .. }
                | Operation::Resume { id }
                | Operation::Redrive { id }
                | Operation::ResolveDependency { id, .. } => {
                    plan.named.push(*id);
                }
                Operation::Cancel { id, .. }
                | Operation::Pause { id }
                | Operation::Delete { id, .. }
                | Operation::SetPriority { id, .. }
                | Operation::Move { id, .. } => {
                    plan.named.push(*id);
                    may_take_ready += 1;
                }
                Operation::Kv { key, command } => {
                    plan.kv_keys.push(key.as_bytes().to_vec());
                    plan.kv_keys.extend(command.mark(key).map(String::into_bytes));
                }
                Operation::CreateQueue { .. } => plan.creates_queue = true,
                Operation::ChangePolicy { queue, patch } => {
                    let queue = catalog.by_name(queue);
                    plan.locks.extend(queue.map(|queue| queue.id));
                    let limits = matches!(patch.concurrency_per_key, Some(Some(_)));
                    let begins = queue.filter(|queue| limits && !queue.policy.flow.limits_keys());
                    plan.counts_leases = begins.map(|queue| queue.id);
                }
                Operation::CloseQueue { queue }
                | Operation::PauseQueue { queue }
                | Operation::ResumeQueue { queue }
                | Operation::DeleteQueue { queue, .. } => {
                    plan.locks.extend(catalog.by_name(queue).map(|queue| queue.id));
                }
                Operation::Restore(restore) => {
                    plan.submits += 1;
                    plan.named.push(restore.item.head.id);
                    let claimed_in = restore.claimed_in.as_ref().and_then(|name| catalog.by_name(name));
                    if let (Some(queue), Some(key)) = (claimed_in, &restore.item.body.idempotency_key) {
                        plan.key_queues.push(queue_number(queue.id));
                        plan.keys.push(key.as_bytes().to_vec());
                    }
                    if let (Some(queue), Some(key)) = (claimed_in, &restore.item.body.replace_key) {
                        plan.replace(queue.id, key);
                    }
                }
                Operation::Sweep => plan.asked_to_sweep = true,
                Operation::Guarded { .. } => {}
            }
        }
        for (queue, flow) in &limits {
            plan.receives
                .entry(*queue)
                .and_modify(|wanted| *wanted = at_most(flow, plan.named.len()).min(*wanted));
        }
        // Others of the batch may take away what a receive would have given.
        plan.receives.values_mut().for_each(|wanted| *wanted += may_take_ready);
        plan.items = Items::of(&plan.named, salt, thorough);
        plan
    }

    fn replace(&mut self, queue: QueueId, key: &str) {
        self.replaces = true;
        self.key_queues.push(queue_number(queue));
        self.keys.push(replace_key(key));
    }

    /// Names these items as well.
    pub(crate) fn name(&mut self, ids: impl Iterator<Item = ItemId>, salt: u64, thorough: bool) {
        self.named.extend(ids);
        self.items = Items::of(&self.named, salt, thorough);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_more_is_looked_for_than_the_limits_give_out() {
        let rate = |text: &str| text.parse().ok();
        let slots = Flow { concurrency: Some(5), ..Flow::default() };
        assert_eq!(at_most(&Flow::default(), 7), usize::MAX);
        assert_eq!(at_most(&slots, 7), 12, "leases that end in the batch make room");
        assert_eq!(at_most(&Flow { rate: rate("100/s,burst=3"), ..Flow::default() }, 7), 3);
        assert_eq!(at_most(&Flow { rate: rate("100/s,burst=30"), ..slots }, 7), 12);
    }
}
