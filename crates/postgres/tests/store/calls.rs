//! Short forms of store calls and their answers, for the tests.

pub use futures::executor::block_on;
use std::time::Duration;
use towline_domain::change::Answer;
use towline_domain::command::Verb;
use towline_domain::{
    Adjust, Body, Counts, FieldSet, Fields, ItemId, ItemState, LeaseCall, LeaseToken, Millis, Outcome,
    Policy, Schema, Submission, Timestamp, TokenSeed,
};
use towline_store::{Answered, Operation, QueueView, ReceiveCall, Reply, Store};

/// Waits until a condition holds, up to a minute.
pub fn until(what: &str, condition: impl Fn() -> bool) {
    for _ in 0..1200 {
        if condition() {
            return;
        }
        std::thread::sleep(Duration::from_millis(50));
    }
    panic!("timed out: {what}");
}

pub fn create(queue: &str, policy: Policy) -> Operation {
    let queue = queue.parse().unwrap();
    Operation::CreateQueue { queue, schema: Box::new(Schema::default()), policy: Box::new(policy) }
}

pub fn submit(queue: &str, payload: &str) -> Operation {
    let fields = Fields { blob: Some(payload.to_owned().into()), ..Fields::default() };
    let submission = Submission { fields, ..Submission::default() };
    Operation::Submit { queue: queue.parse().unwrap(), submission: Box::new(submission) }
}

pub fn submit_with_idempotency_key(queue: &str, key: &str, payload: &str) -> Operation {
    let fields = Fields { blob: Some(payload.to_owned().into()), ..Fields::default() };
    let body = Body { idempotency_key: Some(key.to_owned()), ..Body::default() };
    let submission = Submission { fields, body, ..Submission::default() };
    Operation::Submit { queue: queue.parse().unwrap(), submission: Box::new(submission) }
}

pub fn submit_with_fairness_key(queue: &str, key: &str) -> Operation {
    let body = Body { fairness_key: Some(key.to_owned()), ..Body::default() };
    let submission = Submission { body, ..Submission::default() };
    Operation::Submit { queue: queue.parse().unwrap(), submission: Box::new(submission) }
}

pub fn submit_with_replace_key(queue: &str, key: &str, payload: &str) -> Operation {
    let fields = Fields { blob: Some(payload.to_owned().into()), ..Fields::default() };
    let body = Body { replace_key: Some(key.to_owned()), ..Body::default() };
    let submission = Submission { fields, body, ..Submission::default() };
    Operation::Submit { queue: queue.parse().unwrap(), submission: Box::new(submission) }
}

pub fn lease(id: ItemId, token: LeaseToken, verb: Verb) -> Operation {
    Operation::Lease { id, call: Box::new(LeaseCall { token, verb, adjust: Adjust::default() }) }
}

pub fn commit() -> Verb {
    Verb::Commit(Outcome::default())
}

pub fn release() -> Verb {
    Verb::Release { delay: Millis::ZERO, counted: true }
}

pub fn foreign_token() -> LeaseToken {
    TokenSeed([0xaa; 32]).token(0, Timestamp(0))
}

pub fn left(state: ItemState) -> Answered {
    Ok(Reply::Answer(Answer::State(state)))
}

pub fn update(store: &dyn Store, batch: Vec<Operation>) -> Vec<Answered> {
    block_on(store.update(batch)).unwrap().answers
}

pub fn run(store: &dyn Store, operation: Operation) -> Answered {
    update(store, vec![operation]).remove(0)
}

pub fn seed(caller: usize, round: usize) -> TokenSeed {
    let mut bytes = [0; 32];
    bytes[..8].copy_from_slice(&caller.to_le_bytes());
    bytes[8..16].copy_from_slice(&round.to_le_bytes());
    TokenSeed(bytes)
}

pub fn receive_call(queue: &str, max: u32, seed: TokenSeed) -> Operation {
    Operation::Receive(Box::new(ReceiveCall {
        queue: queue.parse().unwrap(),
        max,
        visibility: None,
        assigned: false,
        seed,
        fields: FieldSet::ALL,
        make_buffers: false,
    }))
}

pub fn receive(store: &dyn Store, queue: &str, max: u32, seed: TokenSeed) -> Vec<(ItemId, LeaseToken)> {
    leases(&run(store, receive_call(queue, max, seed)))
}

pub fn leases(answered: &Answered) -> Vec<(ItemId, LeaseToken)> {
    let Ok(Reply::Received(received)) = answered else { panic!("a receive was answered with {answered:?}") };
    received.items.iter().map(|item| (item.head.id, item.head.lease().unwrap().token)).collect()
}

pub fn submitted(answered: &Answered) -> (ItemId, bool) {
    match answered {
        Ok(Reply::Answer(Answer::Submitted { id, created })) => (*id, *created),
        other => panic!("a submit was answered with {other:?}"),
    }
}

pub fn code(answered: &Answered) -> &'static str {
    answered.as_ref().err().map_or("ok", towline_store::OperationError::code)
}

pub fn view(store: &dyn Store, queue: &str) -> QueueView {
    block_on(store.queue(queue.parse().unwrap())).unwrap().unwrap()
}

pub fn counts(store: &dyn Store, queue: &str) -> Counts {
    view(store, queue).counts
}
