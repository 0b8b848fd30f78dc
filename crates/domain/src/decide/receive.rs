//! Decisions about delivering an item.

use super::{Context, item_change, step};
use crate::change::{Answer, Change};
use crate::command::Receive;
use crate::event::EventKind;
use crate::item::{Lease, State};
use crate::policy::check_visibility;
use crate::refusal::Refusal;
use crate::time::Timestamp;

pub(super) fn receive(context: &Context<'_>, receive: Receive, now: Timestamp) -> Result<Change, Refusal> {
    let (queue, head) = (context.queue()?, context.item()?);
    if let Some(visibility) = receive.visibility {
        check_visibility(visibility)?;
    }
    if queue.paused || head.state != State::Pending {
        let remedy = "only a pending item of a queue that is not paused is delivered";
        return Err(Refusal::WrongState { id: head.id, state: head.item_state(), remedy });
    }
    if head.ready_at > now || head.expires_at.is_some_and(|at| at <= now) {
        return Err(Refusal::NotDue { id: head.id });
    }
    if queue.policy.flow.concurrency.is_some_and(|max| context.counts.processing >= u64::from(max)) {
        let remedy = "its queue is at its concurrency limit; receive again when a lease has ended";
        return Err(Refusal::WrongState { id: head.id, state: head.item_state(), remedy });
    }
    let visibility = receive.visibility.unwrap_or(queue.policy.visibility_timeout);
    let ack_timeout = queue.policy.lease.ack_timeout.filter(|_| receive.assigned);

    let mut after = step(head, State::Pending);
    after.deliveries = after.deliveries.saturating_add(1);
    let give_up_after = head.overrides().and_then(|o| o.give_up_after).or(queue.policy.give_up_after);
    if let Some(span) = give_up_after
        && head.extras.as_ref().is_none_or(|extras| extras.first_received_at.is_none())
    {
        after.extras_mut().first_received_at = Some(now);
        let give_up_at = now.after(span);
        after.expires_at = Some(after.expires_at.map_or(give_up_at, |at| at.min(give_up_at)));
    }
    let deadline = now.after(ack_timeout.unwrap_or(visibility));
    // A lease ends at the item's expiry at the latest, because the item fails then.
    let deadline = after.expires_at.map_or(deadline, |at| deadline.min(at));
    after.state = State::Processing(Lease {
        token: receive.token,
        deadline,
        visibility,
        unacknowledged: ack_timeout.is_some(),
        renewals: 0,
        buffers: receive.make_buffers.then(|| queue.schema.output_buffers(head.id, receive.token)).flatten(),
    });
    Ok(item_change(head, after, EventKind::Received, Answer::Leased { deadline }))
}
