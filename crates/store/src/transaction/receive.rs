//! Delivers items.

use super::items::{change, elapse};
use super::{Outcome, Workspace};
use crate::{ReceiveCall, Received};
use towline_domain::command::Receive;
use towline_domain::{Command, FieldSet, Item, KeyTag, QueueId, QueueState, Refusal, Selection, Throttle};

/// Items that a receive took, each under its own lease, before they are read back.
#[derive(Debug)]
pub struct Deliveries<D> {
    pub queue: QueueId,
    pub state: QueueState,
    pub items: Vec<D>,
    pub throttle: Option<Throttle>,
    pub paused: bool,
    /// See [`Received::more`].
    pub more: usize,
    pub fields: FieldSet,
}

impl<D> Deliveries<D> {
    /// The answer, with the items as they were read back.
    pub fn received(self, read: impl FnOnce(Vec<D>, FieldSet) -> Vec<Item>) -> Received {
        let Deliveries { state, items, throttle, paused, more, fields, .. } = self;
        Received { queue: state, items: read(items, fields), throttle, paused, more }
    }
}

pub(super) fn receive<W: Workspace>(
    workspace: &mut W,
    call: &ReceiveCall,
) -> Result<Outcome<W::Delivery>, W::Fault> {
    let refuse = |refusal| Ok(Outcome::Decided(Err(refusal)));
    let not_found = || Refusal::QueueNotFound { name: call.queue.to_string() };
    let Some(queue) = workspace.by_name(&call.queue) else { return refuse(not_found()) };
    if let Err(refusal) = call.check() {
        return refuse(refusal);
    }
    let id = queue.id;
    if queue.policy.flow.is_limited() {
        workspace.need_exact_counts(id)?;
    }
    let Some((queue, counts)) = workspace.by_id(id) else { return refuse(not_found()) };
    let (flow, paused, now) = (&queue.policy.flow, queue.paused, workspace.now());
    let rate = workspace.rate_state(id);
    let turns = flow.takes_turns().then(|| workspace.round_robin(id));
    let mut selection = Selection::new(flow, counts.processing, rate, call.max, turns, now);
    let mut items = Vec::new();
    while !paused && selection.wants_more() && workspace.has_room_for_leases() {
        let Some((sequence, key)) = next_ready(workspace, id, &selection) else { break };
        let bytes = workspace.read_bytes(sequence, call.fields);
        if !selection.fits(bytes, *workspace.read_budget()) {
            break;
        }
        let command = Command::Receive(Receive {
            token: call.seed.token(u32::try_from(selection.taken()).unwrap_or(u32::MAX), now),
            visibility: call.visibility,
            assigned: call.assigned,
            make_buffers: call.make_buffers,
        });
        match change(workspace, sequence, command)? {
            Ok(_) => {
                let budget = workspace.read_budget();
                *budget = budget.saturating_sub(bytes);
                selection.record_delivery(key);
                items.extend(workspace.delivery(sequence));
            }
            // The item is expired, and the sweep of this batch did not reach it.
            Err(Refusal::NotDue { .. }) => {
                selection.record_expired();
                if let Err(refusal) = elapse(workspace, sequence)? {
                    return refuse(refusal);
                }
            }
            Err(refusal) => return refuse(refusal),
        }
    }
    let delivered_all = selection.taken() == call.max as usize;
    let ready = match paused || !workspace.has_room_for_leases() {
        true => 0,
        false => workspace.ready_left(id, delivered_all),
    };
    let Some((queue, counts)) = workspace.by_id(id) else { return refuse(not_found()) };
    let (flow, state) = (&queue.policy.flow, queue.state);
    let full_keys = || workspace.full_keys(id);
    let selected = selection.finish(flow, &counts, ready, full_keys);
    workspace.record_delivery(id, selected.rate, selection.round_robin());
    let (throttle, more) = (selected.throttle, selected.more);
    let fields = call.fields;
    Ok(Outcome::Received(Deliveries { queue: id, state, items, throttle, paused, more, fields }))
}

/// The next item in the queue's order, and the fairness key it counts for.
fn next_ready<W: Workspace>(
    workspace: &mut W,
    queue: QueueId,
    selection: &Selection,
) -> Option<(u64, KeyTag)> {
    if !selection.takes_turns() {
        return workspace.first_ready(queue, None).map(|sequence| (sequence, KeyTag::NONE));
    }
    let key = selection.next_key(|from| workspace.open_key(queue, from))?;
    workspace.first_ready(queue, Some(key)).map(|sequence| (sequence, key))
}
