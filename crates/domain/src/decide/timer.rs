//! Decisions about what is due: lapse, expiry, removal.

use super::{Context, error, fail, item_change, removal, step};
use crate::change::{Answer, Change};
use crate::event::EventKind;
use crate::id::ItemId;
use crate::item::{ErrorKind, FailureKind, Head, Lease, State};
use crate::item_state::ItemState;
use crate::refusal::Refusal;
use crate::time::{Millis, Timestamp};

pub(super) fn elapse(context: &Context<'_>, now: Timestamp) -> Result<Change, Refusal> {
    let head = context.item()?;
    if head.timer().is_none_or(|at| at > now) {
        return Err(Refusal::NotDue { id: head.id });
    }
    if head.is_terminal() {
        // No event: followers saw how the item ended, and a million items may be removed at once.
        return Ok(Change { event: None, ..removal(head, None) });
    }
    if head.expires_at.is_some_and(|at| at <= now) {
        let message = "not finished before its expiry";
        let error = error(head, ErrorKind::Expired, message, now);
        return fail(
            context,
            step(head, State::Pending),
            FailureKind::Expired,
            error,
            EventKind::Expired,
            now,
        );
    }
    match &head.state {
        State::Processing(lease) => lapse(context, head, lease, now),
        _ => Err(Refusal::NotDue { id: head.id }),
    }
}

fn lapse(context: &Context<'_>, head: &Head, lease: &Lease, now: Timestamp) -> Result<Change, Refusal> {
    let queue = context.queue()?;
    let mut after = step(head, State::Pending);
    let lapses = head.lapses().saturating_add(1);
    after.extras_mut().lapses = lapses;
    let error = if lease.unacknowledged {
        error(head, ErrorKind::Unacknowledged, "its holder did not acknowledge the lease in time", now)
    } else {
        error(head, ErrorKind::Lapsed, "its holder neither settled nor extended the lease in time", now)
    };
    let ended = if queue.policy.poison_after.is_some_and(|limit| lapses >= limit) {
        Some(FailureKind::Poison)
    } else if head.retries >= head.max_retries(&queue.policy) {
        Some(FailureKind::RetriesExhausted)
    } else {
        None
    };
    if let Some(kind) = ended {
        return fail(context, after, kind, error, EventKind::Failed, now);
    }
    after.retries = after.retries.saturating_add(1);
    // There is no seed in a lapse. The item's id spreads the retries of a crashed fleet.
    let seed = seed(head.id, head.deliveries);
    after.ready_at = match head.backoff(&queue.policy).delay(head.id, head.retries, seed) {
        // Without a backoff it keeps its place.
        Millis::ZERO => head.ready_at.min(now),
        delay => now.after(delay),
    };
    let mut change = item_change(head, after, EventKind::Lapsed, Answer::State(ItemState::Pending));
    if let Some(item) = &mut change.item {
        item.error = Some(error);
    }
    Ok(change)
}

fn seed(id: ItemId, deliveries: u32) -> u64 {
    crate::digest::tag(&id.to_string(), &deliveries.to_string())
}
