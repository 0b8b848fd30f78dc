//! A stopping server finishes requests in progress, delivers no items, and ends within its limit.

use crate::raw::{Raw, head, request};
use crate::test_server::TestServer;
use serde_json::{Value, json};
use std::time::Duration;

/// Far above every limit of the server: a test that reaches it hangs.
const NEVER: Duration = Duration::from_secs(60);

/// Other requests complete, so the server has read what was sent before them.
async fn let_it_be_read(server: &TestServer) {
    for _ in 0..20 {
        server.get("/healthz").await.success();
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn waiting_requests_return_when_the_server_stops() {
    // Longer than any wait in this test, so that no connection is cut.
    let mut server = TestServer::start_with(|settings| settings.drain = NEVER * 10).await;
    server.queue("jobs", json!({})).await;
    let id = server.submit("jobs", json!([{"delay": "1h"}])).await.remove(0);
    let mut receivers = Vec::new();
    for _ in 0..10 {
        let mut raw = Raw::connect(server.address).await;
        raw.send(request("POST", "/v1/queues/jobs/receive", &json!({"wait": "5m"}))).await;
        receivers.push(raw);
    }
    let mut waiting = Raw::connect(server.address).await;
    waiting.send(format!("GET /v1/items/{id}/wait?timeout=5m HTTP/1.1\r\nhost: localhost\r\n\r\n")).await;
    let_it_be_read(&server).await;
    server.stop();
    let answered = async {
        for mut raw in receivers {
            assert_eq!(raw.answer().await.unwrap().success(), json!({"status": "open", "items": []}));
            raw.hung_up().await;
        }
        assert_eq!(waiting.answer().await.unwrap().success()["state"], "scheduled");
        server.stopped().await;
    };
    tokio::time::timeout(NEVER, answered).await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_stopping_server_finishes_requests_and_refuses_receives() {
    let mut server = TestServer::start_with(|settings| settings.drain = NEVER * 10).await;
    server.queue("jobs", json!({})).await;
    server.submit("jobs", json!([{}])).await;
    let submit = json!({"items": [{"params": {"last": true}}]}).to_string();
    let receive = json!({"max": 5}).to_string();
    let (mut submitter, mut receiver) =
        (Raw::connect(server.address).await, Raw::connect(server.address).await);
    submitter.send(head("POST", "/v1/queues/jobs/items", submit.len())).await;
    submitter.send(&submit[..5]).await;
    receiver.send(head("POST", "/v1/queues/jobs/receive", receive.len())).await;
    receiver.send(&receive[..5]).await;
    let_it_be_read(&server).await;
    server.stop();
    // New connections are refused. How soon depends on the operating system.
    while tokio::net::TcpStream::connect(server.address).await.is_ok() {}
    receiver.send(&receive[5..]).await;
    let refused = receiver.answer().await.unwrap();
    refused.problem("stopping");
    assert_eq!(refused.headers["retry-after"], "1");
    submitter.send(&submit[5..]).await;
    let answer = submitter.answer().await.unwrap().success();
    let id = answer["items"][0]["id"].as_str().unwrap().to_owned();
    let server = tokio::time::timeout(NEVER, server.restart()).await.unwrap();
    assert_eq!(server.item(&id).await["params"], json!({"last": true}));
    assert_eq!(server.counts("jobs").await["pending"], 2);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_stopping_server_ends_whatever_its_clients_do() {
    let server = TestServer::start_with(|settings| settings.drain = Duration::from_millis(300)).await;
    server.queue("jobs", json!({})).await;
    let payload = "A".repeat(1 << 20);
    for _ in 0..20 {
        server.submit("jobs", json!([{"payload": payload}])).await;
    }
    let mut stuck = Vec::new();
    for sent in [
        // Nothing at all, an idle connection, half a head, half a body, a body that never starts.
        String::new(),
        "GET /healthz HTTP/1.1\r\nhost: localhost\r\n\r\n".to_owned(),
        "GET /healthz HTTP/1.1\r\nhost: loc".to_owned(),
        head("POST", "/v1/queues/jobs/items", 100) + "{\"items\":[",
        head("POST", "/v1/settle", 100),
        "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n".to_owned(),
        // Responses that the client does not read.
        "GET /v1/queues/jobs/items?fields=payload HTTP/1.1\r\nhost: localhost\r\n\r\n".to_owned(),
        "GET /v1/queues/jobs/items?fields=payload HTTP/1.1\r\nhost: localhost\r\naccept: application/x-ndjson\r\n\r\n".to_owned(),
    ] {
        let mut raw = Raw::connect(server.address).await;
        raw.send(sent).await;
        stuck.push(raw);
    }
    let_it_be_read(&server).await;
    // The next server can only open the store if this one has released it.
    let server = tokio::time::timeout(NEVER, server.restart()).await.unwrap();
    assert_eq!(server.counts("jobs").await["pending"], 20);
    drop(stuck);
}

#[tokio::test(flavor = "multi_thread")]
async fn acknowledged_work_survives_a_restart() {
    let server = TestServer::start().await;
    server.put("/v1/queues/jobs", json!({"schema": {"input_params": ["n"], "output_params": ["m?"]}, "policy": {"max_retries": 9, "order": "fifo"}})).await.success();
    server.queue("other", json!({})).await;
    server.call(http::Method::POST, "/v1/queues/other/pause", None).await.success();
    let items: Value = (0..5).map(|n| json!({"params": {"n": n}, "payload": "aGk=", "idempotency_key": format!("k{n}"), "tags": {"n": n.to_string()}})).collect();
    let ids = server.submit("jobs", items).await;
    let held = server.post("/v1/queues/jobs/receive", json!({"max": 4})).await.success();
    let lease = |n: usize| held["items"][n]["lease"].clone();
    server.act(&ids[0], "commit", json!({"lease": lease(0), "output_params": {"m": 1.50}})).await.success();
    server.act(&ids[1], "fail", json!({"lease": lease(1), "reason": "broken"})).await.success();
    server
        .act(&ids[2], "defer", json!({"lease": lease(2), "delay": "1h", "set": {"state_blob": "AA=="}}))
        .await
        .success();
    let mut before = vec![server.get("/v1/queues").await.success()];
    for id in &ids {
        before.push(server.item(id).await);
    }
    let server = server.restart().await;
    let mut after = vec![server.get("/v1/queues").await.success()];
    for id in &ids {
        after.push(server.item(id).await);
    }
    assert_eq!(before, after);
    // Leases stay valid, idempotency keys are known, and repeated settles get the same response.
    server.act(&ids[3], "commit", json!({"lease": lease(3)})).await.success();
    assert_eq!(
        server
            .act(&ids[0], "commit", json!({"lease": lease(0), "output_params": {"m": 1.50}}))
            .await
            .success()["state"],
        "completed"
    );
    let again = json!({"items": [{"params": {"n": 4}, "payload": "aGk=", "idempotency_key": "k4"}]});
    assert_eq!(
        server.post("/v1/queues/jobs/items", again).await.success()["items"][0],
        json!({"id": ids[4], "created": false})
    );
}
