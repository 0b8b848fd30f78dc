//! Waiting for an item to become terminal.

use crate::test_server::TestServer;
use serde_json::json;
use std::sync::Arc;

#[tokio::test(flavor = "multi_thread")]
async fn a_wait_returns_when_the_item_is_terminal() {
    let server = TestServer::start().await;
    server.queue("jobs", json!({})).await;
    let (id, lease) = server.hold("jobs").await;
    let path = format!("/v1/items/{id}/wait?timeout=5m");
    let commit = json!({"lease": lease, "output_params": {"answer": 42}});
    let (waited, _) = tokio::join!(server.get(&path), server.act(&id, "commit", commit));
    let waited = waited.success();
    assert_eq!((&waited["state"], &waited["output_params"]), (&json!("completed"), &json!({"answer": 42})));
    // A terminal item is returned at once.
    assert_eq!(server.get(&path).await.success(), waited);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_wait_returns_at_its_timeout() {
    let server = TestServer::start().await;
    server.queue("jobs", json!({})).await;
    let id = server.submit("jobs", json!([{}])).await.remove(0);
    for timeout in ["0", "0s", "100", "20ms"] {
        assert_eq!(
            server.get(&format!("/v1/items/{id}/wait?timeout={timeout}")).await.success()["state"],
            "pending"
        );
    }
    for timeout in ["5m1s", "300001", "20", "soon", "-1", ""] {
        let detail = server.get(&format!("/v1/items/{id}/wait?timeout={timeout}")).await.problem("invalid");
        assert!(detail.contains("timeout"), "{detail}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn an_item_fails_after_its_attempts() {
    let server = Arc::new(TestServer::start().await);
    server.queue("jobs", json!({"max_retries": 10_000})).await;
    let id = server.submit("jobs", json!([{}])).await.remove(0);
    let path = format!("/v1/items/{id}/wait?timeout=5m");
    let waiting = tokio::spawn({
        let server = Arc::clone(&server);
        async move { server.get(&path).await.success() }
    });
    for _ in 0..50 {
        let lease = server.receive("jobs").await["lease"].clone();
        server.act(&id, "release", json!({"lease": lease})).await.success();
    }
    assert!(!waiting.is_finished());
    let lease = server.receive("jobs").await["lease"].clone();
    server.act(&id, "commit", json!({"lease": lease})).await.success();
    assert_eq!(waiting.await.unwrap()["state"], "completed");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_purge_or_a_deletion_wakes_waiters_of_its_items() {
    let server = TestServer::start().await;
    server.queue("jobs", json!({})).await;
    let id = server.submit("jobs", json!([{}])).await.remove(0);
    let path = format!("/v1/items/{id}/wait?timeout=5m");
    let item = format!("/v1/items/{id}");
    let (waited, _) = tokio::join!(server.get(&path), server.delete(&item));
    waited.problem("item_not_found");
    let id = server.submit("jobs", json!([{}])).await.remove(0);
    let path = format!("/v1/items/{id}/wait?timeout=5m");
    let (waited, _) = tokio::join!(server.get(&path), server.delete("/v1/queues/jobs/items?state=pending"));
    waited.problem("item_not_found");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_purge_that_completes_a_queue_wakes_its_waiting_receivers() {
    let server = TestServer::start().await;
    server.queue("jobs", json!({})).await;
    server.submit("jobs", json!([{"delay": "1h"}])).await;
    server.call(http::Method::POST, "/v1/queues/jobs/close", None).await.success();
    let (received, _) = tokio::join!(
        server.post("/v1/queues/jobs/receive", json!({"wait": "5m"})),
        server.delete("/v1/queues/jobs/items?state=all"),
    );
    assert_eq!(received.success(), json!({"status": "completed", "items": []}));
}
