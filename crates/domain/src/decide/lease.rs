//! Decisions about calls by the worker that holds a lease.

use super::operate::cancellation;
use super::{Context, error, fail, item_change, ready_at, remove_at, rescore, step, unchanged};
use crate::change::{Answer, BufferCheck, Change};
use crate::command::{Adjust, HandOff, LeaseCall, OutputSet, Submission, Verb, When};
use crate::digest;
use crate::event::EventKind;
use crate::id::LeaseToken;
use crate::item::{
    AttemptError, ErrorKind, FailureKind, Head, Lease, Outcome, Settle, SettleVerb, Settled, State,
};
use crate::item_state::ItemState;
use crate::limits;
use crate::policy::{check_span, check_visibility};
use crate::queue::Queue;
use crate::refusal::{LostWhy, Refusal};
use crate::time::{Millis, Timestamp};
use std::collections::BTreeSet;

pub(super) fn call(context: &Context<'_>, call: LeaseCall, now: Timestamp) -> Result<Change, Refusal> {
    let (queue, head) = (context.queue()?, context.item()?);
    let settle = settle_of(&call);
    let Some(lease) = head.lease().filter(|lease| lease.token == call.token) else {
        return without_lease(head, call.token, settle);
    };
    // Refuse a lapsed lease even if no other worker took the item: its buffers may be deleted.
    if now >= lease.deadline {
        return Err(Refusal::LeaseLost { id: head.id, why: LostWhy::Lapsed });
    }
    check(&call)?;
    if context.handed_off.is_none() && !call.adjust.then_submit.is_empty() {
        return Err(Refusal::invalid("then_submit", "a commit with a precondition cannot submit items"));
    }
    if let Verb::Commit(outcome) = &call.verb
        && lease.buffers.is_some()
        && !call.adjust.buffers_whole
    {
        let buffers = made(lease, outcome);
        if !buffers.is_empty() {
            let output_ttl = queue.policy.output_ttl;
            let check = BufferCheck { id: head.id, buffers, output_ttl, call };
            return Ok(unchanged(Answer::CheckBuffers(Box::new(check))));
        }
    }
    let LeaseCall { verb, adjust, .. } = call;
    let mut change = match (verb, settle) {
        (Verb::Heartbeat { visibility }, _) => heartbeat(queue, head, lease, visibility, now)?,
        (Verb::Edit, _) => edit(head, lease),
        (Verb::Commit(outcome), Some(settle)) => commit(context, lease, outcome, settle, now)?,
        (Verb::Fail { reason }, Some(settle)) => {
            let after = settled(head, settle, Settled::Failed);
            let error = error(head, ErrorKind::Failed, &reason, now);
            fail(context, after, FailureKind::Explicit, error, EventKind::Failed, now)?
        }
        (Verb::Retry { error: message, delay, seed }, Some(settle)) => {
            let delay =
                delay.unwrap_or_else(|| head.backoff(&queue.policy).delay(head.id, head.retries, seed));
            let error = error(head, ErrorKind::Retried, &message, now);
            give_back(context, settle, &adjust, GiveBack::Retried { delay, error }, now)?
        }
        (Verb::Release { delay, counted }, Some(settle)) => {
            give_back(context, settle, &adjust, GiveBack::Released { delay, counted }, now)?
        }
        (Verb::Pause, Some(settle)) => {
            let after = Head { state: State::Paused, ..settled(head, settle, Settled::Paused) };
            item_change(head, after, EventKind::Paused, Answer::State(ItemState::Paused))
        }
        (Verb::Cancel { reason }, Some(settle)) => {
            let after = settled(head, settle, Settled::Failed);
            let error = cancellation(head, &reason, now);
            fail(context, after, FailureKind::Cancelled, error, EventKind::Cancelled, now)?
        }
        (Verb::Defer { until }, Some(settle)) => {
            give_back(context, settle, &adjust, GiveBack::Deferred { until }, now)?
        }
        (_, None) => return Err(Refusal::invalid("verb", "a settle without its record")),
    };
    if let Some(item) = &mut change.item {
        if let (Some(priority), Some(after)) = (adjust.priority, &mut item.after) {
            after.priority = priority;
        }
        item.edits = adjust.edits;
    }
    Ok(change)
}

/// Answers a call whose token is not the current lease. Only a repetition of the latest settle succeeds.
fn without_lease(head: &Head, token: LeaseToken, settle: Option<Settle>) -> Result<Change, Refusal> {
    let id = head.id;
    match (head.last_settle, settle) {
        (Some(last), Some(settle)) if last.token == settle.token => {
            if last.verb == settle.verb && last.digest == settle.digest {
                return Ok(unchanged(Answer::State(last.left.into())));
            }
            Err(Refusal::AlreadySettled { id, settled: last.verb })
        }
        // A heartbeat after the worker's own settle: the worker did not lose the lease.
        (Some(last), None) if last.token == token => Err(Refusal::AlreadySettled { id, settled: last.verb }),
        _ if head.is_terminal() => Err(Refusal::LeaseLost { id, why: LostWhy::Ended }),
        _ => Err(Refusal::LeaseLost { id, why: LostWhy::Superseded }),
    }
}

fn check(call: &LeaseCall) -> Result<(), Refusal> {
    call.adjust.edits.check()?;
    check_hand_off(call)?;
    let given_back = matches!(call.verb, Verb::Retry { .. } | Verb::Release { .. } | Verb::Defer { .. });
    if call.adjust.queue.is_some() && !given_back {
        let message = "an item changes its queue when it is given back: use retry, release or defer";
        return Err(Refusal::invalid("queue", message));
    }
    let reason = match &call.verb {
        Verb::Heartbeat { visibility: Some(visibility) } => return check_visibility(*visibility),
        Verb::Fail { reason } | Verb::Cancel { reason } => reason,
        Verb::Retry { error, delay, .. } => {
            check_span("delay", delay.unwrap_or(Millis::ZERO))?;
            error
        }
        Verb::Release { delay, .. } => return check_span("delay", *delay),
        Verb::Defer { until: When::After(span) } => return check_span("delay", *span),
        Verb::Defer { until: When::At(time) } if *time > Timestamp::MAX => {
            return Err(Refusal::invalid("until", format!("{time} is beyond {}", Timestamp::MAX)));
        }
        _ => return Ok(()),
    };
    // A long reason is cut, because losing the settle would be worse than losing the end of a stack trace. A reason beyond
    // 16 times the limit is refused as a mistake.
    if reason.len() > 16 * limits::REASON_BYTES_MAX {
        let (bytes, max) = (reason.len() as u64, 16 * limits::REASON_BYTES_MAX as u64);
        return Err(Refusal::TooLarge { what: "the reason", bytes, max });
    }
    Ok(())
}

fn check_hand_off(call: &LeaseCall) -> Result<(), Refusal> {
    let items = &call.adjust.then_submit;
    if items.is_empty() {
        return Ok(());
    }
    let refuse = |message: String| Err(Refusal::invalid("then_submit", message));
    if !matches!(call.verb, Verb::Commit(_)) {
        return refuse("only a commit submits items; submit them in a call of their own".to_owned());
    }
    if items.len() > limits::HAND_OFF_MAX {
        return refuse(format!("{} items; use at most {}", items.len(), limits::HAND_OFF_MAX));
    }
    let bytes: usize = items.iter().map(|item| content_bytes(&item.submission)).sum();
    if bytes > limits::ITEM_BYTES_MAX {
        let (bytes, max) = (bytes as u64, limits::ITEM_BYTES_MAX as u64);
        return Err(Refusal::TooLarge { what: "the items of `then_submit` together", bytes, max });
    }
    let mut keys = BTreeSet::new();
    let mut ids = BTreeSet::new();
    for HandOff { queue, submission } in items {
        let body = &submission.body;
        if submission.record_guard.is_some() {
            return refuse("a commit cannot submit for a schedule".to_owned());
        }
        let idempotency_key = body.idempotency_key.as_deref().map(|key| ("idempotency_key", key));
        let replace_key = body.replace_key.as_deref().map(|key| ("replace_key", key));
        for (kind, key) in idempotency_key.into_iter().chain(replace_key) {
            if !keys.insert((queue, kind, key)) {
                return refuse(format!(
                    "two items of queue {queue:?} have the {kind} {key:?}; leave one out"
                ));
            }
        }
        if let Some(id) = submission.id.filter(|id| !ids.insert(*id)) {
            return refuse(format!("two items have the id {id}; leave one out"));
        }
    }
    Ok(())
}

fn content_bytes(submission: &Submission) -> usize {
    let Submission { body, fields, .. } = submission;
    let params: usize = body.params.iter().map(|(name, value)| name.len() + value.as_str().len()).sum();
    let tags: usize = body.tags.iter().map(|(name, value)| name.len() + value.len()).sum();
    fields.bytes() + params + tags
}

/// The record of a settle, for recognising its repetition.
fn settle_of(call: &LeaseCall) -> Option<Settle> {
    let none = Outcome::default();
    let adjust = &call.adjust;
    let priority = adjust.priority.map_or(0, |priority| 1 << 32 | u64::from(priority.cast_unsigned()));
    let queue = adjust.queue.as_ref().map_or(0, |queue| digest::tag("queue", queue.as_str()));
    let handed_off = digest::hand_off(&adjust.then_submit);
    let digest = |outcome: &Outcome, reason: &str, a: u64, b: u64| {
        let rest = [a, b, priority, queue, handed_off];
        let given = if handed_off == 0 { &rest[..4] } else { &rest[..] };
        digest::settle(outcome, reason, &adjust.edits, given)
    };
    let (verb, digest) = match &call.verb {
        Verb::Heartbeat { .. } | Verb::Edit => return None,
        Verb::Commit(outcome) => (SettleVerb::Commit, digest(outcome, "", 0, 0)),
        Verb::Fail { reason } => (SettleVerb::Fail, digest(&none, reason, 0, 0)),
        // The jitter seed differs between repetitions of a call.
        Verb::Retry { error, delay, .. } => {
            (SettleVerb::Retry, digest(&none, error, delay.map_or(0, |delay| delay.0.saturating_add(1)), 0))
        }
        Verb::Release { delay, counted } => {
            (SettleVerb::Release, digest(&none, "", delay.0, u64::from(!counted)))
        }
        Verb::Pause => (SettleVerb::Pause, digest(&none, "", 0, 0)),
        Verb::Cancel { reason } => (SettleVerb::Cancel, digest(&none, reason, 0, 0)),
        Verb::Defer { until: When::After(span) } => (SettleVerb::Defer, digest(&none, "", span.0, 1)),
        Verb::Defer { until: When::At(time) } => (SettleVerb::Defer, digest(&none, "", time.0, 2)),
    };
    Some(Settle { token: call.token, verb, left: Settled::Pending, digest })
}

fn settled(head: &Head, settle: Settle, left: Settled) -> Head {
    let mut after = step(head, State::Pending);
    after.last_settle = Some(Settle { left, ..settle });
    if let Some(extras) = &mut after.extras {
        // The worker answered, so the item did not crash it.
        extras.lapses = 0;
    }
    after
}

fn heartbeat(
    queue: &Queue,
    head: &Head,
    lease: &Lease,
    visibility: Option<Millis>,
    now: Timestamp,
) -> Result<Change, Refusal> {
    let rule = &queue.policy.lease;
    let mut after = head.clone();
    after.revision = after.revision.wrapping_add(1);
    let mut next = lease.clone();
    next.visibility = visibility.unwrap_or(lease.visibility);
    if lease.unacknowledged {
        next.unacknowledged = false;
        next.deadline = now.after(next.visibility);
    } else {
        if let Some(max) = rule.renewals_max.filter(|&max| lease.renewals >= max) {
            return Err(Refusal::RenewalsExhausted { id: head.id, max });
        }
        next.renewals = next.renewals.saturating_add(1);
        next.deadline = match rule.renewal_permille {
            None => now.after(next.visibility),
            Some(permille) => {
                let span = u128::from(next.visibility.0) * u128::from(permille) / 1000;
                lease.deadline.max(now).after(Millis(u64::try_from(span).unwrap_or(Millis::MAX.0)))
            }
        };
    }
    if let Some(expiry) = head.expires_at {
        next.deadline = next.deadline.min(expiry);
    }
    let deadline = next.deadline;
    after.heartbeat_at = Some(now);
    after.state = State::Processing(next);
    Ok(item_change(head, after, EventKind::LeaseRenewed, Answer::Leased { deadline }))
}

fn edit(head: &Head, lease: &Lease) -> Change {
    let mut after = head.clone();
    after.revision = after.revision.wrapping_add(1);
    item_change(head, after, EventKind::Edited, Answer::Leased { deadline: lease.deadline })
}

/// The attempt's buffers for the slots that the worker did not name.
fn made(lease: &Lease, outcome: &Outcome) -> OutputSet {
    let made = lease.buffers.iter().flat_map(|buffers| buffers.iter());
    let unnamed = made.filter(|(slot, _)| !outcome.outputs.contains_key(*slot));
    unnamed.map(|(slot, buffer)| (slot.clone(), buffer.clone())).collect()
}

fn commit(
    context: &Context<'_>,
    lease: &Lease,
    mut outcome: Outcome,
    settle: Settle,
    now: Timestamp,
) -> Result<Change, Refusal> {
    let (queue, head) = (context.queue()?, context.item()?);
    let made = made(lease, &outcome);
    outcome.outputs.extend(made);
    outcome.handed_off.clear();
    queue.schema.check_outputs(&outcome.outputs, &outcome.output_params)?;
    let ttl = head.overrides().and_then(|o| o.completed_ttl).or(queue.policy.completed_ttl);
    let mut after = settled(head, settle, Settled::Completed);
    after.free_key();
    after.state = State::Completed { at: now, remove_at: remove_at(context, ttl, Some(lease), now) };
    let answer = match context.handed_off {
        Some(handed_off) if !handed_off.items.is_empty() => {
            outcome.handed_off = handed_off.items.iter().map(|item| item.id).collect();
            Answer::HandedOff(handed_off.clone())
        }
        _ => Answer::State(ItemState::Completed),
    };
    let mut change = item_change(head, after, EventKind::Completed, answer);
    change.queue = context.completes(head, now);
    if let Some(item) = &mut change.item {
        item.outcome = (!outcome.is_empty()).then(|| Box::new(outcome));
    }
    Ok(change)
}

enum GiveBack {
    Retried { delay: Millis, error: Box<AttemptError> },
    Released { delay: Millis, counted: bool },
    Deferred { until: When },
}

fn give_back(
    context: &Context<'_>,
    settle: Settle,
    adjust: &Adjust,
    how: GiveBack,
    now: Timestamp,
) -> Result<Change, Refusal> {
    let (queue, head) = (context.queue()?, context.item()?);
    let target = match &adjust.queue {
        Some(name) if *name != queue.name => match context.target.filter(|other| other.name == *name) {
            Some(other) => Some(other),
            None => {
                return Err(Refusal::QueueNotFound { name: name.to_string() });
            }
        },
        _ => None,
    };
    target.map_or(Ok(()), Queue::check_open)?;
    // Without a delay the item keeps its place. A retry goes behind: the next worker may fail it as well.
    let place = |when: When| match when {
        When::NOW => head.ready_at.min(now),
        when => ready_at(when, target.unwrap_or(queue), now),
    };
    let (ready_at, counted, event) = match &how {
        GiveBack::Retried { delay, .. } => (now.after(*delay), true, EventKind::Retried),
        GiveBack::Released { delay, counted: true } => {
            (place(When::After(*delay)), true, EventKind::Released)
        }
        // Not counted as a retry, so followers and metrics see a defer.
        GiveBack::Released { delay, counted: false } => {
            (place(When::After(*delay)), false, EventKind::Deferred)
        }
        GiveBack::Deferred { until } => (place(*until), false, EventKind::Deferred),
    };
    let error_kept = match how {
        GiveBack::Retried { error, .. } => Some(error),
        GiveBack::Released { .. } | GiveBack::Deferred { .. } => None,
    };
    if counted && head.retries >= head.max_retries(&queue.policy) {
        let after = settled(head, settle, Settled::Failed);
        let error_kept = error_kept
            .unwrap_or_else(|| error(head, ErrorKind::Retried, "released, and no retry is left", now));
        return fail(context, after, FailureKind::RetriesExhausted, error_kept, EventKind::Failed, now);
    }
    let mut after = settled(head, settle, Settled::Pending);
    after.retries = after.retries.saturating_add(u32::from(counted));
    after.ready_at = ready_at;
    let mut change = item_change(head, after, event, Answer::State(ItemState::Pending));
    if let Some(other) = target {
        change.queue = context.completes(head, now);
        if let Some(after) = change.item.as_mut().and_then(|item| item.after.as_mut()) {
            after.queue = other.id;
            rescore(after, other);
        }
    }
    if let Some(item) = &mut change.item {
        item.error = error_kept;
    }
    Ok(change)
}
