//! Filters by what items do not have, by `ready_at` and by deliveries; and policies that act on items.

use crate::test_server::TestServer;
use serde_json::{Value, json};

/// The positions in `made` of the items that match.
async fn matching(server: &TestServer, made: &[String], query: &str) -> Vec<usize> {
    let page = server.get(&format!("/v1/queues/jobs/items?{query}")).await.success();
    let id = |item: &Value| item["id"].as_str().unwrap().to_owned();
    let found: Vec<String> = page["items"].as_array().unwrap().iter().map(id).collect();
    found.iter().map(|id| made.iter().position(|known| known == id).unwrap()).collect()
}

/// Receives a ready item: its id and its lease.
async fn take(server: &TestServer) -> (String, String) {
    let item = server.receive("jobs").await;
    (item["id"].as_str().unwrap().to_owned(), item["lease"].as_str().unwrap().to_owned())
}

#[tokio::test(flavor = "multi_thread")]
async fn lists_filter_by_what_items_do_not_have() {
    let server = TestServer::start().await;
    server.queue("jobs", json!({"order": "fifo"})).await;
    let items = json!([
        {"tags": {"team": "mri", "type": "scan", "path": "/a/b"}, "group": "g"},
        {"tags": {"team": "ct", "path": "/ab"}},
        {"group": "h"},
    ]);
    let made = server.submit("jobs", items).await;
    let (id, lease) = take(&server).await;
    assert_eq!(id, made[0]);
    server.act(&id, "fail", json!({"lease": lease, "reason": "no"})).await.success();
    for (query, expected) in [
        ("not_state=failed", &[1, 2][..]),
        ("not_state=failed&not_state=pending", &[]),
        ("not_failure=explicit", &[1, 2]),
        ("not_failure=poison", &[0, 1, 2]),
        ("not_state=explicit", &[1, 2]),
        ("not_state=explicit&not_state=pending", &[]),
        ("not_state=expired", &[0, 1, 2]),
        ("not_tag=team=mri", &[1, 2]),
        ("not_tag=team=mri&not_tag=team=ct", &[2]),
        ("not_tag_prefix=path=/a", &[1, 2]),
        ("not_type=scan", &[1, 2]),
        ("not_group=g", &[1, 2]),
        ("no_tag=team", &[2]),
        ("no_tag=colour", &[0, 1, 2]),
    ] {
        assert_eq!(matching(&server, &made, query).await, expected, "{query}");
    }
    for query in ["tag_prefix=path=", "not_tag_prefix=path=", "not_state=sleepy", "no_tag="] {
        server.get(&format!("/v1/queues/jobs/items?{query}")).await.problem("invalid");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn lists_filter_by_ready_at_and_deliveries() {
    let server = TestServer::start().await;
    server.queue("jobs", json!({"order": "fifo"})).await;
    let items = json!([{}, {"ready_at": "2090-01-01T00:00:00Z"}, {"ready_at": "2091-01-01T00:00:00Z"}]);
    let made = server.submit("jobs", items).await;
    for _ in 0..2 {
        let (id, lease) = take(&server).await;
        server.act(&id, "release", json!({"lease": lease, "counted": false})).await.success();
    }
    for (query, expected) in [
        ("ready_from=2090-01-01T00:00:00Z", &[1, 2][..]),
        ("ready_before=2091-01-01T00:00:00Z", &[0, 1]),
        ("ready_from=2090-01-01T00:00:00Z&ready_before=2091-01-01T00:00:00Z", &[1]),
        ("deliveries=2", &[0]),
        ("deliveries=0", &[1, 2]),
        ("deliveries_min=1", &[0]),
        ("deliveries_max=1", &[1, 2]),
    ] {
        assert_eq!(matching(&server, &made, query).await, expected, "{query}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_key_is_free_when_its_item_ends_only_with_while_unfinished() {
    let server = TestServer::start().await;
    server.queue("jobs", json!({"unique": "while_unfinished"})).await;
    let submit = async |body: Value| server.post("/v1/queues/jobs/items", body).await.success();
    let first = submit(json!({"idempotency_key": "k"})).await;
    assert_eq!(submit(json!({"idempotency_key": "k"})).await["id"], first["id"]);
    let (id, lease) = take(&server).await;
    server.act(&id, "commit", json!({"lease": lease})).await.success();
    let second = submit(json!({"idempotency_key": "k", "unique": "while_exists"})).await;
    assert_eq!((&second["created"], second["id"] == first["id"]), (&json!(true), false));
    let (id, lease) = take(&server).await;
    server.act(&id, "commit", json!({"lease": lease})).await.success();
    let third = submit(json!({"idempotency_key": "k", "unique": "while_exists"})).await;
    assert_eq!((&third["created"], &third["id"]), (&json!(false), &second["id"]));
    let refused =
        server.post("/v1/queues/jobs/items", json!({"idempotency_key": "k", "unique": "always"})).await;
    assert!(refused.problem("invalid").contains("while_unfinished"));
}

#[tokio::test(flavor = "multi_thread")]
async fn only_the_named_kinds_of_failure_become_dead_letters() {
    let server = TestServer::start().await;
    server.queue("dead", json!({})).await;
    let policy = json!({
        "dead_letter_queue": "dead", "dead_letter": ["retries_exhausted"], "max_retries": 0, "order": "fifo"
    });
    server.queue("jobs", policy).await;
    let made = server.submit("jobs", json!([{}, {}])).await;
    let (id, lease) = take(&server).await;
    server.act(&id, "fail", json!({"lease": lease})).await.success();
    let (id, lease) = take(&server).await;
    server.act(&id, "retry", json!({"lease": lease})).await.success();
    let (explicit, exhausted) = (server.item(&made[0]).await, server.item(&made[1]).await);
    assert_eq!((&explicit["queue"], &explicit["failure"]), (&json!("jobs"), &json!("explicit")));
    assert_eq!((&exhausted["queue"], &exhausted["failure"]), (&json!("dead"), &json!("retries_exhausted")));
    let unknown = json!({"policy": {"dead_letter": ["bored"]}});
    assert!(server.patch("/v1/queues/jobs", unknown).await.problem("invalid").contains("poison"));
}

#[tokio::test(flavor = "multi_thread")]
async fn committed_outputs_are_kept_for_the_output_ttl() {
    let server = TestServer::start().await;
    let queue = json!({"schema": {"outputs": ["image"]}, "policy": {"output_ttl": "1h"}});
    server.put("/v1/queues/jobs", queue).await.success();
    server.submit("jobs", json!([{}])).await;
    let answer =
        server.post("/v1/queues/jobs/receive", json!({"create_output_buffers": true})).await.success();
    let item = &answer["items"][0];
    let (id, buffer) = (item["id"].as_str().unwrap(), item["outputs"]["image"].as_str().unwrap());
    server.fill(buffer, "the image").await.success();
    server.act(id, "commit", json!({"lease": item["lease"]})).await.success();
    let shown = server.get(&format!("/v1/buffers/{buffer}")).await.success();
    assert!(shown["expires_at"].is_string(), "{shown}");
}
