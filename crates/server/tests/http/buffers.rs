//! Whole buffers: created, found by tag, copied, deleted.

use crate::test_server::TestServer;
use http::Method;
use serde_json::{Value, json};

async fn made(server: &TestServer, body: Value) -> String {
    server.post("/v1/buffers", body).await.success()["id"].as_str().unwrap().to_owned()
}

/// All pages of a list.
async fn listed(server: &TestServer, query: &str, limit: usize) -> Vec<String> {
    let (mut ids, mut cursor) = (Vec::new(), String::new());
    for _ in 0..100 {
        let page = server.get(&format!("/v1/buffers?limit={limit}{query}{cursor}")).await.success();
        ids.extend(
            page["buffers"].as_array().unwrap().iter().map(|one| one["id"].as_str().unwrap().to_owned()),
        );
        match page["next"].as_str() {
            Some(next) => cursor = format!("&cursor={next}"),
            None => return ids,
        }
    }
    panic!("the list does not end");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_new_buffer_is_empty() {
    let server = TestServer::start().await;
    let buffer = server.post("/v1/buffers", json!({"tags": {"team": "mri"}, "ttl": "7d"})).await.success();
    assert_eq!(
        (&buffer["state"], &buffer["bytes"], &buffer["chunks"]),
        (&json!("empty"), &json!(0), &json!(0))
    );
    assert_eq!(buffer["tags"], json!({"team": "mri"}));
    assert!(buffer["expires_at"].as_str() > buffer["created_at"].as_str(), "{buffer}");
    let id = buffer["id"].as_str().unwrap();
    assert_eq!(id.as_bytes()[14], b'7', "{id} is a UUID of version 7");
    assert_eq!(server.get(&format!("/v1/buffers/{id}")).await.success(), buffer);
    // An empty body is enough.
    assert!(server.post("/v1/buffers", json!({})).await.success().get("expires_at").is_none());
}

#[tokio::test(flavor = "multi_thread")]
async fn messagepack_responses_equal_json_responses() {
    let server = TestServer::start().await;
    let id = made(&server, json!({"tags": {"a": "b"}})).await;
    let answer = server
        .send_bytes(Method::GET, &format!("/v1/buffers/{id}"), &[("accept", "application/msgpack")], "")
        .await;
    let unpacked: Value = rmp_serde::from_slice(&answer.body).unwrap();
    assert_eq!(unpacked, server.get(&format!("/v1/buffers/{id}")).await.success());
}

#[tokio::test(flavor = "multi_thread")]
async fn buffers_are_listed_by_page_and_by_tag() {
    let server = TestServer::start().await;
    let mut all = Vec::new();
    for n in 0..7 {
        all.push(made(&server, json!({"tags": {"odd": (n % 2).to_string(), "n": n.to_string()}})).await);
    }
    all.sort();
    for limit in [1, 3, 100] {
        assert_eq!(listed(&server, "", limit).await, all, "{limit}");
    }
    assert_eq!(listed(&server, "&tag=odd%3D1", 2).await.len(), 3);
    assert_eq!(listed(&server, "&tag=odd%3D1&tag=n%3D3", 2).await.len(), 1);
    assert_eq!(listed(&server, "&tag=odd%3D2", 2).await.len(), 0);
    for query in
        ["limit=0", "limit=1001", "limit=x", "tag=odd", "state=x", "tag=a%3D1&tag=a%3D2", "cursor=..%2Fx"]
    {
        server.get(&format!("/v1/buffers?{query}")).await.problem("invalid");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn the_metadata_of_a_buffer_is_limited() {
    let server = TestServer::start().await;
    let many: serde_json::Map<String, Value> = (0..33).map(|n| (n.to_string(), json!("x"))).collect();
    for (body, code) in [
        (json!({"tags": many}), "invalid"),
        (json!({"tags": {"a": "x".repeat(10_000)}}), "invalid"),
        (json!({"tags": {"": "x"}}), "invalid"),
        (json!({"ttl": "7"}), "invalid"),
        (json!({"ttl": -1}), "invalid"),
        (json!({"id": "mine"}), "malformed_body"),
        (json!({"tags": ["a"]}), "malformed_body"),
    ] {
        let detail = server.post("/v1/buffers", body.clone()).await.problem(code);
        assert!(detail.len() < 1_000, "{detail}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_copy_is_an_independent_buffer() {
    let server = TestServer::start().await;
    let id = made(&server, json!({"tags": {"a": "b"}})).await;
    server.post(&format!("/v1/buffers/{id}/copy"), json!({})).await.problem("buffer_not_ready");
    server.fill(&id, "some bytes").await.success();
    let copy = server.post(&format!("/v1/buffers/{id}/copy"), json!({"tags": {"c": "d"}})).await.success();
    assert_eq!(
        (&copy["state"], &copy["bytes"], &copy["tags"]),
        (&json!("complete"), &json!(10), &json!({"c": "d"}))
    );
    server.delete(&format!("/v1/buffers/{id}")).await.success();
    let copied = server.get(&format!("/v1/buffers/{}/content", copy["id"].as_str().unwrap())).await;
    assert_eq!(copied.body, "some bytes");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_deleted_buffer_is_not_found_by_any_route() {
    let server = TestServer::start().await;
    let id = made(&server, json!({})).await;
    server.fill(&id, "some bytes").await.success();
    server.delete(&format!("/v1/buffers/{id}")).await.success();
    for path in ["", "/content", "/chunks/0"] {
        server.get(&format!("/v1/buffers/{id}{path}")).await.problem("buffer_not_found");
    }
    server.delete(&format!("/v1/buffers/{id}")).await.problem("buffer_not_found");
    server.fill(&id, "again").await.problem("buffer_not_found");
    server.post(&format!("/v1/buffers/{id}/writer"), json!({})).await.problem("buffer_not_found");
    server.post(&format!("/v1/buffers/{id}/copy"), json!({})).await.problem("buffer_not_found");
}

#[tokio::test(flavor = "multi_thread")]
async fn buffers_survive_a_restart() {
    let server = TestServer::start().await;
    let id = made(&server, json!({})).await;
    server.fill(&id, "some bytes").await.success();
    let before = server.get(&format!("/v1/buffers/{id}")).await.success();
    let server = server.restart().await;
    assert_eq!(server.get(&format!("/v1/buffers/{id}")).await.success(), before);
    assert_eq!(server.get(&format!("/v1/buffers/{id}/content")).await.body, "some bytes");
}
