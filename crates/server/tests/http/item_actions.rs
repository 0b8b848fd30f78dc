//! Actions on single items: cancel, redrive, pause, resume, delete.

use crate::test_server::TestServer;
use http::Method;
use serde_json::{Value, json};

async fn post(server: &TestServer, id: &str, verb: &str) -> crate::test_server::TestResponse {
    server.call(Method::POST, &format!("/v1/items/{id}/{verb}"), None).await
}

#[tokio::test(flavor = "multi_thread")]
async fn an_item_is_cancelled_with_a_reason_and_redriven() {
    let server = TestServer::start().await;
    server.queue("jobs", json!({})).await;
    let id = server.submit("jobs", json!([{}])).await.remove(0);
    let answer =
        server.post(&format!("/v1/items/{id}/cancel"), json!({"reason": "not needed"})).await.success();
    assert_eq!(answer, json!({"id": id, "state": "failed"}));
    let shown = server.item(&id).await;
    assert_eq!(
        (&shown["failure"], &shown["errors"][0]["message"]),
        (&json!("cancelled"), &json!("not needed"))
    );
    assert_eq!(post(&server, &id, "redrive").await.success(), json!({"id": id, "state": "pending"}));
    let again = server.receive("jobs").await;
    assert_eq!((&again["id"], &again["attempt"]), (&json!(id), &json!(1)));
    // A cancel needs no reason and no body.
    assert_eq!(post(&server, &id, "cancel").await.success()["state"], "failed");
    post(&server, &id, "pause").await.problem("wrong_state");
    server.post(&format!("/v1/items/{id}/cancel"), json!({"reason": "x".repeat(5000)})).await;
    server.post(&format!("/v1/items/{id}/cancel"), json!({"why": ""})).await.problem("malformed_body");
}

#[tokio::test(flavor = "multi_thread")]
async fn an_item_is_paused_and_resumed() {
    let server = TestServer::start().await;
    server.queue("jobs", json!({})).await;
    let id = server.submit("jobs", json!([{}])).await.remove(0);
    assert_eq!(post(&server, &id, "pause").await.success(), json!({"id": id, "state": "paused"}));
    assert_eq!(server.post("/v1/queues/jobs/receive", json!({})).await.success()["items"], json!([]));
    assert_eq!(post(&server, &id, "resume").await.success(), json!({"id": id, "state": "pending"}));
    assert_eq!(server.receive("jobs").await["id"], id);
    for verb in ["resume", "redrive"] {
        let detail = post(&server, &id, verb).await.problem("wrong_state");
        assert!(detail.contains("processing"), "{verb}: {detail}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn an_item_with_a_lease_is_only_deleted_by_force() {
    let server = TestServer::start().await;
    server.queue("jobs", json!({})).await;
    let (id, lease) = server.hold("jobs").await;
    let path = format!("/v1/items/{id}");
    server.delete(&path).await.problem("wrong_state");
    server.act(&id, "commit", json!({"lease": lease})).await.success();
    let gone = server.delete(&path).await;
    assert_eq!((gone.status.as_u16(), gone.body.len()), (204, 0));
    server.delete(&path).await.problem("item_not_found");
    let (id, _) = server.hold("jobs").await;
    assert_eq!(server.delete(&format!("/v1/items/{id}?force")).await.status.as_u16(), 204);
    assert_eq!(server.counts("jobs").await["processing"], 0);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_dead_letter_knows_its_origin_and_is_redriven_to_it() {
    let server = TestServer::start().await;
    server.queue("dead", json!({})).await;
    server.queue("jobs", json!({"dead_letter_queue": "dead"})).await;
    let (id, lease) = server.hold("jobs").await;
    server.act(&id, "fail", json!({"lease": lease, "reason": "broken"})).await.success();
    let shown = server.item(&id).await;
    assert_eq!((&shown["queue"], &shown["origin"]["queue"]), (&json!("dead"), &json!("jobs")));
    post(&server, &id, "redrive").await.success();
    assert_eq!(server.receive("jobs").await["id"], id);
    // An item cannot be redriven into a completed queue.
    let (id, lease) = server.hold("jobs").await;
    server.act(&id, "fail", json!({"lease": lease})).await.success();
    server.call(Method::POST, "/v1/queues/jobs/close", None).await.success();
    server.delete("/v1/queues/jobs/items?state=all&force=true").await.success();
    post(&server, &id, "redrive").await.problem("queue_completed");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_missing_item_is_not_found() {
    let server = TestServer::start().await;
    let id = "01890000-0000-7000-8000-000000000000";
    for verb in ["cancel", "redrive", "pause", "resume"] {
        let detail = post(&server, id, verb).await.problem("item_not_found");
        assert!(detail.contains(id), "{detail}");
    }
    server.get(&format!("/v1/items/{id}")).await.problem("item_not_found");
    server.get(&format!("/v1/items/{id}/wait")).await.problem("item_not_found");
    server.delete(&format!("/v1/items/{id}")).await.problem("item_not_found");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_worker_pauses_and_cancels_its_item_under_its_lease() {
    let server = TestServer::start_with_tokens(|_| {}).await;
    server.queue("jobs", json!({})).await;
    let (worker, _) = server.token_for(&["queue:jobs:receive"]).await;
    let settle = async |action: Value| {
        let answer = server.post_as(&worker, "/v1/settle", json!({"actions": [action]})).await.success();
        answer["results"][0].clone()
    };
    let (id, lease) = server.hold("jobs").await;
    let paused = settle(json!({"verb": "pause", "id": id, "lease": lease})).await;
    assert_eq!(paused["state"], "paused", "{paused}");
    server.post_as(&worker, &format!("/v1/items/{id}/resume"), json!({})).await.problem("forbidden");
    server.post(&format!("/v1/items/{id}/resume"), json!({})).await.success();
    let item = server.receive("jobs").await;
    assert_eq!((&item["id"], &item["attempt"], &item["deliveries"]), (&json!(id), &json!(1), &json!(2)));
    assert_eq!((&item["transitions"], &item["lapses"]), (&json!(4), &json!(0)));
    // An operator's cancel with a lease is fenced by it.
    let cancel = format!("/v1/items/{id}/cancel");
    server.post(&cancel, json!({"lease": lease})).await.problem("already_settled");
    server.post(&format!("/v1/items/{id}/pause"), json!({"lease": "x"})).await.problem("lease_lost");
    assert_eq!(server.item(&id).await["state"], "processing");
    let reason = json!({"verb": "cancel", "id": id, "lease": item["lease"], "reason": "obsolete"});
    assert_eq!(settle(reason.clone()).await["state"], "failed");
    assert_eq!(settle(reason).await["state"], "failed", "a repetition");
    let shown = server.item(&id).await;
    assert_eq!(
        (&shown["failure"], &shown["errors"][0]["message"]),
        (&json!("cancelled"), &json!("obsolete"))
    );
    let (id, lease) = server.hold("jobs").await;
    let done = server.post(&format!("/v1/items/{id}/cancel"), json!({"lease": lease})).await.success();
    assert_eq!(done["state"], "failed");
}
