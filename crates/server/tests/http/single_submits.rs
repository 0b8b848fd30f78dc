//! An item that is submitted without a list around it has a status of its own.

use crate::test_server::TestServer;
use http::Method;
use serde_json::{Value, json};

const ITEMS: &str = "/v1/queues/jobs/items";

#[tokio::test(flavor = "multi_thread")]
async fn a_single_item_is_created_or_found() {
    let server = TestServer::start().await;
    server.queue("jobs", json!({})).await;
    let item = json!({"idempotency_key": "order-7", "params": {"n": 1}});
    let created = server.post(ITEMS, item.clone()).await;
    assert_eq!(created.status, 201);
    let (location, answer) = (created.headers["location"].clone(), created.success());
    let id = answer["id"].as_str().unwrap();
    assert_eq!(answer, json!({"id": id, "created": true}));
    assert_eq!(location, format!("/v1/items/{id}"));
    assert_eq!(server.get(location.to_str().unwrap()).await.success()["params"], json!({"n": 1}));

    let found = server.post(ITEMS, item).await;
    assert_eq!((found.status.as_u16(), &found.headers["location"]), (200, &location));
    assert_eq!(found.success(), json!({"id": id, "created": false}));

    let replaceable = json!({"replace_key": "doc-7", "delay": "1h"});
    assert_eq!(server.post(ITEMS, replaceable.clone()).await.status, 201);
    let replaced = server.post(ITEMS, replaceable).await;
    assert_eq!(replaced.status, 200);
    assert_eq!(replaced.success()["replaced"], true);

    // An empty item, and one in MessagePack.
    assert_eq!(server.post(ITEMS, json!({})).await.status, 201);
    let packed = rmp_serde::to_vec_named(&json!({"priority": -3})).unwrap();
    let created =
        server.send_bytes(Method::POST, ITEMS, &[("content-type", "application/msgpack")], packed).await;
    assert_eq!(
        (created.status.as_u16(), &created.headers["content-type"]),
        (201, &"application/msgpack".parse().unwrap())
    );
    let answer: Value = rmp_serde::from_slice(&created.body).unwrap();
    assert_eq!(server.item(answer["id"].as_str().unwrap()).await["priority"], -3);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_single_item_is_refused_with_its_own_status() {
    let server = TestServer::start().await;
    server
        .put("/v1/queues/jobs", json!({"schema": {"input_params": ["n?"]}, "policy": {"depth_limit": 1}}))
        .await
        .success();
    for (item, status, code) in [
        (json!({"priority": 40_000}), 400, "invalid"),
        (json!({"priority": "high"}), 400, "malformed_body"),
        (json!({"params": {"volume": 1}}), 422, "schema_mismatch"),
        (json!({"payload": "A".repeat((4 << 20) / 3 * 4 + 8)}), 413, "too_large"),
    ] {
        let refused = server.post(ITEMS, item).await;
        assert_eq!((refused.status.as_u16(), refused.code()), (status, code));
    }
    assert_eq!(server.post(ITEMS, json!({"idempotency_key": "k"})).await.status, 201);
    for (item, status, code) in [
        (json!({"idempotency_key": "k", "params": {"n": 1}}), 409, "key_conflict"),
        (json!({}), 429, "queue_full"),
        (json!({"wait": "10ms"}), 429, "queue_full"),
    ] {
        let refused = server.post(ITEMS, item).await;
        assert_eq!((refused.status.as_u16(), refused.code()), (status, code));
    }
    server.post("/v1/queues/jobs/close", json!({})).await.success();
    server.post(ITEMS, json!({})).await.problem("queue_closed");
    server.post("/v1/queues/none/items", json!({})).await.problem("queue_not_found");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_single_item_can_wait_for_room() {
    let server = TestServer::start().await;
    server.queue("jobs", json!({"depth_limit": 1})).await;
    let first = server.submit("jobs", json!([{}])).await.remove(0);
    let (waited, received) =
        tokio::join!(server.post(ITEMS, json!({"wait": "1m", "priority": 3})), server.receive("jobs"));
    assert_eq!((waited.status.as_u16(), &received["id"]), (201, &json!(first)));
    let id = waited.success()["id"].clone();
    assert_eq!(server.item(id.as_str().unwrap()).await["priority"], 3);
}
