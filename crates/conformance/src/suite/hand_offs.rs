//! Commits that submit items in the same step.

use super::Harness;
use super::operations::*;
use super::rig::*;
use std::sync::Arc;
use towline_domain::change::{Answer, HandedOffItem, Submitted};
use towline_domain::command::RecordGuard;
use towline_domain::kv::KvCommand;
use towline_domain::{
    Adjust, Body, Condition, Dependency, DependsOn, HandOff, HandedOff, ItemId, ItemState, Policy,
    Precondition, QueueState, Refusal, Schema, StateName, Submission, Timestamp, Unique, limits,
};
use towline_store::{Answered, Operation, Reply};

fn to(queue: &str, submission: Submission) -> HandOff {
    HandOff { queue: name(queue), submission }
}

fn commit_with(held: &Held, then_submit: Vec<HandOff>) -> Operation {
    held.call_with(commit(), Adjust { then_submit, ..Adjust::default() })
}

#[track_caller]
fn handed_off(answered: &Answered) -> Vec<HandedOffItem> {
    match answered {
        Ok(Reply::Answer(Answer::HandedOff(HandedOff { items }))) => items.clone(),
        other => panic!("unexpected reply to a hand-off: {other:?}"),
    }
}

#[track_caller]
fn handed_off_ids(answered: &Answered) -> Vec<ItemId> {
    handed_off(answered).iter().map(|item| item.id).collect()
}

fn after_group(name: &str) -> Dependency {
    Dependency { on: DependsOn::Group { name: name.to_owned(), expect: 1 }, when: Condition::AllDone }
}

/// Commits with these items, expects the refusal of the one at `index`, and that nothing happened.
#[track_caller]
fn assert_refused(rig: &Rig, held: &Held, then_submit: Vec<HandOff>, index: usize, code: &str) {
    let before = (rig.stored(held.id), rig.queues(), rig.list(&towline_store::Filter::default()));
    let refusal = rig.refused(commit_with(held, then_submit));
    assert_eq!(refusal.code(), code, "{refusal}");
    match &refusal {
        Refusal::HandOff { index: at, .. } => assert_eq!(*at, index, "{refusal}"),
        other => panic!("the refusal names no item: {other}"),
    }
    let after = (rig.stored(held.id), rig.queues(), rig.list(&towline_store::Filter::default()));
    assert_eq!(after, before, "nothing happened");
}

fn submission_of(rig: &Rig, id: ItemId) -> (Option<ItemId>, ItemState) {
    let item = rig.item(id);
    (item.body.parent, item.head.item_state())
}

pub(super) fn a_commit_and_its_items_are_one_step(harness: &dyn Harness) {
    let rig = Rig::with_queue(harness, lenient());
    rig.create("next", lenient());
    rig.create("other", lenient());
    let held = rig.hold("jobs");
    let other_parent = rig.submit("other", payload("unrelated"));
    let body = Body { parent: Some(other_parent), ..Body::default() };
    let adopted = Submission { body, ..payload("three") };
    let items = vec![to("next", payload("one")), to("other", delayed(500)), to("jobs", adopted)];
    let ids = handed_off_ids(&rig.run(commit_with(&held, items)));
    let [one, two, three] = ids[..] else { panic!("three items") };
    assert_eq!(submission_of(&rig, held.id).1, ItemState::Completed);
    assert_eq!(rig.item(held.id).outcome.handed_off, ids);
    assert_eq!(submission_of(&rig, one), (Some(held.id), ItemState::Pending));
    assert_eq!(submission_of(&rig, two), (Some(held.id), ItemState::Pending));
    assert_eq!(submission_of(&rig, three), (Some(other_parent), ItemState::Pending), "a parent of its own");
    assert_eq!(rig.stored(one).queue, name("next"));
    assert_eq!(rig.item(one).fields.blob, payload("one").fields.blob);
    assert_eq!(rig.receive_ids("next", 5), [one]);
    assert_eq!(rig.receive_ids("jobs", 5), [three]);
    rig.advance(500);
    assert_eq!(rig.receive_ids("other", 5), [other_parent, two]);
}

pub(super) fn a_receive_in_the_same_batch_gets_the_items(harness: &dyn Harness) {
    let rig = Rig::with_queue(harness, lenient());
    rig.create("next", lenient());
    let held = rig.hold("jobs");
    let receive = Operation::Receive(Box::new(rig.receive_call("next", 5)));
    let items = (0..3).map(|n| to("next", payload(n.to_string()))).collect();
    let answers = rig.update(vec![commit_with(&held, items), receive]);
    let ids = handed_off_ids(&answers[0]);
    match &answers[1] {
        Ok(Reply::Received(received)) => {
            assert_eq!(received.items.iter().map(|item| item.head.id).collect::<Vec<_>>(), ids);
        }
        other => panic!("unexpected reply to a receive: {other:?}"),
    }
}

pub(super) fn a_refused_item_keeps_the_lease_and_submits_nothing(harness: &dyn Harness) {
    let rig = Rig::with_queue(harness, lenient());
    rig.create("next", lenient());
    rig.create("closed", lenient());
    rig.create("full", Policy { depth_limit: Some(2), ..lenient() });
    let schema = Schema { input_params: [Schema::declare("level").unwrap()].into(), ..Schema::default() };
    rig.ok(create_with("strict", schema, lenient()));
    rig.close("closed");
    rig.submit("full", payload("first"));
    let taken = rig.submit("next", with_id(1));
    rig.submit("next", keyed("known", "content"));
    let held = rig.hold("jobs");
    let good = || to("next", payload("good"));
    let record_guard = Box::new(RecordGuard {
        key: "k".to_owned(),
        seen: "1".into(),
        next: "2".into(),
        not_before: Timestamp(0),
    });
    assert_refused(&rig, &held, vec![good(), to("closed", payload("x"))], 1, "queue_closed");
    assert_refused(&rig, &held, vec![to("missing", payload("x")), good()], 0, "queue_not_found");
    assert_refused(&rig, &held, vec![good(), good(), to("strict", payload("x"))], 2, "schema_mismatch");
    assert_refused(&rig, &held, vec![good(), to("next", with_id(1))], 1, "id_taken");
    assert_refused(&rig, &held, vec![good(), to("next", keyed("known", "another"))], 1, "key_conflict");
    // Each item counts for the ones after it.
    let full = || to("full", payload("x"));
    assert_refused(&rig, &held, vec![full(), good(), full()], 2, "queue_full");
    for items in [
        vec![good(), to("next", keyed("twice", "a")), to("next", keyed("twice", "a"))],
        vec![to("next", with_id(7)), to("jobs", with_id(7))],
        vec![to("next", Submission { record_guard: Some(record_guard), ..payload("x") })],
        (0..=limits::HAND_OFF_MAX).map(|_| good()).collect(),
    ] {
        let refusal = rig.refused(commit_with(&held, items));
        assert!(matches!(refusal, Refusal::Invalid { what: "then_submit", .. }), "{refusal}");
    }
    let large = || to("next", payload(vec![0; limits::FIELD_BYTES_MAX]));
    let refusal = rig.refused(commit_with(&held, vec![large(), large(), good()]));
    assert_eq!(refusal.code(), "too_large", "{refusal}");
    assert_eq!(submission_of(&rig, taken).0, None);
    // The lease still holds.
    let ids = handed_off_ids(&rig.run(commit_with(&held, vec![full(), good()])));
    assert_eq!(ids.len(), 2);
}

pub(super) fn only_a_commit_hands_off(harness: &dyn Harness) {
    let rig = Rig::with_queue(harness, lenient());
    let held = rig.hold("jobs");
    let adjust = || Adjust { then_submit: vec![to("jobs", payload("x"))], ..Adjust::default() };
    for (what, verb) in every_verb().into_iter().filter(|(what, _)| *what != "commit") {
        let refusal = rig.refused(held.call_with(verb, adjust()));
        assert!(matches!(refusal, Refusal::Invalid { what: "then_submit", .. }), "{what}: {refusal}");
    }
    let precondition = Arc::new(Precondition::in_state(StateName::Processing));
    let then = Box::new(commit_with(&held, vec![to("jobs", payload("x"))]));
    let refusal = rig.refused(Operation::Guarded { precondition, then });
    assert!(matches!(refusal, Refusal::Invalid { what: "then_submit", .. }), "{refusal}");
    assert_eq!(rig.counts("jobs").pending, 0);
    rig.commit(&held);
}

pub(super) fn a_repeated_commit_submits_nothing_again(harness: &dyn Harness) {
    let rig = Rig::with_queue(harness, lenient());
    let held = rig.hold("jobs");
    let call = commit_with(&held, vec![to("jobs", payload("next"))]);
    let ids = handed_off_ids(&rig.run(call.clone()));
    let after = rig.list(&towline_store::Filter::default());
    // The item has the ids for a caller that repeats the call.
    assert_eq!(
        rig.update(vec![call.clone(), call.clone()]),
        [left(ItemState::Completed), left(ItemState::Completed)]
    );
    let traced = Body { trace: trace(3), ..Body::default() };
    let traced = commit_with(&held, vec![to("jobs", Submission { body: traced, ..payload("next") })]);
    assert_eq!(rig.run(traced), left(ItemState::Completed), "another trace is the same commit");
    let changed = |change: &dyn Fn(&mut Submission)| {
        let mut submission = payload("next");
        change(&mut submission);
        vec![to("jobs", submission)]
    };
    for others in [
        vec![],
        vec![to("jobs", payload("another"))],
        changed(&|submission| submission.body.parent = Some(held.id)),
        changed(&|submission| submission.body.fee = Some(1)),
        changed(&|submission| submission.overrides.max_retries = Some(1)),
        changed(&|submission| submission.after = Some(Box::new(after_group("a")))),
        vec![to("jobs", with_priority(3))],
        vec![to("jobs", payload("next")), to("jobs", payload("next"))],
    ] {
        assert_eq!(code(&rig.run(commit_with(&held, others))), "already_settled");
    }
    assert_eq!(rig.list(&towline_store::Filter::default()), after);
    assert_eq!(rig.item(held.id).outcome.handed_off, ids);
}

pub(super) fn a_lost_lease_is_answered_before_a_refused_item(harness: &dyn Harness) {
    let rig = Rig::with_queue(harness, lenient());
    let held = rig.hold("jobs");
    rig.at(held.deadline());
    let refusal = rig.refused(commit_with(&held, vec![to("missing", payload("x"))]));
    assert_eq!(refusal.code(), "lease_lost", "{refusal}");
    let refusal = rig.refused(commit_with(&held, vec![to("jobs", payload("x"))]));
    assert_eq!(refusal.code(), "lease_lost", "{refusal}");
    let unknown = Held { id: chosen(9), ..held };
    let refusal = rig.refused(commit_with(&unknown, vec![to("jobs", payload("x"))]));
    assert_eq!(refusal.code(), "item_not_found", "{refusal}");
}

pub(super) fn a_known_key_hands_off_the_existing_item(harness: &dyn Harness) {
    let rig = Rig::with_queue(harness, lenient());
    rig.create("next", Policy { depth_limit: Some(1), ..lenient() });
    let known = rig.submit("next", keyed("k", "content"));
    let held = rig.hold("jobs");
    let answered = rig.run(commit_with(&held, vec![to("next", keyed("k", "content"))]));
    assert_eq!(handed_off(&answered), [HandedOffItem { id: known, submitted: Submitted::Known }]);
    assert_eq!(rig.item(held.id).outcome.handed_off, [known]);
    assert_eq!(submission_of(&rig, known).0, None, "an existing item keeps its parent");
    assert_eq!(rig.counts("next").pending, 1);
}

pub(super) fn a_replace_key_replaces_a_pending_item(harness: &dyn Harness) {
    let rig = Rig::with_queue(harness, lenient());
    let latest = |text: &str| {
        let body = Body { replace_key: Some("latest".to_owned()), ..Body::default() };
        to("next", Submission { body, ..payload(text.to_owned()) })
    };
    rig.create("next", lenient());
    let (first, second) = (rig.hold("jobs"), rig.hold("jobs"));
    let created = handed_off(&rig.run(commit_with(&first, vec![latest("one")])));
    assert_eq!(created[0].submitted, Submitted::Created);
    let replaced = handed_off(&rig.run(commit_with(&second, vec![latest("two"), to("next", payload("x"))])));
    assert_eq!(replaced[0], HandedOffItem { id: created[0].id, submitted: Submitted::Replaced });
    assert_eq!(rig.item(created[0].id).fields.blob, Some("two".into()));
    assert_eq!(submission_of(&rig, created[0].id).0, Some(second.id));
    assert_eq!(rig.counts("next").pending, 2);
}

pub(super) fn a_commit_may_hand_its_key_to_the_next_item(harness: &dyn Harness) {
    let rig = Rig::with_queue(harness, Policy { unique: Unique::WhileUnfinished, ..lenient() });
    let held = rig.hold_this("jobs", keyed("singleton", "one"));
    let ids = handed_off_ids(&rig.run(commit_with(&held, vec![to("jobs", keyed("singleton", "two"))])));
    assert_ne!(ids[0], held.id);
    let again = rig.run(submit("jobs", keyed("singleton", "two")));
    assert_eq!(submitted(&again), (ids[0], false), "the next item has the key now");
    // A key that belongs to an item while it exists is not free.
    let kept = Submission {
        overrides: towline_domain::Overrides { unique: Some(Unique::WhileExists), ..Default::default() },
        ..keyed("kept", "one")
    };
    let held = {
        rig.ok(Operation::Cancel { id: ids[0], reason: "enough".to_owned() });
        rig.hold_this("jobs", kept)
    };
    assert_refused(&rig, &held, vec![to("jobs", keyed("kept", "two"))], 0, "key_conflict");
}

pub(super) fn a_hand_off_completes_its_closed_queue(harness: &dyn Harness) {
    let rig = Rig::with_queue(harness, lenient());
    rig.create("next", lenient());
    let held = rig.hold("jobs");
    rig.close("jobs");
    assert_refused(&rig, &held, vec![to("jobs", payload("x"))], 0, "queue_closed");
    let ids = handed_off_ids(&rig.run(commit_with(&held, vec![to("next", payload("x"))])));
    assert!(matches!(rig.queue_state("jobs"), QueueState::Completed { .. }));
    assert_eq!(rig.receive_ids("next", 1), ids);
}

pub(super) fn a_hand_off_counts_in_the_effects(harness: &dyn Harness) {
    let rig = Rig::with_queue(harness, lenient());
    rig.create("next", lenient());
    let held = rig.hold("jobs");
    let batch = vec![commit_with(&held, vec![to("next", payload("a")), to("next", delayed(10))])];
    let updated = futures::executor::block_on(rig.store.update(batch)).unwrap();
    assert_eq!(updated.effects.ended, [held.id]);
    assert_eq!(updated.effects.queues[&name("next")].ready_count(), 1);
    assert_eq!(updated.effects.queues[&name("jobs")].leases_ended, 1);
    rig.check();
    assert_eq!((rig.counts("next").pending, rig.counts("next").scheduled), (1, 1));
}

pub(super) fn a_hand_off_survives_a_reopen(harness: &dyn Harness) {
    let rig = Rig::with_queue(harness, Policy { unique: Unique::WhileUnfinished, ..lenient() });
    rig.create("next", lenient());
    let held = rig.hold_this("jobs", keyed("singleton", "one"));
    let items = vec![
        to("jobs", keyed("singleton", "two")),
        to("next", payload(vec![7; 100_000])),
        to("next", with_id(3)),
    ];
    let call = commit_with(&held, items);
    let ids = handed_off_ids(&rig.run(call.clone()));
    let before = rig.list(&towline_store::Filter::default());
    let Some(rig) = rig.reopen(harness) else { return };
    assert_eq!(rig.list(&towline_store::Filter::default()), before);
    assert_eq!(rig.run(call), left(ItemState::Completed));
    assert_eq!(submitted(&rig.run(submit("jobs", keyed("singleton", "two")))), (ids[0], false));
    assert_eq!(rig.receive_ids("next", 5), ids[1..]);
}

pub(super) fn a_hand_off_in_a_batch_sees_the_operations_before_it(harness: &dyn Harness) {
    let rig = Rig::with_queue(harness, lenient());
    rig.create("full", Policy { depth_limit: Some(1), ..lenient() });
    let (one, two) = (rig.hold("jobs"), rig.hold("jobs"));
    let answers = rig.update(vec![
        commit_with(&one, vec![to("full", payload("a"))]),
        commit_with(&two, vec![to("full", payload("b"))]),
        Operation::Kv { key: "k".to_owned(), command: KvCommand::Delete },
        commit_with(&two, vec![]),
    ]);
    assert_eq!(answers.iter().map(code).collect::<Vec<_>>(), ["ok", "queue_full", "ok", "ok"]);
    assert_eq!(rig.counts("full").pending, 1);
    assert_eq!(rig.counts("jobs").completed, 2);
}
