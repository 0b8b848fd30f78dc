//! Fairness: keys take turns in a round robin, by weight.

use super::Harness;
use super::operations::*;
use super::races::race;
use super::rig::*;
use futures::executor::block_on;
use std::collections::BTreeMap;
use towline_domain::command::{Verb, When};
use towline_domain::{
    Adjust, Body, Fairness, Flow, ItemId, KeyTag, Millis, Order, Overrides, Policy, PolicyPatch, Refusal,
    Submission,
};
use towline_store::{Operation, Reply};

fn fair() -> Policy {
    weighted(&[])
}

fn weighted(weights: &[(&str, u32)]) -> Policy {
    Policy { flow: Flow { fairness: Some(fairness(weights)), ..Flow::default() }, ..plain() }
}

pub(super) fn fairness(weights: &[(&str, u32)]) -> Fairness {
    Fairness { weights: weights.iter().map(|(key, weight)| ((*key).to_owned(), *weight)).collect() }
}

fn turn(rig: &Rig, on: bool) {
    let fairness = Some(on.then(Fairness::default));
    let patch = PolicyPatch { fairness, ..PolicyPatch::default() };
    rig.ok(Operation::ChangePolicy { queue: name("jobs"), patch: Box::new(patch) });
}

pub(super) fn of(key: &str) -> Submission {
    let fairness_key = (!key.is_empty()).then(|| key.to_owned());
    Submission { body: Body { fairness_key, ..Body::default() }, ..payload(key.to_owned()) }
}

#[track_caller]
pub(super) fn submit_of(rig: &Rig, key: &str, count: usize) -> Vec<ItemId> {
    let batch = (0..count).map(|_| submit("jobs", of(key))).collect();
    rig.update(batch).iter().map(|answer| submitted(answer).0).collect()
}

pub(super) fn key_of(held: &Held) -> String {
    held.item.body.fairness_key.clone().unwrap_or_default()
}

/// The keys of the next items, received one at a time.
#[track_caller]
fn next(rig: &Rig, receives: usize) -> Vec<String> {
    (0..receives).map(|_| key_of(&rig.take("jobs"))).collect()
}

pub(super) fn count(keys: &[String], key: &str) -> usize {
    keys.iter().filter(|other| *other == key).count()
}

pub(super) fn a_key_with_few_items_does_not_wait_for_a_key_with_many(harness: &dyn Harness) {
    let rig = Rig::with_queue(harness, fair());
    submit_of(&rig, "many", 300);
    submit_of(&rig, "few", 10);
    let given = next(&rig, 20);
    assert_eq!(count(&given, "few"), 10, "{given:?}");
    assert_eq!(count(&next(&rig, 5), "many"), 5, "no other key has items");
    // The same within one receive as over many.
    submit_of(&rig, "few", 10);
    let keys: Vec<String> = rig.receive("jobs", 20).iter().map(key_of).collect();
    assert_eq!(count(&keys, "few"), 10, "{keys:?}");
    // Without fairness, the key with few items waits.
    turn(&rig, false);
    submit_of(&rig, "few", 10);
    assert_eq!(count(&next(&rig, 20), "few"), 0);
}

pub(super) fn keys_share_by_their_weights(harness: &dyn Harness) {
    let rig = Rig::with_queue(harness, weighted(&[("gold", 3), ("silver", 2)]));
    for key in ["gold", "silver", "iron", ""] {
        submit_of(&rig, key, 100);
    }
    for _ in 0..4 {
        let given = next(&rig, 7);
        let counts = ["gold", "silver", "iron", ""].map(|key| count(&given, key));
        assert_eq!(counts, [3, 2, 1, 1], "{given:?}");
    }
    let keys: Vec<String> = rig.receive("jobs", 70).iter().map(key_of).collect();
    assert_eq!(["gold", "silver", "iron", ""].map(|key| count(&keys, key)), [30, 20, 10, 10]);
    // Changed weights apply at once.
    let fairness = Some(Some(fairness(&[("iron", 4)])));
    let patch = PolicyPatch { fairness, ..PolicyPatch::default() };
    rig.ok(Operation::ChangePolicy { queue: name("jobs"), patch: Box::new(patch) });
    let keys: Vec<String> = rig.receive("jobs", 70).iter().map(key_of).collect();
    let counts = ["gold", "silver", "iron", ""].map(|key| count(&keys, key));
    for (counted, share) in counts.into_iter().zip([10_usize, 10, 40, 10]) {
        assert!(counted.abs_diff(share) <= 4, "{counts:?}");
    }
}

pub(super) fn a_key_that_was_idle_gets_no_credit(harness: &dyn Harness) {
    let rig = Rig::with_queue(harness, weighted(&[("other", 2)]));
    submit_of(&rig, "busy", 60);
    submit_of(&rig, "other", 2);
    assert_eq!(count(&next(&rig, 40), "other"), 2);
    submit_of(&rig, "other", 20);
    let given = next(&rig, 12);
    assert_eq!(count(&given, "other"), 8, "{given:?}");
}

pub(super) fn items_of_a_key_are_in_the_order_of_the_queue(harness: &dyn Harness) {
    let score = Order::Score(Box::default());
    for (order, by_priority) in [(Order::Fifo, false), (Order::Priority, true), (score, false)] {
        let rig = Rig::with_queue(harness, Policy { order: order.clone(), ..fair() });
        let mut of_key: BTreeMap<&str, Vec<(i16, ItemId)>> = BTreeMap::new();
        for n in 0..6_i16 {
            for key in ["a", "b", ""] {
                let priority = 10 - n;
                let id = rig.submit("jobs", Submission { priority, ..of(key) });
                of_key.entry(key).or_default().push((if by_priority { priority } else { 0 }, id));
            }
            rig.advance(1);
        }
        of_key.values_mut().for_each(|items| items.sort_by_key(|item| item.0));
        let mut given: Vec<Held> = rig.receive("jobs", 7);
        given.extend((0..11).map(|_| rig.take("jobs")));
        for (key, items) in of_key {
            let ids: Vec<ItemId> =
                given.iter().filter(|held| key_of(held) == key).map(|held| held.id).collect();
            assert_eq!(ids, items.iter().map(|item| item.1).collect::<Vec<_>>(), "{key:?} {order:?}");
        }
        for round in given.chunks(3) {
            let mut keys: Vec<String> = round.iter().map(key_of).collect();
            keys.sort_unstable();
            assert_eq!(keys, ["", "a", "b"], "an urgent item waits for the turn of its key");
        }
    }
}

pub(super) fn items_without_a_key_count_as_one_key(harness: &dyn Harness) {
    let rig = Rig::with_queue(harness, fair());
    let ids = rig.submit_many("jobs", 20);
    submit_of(&rig, "a", 20);
    let held: Vec<Held> = (0..10).map(|_| rig.take("jobs")).collect();
    let plain: Vec<ItemId> = held.iter().filter(|held| key_of(held).is_empty()).map(|held| held.id).collect();
    assert_eq!(plain, ids[..5], "in order");
}

pub(super) fn fairness_can_be_turned_on_and_off_while_items_are_pending(harness: &dyn Harness) {
    let rig = Rig::with_queue(harness, plain());
    let mut order = submit_of(&rig, "many", 30);
    for _ in 0..3 {
        order.extend(submit_of(&rig, "few", 1));
        order.extend(submit_of(&rig, "many", 2));
    }
    let paused = submit_of(&rig, "few", 1)[0];
    rig.ok(Operation::Pause { id: paused });
    let later = rig.submit("jobs", Submission { ready: When::After(Millis(50)), ..of("few") });
    assert_eq!(rig.take("jobs").id, order.remove(0));
    turn(&rig, true);
    let given: Vec<Held> = (0..6).map(|_| rig.take("jobs")).collect();
    assert_eq!(given.iter().filter(|held| key_of(held) == "few").count(), 3);
    order.retain(|id| given.iter().all(|held| held.id != *id));
    rig.ok(Operation::Resume { id: paused });
    rig.advance(60);
    let few: Vec<ItemId> =
        rig.receive("jobs", 4).iter().filter(|held| key_of(held) == "few").map(|held| held.id).collect();
    assert_eq!(few, [paused, later]);
    let many: Vec<ItemId> = order.drain(..2).collect();
    assert_eq!(many.len(), 2);
    // Off: the remaining items are in one order again.
    order.extend(submit_of(&rig, "few", 2));
    turn(&rig, false);
    let half: Vec<ItemId> = order.drain(..10).collect();
    assert_eq!(rig.receive_ids("jobs", 10), half);
    // On again: a new round robin over all remaining items.
    turn(&rig, true);
    let given = rig.receive("jobs", 4);
    assert_eq!(given.iter().filter(|held| key_of(held) == "few").count(), 2);
    order.retain(|id| given.iter().all(|held| held.id != *id));
    assert_eq!(rig.receive_ids("jobs", 100), order);
}

/// A way to return an item to its queue, with its name.
type Way<'a> = (&'a str, &'a dyn Fn(&Held));

pub(super) fn an_item_keeps_its_key_through_every_transition(harness: &dyn Harness) {
    let rig = Rig::with_queue(harness, Policy { max_retries: 10, ..fair() });
    rig.create("other", fair());
    // Each returned item takes its turn with its key again.
    let retry = || Verb::Retry { error: "again".to_owned(), delay: Some(Millis::ZERO), seed: 1 };
    let back: [Way<'_>; 6] = [
        ("retry", &|held| drop(rig.lease(held, retry()).expect("retried"))),
        ("release", &|held| drop(rig.lease(held, release()).expect("released"))),
        ("defer", &|held| {
            drop(rig.lease(held, Verb::Defer { until: When::NOW }).expect("deferred"));
        }),
        ("lapse", &|held| rig.at(held.deadline())),
        ("redrive", &|held| {
            rig.fail(held);
            rig.ok(Operation::Redrive { id: held.id });
        }),
        ("move", &|held| {
            let away = Adjust { queue: Some(name("other")), ..Adjust::default() };
            rig.run(held.call_with(release(), away)).expect("moved");
            rig.ok(Operation::Move { id: held.id, to: name("jobs") });
        }),
    ];
    for (what, end) in back {
        submit_of(&rig, "few", 1);
        let held = rig.take("jobs");
        assert_eq!(key_of(&held), "few");
        end(&held);
        submit_of(&rig, "many", 10);
        let given: Vec<Held> = (0..2).map(|_| rig.take("jobs")).collect();
        assert!(given.iter().any(|other| other.id == held.id), "after {what}");
        given.iter().for_each(|held| rig.commit(held));
        let rest = rig.receive("jobs", 100);
        assert_eq!(rest.len(), 9, "after {what}");
        rest.iter().for_each(|held| rig.commit(held));
    }
}

pub(super) fn a_paused_queue_keeps_its_round_robin(harness: &dyn Harness) {
    let rig = Rig::with_queue(harness, fair());
    for key in ["a", "b", "c"] {
        submit_of(&rig, key, 10);
    }
    let mut given = next(&rig, 2);
    rig.ok(Operation::PauseQueue { queue: name("jobs") });
    assert_eq!(rig.receive("jobs", 5).len(), 0);
    rig.ok(Operation::ResumeQueue { queue: name("jobs") });
    given.extend(next(&rig, 1));
    given.sort_unstable();
    assert_eq!(given, ["a", "b", "c"]);
}

pub(super) fn a_key_without_items_loses_its_turn(harness: &dyn Harness) {
    let rig = Rig::with_queue(harness, fair());
    rig.create("other", fair());
    let [gone, moved] = ["gone", "moved"].map(|key| submit_of(&rig, key, 3));
    submit_of(&rig, "stays", 5);
    rig.cancel(gone[0]);
    rig.delete(gone[1]);
    rig.ok(Operation::Pause { id: gone[2] });
    for &id in &moved {
        rig.ok(Operation::Move { id, to: name("other") });
    }
    assert_eq!(next(&rig, 5), ["stays"; 5]);
    assert_eq!(rig.receive("jobs", 1).len(), 0);
    assert_eq!(rig.receive_ids("other", 5), moved);
}

pub(super) fn the_turn_of_an_expired_item_goes_to_the_next_key(harness: &dyn Harness) {
    let mut keys = ["a", "b", "c"];
    keys.sort_by_key(|key| KeyTag::of(key));
    let [first, second, third] = keys;
    let policy = Policy { visibility_timeout: Millis(1000), max_retries: 5, ..fair() };
    let limited = Flow { concurrency_per_key: Some(2), ..Flow::default() };
    for policy in [policy.clone(), Policy { flow: limited, ..policy }] {
        let rig = Rig::with_queue(harness, policy);
        submit_of(&rig, third, 2);
        let held = rig.take("jobs");
        let overrides = Overrides { expire_after: Some(Millis(1000)), ..Overrides::default() };
        rig.submit("jobs", Submission { overrides, ..of(first) });
        submit_of(&rig, second, 1);
        // The item whose turn it is expires.
        rig.clock.set(held.deadline());
        assert_eq!(next(&rig, 2), [second, third]);
        // The key keeps its turn if it has another item.
        let overrides = Overrides { expire_after: Some(Millis(10)), ..Overrides::default() };
        rig.submit("jobs", Submission { overrides, ..of(first) });
        submit_of(&rig, first, 1);
        submit_of(&rig, second, 1);
        rig.advance(10);
        assert_eq!(next(&rig, 2), [first, second]);
    }
}

pub(super) fn fairness_survives_a_reopen(harness: &dyn Harness) {
    let policy = weighted(&[("gold", 3)]);
    let rig = Rig::with_queue(harness, policy.clone());
    rig.create("plain", plain());
    submit_of(&rig, "many", 40);
    let gold = submit_of(&rig, "gold", 6);
    rig.submit_many("plain", 3);
    assert_eq!(rig.receive("jobs", 4).len(), 4);
    let Some(rig) = rig.reopen(harness) else { return };
    assert_eq!(rig.view("jobs").queue.policy, policy);
    let given = next(&rig, 8);
    assert_eq!(count(&given, "gold"), 3, "{given:?}");
    assert!(gold.iter().all(|&id| rig.item(id).head.deliveries == 1));
    assert_eq!(rig.receive("plain", 5).len(), 3);
    turn(&rig, false);
    let Some(rig) = rig.reopen(harness) else { return };
    assert_eq!(rig.receive("jobs", 100).len(), 40 + 6 - 12);
}

pub(super) fn a_recreated_queue_starts_a_new_round_robin(harness: &dyn Harness) {
    let rig = Rig::with_queue(harness, fair());
    let first = |rig: &Rig| {
        for key in ["a", "b", "c"] {
            submit_of(rig, key, 5);
        }
        next(rig, 2)
    };
    let before = first(&rig);
    rig.ok(Operation::DeleteQueue { queue: name("jobs"), force: true });
    rig.create("jobs", fair());
    assert_eq!(first(&rig), before);
    assert_eq!(rig.receive("jobs", 100).len(), 13);
}

pub(super) fn parallel_receivers_share_the_round_robin(harness: &dyn Harness) {
    let rig = Rig::with_queue(harness, fair());
    submit_of(&rig, "many", 200);
    submit_of(&rig, "few", 10);
    let given: Vec<Vec<String>> = race(&rig, |_, store| {
        let mut given = Vec::new();
        for _ in 0..3 {
            let call = Operation::Receive(Box::new(rig.receive_call("jobs", 2)));
            let mut answers = block_on(store.update(vec![call])).expect("the store answers").answers;
            let Some(Ok(Reply::Received(received))) = answers.pop() else { panic!("received") };
            given.extend(received.items.into_iter().map(|item| key_of(&Held::of(item))));
        }
        given
    });
    let given: Vec<String> = given.into_iter().flatten().collect();
    assert_eq!(count(&given, "few"), 10.min(given.len() / 2), "{given:?}");
}

pub(super) fn weights_out_of_range_are_refused(harness: &dyn Harness) {
    let rig = Rig::open(harness);
    let long = "k".repeat(256);
    let many: Vec<String> = (0..101).map(|n| n.to_string()).collect();
    let many: Vec<(&str, u32)> = many.iter().map(|key| (key.as_str(), 2)).collect();
    for (weights, words) in [
        (&[("a", 0)][..], "weight 0 of \"a\""),
        (&[("a", 1001)], "1 to 1000"),
        (&[("", 2)], "1 to 255"),
        (&[(long.as_str(), 2)], "256 bytes"),
        (&many, "101 weights"),
    ] {
        let refusal = rig.refused(create("jobs", weighted(weights)));
        assert!(matches!(refusal, Refusal::Invalid { what: "fairness", .. }), "{refusal}");
        assert!(refusal.to_string().contains(words), "{refusal}");
    }
    rig.create("jobs", fair());
    let refusal = rig.refused(create("jobs", weighted(&[("a", 2)])));
    assert!(refusal.to_string().contains("policy.fairness"), "{refusal}");
}
