//! Reopening: every acknowledged change survives.
//!
//! A store without durable data skips these cases.

use super::Harness;
use super::full_store::fill;
use super::operations::*;
use super::rig::*;
use futures::executor::block_on;
use std::collections::BTreeSet;
use towline_domain::kv::{KvCommand, KvRecord};
use towline_domain::{
    Adjust, Field, FieldEdits, FieldSet, ItemId, ItemState, Millis, Order, Policy, PolicyPatch, QueueState,
    State, Submission, Timestamp,
};
use towline_store::{Filter, Operation, QueueView, StoredItem};

/// Reopens the store, or ends the case for a store without durable data.
macro_rules! reopen {
    ($rig:expr, $harness:expr) => {
        match $rig.reopen($harness) {
            Some(rig) => rig,
            None => return,
        }
    };
}

/// Everything that can be read from a store.
#[derive(Debug, PartialEq)]
struct Snapshot {
    queues: Vec<QueueView>,
    items: Vec<StoredItem>,
    records: Vec<Option<KvRecord>>,
    next_wake: Option<Timestamp>,
}

const KEYS: [&str; 4] = ["plain", "brief", "number", "deleted"];

fn snapshot(rig: &Rig) -> Snapshot {
    Snapshot {
        queues: rig.queues(),
        items: rig.list(&Filter::default()),
        records: KEYS.iter().map(|key| rig.kv_get(key)).collect(),
        next_wake: rig.next_wake(),
    }
}

fn drop_queue(queue: &str) -> Operation {
    Operation::DeleteQueue { queue: name(queue), force: true }
}

pub(super) fn an_empty_store_can_be_reopened(harness: &dyn Harness) {
    let rig = Rig::open(harness);
    let identity = rig.store.identity();
    assert!(identity.is_known() && !identity.parts.is_empty(), "{identity:?}");
    let rig = reopen!(rig, harness);
    let rig = reopen!(rig, harness);
    assert_eq!(rig.store.identity(), identity);
    assert!(rig.queues().is_empty());
    rig.create("jobs", plain());
    let held = rig.hold("jobs");
    rig.commit(&held);
}

pub(super) fn everything_survives_repeated_reopens(harness: &dyn Harness) {
    let rig = Rig::open(harness);
    fill(&rig);
    let before = snapshot(&rig);
    let rig = reopen!(rig, harness);
    assert_eq!(snapshot(&rig), before);
    let rig = reopen!(rig, harness);
    assert_eq!(snapshot(&rig), before);
    // Changes after a reopen survive the next reopen, together with the earlier data.
    rig.advance(10);
    rig.submit("jobs", payload("more"));
    rig.kv("number", KvCommand::Increment { by: 1, ttl: None }).expect("added");
    let before = snapshot(&rig);
    let rig = reopen!(rig, harness);
    assert_eq!(snapshot(&rig), before);
}

pub(super) fn each_transition_survives_a_reopen(harness: &dyn Harness) {
    let mut rig = Rig::with_queue(harness, plain());
    let id = rig.submit("jobs", keyed("k", "work"));
    type End = fn(&Rig, &Held);
    let ends: [End; 6] = [
        |rig, held| drop(rig.lease(held, retry("e")).expect("retried")),
        |rig, held| drop(rig.lease(held, release()).expect("released")),
        |rig, held| drop(rig.lease(held, defer(0)).expect("deferred")),
        |rig, held| rig.at(held.deadline()),
        |rig, held| {
            rig.fail(held);
            rig.ok(Operation::Redrive { id: held.id });
        },
        |rig, held| rig.commit(held),
    ];
    for end in ends {
        let before = snapshot(&rig);
        rig = reopen!(rig, harness);
        assert_eq!(snapshot(&rig), before);
        let held = rig.take("jobs");
        assert_eq!(held.id, id);
        let before = snapshot(&rig);
        rig = reopen!(rig, harness);
        assert_eq!(snapshot(&rig), before);
        end(&rig, &held);
    }
    let before = snapshot(&rig);
    rig = reopen!(rig, harness);
    assert_eq!(snapshot(&rig), before);
    rig.delete(id);
    rig = reopen!(rig, harness);
    rig.assert_gone(id);
    assert_eq!(rig.counts("jobs").total(), 0);
}

pub(super) fn a_lease_survives_a_reopen(harness: &dyn Harness) {
    let rig = Rig::with_queue(harness, plain());
    rig.submit_many("jobs", 4);
    let held = rig.receive("jobs", 4);
    let stale = &held[3];
    rig.lease(stale, release()).expect("released");
    let current = rig.take("jobs");
    let rig = reopen!(rig, harness);
    assert!(rig.receive("jobs", 10).is_empty(), "leased items stay leased");
    assert_eq!(rig.lease(&held[0], heartbeat()), until(rig.now().after(Millis::minutes(5))));
    rig.commit(&held[0]);
    assert_eq!(rig.lease(stale, release()), left(ItemState::Pending), "a repeated settle");
    assert_eq!(code(&rig.lease(stale, commit())), "already_settled");
    assert_eq!(
        code(&rig.run(lease_call(held[1].id, foreign_token(), commit(), Adjust::default()))),
        "lease_lost"
    );
    rig.commit(&current);
    rig.clock.set(Timestamp(held[1].deadline().0 - 1));
    rig.commit(&held[1]);
    rig.clock.set(held[2].deadline());
    assert_eq!(code(&rig.lease(&held[2], commit())), "lease_lost");
    assert_eq!(rig.take("jobs").id, held[2].id);
}

pub(super) fn a_repeated_settle_is_recognised_after_a_reopen(harness: &dyn Harness) {
    for (what, verb) in every_settle() {
        let rig = Rig::with_queue(harness, plain());
        let held = rig.hold("jobs");
        let call = held.call_with(verb, to_priority(3));
        let first = rig.run(call.clone());
        let rig = reopen!(rig, harness);
        let before = snapshot(&rig);
        assert_eq!(rig.run(call.clone()), first, "{what} again");
        assert_eq!(snapshot(&rig), before);
        let rig = reopen!(rig, harness);
        assert_eq!(rig.run(call), first, "a repeated {what}");
    }
}

/// Creates items whose order differs from the order of submission. Returns the expected order.
fn shuffle(rig: &Rig) -> Vec<ItemId> {
    let ids = rig.submit_many("jobs", 8);
    let later = rig.submit("jobs", delayed(30));
    let tied = rig.submit("jobs", delayed(20));
    let held = rig.receive("jobs", 3);
    rig.ok(Operation::Pause { id: ids[3] });
    rig.ok(Operation::Pause { id: ids[4] });
    rig.advance(10);
    rig.lease(&held[0], release()).expect("released");
    rig.lease(&held[1], defer(10)).expect("deferred");
    let plain = rig.submit("jobs", payload("plain"));
    rig.ok(Operation::Resume { id: ids[4] });
    rig.run(held[2].call_with(retry("e"), to_priority(-1))).expect("retried");
    vec![ids[2], ids[0], ids[4], ids[5], ids[6], ids[7], plain, ids[1], tied, later]
}

pub(super) fn the_order_survives_a_reopen(harness: &dyn Harness) {
    for order in [Order::Priority, Order::Fifo] {
        let rig = Rig::with_queue(harness, Policy { order: order.clone(), ..plain() });
        let mut expected = shuffle(&rig);
        if order == Order::Fifo {
            // In FIFO order, the retried item is among the items of its millisecond.
            let retried = expected.remove(0);
            expected.insert(5, retried);
        }
        let rig = reopen!(rig, harness);
        rig.advance(10);
        assert_eq!(rig.receive_ids("jobs", 4), expected[..4]);
        let rig = reopen!(rig, harness);
        rig.advance(10);
        assert_eq!(rig.receive_ids("jobs", 10), expected[4..]);
    }
}

pub(super) fn the_order_of_scores_survives_a_reopen(harness: &dyn Harness) {
    let rig = Rig::with_queue(harness, Policy { order: Order::Score(Box::default()), ..plain() });
    let fee = |fee| {
        let mut submission = payload("work");
        submission.body.fee = Some(fee);
        submission
    };
    let mut ids = Vec::new();
    for amount in [10, 500, 0, 100_000, 500] {
        ids.push(rig.submit("jobs", fee(amount)));
    }
    let best = rig.take("jobs");
    rig.lease(&best, release()).expect("released");
    let rig = reopen!(rig, harness);
    let expected = [ids[3], ids[1], ids[4], ids[0], ids[2]];
    assert_eq!(rig.receive_ids("jobs", 10), expected);
}

pub(super) fn used_and_free_keys_and_ids_survive_a_reopen(harness: &dyn Harness) {
    let rig = Rig::with_queue(harness, Policy { dead_letter_queue: Some(name("dead")), ..plain() });
    rig.create("dead", plain());
    let with_id = |number| Submission { id: Some(chosen(number)), ..payload("work") };
    let waiting = rig.submit("jobs", keyed("waiting", "work"));
    let dead = rig.submit("jobs", keyed("dead", "work"));
    let removed = rig.submit("jobs", keyed("removed", "work"));
    rig.submit("jobs", with_id(1));
    rig.submit("jobs", with_id(2));
    rig.delete(removed);
    rig.delete(chosen(2));
    let held = rig.receive("jobs", 2);
    let edits = FieldEdits::default().set(Field::Blob, "edited".into());
    let adjust = Adjust { edits, ..Adjust::default() };
    rig.run(held[0].call_with(release(), adjust)).expect("released");
    rig.fail(&held[1]);
    let mut rig = rig;
    for round in 0..2 {
        rig = reopen!(rig, harness);
        for (key, id) in [("waiting", waiting), ("dead", dead)] {
            assert_eq!(submitted(&rig.run(submit("jobs", keyed(key, "work")))), (id, false));
            assert_eq!(code(&rig.run(submit("jobs", keyed(key, "edited")))), "key_conflict");
        }
        assert_eq!(code(&rig.run(submit("jobs", with_id(1)))), "id_taken");
        let (again, created) = submitted(&rig.run(submit("jobs", keyed("removed", "new"))));
        assert_eq!((created, again == removed), (round == 0, false));
        let second = code(&rig.run(submit("jobs", with_id(2))));
        assert_eq!(second, if round == 0 { "ok" } else { "id_taken" });
    }
}

pub(super) fn ids_after_a_reopen_are_new(harness: &dyn Harness) {
    let mut rig = Rig::with_queue(harness, plain());
    rig.create("last", plain());
    let mut ids = BTreeSet::new();
    let mut queues = BTreeSet::from([rig.view("last").queue.id, rig.view("jobs").queue.id]);
    let mut kept = Vec::new();
    for _ in 0..4 {
        // The latest item and queue are deleted before the reopen, in the same millisecond.
        for id in rig.submit_many("jobs", 3) {
            assert!(ids.insert(id), "{id} was used before");
            kept.push(id);
        }
        rig.delete(kept.pop().expect("three"));
        rig.ok(drop_queue("last"));
        rig = reopen!(rig, harness);
        rig.create("last", plain());
        assert!(queues.insert(rig.view("last").queue.id), "a new queue has a new id");
    }
    assert_eq!(rig.list_ids(&Filter::default()), kept, "in the order of submission");
}

pub(super) fn a_dead_letter_remembers_its_origin_queue_after_a_reopen(harness: &dyn Harness) {
    let rig = Rig::open(harness);
    rig.create("dead", plain());
    let policy = Policy { dead_letter_queue: Some(name("dead")), ..plain() };
    rig.create("jobs", policy.clone());
    rig.create("fleeting", policy.clone());
    let home = rig.hold("jobs");
    rig.fail(&home);
    let homeless = rig.hold("fleeting");
    rig.fail(&homeless);
    rig.ok(drop_queue("fleeting"));
    let rig = reopen!(rig, harness);
    rig.create("fleeting", policy);
    for (held, queue) in [(&home, "jobs"), (&homeless, "dead")] {
        assert_eq!(rig.run(Operation::Redrive { id: held.id }), left(ItemState::Pending));
        assert_eq!(rig.stored(held.id).queue, name(queue));
    }
    let rig = reopen!(rig, harness);
    assert_eq!(rig.take("jobs").id, home.id);
    assert_eq!(rig.take("dead").id, homeless.id);
}

pub(super) fn timers_that_ran_out_while_closed_are_carried_out(harness: &dyn Harness) {
    let rig =
        Rig::with_queue(harness, Policy { completed_ttl: Some(Millis(1000)), max_retries: 0, ..plain() });
    let scheduled = rig.submit("jobs", delayed(2000));
    let mut brief = delayed(9000);
    brief.overrides.expire_after = Some(Millis(3000));
    let expiring = rig.submit("jobs", brief);
    rig.submit("jobs", payload("work"));
    let mut brief = rig.receive_call("jobs", 1);
    brief.visibility = Some(Millis(500));
    let done = Held::of(rig.received(brief).items.remove(0));
    rig.commit(&done);
    let lapsing = rig.hold("jobs");
    let value = "v".into();
    let ttl = Some(Millis(500));
    rig.kv("brief", KvCommand::Set { value, ttl }).expect("set");
    let before = (rig.next_wake(), rig.counts("jobs"));
    let rig = reopen!(rig, harness);
    assert_eq!((rig.next_wake(), rig.counts("jobs")), before);
    rig.advance(1999);
    assert_eq!(rig.kv_get("brief"), None);
    let rig = reopen!(rig, harness);
    rig.sweep();
    rig.assert_gone(done.id);
    assert_eq!(rig.counts("jobs").scheduled, 2);
    rig.advance(1);
    assert_eq!(rig.take("jobs").id, scheduled);
    rig.clock.set(lapsing.deadline());
    let rig = reopen!(rig, harness);
    assert_eq!(code(&rig.lease(&lapsing, commit())), "lease_lost");
    for id in [expiring, lapsing.id] {
        assert!(matches!(rig.item(id).head.state, State::Failed { .. }));
    }
}

pub(super) fn the_clock_does_not_go_back_across_a_reopen(harness: &dyn Harness) {
    let rig = Rig::with_queue(harness, plain());
    rig.advance(50_000);
    let high = rig.now();
    rig.submit("jobs", payload("work"));
    rig.clock.set(START);
    let clock = rig.clock.clone();
    // The rig's checks read the injected clock, which is behind the store's clock here.
    let Some(store) = harness.reopen(rig.store, clock.clone()) else {
        return;
    };
    let batch = vec![submit("jobs", payload("late"))];
    let answers = block_on(store.update(batch)).expect("the store answers").answers;
    let (id, _) = submitted(&answers[0]);
    let found = block_on(store.get(vec![id], FieldSet::NONE)).expect("the store answers");
    let created_at = found[0].as_ref().map(|stored| stored.item.head.created_at);
    assert!(created_at >= Some(high), "{created_at:?} is before {high:?}");
}

pub(super) fn queues_keep_their_state_across_a_reopen(harness: &dyn Harness) {
    let rig = Rig::with_queue(harness, Policy { depth_limit: Some(2), ..plain() });
    rig.submit_many("jobs", 2);
    let patch = PolicyPatch {
        visibility_timeout: Some(Millis(12_345)),
        completed_ttl: Some(None),
        ..PolicyPatch::default()
    };
    rig.ok(Operation::ChangePolicy { queue: name("jobs"), patch: Box::new(patch) });
    rig.ok(Operation::PauseQueue { queue: name("jobs") });
    let rig = reopen!(rig, harness);
    assert_eq!(code(&rig.run(submit("jobs", payload("one more")))), "queue_full");
    assert!(rig.receive("jobs", 1).is_empty(), "paused");
    rig.ok(Operation::ResumeQueue { queue: name("jobs") });
    rig.close("jobs");
    let held = rig.receive("jobs", 2);
    assert_eq!(held[0].deadline(), rig.now().after(Millis(12_345)));
    rig.commit(&held[0]);
    let rig = reopen!(rig, harness);
    assert_eq!(rig.queue_state("jobs"), QueueState::Closed { since: START });
    rig.advance(1);
    rig.commit(&held[1]);
    let completed = QueueState::Completed { since: rig.now() };
    assert_eq!(rig.queue_state("jobs"), completed);
    let rig = reopen!(rig, harness);
    assert_eq!(rig.queue_state("jobs"), completed);
    assert_eq!(rig.counts("jobs").completed, 2);
    assert_eq!(code(&rig.run(submit("jobs", payload("late")))), "queue_closed");
}

pub(super) fn a_list_cursor_stays_valid_across_a_reopen(harness: &dyn Harness) {
    let rig = Rig::with_queue(harness, plain());
    let ids = rig.submit_many("jobs", 10);
    let page = block_on(rig.store.list(Filter::default(), None, 4, FieldSet::NONE)).expect("it answers");
    rig.delete(ids[1]);
    rig.delete(ids[3]);
    let rig = reopen!(rig, harness);
    let mut seen: Vec<_> = page.items.iter().map(|stored| stored.item.head.id).collect();
    let mut after = page.next;
    while after.is_some() {
        let page = block_on(rig.store.list(Filter::default(), after, 4, FieldSet::NONE)).expect("it answers");
        seen.extend(page.items.iter().map(|stored| stored.item.head.id));
        after = page.next;
    }
    assert_eq!(seen, ids);
}
