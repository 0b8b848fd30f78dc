//! A value that goes through JSON and MessagePack comes out unchanged.
#![allow(clippy::unwrap_used, reason = "tests")]

use proptest::collection::{btree_map, vec};
use proptest::option;
use proptest::prelude::*;
use proptest::sample::select;
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::Value;
use std::collections::BTreeMap;
use std::fmt::Debug;
use towline_api::backoff::CustomBackoff;
use towline_api::params::Params;
use towline_api::payload::Payload;
use towline_api::{
    Action, BackoffBody, BulkResult, CountShown, CountsShown, DependencyBody, ErrorBody, FairnessBody,
    FieldsBody, Format, ItemError, ItemId, ItemPage, ItemShown, Json, LeaseRuleBody, LeaseToken, Millis,
    NewItem, OrderBody, OriginShown, PatchQueue, PolicyBody, Problem, PutQueue, QueuePage, QueueShown,
    ReceiveAnswer, ReceiveRequest, ReceivedItem, SchemaBody, ScoreBody, ScoreOrder, SettleAnswer, SettleBody,
    Settled, Span, SubmitAnswer, SubmitBody, Submitted, Text, Throttled, Time, Timestamp, TraceBody,
    VerbName,
};
use uuid::Uuid;

/// Encodes as JSON, decodes, encodes as MessagePack, decodes, and encodes as JSON again.
fn same<T: Serialize + DeserializeOwned + PartialEq + Debug>(value: &T) {
    let json = Format::Json.encode(value).unwrap();
    let read: T = Format::Json.decode(&json).unwrap();
    let packed = Format::MessagePack.encode(&read).unwrap();
    let again: T = Format::MessagePack.decode(&packed).unwrap();
    assert_eq!(read, *value, "through JSON");
    assert_eq!(again, read, "through MessagePack");
    assert_eq!(Format::Json.encode(&again).unwrap(), json, "{}", String::from_utf8_lossy(&json));
}

fn text() -> impl Strategy<Value = String> {
    "\\PC{0,12}"
}

fn id() -> impl Strategy<Value = Text<ItemId>> {
    prop_oneof![
        any::<u128>().prop_map(|n| ItemId(Uuid::from_u128(n)).into()),
        text().prop_map(|text| Text::parse(&text))
    ]
}

fn lease() -> impl Strategy<Value = Text<LeaseToken>> {
    any::<u128>().prop_map(|n| LeaseToken(Uuid::from_u128(n)).into())
}

fn verb() -> impl Strategy<Value = Text<VerbName>> {
    let known = (0..VerbName::ALL.len()).prop_map(|n| VerbName::ALL[n].into());
    prop_oneof![known, text().prop_map(|text| Text::parse(&text))]
}

fn span() -> impl Strategy<Value = Span> {
    (0..=Millis::MAX.0).prop_map(|n| Millis(n).into())
}

fn time() -> impl Strategy<Value = Time> {
    // Up to the year 9999.
    (0..=253_402_207_200_000_u64).prop_map(|n| Timestamp(n).into())
}

fn payload() -> impl Strategy<Value = Payload> {
    vec(any::<u8>(), 0..40).prop_map(Payload::from)
}

fn texts() -> impl Strategy<Value = BTreeMap<String, String>> {
    btree_map(text(), text(), 0..3)
}

fn json() -> impl Strategy<Value = Value> {
    let leaf = prop_oneof![
        Just(Value::Null),
        any::<bool>().prop_map(Value::from),
        any::<i64>().prop_map(Value::from),
        any::<u64>().prop_map(Value::from),
        any::<f64>().prop_map(Value::from),
        "\\PC{0,12}|[\\x00-\\x1f\"\\\\]{0,4}".prop_map(Value::from),
    ];
    leaf.prop_recursive(6, 32, 4, |inner| {
        prop_oneof![
            vec(inner.clone(), 0..4).prop_map(Value::from),
            btree_map(text(), inner, 0..4).prop_map(|object| Value::Object(object.into_iter().collect())),
        ]
    })
}

fn params() -> impl Strategy<Value = Params> {
    btree_map(text(), json().prop_map(|value| Json::parse(&value.to_string()).unwrap()), 0..4)
}

fn share() -> impl Strategy<Value = Option<f64>> {
    option::of(0.0..1.0)
}

fn backoff() -> impl Strategy<Value = BackoffBody> {
    let spans = (option::of(span()), option::of(span()), option::of(span()), option::of(span()));
    let spelled = (spans, share(), share(), share()).prop_map(
        |((delay, base, max, round), factor, jitter, hash_jitter)| {
            BackoffBody::Custom(Box::new(CustomBackoff {
                delay,
                base,
                factor,
                max,
                jitter,
                hash_jitter,
                round,
            }))
        },
    );
    prop_oneof![text().prop_map(BackoffBody::Preset), spelled]
}

fn order() -> impl Strategy<Value = OrderBody> {
    let score = (
        option::of(any::<u32>()),
        option::of(any::<u64>()),
        option::of(span()),
        option::of(btree_map(text(), any::<u32>(), 0..3)),
    );
    let score = score.prop_map(|(fee_permille, fee_half, age_unit, tiers_permille)| {
        let score = ScoreBody { fee_permille, fee_half, age_unit, tiers_permille, ..ScoreBody::default() };
        OrderBody::Score(ScoreOrder { score: Box::new(score) })
    });
    prop_oneof![text().prop_map(OrderBody::Name), score]
}

fn policy() -> impl Strategy<Value = PolicyBody> {
    let spans = vec(option::of(option::of(span())), 6);
    let numbers = (
        option::of(any::<i64>()),
        option::of(option::of(any::<i64>())),
        option::of(option::of(any::<i64>())),
    );
    let lease =
        option::of((option::of(span()), option::of(any::<i64>())).prop_map(|(ack_timeout, renewals_max)| {
            LeaseRuleBody { ack_timeout, renewals_max, ..LeaseRuleBody::default() }
        }));
    let rest = (
        option::of(backoff()),
        option::of(order()),
        lease,
        option::of(option::of(text())),
        option::of(span()),
        option::of(vec(text(), 0..3)),
        (option::of(vec(text(), 0..3)), option::of(text())),
    );
    let fairness = btree_map(text(), any::<i64>(), 0..3).prop_map(|weights| FairnessBody { weights });
    let flow = (
        option::of(option::of(any::<i64>())),
        option::of(option::of(text())),
        option::of(option::of(fairness)),
        option::of(option::of(any::<i64>())),
    );
    (spans, numbers, rest, flow).prop_map(|(spans, (max_retries, poison_after, depth_limit), rest, flow)| {
        let (concurrency, rate, fairness, concurrency_per_key) = flow;
        let (backoff, order, lease, dead_letter_queue, visibility_timeout, tally_tags, letters) = rest;
        let (dead_letter, unique) = letters;
        let [item_ttl, completed_ttl, failed_ttl, output_ttl, expire_after, give_up_after] =
            spans.try_into().unwrap();
        PolicyBody {
            visibility_timeout,
            max_retries,
            backoff,
            item_ttl,
            completed_ttl,
            failed_ttl,
            output_ttl,
            expire_after,
            give_up_after,
            poison_after,
            order,
            depth_limit,
            dead_letter_queue,
            dead_letter,
            unique,
            lease,
            tally_values_max: tally_tags.as_ref().map(|tags| tags.len() as i64),
            tally_tags,
            concurrency,
            rate,
            fairness,
            concurrency_per_key,
        }
    })
}

fn schema() -> impl Strategy<Value = SchemaBody> {
    vec(vec(text(), 0..3), 4).prop_map(|lists| {
        let [inputs, outputs, input_params, output_params] = lists.try_into().unwrap();
        SchemaBody { inputs, outputs, input_params, output_params }
    })
}

fn queue() -> impl Strategy<Value = QueueShown> {
    let counts = any::<[u64; 6]>().prop_map(|[pending, scheduled, processing, paused, completed, failed]| {
        CountsShown { pending, scheduled, processing, paused, completed, failed }
    });
    let times = (time(), option::of(time()), option::of(time()));
    (text(), text(), any::<bool>(), times, counts, schema(), policy()).prop_map(
        |(name, state, paused, (created_at, since, oldest_ready_at), counts, schema, policy)| QueueShown {
            name,
            state,
            paused,
            created_at,
            since,
            counts,
            oldest_ready_at,
            schema,
            policy,
            consumers: Vec::new(),
        },
    )
}

fn after() -> impl Strategy<Value = DependencyBody> {
    let numbers = (option::of(any::<i64>()), option::of(any::<i64>()));
    (option::of(text()), option::of(vec(id(), 0..3)), option::of(text()), numbers).prop_map(
        |(group, items, when, (expect, count))| DependencyBody { group, expect, items, when, count },
    )
}

fn trace() -> impl Strategy<Value = TraceBody> {
    let state = option::of("[a-z][a-z0-9]{0,9}=[!-+./-9]{1,20}".prop_map(|state| Text::parse(&state)));
    (1..=u128::MAX, 1..=u64::MAX, any::<u8>(), state).prop_map(|(trace, span, flags, tracestate)| TraceBody {
        traceparent: Text::parse(&format!("00-{trace:032x}-{span:016x}-{flags:02x}")),
        tracestate,
    })
}

fn new_item() -> impl Strategy<Value = NewItem> {
    let when = (option::of(span()), option::of(time()), option::of(any::<i64>()), option::of(any::<i64>()));
    let names = (option::of(id()), option::of(id()), vec(option::of(text()), 6), texts(), texts());
    let fields = vec(option::of(payload()), 4);
    let spans = vec(option::of(span()), 5);
    let numbers =
        (option::of(any::<u64>()), option::of(any::<u64>()), option::of(backoff()), option::of(after()));
    let numbers = (numbers, option::of(trace()), option::of(text()));
    (when, names, params(), fields, spans, numbers).prop_map(
        |(when, names, params, fields, spans, numbers)| {
            let (delay, ready_at, priority, max_retries) = when;
            let (id, parent, labels, inputs, tags) = names;
            let [idempotency_key, replace_key, fairness_key, group, source, tier] =
                labels.try_into().unwrap();
            let [payload, state_blob, metadata, parameters] = fields.try_into().unwrap();
            let [completed_ttl, failed_ttl, expire_after, give_up_after, delay_max] =
                spans.try_into().unwrap();
            let ((fee, size_bytes, backoff, after), trace, unique) = numbers;
            NewItem {
                id,
                inputs,
                params,
                priority,
                delay,
                ready_at,
                idempotency_key,
                replace_key,
                delay_max,
                tags,
                fairness_key,
                group,
                after,
                parent,
                source,
                trace,
                payload_text: Some("\"é".to_owned()),
                payload_json: Some(Json::parse("{\"a\":[2.5,null]}").unwrap()),
                payload,
                state_blob_text: None,
                state_blob_json: None,
                state_blob,
                metadata_text: None,
                metadata_json: None,
                metadata,
                parameters,
                fee,
                size_bytes,
                tier,
                max_retries,
                backoff,
                completed_ttl,
                failed_ttl,
                expire_after,
                give_up_after,
                unique,
            }
        },
    )
}

fn action() -> impl Strategy<Value = Action> {
    let fields = vec(option::of(payload()), 4).prop_map(|fields| {
        let [payload, state_blob, metadata, parameters] = fields.try_into().unwrap();
        Box::new(FieldsBody {
            payload,
            state_blob,
            metadata,
            parameters,
            payload_text: Some("é".to_owned()),
            metadata_json: Json::parse("[2.5]").ok(),
            ..FieldsBody::default()
        })
    });
    let target = (option::of(verb()), option::of(id()), option::of(lease()));
    let when = (option::of(span()), option::of(span()), option::of(time()), option::of(any::<bool>()));
    let what = (
        texts(),
        params(),
        option::of(text()),
        option::of(any::<i64>()),
        option::of(text()),
        option::of(fields),
        vec(text(), 0..3),
    );
    (target, when, what).prop_map(|((verb, id, lease), when, what)| {
        let (visibility_timeout, delay, ready_at, counted) = when;
        let (outputs, output_params, reason, priority, queue, set, unset) = what;
        Action {
            verb,
            id,
            lease,
            visibility_timeout,
            outputs,
            output_params,
            reason,
            delay,
            counted,
            ready_at,
            priority,
            queue,
            set,
            unset,
            then_submit: Vec::new(),
        }
    })
}

fn item() -> impl Strategy<Value = ItemShown> {
    let errors = vec((time(), any::<u32>(), text(), text()), 0..3).prop_map(|errors| {
        errors
            .into_iter()
            .map(|(at, attempt, kind, message)| ItemError { at, attempt, kind, message })
            .collect::<Vec<_>>()
    });
    let origin = (text(), time()).prop_map(|(queue, moved_at)| OriginShown { queue, moved_at });
    let names = (id(), option::of(id()), text(), text(), vec(option::of(text()), 7));
    let numbers = (any::<i16>(), any::<[u32; 5]>(), option::of(any::<u64>()), option::of(any::<u64>()));
    let times = (time(), time(), vec(option::of(time()), 6));
    let maps = (texts(), texts(), texts(), params(), params());
    let whence = (option::of(origin), option::of(after()), option::of(trace()));
    (names, numbers, times, maps, errors, whence, vec(option::of(payload()), 4)).prop_map(
        |(names, numbers, times, maps, errors, (origin, after, trace), fields)| {
            let (id, parent, queue, state, labels) = names;
            let [failure, idempotency_key, replace_key, fairness_key, group, source, tier] =
                labels.try_into().unwrap();
            let (priority, [attempt, retries, deliveries, transitions, lapses], fee, size_bytes) = numbers;
            let (created_at, ready_at, later) = times;
            let [finished_at, expires_at, lease_expires_at, remove_at, last_transition_at, last_heartbeat_at] =
                later.try_into().unwrap();
            let (tags, inputs, outputs, params, output_params) = maps;
            let [payload, state_blob, metadata, parameters] = fields.try_into().unwrap();
            ItemShown {
                id,
                queue,
                state,
                failure,
                priority,
                attempt,
                retries,
                retries_left: (retries % 2 == 0).then_some(attempt),
                deliveries,
                transitions,
                lapses,
                created_at,
                ready_at,
                finished_at,
                last_transition_at,
                last_heartbeat_at,
                expires_at,
                lease_expires_at,
                remove_at,
                idempotency_key,
                replace_key,
                tags,
                fairness_key,
                group,
                after,
                parent,
                source,
                trace,
                origin,
                inputs,
                params,
                outputs,
                output_params,
                errors,
                fee,
                size_bytes,
                tier,
                payload_text: payload.is_none().then(|| "\"é".to_owned()),
                payload_json: None,
                payload,
                state_blob_text: None,
                state_blob_json: state_blob.is_none().then(|| Json::parse("{\"a\":[2.5]}").unwrap()),
                state_blob,
                metadata_text: None,
                metadata_json: None,
                metadata,
                parameters,
                handed_off: Vec::new(),
            }
        },
    )
}

fn received() -> impl Strategy<Value = ReceivedItem> {
    (item(), lease(), "[a-z][a-z0-9._-]{0,9}").prop_map(|(item, lease, queue)| ReceivedItem {
        id: item.id,
        lease,
        queue: queue.parse().unwrap(),
        attempt: item.attempt,
        retries: item.retries,
        deliveries: item.deliveries,
        transitions: item.transitions,
        lapses: item.lapses,
        priority: item.priority,
        created_at: item.created_at,
        lease_expires_at: item.ready_at.clone(),
        ready_at: item.ready_at,
        inputs: item.inputs,
        outputs: item.outputs,
        params: item.params,
        tags: item.tags,
        idempotency_key: item.idempotency_key,
        replace_key: item.replace_key,
        fairness_key: item.fairness_key,
        group: item.group,
        parent: item.parent,
        source: item.source,
        trace: item.trace,
        payload: item.payload,
        payload_text: item.payload_text,
        payload_json: item.payload_json,
        state_blob: item.state_blob,
        state_blob_text: item.state_blob_text,
        state_blob_json: item.state_blob_json,
        metadata: item.metadata,
        metadata_text: item.metadata_text,
        metadata_json: item.metadata_json,
        parameters: item.parameters,
    })
}

fn error() -> impl Strategy<Value = ErrorBody> {
    (text(), text()).prop_map(|(code, message)| ErrorBody { code, message })
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(128))]

    #[test]
    fn queues(schema in schema(), policy in policy(), shown in vec(queue(), 0..3), next in option::of(text())) {
        same(&PutQueue { schema, policy: policy.clone() });
        same(&PatchQueue { policy: policy.clone() });
        same(&policy);
        shown.iter().for_each(|queue| same(&queue.counts));
        same(&QueuePage { queues: shown, next });
    }

    #[test]
    fn submits(items in vec(new_item(), 0..3), answers in vec((option::of(id()), option::of(any::<bool>()), option::of(error())), 0..3)) {
        items.iter().for_each(same);
        let items = answers.into_iter().map(|(id, created, error)| Submitted { id, created, replaced: created, error, notes: vec!["note".to_owned()] }).collect();
        same(&SubmitAnswer { items, notes: Vec::new() });
    }

    #[test]
    fn receives(
        max in option::of(any::<i64>()), wait in option::of(span()), visibility_timeout in option::of(span()),
        create_output_buffers in option::of(any::<bool>()), fields in option::of(vec(text(), 0..3)), items in vec(received(), 0..3), status in text(), throttled in option::of(select(vec![Throttled::Paused, Throttled::Concurrency, Throttled::Rate, Throttled::Keys])), until in option::of(time()), notes in vec(text(), 0..2),
    ) {
        same(&ReceiveRequest { max, wait, visibility_timeout, create_output_buffers, fields, payload_as: None });
        same(&ReceiveAnswer { status, items, throttled, until, notes });
    }

    #[test]
    fn settles(actions in vec(action(), 0..3), answers in vec((option::of(id()), option::of(text()), option::of(time()), option::of(error())), 0..3)) {
        actions.iter().for_each(same);
        let settled = |(id, state, lease_expires_at, error)| Settled { id, state, lease_expires_at, error, handed_off: Vec::new() };
        same(&SettleAnswer { results: answers.into_iter().map(settled).collect() });
    }

    #[test]
    fn items(items in vec(item(), 0..3), next in option::of(text()), matched in any::<u64>()) {
        let left = items.iter().map(|item| (item.queue.clone(), u64::from(item.attempt))).collect();
        same(&ItemPage { items, next: next.clone() });
        same(&CountShown { count: matched, next: next.clone() });
        same(&BulkResult { matched, done: matched / 2, left, next });
    }

    #[test]
    fn any_bytes_are_answered(body in vec(any::<u8>(), 0..200)) {
        for format in [Format::Json, Format::MessagePack] {
            let _ = format.decode::<SubmitBody>(&body);
            let _ = format.decode::<SettleBody>(&body);
            let _ = format.decode::<PutQueue>(&body);
            let _ = format.decode::<PatchQueue>(&body);
            let _ = format.decode::<ItemPage>(&body);
        }
    }
}

#[test]
fn a_payload_is_bytes_in_messagepack_and_base64_in_json() {
    let item = NewItem { payload: Some(vec![0, 255, 128].into()), ..NewItem::default() };
    assert_eq!(Format::Json.encode(&item).unwrap(), br#"{"payload":"AP+A"}"#);
    assert_eq!(Format::MessagePack.encode(&item).unwrap(), b"\x81\xa7payload\xc4\x03\x00\xff\x80");
    // In MessagePack, text is base64 too, with or without padding.
    for text in [&b"\x81\xa7payload\xa4AP+A"[..], b"\x81\xa4blob\xa4AP+A"] {
        assert_eq!(Format::MessagePack.decode::<NewItem>(text).unwrap(), item);
    }
    assert_eq!(Format::Json.decode::<NewItem>(br#"{"blob":"AA"}"#).unwrap().payload, Some(vec![0].into()));
}

#[test]
fn a_decode_error_names_the_path() {
    for format in [Format::Json, Format::MessagePack] {
        let body = |body| format.encode(&body).unwrap();
        let wrong = body(serde_json::json!({"items": [{"tags": {"a": 5}}], "wait": [[]]}));
        let message = format.decode::<SubmitBody>(&wrong).unwrap_err().to_string();
        assert!(message.starts_with("wait: "), "{message}");
        let wrong = body(serde_json::json!({"tags": {"a": 5}}));
        let message = format.decode::<SubmitBody>(&wrong).unwrap_err().to_string();
        assert!(message.starts_with("tags.a: "), "{message}");
    }
    let problem = Problem::new(towline_api::Code::Busy, "later");
    same(&problem);
}
