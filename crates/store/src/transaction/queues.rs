//! Commands about a queue as a whole.

use super::{Decided, Workspace};
use crate::Reply;
use towline_domain::change::QueueChange;
use towline_domain::command::NewQueue;
use towline_domain::{Change, Command, Context, Policy, QueueId, QueueName, Refusal, Schema, limits};

pub(super) fn create<W: Workspace>(
    workspace: &mut W,
    name: QueueName,
    schema: Schema,
    policy: Policy,
) -> Result<Decided, W::Fault> {
    let queue = workspace.by_name(&name);
    let held = workspace.queue_count();
    if queue.is_none() && held >= limits::QUEUES_MAX {
        return Ok(Err(Refusal::StoreFull { what: "queues", held: held as u64 }));
    }
    let dead_letters = policy.dead_letter_queue.as_ref().and_then(|name| workspace.by_name(name));
    let new = NewQueue { id: workspace.next_queue_id(), name, schema, policy };
    let context = Context { queue, dead_letters, ..Context::default() };
    match workspace.decide(&context, Command::CreateQueue(Box::new(new))) {
        Err(refusal) => Ok(Err(refusal)),
        Ok(change) => apply(workspace, None, change),
    }
}

pub(super) fn change<W: Workspace>(
    workspace: &mut W,
    name: &QueueName,
    command: Command,
) -> Result<Decided, W::Fault> {
    let Some(id) = workspace.by_name(name).map(|queue| queue.id) else {
        return Ok(Err(Refusal::QueueNotFound { name: name.to_string() }));
    };
    let (queue, counts) = workspace.by_id(id).unzip();
    let named = match &command {
        Command::ChangePolicy(patch) => patch.dead_letter_queue.as_ref().and_then(Option::as_ref),
        _ => None,
    };
    let dead_letters = named.and_then(|name| workspace.by_name(name));
    let context = Context { queue, counts: counts.unwrap_or_default(), dead_letters, ..Context::default() };
    let change = match workspace.decide(&context, command) {
        Err(refusal) => return Ok(Err(refusal)),
        Ok(change) => change,
    };
    if change.queue() == Some(&QueueChange::Deleted) {
        workspace.effects().queue_deleted(id, name.clone());
    }
    apply(workspace, Some(id), change)
}

fn apply<W: Workspace>(
    workspace: &mut W,
    queue: Option<QueueId>,
    change: Change,
) -> Result<Decided, W::Fault> {
    if change.is_empty() {
        return Ok(Ok(Reply::Answer(change.answer().clone())));
    }
    let now = workspace.now();
    workspace.effects().record(&change, now);
    workspace.apply_queue(queue, change).map(|answer| Ok(Reply::Answer(answer)))
}
