//! Waiting for an item to end.

use crate::rig::Rig;
use serde_json::json;
use std::sync::Arc;

#[tokio::test(flavor = "multi_thread")]
async fn until_it_has_ended() {
    let rig = Rig::start().await;
    rig.queue("jobs", json!({})).await;
    let (id, lease) = rig.hold("jobs").await;
    let path = format!("/v1/items/{id}/wait?timeout=5m");
    let commit = json!({"lease": lease, "output_params": {"answer": 42}});
    let (waited, _) = tokio::join!(rig.get(&path), rig.act(&id, "commit", commit));
    let waited = waited.good();
    assert_eq!((&waited["state"], &waited["output_params"]), (&json!("completed"), &json!({"answer": 42})));
    // What has ended is shown at once.
    assert_eq!(rig.get(&path).await.good(), waited);
}

#[tokio::test(flavor = "multi_thread")]
async fn until_the_time_is_over() {
    let rig = Rig::start().await;
    rig.queue("jobs", json!({})).await;
    let id = rig.submit("jobs", json!([{}])).await.remove(0);
    for timeout in ["0", "0s", "20", "20ms"] {
        assert_eq!(
            rig.get(&format!("/v1/items/{id}/wait?timeout={timeout}")).await.good()["state"],
            "pending"
        );
    }
    for timeout in ["5m1s", "300001", "soon", "-1", ""] {
        let detail = rig.get(&format!("/v1/items/{id}/wait?timeout={timeout}")).await.refused("invalid");
        assert!(detail.contains("timeout"), "{detail}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn through_attempts_that_fail() {
    let rig = Arc::new(Rig::start().await);
    rig.queue("jobs", json!({"max_retries": 10_000})).await;
    let id = rig.submit("jobs", json!([{}])).await.remove(0);
    let path = format!("/v1/items/{id}/wait?timeout=5m");
    let waiting = tokio::spawn({
        let rig = Arc::clone(&rig);
        async move { rig.get(&path).await.good() }
    });
    for _ in 0..50 {
        let lease = rig.receive("jobs").await["lease"].clone();
        rig.act(&id, "release", json!({"lease": lease})).await.good();
    }
    assert!(!waiting.is_finished());
    let lease = rig.receive("jobs").await["lease"].clone();
    rig.act(&id, "commit", json!({"lease": lease})).await.good();
    assert_eq!(waiting.await.unwrap()["state"], "completed");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_purge_or_a_deletion_ends_the_waiting() {
    let rig = Rig::start().await;
    rig.queue("jobs", json!({})).await;
    let id = rig.submit("jobs", json!([{}])).await.remove(0);
    let path = format!("/v1/items/{id}/wait?timeout=5m");
    let item = format!("/v1/items/{id}");
    let (waited, _) = tokio::join!(rig.get(&path), rig.delete(&item));
    waited.refused("item_not_found");
    let id = rig.submit("jobs", json!([{}])).await.remove(0);
    let path = format!("/v1/items/{id}/wait?timeout=5m");
    let (waited, _) = tokio::join!(rig.get(&path), rig.delete("/v1/queues/jobs/items?state=pending"));
    waited.refused("item_not_found");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_purge_that_completes_a_queue_is_told_to_whoever_waits_for_its_items() {
    let rig = Rig::start().await;
    rig.queue("jobs", json!({})).await;
    rig.submit("jobs", json!([{"delay": "1h"}])).await;
    rig.call(http::Method::POST, "/v1/queues/jobs/close", None).await.good();
    let (received, _) = tokio::join!(
        rig.post("/v1/queues/jobs/receive", json!({"wait": "5m"})),
        rig.delete("/v1/queues/jobs/items?state=all"),
    );
    assert_eq!(received.good(), json!({"status": "completed", "items": []}));
}
