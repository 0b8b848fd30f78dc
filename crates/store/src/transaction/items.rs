//! Commands about one existing item.

use super::{Decided, Workspace};
use crate::{Reply, item_context};
use towline_domain::{Change, Command, Context, HandedOff, ItemId, QueueId, QueueState, Refusal};

pub(super) fn change_by_id<W: Workspace>(
    workspace: &mut W,
    id: ItemId,
    command: Command,
) -> Result<Decided, W::Fault> {
    match workspace.find(id) {
        Some(sequence) => change(workspace, sequence, command),
        None => Ok(Err(Refusal::ItemNotFound { id })),
    }
}

/// Carries out what is due for an item: its lease lapses, it expires, or it is removed.
pub fn elapse<W: Workspace>(workspace: &mut W, sequence: u64) -> Result<Decided, W::Fault> {
    change(workspace, sequence, Command::Elapse)
}

pub(super) fn change<W: Workspace>(
    workspace: &mut W,
    sequence: u64,
    command: Command,
) -> Result<Decided, W::Fault> {
    match decide(workspace, sequence, command, None)? {
        Err(refusal) => Ok(Err(refusal)),
        Ok(change) if change.is_empty() => Ok(Ok(Reply::Answer(change.answer().clone()))),
        Ok(change) => apply(workspace, sequence, None, change),
    }
}

/// Decides a command about an item and does not apply it.
pub(super) fn decide<W: Workspace>(
    workspace: &mut W,
    sequence: u64,
    command: Command,
    handed_off: Option<&HandedOff>,
) -> Result<Result<Change, Refusal>, W::Fault> {
    let Some(head) = workspace.head(sequence) else {
        workspace.forget_orphan(sequence)?;
        return Ok(Err(Refusal::invalid("item", "no item has this sequence number")));
    };
    let id = head.id;
    let context = Context { handed_off, ..item_context(workspace, &head, &command) };
    let Some(queue) = context.queue else {
        drop(head);
        workspace.forget_orphan(sequence)?;
        return Ok(Err(Refusal::ItemNotFound { id }));
    };
    // The end of an item may complete a closed queue.
    need_if_closed(workspace, queue.id, queue.state)?;
    if let Some(target) = context.target {
        need_if_closed(workspace, target.id, target.state)?;
    }
    Ok(workspace.decide(&context, command))
}

fn need_if_closed<W: Workspace>(workspace: &W, queue: QueueId, state: QueueState) -> Result<(), W::Fault> {
    match state {
        QueueState::Closed { .. } => workspace.need_exact_counts(queue),
        QueueState::Open | QueueState::Completed { .. } => Ok(()),
    }
}

/// Records the effects of a change of an item and applies it.
pub(super) fn apply<W: Workspace>(
    workspace: &mut W,
    sequence: u64,
    id: Option<ItemId>,
    change: Change,
) -> Result<Decided, W::Fault> {
    let now = workspace.now();
    workspace.effects().record(&change, now);
    workspace.apply_item(sequence, id, change).map(|answer| Ok(Reply::Answer(answer)))
}
