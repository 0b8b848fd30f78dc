//! Flow control: concurrency per key.

use super::Harness;
use super::fairness::{count, fairness, key_of, of, submit_of};
use super::operations::*;
use super::races::race;
use super::rig::*;
use futures::executor::block_on;
use towline_domain::command::When;
use towline_domain::{
    Adjust, Fairness, FieldSet, Flow, FullKeys, KeyTag, Millis, Overrides, Policy, PolicyPatch, Refusal,
    Submission, Throttle, limits,
};
use towline_store::{Filter, Operation, Reply};

fn limited(per_key: u32) -> Policy {
    Policy { flow: Flow { concurrency_per_key: Some(per_key), ..Flow::default() }, ..plain() }
}

fn patch(rig: &Rig, concurrency_per_key: Option<u32>) {
    let patch = PolicyPatch { concurrency_per_key: Some(concurrency_per_key), ..PolicyPatch::default() };
    rig.ok(Operation::ChangePolicy { queue: name("jobs"), patch: Box::new(patch) });
}

/// The keys of the received items, and the throttle that the receive reports.
#[track_caller]
fn receive_with_throttle(rig: &Rig, max: u32) -> (Vec<String>, Option<Throttle>) {
    let received = rig.received(rig.receive_call("jobs", max));
    let mut keys: Vec<String> = received.items.into_iter().map(|item| key_of(&Held::of(item))).collect();
    keys.sort_unstable();
    (keys, received.throttle)
}

/// The same without the names of the full keys.
#[track_caller]
fn receive(rig: &Rig, max: u32) -> (Vec<String>, Option<Throttle>) {
    let (keys, held) = receive_with_throttle(rig, max);
    (keys, unnamed(held))
}

/// A throttle without the names of keys.
fn unnamed(held: Option<Throttle>) -> Option<Throttle> {
    match held {
        Some(Throttle::Keys(_)) => some_are_full(),
        held => held,
    }
}

fn some_are_full() -> Option<Throttle> {
    Some(Throttle::Keys(FullKeys::default()))
}

/// Exactly these keys are at their limit.
fn full(keys: &[&str]) -> Option<Throttle> {
    Some(Throttle::Keys(
        keys.iter().map(|key| KeyTag::of_any(of(key).body.fairness_key.as_deref())).collect(),
    ))
}

pub(super) fn concurrency_per_key_limits_the_leased_items_of_a_key(harness: &dyn Harness) {
    let rig = Rig::with_queue(harness, limited(2));
    for key in ["a", "b", ""] {
        submit_of(&rig, key, 5);
    }
    // The same in one batch as in several. Keys take turns, and items without a key count as one key.
    let (keys, held) = receive(&rig, 4);
    assert_eq!((keys.len(), held), (4, None));
    let (more, held) = receive(&rig, 10);
    assert_eq!((more.len(), held), (2, some_are_full()), "{keys:?} {more:?}");
    assert_eq!(receive(&rig, 10), (vec![], some_are_full()));
    assert_eq!(rig.counts("jobs").processing, 6);
    // Another key is not affected.
    submit_of(&rig, "c", 1);
    assert_eq!(receive(&rig, 10).0, ["c"]);
    assert_eq!(receive(&rig, 10).0.len(), 0);
}

pub(super) fn every_end_of_a_lease_frees_the_slot_of_its_key(harness: &dyn Harness) {
    for (verb_name, verb) in every_settle() {
        let rig = Rig::with_queue(harness, limited(1));
        submit_of(&rig, "a", 2);
        let first = rig.take("jobs");
        assert_eq!(receive(&rig, 1).0.len(), 0);
        rig.lease(&first, verb).expect(verb_name);
        assert_eq!(receive(&rig, 5).0, ["a"], "after {verb_name}");
    }
    let rig = Rig::with_queue(harness, limited(1));
    rig.create("other", plain());
    submit_of(&rig, "a", 6);
    let held = rig.take("jobs");
    rig.cancel(held.id);
    let held = rig.take("jobs");
    rig.ok(Operation::Delete { id: held.id, force: true });
    let held = rig.take("jobs");
    let away = Adjust { queue: Some(name("other")), ..Adjust::default() };
    rig.run(held.call_with(release(), away)).expect("moved");
    let held = rig.take("jobs");
    assert_eq!(receive(&rig, 1).0.len(), 0);
    rig.at(held.deadline());
    assert_eq!(receive(&rig, 5), (vec!["a".to_owned()], some_are_full()));
}

pub(super) fn a_lapse_frees_the_slot_within_the_same_call(harness: &dyn Harness) {
    let rig = Rig::with_queue(harness, Policy { max_retries: 0, ..limited(3) });
    submit_of(&rig, "a", 9);
    submit_of(&rig, "b", 1);
    let held = rig.receive("jobs", 10);
    assert_eq!(held.len(), 4);
    rig.clock.set(held[0].deadline());
    assert_eq!(receive(&rig, 10).0, ["a"; 3]);
}

pub(super) fn a_receive_sees_slots_of_keys_freed_in_its_batch(harness: &dyn Harness) {
    let rig = Rig::with_queue(harness, limited(1));
    for key in ["a", "b"] {
        submit_of(&rig, key, 4);
    }
    let held = rig.receive("jobs", 5);
    assert_eq!(held.len(), 2);
    let receive = |max| Operation::Receive(Box::new(rig.receive_call("jobs", max)));
    // Items submitted in the same batch do not pass the limit either.
    let batch = vec![
        submit("jobs", of(&key_of(&held[0]))),
        receive(5),
        held[0].call(commit()),
        receive(5),
        submit("jobs", of("c")),
        held[1].call(release()),
        receive(5),
    ];
    let given: Vec<usize> = rig
        .update(batch)
        .iter()
        .filter_map(|answer| match answer {
            Ok(Reply::Received(received)) => Some(received.items.len()),
            _ => None,
        })
        .collect();
    assert_eq!(given, [0, 1, 2]);
    assert_eq!(rig.counts("jobs").processing, 3);
}

pub(super) fn new_items_of_a_full_key_wait(harness: &dyn Harness) {
    let rig = Rig::with_queue(harness, limited(1));
    submit_of(&rig, "a", 1);
    let held = rig.take("jobs");
    // The key is full although it has no ready item.
    let batch = vec![submit("jobs", of("a")), Operation::Receive(Box::new(rig.receive_call("jobs", 1)))];
    let Some(Ok(Reply::Received(received))) = rig.update(batch).pop() else { panic!("received") };
    assert_eq!((received.items.len(), unnamed(received.throttle)), (0, some_are_full()));
    let later = rig.submit("jobs", Submission { ready: When::After(Millis(10)), ..of("a") });
    rig.advance(10);
    assert_eq!(receive(&rig, 5).0.len(), 0);
    rig.commit(&held);
    let held = rig.take("jobs");
    rig.commit(&held);
    assert_eq!(rig.take("jobs").id, later);
}

pub(super) fn a_changed_concurrency_per_key_applies_at_once(harness: &dyn Harness) {
    let rig = Rig::with_queue(harness, plain());
    submit_of(&rig, "a", 10);
    submit_of(&rig, "b", 1);
    let held = rig.receive("jobs", 4);
    // A limit below the number of leased items: no holder loses its lease, and no receiver gets an item of that key.
    patch(&rig, Some(2));
    assert_eq!(rig.view("jobs").queue.policy.flow.concurrency_per_key, Some(2));
    assert_eq!(receive(&rig, 5), (vec!["b".to_owned()], some_are_full()));
    rig.commit(&held[0]);
    rig.commit(&held[1]);
    assert_eq!(receive(&rig, 5).0.len(), 0);
    rig.commit(&held[2]);
    assert_eq!(receive(&rig, 5).0.len(), 1);
    patch(&rig, Some(4));
    assert_eq!(receive(&rig, 5).0.len(), 2);
    patch(&rig, None);
    let (keys, held) = receive(&rig, 50);
    assert_eq!((keys.len(), held), (3, None));
}

pub(super) fn limits_per_key_and_of_the_queue_hold_together(harness: &dyn Harness) {
    let mut policy = limited(2);
    policy.flow.concurrency = Some(3);
    policy.flow.fairness = Some(fairness(&[("a", 5)]));
    let rig = Rig::with_queue(harness, policy);
    for key in ["a", "b"] {
        submit_of(&rig, key, 5);
    }
    let (keys, held) = receive(&rig, 10);
    assert_eq!((keys.len(), held), (3, Some(Throttle::Concurrency)), "{keys:?}");
    assert!(count(&keys, "a") <= 2 && count(&keys, "b") <= 2, "{keys:?}");
    // A weight does not raise the limit.
    let rig = Rig::with_queue(
        harness,
        Policy { flow: Flow { fairness: Some(fairness(&[("a", 5)])), ..limited(2).flow }, ..plain() },
    );
    submit_of(&rig, "a", 5);
    submit_of(&rig, "b", 5);
    assert_eq!(receive(&rig, 3).0.len(), 3);
    assert_eq!(receive(&rig, 10).0.len(), 1);
}

pub(super) fn concurrency_per_key_holds_with_parallel_receivers(harness: &dyn Harness) {
    let rig = Rig::with_queue(harness, limited(3));
    for key in ["a", "b"] {
        submit_of(&rig, key, 60);
    }
    let first = rig.receive("jobs", 50);
    assert_eq!(first.len(), 6);
    first.iter().for_each(|held| rig.commit(held));
    race(&rig, |_, store| {
        for _ in 0..6 {
            let call = Operation::Receive(Box::new(rig.receive_call("jobs", 4)));
            let mut answers = block_on(store.update(vec![call])).expect("the store answers").answers;
            let Some(Ok(Reply::Received(received))) = answers.pop() else { panic!("received") };
            let page = store.list(Filter::default(), None, 1000, FieldSet::NONE);
            let items = block_on(page).expect("the store answers").items;
            for key in ["a", "b"] {
                let leased = items.iter().filter(|stored| {
                    stored.item.body.fairness_key.as_deref() == Some(key)
                        && stored.item.head.lease().is_some()
                });
                assert!(leased.count() <= 3, "{key}");
            }
            let ends: Vec<Operation> =
                received.items.into_iter().map(|item| Held::of(item).call(commit())).collect();
            block_on(store.update(ends)).expect("the store answers");
        }
    });
    let counts = rig.counts("jobs");
    assert_eq!((counts.processing, counts.pending + counts.completed), (0, 120));
}

pub(super) fn limits_per_key_survive_a_reopen(harness: &dyn Harness) {
    let rig = Rig::with_queue(harness, limited(2));
    submit_of(&rig, "a", 5);
    let held = rig.receive("jobs", 10);
    assert_eq!(held.len(), 2);
    let Some(rig) = rig.reopen(harness) else { return };
    assert_eq!(rig.view("jobs").queue.policy, limited(2));
    assert_eq!(receive(&rig, 10), (vec![], some_are_full()));
    rig.commit(&held[0]);
    assert_eq!(receive(&rig, 10).0, ["a"]);
}

pub(super) fn a_full_key_does_not_block_other_keys(harness: &dyn Harness) {
    let rig = Rig::with_queue(harness, limited(1));
    let full: Vec<String> = (0..40).map(|n| format!("full-{n}")).collect();
    for key in &full {
        submit_of(&rig, key, 3);
    }
    let held = rig.receive("jobs", 100);
    assert_eq!(held.len(), full.len(), "one item of each key");
    submit_of(&rig, "late", 2);
    // Heartbeats in the same batch free no slots.
    let beats = held.iter().map(|held| held.call(heartbeat()));
    let call = Operation::Receive(Box::new(rig.receive_call("jobs", 1)));
    let Some(Ok(Reply::Received(received))) = rig.update(beats.chain([call]).collect()).pop() else {
        panic!("received")
    };
    assert_eq!(received.items[0].body.fairness_key.as_deref(), Some("late"));
    assert_eq!(receive(&rig, 10), (vec![], some_are_full()));
    rig.commit(&held[7]);
    assert_eq!(receive(&rig, 10).0, [key_of(&held[7])]);
}

/// A waiting receiver ignores new items of full keys.
pub(super) fn a_receive_names_the_full_keys(harness: &dyn Harness) {
    let rig = Rig::with_queue(harness, limited(2));
    for key in ["a", "b", ""] {
        submit_of(&rig, key, 3);
    }
    submit_of(&rig, "c", 1);
    // A key below its limit is not named, even if it has no item left.
    let (given, held) = receive_with_throttle(&rig, 10);
    assert_eq!((given.len(), held), (7, full(&["a", "b", ""])));
    assert_eq!(receive_with_throttle(&rig, 10), (vec![], full(&["a", "b", ""])));
    // A key at its limit is named, whether or not it has a ready item.
    submit_of(&rig, "c", 1);
    let held = rig.received(rig.receive_call("jobs", 2));
    assert_eq!((held.items.len(), held.throttle), (1, full(&["a", "b", "c", ""])));
    rig.commit(&Held::of(held.items[0].clone()));
    assert_eq!(receive_with_throttle(&rig, 10), (vec![], full(&["a", "b", ""])));
    // The same in a batch with a submit or a settle.
    let batch = vec![submit("jobs", of("c")), Operation::Receive(Box::new(rig.receive_call("jobs", 2)))];
    let Some(Ok(Reply::Received(received))) = rig.update(batch).pop() else { panic!("received") };
    assert_eq!((received.items.len(), received.throttle), (1, full(&["a", "b", "c", ""])));
    let call = Operation::Receive(Box::new(rig.receive_call("jobs", 2)));
    let batch = vec![Held::of(received.items[0].clone()).call(release()), call];
    let Some(Ok(Reply::Received(received))) = rig.update(batch).pop() else { panic!("received") };
    assert_eq!((received.items.len(), received.throttle), (1, full(&["a", "b", "c", ""])));
    patch(&rig, Some(3));
    let (given, held) = receive_with_throttle(&rig, 10);
    assert_eq!((given, held), (vec![String::new(), "a".to_owned(), "b".to_owned()], full(&["a", "b", ""])));
}

/// The size of a reply is bounded.
pub(super) fn a_receive_names_at_most_a_fixed_number_of_full_keys(harness: &dyn Harness) {
    let rig = Rig::with_queue(harness, limited(1));
    let keys: Vec<String> = (0..=limits::FULL_KEYS_MAX).map(|n| n.to_string()).collect();
    rig.update(keys.iter().map(|key| submit("jobs", of(key))).collect());
    let held = rig.receive("jobs", limits::RECEIVE_MAX).len();
    let (rest, throttle) = receive_with_throttle(&rig, limits::RECEIVE_MAX);
    assert_eq!(held + rest.len(), keys.len());
    let Some(Throttle::Keys(full)) = throttle else { panic!("{throttle:?}") };
    let named = keys.iter().filter(|key| full.has(KeyTag::of(key))).count();
    assert_eq!(named, limits::FULL_KEYS_MAX);
}

pub(super) fn an_expired_item_takes_no_slot_of_its_key(harness: &dyn Harness) {
    let rig = Rig::with_queue(harness, limited(1));
    let overrides = Overrides { expire_after: Some(Millis::ZERO), ..Overrides::default() };
    let dead = || submit("jobs", Submission { overrides: overrides.clone(), ..of("a") });
    // In the batch that submits them, the receive meets expired items before a sweep removes them.
    let batch = vec![
        dead(),
        dead(),
        submit("jobs", of("a")),
        Operation::Receive(Box::new(rig.receive_call("jobs", 5))),
    ];
    let Some(Ok(Reply::Received(received))) = rig.update(batch).pop() else { panic!("received") };
    assert_eq!((received.items.len(), unnamed(received.throttle)), (1, some_are_full()));
    rig.sweep();
    assert_eq!((rig.counts("jobs").failed, rig.counts("jobs").processing), (2, 1));
    // The same in a later call.
    let rig = Rig::with_queue(harness, limited(1));
    let overrides = Overrides { expire_after: Some(Millis(10)), ..Overrides::default() };
    for _ in 0..2 {
        rig.submit("jobs", Submission { overrides: overrides.clone(), ..of("a") });
    }
    let lasts = submit_of(&rig, "a", 1)[0];
    submit_of(&rig, "b", 1);
    rig.advance(10);
    let mut given = rig.receive("jobs", 2);
    given.sort_by_key(key_of);
    assert_eq!((given.len(), given[0].id), (2, lasts));
}

/// Items leased before the limit was set count, however the queue came to have fairness.
pub(super) fn items_leased_before_the_limit_was_set_count(harness: &dyn Harness) {
    let rig = Rig::with_queue(harness, plain());
    let fair = |on: bool| {
        let fairness = Some(on.then(Fairness::default));
        let patch = PolicyPatch { fairness, ..PolicyPatch::default() };
        rig.ok(Operation::ChangePolicy { queue: name("jobs"), patch: Box::new(patch) });
    };
    for key in ["a", "b", "c"] {
        submit_of(&rig, key, 6);
    }
    // Items are received with and without fairness. Some are returned, some have ended, some are deferred.
    let mut held = rig.receive("jobs", 8);
    fair(true);
    held.extend(rig.receive("jobs", 4));
    rig.commit(&held.remove(0));
    rig.lease(&held.remove(0), release()).expect("released");
    rig.lease(&held.remove(0), defer(1000)).expect("deferred");
    let leased = |key: &str| held.iter().filter(|held| key_of(held) == key).count();
    let before = ["a", "b", "c"].map(leased);
    for (on, limit) in [(true, 4), (false, 5), (true, 6)] {
        patch(&rig, None);
        fair(on);
        patch(&rig, Some(limit));
        let more = rig.receive("jobs", 50);
        for (key, before) in ["a", "b", "c"].into_iter().zip(before) {
            let given = more.iter().filter(|held| key_of(held) == key).count();
            let left = 6 - before - usize::from(key == "a") * 2;
            assert_eq!(
                given,
                (limit as usize).saturating_sub(before).min(left),
                "{key} of {before} at {limit}"
            );
        }
        for held in &more {
            rig.lease(held, release()).expect("released");
        }
    }
}

pub(super) fn limits_per_key_out_of_range_are_refused(harness: &dyn Harness) {
    let rig = Rig::open(harness);
    for limit in [0, 1_000_001] {
        let refusal = rig.refused(create("jobs", limited(limit)));
        assert!(matches!(refusal, Refusal::Invalid { what: "concurrency_per_key", .. }), "{refusal}");
        assert!(refusal.to_string().contains(&limit.to_string()), "{refusal}");
    }
    rig.create("jobs", limited(1));
    let refusal = rig.refused(create("jobs", limited(2)));
    assert!(refusal.to_string().contains("policy.concurrency_per_key"), "{refusal}");
    let bad = PolicyPatch { concurrency_per_key: Some(Some(0)), ..PolicyPatch::default() };
    let refusal = rig.refused(Operation::ChangePolicy { queue: name("jobs"), patch: Box::new(bad) });
    assert_eq!(refusal.code(), "invalid");
}
