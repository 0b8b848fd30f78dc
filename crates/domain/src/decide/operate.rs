//! Decisions about calls by an operator or a submitter, without a lease.

use super::{Context, error, fail, item_change, removal, rescore, step, unchanged};
use crate::change::{Answer, Change};
use crate::event::EventKind;
use crate::item::{AttemptError, ErrorKind, FailureKind, Head, State};
use crate::item_state::ItemState;
use crate::name::QueueName;
use crate::precondition::{Precondition, Traits};
use crate::queue::QueueState;
use crate::refusal::Refusal;
use crate::time::Timestamp;

pub(super) fn cancel(context: &Context<'_>, reason: &str, now: Timestamp) -> Result<Change, Refusal> {
    let head = context.item()?;
    match head.state {
        State::Failed { kind: FailureKind::Cancelled, .. } => Ok(unchanged(Answer::State(ItemState::Failed))),
        State::Completed { .. } | State::Failed { .. } => {
            let remedy = "a finished item cannot be cancelled";
            Err(Refusal::WrongState { id: head.id, state: head.item_state(), remedy })
        }
        State::Pending | State::Paused | State::Processing(_) => {
            let after = step(head, State::Pending);
            let error = cancellation(head, reason, now);
            fail(context, after, FailureKind::Cancelled, error, EventKind::Cancelled, now)
        }
    }
}

/// The error of a cancelled item.
pub(super) fn cancellation(head: &Head, reason: &str, now: Timestamp) -> Box<AttemptError> {
    let reason = if reason.is_empty() { "cancelled" } else { reason };
    error(head, ErrorKind::Cancelled, reason, now)
}

pub(super) fn pause(context: &Context<'_>) -> Result<Change, Refusal> {
    let head = context.item()?;
    check_not_waiting(head)?;
    match head.state {
        State::Paused => Ok(unchanged(Answer::State(ItemState::Paused))),
        State::Pending => Ok(item_change(
            head,
            step(head, State::Paused),
            EventKind::Paused,
            Answer::State(ItemState::Paused),
        )),
        _ => {
            let remedy = "only a pending item can be paused";
            Err(Refusal::WrongState { id: head.id, state: head.item_state(), remedy })
        }
    }
}

/// Refuses an item that waits for a dependency.
fn check_not_waiting(head: &Head) -> Result<(), Refusal> {
    match head.dependency() {
        Some(_) => {
            let remedy = "it continues when its dependency is met; cancel it to stop it";
            Err(Refusal::WrongState { id: head.id, state: head.item_state(), remedy })
        }
        None => Ok(()),
    }
}

pub(super) fn resume(context: &Context<'_>) -> Result<Change, Refusal> {
    let head = context.item()?;
    check_not_waiting(head)?;
    match head.state {
        State::Pending => Ok(unchanged(Answer::State(ItemState::Pending))),
        // It keeps its `ready_at`, so it keeps its position in the queue.
        State::Paused => Ok(item_change(
            head,
            step(head, State::Pending),
            EventKind::Resumed,
            Answer::State(ItemState::Pending),
        )),
        _ => {
            let remedy = "only a paused item can be resumed";
            Err(Refusal::WrongState { id: head.id, state: head.item_state(), remedy })
        }
    }
}

pub(super) fn redrive(context: &Context<'_>, now: Timestamp) -> Result<Change, Refusal> {
    let (queue, head) = (context.queue()?, context.item()?);
    if !matches!(head.state, State::Failed { .. }) {
        let remedy = "only a failed item can be redriven";
        return Err(Refusal::WrongState { id: head.id, state: head.item_state(), remedy });
    }
    let origin = head.extras.as_ref().and_then(|extras| extras.origin.as_ref());
    // A dead letter returns to its origin. If that was deleted, it is retried in the dead-letter queue.
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
    if origin.is_some() && target.id == head.queue {
        rescore(&mut after, target);
    }
    Ok(item_change(head, after, EventKind::Redriven, Answer::State(ItemState::Pending)))
}

/// Refuses an item that no longer matches.
pub(super) fn check_precondition(
    context: &Context<'_>,
    precondition: &Precondition,
    now: Timestamp,
) -> Result<(), Refusal> {
    let (queue, head) = (context.queue()?, context.item()?);
    let same_queue = precondition.queue.as_ref().is_none_or(|name| *name == queue.name);
    let same_version = precondition.version.is_none_or(|version| version == head.version());
    match same_queue && same_version && precondition.head.matches(&Traits::of(head, head.count_kind(now))) {
        true => Ok(()),
        false => Err(Refusal::PreconditionFailed { id: head.id }),
    }
}

/// Refuses an item that is neither pending nor paused: it has no position in the queue.
fn check_in_queue(head: &Head, remedy: &'static str) -> Result<(), Refusal> {
    match head.state {
        State::Pending | State::Paused => Ok(()),
        _ => Err(Refusal::WrongState { id: head.id, state: head.item_state(), remedy }),
    }
}

/// The head after a change without a change of state.
fn revised(head: &Head) -> Head {
    Head { revision: head.revision.wrapping_add(1), ..head.clone() }
}

pub(super) fn set_priority(context: &Context<'_>, priority: i16) -> Result<Change, Refusal> {
    let head = context.item()?;
    check_in_queue(
        head,
        "only a pending or paused item can change priority; a worker can set it in a settle",
    )?;
    let answer = Answer::State(head.item_state());
    if head.priority == priority {
        return Ok(unchanged(answer));
    }
    Ok(item_change(head, Head { priority, ..revised(head) }, EventKind::Prioritized, answer))
}

pub(super) fn move_to(context: &Context<'_>, to: &QueueName, now: Timestamp) -> Result<Change, Refusal> {
    let (queue, head) = (context.queue()?, context.item()?);
    check_in_queue(
        head,
        "only a pending or paused item can be moved; a worker can release it to another queue",
    )?;
    let answer = Answer::State(head.item_state());
    if *to == queue.name {
        return Ok(unchanged(answer));
    }
    let Some(target) = context.target.filter(|target| target.name == *to) else {
        return Err(Refusal::QueueNotFound { name: to.to_string() });
    };
    target.check_open()?;
    // Counted as a transition, so that the item is no longer replaceable, even if it is moved back.
    let transitions = head.transitions.saturating_add(1);
    let mut after = Head { queue: target.id, transitions, ..revised(head) };
    rescore(&mut after, target);
    let mut change = item_change(head, after, EventKind::Moved, answer);
    change.queue = context.completes(head, now);
    Ok(change)
}

pub(super) fn delete(context: &Context<'_>, force: bool, now: Timestamp) -> Result<Change, Refusal> {
    let head = context.item()?;
    if head.lease().is_some_and(|lease| lease.deadline > now) && !force {
        let remedy = "a worker holds it; cancel it, or delete it with force";
        return Err(Refusal::WrongState { id: head.id, state: head.item_state(), remedy });
    }
    Ok(removal(head, context.completes(head, now)))
}
