//! HTTP/1.1 on one connection: keep-alive and pipelining.

use crate::raw::{Raw, head_that_asks, request};
use crate::test_server::TestServer;
use serde_json::json;

#[tokio::test(flavor = "multi_thread")]
async fn a_connection_stays_open_after_every_kind_of_response() {
    let server = TestServer::start().await;
    let mut raw = Raw::connect(server.address).await;
    for _ in 0..3 {
        raw.send(request("PUT", "/v1/queues/jobs", &json!({}))).await;
        raw.answer().await.unwrap().success();
        raw.send(request("POST", "/v1/queues/jobs/items", &json!({"items": [{}]}))).await;
        raw.answer().await.unwrap().success();
        raw.send(request("POST", "/v1/queues/jobs/items", &json!({"items": 5}))).await;
        raw.answer().await.unwrap().problem("malformed_body");
        raw.send(request("POST", "/v1/nothing", &json!({}))).await;
        raw.answer().await.unwrap().problem("route_not_found");
        raw.send("DELETE /v1/queues/jobs?force=true HTTP/1.1\r\nhost: localhost\r\n\r\n").await;
        assert_eq!(raw.answer().await.unwrap().status.as_u16(), 204);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn pipelined_requests_are_answered_in_order() {
    let server = TestServer::start().await;
    server.queue("jobs", json!({"order": "fifo"})).await;
    let mut raw = Raw::connect(server.address).await;
    let submit =
        |n: usize| request("POST", "/v1/queues/jobs/items", &json!({"items": [{"params": {"n": n}}]}));
    let receive = request("POST", "/v1/queues/jobs/receive", &json!({"wait": "5m"}));
    let mut ahead: String = (0..20).map(submit).collect();
    ahead.extend((0..20).map(|_| receive.as_str()));
    raw.send(ahead).await;
    for _ in 0..20 {
        assert_eq!(raw.answer().await.unwrap().success()["items"][0]["created"], true);
    }
    for n in 0..20 {
        assert_eq!(raw.answer().await.unwrap().success()["items"][0]["params"]["n"], n);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_client_that_expects_continue_gets_it() {
    let server = TestServer::start().await;
    server.queue("jobs", json!({})).await;
    let body = json!({"items": [{}]}).to_string();
    let head = head_that_asks("POST", "/v1/queues/jobs/items", body.len());
    let mut raw = Raw::connect(server.address).await;
    raw.send(head).await;
    assert_eq!(raw.answer().await.unwrap().status.as_u16(), 100);
    raw.send(body).await;
    raw.answer().await.unwrap().success();
}
