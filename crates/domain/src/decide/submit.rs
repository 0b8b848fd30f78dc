//! Decisions about a new item.

use super::{Context, unchanged};
use crate::after::GroupTag;
use crate::change::{Answer, Change, ItemChange};
use crate::command::{Once, Submission};
use crate::digest;
use crate::event::EventKind;
use crate::fields::{FieldEdits, Fields};
use crate::item::{Body, Claim, Extras, Head, State};
use crate::kv::{self, KvCommand, KvRecord};
use crate::limits;
use crate::queue::{Queue, QueueState};
use crate::refusal::Refusal;
use crate::score::Order;
use crate::time::{Millis, Timestamp};
use crate::turn::KeyTag;

pub(super) fn submit(
    context: &Context<'_>,
    submission: Submission,
    now: Timestamp,
) -> Result<Change, Refusal> {
    let queue = context.queue()?;
    check(queue, &submission)?;
    let record = match &submission.once {
        Some(once) => Some(replaced(context, once, now)?),
        None => None,
    };
    // A known key comes first: the answer to the first submit may have been lost while the queue closed or filled up.
    if let (Some(key), Some((id, content))) = (&submission.body.idempotency_key, context.key_owner) {
        if digest::content(&submission.body, &submission.fields) == content {
            return Ok(unchanged(Answer::Submitted { id, created: false }));
        }
        return Err(Refusal::KeyConflict { key: key.clone(), id });
    }
    match queue.state {
        QueueState::Open => {}
        QueueState::Closed { since } | QueueState::Completed { since } => {
            let (name, state) = (queue.name.to_string(), queue.state.name());
            return Err(Refusal::QueueClosed { name, state, since });
        }
    }
    if let Some(head) = context.item {
        return Err(Refusal::IdTaken { id: head.id });
    }
    let depth = context.counts.depth();
    if let Some(limit) = queue.policy.depth_limit.filter(|&limit| depth >= limit) {
        return Err(Refusal::QueueFull { name: queue.name.to_string(), depth, limit });
    }
    let Some(id) = submission.id.or(context.new_id) else {
        return Err(Refusal::invalid("id", "the store made no id for this item"));
    };

    let Submission { priority, ready, overrides, mut body, fields, after, .. } = submission;
    body.claim = body
        .idempotency_key
        .is_some()
        .then(|| Claim { queue: queue.id, content: digest::content(&body, &fields) });
    let score = match &queue.policy.order {
        Order::Score(weights) => {
            let size = body.size_bytes.unwrap_or(fields.bytes() as u64);
            weights.static_score(body.fee.unwrap_or(0), size, body.tier.as_deref(), now)
        }
        _ => 0,
    };
    let expire_after = overrides.expire_after.or(queue.policy.expire_after);
    let tally_tags = tally_tags(queue, &body);
    let state = if after.is_some() { State::Paused } else { State::Pending };
    let extras = Extras { overrides, score, tally_tags, after, ..Extras::default() };
    let head = Head {
        id,
        queue: queue.id,
        state,
        priority,
        created_at: now,
        ready_at: ready.resolve(now),
        retries: 0,
        deliveries: 0,
        revision: 1,
        transitions: 0,
        expires_at: expire_after.map(|span| now.after(span)),
        last_settle: None,
        group: body.group.as_deref().map(GroupTag::of),
        fairness_key: KeyTag::of_any(body.fairness_key.as_deref()),
        extras: (extras != Extras::default()).then(|| Box::new(extras)),
    };
    let item = ItemChange {
        before: None,
        after: Some(head),
        body: Some(Box::new((body, fields))),
        edits: FieldEdits::default(),
        outcome: None,
        error: None,
    };
    let answer = Answer::Submitted { id, created: true };
    Ok(Change { event: Some(EventKind::Submitted), answer, item: Some(item), queue: None, record })
}

/// The record after, if it is what the submitter saw and the time has come.
fn replaced(context: &Context<'_>, once: &Once, now: Timestamp) -> Result<Box<(String, KvRecord)>, Refusal> {
    if now < once.not_before {
        return Err(Refusal::TooEarly { until: once.not_before });
    }
    let command =
        KvCommand::Replace { seen: Some(once.seen.clone()), value: Some(once.next.clone()), ttl: None };
    let mut decision = kv::decide(&once.key, |_| context.record, command, now)?;
    match decision.after.pop() {
        Some((key, Some(record))) => Ok(Box::new((key, record))),
        _ => Err(Refusal::RecordChanged { key: once.key.clone() }),
    }
}

/// The tags of a new item that its queue counts by.
pub(super) fn tally_tags(queue: &Queue, body: &Body) -> Vec<(String, String)> {
    let wanted = queue.policy.tally_tags.iter().filter_map(|name| body.tags.get_key_value(name));
    wanted.map(|(name, value)| (name.clone(), value.clone())).collect()
}

fn check(queue: &Queue, submission: &Submission) -> Result<(), Refusal> {
    let Submission { body, fields, overrides, .. } = submission;
    overrides.check()?;
    check_content(body, fields)?;
    if let Some(after) = &submission.after {
        after.check(submission.id, body.group.as_deref())?;
    }
    if let crate::command::When::After(delay) = submission.ready
        && delay > limits::DELAY_MAX
    {
        return Err(Refusal::invalid(
            "delay",
            format!("{delay} is longer than {}", Millis(limits::DELAY_MAX.0)),
        ));
    }
    if let crate::command::When::At(time) = submission.ready
        && time > Timestamp::MAX
    {
        return Err(Refusal::invalid("ready_at", format!("{time} is beyond {}", Timestamp::MAX)));
    }
    if let (Order::Score(weights), Some(tier)) = (&queue.policy.order, &body.tier)
        && !weights.tiers_permille.contains_key(tier)
    {
        let known: Vec<&str> = weights.tiers_permille.keys().map(String::as_str).collect();
        return Err(Refusal::invalid("tier", format!("{tier:?} is not one of {}", known.join(", "))));
    }
    queue.schema.check_inputs(&body.inputs, &body.params)
}

/// Whatever queue it is for.
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
        let message = format!("{} given; at most {} are allowed", body.tags.len(), limits::TAGS_MAX);
        return Err(Refusal::invalid("tags", message));
    }
    for (name, value) in &body.tags {
        check_text("tag name", name, limits::TAG_KEY_BYTES_MAX)?;
        if value.len() > limits::TAG_VALUE_BYTES_MAX {
            let message =
                format!("tag {name:?} has {} bytes; at most {}", value.len(), limits::TAG_VALUE_BYTES_MAX);
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
