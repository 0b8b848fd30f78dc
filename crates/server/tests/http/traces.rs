//! The trace of an item: from its submitter to its receiver.

use crate::rig::{Answer, Rig};
use bytes::Bytes;
use http::Request;
use http_body_util::Full;
use serde_json::{Value, json};

const FIRST: &str = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01";
const SECOND: &str = "00-11111111111111111111111111111111-2222222222222222-00";

async fn submit(rig: &Rig, headers: &[(&str, &str)], body: Value) -> Answer {
    let mut request = Request::post(format!("{}/v1/queues/jobs/items", rig.url()))
        .header("content-type", "application/json");
    for (name, value) in headers {
        request = request.header(*name, *value);
    }
    rig.send(request.body(Full::new(Bytes::from(body.to_string()))).unwrap()).await
}

#[tokio::test(flavor = "multi_thread")]
async fn the_trace_of_a_submit_goes_to_the_receiver() {
    let rig = Rig::start().await;
    rig.queue("jobs", json!({})).await;
    let headers = [("traceparent", FIRST), ("tracestate", "rojo=1"), ("tracestate", "congo=2")];
    let own = json!({"trace": {"traceparent": SECOND}});
    let answer = submit(&rig, &headers, json!({"items": [{}, own]})).await.good();
    let first = json!({"traceparent": FIRST, "tracestate": "rojo=1,congo=2"});
    for (at, trace) in [(0, first), (1, json!({"traceparent": SECOND}))] {
        let item = rig.receive("jobs").await;
        assert_eq!(item["id"], answer["items"][at]["id"]);
        assert_eq!(item["trace"], trace, "what the item says itself is what counts");
        assert_eq!(rig.item(item["id"].as_str().unwrap()).await["trace"], trace);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn headers_that_are_no_trace_are_ignored() {
    let rig = Rig::start().await;
    rig.queue("jobs", json!({})).await;
    let with = |name: &'static str, value: &'static str| vec![(name, value)];
    for headers in [
        vec![],
        with("traceparent", "nonsense"),
        with("traceparent", "00-00000000000000000000000000000000-00f067aa0ba902b7-01"),
        with("tracestate", "rojo=1"),
        vec![("traceparent", FIRST), ("traceparent", SECOND)],
    ] {
        submit(&rig, &headers, json!({"items": [{}]})).await.good();
        assert_eq!(rig.receive("jobs").await.get("trace"), None, "{headers:?}");
    }
    submit(&rig, &[("traceparent", FIRST), ("tracestate", "NO STATE")], json!({"items": [{}]})).await.good();
    assert_eq!(rig.receive("jobs").await["trace"], json!({"traceparent": FIRST}));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_field_that_is_no_trace_is_refused_in_words() {
    let rig = Rig::start().await;
    rig.queue("jobs", json!({})).await;
    let items = json!([
        {"trace": {"traceparent": "00-1-2-3"}},
        {"trace": {"traceparent": FIRST, "tracestate": "a=1,a=2"}},
        {"trace": {"traceparent": FIRST}},
    ]);
    let answer = submit(&rig, &[], json!({"items": items})).await.good();
    let said = |at: usize| answer["items"][at]["error"]["message"].as_str().unwrap_or("").to_owned();
    assert!(said(0).contains("trace.traceparent") && said(0).contains("00-1-2-3"), "{}", said(0));
    assert!(said(1).contains("trace.tracestate") && said(1).contains("twice"), "{}", said(1));
    assert!(answer["items"][2]["id"].is_string(), "{answer}");
    let unknown = json!({"items": [{"trace": {"traceparent": FIRST, "parent": 1}}]});
    submit(&rig, &[], unknown).await.refused("malformed_body");
    let schedule = json!({"queue": "jobs", "every": "1h", "item": {"trace": {"traceparent": FIRST}}});
    let refused = rig.put("/v1/schedules/hourly", schedule).await.refused("invalid");
    assert!(refused.contains("item.trace"), "{refused}");
}
