//! The trace context of an item, from its submitter to its receiver.

use crate::test_server::{TestResponse, TestServer};
use bytes::Bytes;
use http::Request;
use http_body_util::Full;
use serde_json::{Value, json};

const FIRST: &str = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01";
const SECOND: &str = "00-11111111111111111111111111111111-2222222222222222-00";

async fn submit(server: &TestServer, headers: &[(&str, &str)], body: Value) -> TestResponse {
    let mut request = Request::post(format!("{}/v1/queues/jobs/items", server.url()))
        .header("content-type", "application/json");
    for (name, value) in headers {
        request = request.header(*name, *value);
    }
    server.send(request.body(Full::new(Bytes::from(body.to_string()))).unwrap()).await
}

#[tokio::test(flavor = "multi_thread")]
async fn the_receiver_gets_the_trace_of_the_submit() {
    let server = TestServer::start().await;
    server.queue("jobs", json!({})).await;
    let headers = [("traceparent", FIRST), ("tracestate", "rojo=1"), ("tracestate", "congo=2")];
    let own = json!({"trace": {"traceparent": SECOND}});
    let answer = submit(&server, &headers, json!({"items": [{}, own]})).await.success();
    let first = json!({"traceparent": FIRST, "tracestate": "rojo=1,congo=2"});
    for (at, trace) in [(0, first), (1, json!({"traceparent": SECOND}))] {
        let item = server.receive("jobs").await;
        assert_eq!(item["id"], answer["items"][at]["id"]);
        assert_eq!(item["trace"], trace, "the trace of the item overrides the headers");
        assert_eq!(server.item(item["id"].as_str().unwrap()).await["trace"], trace);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn invalid_trace_headers_are_ignored() {
    let server = TestServer::start().await;
    server.queue("jobs", json!({})).await;
    let with = |name: &'static str, value: &'static str| vec![(name, value)];
    for headers in [
        vec![],
        with("traceparent", "nonsense"),
        with("traceparent", "00-00000000000000000000000000000000-00f067aa0ba902b7-01"),
        with("tracestate", "rojo=1"),
        vec![("traceparent", FIRST), ("traceparent", SECOND)],
    ] {
        submit(&server, &headers, json!({"items": [{}]})).await.success();
        assert_eq!(server.receive("jobs").await.get("trace"), None, "{headers:?}");
    }
    submit(&server, &[("traceparent", FIRST), ("tracestate", "NO STATE")], json!({"items": [{}]}))
        .await
        .success();
    assert_eq!(server.receive("jobs").await["trace"], json!({"traceparent": FIRST}));
}

#[tokio::test(flavor = "multi_thread")]
async fn an_invalid_trace_field_is_refused_with_a_reason() {
    let server = TestServer::start().await;
    server.queue("jobs", json!({})).await;
    let items = json!([
        {"trace": {"traceparent": "00-1-2-3"}},
        {"trace": {"traceparent": FIRST, "tracestate": "a=1,a=2"}},
        {"trace": {"traceparent": FIRST}},
    ]);
    let answer = submit(&server, &[], json!({"items": items})).await.success();
    let message = |at: usize| answer["items"][at]["error"]["message"].as_str().unwrap_or("").to_owned();
    assert!(message(0).contains("trace.traceparent") && message(0).contains("00-1-2-3"), "{}", message(0));
    assert!(message(1).contains("trace.tracestate") && message(1).contains("twice"), "{}", message(1));
    assert!(answer["items"][2]["id"].is_string(), "{answer}");
    let unknown = json!({"items": [{"trace": {"traceparent": FIRST, "parent": 1}}]});
    let answer = submit(&server, &[], unknown).await.success();
    assert_eq!(answer["items"][0]["error"]["code"], "malformed_body");
    let schedule = json!({"queue": "jobs", "every": "1h", "item": {"trace": {"traceparent": FIRST}}});
    let refused = server.put("/v1/schedules/hourly", schedule).await.problem("invalid");
    assert!(refused.contains("item.trace"), "{refused}");
}
