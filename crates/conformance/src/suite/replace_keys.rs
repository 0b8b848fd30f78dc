//! Replace keys: a submit replaces the pending item with the same key, so at most one is pending.

use super::Harness;
use super::operations::*;
use super::races::race;
use super::restore::{Elsewhere, moved, restores};
use super::rig::*;
use bytes::Bytes;
use futures::executor::block_on;
use towline_domain::change::Answer;
use towline_domain::command::{RecordGuard, When};
use towline_domain::{
    Body, Condition, CountKind, Dependency, DependsOn, Fields, ItemId, Json, Millis, Overrides, Policy,
    Refusal, Submission, Timestamp,
};
use towline_store::{Answered, EventsFrom, Filter, Operation, Reply};

fn under(key: &str, blob: impl Into<Bytes>) -> Submission {
    Submission { body: Body { replace_key: Some(key.to_owned()), ..Body::default() }, ..payload(blob) }
}

/// A submit with a delay after each submit and a maximum delay after the first.
fn pushed(key: &str, delay: u64, delay_max: Option<u64>) -> Submission {
    let (ready, delay_max) = (When::After(Millis(delay)), delay_max.map(Millis));
    Submission { ready, delay_max, ..under(key, "later") }
}

fn replaced(id: ItemId) -> Answered {
    Ok(Reply::Answer(Answer::Replaced { id }))
}

fn tagged(name: &str, value: &str) -> Filter {
    Filter { tags: [(name.to_owned(), value.to_owned())].into(), ..Filter::default() }
}

/// A submit with every option.
fn full(key: &str) -> Submission {
    let mut full = under(key, "first");
    full.priority = 5;
    full.overrides = Overrides { max_retries: Some(9), ..Overrides::default() };
    full.fields.metadata = Some("about it".into());
    full.body.tags = [("team".to_owned(), "blue".to_owned()), ("a".to_owned(), "b".to_owned())].into();
    full.body.params = [("n".to_owned(), Json::string("1"))].into();
    full.body.source = Some("there".to_owned());
    full
}

pub(super) fn a_pending_item_is_replaced_by_the_latest_submit(harness: &dyn Harness) {
    let rig = Rig::with_queue(harness, plain());
    let id = rig.submit("jobs", full("k"));
    let first = rig.item(id);
    rig.advance(10);
    let mut second = under("k", "second");
    second.fields.parameters = Some("more".into());
    second.body.tags = [("team".to_owned(), "red".to_owned())].into();
    second.overrides.expire_after = Some(Millis(5000));
    assert_eq!(rig.run(submit("jobs", second.clone())), replaced(id));
    let item = rig.item(id);
    assert_eq!(item.fields, second.fields, "the content is that of the second submit");
    assert_eq!(Body { claim: None, ..item.body.clone() }, second.body);
    assert_eq!((item.head.id, item.head.created_at), (id, first.head.created_at));
    assert_eq!((item.head.priority, item.head.revision, item.head.transitions), (0, 2, 0));
    assert_eq!(item.head.expires_at, Some(rig.now().after(Millis(5000))));
    assert_eq!(item.head.extras.map(|extras| extras.overrides), Some(second.overrides));
    assert_eq!(rig.counts("jobs").total(), 1);
    // Filters match the new content.
    assert_eq!(rig.list_ids(&tagged("team", "red")), [id]);
    for (name, value) in [("team", "blue"), ("a", "b")] {
        assert_eq!(rig.list_ids(&tagged(name, value)), []);
    }
    // A second replacement works the same.
    assert_eq!(rig.run(submit("jobs", full("k"))), replaced(id));
    assert_eq!(rig.item(id).fields, full("k").fields);
    assert_eq!(rig.list_ids(&tagged("a", "b")), [id]);
    let held = rig.take("jobs");
    assert_eq!((held.id, held.item.fields.clone()), (id, full("k").fields));
    assert_eq!(held.item.body.params, full("k").body.params);
    rig.commit(&held);
}

pub(super) fn an_item_that_was_touched_is_not_replaced(harness: &dyn Harness) {
    type Touch = fn(&Rig, ItemId);
    let touches: [(&str, Touch); 8] = [
        ("received", |rig, _| drop(rig.take("jobs"))),
        ("released", |rig, _| drop(rig.lease(&rig.take("jobs"), release()).expect("released"))),
        ("completed", |rig, _| rig.commit(&rig.take("jobs"))),
        ("cancelled", |rig, id| rig.cancel(id)),
        ("redriven", |rig, id| {
            rig.cancel(id);
            rig.ok(Operation::Redrive { id });
        }),
        ("paused", |rig, id| drop(rig.ok(Operation::Pause { id }))),
        ("moved there and back", |rig, id| {
            rig.ok(Operation::Move { id, to: name("other") });
            rig.ok(Operation::Move { id, to: name("jobs") });
        }),
        ("deleted", |rig, id| rig.delete(id)),
    ];
    for (what, touch) in touches {
        let rig = Rig::with_queue(harness, plain());
        rig.create("other", plain());
        let first = rig.submit("jobs", under("k", "first"));
        touch(&rig, first);
        let before = rig.find(first);
        let second = rig.submit("jobs", under("k", "second"));
        assert_ne!(second, first, "{what}");
        assert_eq!(rig.find(first), before, "{what}");
        // From now on the second item is the one to replace.
        assert_eq!(rig.run(submit("jobs", under("k", "third"))), replaced(second), "{what}");
        assert_eq!(rig.find(first), before, "{what}");
        // After the second item is deleted, the first is still not replaced.
        rig.delete(second);
        let third = rig.submit("jobs", under("k", "fourth"));
        assert!(third != first && rig.find(first) == before, "{what}");
    }
}

pub(super) fn each_submit_delays_the_item_up_to_the_maximum_delay(harness: &dyn Harness) {
    let rig = Rig::with_queue(harness, plain());
    let first = rig.now();
    let at = |millis| first.after(Millis(millis));
    let id = rig.submit("jobs", pushed("k", 100, Some(250)));
    assert_eq!(rig.item(id).head.ready_at, at(100));
    for (now, ready_at) in [(90, 190), (180, 250), (240, 250)] {
        rig.at(at(now));
        assert_eq!(rig.run(submit("jobs", pushed("k", 100, Some(250)))), replaced(id));
        assert_eq!(rig.item(id).head.ready_at, at(ready_at));
        assert_eq!(rig.next_wake(), Some(at(ready_at)));
        assert!(rig.receive("jobs", 1).is_empty());
    }
    // The item is ready now. A further submit does not delay it.
    rig.at(at(260));
    assert_eq!(rig.run(submit("jobs", pushed("k", 100, Some(250)))), replaced(id));
    assert_eq!(rig.counts("jobs").pending, 1);
    let held = rig.take("jobs");
    assert_eq!((held.id, held.item.head.ready_at), (id, at(250)));
    // The next submit creates a new item with its own maximum delay.
    let next = rig.submit("jobs", pushed("k", 100, Some(250)));
    assert_eq!(rig.item(next).head.ready_at, at(360));
    // Without a maximum, each submit delays the item.
    for n in 1..=10 {
        rig.at(at(260 + 90 * n));
        assert_eq!(rig.run(submit("jobs", pushed("k", 100, None))), replaced(next));
    }
    assert_eq!(rig.item(next).head.ready_at, at(260 + 900 + 100));
    // A maximum shorter than the delay applies too. A submit without a delay makes the item ready at once.
    assert_eq!(rig.run(submit("jobs", under("k", "now"))), replaced(next));
    assert_eq!(rig.take("jobs").id, next);
    let near = rig.submit("jobs", pushed("k", 100, Some(30)));
    assert_eq!(rig.item(near).head.ready_at, rig.now().after(Millis(30)));
}

pub(super) fn a_replaced_ready_item_keeps_its_position(harness: &dyn Harness) {
    let rig = Rig::with_queue(harness, plain());
    let first = rig.submit("jobs", under("k", "1"));
    rig.advance(5);
    let second = rig.submit("jobs", payload("2"));
    rig.advance(5);
    assert_eq!(rig.run(submit("jobs", under("k", "3"))), replaced(first));
    assert_eq!(rig.receive_ids("jobs", 1), [first]);
    let third = rig.submit("jobs", under("k", "4"));
    // A replacement with a delay loses the position. A replacement with a priority moves to that priority.
    assert_eq!(rig.run(submit("jobs", pushed("k", 100, None))), replaced(third));
    assert_eq!(rig.receive_ids("jobs", 5), [second]);
    let plain = rig.submit("jobs", payload("5"));
    assert_eq!(rig.run(submit("jobs", Submission { priority: -1, ..under("k", "6") })), replaced(third));
    assert_eq!(rig.receive_ids("jobs", 5), [third, plain]);
}

pub(super) fn a_replacement_does_not_count_against_the_depth_limit(harness: &dyn Harness) {
    let rig = Rig::with_queue(harness, Policy { depth_limit: Some(1), ..plain() });
    let id = rig.submit("jobs", under("k", "1"));
    assert_eq!(code(&rig.run(submit("jobs", under("other", "1")))), "queue_full");
    assert_eq!(rig.run(submit("jobs", under("k", "2"))), replaced(id));
    rig.close("jobs");
    assert_eq!(code(&rig.run(submit("jobs", under("k", "3")))), "queue_closed");
    assert_eq!(rig.item(id).fields.blob, Some("2".into()));
}

pub(super) fn replace_keys_are_separate_per_queue(harness: &dyn Harness) {
    let rig = Rig::with_queue(harness, plain());
    rig.create("other", plain());
    let id = rig.submit("jobs", under("k", "work"));
    let others = [
        rig.submit("other", under("k", "work")),
        rig.submit("jobs", under("K", "work")),
        rig.submit("jobs", keyed("k", "work")),
        rig.submit("jobs", payload("work")),
    ];
    assert_eq!(rig.run(submit("jobs", under("k", "again"))), replaced(id));
    assert_eq!(rig.run(submit("other", under("k", "again"))), replaced(others[0]));
    assert_eq!(submitted(&rig.run(submit("jobs", keyed("k", "work")))), (others[2], false));
    let by_key = Filter { idempotency_key: Some("k".to_owned()), ..Filter::default() };
    assert_eq!(rig.list_ids(&by_key), [others[2]]);
    // A recreated queue with the same name has its own keys.
    rig.ok(Operation::DeleteQueue { queue: name("jobs"), force: true });
    rig.create("jobs", plain());
    assert_ne!(rig.submit("jobs", under("k", "anew")), id);
}

pub(super) fn a_batch_sees_its_own_replacements(harness: &dyn Harness) {
    let rig = Rig::with_queue(harness, plain());
    let receive = |rig: &Rig| Operation::Receive(Box::new(rig.receive_call("jobs", 5)));
    let given = |answer: &Answered| match answer {
        Ok(Reply::Received(received)) => {
            received.items.iter().map(|item| (item.head.id, item.fields.clone(), item.body.clone())).collect()
        }
        other => panic!("{other:?}"),
    };
    let mut tags = under("k", "2");
    tags.body.tags = [("team".to_owned(), "red".to_owned())].into();
    let answers = rig.update(vec![
        submit("jobs", full("k")),
        submit("jobs", tags.clone()),
        receive(&rig),
        submit("jobs", under("k", "3")),
        submit("jobs", under("k", "4")),
    ]);
    let (first, second) = (submitted(&answers[0]).0, submitted(&answers[3]).0);
    assert_eq!((&answers[1], &answers[4]), (&replaced(first), &replaced(second)));
    let items: Vec<(ItemId, Fields, Body)> = given(&answers[2]);
    assert_eq!((items.len(), items[0].0, &items[0].1), (1, first, &tags.fields));
    assert_eq!(items[0].2.tags, tags.body.tags);
    // An item that existed before the batch.
    let answers = rig.update(vec![
        submit("jobs", full("k")),
        submit("jobs", tags.clone()),
        receive(&rig),
        delete(second),
    ]);
    assert_eq!((&answers[0], &answers[1]), (&replaced(second), &replaced(second)));
    let items: Vec<(ItemId, Fields, Body)> = given(&answers[2]);
    assert_eq!((items.len(), items[0].0, &items[0].1), (1, second, &tags.fields));
    assert_eq!((&items[0].2.tags, &items[0].2.params), (&tags.body.tags, &tags.body.params));
    assert_eq!(rig.item(second).fields, tags.fields);
    assert_eq!(rig.list_ids(&tagged("team", "blue")), []);
    // The last item of the batch is deleted in the same batch.
    let third = rig.submit("jobs", under("k", "5"));
    let answers =
        rig.update(vec![delete(third), submit("jobs", under("k", "6")), submit("jobs", under("k", "7"))]);
    let fourth = submitted(&answers[1]).0;
    assert_eq!(answers[2], replaced(fourth));
    assert_eq!(rig.run(submit("jobs", under("k", "8"))), replaced(fourth));
}

pub(super) fn incompatible_options_are_refused(harness: &dyn Harness) {
    let rig = Rig::with_queue(harness, plain());
    let mut keyed = under("k", "work");
    keyed.body.idempotency_key = Some("k".to_owned());
    let mut grouped = under("k", "work");
    grouped.body.group = Some("g".to_owned());
    let after = Dependency { on: DependsOn::items(vec![chosen(1)]), when: Condition::AllDone };
    let once =
        RecordGuard { key: "s".to_owned(), seen: Bytes::new(), next: Bytes::new(), not_before: Timestamp(0) };
    let others = [
        ("idempotency_key", keyed),
        ("group", grouped),
        ("`id`", Submission { id: Some(chosen(1)), ..under("k", "work") }),
        ("after", Submission { after: Some(Box::new(after)), ..under("k", "work") }),
        ("schedule", Submission { record_guard: Some(Box::new(once)), ..under("k", "work") }),
        ("replace_key", Submission { delay_max: Some(Millis(5)), ..payload("work") }),
        ("1 to 512", under("", "work")),
        ("513 bytes", under(&"k".repeat(513), "work")),
    ];
    for (what, submission) in others {
        let refusal = rig.refused(submit("jobs", submission));
        assert!(matches!(refusal, Refusal::Invalid { .. }), "{what}: {refusal}");
        assert!(refusal.to_string().contains(what), "{what}: {refusal}");
    }
    assert_eq!(rig.counts("jobs").total(), 0);
    rig.submit("jobs", under(&"k".repeat(512), "work"));
}

pub(super) fn a_replacement_emits_an_event(harness: &dyn Harness) {
    let rig = Rig::with_queue(harness, plain());
    let id = rig.submit("jobs", under("k", "1"));
    assert_eq!(rig.run(submit("jobs", pushed("k", 50, None))), replaced(id));
    rig.advance(50);
    rig.take("jobs");
    let events = rig.read_events(EventsFrom::Oldest, 1000).0;
    let of_item = events.iter().filter(|event| event.item.as_ref().is_some_and(|item| item.id == id));
    let kinds: Vec<&str> = of_item.map(|event| event.kind.name()).collect();
    assert_eq!(kinds, ["item.submitted", "item.replaced", "item.received"]);
}

pub(super) fn replacements_survive_a_reopen(harness: &dyn Harness) {
    let mut rig = Rig::with_queue(harness, plain());
    rig.create("other", plain());
    let gone = rig.submit("jobs", under("gone", "1"));
    let left_alone = rig.submit("jobs", under("k", "old"));
    rig.ok(Operation::Pause { id: left_alone });
    let id = rig.submit("jobs", full("k"));
    rig.delete(gone);
    for round in 0..4 {
        let mut next = under("k", format!("round {round}"));
        next.body.tags = [("round".to_owned(), round.to_string())].into();
        next.ready = When::After(Millis(100 * round));
        if round % 2 == 0 {
            next.fields.metadata = Some("even".into());
        }
        assert_eq!(rig.run(submit("jobs", next.clone())), replaced(id));
        let before = rig.stored(id);
        let Some(reopened) = rig.reopen(harness) else { return };
        rig = reopened;
        assert_eq!(rig.stored(id), before);
        assert_eq!(rig.item(id).fields, next.fields);
        assert_eq!(rig.list_ids(&tagged("round", &round.to_string())), [id]);
        assert_eq!(rig.list_ids(&tagged("team", "blue")), []);
    }
    let anew = rig.submit("jobs", under("gone", "2"));
    assert_ne!(anew, gone);
    rig.delete(anew);
    assert_eq!(rig.item(left_alone).fields.blob, Some("old".into()));
    rig.advance(1000);
    let held = rig.take("jobs");
    assert_eq!((held.id, held.item.fields.blob.clone()), (id, Some("round 3".into())));
    let Some(rig) = rig.reopen(harness) else { return };
    assert_ne!(rig.submit("jobs", under("k", "another")), id);
    rig.commit(&held);
}

pub(super) fn a_restored_item_keeps_its_replace_key(harness: &dyn Harness) {
    let from = Rig::with_queue(&Elsewhere, plain());
    let touched = from.submit("jobs", under("k", "1"));
    let held = from.take("jobs");
    let id = from.submit("jobs", under("k", "2"));
    assert_eq!(from.run(submit("jobs", full("k"))), replaced(id));
    let to = moved(&from, harness);
    assert_eq!(to.stored(id).item.fields, full("k").fields);
    assert_eq!(to.run(submit("jobs", under("k", "3"))), replaced(id));
    assert_eq!(to.item(id).fields, under("k", "3").fields);
    to.commit(&held);
    // A second replaceable item with the same key is refused: a submit could replace only one of them.
    let again = restores(&from)
        .into_iter()
        .find(|operation| matches!(operation, Operation::Restore(restore) if restore.item.head.id == id));
    let Some(Operation::Restore(mut again)) = again else { panic!("the item exists") };
    again.item.head.id = chosen(1);
    let refusal = to.refused(Operation::Restore(again.clone()));
    assert!(refusal.to_string().contains(&id.to_string()), "{refusal}");
    // An item that can no longer be replaced is accepted and does not claim the key.
    again.item.head.transitions = 2;
    to.ok(Operation::Restore(again));
    assert_eq!(to.run(submit("jobs", under("k", "4"))), replaced(id));
    assert_eq!(to.item(chosen(1)).fields, full("k").fields);
    assert!(to.find(touched).is_some());
}

pub(super) fn parallel_submits_with_one_replace_key_leave_one_pending_item(harness: &dyn Harness) {
    let rig = Rig::with_queue(harness, plain());
    let made: Vec<Vec<ItemId>> = race(&rig, |nth, store| {
        let mut made = Vec::new();
        for round in 0..12 {
            let call = vec![
                submit("jobs", under("a", format!("{nth} {round}"))),
                submit("jobs", pushed("b", 3_600_000, None)),
            ];
            for answer in block_on(store.update(call)).expect("the store answers").answers {
                match answer {
                    Ok(Reply::Answer(Answer::Submitted { id, created: true })) => made.push(id),
                    Ok(Reply::Answer(Answer::Replaced { .. })) => {}
                    other => panic!("{other:?}"),
                }
            }
            if round % 4 == nth % 4 {
                let call = Operation::Receive(Box::new(rig.receive_call("jobs", 1)));
                block_on(store.update(vec![call])).expect("the store answers");
            }
        }
        made
    });
    let made: Vec<ItemId> = made.into_iter().flatten().collect();
    let counts = rig.counts("jobs");
    assert_eq!(counts.total(), made.len() as u64, "each reply with a new id created an item");
    assert!(counts.get(CountKind::Pending) <= 1 && counts.scheduled == 1, "{counts:?}");
    let unique: std::collections::BTreeSet<&ItemId> = made.iter().collect();
    assert_eq!(unique.len(), made.len());
}
