//! Operations on items that need no lease: cancel, pause, resume, redrive, delete, purge.

use super::Harness;
use super::operations::*;
use super::rig::*;
use futures::executor::block_on;
use std::sync::Arc;
use towline_domain::change::Answer;
use towline_domain::item::ErrorKind;
use towline_domain::{
    Body, FailureKind, HeadFilter, ItemId, ItemState, Millis, Policy, Precondition, QueueState, Refusal,
    State, StateName, Submission,
};
use towline_store::{BulkAction, Filter, Operation, Reply, bulk};

fn cancel(id: ItemId) -> Operation {
    let reason = "not needed".to_owned();
    Operation::Cancel { id, reason }
}

fn pause(id: ItemId) -> Operation {
    Operation::Pause { id }
}

fn resume(id: ItemId) -> Operation {
    Operation::Resume { id }
}

fn redrive(id: ItemId) -> Operation {
    Operation::Redrive { id }
}

/// One item in each state: pending, scheduled, paused, processing, completed, failed.
fn one_of_each(rig: &Rig) -> [(&'static str, ItemId); 6] {
    let completed = rig.hold("jobs");
    rig.commit(&completed);
    let failed = rig.hold("jobs");
    rig.fail(&failed);
    let processing = rig.hold("jobs");
    let paused = rig.submit("jobs", payload("paused"));
    rig.ok(pause(paused));
    let scheduled = rig.submit("jobs", delayed(1000));
    let pending = rig.submit("jobs", payload("pending"));
    [
        ("pending", pending),
        ("scheduled", scheduled),
        ("paused", paused),
        ("processing", processing.id),
        ("completed", completed.id),
        ("failed", failed.id),
    ]
}

/// The result codes of the same operation on an item in each state, each on a new store.
fn codes_on_each(
    harness: &dyn Harness,
    operation: impl Fn(ItemId) -> Operation,
) -> Vec<(&'static str, &'static str)> {
    (0..6)
        .map(|n| {
            let rig = Rig::with_queue(harness, plain());
            let (state, id) = one_of_each(&rig)[n];
            let before = rig.list(&Filter::default());
            let answered = rig.run(operation(id));
            if answered.is_err() {
                assert_eq!(rig.list(&Filter::default()), before, "a refusal changes nothing");
            }
            (state, code(&answered))
        })
        .collect()
}

pub(super) fn each_operation_is_allowed_only_in_its_states(harness: &dyn Harness) {
    let (ok, wrong) = ("ok", "wrong_state");
    type Row = (&'static str, fn(ItemId) -> Operation, [&'static str; 6]);
    let table: [Row; 6] = [
        ("cancel", cancel, [ok, ok, ok, ok, wrong, wrong]),
        ("pause", pause, [ok, ok, ok, wrong, wrong, wrong]),
        ("resume", resume, [ok, ok, ok, wrong, wrong, wrong]),
        ("redrive", redrive, [wrong, wrong, wrong, wrong, wrong, ok]),
        ("delete", delete, [ok, ok, ok, wrong, ok, ok]),
        ("delete with force", |id| Operation::Delete { id, force: true }, [ok; 6]),
    ];
    for (what, operation, expected) in table {
        for ((state, code), expected) in codes_on_each(harness, operation).into_iter().zip(expected) {
            assert_eq!(code, expected, "{what} of a {state} item");
        }
        let rig = Rig::with_queue(harness, plain());
        let id = chosen(404);
        assert_eq!(rig.refused(operation(id)), Refusal::ItemNotFound { id }, "{what}");
    }
}

pub(super) fn a_cancelled_item_is_failed_with_the_reason(harness: &dyn Harness) {
    let rig = Rig::with_queue(harness, plain());
    let held = rig.hold("jobs");
    let waiting = rig.submit("jobs", payload("work"));
    rig.advance(5);
    for id in [held.id, waiting] {
        assert_eq!(rig.run(cancel(id)), left(ItemState::Failed));
        let item = rig.item(id);
        let at = rig.now();
        let remove_at = Some(at.after(Millis::days(7)));
        let kind = FailureKind::Cancelled;
        assert_eq!(item.head.state, State::Failed { at, remove_at, kind });
        let error = item.errors.iter().next().expect("an error");
        assert_eq!((error.kind, error.message.as_str(), error.at), (ErrorKind::Cancelled, "not needed", at));
        rig.advance(1);
        assert_eq!(rig.run(cancel(id)), left(ItemState::Failed), "a repeat succeeds");
        assert_eq!(rig.item(id), item, "a repeat changes nothing");
    }
    assert_eq!(code(&rig.lease(&held, commit())), "lease_lost");
    assert!(rig.receive("jobs", 10).is_empty());
    let failed = rig.hold("jobs");
    rig.fail(&failed);
    assert_eq!(code(&rig.run(cancel(failed.id))), "wrong_state");
}

pub(super) fn a_paused_item_is_not_received_until_resumed(harness: &dyn Harness) {
    let rig = Rig::with_queue(harness, plain());
    let id = rig.submit("jobs", payload("work"));
    assert_eq!(rig.run(pause(id)), left(ItemState::Paused));
    let paused = rig.item(id);
    assert_eq!((&paused.head.state, paused.head.transitions), (&State::Paused, 1));
    assert_eq!(rig.run(pause(id)), left(ItemState::Paused));
    assert_eq!(rig.item(id), paused);
    rig.advance(Millis::days(1).0);
    assert!(rig.receive("jobs", 10).is_empty());
    let counts = rig.counts("jobs");
    assert_eq!((counts.paused, counts.pending), (1, 0));
    assert_eq!(rig.run(resume(id)), left(ItemState::Pending));
    let resumed = rig.item(id);
    assert_eq!(resumed.head.ready_at, START);
    assert_eq!(rig.run(resume(id)), left(ItemState::Pending));
    assert_eq!(rig.item(id), resumed);
    assert_eq!(rig.take("jobs").id, id);
}

pub(super) fn a_deleted_item_is_gone(harness: &dyn Harness) {
    let rig = Rig::with_queue(harness, plain());
    for (state, id) in one_of_each(&rig) {
        let total = rig.counts("jobs").total();
        let operation = Operation::Delete { id, force: state == "processing" };
        assert_eq!(rig.run(operation), Ok(Reply::Answer(Answer::Removed)));
        rig.assert_gone(id);
        assert_eq!(rig.counts("jobs").total(), total - 1);
    }
    assert!(rig.receive("jobs", 10).is_empty());
    assert_eq!(rig.next_wake(), None);
}

pub(super) fn a_delete_can_be_limited_to_a_state(harness: &dyn Harness) {
    let all = [
        StateName::Pending,
        StateName::Ready,
        StateName::Scheduled,
        StateName::Processing,
        StateName::Paused,
        StateName::Completed,
        StateName::Failed,
        StateName::Unfinished,
    ];
    for only in all {
        let rig = Rig::with_queue(harness, plain());
        for (state, id) in one_of_each(&rig) {
            let matches = only.matches(rig.item(id).head.count_kind(rig.now()));
            let delete = Box::new(Operation::Delete { id, force: true });
            let operation =
                Operation::Guarded { precondition: Arc::new(Precondition::in_state(only)), then: delete };
            let expected = if matches { "ok" } else { "wrong_state" };
            assert_eq!(code(&rig.run(operation)), expected, "{only:?} of {state}");
            assert_eq!(rig.find(id).is_none(), matches);
        }
    }
}

/// A bulk action finds an item by its tags, and the item is replaced before the action reaches it.
pub(super) fn a_guarded_delete_skips_an_item_that_was_replaced(harness: &dyn Harness) {
    let rig = Rig::with_queue(harness, plain());
    let tagged = |tag: &str| {
        let body = Body {
            replace_key: Some("doc".to_owned()),
            tags: [("team".to_owned(), tag.to_owned())].into(),
            ..Body::default()
        };
        Submission { body, ..Submission::default() }
    };
    let of = |team: &str| Filter { tags: vec![("team".to_owned(), team.to_owned())], ..Filter::default() };
    let chosen = |team: &str, act: &BulkAction| {
        let (mut all, mut after) = (Vec::new(), None);
        loop {
            let page = towline_store::bulk_batch(&*rig.store, act, of(team), after, 10);
            let (batch, next) = block_on(page).expect("the store answers");
            all.extend(batch);
            match next {
                None => return all,
                _ => after = next,
            }
        }
    };
    let codes = |batch: Vec<Operation>| rig.update(batch).iter().map(code).collect::<Vec<_>>();
    let delete = BulkAction::Delete { force: true };
    let id = rig.submit("jobs", tagged("a"));
    let batch_a = chosen("a", &delete);
    assert_eq!((batch_a.len(), chosen("b", &delete).len()), (1, 0));
    assert_eq!(rig.run(submit("jobs", tagged("b"))), Ok(Reply::Answer(Answer::Replaced { id })));
    assert_eq!(codes(batch_a), ["wrong_state"]);
    assert_eq!(rig.item(id).body.tags["team"], "b");
    // An item that was received meanwhile still matches.
    let cancel = chosen("b", &BulkAction::Cancel { reason: "enough".to_owned() });
    let of_b = chosen("b", &delete);
    rig.take("jobs");
    assert_eq!(codes([cancel, of_b].concat()), ["ok", "ok"]);
    rig.assert_gone(id);
}

pub(super) fn a_redriven_item_starts_over(harness: &dyn Harness) {
    let rig =
        Rig::with_queue(harness, Policy { max_retries: 1, expire_after: Some(Millis(10_000)), ..plain() });
    let held = rig.hold_this("jobs", keyed("k", "work"));
    rig.lease(&held, retry("one")).expect("retried");
    let held = rig.take("jobs");
    assert_eq!(rig.lease(&held, retry("two")), left(ItemState::Failed));
    let failed = rig.item(held.id);
    rig.advance(500);
    assert_eq!(rig.run(redrive(held.id)), left(ItemState::Pending));
    let item = rig.item(held.id);
    assert_eq!((item.head.retries, item.head.attempt(), item.head.deliveries), (0, 1, 2));
    assert_eq!(item.head.ready_at, rig.now());
    assert_eq!(item.head.expires_at, Some(rig.now().after(Millis(10_000))));
    assert_eq!(item.head.created_at, START);
    assert_eq!((&item.errors, &item.body, &item.fields), (&failed.errors, &failed.body, &failed.fields));
    assert_eq!(code(&rig.run(redrive(held.id))), "wrong_state", "the item is pending now");
    assert_eq!(
        rig.lease(&held, retry("two")),
        left(ItemState::Failed),
        "a repeated settle gets its first reply"
    );
    let held = rig.take("jobs");
    rig.lease(&held, retry("three")).expect("a redriven item has all its retries again");
    let held = rig.take("jobs");
    rig.commit(&held);
    assert_eq!(rig.item(held.id).head.retries, 1);
}

pub(super) fn every_kind_of_failure_can_be_redriven(harness: &dyn Harness) {
    let rig = Rig::with_queue(harness, Policy { max_retries: 0, ..plain() });
    let cancelled = rig.submit("jobs", payload("work"));
    rig.cancel(cancelled);
    let explicit = rig.hold("jobs");
    rig.fail(&explicit);
    let exhausted = rig.hold("jobs");
    rig.lease(&exhausted, release()).expect("settled");
    let mut short = delayed(1000);
    short.overrides.expire_after = Some(Millis(10));
    let expired = rig.submit("jobs", short);
    rig.advance(10);
    rig.sweep();
    let all = [cancelled, explicit.id, exhausted.id, expired];
    assert_eq!(rig.counts("jobs").failed, 4);
    for id in all {
        assert_eq!(rig.run(redrive(id)), left(ItemState::Pending));
    }
    assert_eq!(rig.receive_ids("jobs", 10), all, "with equal ready times in order of submission");
}

pub(super) fn a_dead_letter_is_redriven_to_its_origin_queue(harness: &dyn Harness) {
    let rig = Rig::with_queue(
        harness,
        Policy { dead_letter_queue: Some(name("dead")), expire_after: Some(Millis::days(2)), ..plain() },
    );
    rig.create("dead", plain());
    let held = rig.hold("jobs");
    rig.fail(&held);
    rig.advance(5);
    assert_eq!(rig.run(redrive(held.id)), left(ItemState::Pending));
    let stored = rig.stored(held.id);
    assert_eq!(stored.queue, name("jobs"));
    assert_eq!(stored.item.head.expires_at, Some(rig.now().after(Millis::days(2))));
    assert!(stored.item.head.extras.is_none_or(|extras| extras.origin.is_none()));
    assert_eq!((rig.counts("dead").total(), rig.counts("jobs").pending), (0, 1));
    let held = rig.take("jobs");
    rig.fail(&held);
    assert_eq!(rig.stored(held.id).queue, name("dead"), "it may fail again");
}

pub(super) fn a_redrive_is_allowed_into_a_closed_queue_but_not_into_a_completed_one(harness: &dyn Harness) {
    let rig = Rig::with_queue(harness, plain());
    let failed = rig.hold("jobs");
    rig.fail(&failed);
    let held = rig.hold("jobs");
    rig.close("jobs");
    assert_eq!(rig.run(redrive(failed.id)), left(ItemState::Pending));
    rig.commit(&held);
    assert_eq!(
        rig.queue_state("jobs"),
        QueueState::Closed { since: START },
        "the queue has an unfinished item again"
    );
    let held = rig.take("jobs");
    assert_eq!(held.id, failed.id);
    rig.advance(1);
    rig.fail(&held);
    let since = rig.now();
    assert_eq!(rig.queue_state("jobs"), QueueState::Completed { since });
    let before = rig.stored(failed.id);
    let name = "jobs".to_owned();
    assert_eq!(rig.refused(redrive(failed.id)), Refusal::QueueCompleted { name, since });
    assert_eq!(rig.stored(failed.id), before);
}

pub(super) fn a_dead_letter_of_a_completed_queue_cannot_be_redriven(harness: &dyn Harness) {
    let rig = Rig::with_queue(harness, Policy { dead_letter_queue: Some(name("dead")), ..plain() });
    rig.create("dead", plain());
    let first = rig.hold("jobs");
    rig.fail(&first);
    let second = rig.hold("jobs");
    rig.close("jobs");
    assert_eq!(rig.run(redrive(first.id)), left(ItemState::Pending), "a closed origin queue accepts it");
    rig.fail(&second);
    let again = rig.take("jobs");
    rig.fail(&again);
    assert_eq!(rig.queue_state("jobs").name(), "completed");
    for held in [first, second] {
        assert_eq!(code(&rig.run(redrive(held.id))), "queue_completed");
        assert_eq!(rig.stored(held.id).queue, name("dead"));
    }
}

pub(super) fn a_purge_deletes_matching_items_in_chunks(harness: &dyn Harness) {
    let rig = Rig::with_queue(harness, plain());
    rig.create("other", plain());
    rig.submit_many("other", 3);
    rig.submit_many("jobs", 20);
    let held = rig.receive("jobs", 10);
    for held in &held[..7] {
        rig.commit(held);
    }
    let run = |filter: &Filter, chunk, force| {
        let (mut removed, mut after, mut calls) = (0, None, 0);
        loop {
            let delete = BulkAction::Delete { force };
            let acted =
                block_on(bulk(&*rig.store, &delete, filter.clone(), after, chunk)).expect("it answers");
            assert!(acted.done <= chunk as u64);
            removed += acted.done;
            calls += 1;
            match acted.next {
                None => break,
                next => after = next,
            }
        }
        rig.check();
        (removed, calls)
    };
    let jobs = |state| Filter {
        queue: Some(name("jobs")),
        head: HeadFilter { state, ..HeadFilter::default() },
        ..Filter::default()
    };
    let (removed, calls) = run(&jobs(Some(StateName::Completed)), 3, false);
    assert_eq!(removed, 7);
    assert!(calls >= 3);
    assert_eq!(rig.counts("jobs").total(), 13);
    let (removed, _) = run(&jobs(None), 4, false);
    assert_eq!(removed, 10, "leased items are not deleted");
    for held in &held[7..] {
        rig.lease(held, heartbeat()).expect("the lease is still valid");
    }
    let (removed, _) = run(&jobs(None), 100, true);
    assert_eq!(removed, 3);
    assert_eq!(rig.counts("jobs").total(), 0);
    assert_eq!(rig.counts("other").total(), 3);
}
