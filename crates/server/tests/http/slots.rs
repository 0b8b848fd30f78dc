//! Buffers in the slots of items, and payloads that are kept where buffers are.

use crate::rig::Rig;
use serde_json::{Value, json};
use std::time::Duration;
use towline_domain::Millis;

async fn with_slots() -> Rig {
    let rig = Rig::start_with(|settings| {
        settings.collection.every = Duration::from_millis(50);
        settings.collection.grace = Millis(500);
    })
    .await;
    let queue = json!({"schema": {"inputs": ["raw?"], "outputs": ["image"]}, "policy": {"max_retries": 10}});
    rig.put("/v1/queues/jobs", queue).await.good();
    rig
}

/// An item with a buffer made for its output: id, lease, buffer.
async fn held(rig: &Rig) -> (String, String, String) {
    let answer = rig.post("/v1/queues/jobs/receive", json!({"create_output_buffers": true})).await.good();
    let text = |value: &Value| value.as_str().unwrap_or_else(|| panic!("{answer}")).to_owned();
    let item = &answer["items"][0];
    (text(&item["id"]), text(&item["lease"]), text(&item["outputs"]["image"]))
}

async fn content(rig: &Rig, id: &str) -> Vec<u8> {
    let answer = rig.get(&format!("/v1/buffers/{id}/content")).await;
    assert_eq!(answer.status.as_u16(), 200, "{}", String::from_utf8_lossy(&answer.body));
    answer.body.to_vec()
}

#[tokio::test(flavor = "multi_thread")]
async fn a_result_is_readable_from_the_moment_the_commit_is_answered() {
    let rig = with_slots().await;
    rig.submit("jobs", json!([{}])).await;
    let (id, lease, buffer) = held(&rig).await;
    rig.fill(&buffer, "the image").await.good();
    rig.act(&id, "commit", json!({"lease": lease})).await.good();
    assert_eq!(rig.item(&id).await["outputs"], json!({"image": buffer}));
    assert_eq!(content(&rig, &buffer).await, b"the image");
    rig.fill(&buffer, "another").await.refused("buffer_written");
    // It stays when its item goes.
    rig.delete(&format!("/v1/items/{id}")).await;
    tokio::time::sleep(Duration::from_secs(1)).await;
    assert_eq!(content(&rig, &buffer).await, b"the image");
}

#[tokio::test(flavor = "multi_thread")]
async fn what_an_attempt_left_is_gone_when_it_ends_without_a_commit() {
    let rig = with_slots().await;
    rig.submit("jobs", json!([{}])).await;
    let (id, lease, buffer) = held(&rig).await;
    rig.fill(&buffer, "half an image").await.good();
    rig.act(&id, "release", json!({"lease": lease})).await.good();
    for path in ["", "/content", "/chunks/0"] {
        rig.get(&format!("/v1/buffers/{buffer}{path}")).await.refused("buffer_not_found");
    }
    rig.fill(&buffer, "late").await.refused("buffer_not_found");
    let (id, lease, next) = held(&rig).await;
    assert_ne!(next, buffer);
    rig.fill(&next, "all of it").await.good();
    rig.act(&id, "commit", json!({"lease": lease})).await.good();
    for _ in 0..200 {
        let listed = rig.get("/v1/buffers").await.good();
        if listed["buffers"].as_array().unwrap().len() == 1 {
            assert_eq!(listed["buffers"][0]["id"], next.as_str());
            return;
        }
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    panic!("never collected");
}

#[tokio::test(flavor = "multi_thread")]
async fn buffers_that_are_not_there_are_refused_one_by_one() {
    let rig = with_slots().await;
    let raw = rig.buffer().await;
    let items = json!({"items": [{"inputs": {"raw": "nothing"}}, {"inputs": {"raw": raw}}, {}]});
    let answer = rig.post("/v1/queues/jobs/items", items).await.good();
    assert_eq!(answer["items"][0]["error"]["code"], "buffer_not_found");
    assert!(answer["items"][0]["error"]["message"].as_str().unwrap().contains("inputs.raw"), "{answer}");
    assert!(answer["items"][1]["created"] == true && answer["items"][2]["created"] == true, "{answer}");
    let (id, lease, _) = held(&rig).await;
    let commit = |buffer: &str| json!({"lease": lease, "outputs": {"image": buffer}});
    rig.act(&id, "commit", commit("nothing")).await.refused("buffer_not_found");
    let empty = rig.post("/v1/buffers", json!({})).await.good()["id"].as_str().unwrap().to_owned();
    rig.act(&id, "commit", commit(&empty)).await.refused("buffer_not_ready");
    rig.act(&id, "commit", commit(&raw)).await.good();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_large_payload_is_the_same_wherever_it_is_kept() {
    let rig = Rig::start().await;
    rig.queue("jobs", json!({})).await;
    for size in [1000, 65_536, 65_537, 3_000_000] {
        let payload = "QUJD".repeat(size / 3);
        let id = rig.submit("jobs", json!([{"payload": payload, "metadata": "YQ=="}])).await.remove(0);
        assert_eq!(rig.item(&id).await["payload"], payload.as_str());
        let item = rig.receive("jobs").await;
        assert_eq!((&item["payload"], &item["metadata"]), (&json!(payload), &json!("YQ==")));
        let lease = item["lease"].as_str().unwrap();
        let retry =
            json!({"lease": lease, "delay": 0, "set": {"payload": "c21hbGw="}, "unset": ["metadata"]});
        rig.act(&id, "retry", retry).await.good();
        let item = rig.receive("jobs").await;
        assert_eq!(item["payload"], "c21hbGw=");
        let lease = item["lease"].as_str().unwrap();
        rig.act(&id, "retry", json!({"lease": lease, "delay": 0, "set": {"state_blob": payload}}))
            .await
            .good();
        let item = rig.receive("jobs").await;
        assert_eq!(item["state_blob"], payload.as_str());
        let page = rig.get("/v1/queues/jobs/items?state=processing&fields=state_blob").await.good();
        assert_eq!(page["items"][0]["state_blob"], payload.as_str());
        rig.act(&id, "commit", json!({"lease": item["lease"]})).await.good();
    }
}
