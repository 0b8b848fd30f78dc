//! What the operations of a batch name: all that has to be fetched before they can be decided.

use crate::catalog::Catalog;
use crate::image::queue_number;
use std::collections::{BTreeMap, BTreeSet};
use towline_domain::{ItemId, QueueId};
use towline_store::Operation;
use uuid::Uuid;

#[derive(Debug, Default)]
pub(crate) struct Plan {
    /// Sequence numbers that ids carry.
    pub(crate) sequences: Vec<i64>,
    pub(crate) ids: Vec<Uuid>,
    pub(crate) key_queues: Vec<i32>,
    pub(crate) keys: Vec<Vec<u8>>,
    pub(crate) kv_keys: Vec<Vec<u8>>,
    pub(crate) submits: usize,
    pub(crate) creates_queue: bool,
    /// Nobody else may do anything meanwhile.
    pub(crate) exclusive: bool,
    /// What is due is carried out first.
    pub(crate) sweeps: bool,
    /// How many ready items of a queue the receives may need.
    pub(crate) receives: BTreeMap<QueueId, usize>,
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

impl Plan {
    pub(crate) fn of(operations: &[Operation], catalog: &Catalog, salt: u64) -> Plan {
        let mut plan = Plan::default();
        let mut may_take_ready = 0;
        for operation in operations {
            plan.exclusive |= is_structural(operation);
            match operation {
                Operation::Submit { queue, submission } => {
                    plan.submits += 1;
                    if let Some(id) = submission.id {
                        plan.name(id, salt);
                    }
                    let Some(queue) = catalog.by_name(queue) else { continue };
                    if let Some(key) = &submission.body.idempotency_key {
                        plan.key_queues.push(queue_number(queue.id));
                        plan.keys.push(key.as_bytes().to_vec());
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
                    }
                }
                Operation::Lease { id, .. } | Operation::Resume { id } | Operation::Redrive { id } => {
                    plan.name(*id, salt);
                }
                Operation::Cancel { id, .. } | Operation::Pause { id } | Operation::Delete { id, .. } => {
                    plan.name(*id, salt);
                    may_take_ready += 1;
                }
                Operation::Kv { key, .. } => plan.kv_keys.push(key.as_bytes().to_vec()),
                Operation::CreateQueue { .. } => plan.creates_queue = true,
                Operation::ChangePolicy { queue, .. }
                | Operation::CloseQueue { queue }
                | Operation::PauseQueue { queue }
                | Operation::ResumeQueue { queue }
                | Operation::DeleteQueue { queue, .. } => {
                    plan.locks.extend(catalog.by_name(queue).map(|queue| queue.id));
                }
                Operation::Sweep => {}
            }
        }
        // Others of the batch may take away what a receive would have given.
        plan.receives.values_mut().for_each(|wanted| *wanted += may_take_ready);
        plan
    }

    fn name(&mut self, id: ItemId, salt: u64) {
        if let Some(sequence) = id.sequence(salt) {
            self.sequences.push(sequence.cast_signed());
        }
        // Also an id that carries a number: it may have been chosen again after its item was gone.
        self.ids.push(id.0);
    }
}
