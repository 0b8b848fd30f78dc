//! Receives: when an item can be received, how many, and with which fields.

use super::Harness;
use super::operations::*;
use super::rig::*;
use towline_domain::change::Answer;
use towline_domain::command::When;
use towline_domain::{
    Adjust, Counts, Field, FieldSet, Fields, ItemState, Millis, Order, Policy, QueueState, Schema, State,
    Submission, limits,
};
use towline_store::{Operation, Reply};

pub(super) fn nothing_is_received_before_its_ready_time(harness: &dyn Harness) {
    for order in [Order::Fifo, Order::Priority] {
        let rig = Rig::with_queue(harness, Policy { order, ..plain() });
        let after = rig.submit("jobs", delayed(1000));
        let at =
            rig.submit("jobs", Submission { ready: When::At(START.after(Millis(2000))), ..payload("work") });
        rig.advance(999);
        assert!(rig.receive("jobs", 10).is_empty());
        rig.advance(1);
        let held = rig.take("jobs");
        assert_eq!(held.id, after);
        // The same for an item deferred to a time.
        let until = When::At(START.after(Millis(1500)));
        rig.lease(&held, towline_domain::command::Verb::Defer { until }).expect("deferred");
        rig.clock.set(START.after(Millis(1499)));
        assert!(rig.receive("jobs", 10).is_empty());
        rig.advance(1);
        assert_eq!(rig.receive_ids("jobs", 10), [after]);
        rig.clock.set(START.after(Millis(1999)));
        assert!(rig.receive("jobs", 10).is_empty());
        rig.advance(1);
        assert_eq!(rig.receive_ids("jobs", 10), [at]);
    }
}

pub(super) fn a_resumed_item_still_waits_for_its_ready_time(harness: &dyn Harness) {
    let rig = Rig::with_queue(harness, plain());
    let later = rig.submit("jobs", delayed(10));
    rig.ok(Operation::Pause { id: later });
    assert_eq!(rig.counts("jobs").scheduled, 0);
    rig.ok(Operation::Resume { id: later });
    assert_eq!(rig.counts("jobs").scheduled, 1);
    rig.advance(9);
    assert!(rig.receive("jobs", 1).is_empty());
    rig.advance(1);
    assert_eq!(rig.take("jobs").id, later);
}

pub(super) fn a_receive_returns_at_most_max_items(harness: &dyn Harness) {
    let rig = Rig::with_queue(harness, plain());
    rig.submit_many("jobs", 3);
    for max in [0, limits::RECEIVE_MAX + 1] {
        let call = rig.receive_call("jobs", max);
        assert_eq!(code(&rig.run(Operation::Receive(Box::new(call)))), "invalid");
    }
    assert_eq!(rig.counts("jobs").pending, 3);
    assert_eq!(rig.receive("jobs", 2).len(), 2);
    assert_eq!(rig.receive("jobs", limits::RECEIVE_MAX).len(), 1);
    let received = rig.received(rig.receive_call("jobs", 1));
    assert_eq!((received.queue, received.items.len()), (QueueState::Open, 0));
}

pub(super) fn no_item_is_leased_twice_at_the_same_time(harness: &dyn Harness) {
    let rig = Rig::with_queue(harness, plain());
    rig.create("other", plain());
    let elsewhere = rig.submit("other", payload("not yours"));
    let ids = rig.submit_many("jobs", 5);
    let receive = |max| Operation::Receive(Box::new(rig.receive_call("jobs", max)));
    let answers = rig.update(vec![receive(2), receive(2), receive(2), receive(2)]);
    let mut given = Vec::new();
    for answer in answers {
        match answer {
            Ok(Reply::Received(received)) => given.push(received.items),
            other => panic!("a receive was answered with {other:?}"),
        }
    }
    assert_eq!(given.iter().map(Vec::len).collect::<Vec<_>>(), [2, 2, 1, 0]);
    let given: Vec<_> = given.into_iter().flatten().collect();
    assert!(given.iter().map(|item| item.head.id).eq(ids));
    let mut tokens: Vec<_> =
        given.iter().map(|item| item.head.lease().expect("a lease").token.to_string()).collect();
    tokens.sort();
    tokens.dedup();
    assert_eq!(tokens.len(), 5, "each delivery has its own token");
    assert_eq!(rig.item(elsewhere).head.deliveries, 0);
}

pub(super) fn lease_tokens_are_derived_from_the_seed_in_order(harness: &dyn Harness) {
    let rig = Rig::with_queue(harness, plain());
    rig.submit_many("jobs", 3);
    let call = rig.receive_call("jobs", 10);
    let seed = call.seed;
    for (n, item) in rig.received(call).items.iter().enumerate() {
        let token = seed.token(u32::try_from(n).expect("few"), START);
        assert_eq!(item.head.lease().map(|lease| lease.token), Some(token));
    }
}

pub(super) fn a_receive_returns_the_requested_fields(harness: &dyn Harness) {
    let rig = Rig::with_queue(harness, plain());
    let fields = Fields {
        state_blob: Some("state".into()),
        blob: Some("blob".into()),
        metadata: None,
        parameters: Some("parameters".into()),
    };
    let mut submission = payload("");
    submission.fields = fields.clone();
    submission.body.group = Some("g".to_owned());
    let wanted = [
        (FieldSet::ALL, fields.clone()),
        (FieldSet::NONE, Fields::default()),
        (
            FieldSet::NONE.with(Field::Blob).with(Field::Metadata),
            Fields { blob: fields.blob.clone(), ..Fields::default() },
        ),
        (
            FieldSet::NONE.with(Field::StateBlob).with(Field::Parameters),
            Fields { blob: None, ..fields.clone() },
        ),
    ];
    for (set, expected) in wanted {
        let id = rig.submit("jobs", submission.clone());
        let mut call = rig.receive_call("jobs", 1);
        call.fields = set;
        let received = rig.received(call).items.remove(0);
        assert_eq!(received.fields, expected);
        assert_eq!(received.body.group.as_deref(), Some("g"), "all other parts are always returned");
        assert_eq!(rig.item(id).fields, fields, "the stored item is complete");
        let got = futures::executor::block_on(rig.store.get(vec![id], set)).expect("the store answers");
        assert_eq!(got[0].as_ref().map(|stored| &stored.item.fields), Some(&expected));
        let listed = rig.list_paged(&Default::default(), 10, set);
        assert_eq!(listed.last().map(|stored| &stored.item.fields), Some(&expected));
    }
}

pub(super) fn a_received_item_equals_the_stored_item(harness: &dyn Harness) {
    let rig = Rig::with_queue(harness, plain());
    let held = rig.hold_this("jobs", keyed("k", "work"));
    assert_eq!(rig.item(held.id), held.item);
    let State::Processing(lease) = &held.item.head.state else { panic!("processing") };
    assert_eq!(lease.deadline, START.after(plain().visibility_timeout));
    assert_eq!((lease.visibility, lease.renewals), (Millis::minutes(5), 0));
    assert!(!lease.unacknowledged && lease.buffers.is_none());
    let counts = Counts { processing: 1, ..Counts::default() };
    assert_eq!(rig.counts("jobs"), counts);
}

pub(super) fn deliveries_and_attempts_are_counted(harness: &dyn Harness) {
    let rig = Rig::with_queue(harness, Policy { max_retries: 100, ..plain() });
    let mut held = rig.hold("jobs");
    let verbs = [defer(0), retry("again"), defer(0), release(), defer(0), retry("again")];
    let (mut deliveries, mut retries) = (1, 0);
    for verb in verbs {
        let head = &held.item.head;
        assert_eq!((head.deliveries, head.retries, head.attempt()), (deliveries, retries, retries + 1));
        retries += u32::from(verb != defer(0));
        deliveries += 1;
        rig.lease(&held, verb).expect("given back");
        held = rig.take("jobs");
    }
    rig.at(held.deadline());
    let held = rig.take("jobs");
    let head = &held.item.head;
    assert_eq!((head.deliveries, head.retries), (deliveries + 1, retries + 1), "a lapse counts as a retry");
}

pub(super) fn a_receiver_may_request_output_buffers(harness: &dyn Harness) {
    let rig = Rig::open(harness);
    let outputs = [("image".parse().expect("a slot"), true)].into();
    rig.ok(create_with("jobs", Schema { outputs, ..Schema::default() }, plain()));
    let id = rig.submit("jobs", payload("work"));
    let call = towline_store::ReceiveCall { make_buffers: true, ..rig.receive_call("jobs", 1) };
    let held = Held::of(rig.received(call).items.remove(0));
    let made = held.item.head.lease().and_then(|lease| lease.buffers.as_deref().cloned()).expect("buffers");
    assert_eq!(made["image"].attempted(), Some(id));
    let Ok(Reply::Answer(Answer::CheckBuffers(check))) = rig.lease(&held, commit()) else {
        panic!("the commit must ask for a check of the buffers")
    };
    assert_eq!((check.id, &check.buffers), (id, &made));
    let Some(rig) = rig.reopen(harness) else { return };
    let whole = Adjust { buffers_whole: true, ..Adjust::default() };
    assert_eq!(rig.run(held.call_with(commit(), whole)), left(ItemState::Completed));
    assert_eq!(rig.run(held.call(commit())), left(ItemState::Completed), "a repeat");
    assert_eq!(rig.item(id).outcome.outputs, made);
}

pub(super) fn a_receiver_may_choose_its_visibility_timeout(harness: &dyn Harness) {
    let rig = Rig::with_queue(harness, plain());
    let id = rig.submit("jobs", payload("work"));
    let call = |visibility| towline_store::ReceiveCall {
        visibility: Some(visibility),
        ..rig.receive_call("jobs", 1)
    };
    for visibility in [Millis(99), Millis(Millis::days(30).0 + 1)] {
        let refused = rig.run(Operation::Receive(Box::new(call(visibility))));
        assert_eq!(code(&refused), "invalid");
        assert_eq!(rig.item(id).head.deliveries, 0);
    }
    let item = rig.received(call(Millis(100))).items.remove(0);
    let lease = item.head.lease().expect("a lease");
    assert_eq!((lease.visibility, lease.deadline), (Millis(100), START.after(Millis(100))));
    // A heartbeat without a timeout keeps the chosen one.
    rig.advance(60);
    let beat = lease_call(id, lease.token, heartbeat(), Default::default());
    assert_eq!(rig.run(beat), until(rig.now().after(Millis(100))));
}

pub(super) fn a_receive_never_returns_an_item_and_a_completed_queue(harness: &dyn Harness) {
    let rig = Rig::with_queue(harness, plain());
    rig.submit_many("jobs", 2);
    rig.close("jobs");
    let received = rig.received(rig.receive_call("jobs", 10));
    assert_eq!(received.items.len(), 2);
    assert_eq!(received.queue.name(), "closed");
    let again = rig.received(rig.receive_call("jobs", 10));
    assert_eq!((again.queue.name(), again.items.len()), ("closed", 0));
    for item in received.items {
        let token = item.head.lease().expect("a lease").token;
        rig.ok(lease_call(item.head.id, token, commit(), Default::default()));
    }
    assert_eq!(rig.received(rig.receive_call("jobs", 10)).queue.name(), "completed");
}

pub(super) fn an_item_that_is_already_expired_is_never_received(harness: &dyn Harness) {
    let rig = Rig::with_queue(harness, plain());
    let mut expired = payload("too late");
    expired.overrides.expire_after = Some(Millis::ZERO);
    let answers = rig.update(vec![
        submit("jobs", expired),
        submit("jobs", payload("in time")),
        Operation::Receive(Box::new(rig.receive_call("jobs", 10))),
    ]);
    let (live, _) = submitted(&answers[1]);
    match &answers[2] {
        Ok(Reply::Received(received)) => {
            let ids: Vec<_> = received.items.iter().map(|item| item.head.id).collect();
            assert_eq!(ids, [live]);
        }
        other => panic!("a receive was answered with {other:?}"),
    }
    rig.sweep();
    assert_eq!(rig.counts("jobs").failed, 1);
}
