//! Limits on what is processed of each key at once.

use super::Harness;
use super::fairness::{count, fairness, key_of, of, submit_of};
use super::races::race;
use super::rig::*;
use super::words::*;
use futures::executor::block_on;
use towline_domain::command::When;
use towline_domain::{
    Adjust, Fairness, FieldSet, Flow, FullKeys, KeyTag, Millis, Overrides, Policy, PolicyPatch, Refusal,
    Submission, Throttle, limits,
};
use towline_store::{Filter, Operation, Reply};

fn limited(per_key: u32) -> Policy {
    Policy { flow: Flow { concurrency_per_key: Some(per_key), ..Flow::default() }, ..Policy::default() }
}

fn patch(rig: &Rig, concurrency_per_key: Option<u32>) {
    let patch = PolicyPatch { concurrency_per_key: Some(concurrency_per_key), ..PolicyPatch::default() };
    rig.ok(Operation::ChangePolicy { queue: name("jobs"), patch: Box::new(patch) });
}

/// Whose items a receive brings, and what it says of the rest.
#[track_caller]
fn receive_and_hear(rig: &Rig, max: u32) -> (Vec<String>, Option<Throttle>) {
    let received = rig.received(rig.receive_call("jobs", max));
    let mut keys: Vec<String> = received.items.into_iter().map(|item| key_of(&Held::of(item))).collect();
    keys.sort_unstable();
    (keys, received.throttle)
}

/// The same, whichever keys are at their limit.
#[track_caller]
fn receive(rig: &Rig, max: u32) -> (Vec<String>, Option<Throttle>) {
    let (keys, held) = receive_and_hear(rig, max);
    (keys, unnamed(held))
}

/// Without the names of keys.
fn unnamed(held: Option<Throttle>) -> Option<Throttle> {
    match held {
        Some(Throttle::Keys(_)) => some_are_full(),
        held => held,
    }
}

fn some_are_full() -> Option<Throttle> {
    Some(Throttle::Keys(FullKeys::default()))
}

/// These keys are at their limit, and no other.
fn full(keys: &[&str]) -> Option<Throttle> {
    Some(Throttle::Keys(
        keys.iter().map(|key| KeyTag::of_any(of(key).body.fairness_key.as_deref())).collect(),
    ))
}

pub(super) fn no_more_of_a_key_are_processed_than_its_limit(harness: &dyn Harness) {
    let rig = Rig::with_queue(harness, limited(2));
    for key in ["a", "b", ""] {
        submit_of(&rig, key, 5);
    }
    // In one batch as in several; keys take turns, and items without a key are one.
    let (keys, held) = receive(&rig, 4);
    assert_eq!((keys.len(), held), (4, None));
    let (more, held) = receive(&rig, 10);
    assert_eq!((more.len(), held), (2, some_are_full()), "{keys:?} {more:?}");
    assert_eq!(receive(&rig, 10), (vec![], some_are_full()));
    assert_eq!(rig.counts("jobs").processing, 6);
    // Another key goes on.
    submit_of(&rig, "c", 1);
    assert_eq!(receive(&rig, 10).0, ["c"]);
    assert_eq!(receive(&rig, 10).0.len(), 0);
}

pub(super) fn a_place_of_a_key_is_free_however_a_lease_ends(harness: &dyn Harness) {
    for (verb_name, verb) in every_settle() {
        let rig = Rig::with_queue(harness, limited(1));
        submit_of(&rig, "a", 2);
        let first = rig.take("jobs");
        assert_eq!(receive(&rig, 1).0.len(), 0);
        rig.lease(&first, verb).expect(verb_name);
        assert_eq!(receive(&rig, 5).0, ["a"], "after {verb_name}");
    }
    let rig = Rig::with_queue(harness, limited(1));
    rig.create("other", Policy::default());
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

pub(super) fn a_lapse_makes_room_in_the_same_call(harness: &dyn Harness) {
    let rig = Rig::with_queue(harness, Policy { max_retries: 0, ..limited(3) });
    submit_of(&rig, "a", 9);
    submit_of(&rig, "b", 1);
    let held = rig.receive("jobs", 10);
    assert_eq!(held.len(), 4);
    rig.clock.set(held[0].deadline());
    assert_eq!(receive(&rig, 10).0, ["a"; 3]);
}

pub(super) fn a_batch_sees_its_own_ends_of_each_key(harness: &dyn Harness) {
    let rig = Rig::with_queue(harness, limited(1));
    for key in ["a", "b"] {
        submit_of(&rig, key, 4);
    }
    let held = rig.receive("jobs", 5);
    assert_eq!(held.len(), 2);
    let receive = |max| Operation::Receive(Box::new(rig.receive_call("jobs", max)));
    // What is submitted in the same call does not pass the limit either.
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

pub(super) fn what_comes_of_a_key_at_its_limit_waits(harness: &dyn Harness) {
    let rig = Rig::with_queue(harness, limited(1));
    submit_of(&rig, "a", 1);
    let held = rig.take("jobs");
    // Nothing waits, and the key is full all the same.
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

pub(super) fn a_limit_by_key_that_changes_counts_at_once(harness: &dyn Harness) {
    let rig = Rig::with_queue(harness, Policy::default());
    submit_of(&rig, "a", 10);
    submit_of(&rig, "b", 1);
    let held = rig.receive("jobs", 4);
    // Below what is in hand already: nobody loses a lease, and nobody of that key gets one.
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

pub(super) fn limits_by_key_and_of_the_queue_hold_together(harness: &dyn Harness) {
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
    // A weight is no right to more than the limit.
    let rig = Rig::with_queue(
        harness,
        Policy {
            flow: Flow { fairness: Some(fairness(&[("a", 5)])), ..limited(2).flow },
            ..Policy::default()
        },
    );
    submit_of(&rig, "a", 5);
    submit_of(&rig, "b", 5);
    assert_eq!(receive(&rig, 3).0.len(), 3);
    assert_eq!(receive(&rig, 10).0.len(), 1);
}

pub(super) fn the_limit_by_key_holds_against_many(harness: &dyn Harness) {
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
            block_on(store.update(ends)).expect("the store answers").answers;
        }
    });
    let counts = rig.counts("jobs");
    assert_eq!((counts.processing, counts.pending + counts.completed), (0, 120));
}

pub(super) fn limits_by_key_survive(harness: &dyn Harness) {
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

pub(super) fn keys_at_their_limit_keep_no_other_waiting(harness: &dyn Harness) {
    let rig = Rig::with_queue(harness, limited(1));
    let full: Vec<String> = (0..40).map(|n| format!("full-{n}")).collect();
    for key in &full {
        submit_of(&rig, key, 3);
    }
    let held = rig.receive("jobs", 100);
    assert_eq!(held.len(), full.len(), "one of each");
    submit_of(&rig, "late", 2);
    // What else the batch is about ends nothing: a heartbeat of each of them makes no room.
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

/// Whoever waits does not look for what comes of these.
pub(super) fn keys_at_their_limit_are_named(harness: &dyn Harness) {
    let rig = Rig::with_queue(harness, limited(2));
    for key in ["a", "b", ""] {
        submit_of(&rig, key, 3);
    }
    submit_of(&rig, "c", 1);
    // One that is below its limit is not, though nothing of it is left.
    let (given, held) = receive_and_hear(&rig, 10);
    assert_eq!((given.len(), held), (7, full(&["a", "b", ""])));
    assert_eq!(receive_and_hear(&rig, 10), (vec![], full(&["a", "b", ""])));
    // One that is at it is, whether anything of it waits or not.
    submit_of(&rig, "c", 1);
    let held = rig.received(rig.receive_call("jobs", 2));
    assert_eq!((held.items.len(), held.throttle), (1, full(&["a", "b", "c", ""])));
    rig.commit(&Held::of(held.items[0].clone()));
    assert_eq!(receive_and_hear(&rig, 10), (vec![], full(&["a", "b", ""])));
    // In the same call as a submit or an end.
    let batch = vec![submit("jobs", of("c")), Operation::Receive(Box::new(rig.receive_call("jobs", 2)))];
    let Some(Ok(Reply::Received(received))) = rig.update(batch).pop() else { panic!("received") };
    assert_eq!((received.items.len(), received.throttle), (1, full(&["a", "b", "c", ""])));
    let call = Operation::Receive(Box::new(rig.receive_call("jobs", 2)));
    let batch = vec![Held::of(received.items[0].clone()).call(release()), call];
    let Some(Ok(Reply::Received(received))) = rig.update(batch).pop() else { panic!("received") };
    assert_eq!((received.items.len(), received.throttle), (1, full(&["a", "b", "c", ""])));
    patch(&rig, Some(3));
    let (given, held) = receive_and_hear(&rig, 10);
    assert_eq!((given, held), (vec![String::new(), "a".to_owned(), "b".to_owned()], full(&["a", "b", ""])));
}

/// However many they are, an answer has a largest size.
pub(super) fn of_many_keys_at_their_limit_some_are_named(harness: &dyn Harness) {
    let rig = Rig::with_queue(harness, limited(1));
    let keys: Vec<String> = (0..=limits::FULL_KEYS_MAX).map(|n| n.to_string()).collect();
    rig.update(keys.iter().map(|key| submit("jobs", of(key))).collect());
    let held = rig.receive("jobs", limits::RECEIVE_MAX).len();
    let (rest, told) = receive_and_hear(&rig, limits::RECEIVE_MAX);
    assert_eq!(held + rest.len(), keys.len());
    let Some(Throttle::Keys(full)) = told else { panic!("{told:?}") };
    let named = keys.iter().filter(|key| full.has(KeyTag::of(key))).count();
    assert_eq!(named, limits::FULL_KEYS_MAX);
}

pub(super) fn what_expires_takes_no_place_of_its_key(harness: &dyn Harness) {
    let rig = Rig::with_queue(harness, limited(1));
    let overrides = Overrides { expire_after: Some(Millis::ZERO), ..Overrides::default() };
    let dead = || submit("jobs", Submission { overrides: overrides.clone(), ..of("a") });
    // In the batch that submits them they are met before a sweep comes to them.
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
    // And in a call that finds them there.
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

/// However keys came to take turns, what was in hand before counts.
pub(super) fn what_was_processed_before_the_limit_came_counts(harness: &dyn Harness) {
    let rig = Rig::with_queue(harness, Policy::default());
    let fair = |on: bool| {
        let fairness = Some(on.then(Fairness::default));
        let patch = PolicyPatch { fairness, ..PolicyPatch::default() };
        rig.ok(Operation::ChangePolicy { queue: name("jobs"), patch: Box::new(patch) });
    };
    for key in ["a", "b", "c"] {
        submit_of(&rig, key, 6);
    }
    // Some of each are taken in one order and some in turns; some are back, some have ended, some wait for later.
    let mut held = rig.receive("jobs", 8);
    fair(true);
    held.extend(rig.receive("jobs", 4));
    rig.commit(&held.remove(0));
    rig.lease(&held.remove(0), release()).expect("released");
    rig.lease(&held.remove(0), defer(1000)).expect("deferred");
    let in_hand = |key: &str| held.iter().filter(|held| key_of(held) == key).count();
    let before = ["a", "b", "c"].map(in_hand);
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

pub(super) fn limits_by_key_out_of_range_are_refused(harness: &dyn Harness) {
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
