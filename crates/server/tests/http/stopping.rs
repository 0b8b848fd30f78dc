//! A server that is told to stop answers what is under way, gives nothing out, and ends within its bound.

use crate::raw::{Raw, head, request};
use crate::rig::Rig;
use serde_json::{Value, json};
use std::time::Duration;

/// Far beyond every bound: a test that gets here hangs.
const NEVER: Duration = Duration::from_secs(60);

/// Other calls have come back since: what was sent before them has been read.
async fn let_it_be_read(rig: &Rig) {
    for _ in 0..20 {
        rig.get("/healthz").await.good();
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn whoever_waits_is_answered_at_once() {
    // Longer than anybody waits here: nothing below is cut.
    let mut rig = Rig::start_with(|settings| settings.drain = NEVER * 10).await;
    rig.queue("jobs", json!({})).await;
    let id = rig.submit("jobs", json!([{"delay": "1h"}])).await.remove(0);
    let mut receivers = Vec::new();
    for _ in 0..10 {
        let mut raw = Raw::connect(rig.address).await;
        raw.send(request("POST", "/v1/queues/jobs/receive", &json!({"wait": "5m"}))).await;
        receivers.push(raw);
    }
    let mut waiting = Raw::connect(rig.address).await;
    waiting.send(format!("GET /v1/items/{id}/wait?timeout=5m HTTP/1.1\r\nhost: localhost\r\n\r\n")).await;
    let_it_be_read(&rig).await;
    rig.stop();
    let answered = async {
        for mut raw in receivers {
            assert_eq!(raw.answer().await.unwrap().good(), json!({"status": "open", "items": []}));
            raw.hung_up().await;
        }
        assert_eq!(waiting.answer().await.unwrap().good()["state"], "scheduled");
        rig.stopped().await;
    };
    tokio::time::timeout(NEVER, answered).await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn what_is_in_flight_is_answered_and_a_receive_is_told_no() {
    let mut rig = Rig::start_with(|settings| settings.drain = NEVER * 10).await;
    rig.queue("jobs", json!({})).await;
    rig.submit("jobs", json!([{}])).await;
    let submit = json!({"items": [{"params": {"last": true}}]}).to_string();
    let receive = json!({"max": 5}).to_string();
    let (mut submitter, mut receiver) = (Raw::connect(rig.address).await, Raw::connect(rig.address).await);
    submitter.send(head("POST", "/v1/queues/jobs/items", submit.len())).await;
    submitter.send(&submit[..5]).await;
    receiver.send(head("POST", "/v1/queues/jobs/receive", receive.len())).await;
    receiver.send(&receive[..5]).await;
    let_it_be_read(&rig).await;
    rig.stop();
    // Nobody else is let in; how soon is the operating system's business.
    while tokio::net::TcpStream::connect(rig.address).await.is_ok() {}
    receiver.send(&receive[5..]).await;
    let refused = receiver.answer().await.unwrap();
    refused.refused("stopping");
    assert_eq!(refused.headers["retry-after"], "1");
    submitter.send(&submit[5..]).await;
    let answer = submitter.answer().await.unwrap().good();
    let id = answer["items"][0]["id"].as_str().unwrap().to_owned();
    let rig = tokio::time::timeout(NEVER, rig.restart()).await.unwrap();
    assert_eq!(rig.item(&id).await["params"], json!({"last": true}));
    assert_eq!(rig.counts("jobs").await["pending"], 2);
}

#[tokio::test(flavor = "multi_thread")]
async fn it_ends_whatever_its_clients_do() {
    let rig = Rig::start_with(|settings| settings.drain = Duration::from_millis(300)).await;
    rig.queue("jobs", json!({})).await;
    let payload = "A".repeat(1 << 20);
    for _ in 0..20 {
        rig.submit("jobs", json!([{"payload": payload}])).await;
    }
    let mut stuck = Vec::new();
    for sent in [
        // Nothing at all, an idle connection, half a head, half a body, a body that is never begun.
        String::new(),
        "GET /healthz HTTP/1.1\r\nhost: localhost\r\n\r\n".to_owned(),
        "GET /healthz HTTP/1.1\r\nhost: loc".to_owned(),
        head("POST", "/v1/queues/jobs/items", 100) + "{\"items\":[",
        head("POST", "/v1/settle", 100),
        "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n".to_owned(),
        // Answers that nobody reads.
        "GET /v1/queues/jobs/items?fields=payload HTTP/1.1\r\nhost: localhost\r\n\r\n".to_owned(),
        "GET /v1/queues/jobs/items?fields=payload HTTP/1.1\r\nhost: localhost\r\naccept: application/x-ndjson\r\n\r\n".to_owned(),
    ] {
        let mut raw = Raw::connect(rig.address).await;
        raw.send(sent).await;
        stuck.push(raw);
    }
    let_it_be_read(&rig).await;
    // The next server can only open the store if this one has let go of it.
    let rig = tokio::time::timeout(NEVER, rig.restart()).await.unwrap();
    assert_eq!(rig.counts("jobs").await["pending"], 20);
    drop(stuck);
}

#[tokio::test(flavor = "multi_thread")]
async fn everything_acknowledged_is_there_afterwards() {
    let rig = Rig::start().await;
    rig.put("/v1/queues/jobs", json!({"schema": {"input_params": ["n"], "output_params": ["m?"]}, "policy": {"max_retries": 9, "order": "fifo"}})).await.good();
    rig.queue("other", json!({})).await;
    rig.call(http::Method::POST, "/v1/queues/other/pause", None).await.good();
    let items: Value = (0..5).map(|n| json!({"params": {"n": n}, "payload": "aGk=", "idempotency_key": format!("k{n}"), "tags": {"n": n.to_string()}})).collect();
    let ids = rig.submit("jobs", items).await;
    let held = rig.post("/v1/queues/jobs/receive", json!({"max": 4})).await.good();
    let lease = |n: usize| held["items"][n]["lease"].clone();
    rig.act(&ids[0], "commit", json!({"lease": lease(0), "output_params": {"m": 1.50}})).await.good();
    rig.act(&ids[1], "fail", json!({"lease": lease(1), "reason": "broken"})).await.good();
    rig.act(&ids[2], "defer", json!({"lease": lease(2), "delay": "1h", "set": {"state_blob": "AA=="}}))
        .await
        .good();
    let mut before = vec![rig.get("/v1/queues").await.good()];
    for id in &ids {
        before.push(rig.item(id).await);
    }
    let rig = rig.restart().await;
    let mut after = vec![rig.get("/v1/queues").await.good()];
    for id in &ids {
        after.push(rig.item(id).await);
    }
    assert_eq!(before, after);
    // Leases are as good as they were, keys are known, and settles are remembered.
    rig.act(&ids[3], "commit", json!({"lease": lease(3)})).await.good();
    assert_eq!(
        rig.act(&ids[0], "commit", json!({"lease": lease(0), "output_params": {"m": 1.50}})).await.good()["state"],
        "completed"
    );
    let again = json!({"items": [{"params": {"n": 4}, "payload": "aGk=", "idempotency_key": "k4"}]});
    assert_eq!(
        rig.post("/v1/queues/jobs/items", again).await.good()["items"][0],
        json!({"id": ids[4], "created": false})
    );
}
