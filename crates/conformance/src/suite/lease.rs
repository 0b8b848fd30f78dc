//! Leases: which calls a lease allows, and until when.

use super::Harness;
use super::operations::*;
use super::rig::*;
use towline_domain::command::Verb;
use towline_domain::item::ErrorKind;
use towline_domain::refusal::LostWhy;
use towline_domain::{
    Adjust, Body, Field, FieldEdits, ItemId, LeaseRule, Millis, Policy, QueueState, Refusal, State,
    Submission,
};
use towline_store::Operation;

pub(super) fn a_heartbeat_extends_the_lease(harness: &dyn Harness) {
    let rig = Rig::with_queue(harness, lenient());
    let held = rig.hold("jobs");
    for _ in 0..5 {
        rig.advance(999);
        assert_eq!(rig.lease(&held, heartbeat()), until(rig.now().after(Millis(1000))));
    }
    let longer = Verb::Heartbeat { visibility: Some(Millis(5000)) };
    assert_eq!(rig.lease(&held, longer), until(rig.now().after(Millis(5000))));
    rig.advance(4999);
    assert_eq!(
        rig.lease(&held, heartbeat()),
        until(rig.now().after(Millis(5000))),
        "the last requested timeout stays"
    );
    let shorter = Verb::Heartbeat { visibility: Some(Millis(100)) };
    assert_eq!(rig.lease(&held, shorter), until(rig.now().after(Millis(100))));
    let head = rig.item(held.id).head;
    let lease = head.lease().expect("a lease");
    assert_eq!((lease.token, lease.renewals), (held.token, 8));
    assert_eq!((head.deliveries, head.retries, head.transitions), (1, 0, 1));
    for bad in [Millis(99), Millis(Millis::days(30).0 + 1)] {
        let visibility = Some(bad);
        assert_eq!(code(&rig.lease(&held, Verb::Heartbeat { visibility })), "invalid");
    }
    rig.advance(100);
    assert_eq!(code(&rig.lease(&held, heartbeat())), "lease_lost");
}

pub(super) fn the_times_of_the_last_transition_and_heartbeat_are_stored(harness: &dyn Harness) {
    let mut rig = Rig::with_queue(harness, lenient());
    // The last one has extras, the one before none.
    let extended = rig.hold("jobs");
    let given_back = rig.hold("jobs");
    let group = Body {
        group: Some("g".to_owned()),
        tags: [("a".to_owned(), "b".to_owned())].into(),
        ..Body::default()
    };
    let lapsed = rig.hold_this("jobs", Submission { body: group, ..payload("lapsed") });
    let paused = rig.submit("jobs", payload("paused"));
    let taken = rig.now();
    rig.advance(10);
    rig.lease(&extended, Verb::Heartbeat { visibility: Some(Millis::hours(1)) }).expect("extended");
    rig.lease(&given_back, release()).expect("released");
    rig.ok(Operation::Pause { id: paused });
    let changed = rig.now();
    rig.at(lapsed.deadline());
    let lapse = rig.now();
    rig.advance(10);
    let times = |rig: &Rig, id: ItemId| {
        let head = rig.item(id).head;
        (head.last_transition(), head.heartbeat_at)
    };
    let expected = [
        (extended.id, (Some(taken), Some(changed))),
        (given_back.id, (Some(changed), None)),
        (paused, (Some(changed), None)),
        (lapsed.id, (Some(lapse), None)),
    ];
    for _ in 0..2 {
        for (id, expected) in expected {
            assert_eq!(times(&rig, id), expected);
        }
        let Some(again) = rig.reopen(harness) else { return };
        rig = again;
    }
    rig.commit(&extended);
    assert_eq!(times(&rig, extended.id), (Some(rig.now()), None), "a finished item has no lease");
}

pub(super) fn a_lease_ends_at_its_deadline(harness: &dyn Harness) {
    for (what, verb) in every_verb() {
        let rig = Rig::with_queue(harness, lenient());
        let held = rig.hold("jobs");
        rig.at(held.deadline());
        let before = rig.stored(held.id);
        assert_eq!(
            code(&rig.lease(&held, verb.clone())),
            "lease_lost",
            "{what} at the deadline, although no other worker received the item"
        );
        assert_eq!(rig.stored(held.id), before);

        let held = rig.take("jobs");
        rig.clock.set(towline_domain::Timestamp(held.deadline().0 - 1));
        assert_eq!(code(&rig.lease(&held, verb)), "ok", "{what} before the deadline");
    }
}

pub(super) fn a_late_call_notices_the_lapse_of_its_lease(harness: &dyn Harness) {
    // No other call comes between the deadline and the late call.
    for (what, verb) in every_verb() {
        let rig = Rig::with_queue(harness, lenient());
        let held = rig.hold("jobs");
        rig.clock.set(held.deadline());
        assert_eq!(code(&rig.lease(&held, verb)), "lease_lost", "{what}");
        let item = rig.item(held.id);
        assert_eq!((item.head.state.clone(), item.head.retries), (State::Pending, 1));
        assert_eq!(item.errors.iter().map(|error| error.kind).collect::<Vec<_>>(), [ErrorKind::Lapsed]);
    }
}

pub(super) fn a_foreign_token_settles_nothing(harness: &dyn Harness) {
    let rig = Rig::with_queue(harness, lenient());
    let held = rig.hold("jobs");
    let other = rig.hold("jobs");
    let waiting = rig.submit("jobs", payload("waiting"));
    let set = || edits(FieldEdits::default().set(Field::Blob, "stolen".into()));
    for (what, verb) in every_verb() {
        for (id, token) in [(held.id, foreign_token()), (held.id, other.token), (waiting, held.token)] {
            let before = rig.stored(id);
            let refusal = rig.refused(lease_call(id, token, verb.clone(), set()));
            let why = LostWhy::Superseded;
            assert_eq!(refusal, Refusal::LeaseLost { id, why }, "{what}");
            assert_eq!(rig.stored(id), before, "{what} changed nothing");
        }
        let nobody = rig.refused(lease_call(chosen(404), held.token, verb, set()));
        assert_eq!(nobody, Refusal::ItemNotFound { id: chosen(404) });
    }
    rig.commit(&held);
    rig.commit(&other);
}

pub(super) fn a_stale_token_settles_nothing(harness: &dyn Harness) {
    let rig = Rig::with_queue(harness, lenient());
    let stale = rig.hold("jobs");
    rig.at(stale.deadline());
    let current = rig.take("jobs");
    assert_eq!(current.id, stale.id);
    assert_ne!(current.token, stale.token);
    for (what, verb) in every_verb() {
        let before = rig.stored(stale.id);
        let call = stale.call_with(verb, to_priority(-7));
        assert_eq!(code(&rig.run(call)), "lease_lost", "{what}");
        assert_eq!(rig.stored(stale.id), before, "{what} changed nothing");
    }
    rig.commit(&current);
    for (what, verb) in every_verb() {
        let refusal = rig.refused(stale.call(verb));
        let why = LostWhy::Ended;
        assert_eq!(refusal, Refusal::LeaseLost { id: stale.id, why }, "{what}");
    }
}

pub(super) fn a_settle_after_cancel_delete_or_expiry_is_refused(harness: &dyn Harness) {
    for (what, verb) in every_verb() {
        let rig = Rig::with_queue(harness, lenient());
        let held = rig.hold("jobs");
        rig.cancel(held.id);
        let before = rig.stored(held.id);
        let why = LostWhy::Ended;
        let lost = Err(Refusal::LeaseLost { id: held.id, why }.into());
        assert_eq!(rig.lease(&held, verb.clone()), lost, "{what} after cancel");
        assert_eq!(rig.stored(held.id), before);

        let held = rig.hold("jobs");
        rig.ok(Operation::Delete { id: held.id, force: true });
        let answered = rig.lease(&held, verb.clone());
        assert_eq!(code(&answered), "item_not_found", "{what} after delete");

        let mut short = payload("work");
        short.overrides.expire_after = Some(Millis(500));
        let held = rig.hold_this("jobs", short);
        rig.at(held.deadline());
        assert_eq!(code(&rig.lease(&held, verb)), "lease_lost", "{what} after expiry");
        let State::Failed { kind, .. } = rig.item(held.id).head.state else { panic!("failed") };
        assert_eq!(kind.name(), "expired");
    }
}

pub(super) fn an_assigned_lease_must_be_acknowledged(harness: &dyn Harness) {
    let rule = LeaseRule { ack_timeout: Some(Millis(50)), ..LeaseRule::default() };
    let rig = Rig::with_queue(harness, Policy { lease: rule, ..lenient() });
    let id = rig.submit("jobs", payload("work"));
    let assign = || {
        let mut call = rig.receive_call("jobs", 1);
        call.assigned = true;
        let item = rig.received(call).items.remove(0);
        item.head.lease().expect("a lease").clone()
    };
    let lease = assign();
    assert_eq!(lease.deadline, START.after(Millis(50)));
    assert!(lease.unacknowledged);
    rig.advance(50);
    let beat = |lease: &towline_domain::Lease| lease_call(id, lease.token, heartbeat(), Adjust::default());
    assert_eq!(code(&rig.run(beat(&lease))), "lease_lost");
    let item = rig.item(id);
    assert_eq!(item.head.retries, 1);
    let kinds: Vec<_> = item.errors.iter().map(|error| error.kind).collect();
    assert_eq!(kinds, [ErrorKind::Unacknowledged]);

    let lease = assign();
    rig.advance(49);
    assert_eq!(rig.run(beat(&lease)), until(rig.now().after(Millis(1000))));
    let acknowledged = rig.item(id).head.lease().expect("a lease").clone();
    assert_eq!((acknowledged.unacknowledged, acknowledged.renewals), (false, 0));
    rig.advance(999);
    assert_eq!(rig.run(beat(&lease)), until(rig.now().after(Millis(1000))));

    // A receiver that asked for the item need not acknowledge it.
    let held = rig.hold("jobs");
    assert_eq!(held.deadline(), rig.now().after(Millis(1000)));
}

pub(super) fn heartbeats_follow_the_lease_rule_of_the_queue(harness: &dyn Harness) {
    let rule = LeaseRule { ack_timeout: None, renewal_permille: Some(500), renewals_max: Some(2) };
    let rig = Rig::with_queue(harness, Policy { lease: rule, ..lenient() });
    let held = rig.hold("jobs");
    let first = held.deadline();
    rig.advance(10);
    assert_eq!(rig.lease(&held, heartbeat()), until(first.after(Millis(500))));
    rig.advance(10);
    assert_eq!(rig.lease(&held, heartbeat()), until(first.after(Millis(1000))));
    let refusal = rig.refused(held.call(heartbeat()));
    assert_eq!(refusal, Refusal::RenewalsExhausted { id: held.id, max: 2 });
    rig.clock.set(towline_domain::Timestamp(first.0 + 999));
    rig.commit(&held);
}

pub(super) fn a_settle_of_an_unknown_item_is_refused(harness: &dyn Harness) {
    let rig = Rig::with_queue(harness, lenient());
    for (_, verb) in every_verb() {
        let refusal = rig.refused(lease_call(chosen(1), foreign_token(), verb, Adjust::default()));
        assert_eq!(refusal, Refusal::ItemNotFound { id: chosen(1) });
    }
    assert_eq!(rig.queue_state("jobs"), QueueState::Open);
}
