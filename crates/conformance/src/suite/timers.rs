//! Timers: transitions by time, exact to the millisecond, and the time of the next one.

use super::Harness;
use super::operations::*;
use super::rig::*;
use towline_domain::{Counts, ItemState, Millis, Policy, State, Timestamp, limits};
use towline_store::{Operation, Reply};

pub(super) fn a_terminal_item_is_removed_when_its_ttl_ends(harness: &dyn Harness) {
    let rig = Rig::with_queue(
        harness,
        Policy {
            completed_ttl: Some(Millis(1000)),
            failed_ttl: Some(Millis(2000)),
            visibility_timeout: Millis(500),
            ..plain()
        },
    );
    let completed = rig.hold("jobs");
    let failed = rig.hold("jobs");
    let mut own = payload("own");
    own.overrides.completed_ttl = Some(Millis(1500));
    own.overrides.failed_ttl = Some(Millis(2500));
    let own_completed = rig.hold_this("jobs", own.clone());
    let own_failed = rig.hold_this("jobs", own);
    rig.advance(100);
    rig.commit(&completed);
    rig.commit(&own_completed);
    rig.fail(&failed);
    rig.fail(&own_failed);
    let finished = rig.now();
    for (held, ttl) in [(&completed, 1000), (&own_completed, 1500), (&failed, 2000), (&own_failed, 2500)] {
        assert_eq!(rig.next_wake(), Some(finished.after(Millis(ttl))));
        rig.at(Timestamp(finished.0 + ttl - 1));
        rig.stored(held.id);
        let total = rig.counts("jobs").total();
        rig.at(Timestamp(finished.0 + ttl));
        rig.assert_gone(held.id);
        assert_eq!(rig.counts("jobs").total(), total - 1);
    }
    assert_eq!(rig.next_wake(), None);
}

pub(super) fn without_a_ttl_a_terminal_item_is_kept(harness: &dyn Harness) {
    let rig = Rig::with_queue(harness, Policy { completed_ttl: None, failed_ttl: None, ..plain() });
    let completed = rig.hold("jobs");
    rig.commit(&completed);
    let failed = rig.hold("jobs");
    rig.fail(&failed);
    assert_eq!(rig.next_wake(), None);
    rig.advance(Millis::MAX.0);
    rig.sweep();
    rig.stored(completed.id);
    rig.stored(failed.id);
}

pub(super) fn a_settle_can_be_repeated_until_its_lease_would_have_ended(harness: &dyn Harness) {
    let none = Some(Millis::ZERO);
    let policy = Policy {
        completed_ttl: none,
        failed_ttl: none,
        max_retries: 0,
        visibility_timeout: Millis(1000),
        ..plain()
    };
    let rig = Rig::with_queue(harness, policy);
    for (verb, state) in [
        (commit(), ItemState::Completed),
        (fail("broken"), ItemState::Failed),
        (retry("the last"), ItemState::Failed),
        (release(), ItemState::Failed),
    ] {
        let held = rig.hold("jobs");
        rig.advance(100);
        assert_eq!(rig.lease(&held, verb.clone()), left(state));
        rig.at(Timestamp(held.deadline().0 - 1));
        assert_eq!(rig.lease(&held, verb.clone()), left(state), "the same answer");
        assert_eq!(rig.counts("jobs").total(), 1);
        assert_eq!(rig.next_wake(), Some(held.deadline()));
        rig.at(held.deadline());
        rig.assert_gone(held.id);
        assert_eq!(code(&rig.lease(&held, verb)), "item_not_found");
        assert_eq!(rig.counts("jobs"), Counts::default());
    }
    // A long lease keeps the item for an hour.
    let mut call = rig.receive_call("jobs", 1);
    call.visibility = Some(Millis::hours(2));
    let id = rig.submit("jobs", payload("work"));
    let held = Held::of(rig.received(call).items.remove(0));
    rig.commit(&held);
    let hour = rig.now().after(limits::REPEATABLE_FOR);
    rig.at(Timestamp(hour.0 - 1));
    assert_eq!(rig.lease(&held, commit()), left(ItemState::Completed));
    rig.at(hour);
    rig.assert_gone(id);
}

pub(super) fn a_ttl_of_zero_removes_at_once_what_no_lease_holder_settled(harness: &dyn Harness) {
    let none = Some(Millis::ZERO);
    let rig = Rig::with_queue(harness, Policy { failed_ttl: none, max_retries: 0, ..plain() });
    let pending = rig.submit("jobs", payload("work"));
    rig.cancel(pending);
    let held = rig.hold("jobs");
    rig.cancel(held.id);
    let lapsed = rig.hold("jobs");
    rig.at(lapsed.deadline());
    rig.sweep();
    for id in [pending, held.id, lapsed.id] {
        rig.assert_gone(id);
    }
    assert_eq!(rig.counts("jobs"), Counts::default());
}

pub(super) fn a_ttl_does_not_remove_unfinished_items(harness: &dyn Harness) {
    let rig = Rig::with_queue(
        harness,
        Policy { completed_ttl: Some(Millis(10)), failed_ttl: Some(Millis(10)), ..plain() },
    );
    let pending = rig.submit("jobs", payload("work"));
    let scheduled = rig.submit("jobs", delayed(Millis::days(365).0));
    let paused = rig.submit("jobs", payload("work"));
    rig.ok(Operation::Pause { id: paused });
    rig.advance(Millis::days(300).0);
    rig.sweep();
    for id in [pending, scheduled, paused] {
        rig.stored(id);
    }
    let failed = rig.hold_this("jobs", with_priority(-1));
    rig.fail(&failed);
    rig.advance(5);
    rig.ok(Operation::Redrive { id: failed.id });
    rig.advance(Millis::days(1).0);
    rig.sweep();
    assert_eq!(
        rig.item(failed.id).head.state,
        State::Pending,
        "a redriven item is not removed by its old TTL"
    );
}

pub(super) fn becoming_ready_needs_no_update(harness: &dyn Harness) {
    let rig = Rig::with_queue(harness, plain());
    rig.submit("jobs", delayed(1000));
    rig.submit("jobs", delayed(2000));
    rig.submit("jobs", payload("work"));
    let counts = |pending, scheduled| Counts { pending, scheduled, ..Counts::default() };
    // Only reads from here on: the counts change by time alone.
    for (millis, expected) in [
        (0, counts(1, 2)),
        (999, counts(1, 2)),
        (1000, counts(2, 1)),
        (1999, counts(2, 1)),
        (2000, counts(3, 0)),
    ] {
        rig.clock.set(START.after(Millis(millis)));
        assert_eq!(rig.counts("jobs"), expected, "after {millis} ms");
        rig.check();
    }
}

pub(super) fn a_sweep_reports_how_many_items_changed(harness: &dyn Harness) {
    let rig = Rig::with_queue(harness, plain());
    assert_eq!(rig.ok(Operation::Sweep), Reply::Swept { changed: 0 });
    rig.submit_many("jobs", 4);
    let held = rig.receive("jobs", 3);
    rig.commit(&held[0]);
    rig.clock.set(held[1].deadline());
    assert_eq!(rig.ok(Operation::Sweep), Reply::Swept { changed: 2 });
    assert_eq!(rig.ok(Operation::Sweep), Reply::Swept { changed: 0 });
    assert_eq!(rig.counts("jobs").pending, 3);
}

pub(super) fn any_update_carries_out_what_is_due(harness: &dyn Harness) {
    let rig = Rig::with_queue(harness, plain());
    rig.create("other", plain());
    let held = rig.hold("jobs");
    rig.clock.set(held.deadline());
    rig.submit("other", payload("work"));
    let item = rig.item(held.id);
    assert_eq!((item.head.state, item.head.retries), (State::Pending, 1));
}

pub(super) fn one_update_carries_out_everything_that_is_due(harness: &dyn Harness) {
    let rig =
        Rig::with_queue(harness, Policy { completed_ttl: Some(Millis(500)), max_retries: 1, ..plain() });
    rig.submit_many("jobs", 600);
    let held = rig.receive("jobs", 400);
    rig.update(held[..200].iter().map(|held| held.call(commit())).collect());
    rig.clock.set(held[0].deadline());
    rig.sweep();
    let counts = Counts { pending: 400, ..Counts::default() };
    assert_eq!(rig.counts("jobs"), counts);
    assert_eq!(rig.receive("jobs", 1000).len(), 400);
}

pub(super) fn the_next_wake_time_is_exact(harness: &dyn Harness) {
    let rig = Rig::with_queue(harness, plain());
    assert_eq!(rig.next_wake(), None);
    let plain = rig.submit("jobs", payload("work"));
    assert_eq!(rig.next_wake(), None, "a ready item needs no timer");
    let at = |millis| Some(START.after(Millis(millis)));
    let late = rig.submit("jobs", delayed(9000));
    assert_eq!(rig.next_wake(), at(9000));
    let soon = rig.submit("jobs", delayed(5000));
    assert_eq!(rig.next_wake(), at(5000));
    rig.ok(Operation::Pause { id: soon });
    assert_eq!(rig.next_wake(), at(9000), "a paused item does not become ready");
    rig.ok(Operation::Resume { id: soon });
    let held = rig.take("jobs");
    assert_eq!(held.id, plain);
    assert_eq!(rig.next_wake(), at(5000));
    rig.delete(soon);
    assert_eq!(rig.next_wake(), at(9000));
    rig.delete(late);
    assert_eq!(rig.next_wake(), Some(held.deadline()));
    rig.advance(1000);
    rig.lease(&held, heartbeat()).expect("extended");
    assert_eq!(rig.next_wake(), at(301_000));
    rig.lease(&held, defer(2000)).expect("deferred");
    assert_eq!(rig.next_wake(), at(3000));
    rig.clock.set(START.after(Millis(2999)));
    assert_eq!(rig.next_wake(), at(3000));
    rig.advance(1);
    assert_eq!(rig.next_wake(), at(3000), "no update has reported that it is ready");
    rig.ok(Operation::Sweep);
    assert_eq!(rig.next_wake(), None, "ready by now");
    let held = rig.take("jobs");
    rig.commit(&held);
    assert_eq!(rig.next_wake(), Some(rig.now().after(Millis::days(7))));
    let mut brief = payload("work");
    brief.overrides.expire_after = Some(Millis(700));
    rig.submit("jobs", brief);
    assert_eq!(rig.next_wake(), Some(rig.now().after(Millis(700))));
}

pub(super) fn the_clock_of_the_store_never_goes_back(harness: &dyn Harness) {
    let rig = Rig::with_queue(harness, plain());
    rig.advance(10_000);
    let high = rig.now();
    let first = rig.submit("jobs", payload("work"));
    let scheduled = rig.submit("jobs", delayed(5));
    rig.clock.set(Timestamp(START.0 - 5000));
    // The rig's checks read the injected clock, which is behind the store's clock here. So this calls the store directly.
    let batch =
        vec![submit("jobs", payload("work")), Operation::Receive(Box::new(rig.receive_call("jobs", 10)))];
    let answers = futures::executor::block_on(rig.store.update(batch)).expect("the store answers").answers;
    let (second, _) = submitted(&answers[0]);
    let Ok(Reply::Received(received)) = &answers[1] else { panic!("received") };
    let ids: Vec<_> = received.items.iter().map(|item| item.head.id).collect();
    assert_eq!(ids, [first, second]);
    for item in &received.items {
        assert_eq!(item.head.created_at, high);
        let deadline = item.head.lease().map(|lease| lease.deadline);
        assert_eq!(deadline, Some(high.after(Millis::minutes(5))));
    }
    rig.clock.set(high.after(Millis(5)));
    assert_eq!(rig.receive_ids("jobs", 10), [scheduled]);
}
