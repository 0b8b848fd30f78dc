//! The one place where state changes.
//!
//! **Invariant:** the same context, command and time give the same answer. A refusal changes nothing.

mod lease;
mod operate;
mod queue;
mod receive;
mod restore;
mod submit;
#[cfg(test)]
mod tests;
mod timer;
mod wait;

pub use restore::restore;
pub(crate) use submit::check_content;

use crate::change::{Answer, Before, Change, HandedOff, ItemChange, QueueChange};
use crate::command::{Command, When};
use crate::counts::Counts;
use crate::digest::ContentDigest;
use crate::event::EventKind;
use crate::fields::FieldEdits;
use crate::id::ItemId;
use crate::item::{AttemptError, ErrorKind, FailureKind, Head, Lease, Origin, State};
use crate::item_state::ItemState;
use crate::kv::KvRecord;
use crate::limits;
use crate::queue::{Queue, QueueState};
use crate::refusal::Refusal;
use crate::score::Order;
use crate::time::{Millis, Timestamp};

/// What a store looked up for a command. What the command does not need is `None`.
#[derive(Debug, Clone, Copy, Default)]
pub struct Context<'a> {
    /// The queue that the command names, or the queue of its item.
    pub queue: Option<&'a Queue>,
    pub counts: Counts,
    pub item: Option<&'a Head>,
    /// The item that has the submission's idempotency key, and its content.
    pub key_owner: Option<(ItemId, ContentDigest)>,
    /// The item that has the submission's replace key. It is replaced if it is replaceable.
    pub replaces: Option<&'a Head>,
    /// The record that the submission's [`RecordGuard`](crate::command::RecordGuard) names.
    pub record: Option<&'a KvRecord>,
    /// The id that the store derived for a new item.
    pub new_id: Option<ItemId>,
    /// The queue to which the item goes: named by a settle or a move, or a dead letter's origin at redrive.
    pub target: Option<&'a Queue>,
    /// The dead-letter queue of the queue, or the one that a new policy names. `None`: it does not exist.
    pub dead_letters: Option<&'a Queue>,
    /// The items that the store submits in the same step as this commit.
    pub handed_off: Option<&'a HandedOff>,
}

pub fn decide(context: &Context<'_>, command: Command, now: Timestamp) -> Result<Change, Refusal> {
    let mut change = carry_out(context, command, now)?;
    let after = change.item.as_mut().and_then(|item| item.after.as_mut());
    if let (Some(before), Some(after)) = (context.item, after)
        && before.transitions != after.transitions
    {
        (after.changed_at, after.heartbeat_at) = (None, None);
        after.changed_at = Some(now).filter(|now| after.last_transition() != Some(*now));
    }
    Ok(change)
}

fn carry_out(context: &Context<'_>, command: Command, now: Timestamp) -> Result<Change, Refusal> {
    match command {
        Command::CreateQueue(new) => queue::create(context, *new, now),
        Command::ChangePolicy(patch) => queue::change_policy(context, *patch),
        Command::CloseQueue => queue::close(context, now),
        Command::PauseQueue => queue::set_paused(context, true),
        Command::ResumeQueue => queue::set_paused(context, false),
        Command::DeleteQueue { force } => queue::delete(context, force),
        Command::Submit(submission) => submit::submit(context, *submission, now),
        Command::Receive(receive) => receive::receive(context, receive, now),
        Command::Lease(call) => lease::call(context, *call, now),
        Command::Cancel { reason } => operate::cancel(context, &reason, now),
        Command::Pause => operate::pause(context),
        Command::Resume => operate::resume(context),
        Command::Redrive => operate::redrive(context, now),
        Command::Delete { force } => operate::delete(context, force, now),
        Command::SetPriority { priority } => operate::set_priority(context, priority),
        Command::Move { queue } => operate::move_to(context, &queue, now),
        Command::ResolveDependency(seen) => wait::observe(context, &seen, now),
        Command::Guarded { precondition, then } => {
            operate::check_precondition(context, &precondition, now)?;
            decide(context, *then, now)
        }
        Command::Elapse => timer::elapse(context, now),
    }
}

impl<'a> Context<'a> {
    fn queue(&self) -> Result<&'a Queue, Refusal> {
        self.queue.ok_or_else(|| Refusal::QueueNotFound { name: "(not given)".to_owned() })
    }

    fn item(&self) -> Result<&'a Head, Refusal> {
        self.item.ok_or_else(|| Refusal::invalid("item", "the command needs an item"))
    }

    /// The completed queue, if it is closed and its last unfinished item ended or left.
    fn completes(&self, before: &Head, now: Timestamp) -> Option<QueueChange> {
        let queue = self.queue?;
        let last = !before.is_terminal() && self.counts.unfinished() <= 1;
        match queue.state {
            QueueState::Closed { .. } if last => {
                let state = QueueState::Completed { since: now };
                Some(QueueChange::Put(Box::new(Queue {
                    state,
                    revision: queue.revision.wrapping_add(1),
                    ..queue.clone()
                })))
            }
            _ => None,
        }
    }
}

/// The head after one more change of state.
fn step(head: &Head, state: State) -> Head {
    let mut after = head.clone();
    after.state = state;
    after.revision = after.revision.wrapping_add(1);
    after.transitions = after.transitions.saturating_add(1);
    after
}

/// The `ready_at` of an item that is submitted to a queue or given back to it. Not before the queue was created: an older
/// time would make every age in the queue meaningless.
fn ready_at(when: When, queue: &Queue, now: Timestamp) -> Timestamp {
    when.resolve(now).max(queue.created_at.min(now))
}

/// Gives an item that moves to a queue in `score` order the score that it has there.
fn rescore(after: &mut Head, target: &Queue) {
    if let Order::Score(weights) = &target.policy.order {
        let submitted_at = after.created_at;
        let extras = after.extras_mut();
        let offer = extras.offer.as_deref().cloned().unwrap_or_default();
        extras.score = offer.score(weights, submitted_at);
    }
}

/// When a finished item is removed. One that its lease holder settled stays until the lease would have ended, so that the same
/// call again gets the same answer: for an hour at most, and only while the queue keeps few finished items.
fn remove_at(
    context: &Context<'_>,
    ttl: Option<Millis>,
    lease: Option<&Lease>,
    now: Timestamp,
) -> Option<Timestamp> {
    let remove_at = now.after(ttl?);
    let finished = context.counts.completed.saturating_add(context.counts.failed);
    let lease = lease.filter(|_| finished < limits::REPEATABLE_MAX);
    let repeatable = lease.map_or(now, |lease| lease.deadline.min(now.after(limits::REPEATABLE_FOR)));
    Some(remove_at.max(repeatable))
}

fn before(head: &Head) -> Before {
    let leaves = head.group.filter(|_| !head.is_terminal());
    Before {
        id: head.id,
        queue: head.queue,
        revision: head.revision,
        leaves,
        state: head.state.kind(),
        ready_at: head.ready_at,
        fairness_key: head.fairness_key,
    }
}

fn unchanged(answer: Answer) -> Change {
    Change { event: None, answer, item: None, queue: None, record: None }
}

fn item_change(head: &Head, after: Head, event: EventKind, answer: Answer) -> Change {
    let item = ItemChange {
        before: Some(before(head)),
        after: Some(after),
        body: None,
        edits: FieldEdits::default(),
        outcome: None,
        error: None,
    };
    Change { event: Some(event), answer, item: Some(item), queue: None, record: None }
}

fn removal(head: &Head, queue: Option<QueueChange>) -> Change {
    let item = ItemChange {
        before: Some(before(head)),
        after: None,
        body: None,
        edits: FieldEdits::default(),
        outcome: None,
        error: None,
    };
    Change { event: Some(EventKind::Removed), answer: Answer::Removed, item: Some(item), queue, record: None }
}

/// The longest prefix of a text that fits.
pub(crate) fn cut(text: &str, bytes_max: usize) -> &str {
    let mut end = text.len().min(bytes_max);
    while !text.is_char_boundary(end) {
        end -= 1;
    }
    &text[..end]
}

fn error(head: &Head, kind: ErrorKind, message: &str, now: Timestamp) -> Box<AttemptError> {
    let message = cut(message, limits::REASON_BYTES_MAX).to_owned();
    Box::new(AttemptError { at: now, attempt: head.attempt(), kind, message })
}

/// Fails an item, and moves it to the dead-letter queue if there is an open one.
fn fail(
    context: &Context<'_>,
    mut after: Head,
    kind: FailureKind,
    error: Box<AttemptError>,
    event: EventKind,
    now: Timestamp,
) -> Result<Change, Refusal> {
    let (queue, head) = (context.queue()?, context.item()?);
    let dead_letters = match (&queue.policy.dead_letter_queue, context.dead_letters) {
        // A closed queue accepts no dead letters.
        (Some(name), Some(other))
            if queue.policy.dead_letter.contains(&kind)
                && other.name == *name
                && other.id != queue.id
                && other.state == QueueState::Open =>
        {
            Some(other)
        }
        _ => None,
    };
    let ttl = match after.overrides().and_then(|overrides| overrides.failed_ttl) {
        Some(ttl) => Some(ttl),
        None => dead_letters.unwrap_or(queue).policy.failed_ttl,
    };
    let settled_by = |lease: &&Lease| after.last_settle.is_some_and(|settle| settle.token == lease.token);
    let remove_at = remove_at(context, ttl, head.lease().filter(settled_by), now);
    after.clear_dependency();
    after.free_key();
    after.state = State::Failed { at: now, remove_at, kind };
    if let Some(other) = dead_letters {
        after.queue = other.id;
        after.extras_mut().origin =
            Some(Origin { queue: queue.name.clone(), queue_id: queue.id, moved_at: now });
    }
    let mut change = item_change(head, after, event, Answer::State(ItemState::Failed));
    change.queue = context.completes(head, now);
    if let Some(item) = &mut change.item {
        item.error = Some(error);
    }
    Ok(change)
}
