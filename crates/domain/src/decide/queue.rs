//! Decisions about a queue as a whole.

use super::{Context, unchanged};
use crate::change::{Answer, Change, QueueChange};
use crate::command::NewQueue;
use crate::event::EventKind;
use crate::name::QueueName;
use crate::policy::{Policy, PolicyPatch};
use crate::queue::{Queue, QueueState};
use crate::refusal::Refusal;
use crate::time::Timestamp;

pub(super) fn create(context: &Context<'_>, new: NewQueue, now: Timestamp) -> Result<Change, Refusal> {
    new.schema.check()?;
    new.policy.check()?;
    check_not_own(&new.policy, &new.name)?;
    if let Some(queue) = context.queue {
        // A repeated create succeeds, so that every process can create its queues at start-up.
        let mut differs = queue.schema.differences(&new.schema);
        differs.extend(queue.policy.differences(&new.policy));
        if differs.is_empty() {
            return Ok(unchanged(Answer::Queue(Box::new(queue.clone()))));
        }
        return Err(Refusal::QueueExists { name: new.name.to_string(), what: differs.join(", ") });
    }
    check_dead_letters(context, new.policy.dead_letter_queue.as_ref())?;
    let queue = Queue {
        id: new.id,
        name: new.name,
        schema: new.schema,
        policy: new.policy,
        state: QueueState::Open,
        paused: false,
        created_at: now,
        revision: 1,
    };
    Ok(put(queue, EventKind::QueueCreated))
}

pub(super) fn change_policy(context: &Context<'_>, patch: PolicyPatch) -> Result<Change, Refusal> {
    let queue = context.queue()?;
    let policy = patch.apply(&queue.policy);
    policy.check()?;
    check_not_own(&policy, &queue.name)?;
    if policy == queue.policy {
        return Ok(unchanged(Answer::Queue(Box::new(queue.clone()))));
    }
    // Another change is not refused because the dead-letter queue was deleted meanwhile.
    if policy.dead_letter_queue != queue.policy.dead_letter_queue {
        check_dead_letters(context, policy.dead_letter_queue.as_ref())?;
    }
    Ok(put(Queue { policy, ..next(queue) }, EventKind::QueueChanged))
}

fn check_not_own(policy: &Policy, name: &QueueName) -> Result<(), Refusal> {
    match policy.dead_letter_queue.as_ref() == Some(name) {
        true => {
            let message = "a queue cannot be its own dead-letter queue; name another queue";
            Err(Refusal::invalid("dead_letter_queue", message))
        }
        false => Ok(()),
    }
}

/// Refuses the name of a dead-letter queue that does not exist.
fn check_dead_letters(context: &Context<'_>, named: Option<&QueueName>) -> Result<(), Refusal> {
    match (named, context.dead_letters) {
        (Some(name), None) => {
            let message = format!("queue {:?} does not exist; create it first", name.as_str());
            Err(Refusal::invalid("dead_letter_queue", message))
        }
        _ => Ok(()),
    }
}

pub(super) fn close(context: &Context<'_>, now: Timestamp) -> Result<Change, Refusal> {
    let queue = context.queue()?;
    if queue.state != QueueState::Open {
        return Ok(unchanged(Answer::Queue(Box::new(queue.clone()))));
    }
    let (state, event) = if context.counts.unfinished() == 0 {
        (QueueState::Completed { since: now }, EventKind::QueueCompleted)
    } else {
        (QueueState::Closed { since: now }, EventKind::QueueClosed)
    };
    Ok(put(Queue { state, ..next(queue) }, event))
}

pub(super) fn set_paused(context: &Context<'_>, paused: bool) -> Result<Change, Refusal> {
    let queue = context.queue()?;
    if queue.paused == paused {
        return Ok(unchanged(Answer::Queue(Box::new(queue.clone()))));
    }
    let event = if paused { EventKind::QueuePaused } else { EventKind::QueueResumed };
    Ok(put(Queue { paused, ..next(queue) }, event))
}

pub(super) fn delete(context: &Context<'_>, force: bool) -> Result<Change, Refusal> {
    let queue = context.queue()?;
    let unfinished = context.counts.unfinished();
    if unfinished > 0 && !force {
        return Err(Refusal::QueueBusy { name: queue.name.to_string(), unfinished });
    }
    Ok(Change {
        event: Some(EventKind::QueueDeleted),
        answer: Answer::QueueDeleted,
        item: None,
        queue: Some(QueueChange::Deleted),
        record: None,
    })
}

fn next(queue: &Queue) -> Queue {
    Queue { revision: queue.revision.wrapping_add(1), ..queue.clone() }
}

fn put(queue: Queue, event: EventKind) -> Change {
    let queue = Box::new(queue);
    Change {
        event: Some(event),
        answer: Answer::Queue(queue.clone()),
        item: None,
        queue: Some(QueueChange::Put(queue)),
        record: None,
    }
}
