//! A store with something of everything, for the cases about reopening.

use super::operations::*;
use super::rig::*;
use bytes::Bytes;
use towline_domain::command::Verb;
use towline_domain::kv::KvCommand;
use towline_domain::{
    Adjust, Body, Field, FieldEdits, Json, LeaseRule, Millis, Order, Outcome, Overrides, Policy, Schema,
    Submission,
};
use towline_store::Operation;

/// Fills a store with queues of every kind, items in every state, and records.
pub(super) fn fill(rig: &Rig) {
    create_queues(rig);
    submit_with_every_option(rig);
    retry_edit_and_extend(rig);
    bring_items_into_every_state(rig);

    let set = |value: &'static str, ttl| KvCommand::Set { value: value.into(), ttl };
    rig.kv("plain", set("\0value", None)).expect("set");
    rig.kv("brief", set("for a while", Some(Millis(60_000)))).expect("set");
    rig.kv("number", KvCommand::Increment { by: 41, ttl: None }).expect("added");
    rig.kv("deleted", set("gone", None)).expect("set");
    rig.kv("deleted", KvCommand::Delete).expect("deleted");
}

fn create_queues(rig: &Rig) {
    let declare = |text: &str| Schema::declare(text).expect("declared");
    let schema = Schema {
        inputs: [declare("raw"), declare("cal?")].into(),
        output_params: [declare("level?")].into(),
        ..Schema::default()
    };
    rig.ok(create_with("strict", schema, plain()));
    rig.create(
        "jobs",
        Policy {
            dead_letter_queue: Some(name("dead")),
            max_retries: 50,
            poison_after: Some(9),
            lease: LeaseRule {
                ack_timeout: Some(Millis(700)),
                renewal_permille: Some(250),
                renewals_max: Some(7),
            },
            ..plain()
        },
    );
    rig.create("dead", plain());
    rig.create("scored", Policy { order: Order::Score(Box::default()), ..plain() });
    for queue in ["closed", "completed", "paused", "deleted"] {
        rig.create(queue, plain());
        rig.submit(queue, payload(queue));
    }
    rig.close("closed");
    rig.close("completed");
    let last = rig.take("completed");
    rig.commit(&last);
    rig.ok(Operation::PauseQueue { queue: name("paused") });
    rig.ok(Operation::DeleteQueue { queue: name("deleted"), force: true });
    rig.advance(5);
}

fn submit_with_every_option(rig: &Rig) {
    let body = Body {
        idempotency_key: Some("key".to_owned()),
        tags: [("a".to_owned(), "1".to_owned()), ("b".to_owned(), String::new())].into(),
        fairness_key: Some("tenant".to_owned()),
        group: Some("group".to_owned()),
        parent: Some(chosen(9)),
        source: Some("elsewhere".to_owned()),
        inputs: [("raw".parse().expect("a slot"), "buffer".parse().expect("a buffer"))].into(),
        params: [("level".to_owned(), Json::parse("0.10").expect("JSON"))].into(),
        fee: Some(3),
        size_bytes: Some(4),
        tier: Some("PRO".to_owned()),
        trace: trace(4),
        ..Body::default()
    };
    let whole = Submission {
        id: Some(chosen(1)),
        priority: -3,
        overrides: Overrides {
            max_retries: Some(40),
            expire_after: Some(Millis::days(9)),
            ..Overrides::default()
        },
        body,
        ..payload("whole")
    };
    let scored = Submission { id: Some(chosen(2)), ..whole.clone() };
    rig.submit("jobs", whole);
    rig.submit("scored", scored);
}

/// Retries an item with edits and errors, then receives, extends and edits it again.
fn retry_edit_and_extend(rig: &Rig) {
    for n in 0..35 {
        let held = rig.take("jobs");
        let value = Bytes::from(vec![n; 100]);
        let edits = FieldEdits::default().set(Field::ALL[usize::from(n % 4)], value);
        let adjust = Adjust { edits, ..Adjust::default() };
        rig.run(held.call_with(retry(&format!("error {n}")), adjust)).expect("retried");
        rig.advance(1);
    }
    let held = rig.take("jobs");
    rig.lease(&held, heartbeat()).expect("extended");
    let edits = FieldEdits::default().unset(Field::Metadata).set(Field::StateBlob, Bytes::new());
    let adjust = Adjust { edits, priority: Some(12), ..Adjust::default() };
    rig.run(held.call_with(Verb::Edit, adjust)).expect("edited");
}

fn bring_items_into_every_state(rig: &Rig) {
    let committed = rig.hold("jobs");
    let outcome = Outcome {
        outputs: [("out".parse().expect("a slot"), "buffer-2".parse().expect("a buffer"))].into(),
        output_params: [("level".to_owned(), Json::parse("1e400").expect("JSON"))].into(),
        ..Outcome::default()
    };
    rig.lease(&committed, Verb::Commit(outcome)).expect("committed");
    let failed = rig.hold("jobs");
    rig.fail(&failed);
    let lapsed = rig.submit("jobs", payload("lapsed"));
    let mut assigned = rig.receive_call("jobs", 1);
    assigned.assigned = true;
    assert_eq!(rig.received(assigned).items[0].head.id, lapsed);
    rig.advance(700);
    rig.sweep();
    let deferred = rig.take("jobs");
    rig.lease(&deferred, defer(5000)).expect("deferred");
    let cancelled = rig.submit("jobs", payload("cancelled"));
    rig.cancel(cancelled);
    let asleep = rig.submit("jobs", delayed(3000));
    rig.ok(Operation::Pause { id: asleep });
    rig.submit("jobs", delayed(4000));
    let moved = rig.hold("jobs");
    rig.run(moved.call_with(release(), to_queue("scored"))).expect("moved");
    let large: Bytes = (0..1 << 20_u32).map(|n: u32| (n ^ n >> 7).to_le_bytes()[0]).collect();
    rig.submit("jobs", payload(large));
    rig.submit("jobs", Submission::default());
    let deleted = rig.submit("jobs", payload("deleted"));
    rig.delete(deleted);
}
