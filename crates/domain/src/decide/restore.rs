//! Decisions about an item copied from another store.

use super::{Context, item_change, submit};
use crate::change::{Answer, Change, ItemChange};
use crate::dependency::GroupTag;
use crate::event::EventKind;
use crate::fields::FieldEdits;
use crate::item::{Head, Item, State};
use crate::limits;
use crate::refusal::Refusal;
use crate::round_robin::KeyTag;
use crate::tally::tally_value;
use crate::time::Timestamp;

/// The changes that restore the item, in order. There are several if the item has several errors, because a change carries
/// one error. State, times, lease and id stay the same. The caller has already translated queue ids to this store.
pub fn restore(context: &Context<'_>, item: Item) -> Result<Vec<Change>, Refusal> {
    let queue = context.queue()?;
    queue.check_open()?;
    let Item { mut head, mut body, fields, outcome, errors } = item;
    if let Some(taken) = context.item {
        return Err(Refusal::IdTaken { id: taken.id });
    }
    if let (Some(key), Some((id, _)), false) =
        (&body.idempotency_key, context.key_owner, head.has_freed_key())
    {
        return Err(Refusal::KeyConflict { key: key.clone(), id });
    }
    if body.replace_key.is_some() {
        // An item that is not replaceable must not take the key from one that is.
        body.claim = body.claim.filter(|claim| head.is_replaceable() && claim.queue == queue.id);
        body.replace_key = body.replace_key.filter(|_| body.claim.is_some());
        let taken = context.replaces.filter(|owner| owner.is_replaceable());
        if let (Some(key), Some(owner)) = (&body.replace_key, taken) {
            let message =
                format!("pending item {} already has the key {key:?}; cancel or receive it first", owner.id);
            return Err(Refusal::invalid("replace_key", message));
        }
    }
    check_times(&head)?;
    head.overrides().map_or(Ok(()), |overrides| overrides.check())?;
    submit::check_content(&body, &fields)?;
    if let Some(error) = errors.iter().find(|error| error.message.len() > limits::REASON_BYTES_MAX) {
        let (bytes, max) = (error.message.len(), limits::REASON_BYTES_MAX);
        return Err(Refusal::invalid("error", format!("{bytes} bytes; use at most {max}")));
    }

    if head.state != State::Paused {
        head.clear_dependency();
    }
    if let Some(after) = head.dependency() {
        after.check(Some(head.id), body.group.as_deref())?;
    }
    head.queue = queue.id;
    head.group = body.group.as_deref().map(GroupTag::of);
    head.fairness_key = KeyTag::of_any(body.fairness_key.as_deref());
    if let Some(extras) = &mut head.extras {
        extras.tally_tags.retain(|(entry, value)| tally_value(entry, &body.tags).as_ref() == Some(value));
        extras.tally_tags.truncate(limits::TALLY_TAGS_MAX);
    }
    if head.extras.as_ref().is_none_or(|extras| extras.tally_tags.is_empty()) {
        let tally_tags = submit::tally_tags(queue, &body);
        if !tally_tags.is_empty() {
            head.extras_mut().tally_tags = tally_tags;
        }
    }
    let last_revision = head.revision.max(errors.len() as u32).max(1);
    let mut errors = errors.into_iter().map(Box::new);
    head.revision = if errors.len() > 1 { 1 } else { last_revision };
    let answer = Answer::Submitted { id: head.id, created: true };
    let first = ItemChange {
        before: None,
        after: Some(head.clone()),
        body: Some(Box::new((body, fields))),
        edits: FieldEdits::default(),
        outcome: (!outcome.is_empty()).then(|| Box::new(outcome)),
        error: errors.next(),
    };
    let event = Some(EventKind::Restored);
    let mut changes =
        vec![Change { event, answer: answer.clone(), item: Some(first), queue: None, record: None }];
    while let Some(error) = errors.next() {
        let revision = if errors.len() == 0 { last_revision } else { head.revision + 1 };
        let after = Head { revision, ..head.clone() };
        let mut change = item_change(&head, after.clone(), EventKind::Restored, answer.clone());
        if let Some(item) = &mut change.item {
            item.error = Some(error);
        }
        changes.push(change);
        head = after;
    }
    Ok(changes)
}

fn check_times(head: &Head) -> Result<(), Refusal> {
    let ends = match &head.state {
        State::Pending | State::Paused => [None, None],
        State::Processing(lease) => [Some(lease.deadline), None],
        State::Completed { at, remove_at } | State::Failed { at, remove_at, .. } => [Some(*at), *remove_at],
    };
    let times =
        [Some(head.created_at), Some(head.ready_at), head.expires_at, head.changed_at, head.heartbeat_at];
    let times = times.into_iter().chain(ends);
    match times.flatten().find(|time| *time > Timestamp::MAX) {
        Some(time) => Err(Refusal::invalid("time", format!("{time} is beyond {}", Timestamp::MAX))),
        None => Ok(()),
    }
}
