//! Receiving: number, order, visibility timeout, wait and fields.

use crate::test_server::TestServer;
use serde_json::{Value, json};

fn ids(answer: &Value) -> Vec<&str> {
    answer["items"].as_array().unwrap().iter().map(|item| item["id"].as_str().unwrap()).collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn a_receive_returns_max_items_in_queue_order() {
    let server = TestServer::start().await;
    server.queue("jobs", json!({})).await;
    let made =
        server.submit("jobs", json!([{"priority": 5}, {"priority": -5}, {}, {"priority": 5}, {}])).await;
    let path = "/v1/queues/jobs/receive";
    let first = server.post(path, json!({})).await.success();
    assert_eq!(ids(&first), [&made[1]]);
    let next = server.post(path, json!({"max": 3})).await.success();
    assert_eq!(ids(&next), [&made[2], &made[4], &made[0]]);
    let rest = server.post(path, json!({"max": 10_000})).await.success();
    assert_eq!(ids(&rest), [&made[3]]);
    assert_eq!(
        server.post(path, json!({"max": 10_000})).await.success(),
        json!({"status": "open", "items": []})
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn a_receive_without_a_body_returns_one_item() {
    let server = TestServer::start().await;
    server.queue("jobs", json!({})).await;
    server.submit("jobs", json!([{}, {}])).await;
    let answer = server.call(http::Method::POST, "/v1/queues/jobs/receive", None).await.success();
    assert_eq!(ids(&answer).len(), 1);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_receive_returns_the_requested_fields() {
    let server = TestServer::start().await;
    server.queue("jobs", json!({})).await;
    let item = json!({"payload": "cA==", "state_blob": "cw==", "metadata": "bQ==", "parameters": "cQ==", "params": {"a": 1}});
    server.submit("jobs", json!([item, item, item, item])).await;
    let heavy = ["payload", "state_blob", "metadata", "parameters"];
    for (request, given) in [
        (json!({}), &heavy[..]),
        (json!({"fields": []}), &[]),
        (json!({"fields": ["payload", "metadata"]}), &["payload", "metadata"]),
        (json!({"fields": ["blob"]}), &["payload"]),
    ] {
        let answer = server.post("/v1/queues/jobs/receive", request.clone()).await.success();
        let item = &answer["items"][0];
        for field in heavy {
            let expected = if given.contains(&field) { &[][..] } else { &[field] };
            assert_eq!(item.get(field).is_none(), !expected.is_empty(), "{request}: {item}");
        }
        assert_eq!(item["params"], json!({"a": 1}));
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn waiting_receivers_get_new_items() {
    let server = TestServer::start().await;
    server.queue("jobs", json!({})).await;
    let (received, made) = tokio::join!(
        server.post("/v1/queues/jobs/receive", json!({"wait": "5m", "max": 10})),
        server.submit("jobs", json!([{"payload": "aGk="}])),
    );
    let received = received.success();
    assert_eq!(ids(&received), [&made[0]]);
    assert_eq!(received["items"][0]["payload"], "aGk=");
    // The wait can be a number of milliseconds. Then the response is empty.
    let empty = server.post("/v1/queues/jobs/receive", json!({"wait": "20ms"})).await.success();
    assert_eq!(empty, json!({"status": "open", "items": []}));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_lease_lapses_after_the_requested_visibility_timeout() {
    let server = TestServer::start().await;
    server.queue("jobs", json!({"visibility_timeout": "5m"})).await;
    server.submit("jobs", json!([{}, {}])).await;
    let path = "/v1/queues/jobs/receive";
    let long = server.post(path, json!({"visibility_timeout": "1h"})).await.success();
    let short = server.post(path, json!({"visibility_timeout": 100})).await.success();
    let until = |answer: &Value| answer["items"][0]["lease_expires_at"].as_str().unwrap().to_owned();
    assert!(until(&long) > until(&short));
    // The lease lapses: a waiting receiver gets the item again, and the attempt counts.
    let again = server.receive("jobs").await;
    assert_eq!(again["id"], short["items"][0]["id"]);
    assert_eq!(
        (&again["attempt"], &again["retries"], &again["deliveries"]),
        (&json!(2), &json!(1), &json!(2))
    );
    let late = json!({"lease": short["items"][0]["lease"]});
    let detail = server.act(again["id"].as_str().unwrap(), "commit", late).await.problem("lease_lost");
    assert!(detail.contains("stop working"), "{detail}");
}

#[tokio::test(flavor = "multi_thread")]
async fn invalid_receives_are_refused_with_a_reason() {
    let server = TestServer::start().await;
    server.queue("jobs", json!({})).await;
    server.submit("jobs", json!([{}])).await;
    for (body, code, expected) in [
        (json!({"max": 0}), "invalid", "max"),
        (json!({"max": -1}), "invalid", "max"),
        (json!({"max": 10_001}), "invalid", "10000"),
        (json!({"max": i64::MAX}), "invalid", "max"),
        (json!({"max": 1.5}), "malformed_body", "max"),
        (json!({"wait": "5m1s"}), "invalid", "wait"),
        (json!({"wait": "5"}), "invalid", "unit"),
        (json!({"visibility_timeout": "1ms"}), "invalid", "visibility"),
        (json!({"visibility_timeout": "1000y"}), "invalid", "visibility_timeout"),
        (json!({"fields": ["inputs"]}), "invalid", "inputs"),
        (json!({"fields": "payload"}), "malformed_body", "fields"),
        (json!({"fields": vec!["blob"; 100_000]}), "invalid", "\"blob\" is given twice"),
        (json!({"fields": ["payload", "blob"]}), "invalid", "\"blob\" is given twice"),
        (json!({"maximum": 5}), "malformed_body", "maximum"),
    ] {
        let detail = server.post("/v1/queues/jobs/receive", body.clone()).await.problem(code);
        assert!(detail.contains(expected), "{body}: {detail}");
    }
    // None of these requests has changed the item.
    // A queue without slots has no buffers.
    let answer =
        server.post("/v1/queues/jobs/receive", json!({"create_output_buffers": true})).await.success();
    assert_eq!((&answer["items"][0]["deliveries"], &answer["items"][0]["outputs"]), (&json!(1), &json!({})));
}

#[tokio::test(flavor = "multi_thread")]
async fn an_empty_receive_says_what_holds_the_items_back() {
    let server = TestServer::start().await;
    for (policy, by) in [
        (json!({}), "paused"),
        (json!({"concurrency": 1}), "concurrency"),
        (json!({"rate": "1/1h"}), "rate"),
        (json!({"concurrency_per_key": 1}), "keys"),
    ] {
        server.queue(by, policy).await;
        server.submit(by, json!([{}, {}])).await;
        let path = format!("/v1/queues/{by}/receive");
        let first = server.post(&path, json!({})).await.success();
        assert_eq!(
            (&first["items"].as_array().unwrap().len(), &first["throttled"]),
            (&1, &Value::Null),
            "{by}"
        );
        if by == "paused" {
            server.post("/v1/queues/paused/pause", json!({})).await.success();
        }
        // A receive without a wait, and one whose wait is over.
        for wait in [json!({}), json!({"wait": "150ms"})] {
            let empty = server.post(&path, wait).await.success();
            assert_eq!((&empty["items"], &empty["throttled"]), (&json!([]), &json!(by)), "{empty}");
            assert_eq!(empty["until"].is_string(), by == "rate", "{empty}");
        }
    }
    server.queue("empty", json!({})).await;
    let empty = server.post("/v1/queues/empty/receive", json!({})).await.success();
    assert_eq!(empty, json!({"status": "open", "items": []}));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_wait_without_a_unit_that_may_mean_seconds_gets_a_note() {
    let server = TestServer::start().await;
    server.queue("jobs", json!({})).await;
    let receive = async |wait: Value| {
        server.post("/v1/queues/jobs/receive", json!({"wait": wait})).await.success()["notes"].clone()
    };
    let note = receive(json!(20)).await;
    assert_eq!(note, json!(["wait: the number 20 means 20 ms; write \"20s\" for seconds, or \"20ms\""]));
    for clear in [json!(0), json!(100), json!("20ms"), json!(null)] {
        assert_eq!(receive(clear.clone()).await, Value::Null, "{clear}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_receive_shows_the_lapses_and_the_ready_time_of_an_item() {
    let server = TestServer::start().await;
    server.queue("jobs", json!({"visibility_timeout": "100ms", "backoff": "none"})).await;
    server.submit("jobs", json!([{"delay": "200ms"}])).await;
    let first = server.receive("jobs").await;
    assert_eq!((&first["lapses"], &first["deliveries"]), (&json!(0), &json!(1)), "{first}");
    // The worker is silent until the lease lapses.
    let second = server.receive("jobs").await;
    assert_eq!((&second["lapses"], &second["deliveries"]), (&json!(1), &json!(2)), "{second}");
    let [created_at, ready_at] = ["created_at", "ready_at"].map(|name| first[name].as_str().unwrap());
    assert!(ready_at > created_at, "{first}");
}
