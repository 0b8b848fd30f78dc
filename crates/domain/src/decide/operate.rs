//! Decisions about what an operator or a submitter does to an item, without a lease.

use super::{Context, error, fail, item_change, removal, rescore, step, unchanged};
use crate::change::{Answer, Change};
use crate::event::EventKind;
use crate::item::{ErrorKind, FailureKind, Head, State};
use crate::name::QueueName;
use crate::precondition::{Precondition, Traits};
use crate::queue::QueueState;
use crate::refusal::Refusal;
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
    check_not_waiting(head)?;
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

/// Refuses an item that waits for others: it goes on when they have ended.
fn check_not_waiting(head: &Head) -> Result<(), Refusal> {
    match head.dependency() {
        Some(_) => {
            let remedy = "it goes on when what it waits for has ended; cancel it if it shall not";
            Err(Refusal::WrongState { id: head.id, state: head.state_name(), remedy })
        }
        None => Ok(()),
    }
}

pub(super) fn resume(context: &Context<'_>) -> Result<Change, Refusal> {
    let head = context.item()?;
    check_not_waiting(head)?;
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
    if origin.is_some() && target.id == head.queue {
        rescore(&mut after, target);
    }
    Ok(item_change(head, after, EventKind::Redriven, Answer::State("pending")))
}

/// Refuses an item that has changed since it was found by a filter.
pub(super) fn check_precondition(
    context: &Context<'_>,
    precondition: &Precondition,
    now: Timestamp,
) -> Result<(), Refusal> {
    let (queue, head) = (context.queue()?, context.item()?);
    let here = precondition.queue.as_ref().is_none_or(|name| *name == queue.name);
    let same = precondition.version.is_none_or(|version| version == head.version());
    match here && same && precondition.head.matches(&Traits::of(head, head.count_kind(now))) {
        true => Ok(()),
        false => Err(Refusal::PreconditionFailed { id: head.id }),
    }
}

/// Refuses an item that does not wait: its place in a queue means nothing.
fn check_waits(head: &Head, remedy: &'static str) -> Result<(), Refusal> {
    match head.state {
        State::Pending | State::Paused => Ok(()),
        _ => Err(Refusal::WrongState { id: head.id, state: head.state_name(), remedy }),
    }
}

/// The head after a change that is not one of state.
fn revised(head: &Head) -> Head {
    Head { revision: head.revision.wrapping_add(1), ..head.clone() }
}

pub(super) fn set_priority(context: &Context<'_>, priority: i16) -> Result<Change, Refusal> {
    let head = context.item()?;
    check_waits(head, "only an item that waits changes its priority; a holder can change it in a settle")?;
    let answer = Answer::State(head.state_name());
    if head.priority == priority {
        return Ok(unchanged(answer));
    }
    Ok(item_change(head, Head { priority, ..revised(head) }, EventKind::Prioritized, answer))
}

pub(super) fn move_to(context: &Context<'_>, to: &QueueName, now: Timestamp) -> Result<Change, Refusal> {
    let (queue, head) = (context.queue()?, context.item()?);
    check_waits(head, "only an item that waits is moved; a holder can give it back to another queue")?;
    let answer = Answer::State(head.state_name());
    if *to == queue.name {
        return Ok(unchanged(answer));
    }
    let Some(target) = context.target.filter(|target| target.name == *to) else {
        return Err(Refusal::QueueNotFound { name: to.to_string() });
    };
    if let QueueState::Closed { since } | QueueState::Completed { since } = target.state {
        let (name, state) = (target.name.to_string(), target.state.name());
        return Err(Refusal::QueueClosed { name, state, since });
    }
    // Counted, so that it is not replaced by its key any more, also when it is moved back.
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
        let remedy = "somebody works on it; cancel it, or delete with force";
        return Err(Refusal::WrongState { id: head.id, state: head.state_name(), remedy });
    }
    Ok(removal(head, context.completes(head, now)))
}
