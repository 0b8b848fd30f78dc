//! A commit that submits items: one step.
//!
//! **Invariant:** the commit and all its submits happen, or none of them.

use super::submit::{StepSoFar, prepare};
use super::{Decided, ItemChange, Workspace, items};
use crate::Reply;
use towline_domain::change::{Answer, HandedOffItem, Submitted};
use towline_domain::{Command, HandOff, HandedOff, ItemId, LeaseCall, Refusal};

pub(super) fn commit<W: Workspace>(
    workspace: &mut W,
    id: ItemId,
    call: Box<LeaseCall>,
) -> Result<Decided, W::Fault> {
    let Some(sequence) = workspace.find(id) else { return Ok(Err(Refusal::ItemNotFound { id })) };
    // Decided twice: first to see whether the lease holds, so that a worker that lost it learns that before anything about
    // the items; then with the ids of the items.
    let nothing_yet = HandedOff::default();
    let lease_call = |call: Box<LeaseCall>| Command::Lease(call);
    let ended = match items::decide(workspace, sequence, lease_call(call.clone()), Some(&nothing_yet))? {
        Err(refusal) => return Ok(Err(refusal)),
        Ok(change) if change.is_empty() => return Ok(Ok(Reply::Answer(change.answer().clone()))),
        Ok(change) => change,
    };
    let frees_key = ended.head().is_some_and(|head| head.has_freed_key());
    let step = StepSoFar { frees_key_of: frees_key.then_some(id), ..StepSoFar::default() };
    let (handed_off, submits) = match prepare_all(workspace, id, &call.adjust.then_submit, step)? {
        Err(refusal) => return Ok(Err(refusal)),
        Ok(prepared) => prepared,
    };
    let change = match items::decide(workspace, sequence, lease_call(call), Some(&handed_off))? {
        Err(refusal) => return Ok(Err(refusal)),
        Ok(change) => change,
    };
    let answer = change.answer().clone();
    // The commit comes first: it may free the key that one of the items takes.
    let mut changes = vec![ItemChange { sequence, chosen_id: None, change }];
    changes.extend(submits);
    let now = workspace.now();
    for change in &changes {
        workspace.effects().record(&change.change, now);
    }
    workspace.apply_together(changes)?;
    Ok(Ok(Reply::Answer(answer)))
}

type Prepared = Result<(HandedOff, Vec<ItemChange>), Refusal>;

/// Decides all submits and applies none.
fn prepare_all<W: Workspace>(
    workspace: &W,
    parent: ItemId,
    items: &[HandOff],
    mut step: StepSoFar,
) -> Result<Prepared, W::Fault> {
    let mut handed_off = HandedOff::default();
    let mut changes = Vec::with_capacity(items.len());
    for (index, HandOff { queue, submission }) in items.iter().enumerate() {
        let mut submission = Box::new(submission.clone());
        submission.body.parent.get_or_insert(parent);
        let prepared = match prepare(workspace, queue, submission, &step)? {
            Err(refusal) => return Ok(Err(refusal.of_hand_off(index))),
            Ok(prepared) => prepared,
        };
        let item = match *prepared.change.answer() {
            Answer::Submitted { id, created: true } => HandedOffItem { id, submitted: Submitted::Created },
            Answer::Submitted { id, created: false } => HandedOffItem { id, submitted: Submitted::Known },
            Answer::Replaced { id } => HandedOffItem { id, submitted: Submitted::Replaced },
            _ => return Ok(Err(Refusal::invalid("then_submit", "the store decided something else"))),
        };
        if item.submitted == Submitted::Created
            && let Some(head) = prepared.change.head()
        {
            step.created += 1;
            *step.created_in.entry(head.queue).or_default() += 1;
        }
        handed_off.items.push(item);
        if !prepared.change.is_empty() {
            changes.push(prepared);
        }
    }
    Ok(Ok((handed_off, changes)))
}
