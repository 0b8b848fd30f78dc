//! Commits that submit items, over several shards.

#![allow(clippy::unwrap_used, reason = "tests")]

use futures::executor::block_on;
use std::sync::Arc;
use towline_conformance::ReferenceStore;
use towline_domain::change::Answer;
use towline_domain::command::Verb;
use towline_domain::{
    Adjust, Body, FieldSet, HandOff, Item, LeaseCall, Outcome, Policy, QueueName, Schema, Submission,
    Timestamp, TokenSeed,
};
use towline_shards::Shards;
use towline_store::{Answered, ManualClock, Operation, ReceiveCall, Reply, Store};

fn name(queue: &str) -> QueueName {
    queue.parse().unwrap()
}

fn run(shards: &Shards, operation: Operation) -> Answered {
    block_on(shards.update(vec![operation])).unwrap().answers.remove(0)
}

fn receive(shards: &Shards, max: u32) -> Vec<Item> {
    let call = ReceiveCall {
        queue: name("jobs"),
        max,
        visibility: None,
        assigned: false,
        seed: TokenSeed([1; 32]),
        fields: FieldSet::NONE,
        make_buffers: false,
    };
    match run(shards, Operation::Receive(Box::new(call))).unwrap() {
        Reply::Received(received) => received.items,
        other => panic!("{other:?}"),
    }
}

fn commit(item: &Item, key: Option<String>) -> Operation {
    let body = Body { idempotency_key: key, ..Body::default() };
    let submission = Submission { body, ..Submission::default() };
    let then_submit = vec![HandOff { queue: name("next"), submission }];
    let adjust = Adjust { then_submit, ..Adjust::default() };
    let token = item.head.lease().unwrap().token;
    let call = LeaseCall { token, verb: Verb::Commit(Outcome::default()), adjust };
    Operation::Lease { id: item.head.id, call: Box::new(call) }
}

#[test]
fn new_items_live_in_the_shard_of_the_committed_item() {
    let clock = Arc::new(ManualClock::new(Timestamp(1_700_000_000_000)));
    let parts: Vec<Arc<dyn Store>> =
        (0..3).map(|n| Arc::new(ReferenceStore::new(clock.clone(), n)) as Arc<dyn Store>).collect();
    let named = parts.iter().enumerate().map(|(n, part)| (format!("{n}"), part.clone()));
    let shards = Shards::new(named.collect()).unwrap();
    for queue in ["jobs", "next"] {
        let (policy, schema) = (Box::new(Policy::default()), Box::new(Schema::default()));
        run(&shards, Operation::CreateQueue { queue: name(queue), schema, policy }).unwrap();
    }
    for _ in 0..30 {
        run(&shards, Operation::Submit { queue: name("jobs"), submission: Box::default() }).unwrap();
    }
    let home = |id| parts.iter().position(|part| part.issued(id)).unwrap();
    let (mut accepted, mut refused) = (0, 0);
    for (number, item) in receive(&shards, 30).iter().enumerate() {
        match run(&shards, commit(item, Some(format!("key {number}")))) {
            Ok(Reply::Answer(Answer::HandedOff(handed_off))) => {
                assert_eq!(home(handed_off.items[0].id), home(item.head.id));
                accepted += 1;
            }
            // The key belongs to another shard.
            Err(error) => {
                let message = error.to_string();
                assert!(message.starts_with("then_submit[0]: idempotency_key: "), "{message}");
                let found = block_on(shards.get(vec![item.head.id], FieldSet::NONE)).unwrap().remove(0);
                assert!(found.unwrap().item.head.lease().is_some(), "the lease stays");
                // Without the key, the item goes where the commit is.
                run(&shards, commit(item, None)).unwrap();
                refused += 1;
            }
            other => panic!("{other:?}"),
        }
    }
    assert!(accepted > 0 && refused > 0, "{accepted} accepted, {refused} refused");
    let next = block_on(shards.queue(name("next"))).unwrap().unwrap();
    assert_eq!(next.counts.pending, 30);
}
