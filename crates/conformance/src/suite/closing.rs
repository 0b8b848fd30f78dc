//! Closing queues. A closed queue completes when its last unfinished item ends or leaves.

use super::Harness;
use super::operations::*;
use super::rig::*;
use towline_domain::{ItemState, Millis, Policy, QueueState, Refusal};
use towline_store::{Operation, Reply};

fn close(queue: &str) -> Operation {
    Operation::CloseQueue { queue: name(queue) }
}

pub(super) fn closing_an_empty_queue_completes_it(harness: &dyn Harness) {
    let rig = Rig::with_queue(harness, plain());
    let done = rig.hold("jobs");
    rig.commit(&done);
    rig.advance(10);
    let closed = answered_queue(rig.ok(close("jobs")));
    assert_eq!(closed.state, QueueState::Completed { since: rig.now() });
    rig.advance(10);
    let again = answered_queue(rig.ok(close("jobs")));
    assert_eq!(again, closed, "a repeated close changes nothing");
    let refusal = rig.refused(submit("jobs", payload("late")));
    assert_eq!(refusal, Refusal::QueueClosed { name: "jobs".to_owned(), state: closed.state });
    let received = rig.received(rig.receive_call("jobs", 1));
    assert_eq!((received.queue, received.items.len()), (closed.state, 0));
}

pub(super) fn a_closed_queue_refuses_submits_and_allows_receives(harness: &dyn Harness) {
    let rig = Rig::with_queue(harness, plain());
    let ids = rig.submit_many("jobs", 2);
    let later = rig.submit("jobs", delayed(1000));
    let asleep = rig.submit("jobs", payload("asleep"));
    rig.ok(Operation::Pause { id: asleep });
    rig.advance(1);
    let since = rig.now();
    rig.close("jobs");
    rig.advance(1);
    let closed = QueueState::Closed { since };
    let refusal = rig.refused(submit("jobs", payload("late")));
    assert_eq!(refusal, Refusal::QueueClosed { name: "jobs".to_owned(), state: closed });
    for &id in &ids {
        let received = rig.received(rig.receive_call("jobs", 1));
        assert_eq!((received.queue, received.items[0].head.id), (closed, id));
        let token = received.items[0].head.lease().expect("a lease").token;
        assert_eq!(rig.run(lease_call(id, token, commit(), Default::default())), left(ItemState::Completed));
        assert_eq!(rig.queue_state("jobs"), closed, "scheduled and paused items are unfinished");
    }
    rig.at(START.after(Millis(1000)));
    let held = rig.take("jobs");
    assert_eq!(held.id, later);
    rig.commit(&held);
    assert_eq!(rig.queue_state("jobs"), closed);
    rig.ok(Operation::Resume { id: asleep });
    let held = rig.take("jobs");
    rig.advance(7);
    rig.commit(&held);
    assert_eq!(rig.queue_state("jobs"), QueueState::Completed { since: rig.now() });
}

/// A closed queue with one item, which is leased, beside open queues `dead` and `other`.
fn closed_with_one_leased(harness: &dyn Harness, policy: Policy) -> (Rig, Held) {
    let rig = Rig::with_queue(harness, policy);
    rig.create("dead", plain());
    rig.create("other", plain());
    let held = rig.hold("jobs");
    rig.close("jobs");
    assert_eq!(rig.queue_state("jobs"), QueueState::Closed { since: rig.now() });
    rig.advance(3);
    (rig, held)
}

#[track_caller]
fn assert_completed_now(rig: &Rig) {
    assert_eq!(rig.queue_state("jobs"), QueueState::Completed { since: rig.now() });
    let before = rig.view("jobs");
    rig.advance(1);
    rig.sweep();
    assert_eq!(rig.view("jobs"), before);
}

pub(super) fn commit_and_fail_complete_a_closed_queue(harness: &dyn Harness) {
    for verb in [commit(), fail("broken")] {
        let (rig, held) = closed_with_one_leased(harness, plain());
        rig.lease(&held, verb).expect("settled");
        assert_completed_now(&rig);
    }
}

pub(super) fn cancel_and_delete_complete_a_closed_queue(harness: &dyn Harness) {
    let (rig, held) = closed_with_one_leased(harness, plain());
    rig.cancel(held.id);
    assert_completed_now(&rig);

    let (rig, held) = closed_with_one_leased(harness, plain());
    rig.ok(Operation::Delete { id: held.id, force: true });
    assert_completed_now(&rig);

    let (rig, held) = closed_with_one_leased(harness, plain());
    rig.lease(&held, release()).expect("released");
    rig.delete(held.id);
    assert_completed_now(&rig);
}

pub(super) fn time_completes_a_closed_queue(harness: &dyn Harness) {
    let (rig, held) = closed_with_one_leased(harness, Policy { max_retries: 0, ..plain() });
    rig.at(held.deadline());
    assert_completed_now(&rig);

    let (rig, held) = closed_with_one_leased(harness, Policy { expire_after: Some(Millis(5000)), ..plain() });
    rig.lease(&held, release()).expect("released");
    rig.at(START.after(Millis(5000)));
    assert_completed_now(&rig);
}

pub(super) fn moving_the_last_item_away_completes_a_closed_queue(harness: &dyn Harness) {
    let dead_letters = Policy { dead_letter_queue: Some(name("dead")), ..plain() };
    let (rig, held) = closed_with_one_leased(harness, dead_letters);
    rig.fail(&held);
    assert_eq!(rig.stored(held.id).queue, name("dead"));
    assert_completed_now(&rig);

    for verb in [retry("elsewhere"), release(), defer(10)] {
        let (rig, held) = closed_with_one_leased(harness, plain());
        assert_eq!(rig.run(held.call_with(verb, to_queue("other"))), left(ItemState::Pending));
        assert_eq!(rig.stored(held.id).queue, name("other"));
        assert_completed_now(&rig);
        assert_eq!(rig.queue_state("other"), QueueState::Open);
    }
}

pub(super) fn returning_an_item_does_not_complete_a_closed_queue(harness: &dyn Harness) {
    let (rig, held) = closed_with_one_leased(harness, plain());
    let closed = rig.queue_state("jobs");
    let mut held = held;
    for verb in [retry("again"), release(), defer(0)] {
        assert_eq!(
            rig.run(held.call_with(verb, to_queue("jobs"))),
            left(ItemState::Pending),
            "returned to its own queue"
        );
        assert_eq!(rig.queue_state("jobs"), closed);
        held = rig.take("jobs");
    }
    rig.commit(&held);
    assert_completed_now(&rig);
}

pub(super) fn batches_complete_a_closed_queue_once(harness: &dyn Harness) {
    let rig = Rig::with_queue(harness, plain());
    rig.submit_many("jobs", 3);
    let held = rig.receive("jobs", 3);
    let before = rig.view("jobs").queue.revision;
    let mut batch: Vec<Operation> = vec![close("jobs")];
    batch.extend(held.iter().map(|held| held.call(commit())));
    batch.push(Operation::Receive(Box::new(rig.receive_call("jobs", 3))));
    let answers = rig.update(batch);
    let closed = answered_queue(answers[0].clone().expect("closed"));
    assert_eq!(closed.state, QueueState::Closed { since: START });
    let completed = QueueState::Completed { since: START };
    match &answers[4] {
        Ok(Reply::Received(received)) => assert_eq!((received.queue, received.items.len()), (completed, 0)),
        other => panic!("unexpected reply to a receive: {other:?}"),
    }
    assert_eq!(rig.queue_state("jobs"), completed);
    assert_eq!(rig.view("jobs").queue.revision, before + 2);
}

pub(super) fn a_paused_queue_still_closes_and_completes(harness: &dyn Harness) {
    let rig = Rig::with_queue(harness, plain());
    let held = rig.hold("jobs");
    rig.ok(Operation::PauseQueue { queue: name("jobs") });
    rig.close("jobs");
    rig.commit(&held);
    let view = rig.view("jobs");
    assert_eq!((view.queue.paused, view.queue.state), (true, QueueState::Completed { since: START }));
}
