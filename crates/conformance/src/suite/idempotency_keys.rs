//! Idempotency keys and chosen ids: one key has one item, and one id has one item.

use super::Harness;
use super::operations::*;
use super::rig::*;
use bytes::Bytes;
use towline_domain::change::Answer;
use towline_domain::command::When;
use towline_domain::{Adjust, Field, FieldEdits, ItemId, Json, Millis, Policy, Refusal, Submission, Unique};
use towline_store::{Filter, Operation, Reply};

pub(super) fn the_same_key_and_content_returns_the_same_item(harness: &dyn Harness) {
    let rig = Rig::with_queue(harness, plain());
    let first = rig.submit("jobs", keyed("k", "work"));
    let before = rig.stored(first);
    rig.advance(10);
    let same = Ok(Reply::Answer(Answer::Submitted { id: first, created: false }));
    assert_eq!(rig.run(submit("jobs", keyed("k", "work"))), same);
    // Options that are not content may differ. Those of the first submit count.
    let mut other = keyed("k", "work");
    other.priority = 9;
    other.ready = When::After(Millis(100));
    other.id = Some(chosen(3));
    other.body.tags = [("a".to_owned(), "b".to_owned())].into();
    assert_eq!(rig.run(submit("jobs", other)), same);
    assert_eq!(rig.stored(first), before);
    assert_eq!(rig.find(chosen(3)), None);
    assert_eq!(rig.counts("jobs").total(), 1);
    // The state of the item does not matter.
    let held = rig.take("jobs");
    assert_eq!(rig.run(submit("jobs", keyed("k", "work"))), same);
    rig.commit(&held);
    assert_eq!(rig.run(submit("jobs", keyed("k", "work"))), same);
    assert!(rig.receive("jobs", 1).is_empty(), "no new item was created");
}

pub(super) fn the_same_key_with_different_content_is_a_conflict(harness: &dyn Harness) {
    let rig = Rig::with_queue(harness, plain());
    let id = rig.submit("jobs", keyed("k", "work"));
    let before = rig.stored(id);
    let mut with_param = keyed("k", "work");
    with_param.body.params = [("a".to_owned(), Json::string("b"))].into();
    let mut with_input = keyed("k", "work");
    with_input.body.inputs = [("a".parse().expect("a slot"), "b".parse().expect("a buffer"))].into();
    let mut with_field = keyed("k", "work");
    with_field.fields.metadata = Some(Bytes::new());
    let mut without = keyed("k", "work");
    without.fields.blob = None;
    for other in [keyed("k", "other"), with_param, with_input, with_field, without] {
        let key = "k".to_owned();
        assert_eq!(rig.refused(submit("jobs", other)), Refusal::KeyConflict { key, id });
    }
    assert_eq!(rig.stored(id), before);
    assert_eq!(rig.counts("jobs").total(), 1);
}

pub(super) fn a_key_is_unique_within_its_batch_and_queue(harness: &dyn Harness) {
    let rig = Rig::with_queue(harness, plain());
    rig.create("other", plain());
    let answers = rig.update(vec![
        submit("jobs", keyed("k", "work")),
        submit("jobs", keyed("k", "work")),
        submit("jobs", keyed("k", "other")),
        submit("other", keyed("k", "other")),
        submit("jobs", keyed("K", "work")),
        submit("jobs", keyed("k ", "work")),
    ]);
    let (id, created) = submitted(&answers[0]);
    assert!(created);
    assert_eq!(submitted(&answers[1]), (id, false));
    let key = "k".to_owned();
    assert_eq!(answers[2], Err(Refusal::KeyConflict { key, id }.into()));
    for answer in &answers[3..] {
        assert!(submitted(answer).1, "a different queue or key");
    }
}

pub(super) fn a_key_stands_for_the_submitted_content_not_for_later_edits(harness: &dyn Harness) {
    let rig = Rig::with_queue(harness, plain());
    let held = rig.hold_this("jobs", keyed("k", "work"));
    let adjust =
        Adjust { edits: FieldEdits::default().set(Field::Blob, "edited".into()), ..Adjust::default() };
    rig.run(held.call_with(release(), adjust)).expect("released");
    assert_eq!(rig.item(held.id).fields.blob, Some("edited".into()));
    assert_eq!(submitted(&rig.run(submit("jobs", keyed("k", "work")))), (held.id, false));
    assert_eq!(code(&rig.run(submit("jobs", keyed("k", "edited")))), "key_conflict");
}

pub(super) fn a_key_stays_in_its_queue_when_the_item_moves(harness: &dyn Harness) {
    let rig = Rig::with_queue(harness, Policy { dead_letter_queue: Some(name("dead")), ..plain() });
    rig.create("dead", plain());
    rig.create("other", plain());
    let dead = rig.hold_this("jobs", keyed("dead", "work"));
    rig.fail(&dead);
    let moved = rig.hold_this("jobs", keyed("moved", "work"));
    rig.run(moved.call_with(defer(0), to_queue("other"))).expect("moved");
    for (key, id, elsewhere) in [("dead", dead.id, "dead"), ("moved", moved.id, "other")] {
        assert_eq!(rig.stored(id).queue, name(elsewhere));
        assert_eq!(submitted(&rig.run(submit("jobs", keyed(key, "work")))), (id, false));
        assert_eq!(code(&rig.run(submit("jobs", keyed(key, "else")))), "key_conflict");
        let (there, created) = submitted(&rig.run(submit(elsewhere, keyed(key, "else"))));
        assert!(created && there != id, "{elsewhere} has its own keys");
        assert_eq!(submitted(&rig.run(submit("jobs", keyed(key, "work")))), (id, false));
    }
    rig.ok(Operation::Redrive { id: dead.id });
    assert_eq!(submitted(&rig.run(submit("jobs", keyed("dead", "work")))), (dead.id, false));
}

pub(super) fn a_key_is_free_after_its_item_is_removed(harness: &dyn Harness) {
    let (completed_ttl, visibility_timeout) = (Some(Millis(1000)), Millis(500));
    let rig = Rig::with_queue(harness, Policy { completed_ttl, visibility_timeout, ..plain() });
    let first = rig.submit("jobs", keyed("k", "1"));
    rig.delete(first);
    let held = rig.hold_this("jobs", keyed("k", "2"));
    assert_ne!(held.id, first);
    rig.commit(&held);
    rig.at(START.after(Millis(999)));
    assert_eq!(code(&rig.run(submit("jobs", keyed("k", "3")))), "key_conflict");
    rig.advance(1);
    // The submit's own call carries out the removal that is due.
    let third = rig.submit("jobs", keyed("k", "3"));
    assert_eq!(submitted(&rig.run(submit("jobs", keyed("k", "3")))), (third, false));
    let answers = rig.update(vec![delete(third), submit("jobs", keyed("k", "4"))]);
    assert!(submitted(&answers[1]).1);
}

fn unfinished(key: &str, blob: &'static str) -> Submission {
    let mut submission = keyed(key, blob);
    submission.overrides.unique = Some(Unique::WhileUnfinished);
    submission
}

pub(super) fn a_key_may_be_free_when_its_item_ends(harness: &dyn Harness) {
    let policy = Policy { unique: Unique::WhileUnfinished, ..lenient() };
    for (policy, again) in [(policy, keyed as fn(&str, &'static str) -> Submission), (lenient(), unfinished)]
    {
        let rig = Rig::with_queue(harness, policy);
        let mut earlier: Vec<ItemId> = Vec::new();
        for (blob, end) in [("1", commit()), ("2", fail("broken")), ("3", commit())] {
            let id = rig.submit("jobs", again("k", blob));
            assert_eq!(submitted(&rig.run(submit("jobs", again("k", blob)))), (id, false));
            assert_eq!(code(&rig.run(submit("jobs", again("k", "else")))), "key_conflict");
            let held = rig.take("jobs");
            assert_eq!((held.id, code(&rig.run(submit("jobs", again("k", "else"))))), (id, "key_conflict"));
            rig.lease(&held, end).expect("settled");
            earlier.push(id);
        }
        let cancelled = rig.submit("jobs", again("k", "4"));
        rig.cancel(cancelled);
        let held = rig.hold_this("jobs", again("k", "5"));
        // In one batch: the item ends, and the next one is submitted and ends.
        let next = submit("jobs", Submission { id: Some(chosen(6)), ..again("k", "6") });
        let cancel = Operation::Cancel { id: chosen(6), reason: String::new() };
        let last = submit("jobs", again("k", "7"));
        let answers = rig.update(vec![held.call(commit()), next, cancel, last.clone(), last]);
        let (last, created) = submitted(&answers[3]);
        assert!(created && answers.iter().all(Result::is_ok), "{answers:?}");
        assert_eq!(submitted(&answers[4]), (last, false));
        earlier.extend([cancelled, held.id, chosen(6), last]);
        let by_key = Filter { idempotency_key: Some("k".to_owned()), ..Filter::default() };
        assert_eq!(rig.list_ids(&by_key), earlier, "a filter finds all of them");
        let Some(rig) = rig.reopen(harness) else { continue };
        assert_eq!(rig.list_ids(&by_key), earlier);
        assert_eq!(submitted(&rig.run(submit("jobs", again("k", "7")))), (last, false));
    }
}

pub(super) fn a_freed_key_stays_free(harness: &dyn Harness) {
    let rig = Rig::with_queue(harness, lenient());
    let first = rig.hold_this("jobs", unfinished("k", "1"));
    rig.fail(&first);
    // The rule of the first item counts, not that of the next submit.
    let second = rig.submit("jobs", keyed("k", "2"));
    rig.ok(Operation::Redrive { id: first.id });
    assert_eq!(submitted(&rig.run(submit("jobs", keyed("k", "2")))), (second, false));
    rig.delete(second);
    let third = rig.submit("jobs", unfinished("k", "3"));
    assert_ne!(third, first.id, "a redriven item does not get its key back");
    // An item that keeps its key keeps it when it ends.
    rig.cancel(third);
    let fourth = rig.submit("jobs", keyed("k", "4"));
    rig.cancel(fourth);
    assert_eq!(code(&rig.run(submit("jobs", unfinished("k", "5")))), "key_conflict");
    let mut without_key = payload("work");
    without_key.overrides.unique = Some(Unique::WhileUnfinished);
    assert_eq!(code(&rig.run(submit("jobs", without_key))), "invalid");
}

pub(super) fn a_closed_or_full_queue_still_recognises_a_known_key(harness: &dyn Harness) {
    let rig = Rig::with_queue(harness, Policy { depth_limit: Some(1), ..plain() });
    let id = rig.submit("jobs", keyed("k", "work"));
    assert_eq!(submitted(&rig.run(submit("jobs", keyed("k", "work")))), (id, false));
    assert_eq!(code(&rig.run(submit("jobs", keyed("k", "else")))), "key_conflict");
    assert_eq!(code(&rig.run(submit("jobs", keyed("new", "work")))), "queue_full");
    rig.close("jobs");
    assert_eq!(submitted(&rig.run(submit("jobs", keyed("k", "work")))), (id, false));
    assert_eq!(code(&rig.run(submit("jobs", keyed("new", "work")))), "queue_closed");
}

pub(super) fn a_chosen_id_can_be_used_once(harness: &dyn Harness) {
    let rig = Rig::with_queue(harness, plain());
    rig.create("other", plain());
    let answers = rig.update(vec![
        submit("jobs", with_id(1)),
        submit("jobs", with_id(1)),
        submit("other", with_id(1)),
        submit("jobs", with_id(2)),
    ]);
    let taken = |id| Err(Refusal::IdTaken { id }.into());
    assert_eq!(submitted(&answers[0]), (chosen(1), true));
    assert_eq!((&answers[1], &answers[2]), (&taken(chosen(1)), &taken(chosen(1))));
    assert_eq!(submitted(&answers[3]), (chosen(2), true));
    let held = rig.take("jobs");
    assert_eq!(held.id, chosen(1));
    rig.commit(&held);
    assert_eq!(rig.run(submit("jobs", with_id(1))), taken(chosen(1)), "even of a terminal item");
    let made = rig.submit("jobs", payload("made by the store"));
    let copy = Submission { id: Some(made), ..payload("copy") };
    assert_eq!(rig.run(submit("jobs", copy)), taken(made));
    assert_eq!(rig.item(made).fields.blob, Some("made by the store".into()));
}

pub(super) fn an_id_is_free_after_its_item_is_removed(harness: &dyn Harness) {
    let rig = Rig::with_queue(harness, plain());
    let made = rig.submit("jobs", payload("made by the store"));
    rig.submit("jobs", with_id(1));
    rig.delete(made);
    rig.delete(chosen(1));
    for id in [made, chosen(1)] {
        let again = Submission { id: Some(id), ..payload("again") };
        assert_eq!(submitted(&rig.run(submit("jobs", again))), (id, true));
        assert_eq!(rig.item(id).fields.blob, Some("again".into()));
        let held = rig.take("jobs");
        assert_eq!(held.id, id);
        rig.commit(&held);
    }
}

pub(super) fn a_different_trace_does_not_make_a_different_item(harness: &dyn Harness) {
    let rig = Rig::with_queue(harness, plain());
    let within = |number| {
        let mut submission = keyed("k", "work");
        submission.body.trace = trace(number);
        submission
    };
    let id = rig.submit("jobs", within(1));
    assert_eq!(submitted(&rig.run(submit("jobs", within(2)))), (id, false));
    assert_eq!(submitted(&rig.run(submit("jobs", keyed("k", "work")))), (id, false));
    assert_eq!(rig.item(id).body.trace, trace(1), "the trace of the first submit");
}
