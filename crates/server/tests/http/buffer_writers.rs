//! Writing a buffer in chunks: accepted and refused calls, and resuming.

use crate::raw::Raw;
use crate::test_server::{TestResponse, TestServer};
use http::Method;
use serde_json::{Value, json};
use towline_api::chain::{self, Position};

const WRITER: &str = "000102030405060708090a0b0c0d0e0f";
const OTHER: &str = "f0f1f2f3f4f5f6f7f8f9fafbfcfdfeff";

struct Scene {
    server: TestServer,
    id: String,
}

async fn scene() -> Scene {
    let server = TestServer::start().await;
    let id = server.post("/v1/buffers", json!({})).await.success()["id"].as_str().unwrap().to_owned();
    Scene { server, id }
}

impl Scene {
    async fn post(&self, rest: &str, body: Value) -> TestResponse {
        self.server.post(&format!("/v1/buffers/{}{rest}", self.id), body).await
    }

    async fn begin(&self, writer: &str) -> TestResponse {
        self.post("/writer", json!({"writer": writer})).await
    }

    /// Puts the chunk after `at`, and returns the position after it.
    async fn put(&self, writer: &str, at: Position, data: &str) -> (TestResponse, Position) {
        let hash = chain::hash([data.as_bytes()]);
        let after = at.after(data.len() as u64, &hash);
        let answer = self.put_as(writer, at.chunks, &hash.to_hex(), &after.chain.to_hex(), data).await;
        (answer, after)
    }

    async fn put_as(&self, writer: &str, n: u32, hash: &str, chain: &str, data: &str) -> TestResponse {
        let headers = [("towline-writer", writer), ("towline-hash", hash), ("towline-chain", chain)];
        let path = format!("/v1/buffers/{}/chunks/{n}", self.id);
        self.server.send_bytes(Method::PUT, &path, &headers, data.to_owned()).await
    }

    async fn finish(&self, writer: &str, at: Position) -> TestResponse {
        let Position { chunks, bytes, chain } = at;
        let chain = chain.to_hex().to_string();
        self.post("/finish", json!({"writer": writer, "chunks": chunks, "bytes": bytes, "chain": chain}))
            .await
    }

    async fn show(&self) -> Value {
        self.server.get(&format!("/v1/buffers/{}", self.id)).await.success()
    }

    async fn content(&self) -> TestResponse {
        self.server.get(&format!("/v1/buffers/{}/content?wait=0ms", self.id)).await
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_buffer_is_written_in_chunks_and_completed() {
    let scene = scene().await;
    let begun = scene.begin(WRITER).await.success();
    assert_eq!((&begun["chunks"], &begun["bytes"], &begun["writer"]), (&json!(0), &json!(0), &json!(WRITER)));
    let (first, at) = scene.put(WRITER, Position::START, "Hello, ").await;
    assert_eq!(first.status, 204);
    assert_eq!(scene.show().await["state"], "writing");
    scene.post("/touch", json!({"writer": WRITER})).await.success();
    let (second, at) = scene.put(WRITER, at, "world").await;
    assert_eq!(second.status, 204);
    let finished = scene.finish(WRITER, at).await.success();
    assert_eq!(
        (&finished["state"], &finished["bytes"], &finished["chunks"]),
        (&json!("complete"), &json!(12), &json!(2))
    );
    assert_eq!(finished["chain"], at.chain.to_hex().as_str());
    assert_eq!(scene.content().await.body, "Hello, world");
    // The same call again gets the same response.
    scene.finish(WRITER, at).await.success();
}

#[tokio::test(flavor = "multi_thread")]
async fn chunks_may_arrive_in_any_order_and_twice() {
    let scene = scene().await;
    scene.begin(WRITER).await.success();
    let a = chain::hash([&b"a"[..]]);
    let after_a = Position::START.after(1, &a);
    let (second, at) = scene.put(WRITER, after_a, "b").await;
    second.success();
    assert_eq!(scene.show().await["bytes"], 0, "chunks after a gap are not counted");
    for _ in 0..2 {
        scene.put(WRITER, Position::START, "a").await.0.success();
    }
    scene.finish(WRITER, at).await.success();
    assert_eq!(scene.content().await.body, "ab");
    let far = Position { chunks: 65, ..Position::START };
    scene.put(WRITER, far, "x").await.0.problem("buffer_written");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_buffer_is_not_overwritten() {
    let scene = scene().await;
    scene.begin(WRITER).await.success();
    let detail = scene.begin(OTHER).await.problem("buffer_written");
    assert!(detail.contains("overwrite refused"), "{detail}");
    scene.post("/writer", json!({})).await.problem("buffer_written");
    scene.server.fill(&scene.id, "else").await.problem("buffer_written");
    scene.put(OTHER, Position::START, "x").await.0.problem("buffer_written");
    scene.post("/touch", json!({"writer": OTHER})).await.problem("buffer_written");
    scene.post("/fail", json!({"writer": OTHER})).await.problem("buffer_written");
    let (_, at) = scene.put(WRITER, Position::START, "mine").await;
    scene.finish(OTHER, at).await.problem("buffer_written");
    scene.finish(WRITER, at).await.success();
    for writer in [WRITER, OTHER] {
        scene.begin(writer).await.problem("buffer_written");
        scene.put(writer, at, "more").await.0.problem("buffer_written");
    }
    assert_eq!(scene.content().await.body, "mine");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_writer_resumes_at_its_position() {
    let Scene { server, id } = scene().await;
    let scene = Scene { server, id };
    scene.begin(WRITER).await.success();
    let (_, at) = scene.put(WRITER, Position::START, "before ").await;
    let scene = Scene { server: scene.server.restart().await, id: scene.id };
    let begun = scene.begin(WRITER).await.success();
    assert_eq!((&begun["chunks"], &begun["bytes"]), (&json!(1), &json!(7)));
    assert_eq!(begun["chain"], at.chain.to_hex().as_str());
    let (_, at) = scene.put(WRITER, at, "and after").await;
    scene.finish(WRITER, at).await.success();
    assert_eq!(scene.content().await.body, "before and after");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_chunk_that_does_not_match_its_hash_is_refused() {
    let scene = scene().await;
    scene.begin(WRITER).await.success();
    let hash = chain::hash([&b"right"[..]]);
    let after = Position::START.after(5, &hash);
    scene.put_as(WRITER, 0, &hash.to_hex(), &after.chain.to_hex(), "wrong").await.problem("hash_mismatch");
    assert_eq!(scene.show().await["chunks"], 0);
    scene.put(WRITER, Position::START, "right").await.0.success();
    // Other data under the same number, with a matching hash.
    scene.put(WRITER, Position::START, "other").await.0.problem("chunk_refused");
    // A chunk that does not continue the hash chain.
    let (broken, _) = scene.put(WRITER, Position { chunks: 1, ..Position::START }, "x").await;
    broken.problem("chunk_refused");
    scene.finish(WRITER, after).await.success();
    assert_eq!(scene.content().await.body, "right");
}

#[tokio::test(flavor = "multi_thread")]
async fn an_incomplete_chunk_is_not_stored() {
    let scene = scene().await;
    scene.begin(WRITER).await.success();
    let hash = chain::hash([&b"all of it"[..]]);
    let after = Position::START.after(9, &hash);
    let mut raw = Raw::connect(scene.server.address).await;
    raw.send(format!(
        "PUT /v1/buffers/{}/chunks/0 HTTP/1.1\r\nhost: localhost\r\ntowline-writer: {WRITER}\r\ntowline-hash: {}\r\n\
         towline-chain: {}\r\ncontent-length: 9\r\n\r\nall",
        scene.id,
        hash.to_hex(),
        after.chain.to_hex()
    ))
    .await;
    raw.finish().await;
    raw.hung_up().await;
    assert_eq!(scene.show().await["chunks"], 0);
    let detail = scene.finish(WRITER, after).await.problem("chunk_refused");
    assert!(detail.contains("chunk 0"), "{detail}");
    scene.put(WRITER, Position::START, "all of it").await.0.success();
    scene.finish(WRITER, after).await.success();
}

#[tokio::test(flavor = "multi_thread")]
async fn wrong_totals_do_not_complete_a_buffer() {
    let scene = scene().await;
    scene.begin(WRITER).await.success();
    let (_, at) = scene.put(WRITER, Position::START, "data").await;
    for wrong in [
        Position { bytes: 5, ..at },
        Position { chunks: 2, ..at },
        Position { chain: chain::CHAIN_START, ..at },
        Position::START,
    ] {
        scene.finish(WRITER, wrong).await.problem("chunk_refused");
    }
    assert_eq!(scene.show().await["state"], "writing");
    scene.finish(WRITER, at).await.success();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_failed_buffer_keeps_its_reason() {
    let scene = scene().await;
    scene.begin(WRITER).await.success();
    let (_, at) = scene.put(WRITER, Position::START, "half").await;
    let failed =
        scene.post("/fail", json!({"writer": WRITER, "reason": "the scanner fell over"})).await.success();
    assert_eq!((&failed["state"], &failed["reason"]), (&json!("failed"), &json!("the scanner fell over")));
    for answer in [
        scene.content().await,
        scene.begin(WRITER).await,
        scene.begin(OTHER).await,
        scene.put(WRITER, at, "more").await.0,
        scene.finish(WRITER, at).await,
        scene.post("/touch", json!({"writer": WRITER})).await,
        scene.server.get(&format!("/v1/buffers/{}/chunks/1", scene.id)).await,
    ] {
        let detail = answer.problem("buffer_failed");
        assert!(detail.contains("the scanner fell over"), "{detail}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn the_size_of_a_chunk_is_limited() {
    let scene = scene().await;
    scene.begin(WRITER).await.success();
    scene.put(WRITER, Position::START, "").await.0.problem("invalid");
    let (largest, _) = scene.put(WRITER, Position::START, &"x".repeat(16 << 20)).await;
    largest.success();
    scene.put(WRITER, Position::START, &"x".repeat((16 << 20) + 1)).await.0.problem("too_large");
    let (far, _) = scene.put(WRITER, Position { chunks: 1_000_000, ..Position::START }, "x").await;
    assert!(matches!(far.code(), "too_large" | "chunk_refused"), "{}", far.json());
}

#[tokio::test(flavor = "multi_thread")]
async fn incomplete_calls_of_a_writer_are_rejected() {
    let scene = scene().await;
    let good = "0".repeat(64);
    scene.put(WRITER, Position::START, "x").await.0.problem("buffer_not_ready");
    for (writer, hash, chain) in [
        ("short", good.as_str(), good.as_str()),
        ("", &good, &good),
        (WRITER, "short", &good),
        (WRITER, &good, ""),
        (WRITER, &good, "g000000000000000000000000000000000000000000000000000000000000000"),
    ] {
        scene.put_as(writer, 0, hash, chain, "x").await.problem("invalid");
    }
    scene.begin("not hexadecimal").await.problem("invalid");
    scene.post("/finish", json!({"writer": WRITER})).await.problem("malformed_body");
    scene.post("/touch", json!({})).await.problem("malformed_body");
    // The server generates the writer id.
    let begun = scene.post("/writer", json!({})).await.success();
    let writer = begun["writer"].as_str().unwrap();
    assert_eq!(writer.len(), 32);
    let (_, at) = scene.put(writer, Position::START, "x").await;
    scene.finish(writer, at).await.success();
}

#[tokio::test(flavor = "multi_thread")]
async fn an_empty_buffer_can_be_completed() {
    let scene = scene().await;
    scene.begin(WRITER).await.success();
    assert_eq!(scene.finish(WRITER, Position::START).await.success()["state"], "complete");
    let content = scene.content().await;
    assert_eq!(
        (content.status.as_u16(), content.body.len(), &content.headers["content-length"]),
        (200, 0, &"0".parse().unwrap())
    );
}
