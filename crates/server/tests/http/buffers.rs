//! Buffers as a whole: made, found by their tags, copied, deleted.

use crate::rig::Rig;
use http::Method;
use serde_json::{Value, json};

async fn made(rig: &Rig, body: Value) -> String {
    rig.post("/v1/buffers", body).await.good()["id"].as_str().unwrap().to_owned()
}

/// All pages of a list.
async fn listed(rig: &Rig, query: &str, limit: usize) -> Vec<String> {
    let (mut ids, mut cursor) = (Vec::new(), String::new());
    for _ in 0..100 {
        let page = rig.get(&format!("/v1/buffers?limit={limit}{query}{cursor}")).await.good();
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
    let rig = Rig::start().await;
    let buffer = rig.post("/v1/buffers", json!({"tags": {"team": "mri"}, "ttl": "7d"})).await.good();
    assert_eq!(
        (&buffer["state"], &buffer["bytes"], &buffer["chunks"]),
        (&json!("empty"), &json!(0), &json!(0))
    );
    assert_eq!(buffer["tags"], json!({"team": "mri"}));
    assert!(buffer["expires_at"].as_str() > buffer["created_at"].as_str(), "{buffer}");
    let id = buffer["id"].as_str().unwrap();
    assert_eq!(id.as_bytes()[14], b'7', "{id} is a UUID of version 7");
    assert_eq!(rig.get(&format!("/v1/buffers/{id}")).await.good(), buffer);
    // Nothing needs to be said of one.
    assert!(rig.post("/v1/buffers", json!({})).await.good().get("expires_at").is_none());
}

#[tokio::test(flavor = "multi_thread")]
async fn messagepack_says_the_same() {
    let rig = Rig::start().await;
    let id = made(&rig, json!({"tags": {"a": "b"}})).await;
    let answer = rig
        .send_bytes(Method::GET, &format!("/v1/buffers/{id}"), &[("accept", "application/msgpack")], "")
        .await;
    let unpacked: Value = rmp_serde::from_slice(&answer.body).unwrap();
    assert_eq!(unpacked, rig.get(&format!("/v1/buffers/{id}")).await.good());
}

#[tokio::test(flavor = "multi_thread")]
async fn lists_go_page_by_page_and_by_tag() {
    let rig = Rig::start().await;
    let mut all = Vec::new();
    for n in 0..7 {
        all.push(made(&rig, json!({"tags": {"odd": (n % 2).to_string(), "n": n.to_string()}})).await);
    }
    all.sort();
    for limit in [1, 3, 100] {
        assert_eq!(listed(&rig, "", limit).await, all, "{limit}");
    }
    assert_eq!(listed(&rig, "&tag=odd%3D1", 2).await.len(), 3);
    assert_eq!(listed(&rig, "&tag=odd%3D1&tag=n%3D3", 2).await.len(), 1);
    assert_eq!(listed(&rig, "&tag=odd%3D2", 2).await.len(), 0);
    for query in
        ["limit=0", "limit=1001", "limit=x", "tag=odd", "state=x", "tag=a%3D1&tag=a%3D2", "cursor=..%2Fx"]
    {
        rig.get(&format!("/v1/buffers?{query}")).await.refused("invalid");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn what_is_said_of_a_buffer_has_limits() {
    let rig = Rig::start().await;
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
        let detail = rig.post("/v1/buffers", body.clone()).await.refused(code);
        assert!(detail.len() < 1_000, "{detail}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_copy_is_a_buffer_of_its_own() {
    let rig = Rig::start().await;
    let id = made(&rig, json!({"tags": {"a": "b"}})).await;
    rig.post(&format!("/v1/buffers/{id}/copy"), json!({})).await.refused("buffer_not_ready");
    rig.fill(&id, "some bytes").await.good();
    let copy = rig.post(&format!("/v1/buffers/{id}/copy"), json!({"tags": {"c": "d"}})).await.good();
    assert_eq!(
        (&copy["state"], &copy["bytes"], &copy["tags"]),
        (&json!("complete"), &json!(10), &json!({"c": "d"}))
    );
    rig.delete(&format!("/v1/buffers/{id}")).await.good();
    let copied = rig.get(&format!("/v1/buffers/{}/content", copy["id"].as_str().unwrap())).await;
    assert_eq!(copied.body, "some bytes");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_deleted_buffer_is_gone_for_everybody() {
    let rig = Rig::start().await;
    let id = made(&rig, json!({})).await;
    rig.fill(&id, "some bytes").await.good();
    rig.delete(&format!("/v1/buffers/{id}")).await.good();
    for path in ["", "/content", "/chunks/0"] {
        rig.get(&format!("/v1/buffers/{id}{path}")).await.refused("buffer_not_found");
    }
    rig.delete(&format!("/v1/buffers/{id}")).await.refused("buffer_not_found");
    rig.fill(&id, "again").await.refused("buffer_not_found");
    rig.post(&format!("/v1/buffers/{id}/writer"), json!({})).await.refused("buffer_not_found");
    rig.post(&format!("/v1/buffers/{id}/copy"), json!({})).await.refused("buffer_not_found");
}

#[tokio::test(flavor = "multi_thread")]
async fn buffers_outlive_the_server() {
    let rig = Rig::start().await;
    let id = made(&rig, json!({})).await;
    rig.fill(&id, "some bytes").await.good();
    let before = rig.get(&format!("/v1/buffers/{id}")).await.good();
    let rig = rig.restart().await;
    assert_eq!(rig.get(&format!("/v1/buffers/{id}")).await.good(), before);
    assert_eq!(rig.get(&format!("/v1/buffers/{id}/content")).await.body, "some bytes");
}
