//! HTTP/1.1 on one connection: kept alive, and written ahead of the answers.

use crate::raw::{Raw, head_that_asks, request};
use crate::rig::Rig;
use serde_json::json;

#[tokio::test(flavor = "multi_thread")]
async fn it_is_kept_alive_after_answers_of_every_kind() {
    let rig = Rig::start().await;
    let mut raw = Raw::connect(rig.address).await;
    for _ in 0..3 {
        raw.send(request("PUT", "/v1/queues/jobs", &json!({}))).await;
        raw.answer().await.unwrap().good();
        raw.send(request("POST", "/v1/queues/jobs/items", &json!({"items": [{}]}))).await;
        raw.answer().await.unwrap().good();
        raw.send(request("POST", "/v1/queues/jobs/items", &json!({"items": 5}))).await;
        raw.answer().await.unwrap().refused("malformed_body");
        raw.send(request("POST", "/v1/nothing", &json!({}))).await;
        raw.answer().await.unwrap().refused("route_not_found");
        raw.send("DELETE /v1/queues/jobs?force=true HTTP/1.1\r\nhost: localhost\r\n\r\n").await;
        assert_eq!(raw.answer().await.unwrap().status.as_u16(), 204);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn requests_written_ahead_are_answered_in_order() {
    let rig = Rig::start().await;
    rig.queue("jobs", json!({"order": "fifo"})).await;
    let mut raw = Raw::connect(rig.address).await;
    let submit =
        |n: usize| request("POST", "/v1/queues/jobs/items", &json!({"items": [{"params": {"n": n}}]}));
    let receive = request("POST", "/v1/queues/jobs/receive", &json!({"wait": "5m"}));
    let mut ahead: String = (0..20).map(submit).collect();
    ahead.extend((0..20).map(|_| receive.as_str()));
    raw.send(ahead).await;
    for _ in 0..20 {
        assert_eq!(raw.answer().await.unwrap().good()["items"][0]["created"], true);
    }
    for n in 0..20 {
        assert_eq!(raw.answer().await.unwrap().good()["items"][0]["params"]["n"], n);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn whoever_asks_first_is_told_to_go_on() {
    let rig = Rig::start().await;
    rig.queue("jobs", json!({})).await;
    let body = json!({"items": [{}]}).to_string();
    let head = head_that_asks("POST", "/v1/queues/jobs/items", body.len());
    let mut raw = Raw::connect(rig.address).await;
    raw.send(head).await;
    assert_eq!(raw.answer().await.unwrap().status.as_u16(), 100);
    raw.send(body).await;
    raw.answer().await.unwrap().good();
}
