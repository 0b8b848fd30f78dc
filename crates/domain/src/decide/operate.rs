//! Decisions about what an operator or a submitter does to an item, without a lease.

use super::{Context, error, fail, item_change, removal, step, unchanged};
use crate::change::{Answer, Change};
use crate::event::EventKind;
use crate::item::{ErrorKind, FailureKind, State};
use crate::queue::QueueState;
use crate::refusal::Refusal;
use crate::state_name::StateName;
use crate::time::Timestamp;

pub(super) fn cancel(context: &Context<'_>, reason: &str, now: Timestamp) -> Result<Change, Refusal> {
    let head = context.item()?;
    match head.state {
        State::Failed { kind: FailureKind::Cancelled, .. } => Ok(unchanged(Answer::State("failed"))),
        State::Completed { .. } | State::Failed { .. } => {
            let remedy = "a finished item cannot be cancelled";
            Err(Refusal::WrongState { id: head.id, state: head.state_name(), remedy })
        }
        State::Pending | State::Paused | State::Processing(_) => {
            let after = step(head, State::Pending);
            let reason = if reason.is_empty() { "cancelled" } else { reason };
            let error = error(head, ErrorKind::Cancelled, reason, now);
            fail(context, after, FailureKind::Cancelled, error, EventKind::Cancelled, now)
        }
    }
}

pub(super) fn pause(context: &Context<'_>) -> Result<Change, Refusal> {
    let head = context.item()?;
    match head.state {
        State::Paused => Ok(unchanged(Answer::State("paused"))),
        State::Pending => {
            Ok(item_change(head, step(head, State::Paused), EventKind::Paused, Answer::State("paused")))
        }
        _ => {
            let remedy = "only a pending item can be paused";
            Err(Refusal::WrongState { id: head.id, state: head.state_name(), remedy })
        }
    }
}

pub(super) fn resume(context: &Context<'_>) -> Result<Change, Refusal> {
    let head = context.item()?;
    match head.state {
        State::Pending => Ok(unchanged(Answer::State("pending"))),
        // It keeps its `ready_at`, and with it its place in the queue.
        State::Paused => {
            Ok(item_change(head, step(head, State::Pending), EventKind::Resumed, Answer::State("pending")))
        }
        _ => {
            let remedy = "only a paused item can be resumed";
            Err(Refusal::WrongState { id: head.id, state: head.state_name(), remedy })
        }
    }
}

pub(super) fn redrive(context: &Context<'_>, now: Timestamp) -> Result<Change, Refusal> {
    let (queue, head) = (context.queue()?, context.item()?);
    if !matches!(head.state, State::Failed { .. }) {
        let remedy = "only a failed item can be redriven";
        return Err(Refusal::WrongState { id: head.id, state: head.state_name(), remedy });
    }
    let origin = head.extras.as_ref().and_then(|extras| extras.origin.as_ref());
    // A dead letter goes home; if its home is gone, it is tried again where it lies.
    let target = match (origin, context.target) {
        (Some(origin), Some(other)) if other.id == origin.queue_id => other,
        _ => queue,
    };
    if let QueueState::Completed { since } = target.state {
        return Err(Refusal::QueueCompleted { name: target.name.to_string(), since });
    }
    let mut after = step(head, State::Pending);
    after.queue = target.id;
    after.retries = 0;
    after.ready_at = now;
    let expire_after = head.overrides().and_then(|o| o.expire_after).or(target.policy.expire_after);
    after.expires_at = expire_after.map(|span| now.after(span));
    if let Some(extras) = &mut after.extras {
        extras.lapses = 0;
        extras.first_received_at = None;
        extras.origin = None;
    }
    Ok(item_change(head, after, EventKind::Redriven, Answer::State("pending")))
}

pub(super) fn delete(
    context: &Context<'_>,
    force: bool,
    only: Option<StateName>,
    now: Timestamp,
) -> Result<Change, Refusal> {
    let head = context.item()?;
    if only.is_some_and(|only| !only.matches(head.count_kind(now))) {
        let remedy = "only items of another state were to be deleted";
        return Err(Refusal::WrongState { id: head.id, state: head.state_name(), remedy });
    }
    if head.lease().is_some_and(|lease| lease.deadline > now) && !force {
        let remedy = "somebody works on it; cancel it, or delete with force";
        return Err(Refusal::WrongState { id: head.id, state: head.state_name(), remedy });
    }
    Ok(removal(head, context.completes(head, now)))
}
