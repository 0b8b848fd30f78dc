//! Buffers in the slots of items, and offloaded payloads.

use crate::test_server::TestServer;
use serde_json::{Value, json};
use std::time::Duration;
use towline_domain::Millis;

async fn with_slots() -> TestServer {
    let server = TestServer::start_with(|settings| {
        settings.collection.every = Duration::from_millis(50);
        settings.collection.grace = Millis(500);
    })
    .await;
    let queue = json!({"schema": {"inputs": ["raw?"], "outputs": ["image"]}, "policy": {"max_retries": 10}});
    server.put("/v1/queues/jobs", queue).await.success();
    server
}

/// An item with an output buffer: its id, its lease and its buffer.
async fn held(server: &TestServer) -> (String, String, String) {
    let answer =
        server.post("/v1/queues/jobs/receive", json!({"create_output_buffers": true})).await.success();
    let text = |value: &Value| value.as_str().unwrap_or_else(|| panic!("{answer}")).to_owned();
    let item = &answer["items"][0];
    (text(&item["id"]), text(&item["lease"]), text(&item["outputs"]["image"]))
}

async fn content(server: &TestServer, id: &str) -> Vec<u8> {
    let answer = server.get(&format!("/v1/buffers/{id}/content")).await;
    assert_eq!(answer.status.as_u16(), 200, "{}", String::from_utf8_lossy(&answer.body));
    answer.body.to_vec()
}

#[tokio::test(flavor = "multi_thread")]
async fn a_result_is_readable_when_the_commit_returns() {
    let server = with_slots().await;
    server.submit("jobs", json!([{}])).await;
    let (id, lease, buffer) = held(&server).await;
    server.fill(&buffer, "the image").await.success();
    server.act(&id, "commit", json!({"lease": lease})).await.success();
    assert_eq!(server.item(&id).await["outputs"], json!({"image": buffer}));
    assert_eq!(content(&server, &buffer).await, b"the image");
    server.fill(&buffer, "another").await.problem("buffer_written");
    // The buffer stays when its item is deleted.
    server.delete(&format!("/v1/items/{id}")).await;
    tokio::time::sleep(Duration::from_secs(1)).await;
    assert_eq!(content(&server, &buffer).await, b"the image");
}

#[tokio::test(flavor = "multi_thread")]
async fn buffers_of_an_uncommitted_attempt_are_removed() {
    let server = with_slots().await;
    server.submit("jobs", json!([{}])).await;
    let (id, lease, buffer) = held(&server).await;
    server.fill(&buffer, "half an image").await.success();
    server.act(&id, "release", json!({"lease": lease})).await.success();
    for path in ["", "/content", "/chunks/0"] {
        server.get(&format!("/v1/buffers/{buffer}{path}")).await.problem("buffer_not_found");
    }
    server.fill(&buffer, "late").await.problem("buffer_not_found");
    let (id, lease, next) = held(&server).await;
    assert_ne!(next, buffer);
    server.fill(&next, "all of it").await.success();
    server.act(&id, "commit", json!({"lease": lease})).await.success();
    for _ in 0..200 {
        let listed = server.get("/v1/buffers").await.success();
        if listed["buffers"].as_array().unwrap().len() == 1 {
            assert_eq!(listed["buffers"][0]["id"], next.as_str());
            return;
        }
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    panic!("never collected");
}

#[tokio::test(flavor = "multi_thread")]
async fn missing_buffers_are_refused_per_item() {
    let server = with_slots().await;
    let raw = server.buffer().await;
    let items = json!({"items": [{"inputs": {"raw": "nothing"}}, {"inputs": {"raw": raw}}, {}]});
    let answer = server.post("/v1/queues/jobs/items", items).await.success();
    assert_eq!(answer["items"][0]["error"]["code"], "buffer_not_found");
    assert!(answer["items"][0]["error"]["message"].as_str().unwrap().contains("inputs.raw"), "{answer}");
    assert!(answer["items"][1]["created"] == true && answer["items"][2]["created"] == true, "{answer}");
    let (id, lease, _) = held(&server).await;
    let commit = |buffer: &str| json!({"lease": lease, "outputs": {"image": buffer}});
    server.act(&id, "commit", commit("nothing")).await.problem("buffer_not_found");
    let empty = server.post("/v1/buffers", json!({})).await.success()["id"].as_str().unwrap().to_owned();
    server.act(&id, "commit", commit(&empty)).await.problem("buffer_not_ready");
    server.act(&id, "commit", commit(&raw)).await.success();
}

#[tokio::test(flavor = "multi_thread")]
async fn an_offloaded_payload_is_returned_unchanged() {
    let server = TestServer::start().await;
    server.queue("jobs", json!({})).await;
    for size in [1000, 65_536, 65_537, 3_000_000] {
        let payload = "QUJD".repeat(size / 3);
        let id = server.submit("jobs", json!([{"payload": payload, "metadata": "YQ=="}])).await.remove(0);
        assert_eq!(server.item(&id).await["payload"], payload.as_str());
        let item = server.receive("jobs").await;
        assert_eq!((&item["payload"], &item["metadata"]), (&json!(payload), &json!("YQ==")));
        let lease = item["lease"].as_str().unwrap();
        let retry =
            json!({"lease": lease, "delay": 0, "set": {"payload": "c21hbGw="}, "unset": ["metadata"]});
        server.act(&id, "retry", retry).await.success();
        let item = server.receive("jobs").await;
        assert_eq!(item["payload"], "c21hbGw=");
        let lease = item["lease"].as_str().unwrap();
        server
            .act(&id, "retry", json!({"lease": lease, "delay": 0, "set": {"state_blob": payload}}))
            .await
            .success();
        let item = server.receive("jobs").await;
        assert_eq!(item["state_blob"], payload.as_str());
        let page = server.get("/v1/queues/jobs/items?state=processing&fields=state_blob").await.success();
        assert_eq!(page["items"][0]["state_blob"], payload.as_str());
        server.act(&id, "commit", json!({"lease": item["lease"]})).await.success();
    }
}
