//! Submitting: batches, results, keys, ids and times.

use crate::test_server::TestServer;
use serde_json::{Value, json};

#[tokio::test(flavor = "multi_thread")]
async fn a_batch_has_at_most_ten_thousand_elements() {
    let server = TestServer::start().await;
    server.queue("jobs", json!({})).await;
    let items = |count: usize| -> Value { (0..count).map(|n| json!({"params": {"n": n}})).collect() };
    let ids = server.submit("jobs", items(10_000)).await;
    assert_eq!(ids.len(), 10_000);
    assert_eq!(server.counts("jobs").await["pending"], 10_000);
    let detail =
        server.post("/v1/queues/jobs/items", json!({"items": items(10_001)})).await.problem("too_large");
    assert!(detail.contains("10000") && detail.contains("split the call"), "{detail}");
    assert_eq!(server.counts("jobs").await["pending"], 10_000);
    assert_eq!(server.item(&ids[9_999]).await["params"], json!({"n": 9_999}));
    assert_eq!(
        server.post("/v1/queues/jobs/items", json!({"items": []})).await.success(),
        json!({"items": []})
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn each_result_has_the_position_of_its_element() {
    let server = TestServer::start().await;
    server
        .put("/v1/queues/jobs", json!({"schema": {"input_params": ["level?"], "inputs": ["raw?"]}}))
        .await
        .success();
    let long = "x".repeat(600);
    let many_tags: Value =
        (0..33).map(|n| (format!("t{n}"), json!("v"))).collect::<serde_json::Map<_, _>>().into();
    let elements = [
        (json!({}), None),
        (json!({"priority": 40_000}), Some(("invalid", "priority: 40000"))),
        (json!({"id": "not-an-id"}), Some(("invalid", "id: \"not-an-id\": must be a UUID"))),
        (json!({"ready_at": "9999-12-31T23:59:59Z"}), Some(("invalid", "out of range"))),
        (json!({"params": {"level": 1}}), None),
        (json!({"params": {"volume": 1}}), Some(("schema_mismatch", "volume"))),
        (json!({"payload": "not base64!"}), Some(("invalid", "payload: not base64"))),
        (json!({"delay": "1s", "ready_at": 0}), Some(("invalid", "choose one"))),
        (json!({"delay": "soon"}), Some(("invalid", "delay"))),
        (json!({"delay": -5}), Some(("invalid", "negative"))),
        (json!({"ready_at": "tomorrow"}), Some(("invalid", "ready_at"))),
        (json!({"ready_at": "2030-01-01T00:00:00"}), Some(("invalid", "time zone"))),
        (json!({"ready_at": 253_402_300_800_000_u64}), Some(("invalid", "before 9999"))),
        (json!({"ready_at": u64::MAX}), Some(("invalid", "before 9999"))),
        (json!({"parent": ""}), Some(("invalid", "parent"))),
        (json!({"max_retries": 10_001}), Some(("invalid", "max_retries"))),
        (json!({"max_retries": -1}), Some(("invalid", "max_retries"))),
        (json!({"inputs": {"Raw": "b"}}), Some(("invalid", "Raw"))),
        (json!({"inputs": {"raw": "b/c"}}), Some(("invalid", "b/c"))),
        (json!({"backoff": "sometimes"}), Some(("invalid", "backoff"))),
        (json!({"idempotency_key": ""}), Some(("invalid", "idempotency_key"))),
        (json!({"idempotency_key": long}), Some(("invalid", "512"))),
        (json!({"tags": {"a": long}}), Some(("invalid", "tags"))),
        (json!({"tags": many_tags}), Some(("invalid", "at most 32"))),
        (json!({"priority": -32_768, "tags": {"a": ""}}), None),
    ];
    let items: Value = elements.iter().map(|(item, _)| item.clone()).collect();
    let answer = server.post("/v1/queues/jobs/items", json!({"items": items})).await.success();
    let answers = answer["items"].as_array().unwrap();
    assert_eq!(answers.len(), elements.len());
    for (answer, (element, expected)) in answers.iter().zip(elements) {
        match expected {
            None => assert!(answer["id"].is_string() && answer["created"] == true, "{element}: {answer}"),
            Some((code, detail)) => {
                assert_eq!(answer["error"]["code"], code, "{element}: {answer}");
                assert!(answer["error"]["message"].as_str().unwrap().contains(detail), "{element}: {answer}");
                assert_eq!(answer.as_object().unwrap().len(), 1, "{answer}");
            }
        }
    }
    assert_eq!(server.counts("jobs").await["pending"], 3);
}

#[tokio::test(flavor = "multi_thread")]
async fn one_idempotency_key_creates_one_item() {
    let server = TestServer::start().await;
    server.queue("jobs", json!({})).await;
    let item = json!({"idempotency_key": "order-7", "params": {"a": [1, 2]}, "payload": "aGk="});
    let first = server.post("/v1/queues/jobs/items", json!({"items": [item]})).await.success();
    assert_eq!(first["items"][0]["created"], true);
    let again = server.post("/v1/queues/jobs/items", json!({"items": [item, item]})).await.success();
    for answer in again["items"].as_array().unwrap() {
        assert_eq!(*answer, json!({"id": first["items"][0]["id"], "created": false}));
    }
    // Whitespace does not change the content.
    let spaced = r#"{"items":[{"idempotency_key":"order-7","params":{"a": [ 1,
        2 ]},"payload":"aGk"}]}"#;
    assert_eq!(
        server.post_text("/v1/queues/jobs/items", spaced).await.success()["items"][0]["created"],
        false
    );

    let other = json!({"idempotency_key": "order-7", "params": {"a": 2}});
    let conflict = server.post("/v1/queues/jobs/items", json!({"items": [other, {}]})).await.success();
    assert_eq!(conflict["items"][0]["error"]["code"], "key_conflict");
    let message = conflict["items"][0]["error"]["message"].as_str().unwrap();
    assert!(message.contains(first["items"][0]["id"].as_str().unwrap()), "{message}");
    assert_eq!(conflict["items"][1]["created"], true);
    // Keys are per queue.
    server.queue("second", json!({})).await;
    let elsewhere = server.post("/v1/queues/second/items", json!({"items": [other]})).await.success();
    assert_eq!(elsewhere["items"][0]["created"], true);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_replace_key_keeps_one_pending_item() {
    let server = TestServer::start().await;
    server.queue("jobs", json!({"depth_limit": 1})).await;
    let submit = async |item: Value| {
        server.post("/v1/queues/jobs/items", json!({"items": [item]})).await.success()["items"][0].clone()
    };
    let first = submit(json!({"replace_key": "doc-7", "params": {"n": 1}, "tags": {"team": "a"}})).await;
    assert_eq!(first["created"], true);
    let id = first["id"].as_str().unwrap();
    let second = submit(json!({"replace_key": "doc-7", "payload": "aGk="})).await;
    assert_eq!(second, json!({"id": id, "created": false, "replaced": true}));
    let item = server.item(id).await;
    assert_eq!(
        (&item["replace_key"], &item["params"], &item["tags"]),
        (&json!("doc-7"), &json!({}), &json!({}))
    );
    let held = server.receive("jobs").await;
    assert_eq!(
        (&held["id"], &held["payload"], &held["replace_key"]),
        (&json!(id), &json!("aGk="), &json!("doc-7"))
    );
    let third = submit(json!({"replace_key": "doc-7", "delay": "1h", "delay_max": "2h"})).await;
    assert!(third["created"] == true && third["id"] != id, "{third}");
    for (item, expected) in [
        (json!({"replace_key": ""}), "replace_key"),
        (json!({"replace_key": "k", "idempotency_key": "k"}), "idempotency_key"),
        (json!({"replace_key": "k", "group": "g"}), "group"),
        (json!({"replace_key": "k", "id": "0189a7c0-1111-4222-8333-444455556666"}), "`id`"),
        (json!({"delay": "1s", "delay_max": "2s"}), "delay_max"),
        (json!({"replace_key": "k", "delay_max": "soon"}), "delay_max"),
    ] {
        let refused = submit(item.clone()).await;
        assert_eq!(refused["error"]["code"], "invalid", "{item}: {refused}");
        assert!(refused["error"]["message"].as_str().unwrap().contains(expected), "{item}: {refused}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_submitter_can_choose_the_item_id() {
    let server = TestServer::start().await;
    server.queue("jobs", json!({})).await;
    let id = "0189a7c0-1111-4222-8333-444455556666";
    let answer = server
        .post("/v1/queues/jobs/items", json!({"items": [{"id": id}, {"id": id.to_uppercase()}]}))
        .await
        .success();
    assert_eq!(answer["items"][0], json!({"id": id, "created": true}));
    assert_eq!(answer["items"][1]["error"]["code"], "id_taken");
    assert_eq!(server.item(id).await["state"], "pending");
    assert_eq!(server.receive("jobs").await["id"], id);
}

#[tokio::test(flavor = "multi_thread")]
async fn an_item_is_scheduled_for_the_future_or_ready_at_once() {
    let server = TestServer::start().await;
    server.queue("jobs", json!({})).await;
    let ids = server
        .submit(
            "jobs",
            json!([
                {"delay": "1h"}, {"delay": 3_600_000}, {"ready_at": "2100-01-01T01:00:00+01:00"}, {"ready_at": 4_102_444_800_000_u64},
                {"ready_at": "1970-01-02T00:00:00Z"}, {"ready_at": -5}, {"delay": 0}, {"delay": "PT0S"},
            ]),
        )
        .await;
    let counts = server.counts("jobs").await;
    assert_eq!((&counts["scheduled"], &counts["pending"]), (&json!(4), &json!(4)));
    let shown = server.item(&ids[2]).await;
    assert_eq!(
        (&shown["state"], &shown["ready_at"]),
        (&json!("scheduled"), &json!("2100-01-01T00:00:00.000Z"))
    );
    assert_eq!(server.item(&ids[3]).await["ready_at"], "2100-01-01T00:00:00.000Z");
    let jobs = server.get("/v1/queues/jobs").await.success();
    for id in &ids[4..6] {
        let shown = server.item(id).await;
        // A time in the past is a place in the queue, at the earliest the creation of the queue.
        assert_eq!((&shown["state"], &shown["ready_at"]), (&json!("pending"), &jobs["created_at"]));
    }
    for id in &ids[6..] {
        let shown = server.item(id).await;
        assert_eq!((&shown["state"], &shown["ready_at"]), (&json!("pending"), &shown["created_at"]));
    }
    let received = server.post("/v1/queues/jobs/receive", json!({"max": 100})).await.success();
    assert_eq!(received["items"].as_array().unwrap().len(), 4);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_receive_returns_what_was_submitted() {
    let server = TestServer::start().await;
    server.queue("jobs", json!({})).await;
    let parent = server.submit("jobs", json!([{}])).await.remove(0);
    // As text: numbers must keep all digits.
    let text = r#"{"items":[{"params":{"big":123456789012345678901234567890,"huge":-1e400,"exact":0.10,"s":"\u00e9\ud83d\ude00","nested":{"a":[null,true]}},
        "inputs":{"raw":"b1"},"tags":{"team":"mri","":""},"fairness_key":"f","group":"g","source":"s","tier":"gold","fee":18446744073709551615,"size_bytes":5,
        "payload":"AP8=","state_blob":"","metadata":"YQ==","parameters":"Yg"}]}"#;
    let raw = server.buffer().await;
    let text = text.replace("b1", &raw);
    let refused = server.post_text("/v1/queues/jobs/items", text.clone()).await.success();
    assert_eq!(refused["items"][0]["error"]["code"], "invalid", "a tag needs a name: {refused}");
    let text = text.replace(r#","":"""#, "").replace(r#""fee""#, &format!(r#""parent":"{parent}","fee""#));
    let id = server.post_text("/v1/queues/jobs/items", text).await.success()["items"][0]["id"]
        .as_str()
        .unwrap()
        .to_owned();
    let shown = server.get(&format!("/v1/items/{id}")).await;
    let body = String::from_utf8(shown.body.to_vec()).unwrap();
    for kept in [
        r#""big":123456789012345678901234567890"#,
        r#""huge":-1e400"#,
        r#""exact":0.10"#,
        r#""nested":{"a":[null,true]}"#,
    ] {
        assert!(body.contains(kept), "{kept}: {body}");
    }
    for (name, value) in [
        ("payload", json!("AP8=")),
        ("state_blob", json!("")),
        ("metadata", json!("YQ==")),
        ("parameters", json!("Yg==")),
        ("fee", json!(u64::MAX)),
        ("size_bytes", json!(5)),
        ("tier", json!("gold")),
        ("fairness_key", json!("f")),
        ("group", json!("g")),
        ("source", json!("s")),
        ("parent", json!(parent)),
        ("inputs", json!({"raw": raw})),
        ("tags", json!({"team": "mri"})),
    ] {
        assert!(body.contains(&format!("\"{name}\":{value}")), "{name}: {body}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_queue_that_becomes_full_refuses_the_rest_of_a_batch() {
    let server = TestServer::start().await;
    server.queue("jobs", json!({"depth_limit": 3})).await;
    let answer = server.post("/v1/queues/jobs/items", json!({"items": [{}, {}, {}, {}, {}]})).await.success();
    let codes: Vec<&Value> =
        answer["items"].as_array().unwrap().iter().map(|item| &item["error"]["code"]).collect();
    assert_eq!(codes, [&Value::Null, &Value::Null, &Value::Null, &json!("queue_full"), &json!("queue_full")]);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_too_large_item_is_refused_alone() {
    let server = TestServer::start().await;
    server.queue("jobs", json!({})).await;
    // Base64 of one byte more than 4 MiB, and parameters of more than 1 MiB.
    let payload = "A".repeat((4 << 20) / 3 * 4 + 8);
    let answer = server
        .post(
            "/v1/queues/jobs/items",
            json!({"items": [{"payload": payload}, {"params": {"a": "x".repeat(1 << 20)}}, {}]}),
        )
        .await
        .success();
    assert_eq!(answer["items"][0]["error"]["code"], "too_large", "{answer}");
    assert_eq!(answer["items"][1]["error"]["code"], "too_large");
    assert_eq!(answer["items"][2]["created"], true);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_submit_to_a_full_queue_can_wait_for_capacity() {
    let server = TestServer::start().await;
    server.queue("jobs", json!({"depth_limit": 1})).await;
    let path = "/v1/queues/jobs/items";
    let (waited, first) = tokio::join!(server.post(path, json!({"items": [{}, {}], "wait": "1m"})), async {
        let call = json!({"wait": "1m"});
        server.post("/v1/queues/jobs/receive", call).await.success()["items"][0]["id"].clone()
    });
    let waited = waited.success();
    assert_eq!(waited["items"][0]["id"], first);
    assert_eq!(waited["items"][1]["created"], true, "{waited}");
    let refused = server.post(path, json!({"items": [{}], "wait": 20})).await.success();
    assert_eq!(refused["items"][0]["error"]["code"], "queue_full");
    let detail = server.post(path, json!({"items": [{}], "wait": "6m"})).await.problem("invalid");
    assert!(detail.contains("5m"), "{detail}");
}
