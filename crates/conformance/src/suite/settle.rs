//! Settles: what they change, and how repeated settles are answered.

use super::Harness;
use super::operations::*;
use super::rig::*;
use bytes::Bytes;
use towline_domain::change::Answer;
use towline_domain::command::{Verb, When};
use towline_domain::item::ErrorKind;
use towline_domain::{
    Adjust, FailureKind, Field, FieldEdits, Fields, ItemState, Json, Millis, Outcome, Policy, Refusal,
    Schema, SettleVerb, State, Submission, limits,
};
use towline_store::{Operation, Reply};

pub(super) fn a_repeated_settle_gets_the_same_answer(harness: &dyn Harness) {
    for (what, verb) in every_settle() {
        let rig = Rig::with_queue(harness, lenient());
        let held = rig.hold("jobs");
        let adjust = Adjust {
            edits: FieldEdits::default().set(Field::Metadata, "1".into()),
            priority: Some(4),
            ..Adjust::default()
        };
        let call = held.call_with(verb, adjust);
        let first = rig.run(call.clone());
        let after = rig.stored(held.id);
        rig.advance(10);
        assert_eq!(rig.run(call.clone()), first, "{what} again");
        let answers = rig.update(vec![call.clone(), call.clone()]);
        assert_eq!(answers, [first.clone(), first.clone()]);
        assert_eq!(rig.stored(held.id), after, "a repeated {what} changes nothing");
        // The same when another worker holds the item.
        rig.advance(1000);
        if let [next] = &rig.receive("jobs", 1)[..] {
            let taken = rig.stored(held.id);
            assert_eq!(rig.run(call), first, "a repeated {what} after another receive");
            assert_eq!(rig.stored(held.id), taken);
            rig.commit(next);
        }
    }
}

pub(super) fn a_repeated_settle_may_have_a_different_jitter_seed(harness: &dyn Harness) {
    let rig = Rig::with_queue(harness, lenient());
    let held = rig.hold("jobs");
    let with_seed = |seed| Verb::Retry { error: "again".to_owned(), delay: None, seed };
    assert_eq!(rig.lease(&held, with_seed(1)), left(ItemState::Pending));
    assert_eq!(rig.lease(&held, with_seed(2)), left(ItemState::Pending));
    assert_eq!(rig.item(held.id).head.retries, 1);
}

pub(super) fn a_different_settle_of_the_same_lease_is_refused(harness: &dyn Harness) {
    let output = |value: &str| {
        Verb::Commit(Outcome {
            output_params: [("level".to_owned(), Json::string(value))].into(),
            ..Outcome::default()
        })
    };
    let delay = |millis| Verb::Retry { error: "e".to_owned(), delay: Some(Millis(millis)), seed: 0 };
    let uncounted_release_after = |millis| Verb::Release { delay: Millis(millis), counted: false };
    let release_after = |millis| Verb::Release { delay: Millis(millis), counted: true };
    let at = |millis| Verb::Defer { until: When::At(START.after(Millis(millis))) };
    let pairs = [
        (
            SettleVerb::Commit,
            output("1"),
            vec![output("2"), commit(), fail("e"), retry("e"), release(), defer(0)],
        ),
        (SettleVerb::Fail, fail("one"), vec![fail("two"), commit(), retry("one")]),
        (
            SettleVerb::Retry,
            delay(5),
            vec![delay(6), retry("e"), retry("other"), release(), fail("e"), commit()],
        ),
        (
            SettleVerb::Release,
            release_after(5),
            vec![release(), release_after(6), uncounted_release_after(5), defer(5), commit()],
        ),
        (SettleVerb::Release, uncounted_release_after(5), vec![release_after(5), defer(5), commit()]),
        (SettleVerb::Defer, defer(5), vec![defer(6), at(5), release_after(5), commit()]),
    ];
    for (settled, first, others) in pairs {
        let rig = Rig::with_queue(harness, lenient());
        let held = rig.hold("jobs");
        rig.lease(&held, first.clone()).expect("settled");
        let after = rig.stored(held.id);
        for other in others {
            let refusal = rig.refused(held.call(other.clone()));
            let id = held.id;
            assert_eq!(refusal, Refusal::AlreadySettled { id, settled }, "{first:?}, then {other:?}");
        }
        for adjust in [to_priority(1), to_queue("jobs"), edits(FieldEdits::default().unset(Field::Blob))] {
            assert_eq!(code(&rig.run(held.call_with(first.clone(), adjust))), "already_settled");
        }
        for verb in [heartbeat(), Verb::Edit] {
            assert_eq!(code(&rig.lease(&held, verb)), "already_settled");
        }
        assert_eq!(rig.stored(held.id), after);
    }
}

pub(super) fn only_one_settle_of_a_lease_in_a_batch_succeeds(harness: &dyn Harness) {
    let rig = Rig::with_queue(harness, lenient());
    let held = rig.hold("jobs");
    let answers = rig.update(vec![
        held.call(commit()),
        held.call(retry("no")),
        held.call(commit()),
        held.call(fail("no")),
        held.call(heartbeat()),
    ]);
    let codes: Vec<_> = answers.iter().map(code).collect();
    assert_eq!(codes, ["ok", "already_settled", "ok", "already_settled", "already_settled"]);
    assert_eq!(rig.counts("jobs").completed, 1);
}

pub(super) fn every_verb_can_set_and_unset_every_field(harness: &dyn Harness) {
    let rig = Rig::with_queue(harness, lenient());
    let full = Fields {
        state_blob: Some("a".into()),
        blob: Some("b".into()),
        metadata: Some("c".into()),
        parameters: Some("d".into()),
    };
    for (what, verb) in every_verb() {
        for field in Field::ALL {
            for value in [None, Some(Bytes::new()), Some(Bytes::from_static(b"\0new\xff"))] {
                let held =
                    rig.hold_this("jobs", Submission { fields: full.clone(), ..Submission::default() });
                let edit = match &value {
                    None => FieldEdits::default().unset(field),
                    Some(value) => FieldEdits::default().set(field, value.clone()),
                };
                rig.run(held.call_with(verb.clone(), edits(edit))).expect("not refused");
                let mut expected = full.clone();
                expected.set(field, value);
                assert_eq!(rig.item(held.id).fields, expected, "{what} {}", field.name());
                rig.ok(Operation::Delete { id: held.id, force: true });
            }
        }
    }
}

pub(super) fn edits_add_up_and_reach_the_next_lease_holder(harness: &dyn Harness) {
    let rig = Rig::with_queue(harness, lenient());
    let held = rig.hold("jobs");
    let set = |field, value: &'static str| edits(FieldEdits::default().set(field, value.into()));
    rig.run(held.call_with(heartbeat(), set(Field::StateBlob, "1"))).expect("extended");
    assert_eq!(
        rig.run(held.call_with(Verb::Edit, set(Field::Metadata, "2"))),
        until(held.deadline()),
        "an edit does not extend the lease"
    );
    let both = FieldEdits::default().set(Field::StateBlob, "3".into()).unset(Field::Blob);
    rig.run(held.call_with(retry("again"), edits(both))).expect("retried");
    let next = rig.take("jobs");
    let fields =
        Fields { state_blob: Some("3".into()), blob: None, metadata: Some("2".into()), parameters: None };
    assert_eq!(next.item.fields, fields);
    let large = FieldEdits::default().set(Field::Blob, vec![1; limits::FIELD_BYTES_MAX + 1].into());
    let refused = rig.run(next.call_with(commit(), edits(large)));
    assert_eq!(code(&refused), "too_large");
    assert_eq!(rig.item(next.id), next.item, "the lease is kept");
    rig.commit(&next);
    assert_eq!(rig.item(next.id).fields, fields);
}

pub(super) fn every_verb_can_change_the_priority(harness: &dyn Harness) {
    for (what, verb) in every_verb() {
        let rig = Rig::with_queue(harness, lenient());
        let held = rig.hold("jobs");
        rig.run(held.call_with(verb, to_priority(-9))).expect("not refused");
        assert_eq!(rig.item(held.id).head.priority, -9, "{what}");
    }
}

pub(super) fn an_item_can_be_returned_to_another_queue(harness: &dyn Harness) {
    for (what, verb) in [("retry", retry("e")), ("release", release()), ("defer", defer(0))] {
        let rig = Rig::with_queue(harness, lenient());
        rig.create("other", Policy { visibility_timeout: Millis(7000), max_retries: 0, ..plain() });
        let mut submission = keyed("k", "work");
        submission.body.tags = [("a".to_owned(), "b".to_owned())].into();
        let held = rig.hold_this("jobs", submission);
        let adjust = Adjust {
            edits: FieldEdits::default().set(Field::StateBlob, "half done".into()),
            priority: Some(2),
            queue: Some(name("other")),
            ..Adjust::default()
        };
        let call = held.call_with(verb, adjust);
        assert_eq!(rig.run(call.clone()), left(ItemState::Pending), "{what}");
        assert_eq!(rig.run(call), left(ItemState::Pending), "{what} again");
        assert_eq!((rig.counts("jobs").total(), rig.counts("other").pending), (0, 1));
        assert!(rig.receive("jobs", 1).is_empty());
        let next = rig.take("other");
        assert_eq!(next.id, held.id);
        assert_eq!(next.item.body, held.item.body);
        assert_eq!(next.item.head.priority, 2);
        assert_eq!(next.item.fields.state_blob, Some("half done".into()));
        assert_eq!(next.deadline(), rig.now().after(Millis(7000)), "by the policy of its new queue");
        assert_eq!(rig.lease(&next, retry("e")), left(ItemState::Failed), "by the policy of its new queue");
        assert_eq!(rig.stored(next.id).queue, name("other"));
    }
}

pub(super) fn a_refused_move_to_another_queue_keeps_the_lease(harness: &dyn Harness) {
    let rig = Rig::with_queue(harness, lenient());
    rig.create("shut", plain());
    rig.submit("shut", payload("left"));
    rig.close("shut");
    let held = rig.hold("jobs");
    let before = rig.stored(held.id);
    for verb in [retry("e"), release(), defer(0)] {
        let gone = rig.run(held.call_with(verb.clone(), to_queue("nowhere")));
        assert_eq!(code(&gone), "queue_not_found");
        let shut = rig.run(held.call_with(verb, to_queue("shut")));
        assert_eq!(code(&shut), "queue_closed");
    }
    let edit = rig.run(held.call_with(Verb::Edit, to_queue("shut")));
    assert_eq!(code(&edit), "invalid", "an item can change its queue only when it is returned");
    assert_eq!(rig.stored(held.id), before);
    rig.commit(&held);
}

pub(super) fn a_commit_stores_its_outcome(harness: &dyn Harness) {
    let rig = Rig::with_queue(harness, lenient());
    let held = rig.hold("jobs");
    let outcome = Outcome {
        outputs: [("image".parse().expect("a slot"), "buffer-9".parse().expect("a buffer"))].into(),
        output_params: ["1e400", "{\"a\":[]}"]
            .iter()
            .map(|text| ((*text).to_owned(), Json::parse(text).expect("JSON")))
            .collect(),
        ..Outcome::default()
    };
    rig.advance(5);
    let adjust =
        Adjust { priority: Some(3), ..edits(FieldEdits::default().set(Field::Metadata, "done".into())) };
    let call = held.call_with(Verb::Commit(outcome.clone()), adjust);
    assert_eq!(rig.run(call), left(ItemState::Completed));
    let item = rig.item(held.id);
    assert_eq!((item.outcome, item.head.priority), (outcome, 3));
    let at = rig.now();
    let remove_at = Some(at.after(Millis::days(7)));
    assert_eq!(item.head.state, State::Completed { at, remove_at });
    let fields = Fields { metadata: Some("done".into()), ..held.item.fields };
    assert_eq!((item.body, item.fields), (held.item.body, fields));
    assert_eq!((item.head.deliveries, item.head.retries), (1, 0));
}

pub(super) fn a_commit_must_satisfy_the_schema(harness: &dyn Harness) {
    let rig = Rig::open(harness);
    let declare = |text: &str| Schema::declare(text).expect("declared");
    let schema = Schema {
        outputs: [declare("image")].into(),
        output_params: [declare("level?")].into(),
        ..Schema::default()
    };
    rig.ok(create_with("jobs", schema, lenient()));
    let held = rig.hold("jobs");
    let with = |slots: &[&str], params: &[&str]| {
        let buffer = |slot: &&str| (slot.parse().expect("a slot"), "b".parse().expect("a buffer"));
        let param = |name: &&str| ((*name).to_owned(), Json::string("v"));
        Verb::Commit(Outcome {
            outputs: slots.iter().map(buffer).collect(),
            output_params: params.iter().map(param).collect(),
            handed_off: Vec::new(),
        })
    };
    let before = rig.stored(held.id);
    for bad in [with(&[], &[]), with(&["image", "x"], &[]), with(&["image"], &["x"])] {
        assert_eq!(code(&rig.lease(&held, bad)), "schema_mismatch");
        assert_eq!(rig.stored(held.id), before, "the lease is kept");
    }
    assert_eq!(rig.lease(&held, with(&["image"], &["level"])), left(ItemState::Completed));
}

pub(super) fn a_repeated_settle_of_a_removed_item_is_refused(harness: &dyn Harness) {
    let (completed_ttl, visibility_timeout) = (Some(Millis(1000)), Millis(500));
    let rig = Rig::with_queue(harness, Policy { completed_ttl, visibility_timeout, ..lenient() });
    let held = rig.hold("jobs");
    rig.commit(&held);
    rig.advance(999);
    rig.commit(&held);
    rig.advance(1);
    assert_eq!(code(&rig.lease(&held, commit())), "item_not_found");
}

pub(super) fn a_settle_replies_with_the_resulting_state(harness: &dyn Harness) {
    let rig = Rig::with_queue(harness, Policy { max_retries: 0, ..lenient() });
    for (verb, state) in [
        (commit(), ItemState::Completed),
        (fail("e"), ItemState::Failed),
        (retry("e"), ItemState::Failed),
        (release(), ItemState::Failed),
        (defer(0), ItemState::Pending),
    ] {
        let held = rig.hold("jobs");
        let answer = Ok(Reply::Answer(Answer::State(state)));
        assert_eq!(rig.lease(&held, verb.clone()), answer);
        assert_eq!(rig.lease(&held, verb), answer, "a repeat");
    }
}

pub(super) fn a_holder_can_pause_its_item(harness: &dyn Harness) {
    let rig = Rig::with_queue(harness, Policy { expire_after: Some(Millis(9000)), ..lenient() });
    let held = rig.hold("jobs");
    let behind = rig.submit("jobs", payload("behind"));
    rig.advance(5);
    let ready_at = rig.item(held.id).head.ready_at;
    assert_eq!(rig.run(held.call_with(Verb::Pause, to_priority(7))), left(ItemState::Paused));
    let settled = Refusal::AlreadySettled { id: held.id, settled: SettleVerb::Pause };
    assert_eq!(rig.lease(&held, Verb::Pause), Err(settled.into()), "with another priority");
    assert_eq!(rig.run(held.call_with(Verb::Pause, to_priority(7))), left(ItemState::Paused), "a repetition");
    let head = rig.item(held.id).head;
    assert_eq!((head.state, head.retries, head.ready_at, head.priority), (State::Paused, 0, ready_at, 7));
    assert_eq!(code(&rig.lease(&held, commit())), "already_settled");
    assert_eq!((rig.counts("jobs").paused, rig.counts("jobs").processing), (1, 0));
    let other = rig.take("jobs");
    assert_eq!(other.id, behind);
    assert!(rig.receive("jobs", 1).is_empty());
    rig.ok(Operation::Resume { id: held.id });
    let again = rig.take("jobs");
    assert_eq!((again.id, again.item.head.attempt(), again.item.head.deliveries), (held.id, 1, 2));
    assert_eq!(code(&rig.lease(&held, Verb::Pause)), "already_settled", "a stale lease pauses nothing");
    rig.at(again.deadline());
    assert_eq!(code(&rig.lease(&again, Verb::Pause)), "lease_lost", "a lapsed lease pauses nothing");
}

pub(super) fn a_holder_can_cancel_its_item(harness: &dyn Harness) {
    let rig = Rig::with_queue(harness, Policy { dead_letter_queue: Some(name("dead")), ..lenient() });
    let cancel = |reason: &str| Verb::Cancel { reason: reason.to_owned() };
    let held = rig.hold("jobs");
    let foreign = lease_call(held.id, foreign_token(), cancel("mine"), Adjust::default());
    assert_eq!(code(&rig.run(foreign)), "lease_lost", "fenced by the lease");
    assert_eq!(rig.lease(&held, cancel("not wanted")), left(ItemState::Failed));
    assert_eq!(rig.lease(&held, cancel("not wanted")), left(ItemState::Failed), "a repetition");
    assert_eq!(code(&rig.lease(&held, cancel("for another reason"))), "already_settled");
    assert_eq!(code(&rig.lease(&held, fail("broken"))), "already_settled");
    let stored = rig.stored(held.id);
    assert_eq!(stored.queue, name("jobs"), "a cancelled item is no dead letter");
    assert!(matches!(stored.item.head.state, State::Failed { kind: FailureKind::Cancelled, .. }));
    let error = stored.item.errors.iter().next().expect("an error");
    assert_eq!((error.kind, error.message.as_str()), (ErrorKind::Cancelled, "not wanted"));
    let lapsed = rig.hold("jobs");
    rig.at(lapsed.deadline());
    assert_eq!(code(&rig.lease(&lapsed, cancel("late"))), "lease_lost");
    assert_eq!(rig.item(lapsed.id).head.item_state(), ItemState::Pending);
}
