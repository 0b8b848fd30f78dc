//! Notes about calls that are carried out and may not do what the client expects.

use crate::test_server::TestServer;
use serde_json::json;

#[tokio::test(flavor = "multi_thread")]
async fn a_wait_that_looks_like_seconds_is_noted_in_a_body_and_refused_in_a_query() {
    let server = TestServer::start().await;
    server.put("/v1/queues/jobs", json!({})).await.success();
    let many = server.post("/v1/queues/jobs/items", json!({"items": [{}], "wait": 20})).await.success();
    assert!(many["notes"][0].as_str().unwrap().contains("\"20s\""), "{many}");
    let one = server.post("/v1/queues/jobs/items", json!({"wait": 20})).await.success();
    assert!(one["notes"][0].as_str().unwrap().contains("\"20s\""), "{one}");
    let plain = server.post("/v1/queues/jobs/items", json!({"items": [{}], "wait": "20ms"})).await.success();
    assert!(plain.get("notes").is_none(), "{plain}");

    let id = one["id"].as_str().unwrap();
    let buffer = server.post("/v1/buffers", json!({})).await.success();
    let buffer = buffer["id"].as_str().unwrap();
    for path in [
        format!("/v1/items/{id}/wait?timeout=20"),
        "/v1/groups/g/wait?timeout=20".to_owned(),
        format!("/v1/buffers/{buffer}/chunks/0?wait=20"),
        format!("/v1/buffers/{buffer}/content?wait=20"),
        "/v1/events?for=20".to_owned(),
    ] {
        let refused = server.get(&path).await.problem("invalid");
        assert!(refused.contains("\"20s\"") && refused.contains("\"20ms\""), "{path}: {refused}");
    }
    server.get(&format!("/v1/items/{id}/wait?timeout=100")).await.success();
    server.get(&format!("/v1/items/{id}/wait?timeout=0")).await.success();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_schedule_for_a_queue_that_does_not_exist_gets_a_note() {
    let server = TestServer::start().await;
    let body = json!({"queue": "later", "every": "1h"});
    let noted = server.put("/v1/schedules/hourly", body.clone()).await.success();
    assert!(noted["notes"][0].as_str().unwrap().contains("\"later\" does not exist"), "{noted}");
    let noted = server.post("/v1/schedules/hourly/apply?dry_run=true", body.clone()).await.success();
    assert_eq!(noted["notes"].as_array().unwrap().len(), 1, "{noted}");
    server.put("/v1/queues/later", json!({})).await.success();
    let quiet = server.put("/v1/schedules/hourly", body).await.success();
    assert!(quiet.get("notes").is_none(), "{quiet}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_group_without_members_gets_a_note() {
    let server = TestServer::start().await;
    server.put("/v1/queues/jobs", json!({})).await.success();
    let submit = async |items| server.post("/v1/queues/jobs/items", json!({"items": items})).await.success();
    let answer = submit(json!([
        {"after": {"group": "typo"}},
        {"after": {"group": "later", "expect": 2}},
        {"after": {"group": "same batch"}},
        {"group": "same batch"},
    ]))
    .await;
    let notes: Vec<_> = (0..4).map(|n| answer["items"][n]["notes"].as_array().map_or(0, Vec::len)).collect();
    assert_eq!(notes, [1, 0, 0, 0], "{answer}");
    let one = server.post("/v1/queues/jobs/items", json!({"after": {"group": "typo"}})).await.success();
    assert!(one["notes"][0].as_str().unwrap().contains("\"typo\" has no items"), "{one}");
    let one = server.post("/v1/queues/jobs/items", json!({"after": {"group": "same batch"}})).await.success();
    assert!(one.get("notes").is_none(), "{one}");

    for path in ["/v1/groups/typo", "/v1/groups/typo/wait?timeout=0"] {
        let empty = server.get(path).await.success();
        assert!(empty["notes"][0].as_str().unwrap().contains("no members"), "{empty}");
    }
    let known = server.get("/v1/groups/same%20batch").await.success();
    assert!(known.get("notes").is_none(), "{known}");
}
