//! Decisions about a new item.

use super::{Context, before, unchanged};
use crate::change::{Answer, Change, ItemChange};
use crate::command::{RecordGuard, Submission};
use crate::dependency::GroupTag;
use crate::digest::{self, ContentDigest};
use crate::event::EventKind;
use crate::fields::{FieldEdits, Fields};
use crate::id::ItemId;
use crate::item::{Body, Claim, Extras, Head, KeyHold, Offer, State};
use crate::kv::{self, KvCommand, KvRecord};
use crate::limits;
use crate::policy::Unique;
use crate::queue::Queue;
use crate::refusal::Refusal;
use crate::round_robin::KeyTag;
use crate::score::Order;
use crate::tally::tally_value;
use crate::time::{Millis, Timestamp};

pub(super) fn submit(
    context: &Context<'_>,
    submission: Submission,
    now: Timestamp,
) -> Result<Change, Refusal> {
    let queue = context.queue()?;
    check(queue, &submission)?;
    let record = match &submission.record_guard {
        Some(guard) => Some(next_record(context, guard, now)?),
        None => None,
    };
    // A known key is answered before the queue is checked: the first answer may have been lost, and the queue may have
    // closed or filled up since.
    if let (Some(key), Some((id, content))) = (&submission.body.idempotency_key, context.key_owner) {
        if digest::content(&submission.body, &submission.fields) == content {
            return Ok(unchanged(Answer::Submitted { id, created: false }));
        }
        return Err(Refusal::KeyConflict { key: key.clone(), id });
    }
    let replaces =
        context.replaces.filter(|head| submission.body.replace_key.is_some() && head.is_replaceable());
    check_accepts(context, queue, replaces)?;
    let Some(id) = replaces.map(|head| head.id).or(submission.id).or(context.new_id) else {
        return Err(Refusal::invalid("id", "the store derived no id for this item"));
    };
    let item = new_item(queue, submission, id, replaces, now);
    let (event, answer) = match replaces {
        Some(_) => (EventKind::Replaced, Answer::Replaced { id }),
        None => (EventKind::Submitted, Answer::Submitted { id, created: true }),
    };
    Ok(Change { event: Some(event), answer, item: Some(item), queue: None, record })
}

/// Refuses a new item if the queue is closed or full, or if the id is taken.
fn check_accepts(context: &Context<'_>, queue: &Queue, replaces: Option<&Head>) -> Result<(), Refusal> {
    queue.check_open()?;
    if let Some(head) = context.item {
        return Err(Refusal::IdTaken { id: head.id });
    }
    let depth = context.counts.depth();
    // A replacement does not add to the depth.
    let full = |limit: &u64| replaces.is_none() && depth >= *limit;
    match queue.policy.depth_limit.filter(full) {
        Some(limit) => Err(Refusal::QueueFull { name: queue.name.to_string(), depth, limit }),
        None => Ok(()),
    }
}

fn new_item(
    queue: &Queue,
    submission: Submission,
    id: ItemId,
    replaces: Option<&Head>,
    now: Timestamp,
) -> ItemChange {
    let created_at = replaces.map_or(now, |head| head.created_at);
    let ready_at = ready_at_of(&submission, queue, replaces, now);
    let Submission { priority, overrides, mut body, fields, after, .. } = submission;
    body.claim = match (&body.idempotency_key, &body.replace_key) {
        (Some(_), _) => Some(Claim { queue: queue.id, content: digest::content(&body, &fields) }),
        (None, Some(_)) => Some(Claim { queue: queue.id, content: ContentDigest::default() }),
        (None, None) => None,
    };
    let (score, offer) = score(queue, &body, &fields, now);
    let expire_after = overrides.expire_after.or(queue.policy.expire_after);
    let tally_tags = tally_tags(queue, &body);
    let state = if after.is_some() { State::Paused } else { State::Pending };
    let key_hold = match overrides.unique.unwrap_or(queue.policy.unique) {
        Unique::WhileUnfinished if body.idempotency_key.is_some() => KeyHold::WhileUnfinished,
        _ => KeyHold::WhileExists,
    };
    let extras = Extras { overrides, score, tally_tags, after, key_hold, offer, ..Extras::default() };
    let head = Head {
        id,
        queue: queue.id,
        state,
        priority,
        created_at,
        ready_at,
        retries: 0,
        deliveries: 0,
        revision: replaces.map_or(1, |head| head.revision.wrapping_add(1)),
        transitions: 0,
        expires_at: expire_after.map(|span| now.after(span)),
        last_settle: None,
        group: body.group.as_deref().map(GroupTag::of),
        fairness_key: KeyTag::of_any(body.fairness_key.as_deref()),
        changed_at: None,
        heartbeat_at: None,
        extras: (extras != Extras::default()).then(|| Box::new(extras)),
    };
    ItemChange {
        before: replaces.map(before),
        after: Some(head),
        body: Some(Box::new((body, fields))),
        edits: FieldEdits::default(),
        outcome: None,
        error: None,
    }
}

/// The score of a new item, and its offer, if it makes one.
fn score(queue: &Queue, body: &Body, fields: &Fields, now: Timestamp) -> (i64, Option<Box<Offer>>) {
    let offer = Offer::of(body, fields.bytes() as u64);
    let score = match &queue.policy.order {
        Order::Score(weights) => offer.score(weights, now),
        _ => 0,
    };
    let is_made = body.fee.is_some() || body.size_bytes.is_some() || body.tier.is_some();
    (score, is_made.then(|| Box::new(offer)))
}

/// When a new item or a replacement becomes ready.
fn ready_at_of(submission: &Submission, queue: &Queue, replaces: Option<&Head>, now: Timestamp) -> Timestamp {
    let ready_at = super::ready_at(submission.ready, queue, now);
    let (first, ready_at) = match replaces {
        None => (now, ready_at),
        // A ready item that is replaced keeps its position. Otherwise an item that is replaced often would never be first.
        Some(head) if ready_at <= now => (head.created_at, head.ready_at.min(ready_at)),
        Some(head) => (head.created_at, ready_at),
    };
    submission.delay_max.map_or(ready_at, |max| ready_at.min(first.after(max)))
}

/// The record after the submit. Refuses if the record changed since the submitter read it, or before `not_before`.
fn next_record(
    context: &Context<'_>,
    guard: &RecordGuard,
    now: Timestamp,
) -> Result<Box<(String, KvRecord)>, Refusal> {
    if now < guard.not_before {
        return Err(Refusal::TooEarly { until: guard.not_before });
    }
    let command =
        KvCommand::Replace { seen: Some(guard.seen.clone()), value: Some(guard.next.clone()), ttl: None };
    let mut decision = kv::decide(&guard.key, |_| context.record, command, now)?;
    match decision.after.pop() {
        Some((key, Some(record))) => Ok(Box::new((key, record))),
        _ => Err(Refusal::RecordChanged { key: guard.key.clone() }),
    }
}

/// The tags of a new item that its queue tallies.
pub(super) fn tally_tags(queue: &Queue, body: &Body) -> Vec<(String, String)> {
    let entries = queue.policy.tally_tags.iter();
    entries.filter_map(|entry| Some((entry.clone(), tally_value(entry, &body.tags)?))).collect()
}

fn check(queue: &Queue, submission: &Submission) -> Result<(), Refusal> {
    let Submission { body, fields, overrides, .. } = submission;
    overrides.check()?;
    check_content(body, fields)?;
    if let Some(after) = &submission.after {
        after.check(submission.id, body.group.as_deref())?;
    }
    check_replace(submission)?;
    if overrides.unique.is_some() && body.idempotency_key.is_none() {
        let message =
            "it says how long an `idempotency_key` belongs to the item; set an `idempotency_key`, too";
        return Err(Refusal::invalid("unique", message));
    }
    if let crate::command::When::After(delay) = submission.ready
        && delay > limits::DELAY_MAX
    {
        return Err(Refusal::invalid(
            "delay",
            format!("{delay} is too long; use at most {}", Millis(limits::DELAY_MAX.0)),
        ));
    }
    if let crate::command::When::At(time) = submission.ready
        && time > Timestamp::MAX
    {
        return Err(Refusal::invalid(
            "ready_at",
            format!("{time} is too late; use at most {}", Timestamp::MAX),
        ));
    }
    if let (Order::Score(weights), Some(tier)) = (&queue.policy.order, &body.tier)
        && !weights.tiers_permille.contains_key(tier)
    {
        let known: Vec<&str> = weights.tiers_permille.keys().map(String::as_str).collect();
        return Err(Refusal::invalid(
            "tier",
            format!("{tier:?} is unknown; use one of {}", known.join(", ")),
        ));
    }
    queue.schema.check_inputs(&body.inputs, &body.params)
}

/// Refuses what cannot be combined with a replace key, because an item that is replaced is forgotten.
fn check_replace(submission: &Submission) -> Result<(), Refusal> {
    let Submission { body, delay_max, .. } = submission;
    if body.replace_key.is_none() {
        let message = "it limits how far a `replace_key` delays an item; set a `replace_key`, too";
        return delay_max.map_or(Ok(()), |_| Err(Refusal::invalid("delay_max", message)));
    }
    let excluded = [
        ("an `idempotency_key`", body.idempotency_key.is_some()),
        ("an `id`", submission.id.is_some()),
        ("a `group`", body.group.is_some()),
        ("`after`", submission.after.is_some()),
        ("a schedule", submission.record_guard.is_some()),
    ];
    if let Some((other, _)) = excluded.iter().find(|(_, given)| *given) {
        let message = format!("it cannot be combined with {other}; leave one of them out");
        return Err(Refusal::invalid("replace_key", message));
    }
    match delay_max {
        Some(max) if *max > limits::DELAY_MAX => {
            let message = format!("{max} is too long; use at most {}", limits::DELAY_MAX);
            Err(Refusal::invalid("delay_max", message))
        }
        _ => Ok(()),
    }
}

/// The checks that do not depend on the queue.
pub(crate) fn check_content(body: &Body, fields: &Fields) -> Result<(), Refusal> {
    fields.check()?;
    check_body(body)?;
    let params: usize = body.params.iter().map(|(name, value)| name.len() + value.as_str().len()).sum();
    let bytes = fields.bytes() + params;
    if bytes > limits::ITEM_BYTES_MAX {
        return Err(Refusal::TooLarge {
            what: "the item",
            bytes: bytes as u64,
            max: limits::ITEM_BYTES_MAX as u64,
        });
    }
    Ok(())
}

fn check_body(body: &Body) -> Result<(), Refusal> {
    if let Some(key) = &body.idempotency_key {
        check_text("idempotency_key", key, limits::KEY_BYTES_MAX)?;
    }
    if let Some(key) = &body.replace_key {
        check_text("replace_key", key, limits::KEY_BYTES_MAX)?;
    }
    for (what, text) in [
        ("fairness_key", &body.fairness_key),
        ("group", &body.group),
        ("source", &body.source),
        ("tier", &body.tier),
    ] {
        if let Some(text) = text {
            check_text(what, text, limits::LABEL_BYTES_MAX)?;
        }
    }
    if body.tags.len() > limits::TAGS_MAX {
        let message = format!("{} tags; use at most {}", body.tags.len(), limits::TAGS_MAX);
        return Err(Refusal::invalid("tags", message));
    }
    for (name, value) in &body.tags {
        check_text("tag name", name, limits::TAG_KEY_BYTES_MAX)?;
        if value.len() > limits::TAG_VALUE_BYTES_MAX {
            let message = format!(
                "tag {name:?} has {} bytes; use at most {}",
                value.len(),
                limits::TAG_VALUE_BYTES_MAX
            );
            return Err(Refusal::invalid("tags", message));
        }
    }
    Ok(())
}

fn check_text(what: &'static str, text: &str, max: usize) -> Result<(), Refusal> {
    if text.is_empty() || text.len() > max {
        return Err(Refusal::invalid(what, format!("{} bytes; use 1 to {max}", text.len())));
    }
    Ok(())
}
