//! Submits: stored content, limits, schemas, and operations of one batch.

use super::Harness;
use super::operations::*;
use super::rig::*;
use bytes::Bytes;
use futures::executor::block_on;
use towline_domain::command::When;
use towline_domain::{
    Adjust, Body, Claim, Counts, Field, FieldSet, Fields, Json, Millis, Overrides, Policy, Refusal, Schema,
    State, Submission, Timestamp, digest, limits,
};
use towline_store::{Operation, Reply, StoreError};

pub(super) fn an_item_without_options_has_the_defaults(harness: &dyn Harness) {
    let rig = Rig::with_queue(harness, plain());
    let id = rig.submit("jobs", Submission::default());
    let stored = rig.stored(id);
    assert_eq!(stored.queue, name("jobs"));
    let head = stored.item.head;
    assert_eq!((head.id, head.state.clone()), (id, State::Pending));
    assert_eq!((head.priority, head.created_at, head.ready_at), (0, START, START));
    assert_eq!((head.retries, head.deliveries, head.attempt()), (0, 0, 1));
    assert_eq!((head.revision, head.transitions), (1, 0));
    assert_eq!((head.expires_at, head.last_settle, head.extras), (None, None, None));
    assert_eq!((stored.item.body, stored.item.fields), (Body::default(), Fields::default()));
    assert!(stored.item.outcome.is_empty() && stored.item.errors.is_empty());
    assert_eq!(id.0.get_version_num(), 7, "ids made by the store are UUIDv7");
}

/// Bytes that a wrong encoding or compression would change.
fn noise(len: usize) -> Bytes {
    let mut state = 0x9e37_79b9_7f4a_7c15_u64;
    let next = |_| {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        state.to_le_bytes()[3]
    };
    (0..len).map(next).collect()
}

pub(super) fn payloads_are_returned_byte_for_byte(harness: &dyn Harness) {
    let rig = Rig::with_queue(harness, plain());
    let every_byte: Bytes = (0..=255).collect();
    let samples = [
        None,
        Some(Bytes::new()),
        Some(Bytes::from_static(&[0])),
        Some(Bytes::from_static(b"\0\0\xff\xfe\n\r\n")),
        Some(every_byte),
        Some(noise(70_000)),
        Some(noise(1 << 20)),
    ];
    let mut sent = Vec::new();
    for (n, sample) in samples.iter().enumerate() {
        for field in Field::ALL {
            let mut fields = Fields::default();
            fields.set(field, sample.clone());
            if n % 2 == 1 {
                let neighbour = Field::ALL[(field as usize + 1) % 4];
                fields.set(neighbour, Some(Bytes::from_static(b"neighbour")));
            }
            let submission = Submission { fields: fields.clone(), ..Submission::default() };
            sent.push((rig.submit("jobs", submission), fields));
        }
    }
    let listed = rig.list_paged(&Default::default(), 5, FieldSet::ALL);
    assert!(listed.iter().map(|stored| &stored.item.fields).eq(sent.iter().map(|(_, fields)| fields)));
    for (id, fields) in &sent {
        assert_eq!(rig.item(*id).fields, *fields);
    }
    for (held, (id, fields)) in rig.receive("jobs", 100).iter().zip(&sent) {
        assert_eq!((held.id, &held.item.fields), (*id, fields));
    }
}

pub(super) fn every_part_of_a_submit_is_stored(harness: &dyn Harness) {
    let rig = Rig::with_queue(harness, plain());
    let body = Body {
        idempotency_key: Some("ключ \u{1f600}'\"\\".to_owned()),
        claim: None,
        tags: [("a", "1"), ("b", ""), ("weird key/\u{e9}", "x\ny")]
            .map(|(name, value)| (name.to_owned(), value.to_owned()))
            .into(),
        fairness_key: Some("tenant-7".to_owned()),
        group: Some("batch 9".to_owned()),
        parent: Some(chosen(77)),
        source: Some("s3://bucket/key".to_owned()),
        inputs: [("raw".parse().expect("a slot"), "buffer-1".parse().expect("a buffer"))].into(),
        params: [
            "123456789012345678901234567890",
            "0.10",
            "1e400",
            "{\"b\":[1,null],\"b\":2}",
            "\"\\u0000\"",
        ]
        .iter()
        .enumerate()
        .map(|(n, text)| (format!("Any Key! {n}"), Json::parse(text).expect("JSON")))
        .collect(),
        fee: Some(u64::MAX),
        size_bytes: Some(0),
        tier: Some("whatever".to_owned()),
        trace: trace(3),
        replace_key: None,
    };
    let overrides = Overrides {
        max_retries: Some(9),
        backoff: Some(towline_domain::Backoff::preset("aicf-ai").expect("a preset")),
        completed_ttl: Some(Millis(1)),
        failed_ttl: Some(Millis::MAX),
        expire_after: Some(Millis::days(3)),
        give_up_after: Some(Millis::days(2)),
        unique: Some(towline_domain::Unique::WhileExists),
    };
    let submission = Submission {
        id: Some(chosen(5)),
        record_guard: None,
        after: None,
        priority: i16::MIN,
        ready: When::At(START.after(Millis(50))),
        delay_max: None,
        overrides: overrides.clone(),
        body: body.clone(),
        fields: payload("work").fields,
    };
    let answered = rig.run(submit("jobs", submission));
    assert_eq!(submitted(&answered), (chosen(5), true));
    let item = rig.item(chosen(5));
    let claim = Claim { queue: item.head.queue, content: digest::content(&body, &item.fields) };
    let kept = Body { claim: Some(claim), ..body };
    assert_eq!(item.body, kept);
    assert_eq!(item.head.priority, i16::MIN);
    assert_eq!(item.head.ready_at, START.after(Millis(50)));
    assert_eq!(item.head.expires_at, Some(START.after(Millis::days(3))));
    let extras = item.head.extras.as_ref().expect("overrides make extras");
    assert_eq!(extras.overrides, overrides);
    rig.at(START.after(Millis(50)));
    let held = rig.take("jobs");
    assert_eq!((held.item.body, held.item.fields), (item.body, item.fields));
}

pub(super) fn an_item_of_the_maximum_size_fits(harness: &dyn Harness) {
    let rig = Rig::with_queue(harness, plain());
    let full = noise(limits::FIELD_BYTES_MAX);
    let mut fields = Fields { blob: Some(full.clone()), state_blob: Some(full), ..Fields::default() };
    let id = rig.submit("jobs", Submission { fields: fields.clone(), ..Submission::default() });
    assert_eq!(rig.item(id).fields, fields);
    fields.metadata = Some(Bytes::from_static(b"x"));
    let one_more = Submission { fields, ..Submission::default() };
    assert_eq!(code(&rig.run(submit("jobs", one_more))), "too_large");
    let wide = payload(noise(limits::FIELD_BYTES_MAX + 1));
    assert_eq!(code(&rig.run(submit("jobs", wide))), "too_large");
    assert_eq!(rig.counts("jobs").total(), 1);
}

pub(super) fn a_submit_outside_the_limits_is_refused_without_effect(harness: &dyn Harness) {
    let rig = Rig::with_queue(harness, plain());
    let body = |body: Body| Submission { body, ..payload("work") };
    let text = |len| Some("x".repeat(len));
    let tags = |count: usize, key: usize, value: usize| Body {
        tags: (0..count).map(|n| (format!("{n:0>key$}"), "v".repeat(value))).collect(),
        ..Body::default()
    };
    let bad = [
        body(Body { idempotency_key: text(0), ..Body::default() }),
        body(Body { idempotency_key: text(513), ..Body::default() }),
        body(Body { group: text(256), ..Body::default() }),
        body(tags(33, 2, 1)),
        body(tags(1, 129, 1)),
        body(tags(1, 1, 513)),
        Submission {
            overrides: Overrides { max_retries: Some(10_001), ..Overrides::default() },
            ..payload("work")
        },
        Submission {
            overrides: Overrides { expire_after: Some(Millis(Millis::MAX.0 + 1)), ..Overrides::default() },
            ..payload("work")
        },
        Submission { ready: When::After(Millis(Millis::MAX.0 + 1)), ..payload("work") },
        Submission { ready: When::At(Timestamp(Timestamp::MAX.0 + 1)), ..payload("work") },
    ];
    for (n, submission) in bad.into_iter().enumerate() {
        assert_eq!(code(&rig.run(submit("jobs", submission))), "invalid", "element {n}");
    }
    assert_eq!(rig.counts("jobs"), Counts::default());
    assert!(rig.list_ids(&Default::default()).is_empty());
    rig.submit("jobs", body(tags(32, 128, 512)));
    let key = Body { idempotency_key: text(512), ..Body::default() };
    rig.submit("jobs", body(key));
}

pub(super) fn the_depth_limit_applies_within_a_batch(harness: &dyn Harness) {
    let rig = Rig::with_queue(harness, Policy { depth_limit: Some(3), ..plain() });
    let batch = (0..5).map(|_| submit("jobs", payload("work"))).collect();
    let answers = rig.update(batch);
    let full = Err(Refusal::QueueFull { name: "jobs".to_owned(), depth: 3, limit: 3 }.into());
    let ids: Vec<_> = answers[..3].iter().map(|answer| submitted(answer).0).collect();
    assert_eq!(answers[3..], [full.clone(), full.clone()]);
    // Leased items do not count against the depth limit. Paused and scheduled items do.
    let held = rig.take("jobs");
    rig.ok(Operation::Pause { id: ids[1] });
    rig.submit("jobs", delayed(1000));
    assert_eq!(rig.run(submit("jobs", payload("work"))), full);
    // A returned item is accepted even above the limit.
    rig.lease(&held, release()).expect("released");
    assert_eq!(rig.counts("jobs").depth(), 4);
    let more = Err(Refusal::QueueFull { name: "jobs".to_owned(), depth: 4, limit: 3 }.into());
    assert_eq!(rig.run(submit("jobs", payload("work"))), more);
    let answers = rig.update(vec![
        delete(ids[0]),
        submit("jobs", payload("work")),
        delete(ids[1]),
        submit("jobs", payload("work")),
        submit("jobs", payload("work")),
    ]);
    assert_eq!(answers[1], full);
    assert!(submitted(&answers[3]).1);
    assert_eq!(answers[4], full);
}

pub(super) fn a_submit_that_violates_the_schema_is_refused_without_effect(harness: &dyn Harness) {
    let rig = Rig::open(harness);
    let declare = |text: &str| Schema::declare(text).expect("declared");
    let schema = Schema {
        inputs: [declare("raw"), declare("cal?")].into(),
        input_params: [declare("level")].into(),
        ..Schema::default()
    };
    rig.ok(create_with("jobs", schema, plain()));
    let with = |slots: &[&str], params: &[&str], key: &str| {
        let mut submission = keyed(key, "work");
        let buffer = |slot: &&str| (slot.parse().expect("a slot"), "b".parse().expect("a buffer"));
        submission.body.inputs = slots.iter().map(buffer).collect();
        submission.body.params = params.iter().map(|name| ((*name).to_owned(), Json::string("v"))).collect();
        submit("jobs", submission)
    };
    let answers = rig.update(vec![
        with(&[], &["level"], "a"),
        with(&["raw"], &[], "b"),
        with(&["raw", "other"], &["level"], "c"),
        with(&["raw"], &["level", "other"], "d"),
        with(&["raw"], &["level"], "e"),
        with(&["raw", "cal"], &["level"], "f"),
    ]);
    let codes: Vec<_> = answers.iter().map(code).collect();
    let refused = "schema_mismatch";
    assert_eq!(codes, [refused, refused, refused, refused, "ok", "ok"]);
    assert_eq!(rig.counts("jobs").total(), 2);
    let (_, created) = submitted(&rig.run(with(&["raw"], &["level"], "a")));
    assert!(created, "a refused submit claims no key");
}

pub(super) fn a_refused_operation_does_not_affect_its_batch(harness: &dyn Harness) {
    let rig = Rig::with_queue(harness, plain());
    rig.create("shut", plain());
    rig.close("shut");
    let held = rig.hold("jobs");
    let mut bad_tag = payload("work");
    bad_tag.body.tags = [(String::new(), String::new())].into();
    let answers = rig.update(vec![
        submit("jobs", with_id(1)),
        submit("nowhere", payload("work")),
        lease_call(held.id, foreign_token(), commit(), Adjust::default()),
        submit("shut", payload("work")),
        held.call(commit()),
        submit("jobs", bad_tag),
        delete(chosen(99)),
        submit("jobs", payload(noise(limits::FIELD_BYTES_MAX + 1))),
        Operation::Redrive { id: chosen(1) },
        submit("jobs", with_id(1)),
        submit("jobs", with_id(2)),
    ]);
    let codes: Vec<_> = answers.iter().map(code).collect();
    let expected = [
        "ok",
        "queue_not_found",
        "lease_lost",
        "queue_closed",
        "ok",
        "invalid",
        "item_not_found",
        "too_large",
        "wrong_state",
        "id_taken",
        "ok",
    ];
    assert_eq!(codes, expected);
    assert_eq!(rig.receive_ids("jobs", 10), [chosen(1), chosen(2)]);
}

pub(super) fn an_operation_sees_the_effects_of_earlier_ones_in_its_batch(harness: &dyn Harness) {
    let rig = Rig::open(harness);
    let call = rig.receive_call("jobs", 1);
    let token = call.seed.token(0, START);
    let second = rig.receive_call("jobs", 5);
    let answers = rig.update(vec![
        Operation::Receive(Box::new(rig.receive_call("jobs", 1))),
        create("jobs", plain()),
        submit("jobs", with_id(1)),
        Operation::Receive(Box::new(call)),
        Operation::Receive(Box::new(second)),
        lease_call(chosen(1), token, release(), Adjust::default()),
        Operation::Pause { id: chosen(1) },
        Operation::Receive(Box::new(rig.receive_call("jobs", 1))),
        Operation::Resume { id: chosen(1) },
        Operation::CloseQueue { queue: name("jobs") },
        Operation::Cancel { id: chosen(1), reason: String::new() },
        delete(chosen(1)),
        delete(chosen(1)),
    ]);
    let codes: Vec<_> = answers.iter().map(code).collect();
    assert_eq!(codes[0], "queue_not_found");
    assert!(codes[1..12].iter().all(|&code| code == "ok"), "{codes:?}");
    assert_eq!(codes[12], "item_not_found");
    let given = |answer: &towline_store::Answered| match answer {
        Ok(Reply::Received(received)) => received.items.len(),
        other => panic!("unexpected reply to a receive: {other:?}"),
    };
    assert_eq!((given(&answers[3]), given(&answers[4]), given(&answers[7])), (1, 0, 0));
    assert_eq!(rig.queue_state("jobs").name(), "completed");
    assert_eq!(rig.counts("jobs"), Counts::default());
}

pub(super) fn a_batch_above_the_maximum_size_is_refused(harness: &dyn Harness) {
    let rig = Rig::with_queue(harness, plain());
    assert!(rig.update(Vec::new()).is_empty());
    let most = limits::BATCH_MAX;
    assert_eq!(rig.update(vec![Operation::Sweep; most]).len(), most);
    let mut batch = vec![submit("jobs", payload("work"))];
    batch.resize(most + 1, Operation::Sweep);
    let too_large = |what, given| StoreError::BatchTooLarge { what, given, max: most };
    assert_eq!(block_on(rig.store.update(batch)), Err(too_large("operations", most + 1)));
    assert_eq!(rig.counts("jobs").total(), 0, "no operation of the batch was carried out");
    let ids = vec![chosen(1); most + 1];
    assert_eq!(block_on(rig.store.get(ids, FieldSet::NONE)).err(), Some(too_large("ids", most + 1)));
    let keys = vec!["k".to_owned(); most + 1];
    assert_eq!(block_on(rig.store.kv_get(keys)).err(), Some(too_large("keys", most + 1)));
}

pub(super) fn an_item_keeps_its_trace(harness: &dyn Harness) {
    let dead = Some(name("dead"));
    let rig = Rig::with_queue(harness, Policy { dead_letter_queue: dead, max_retries: 1, ..lenient() });
    let with = |number| Submission {
        body: Body { trace: trace(number), ..Body::default() },
        ..Submission::default()
    };
    let (bare, traced) = (rig.submit("jobs", Submission::default()), rig.submit("jobs", with(1)));
    let whole = Submission { fields: payload("work").fields, ..with(2) };
    let whole = rig.submit("jobs", whole);
    let kept = |id| rig.item(id).body.trace;
    assert_eq!((kept(bare), kept(traced), kept(whole)), (None, trace(1), trace(2)));
    let held = rig.receive("jobs", 10);
    for held in &held {
        assert_eq!(held.item.body.trace, kept(held.id), "the receiver gets the trace");
    }
    rig.update(held.iter().map(|held| held.call(retry("again"))).collect());
    rig.advance(60_000);
    for held in rig.receive("jobs", 10) {
        assert_eq!(held.item.body.trace, kept(held.id), "the next receiver gets it too");
        rig.fail(&held);
    }
    assert_eq!(
        (kept(bare), kept(traced), kept(whole)),
        (None, trace(1), trace(2)),
        "dead letters keep their trace"
    );
    let Some(rig) = rig.reopen(harness) else { return };
    let kept = |id| rig.item(id).body.trace;
    assert_eq!((kept(bare), kept(traced), kept(whole)), (None, trace(1), trace(2)));
    rig.ok(Operation::Redrive { id: traced });
    assert_eq!(rig.take("jobs").item.body.trace, trace(1));
}
