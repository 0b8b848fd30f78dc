//! Short constructors for operations, submissions, verbs and expected replies.

use bytes::Bytes;
use towline_domain::change::Answer;
use towline_domain::command::{Verb, When};
use towline_domain::{
    Adjust, Backoff, Body, FieldEdits, Fields, ItemId, ItemState, LeaseCall, LeaseToken, Millis, Outcome,
    Policy, Queue, QueueName, Schema, Submission, Timestamp, Trace, TraceParent,
};
use towline_store::Answered;
use towline_store::{Operation, Reply};
use uuid::Uuid;

pub(super) fn lease_call(id: ItemId, token: LeaseToken, verb: Verb, adjust: Adjust) -> Operation {
    Operation::Lease { id, call: Box::new(LeaseCall { token, verb, adjust }) }
}

pub(super) fn name(text: &str) -> QueueName {
    text.parse().expect("a queue name")
}

pub(super) fn create(queue: &str, policy: Policy) -> Operation {
    create_with(queue, Schema::default(), policy)
}

pub(super) fn create_with(queue: &str, schema: Schema, policy: Policy) -> Operation {
    Operation::CreateQueue { queue: name(queue), schema: Box::new(schema), policy: Box::new(policy) }
}

pub(super) fn submit(queue: &str, submission: Submission) -> Operation {
    Operation::Submit { queue: name(queue), submission: Box::new(submission) }
}

pub(super) fn delete(id: ItemId) -> Operation {
    Operation::Delete { id, force: false }
}

#[track_caller]
pub(super) fn submitted(answered: &Answered) -> (ItemId, bool) {
    match answered {
        Ok(Reply::Answer(Answer::Submitted { id, created })) => (*id, *created),
        other => panic!("unexpected reply to a submit: {other:?}"),
    }
}

/// The reply that names the resulting state of an item.
pub(super) fn left(state: ItemState) -> Answered {
    Ok(Reply::Answer(Answer::State(state)))
}

pub(super) fn until(deadline: Timestamp) -> Answered {
    Ok(Reply::Answer(Answer::Leased { deadline }))
}

/// The code of a refusal, or `ok`.
pub(super) fn code(answered: &Answered) -> &'static str {
    match answered {
        Ok(_) => "ok",
        Err(refusal) => refusal.code(),
    }
}

pub(super) fn payload(blob: impl Into<Bytes>) -> Submission {
    Submission { fields: Fields { blob: Some(blob.into()), ..Fields::default() }, ..Submission::default() }
}

pub(super) fn with_priority(priority: i16) -> Submission {
    Submission { priority, ..payload("work") }
}

pub(super) fn delayed(millis: u64) -> Submission {
    Submission { ready: When::After(Millis(millis)), ..payload("later") }
}

pub(super) fn keyed(key: &str, blob: impl Into<Bytes>) -> Submission {
    Submission { body: Body { idempotency_key: Some(key.to_owned()), ..Body::default() }, ..payload(blob) }
}

/// An id chosen by the submitter.
pub(super) fn chosen(number: u128) -> ItemId {
    ItemId(Uuid::from_u128(0x0c40_5e00_0000_4000_8000_0000_0000_0000 | number))
}

pub(super) fn foreign_token() -> LeaseToken {
    LeaseToken(Uuid::from_u128(0xdead_beef))
}

pub(super) fn commit() -> Verb {
    Verb::Commit(Outcome::default())
}

pub(super) fn fail(reason: &str) -> Verb {
    Verb::Fail { reason: reason.to_owned() }
}

/// A retry with the backoff of the queue.
pub(super) fn retry(error: &str) -> Verb {
    Verb::Retry { error: error.to_owned(), delay: None, seed: 0 }
}

pub(super) fn release() -> Verb {
    Verb::Release { delay: Millis::ZERO, counted: true }
}

pub(super) fn defer(millis: u64) -> Verb {
    Verb::Defer { until: When::After(Millis(millis)) }
}

pub(super) fn heartbeat() -> Verb {
    Verb::Heartbeat { visibility: None }
}

/// Every verb that needs a lease, by name.
pub(super) fn every_verb() -> Vec<(&'static str, Verb)> {
    let mut verbs = vec![("heartbeat", heartbeat()), ("edit", Verb::Edit)];
    verbs.extend(every_settle());
    verbs
}

/// Every verb that ends a lease, by name.
pub(super) fn every_settle() -> Vec<(&'static str, Verb)> {
    vec![
        ("commit", commit()),
        ("fail", fail("broken")),
        ("retry", retry("try again")),
        ("release", release()),
        ("defer", defer(1000)),
    ]
}

pub(super) fn to_queue(queue: &str) -> Adjust {
    Adjust { queue: Some(name(queue)), ..Adjust::default() }
}

pub(super) fn to_priority(priority: i16) -> Adjust {
    Adjust { priority: Some(priority), ..Adjust::default() }
}

pub(super) fn edits(edits: FieldEdits) -> Adjust {
    Adjust { edits, ..Adjust::default() }
}

pub(super) fn trace(number: u8) -> Option<Box<Trace>> {
    let parent = TraceParent { trace_id: [number; 16], span_id: [7; 8], flags: 1 };
    Some(Box::new(Trace { parent, state: "rojo=00f0,congo=t61".parse().ok() }))
}

/// A submit with a chosen id.
pub(super) fn with_id(number: u128) -> Submission {
    Submission { id: Some(chosen(number)), ..payload("work") }
}

/// The default policy, with retries at once.
pub(super) fn plain() -> Policy {
    Policy { backoff: Backoff::NONE, ..Policy::default() }
}

/// A policy with short leases and almost unlimited retries.
pub(super) fn lenient() -> Policy {
    Policy { visibility_timeout: Millis(1000), max_retries: 1000, ..plain() }
}

#[track_caller]
pub(super) fn answered_queue(reply: Reply) -> Queue {
    match reply {
        Reply::Answer(Answer::Queue(queue)) => *queue,
        other => panic!("expected a queue, got {other:?}"),
    }
}
