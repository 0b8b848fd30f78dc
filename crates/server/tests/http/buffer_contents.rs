//! Buffers written by one request, as `curl -T` does.

use crate::raw::Raw;
use crate::rig::{Answer, Rig};
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use http::Method;
use serde_json::json;
use sha2::{Digest, Sha256};
use towline_api::CHUNK_BYTES;

async fn empty(rig: &Rig) -> String {
    rig.post("/v1/buffers", json!({})).await.good()["id"].as_str().unwrap().to_owned()
}

async fn fill_with_digest(rig: &Rig, id: &str, digest: &str, content: &'static [u8]) -> Answer {
    let headers = [("content-digest", digest)];
    rig.send_bytes(Method::PUT, &format!("/v1/buffers/{id}/content"), &headers, content).await
}

fn noise(length: usize) -> Vec<u8> {
    let mut state = 1_u32;
    let mut next = || {
        state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
        (state >> 24) as u8
    };
    (0..length).map(|_| next()).collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn the_server_cuts_what_comes_in_one_go() {
    let rig = Rig::start().await;
    for (length, chunks) in [
        (0, 0),
        (1, 1),
        (CHUNK_BYTES - 1, 1),
        (CHUNK_BYTES, 1),
        (CHUNK_BYTES + 1, 2),
        (5 * CHUNK_BYTES + 7, 6),
    ] {
        let id = empty(&rig).await;
        let content = noise(length);
        let shown = rig.fill(&id, content.clone()).await.good();
        assert_eq!(
            (&shown["state"], &shown["bytes"], &shown["chunks"]),
            (&json!("complete"), &json!(length), &json!(chunks))
        );
        assert!(rig.get(&format!("/v1/buffers/{id}/content")).await.body == content, "{length}");
        rig.fill(&id, "again").await.refused("buffer_written");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_digest_is_checked() {
    let rig = Rig::start().await;
    let right = format!("sha-256=:{}:", STANDARD.encode(Sha256::digest(b"some bytes")));
    let id = empty(&rig).await;
    fill_with_digest(&rig, &id, &right, b"some bytes").await.good();
    let id = empty(&rig).await;
    fill_with_digest(&rig, &id, &right, b"other bytes").await.refused("hash_mismatch");
    assert_eq!(rig.get(&format!("/v1/buffers/{id}")).await.good()["state"], "failed");
    rig.get(&format!("/v1/buffers/{id}/content")).await.refused("buffer_failed");
    for wrong in ["sha-256=abc", "md5=:abcd:", "sha-256=:YWJj:", ""] {
        let id = empty(&rig).await;
        fill_with_digest(&rig, &id, wrong, b"some bytes").await.refused("invalid");
        assert_eq!(rig.get(&format!("/v1/buffers/{id}")).await.good()["state"], "empty", "{wrong}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_body_that_breaks_off_fails_the_buffer() {
    let rig = Rig::start().await;
    let id = empty(&rig).await;
    let mut raw = Raw::connect(rig.address).await;
    raw.send(format!(
        "PUT /v1/buffers/{id}/content HTTP/1.1\r\nhost: localhost\r\ncontent-length: 100\r\n\r\nsome"
    ))
    .await;
    drop(raw);
    let answer = rig.get(&format!("/v1/buffers/{id}/chunks/1?wait=1m")).await;
    let words = answer.refused("buffer_failed");
    assert!(words.contains("broke off"), "{words}");
}

#[tokio::test(flavor = "multi_thread")]
async fn what_a_slow_sender_sent_is_read_before_it_is_done() {
    let rig = Rig::start().await;
    let id = empty(&rig).await;
    let mut raw = Raw::connect(rig.address).await;
    raw.send(format!(
        "PUT /v1/buffers/{id}/content HTTP/1.1\r\nhost: localhost\r\ncontent-length: 8\r\n\r\nsome"
    ))
    .await;
    assert_eq!(rig.get(&format!("/v1/buffers/{id}/chunks/0?wait=1m")).await.body, "some");
    raw.send("more").await;
    assert_eq!(raw.answer().await.unwrap().good()["bytes"], 8);
    assert_eq!(rig.get(&format!("/v1/buffers/{id}/content")).await.body, "somemore");
}
