//! The throttle that a receive from several shards reports.

#![allow(clippy::unwrap_used, reason = "tests")]

use futures::executor::block_on;
use std::sync::Arc;
use towline_conformance::ReferenceStore;
use towline_domain::command::Verb;
use towline_domain::{
    Adjust, FieldSet, Flow, KeyTag, LeaseCall, Outcome, Policy, QueueName, Schema, Submission, Throttle,
    Timestamp, TokenSeed,
};
use towline_shards::Shards;
use towline_store::{ManualClock, Operation, ReceiveCall, Received, Reply, Store};

fn jobs() -> QueueName {
    "jobs".parse().unwrap()
}

fn run(shards: &Shards, operation: Operation) -> Reply {
    block_on(shards.update(vec![operation])).unwrap().answers.remove(0).unwrap()
}

fn receive(shards: &Shards, seed: u8) -> Received {
    let call = ReceiveCall {
        queue: jobs(),
        max: 10,
        visibility: None,
        assigned: false,
        seed: TokenSeed([seed; 32]),
        fields: FieldSet::NONE,
        make_buffers: false,
    };
    match run(shards, Operation::Receive(Box::new(call))) {
        Reply::Received(received) => received,
        other => panic!("{other:?}"),
    }
}

#[test]
fn a_receiver_waits_for_a_lease_to_end_in_a_full_shard_while_another_shard_is_empty() {
    let queue_limit = Flow { concurrency: Some(1), ..Flow::default() };
    let key_limit = Flow { concurrency_per_key: Some(1), ..Flow::default() };
    let keys = |keys: &[KeyTag]| Throttle::Keys(keys.iter().copied().collect());
    // Once the other shard is empty, an item without a key can be received from there.
    for (flow, all_full) in [(queue_limit, Throttle::Concurrency), (key_limit, keys(&[KeyTag::NONE]))] {
        let clock = Arc::new(ManualClock::new(Timestamp(1_700_000_000_000)));
        let parts: Vec<Arc<dyn Store>> =
            (0..2).map(|n| Arc::new(ReferenceStore::new(clock.clone(), n)) as Arc<dyn Store>).collect();
        let named = parts.iter().enumerate().map(|(n, part)| (format!("{n}"), part.clone()));
        let shards = Shards::new(named.collect()).unwrap();
        let policy = Box::new(Policy { flow, ..Policy::default() });
        let schema = Box::new(Schema::default());
        run(&shards, Operation::CreateQueue { queue: jobs(), schema, policy });
        // The shards take turns: one gets two items, the other gets one.
        for _ in 0..3 {
            run(&shards, Operation::Submit { queue: jobs(), submission: Box::new(Submission::default()) });
        }
        let first = receive(&shards, 1);
        assert_eq!((first.items.len(), first.throttle), (2, Some(all_full)));
        let pending = |part: &Arc<dyn Store>| block_on(part.queue(jobs())).unwrap().unwrap().counts.pending;
        let empty = parts.iter().find(|part| pending(part) == 0).unwrap();
        let item = first.items.iter().find(|item| empty.issued(item.head.id)).unwrap();
        let verb = Verb::Commit(Outcome::default());
        let call = LeaseCall { token: item.head.lease().unwrap().token, verb, adjust: Adjust::default() };
        run(&shards, Operation::Lease { id: item.head.id, call: Box::new(call) });
        let second = receive(&shards, 2);
        assert_eq!((second.items.len(), second.throttle), (0, Some(keys(&[]))));
    }
}
