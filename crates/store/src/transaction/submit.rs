//! New items: submitted, or restored from another store.

use super::items::apply;
use super::{Decided, ItemChange, Workspace};
use crate::{Reply, Restore};
use std::borrow::Cow;
use std::collections::BTreeMap;
use towline_domain as domain;
use towline_domain::change::Answer;
use towline_domain::id::SEQUENCE_ACCEPTED_MAX;
use towline_domain::{Command, Context, Head, ItemId, QueueId, QueueName, Refusal, Submission};

pub(super) fn submit<W: Workspace>(
    workspace: &mut W,
    name: &QueueName,
    submission: Box<Submission>,
) -> Result<Decided, W::Fault> {
    let ItemChange { sequence, chosen_id, change } =
        match prepare(workspace, name, submission, &StepSoFar::default())? {
            Err(refusal) => return Ok(Err(refusal)),
            Ok(prepared) => prepared,
        };
    if change.is_empty() {
        return Ok(Ok(Reply::Answer(change.answer().clone())));
    }
    apply(workspace, sequence, chosen_id, change)
}

/// What the same step does before a submit, and is not applied yet.
#[derive(Debug, Default)]
pub(super) struct StepSoFar {
    /// New items.
    pub created: u64,
    pub created_in: BTreeMap<QueueId, u64>,
    /// An item that ends and frees its idempotency key.
    pub frees_key_of: Option<ItemId>,
}

pub(super) type Prepared = Result<ItemChange, Refusal>;

/// Decides a submit and does not apply it. The change is empty if the item exists.
pub(super) fn prepare<W: Workspace>(
    workspace: &W,
    name: &QueueName,
    submission: Box<Submission>,
    step: &StepSoFar,
) -> Result<Prepared, W::Fault> {
    let Some(queue) = workspace.by_name(name) else {
        return Ok(Err(Refusal::QueueNotFound { name: name.to_string() }));
    };
    if queue.policy.depth_limit.is_some() {
        workspace.need_exact_counts(queue.id)?;
    }
    let replaced = replaceable(workspace, queue.id, submission.body.replace_key.as_deref());
    if replaced.is_none()
        && let Err(refusal) = check_room(workspace, step.created)
    {
        return Ok(Err(refusal));
    }
    let sequence =
        replaced.as_ref().map_or_else(|| workspace.next_sequence() + step.created, |(sequence, _)| *sequence);
    let key = submission.body.idempotency_key.as_deref();
    let key_owner = key.and_then(|key| workspace.key_owner(queue.id, key));
    let taken = submission.id.and_then(|id| workspace.find(id)).and_then(|taken| workspace.head(taken));
    let guard = submission.record_guard.as_ref();
    let mut counts = workspace.by_id(queue.id).map(|(_, counts)| counts).unwrap_or_default();
    counts.pending += step.created_in.get(&queue.id).copied().unwrap_or_default();
    let context = Context {
        queue: Some(queue),
        counts,
        item: taken.as_deref(),
        key_owner: key_owner.filter(|(owner, _)| step.frees_key_of != Some(*owner)),
        replaces: replaced.as_ref().map(|(_, head)| &**head),
        record: guard.and_then(|guard| workspace.record(&guard.key)),
        new_id: Some(workspace.new_id(sequence)),
        ..Context::default()
    };
    let chosen_id = submission.id;
    let change = match workspace.decide(&context, Command::Submit(submission)) {
        Err(refusal) => return Ok(Err(refusal)),
        Ok(change) => change,
    };
    if let Some((key, record)) = change.record()
        && let Err(refusal) = workspace.check_record_room(&[(key.clone(), Some(record.clone()))])
    {
        return Ok(Err(refusal));
    }
    Ok(Ok(ItemChange { sequence, chosen_id, change }))
}

/// Whether the store has room for another item, and a number for it, beside `created` ones of the same step.
fn check_room<W: Workspace>(workspace: &W, created: u64) -> Result<(), Refusal> {
    match workspace.next_sequence() + created {
        next if next > SEQUENCE_ACCEPTED_MAX => Err(Refusal::NumbersUsedUp { used: next - 1 }),
        _ => workspace.check_item_room(created + 1),
    }
}

/// The pending item that a submit with this replace key replaces.
fn replaceable<'a, W: Workspace>(
    workspace: &'a W,
    queue: QueueId,
    key: Option<&str>,
) -> Option<(u64, Cow<'a, Head>)> {
    let sequence = workspace.replace_key_owner(queue, key?)?;
    let head = workspace.head(sequence).filter(|head| head.is_replaceable())?;
    Some((sequence, head))
}

pub(super) fn restore<W: Workspace>(workspace: &mut W, restore: Restore) -> Result<Decided, W::Fault> {
    let name = restore.queue.clone();
    let item = restore.item(workspace);
    let Some(queue) = workspace.by_name(&name) else {
        return Ok(Err(Refusal::QueueNotFound { name: name.to_string() }));
    };
    if let Err(refusal) = check_room(workspace, 0) {
        return Ok(Err(refusal));
    }
    let id = item.head.id;
    let claimed_in = item.body.claim.map(|claim| claim.queue);
    let key = claimed_in.zip(item.body.idempotency_key.as_deref());
    let taken = workspace.find(id).and_then(|taken| workspace.head(taken));
    let replaced =
        claimed_in.and_then(|queue| replaceable(workspace, queue, item.body.replace_key.as_deref()));
    let context = Context {
        queue: Some(queue),
        item: taken.as_deref(),
        key_owner: key.and_then(|(queue, key)| workspace.key_owner(queue, key)),
        replaces: replaced.as_ref().map(|(_, head)| &**head),
        ..Context::default()
    };
    let changes = match domain::restore(&context, item) {
        Err(refusal) => return Ok(Err(refusal)),
        Ok(changes) => changes,
    };
    drop((taken, replaced));
    let sequence = workspace.next_sequence();
    for change in changes {
        if let Err(refusal) = apply(workspace, sequence, Some(id), change)? {
            return Ok(Err(refusal));
        }
    }
    Ok(Ok(Reply::Answer(Answer::Submitted { id, created: true })))
}
