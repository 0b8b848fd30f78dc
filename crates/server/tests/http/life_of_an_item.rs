//! An item from submit to its end, in the shapes that scripts rely on.

use crate::test_server::TestServer;
use serde_json::json;

#[tokio::test(flavor = "multi_thread")]
async fn an_item_is_submitted_received_committed_and_shown() {
    let server = TestServer::start().await;
    let queue = json!({"schema": {"inputs": ["raw"], "outputs": ["image?"], "input_params": ["level"], "output_params": ["quality?"]},
        "policy": {"visibility_timeout": "1m", "max_retries": 10_000}});
    let made = server.put("/v1/queues/jobs", queue.clone()).await.success();
    assert_eq!(made["state"], "open");
    assert_eq!(made["policy"]["visibility_timeout"], "1m");
    server.put("/v1/queues/jobs", queue).await.success();

    let (raw, image) = (server.buffer().await, server.buffer().await);
    let item = json!({"inputs": {"raw": raw}, "params": {"level": [1, {"a": 2.50}]}, "priority": -3, "tags": {"team": "mri"}, "payload": "aGVsbG8="});
    let answer = server
        .post("/v1/queues/jobs/items", json!({"items": [item, {"params": {"level": 1}}]}))
        .await
        .success();
    assert_eq!(answer["items"][0]["created"], true);
    assert_eq!(answer["items"][1]["error"]["code"], "schema_mismatch");
    let id = answer["items"][0]["id"].as_str().unwrap().to_owned();

    let received = server.post("/v1/queues/jobs/receive", json!({"max": 10})).await.success();
    assert_eq!(received["status"], "open");
    let item = &received["items"][0];
    assert_eq!(item["id"], id.as_str());
    assert_eq!((&item["attempt"], &item["retries"]), (&json!(1), &json!(0)));
    assert_eq!(item["inputs"], json!({"raw": raw}));
    assert_eq!(item["outputs"], json!({}));
    assert_eq!(item["params"], json!({"level": [1, {"a": 2.50}]}));
    assert_eq!(item["payload"], "aGVsbG8=");

    let lease = item["lease"].as_str().unwrap();
    let beat = server.post(&format!("/v1/items/{id}/heartbeat"), json!({"lease": lease})).await.success();
    assert_eq!(beat["state"], "processing");
    let commit = json!({"lease": lease, "outputs": {"image": image}, "output_params": {"quality": 0.9}});
    let settled = server.post(&format!("/v1/items/{id}/commit"), commit.clone()).await.success();
    assert_eq!(settled, json!({"id": id, "state": "completed"}));
    // The same commit again gets the same response. Another one is refused.
    assert_eq!(server.post(&format!("/v1/items/{id}/commit"), commit).await.success(), settled);
    let other = server.post(&format!("/v1/items/{id}/fail"), json!({"lease": lease, "reason": "no"})).await;
    assert_eq!((other.status.as_u16(), other.code()), (409, "already_settled"));

    let shown = server.get(&format!("/v1/items/{id}")).await.success();
    assert_eq!(shown["state"], "completed");
    assert_eq!(shown["queue"], "jobs");
    assert_eq!(shown["outputs"], json!({"image": image}));
    assert_eq!(shown["output_params"], json!({"quality": 0.9}));
    assert_eq!(shown["tags"], json!({"team": "mri"}));
    assert_eq!(shown["priority"], -3);
    assert!(shown["finished_at"].is_string() && shown["errors"] == json!([]));
    let counts = server.get("/v1/queues/jobs/counts").await.success();
    assert_eq!(
        counts,
        json!({"pending": 0, "scheduled": 0, "processing": 0, "paused": 0, "completed": 1, "failed": 0})
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn an_item_shows_its_last_transition_and_the_last_heartbeat_of_its_lease() {
    let server = TestServer::start().await;
    server.queue("jobs", json!({})).await;
    let (id, lease) = server.hold("jobs").await;
    let shown = async |path: &str| {
        let item = server.get(path).await.success();
        let item = if item["items"].is_array() { item["items"][0].clone() } else { item };
        [item["last_transition_at"].clone(), item["last_heartbeat_at"].clone()]
    };
    let (whole, summary) = (format!("/v1/items/{id}"), "/v1/queues/jobs/items?view=summary");
    let [received, heartbeat] = shown(&whole).await;
    assert!(received.is_string() && heartbeat.is_null(), "{received} {heartbeat}");
    server.act(&id, "heartbeat", json!({"lease": lease})).await.success();
    let [transition, heartbeat] = shown(&whole).await;
    assert!(transition == received && heartbeat.as_str() >= received.as_str(), "{heartbeat}");
    assert_eq!(shown(summary).await, [transition, heartbeat.clone()]);
    server.act(&id, "release", json!({"lease": lease})).await.success();
    let [released, none] = shown(summary).await;
    assert!(released.as_str() >= heartbeat.as_str() && none.is_null(), "{released} {none}");
}
