//! One writer, in chunks: what is taken, what is refused, and how it can go on.

use crate::raw::Raw;
use crate::rig::{Answer, Rig};
use http::Method;
use serde_json::{Value, json};
use towline_api::chain::{self, Position};

const WRITER: &str = "000102030405060708090a0b0c0d0e0f";
const OTHER: &str = "f0f1f2f3f4f5f6f7f8f9fafbfcfdfeff";

struct Scene {
    rig: Rig,
    id: String,
}

async fn scene() -> Scene {
    let rig = Rig::start().await;
    let id = rig.post("/v1/buffers", json!({})).await.good()["id"].as_str().unwrap().to_owned();
    Scene { rig, id }
}

impl Scene {
    async fn post(&self, rest: &str, body: Value) -> Answer {
        self.rig.post(&format!("/v1/buffers/{}{rest}", self.id), body).await
    }

    async fn begin(&self, writer: &str) -> Answer {
        self.post("/writer", json!({"writer": writer})).await
    }

    /// Puts what is after `at`, and tells the position after that.
    async fn put(&self, writer: &str, at: Position, data: &str) -> (Answer, Position) {
        let hash = chain::hash([data.as_bytes()]);
        let after = at.after(data.len() as u64, &hash);
        let answer = self.put_as(writer, at.chunks, &hash.to_hex(), &after.chain.to_hex(), data).await;
        (answer, after)
    }

    async fn put_as(&self, writer: &str, n: u32, hash: &str, chain: &str, data: &str) -> Answer {
        let headers = [("towline-writer", writer), ("towline-hash", hash), ("towline-chain", chain)];
        let path = format!("/v1/buffers/{}/chunks/{n}", self.id);
        self.rig.send_bytes(Method::PUT, &path, &headers, data.to_owned()).await
    }

    async fn finish(&self, writer: &str, at: Position) -> Answer {
        let Position { chunks, bytes, chain } = at;
        let chain = chain.to_hex().to_string();
        self.post("/finish", json!({"writer": writer, "chunks": chunks, "bytes": bytes, "chain": chain}))
            .await
    }

    async fn shown(&self) -> Value {
        self.rig.get(&format!("/v1/buffers/{}", self.id)).await.good()
    }

    async fn content(&self) -> Answer {
        self.rig.get(&format!("/v1/buffers/{}/content?wait=0ms", self.id)).await
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_buffer_is_written_in_chunks_and_finished() {
    let scene = scene().await;
    let begun = scene.begin(WRITER).await.good();
    assert_eq!((&begun["chunks"], &begun["bytes"], &begun["writer"]), (&json!(0), &json!(0), &json!(WRITER)));
    let (first, at) = scene.put(WRITER, Position::START, "Hello, ").await;
    assert_eq!(first.status, 204);
    assert_eq!(scene.shown().await["state"], "writing");
    scene.post("/touch", json!({"writer": WRITER})).await.good();
    let (second, at) = scene.put(WRITER, at, "world").await;
    assert_eq!(second.status, 204);
    let finished = scene.finish(WRITER, at).await.good();
    assert_eq!(
        (&finished["state"], &finished["bytes"], &finished["chunks"]),
        (&json!("complete"), &json!(12), &json!(2))
    );
    assert_eq!(finished["chain"], at.chain.to_hex().as_str());
    assert_eq!(scene.content().await.body, "Hello, world");
    // The same again is answered as the first time.
    scene.finish(WRITER, at).await.good();
}

#[tokio::test(flavor = "multi_thread")]
async fn chunks_come_in_any_order_and_twice() {
    let scene = scene().await;
    scene.begin(WRITER).await.good();
    let a = chain::hash([&b"a"[..]]);
    let after_a = Position::START.after(1, &a);
    let (second, at) = scene.put(WRITER, after_a, "b").await;
    second.good();
    assert_eq!(scene.shown().await["bytes"], 0, "what comes after a gap is not counted");
    for _ in 0..2 {
        scene.put(WRITER, Position::START, "a").await.0.good();
    }
    scene.finish(WRITER, at).await.good();
    assert_eq!(scene.content().await.body, "ab");
    let far = Position { chunks: 65, ..Position::START };
    scene.put(WRITER, far, "x").await.0.refused("buffer_written");
}

#[tokio::test(flavor = "multi_thread")]
async fn overwrite_is_refused() {
    let scene = scene().await;
    scene.begin(WRITER).await.good();
    let words = scene.begin(OTHER).await.refused("buffer_written");
    assert!(words.contains("overwrite refused"), "{words}");
    scene.post("/writer", json!({})).await.refused("buffer_written");
    scene.rig.fill(&scene.id, "else").await.refused("buffer_written");
    scene.put(OTHER, Position::START, "x").await.0.refused("buffer_written");
    scene.post("/touch", json!({"writer": OTHER})).await.refused("buffer_written");
    scene.post("/fail", json!({"writer": OTHER})).await.refused("buffer_written");
    let (_, at) = scene.put(WRITER, Position::START, "mine").await;
    scene.finish(OTHER, at).await.refused("buffer_written");
    scene.finish(WRITER, at).await.good();
    for writer in [WRITER, OTHER] {
        scene.begin(writer).await.refused("buffer_written");
        scene.put(writer, at, "more").await.0.refused("buffer_written");
    }
    assert_eq!(scene.content().await.body, "mine");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_writer_goes_on_where_it_was() {
    let Scene { rig, id } = scene().await;
    let scene = Scene { rig, id };
    scene.begin(WRITER).await.good();
    let (_, at) = scene.put(WRITER, Position::START, "before ").await;
    let scene = Scene { rig: scene.rig.restart().await, id: scene.id };
    let begun = scene.begin(WRITER).await.good();
    assert_eq!((&begun["chunks"], &begun["bytes"]), (&json!(1), &json!(7)));
    assert_eq!(begun["chain"], at.chain.to_hex().as_str());
    let (_, at) = scene.put(WRITER, at, "and after").await;
    scene.finish(WRITER, at).await.good();
    assert_eq!(scene.content().await.body, "before and after");
}

#[tokio::test(flavor = "multi_thread")]
async fn bytes_that_were_changed_on_the_way_are_refused() {
    let scene = scene().await;
    scene.begin(WRITER).await.good();
    let hash = chain::hash([&b"right"[..]]);
    let after = Position::START.after(5, &hash);
    scene.put_as(WRITER, 0, &hash.to_hex(), &after.chain.to_hex(), "wrong").await.refused("hash_mismatch");
    assert_eq!(scene.shown().await["chunks"], 0);
    scene.put(WRITER, Position::START, "right").await.0.good();
    // Another content under the same number, with a hash of its own.
    scene.put(WRITER, Position::START, "other").await.0.refused("chunk_refused");
    // A chunk that follows another one than the one that is there.
    let (broken, _) = scene.put(WRITER, Position { chunks: 1, ..Position::START }, "x").await;
    broken.refused("chunk_refused");
    scene.finish(WRITER, after).await.good();
    assert_eq!(scene.content().await.body, "right");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_chunk_that_broke_off_is_not_there() {
    let scene = scene().await;
    scene.begin(WRITER).await.good();
    let hash = chain::hash([&b"all of it"[..]]);
    let after = Position::START.after(9, &hash);
    let mut raw = Raw::connect(scene.rig.address).await;
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
    assert_eq!(scene.shown().await["chunks"], 0);
    let words = scene.finish(WRITER, after).await.refused("chunk_refused");
    assert!(words.contains("chunk 0"), "{words}");
    scene.put(WRITER, Position::START, "all of it").await.0.good();
    scene.finish(WRITER, after).await.good();
}

#[tokio::test(flavor = "multi_thread")]
async fn totals_that_differ_do_not_finish() {
    let scene = scene().await;
    scene.begin(WRITER).await.good();
    let (_, at) = scene.put(WRITER, Position::START, "data").await;
    for wrong in [
        Position { bytes: 5, ..at },
        Position { chunks: 2, ..at },
        Position { chain: chain::CHAIN_START, ..at },
        Position::START,
    ] {
        scene.finish(WRITER, wrong).await.refused("chunk_refused");
    }
    assert_eq!(scene.shown().await["state"], "writing");
    scene.finish(WRITER, at).await.good();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_failed_buffer_says_why_and_stays_so() {
    let scene = scene().await;
    scene.begin(WRITER).await.good();
    let (_, at) = scene.put(WRITER, Position::START, "half").await;
    let failed =
        scene.post("/fail", json!({"writer": WRITER, "reason": "the scanner fell over"})).await.good();
    assert_eq!((&failed["state"], &failed["reason"]), (&json!("failed"), &json!("the scanner fell over")));
    for answer in [
        scene.content().await,
        scene.begin(WRITER).await,
        scene.begin(OTHER).await,
        scene.put(WRITER, at, "more").await.0,
        scene.finish(WRITER, at).await,
        scene.post("/touch", json!({"writer": WRITER})).await,
        scene.rig.get(&format!("/v1/buffers/{}/chunks/1", scene.id)).await,
    ] {
        let words = answer.refused("buffer_failed");
        assert!(words.contains("the scanner fell over"), "{words}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn chunks_have_a_size() {
    let scene = scene().await;
    scene.begin(WRITER).await.good();
    scene.put(WRITER, Position::START, "").await.0.refused("invalid");
    let (largest, _) = scene.put(WRITER, Position::START, &"x".repeat(16 << 20)).await;
    largest.good();
    scene.put(WRITER, Position::START, &"x".repeat((16 << 20) + 1)).await.0.refused("too_large");
    let (far, _) = scene.put(WRITER, Position { chunks: 1_000_000, ..Position::START }, "x").await;
    assert!(matches!(far.code(), "too_large" | "chunk_refused"), "{}", far.json());
}

#[tokio::test(flavor = "multi_thread")]
async fn what_a_writer_must_say() {
    let scene = scene().await;
    let good = "0".repeat(64);
    scene.put(WRITER, Position::START, "x").await.0.refused("buffer_not_ready");
    for (writer, hash, chain) in [
        ("short", good.as_str(), good.as_str()),
        ("", &good, &good),
        (WRITER, "short", &good),
        (WRITER, &good, ""),
        (WRITER, &good, "g000000000000000000000000000000000000000000000000000000000000000"),
    ] {
        scene.put_as(writer, 0, hash, chain, "x").await.refused("invalid");
    }
    scene.begin("not hexadecimal").await.refused("invalid");
    scene.post("/finish", json!({"writer": WRITER})).await.refused("malformed_body");
    scene.post("/touch", json!({})).await.refused("malformed_body");
    // A writer that the server makes.
    let begun = scene.post("/writer", json!({})).await.good();
    let writer = begun["writer"].as_str().unwrap();
    assert_eq!(writer.len(), 32);
    let (_, at) = scene.put(writer, Position::START, "x").await;
    scene.finish(writer, at).await.good();
}

#[tokio::test(flavor = "multi_thread")]
async fn nothing_at_all_is_a_buffer_too() {
    let scene = scene().await;
    scene.begin(WRITER).await.good();
    assert_eq!(scene.finish(WRITER, Position::START).await.good()["state"], "complete");
    let content = scene.content().await;
    assert_eq!(
        (content.status.as_u16(), content.body.len(), &content.headers["content-length"]),
        (200, 0, &"0".parse().unwrap())
    );
}
