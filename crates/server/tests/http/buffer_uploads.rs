//! Buffers written with one request, as `curl -T` does.

use crate::raw::Raw;
use crate::test_server::{TestResponse, TestServer};
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use http::Method;
use serde_json::json;
use sha2::{Digest, Sha256};
use towline_api::CHUNK_BYTES;

async fn empty(server: &TestServer) -> String {
    server.post("/v1/buffers", json!({})).await.success()["id"].as_str().unwrap().to_owned()
}

async fn fill_with_digest(
    server: &TestServer,
    id: &str,
    digest: &str,
    content: &'static [u8],
) -> TestResponse {
    let headers = [("content-digest", digest)];
    server.send_bytes(Method::PUT, &format!("/v1/buffers/{id}/content"), &headers, content).await
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
async fn the_server_splits_an_upload_into_chunks() {
    let server = TestServer::start().await;
    for (length, chunks) in [
        (0, 0),
        (1, 1),
        (CHUNK_BYTES - 1, 1),
        (CHUNK_BYTES, 1),
        (CHUNK_BYTES + 1, 2),
        (5 * CHUNK_BYTES + 7, 6),
    ] {
        let id = empty(&server).await;
        let content = noise(length);
        let shown = server.fill(&id, content.clone()).await.success();
        assert_eq!(
            (&shown["state"], &shown["bytes"], &shown["chunks"]),
            (&json!("complete"), &json!(length), &json!(chunks))
        );
        assert!(server.get(&format!("/v1/buffers/{id}/content")).await.body == content, "{length}");
        server.fill(&id, "again").await.problem("buffer_written");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn the_digest_of_an_upload_is_checked() {
    let server = TestServer::start().await;
    let right = format!("sha-256=:{}:", STANDARD.encode(Sha256::digest(b"some bytes")));
    let id = empty(&server).await;
    fill_with_digest(&server, &id, &right, b"some bytes").await.success();
    let id = empty(&server).await;
    fill_with_digest(&server, &id, &right, b"other bytes").await.problem("hash_mismatch");
    assert_eq!(server.get(&format!("/v1/buffers/{id}")).await.success()["state"], "failed");
    server.get(&format!("/v1/buffers/{id}/content")).await.problem("buffer_failed");
    for wrong in ["sha-256=abc", "md5=:abcd:", "sha-256=:YWJj:", ""] {
        let id = empty(&server).await;
        fill_with_digest(&server, &id, wrong, b"some bytes").await.problem("invalid");
        assert_eq!(server.get(&format!("/v1/buffers/{id}")).await.success()["state"], "empty", "{wrong}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn an_incomplete_body_fails_the_buffer() {
    let server = TestServer::start().await;
    let id = empty(&server).await;
    let mut raw = Raw::connect(server.address).await;
    raw.send(format!(
        "PUT /v1/buffers/{id}/content HTTP/1.1\r\nhost: localhost\r\ncontent-length: 100\r\n\r\nsome"
    ))
    .await;
    drop(raw);
    let answer = server.get(&format!("/v1/buffers/{id}/chunks/1?wait=1m")).await;
    let detail = answer.problem("buffer_failed");
    assert!(detail.contains("the writer disconnected"), "{detail}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_reader_sees_the_data_of_a_slow_upload_before_it_ends() {
    let server = TestServer::start().await;
    let id = empty(&server).await;
    let mut raw = Raw::connect(server.address).await;
    raw.send(format!(
        "PUT /v1/buffers/{id}/content HTTP/1.1\r\nhost: localhost\r\ncontent-length: 8\r\n\r\nsome"
    ))
    .await;
    assert_eq!(server.get(&format!("/v1/buffers/{id}/chunks/0?wait=1m")).await.body, "some");
    raw.send("more").await;
    assert_eq!(raw.answer().await.unwrap().success()["bytes"], 8);
    assert_eq!(server.get(&format!("/v1/buffers/{id}/content")).await.body, "somemore");
}
