//! What a receive from several shards says of what is throttle back.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

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
    block_on(shards.update(vec![operation])).unwrap().remove(0).unwrap()
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
fn who_waits_at_a_full_shard_looks_out_for_the_end_of_a_lease_though_another_is_empty() {
    let of_queue = Flow { concurrency: Some(1), ..Flow::default() };
    let of_key = Flow { concurrency_per_key: Some(1), ..Flow::default() };
    let keys = |keys: &[KeyTag]| Throttle::Keys(keys.iter().copied().collect());
    // Once the other is empty, what comes of no key may be given out there.
    for (flow, all_full) in [(of_queue, Throttle::Concurrency), (of_key, keys(&[KeyTag::NONE]))] {
        let clock = Arc::new(ManualClock::new(Timestamp(1_700_000_000_000)));
        let parts: Vec<Arc<dyn Store>> =
            (0..2).map(|n| Arc::new(ReferenceStore::new(clock.clone(), n)) as Arc<dyn Store>).collect();
        let named = parts.iter().enumerate().map(|(n, part)| (format!("{n}"), part.clone()));
        let shards = Shards::new(named.collect()).unwrap();
        let policy = Box::new(Policy { flow, ..Policy::default() });
        let schema = Box::new(Schema::default());
        run(&shards, Operation::CreateQueue { queue: jobs(), schema, policy });
        // Whose turn it is takes it: two are in one of them, and one in the other.
        for _ in 0..3 {
            run(&shards, Operation::Submit { queue: jobs(), submission: Box::new(Submission::default()) });
        }
        let given = receive(&shards, 1);
        assert_eq!((given.items.len(), given.throttle), (2, Some(all_full)));
        let waiting = |part: &Arc<dyn Store>| block_on(part.queue(jobs())).unwrap().unwrap().counts.pending;
        let empty = parts.iter().find(|part| waiting(part) == 0).unwrap();
        let there = given.items.iter().find(|item| empty.issued(item.head.id)).unwrap();
        let verb = Verb::Commit(Outcome::default());
        let call = LeaseCall { token: there.head.lease().unwrap().token, verb, adjust: Adjust::default() };
        run(&shards, Operation::Lease { id: there.head.id, call: Box::new(call) });
        let nothing = receive(&shards, 2);
        assert_eq!((nothing.items.len(), nothing.throttle), (0, Some(keys(&[]))));
    }
}
