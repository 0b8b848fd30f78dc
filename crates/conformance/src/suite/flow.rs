//! Flow control: concurrency and rate.

use super::Harness;
use super::operations::*;
use super::races::race;
use super::rig::*;
use futures::executor::block_on;
use towline_domain::{Flow, Millis, Policy, PolicyPatch, Rate, Refusal, Throttle};
use towline_store::{Operation, Received};

fn limited(concurrency: u32) -> Policy {
    Policy { flow: Flow { concurrency: Some(concurrency), ..Flow::default() }, ..plain() }
}

fn rated(rate: &str) -> Policy {
    let rate = rate.parse().expect("a rate");
    Policy { flow: Flow { rate: Some(rate), ..Flow::default() }, ..plain() }
}

fn patch(patch: PolicyPatch) -> Operation {
    Operation::ChangePolicy { queue: name("jobs"), patch: Box::new(patch) }
}

#[track_caller]
fn receive(rig: &Rig, max: u32) -> (usize, Option<Throttle>) {
    let Received { items, throttle: held, .. } = rig.received(rig.receive_call("jobs", max));
    (items.len(), held)
}

pub(super) fn concurrency_limits_the_number_of_leased_items(harness: &dyn Harness) {
    let rig = Rig::with_queue(harness, limited(3));
    let ids = rig.submit_many("jobs", 10);
    let held = rig.receive("jobs", 2);
    // A receive fills the limit exactly and reports that it is reached.
    let rest = rig.received(rig.receive_call("jobs", 10));
    assert_eq!((rest.items.len(), rest.throttle), (1, Some(Throttle::Concurrency)));
    assert_eq!(rest.items[0].head.id, ids[2]);
    assert_eq!(receive(&rig, 1), (0, Some(Throttle::Concurrency)));
    assert_eq!((rig.counts("jobs").processing, rig.counts("jobs").pending), (3, 7));
    rig.commit(&held[0]);
    assert_eq!(rig.take("jobs").id, ids[3], "in order");
    assert_eq!(receive(&rig, 1), (0, Some(Throttle::Concurrency)));
    // Another queue is not affected.
    rig.create("other", plain());
    rig.submit_many("other", 5);
    assert_eq!(rig.receive("other", 5).len(), 5);
}

pub(super) fn every_end_of_a_lease_frees_its_slot(harness: &dyn Harness) {
    for (verb_name, verb) in every_settle() {
        let rig = Rig::with_queue(harness, limited(1));
        let first = rig.hold("jobs");
        let second = rig.submit("jobs", payload("second"));
        assert_eq!(receive(&rig, 1).0, 0);
        rig.lease(&first, verb).expect(verb_name);
        assert_eq!(receive(&rig, 5).0, 1, "after {verb_name}");
        assert!(rig.find(second).is_some());
    }
    let rig = Rig::with_queue(harness, limited(1));
    rig.submit_many("jobs", 4);
    let held = rig.take("jobs");
    rig.cancel(held.id);
    let held = rig.take("jobs");
    rig.ok(Operation::Delete { id: held.id, force: true });
    let held = rig.take("jobs");
    assert_eq!(receive(&rig, 1).0, 0);
    rig.at(held.deadline());
    // One call carries out the lapse and receives the next item.
    assert_eq!(receive(&rig, 5), (1, Some(Throttle::Concurrency)));
}

pub(super) fn a_receive_sees_slots_freed_in_its_batch(harness: &dyn Harness) {
    let rig = Rig::with_queue(harness, limited(2));
    rig.submit_many("jobs", 6);
    let held = rig.receive("jobs", 2);
    let receive = |max| Operation::Receive(Box::new(rig.receive_call("jobs", max)));
    let answers =
        rig.update(vec![receive(5), held[0].call(commit()), receive(5), held[1].call(release()), receive(5)]);
    let given: Vec<usize> = answers
        .iter()
        .filter_map(|answer| match answer {
            Ok(towline_store::Reply::Received(received)) => Some(received.items.len()),
            _ => None,
        })
        .collect();
    assert_eq!(given, [0, 1, 1]);
    assert_eq!(rig.counts("jobs").processing, 2);
}

pub(super) fn leases_that_lapse_together_free_all_their_slots(harness: &dyn Harness) {
    let rig = Rig::with_queue(harness, Policy { max_retries: 0, ..limited(50) });
    rig.submit_many("jobs", 120);
    let held = rig.receive("jobs", 100);
    assert_eq!(held.len(), 50);
    rig.at(held[0].deadline());
    assert_eq!(receive(&rig, 100), (50, Some(Throttle::Concurrency)));
    assert_eq!((rig.counts("jobs").failed, rig.counts("jobs").pending), (50, 20));
}

pub(super) fn a_changed_concurrency_applies_at_once(harness: &dyn Harness) {
    let rig = Rig::with_queue(harness, plain());
    rig.submit_many("jobs", 10);
    let held = rig.receive("jobs", 4);
    // A limit below the number of leased items: no holder loses its lease, and no receiver gets one.
    rig.ok(patch(PolicyPatch { concurrency: Some(Some(2)), ..PolicyPatch::default() }));
    assert_eq!(rig.view("jobs").queue.policy.flow.concurrency, Some(2));
    rig.commit(&held[0]);
    rig.commit(&held[1]);
    assert_eq!(receive(&rig, 1), (0, Some(Throttle::Concurrency)));
    rig.commit(&held[2]);
    assert_eq!(receive(&rig, 5).0, 1);
    rig.ok(patch(PolicyPatch { concurrency: Some(Some(4)), ..PolicyPatch::default() }));
    assert_eq!(receive(&rig, 5).0, 2);
    rig.ok(patch(PolicyPatch { concurrency: Some(None), ..PolicyPatch::default() }));
    assert_eq!(receive(&rig, 5), (3, None));
}

pub(super) fn a_paused_queue_at_its_limit_gives_no_items(harness: &dyn Harness) {
    let rig = Rig::with_queue(harness, limited(2));
    rig.submit_many("jobs", 4);
    let held = rig.take("jobs");
    rig.ok(Operation::PauseQueue { queue: name("jobs") });
    assert_eq!(receive(&rig, 5).0, 0);
    rig.commit(&held);
    assert_eq!(receive(&rig, 5).0, 0);
    rig.ok(Operation::ResumeQueue { queue: name("jobs") });
    assert_eq!(receive(&rig, 5), (2, Some(Throttle::Concurrency)));
}

pub(super) fn concurrency_holds_with_parallel_receivers(harness: &dyn Harness) {
    let rig = Rig::with_queue(harness, limited(5));
    rig.submit_many("jobs", 60);
    let most = race(&rig, |_, store| {
        let mut most = 0;
        for _ in 0..6 {
            let call = Operation::Receive(Box::new(rig.receive_call("jobs", 3)));
            let mut answers = block_on(store.update(vec![call])).expect("the store answers").answers;
            let Some(Ok(towline_store::Reply::Received(received))) = answers.pop() else {
                panic!("received")
            };
            let view = block_on(store.queue(name("jobs"))).expect("read").expect("there");
            most = most.max(view.counts.processing);
            let ends: Vec<Operation> =
                received.items.into_iter().map(|item| Held::of(item).call(commit())).collect();
            block_on(store.update(ends)).expect("the store answers");
        }
        most
    });
    assert!(most.iter().all(|&most| most <= 5), "{most:?}");
    let counts = rig.counts("jobs");
    assert_eq!((counts.processing, counts.pending + counts.completed), (0, 60));
}

pub(super) fn a_rate_allows_a_burst_and_then_a_steady_flow(harness: &dyn Harness) {
    let rig = Rig::with_queue(harness, rated("100/s,burst=5"));
    let ids = rig.submit_many("jobs", 40);
    assert_eq!(receive(&rig, 3), (3, None));
    assert_eq!(receive(&rig, 10), (2, Some(Throttle::Rate(Millis(10)))));
    rig.advance(9);
    assert_eq!(receive(&rig, 10), (0, Some(Throttle::Rate(Millis(1)))));
    rig.advance(1);
    let next = rig.received(rig.receive_call("jobs", 10));
    assert_eq!((next.items.len(), next.throttle), (1, Some(Throttle::Rate(Millis(10)))));
    assert_eq!(next.items[0].head.id, ids[5], "in order");
    rig.advance(25);
    // The unused fraction of an item is kept.
    assert_eq!(receive(&rig, 10), (2, Some(Throttle::Rate(Millis(5)))));
    rig.advance(1000);
    assert_eq!(receive(&rig, 10).0, 5, "idle time earns at most one burst");
    // A returned item counts again when it is received again.
    assert_eq!(rig.counts("jobs").processing, 13);
}

pub(super) fn a_receive_reports_how_many_more_items_the_limits_allow(harness: &dyn Harness) {
    let more = |rig: &Rig, max| rig.received(rig.receive_call("jobs", max)).more;
    let rig = Rig::with_queue(harness, rated("100/s,burst=5"));
    rig.submit_many("jobs", 8);
    assert_eq!(more(&rig, 1), 4);
    assert_eq!(more(&rig, 4), 0, "the burst is used up");
    rig.advance(20);
    assert_eq!(more(&rig, 1), 1);
    rig.advance(1000);
    assert_eq!(more(&rig, 1), 1, "no more than there are ready items");
    rig.advance(1000);
    assert_eq!(more(&rig, 1), 0);
    rig.submit_many("jobs", 8);
    rig.submit("jobs", delayed(3_600_000));
    rig.ok(patch(PolicyPatch { rate: Some(None), concurrency: Some(Some(12)), ..PolicyPatch::default() }));
    assert_eq!(more(&rig, 1), 3, "nine of twelve slots are used");
    rig.ok(patch(PolicyPatch { concurrency: Some(Some(100)), ..PolicyPatch::default() }));
    assert_eq!(more(&rig, 1), 6, "one of the items is scheduled");
    rig.ok(patch(PolicyPatch { concurrency: Some(None), ..PolicyPatch::default() }));
    assert!((1..=5).contains(&more(&rig, 1)), "a lower bound: a store need not count what nothing limits");
    assert_eq!(more(&rig, 10), 0, "the receiver got all there was");
}

pub(super) fn an_empty_receive_does_not_use_up_the_rate(harness: &dyn Harness) {
    let rig = Rig::with_queue(harness, rated("10/s,burst=2"));
    assert_eq!(receive(&rig, 10), (0, None));
    rig.submit_many("jobs", 1);
    assert_eq!(receive(&rig, 10), (1, None));
    assert_eq!(receive(&rig, 10), (0, None));
    rig.submit_many("jobs", 5);
    assert_eq!(receive(&rig, 10), (1, Some(Throttle::Rate(Millis(100)))));
    let answers = rig.update(vec![
        Operation::Receive(Box::new(rig.receive_call("jobs", 1))),
        Operation::Receive(Box::new(rig.receive_call("jobs", 1))),
    ]);
    assert!(answers.iter().all(
        |answer| matches!(answer, Ok(towline_store::Reply::Received(received)) if received.items.is_empty())
    ));
}

pub(super) fn a_changed_rate_applies_at_once(harness: &dyn Harness) {
    let rig = Rig::with_queue(harness, rated("1/h"));
    rig.submit_many("jobs", 20);
    assert_eq!(receive(&rig, 10), (1, Some(Throttle::Rate(Millis::hours(1)))));
    let rate: Rate = "1000/s,burst=3".parse().expect("a rate");
    rig.ok(patch(PolicyPatch { rate: Some(Some(rate)), ..PolicyPatch::default() }));
    // The wait of the old rate does not apply any more.
    assert_eq!(receive(&rig, 10), (0, Some(Throttle::Rate(Millis(1)))));
    rig.advance(2);
    assert_eq!(receive(&rig, 10).0, 2);
    rig.ok(patch(PolicyPatch { rate: Some(None), ..PolicyPatch::default() }));
    assert_eq!(receive(&rig, 10), (10, None));
}

pub(super) fn a_rate_and_a_concurrency_limit_hold_together(harness: &dyn Harness) {
    let mut policy = rated("1000/s,burst=4");
    policy.flow.concurrency = Some(3);
    let rig = Rig::with_queue(harness, policy);
    rig.submit_many("jobs", 20);
    let held = rig.receive("jobs", 10);
    assert_eq!(held.len(), 3);
    assert_eq!(receive(&rig, 1).1, Some(Throttle::Concurrency));
    held.iter().for_each(|held| rig.commit(held));
    assert_eq!(receive(&rig, 10), (1, Some(Throttle::Rate(Millis(1)))));
}

pub(super) fn limits_out_of_range_are_refused(harness: &dyn Harness) {
    let rig = Rig::open(harness);
    let mut policies = vec![limited(0), limited(1_000_001)];
    policies.extend(["0/s", "2000000/s", "1/400d", "1/s,burst=0"].map(rated));
    for policy in policies {
        let refusal = rig.refused(create("jobs", policy.clone()));
        assert!(matches!(refusal, Refusal::Invalid { .. }), "{policy:?}: {refusal}");
    }
    rig.create("jobs", limited(1));
    let refusal = rig.refused(create("jobs", limited(2)));
    assert!(refusal.to_string().contains("policy.concurrency"), "{refusal}");
    let refusal = rig.refused(patch(PolicyPatch { concurrency: Some(Some(0)), ..PolicyPatch::default() }));
    assert_eq!(refusal.code(), "invalid");
}

pub(super) fn limits_survive_a_reopen(harness: &dyn Harness) {
    let mut policy = rated("10/s,burst=4");
    policy.flow.concurrency = Some(3);
    policy.tally_tags = ["team".to_owned()].into();
    let rig = Rig::with_queue(harness, policy.clone());
    rig.submit_many("jobs", 20);
    let held = rig.receive("jobs", 10);
    assert_eq!(held.len(), 3);
    let Some(rig) = rig.reopen(harness) else { return };
    assert_eq!(rig.view("jobs").queue.policy, policy);
    assert_eq!(receive(&rig, 10), (0, Some(Throttle::Concurrency)));
    held.iter().for_each(|held| rig.commit(held));
    // At most one more burst is allowed after a reopen.
    assert!((1..=3).contains(&receive(&rig, 10).0));
}

pub(super) fn a_receive_from_a_paused_queue_says_so(harness: &dyn Harness) {
    let rig = Rig::with_queue(harness, Policy::default());
    rig.submit_many("jobs", 2);
    rig.ok(Operation::PauseQueue { queue: name("jobs") });
    let received = rig.received(rig.receive_call("jobs", 1));
    assert_eq!((received.items.len(), received.paused), (0, true));
    rig.ok(Operation::ResumeQueue { queue: name("jobs") });
    let received = rig.received(rig.receive_call("jobs", 1));
    assert_eq!((received.items.len(), received.paused), (1, false));
}
