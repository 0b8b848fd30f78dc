//! Readers of buffers: early ones wait for the writer, late ones get everything, and none takes a part for the whole.

use crate::raw::Raw;
use crate::test_server::{TestResponse, TestServer};
use http::{HeaderMap, Method};
use serde_json::json;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::mpsc;
use towline_api::ClientError;
use towline_api::chain::Position;
use towline_api::client::chunker::{Chunk, InputEvent};
use towline_api::client::{ChunkLookup, Content, Upload};
use towline_domain::Millis;

const WRITER: &str = "000102030405060708090a0b0c0d0e0f";

async fn empty(server: &TestServer) -> String {
    server.post("/v1/buffers", json!({})).await.success()["id"].as_str().unwrap().to_owned()
}

/// A writer that the test controls.
async fn writer(
    server: &TestServer,
    id: &str,
) -> (mpsc::Sender<InputEvent>, tokio::task::JoinHandle<Result<Position, String>>) {
    let mut upload = Upload::begin(server.client(), id, WRITER).await.unwrap();
    let (sender, receiver) = mpsc::channel(1);
    let running =
        tokio::spawn(async move { upload.run(receiver, |_| {}).await.map_err(|error| error.to_string()) });
    (sender, running)
}

fn chunk(data: &'static str) -> InputEvent {
    InputEvent::Chunk(Chunk::new(data.into()).unwrap())
}

/// The bytes that were read, and how the stream ended.
async fn read_to_end(mut content: Content) -> (Vec<u8>, Result<(), ClientError>) {
    let mut read = Vec::new();
    loop {
        match content.next().await {
            Ok(Some(piece)) => read.extend_from_slice(&piece),
            Ok(None) => return (read, Ok(())),
            Err(error) => return (read, Err(error)),
        }
    }
}

async fn range(server: &TestServer, id: &str, range: &str) -> TestResponse {
    server.send_bytes(Method::GET, &format!("/v1/buffers/{id}/content"), &[("range", range)], "").await
}

#[tokio::test(flavor = "multi_thread")]
async fn a_reader_that_waits_before_the_writer_gets_every_byte() {
    let server = Arc::new(TestServer::start().await);
    let id = empty(&server).await;
    let (path, reading_rig) = (format!("/v1/buffers/{id}/content"), Arc::clone(&server));
    let reading = tokio::spawn(async move { reading_rig.get(&path).await });
    let client = server.client();
    let (waiting_id, wait) = (id.clone(), Duration::from_secs(60));
    let first = tokio::spawn(async move { client.chunk(&waiting_id, 0, wait).await.unwrap() });
    let (sender, running) = writer(&server, &id).await;
    sender.send(chunk("one ")).await.unwrap();
    // The reader gets the chunk before the writer continues.
    let ChunkLookup::Chunk(got) = first.await.unwrap() else { panic!("no chunk") };
    assert_eq!(got.pieces.concat(), b"one ");
    sender.send(chunk("two")).await.unwrap();
    sender.send(InputEvent::End).await.unwrap();
    assert_eq!(running.await.unwrap().unwrap().bytes, 7);
    assert_eq!(reading.await.unwrap().body, "one two");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_reader_gets_an_error_when_the_writer_fails() {
    let server = TestServer::start().await;
    let id = empty(&server).await;
    let content = server.client().content(&id, 0..u64::MAX).await.unwrap();
    let (sender, _running) = writer(&server, &id).await;
    sender.send(chunk("half")).await.unwrap();
    let there = async {
        while !matches!(
            server.client().chunk(&id, 0, Duration::from_secs(60)).await,
            Ok(ChunkLookup::Chunk(_))
        ) {}
    };
    there.await;
    server.client().fail_buffer(&id, WRITER, "fell over").await.unwrap();
    let (read, end) = read_to_end(content).await;
    assert_eq!(read, b"half");
    assert!(end.is_err(), "an incomplete body ended without an error");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_waiting_reader_gets_an_error_when_the_writer_times_out() {
    let timeout =
        |settings: &mut towline_server::Settings| settings.buffers.writer_timeout = Millis::seconds(1);
    let server = TestServer::start_with(timeout).await;
    let id = empty(&server).await;
    server.client().begin_buffer(&id, WRITER).await.unwrap();
    let answer = server.get(&format!("/v1/buffers/{id}/chunks/0?wait=5m")).await;
    let detail = answer.problem("buffer_failed");
    assert!(detail.contains("vanished"), "{detail}");
    assert_eq!(server.get(&format!("/v1/buffers/{id}")).await.success()["state"], "failed");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_chunk_that_is_not_written_yet_is_reported() {
    let server = TestServer::start().await;
    let id = empty(&server).await;
    for wait in ["", "?wait=1ms"] {
        let answer = server.get(&format!("/v1/buffers/{id}/chunks/0{wait}")).await;
        assert_eq!(
            (answer.status.as_u16(), &answer.headers["towline-state"]),
            (204, &"writing".parse().unwrap())
        );
    }
    server.get(&format!("/v1/buffers/{id}/chunks/0?wait=6m")).await.problem("invalid");
    server.get(&format!("/v1/buffers/{id}/content?wait=6m")).await.problem("invalid");
    server.get(&format!("/v1/buffers/{id}/content?wait=1m&x=1")).await.problem("invalid");
}

#[tokio::test(flavor = "multi_thread")]
async fn ranges_of_a_complete_buffer() {
    let server = TestServer::start().await;
    let id = empty(&server).await;
    server.fill(&id, "0123456789").await.success();
    for (requested, bytes, content_range) in [
        ("bytes=0-0", "0", "bytes 0-0/10"),
        ("bytes=2-5", "2345", "bytes 2-5/10"),
        ("bytes=7-", "789", "bytes 7-9/10"),
        ("bytes=7-100", "789", "bytes 7-9/10"),
        ("bytes=-2", "89", "bytes 8-9/10"),
        ("bytes=-100", "0123456789", "bytes 0-9/10"),
    ] {
        let answer = range(&server, &id, requested).await;
        assert_eq!((answer.status.as_u16(), &answer.body[..]), (206, bytes.as_bytes()), "{requested}");
        assert_eq!(answer.headers["content-range"], content_range, "{requested}");
        assert_eq!(answer.headers["content-length"], bytes.len().to_string(), "{requested}");
    }
    for beyond in ["bytes=10-", "bytes=10-20", "bytes=-0"] {
        let answer = range(&server, &id, beyond).await;
        answer.problem("range_not_satisfiable");
        assert_eq!(answer.headers["content-range"], "bytes */10", "{beyond}");
    }
    for whole in ["bytes=0-1,3-4", "lines=1-2", "bytes=x", "bytes=5-2"] {
        let answer = range(&server, &id, whole).await;
        assert_eq!((answer.status.as_u16(), &answer.body[..]), (200, &b"0123456789"[..]), "{whole}");
    }
    let tag =
        server.get(&format!("/v1/buffers/{id}/content")).await.headers["etag"].to_str().unwrap().to_owned();
    for (if_range, status) in [(tag.as_str(), 206), ("\"else\"", 200)] {
        let headers = [("range", "bytes=0-1"), ("if-range", if_range)];
        let answer = server.send_bytes(Method::GET, &format!("/v1/buffers/{id}/content"), &headers, "").await;
        assert_eq!(answer.status, status, "{if_range}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn ranges_of_a_buffer_that_is_being_written() {
    let server = TestServer::start().await;
    let id = empty(&server).await;
    let (sender, running) = writer(&server, &id).await;
    sender.send(chunk("0123456789")).await.unwrap();
    while !matches!(server.client().chunk(&id, 0, Duration::from_secs(60)).await, Ok(ChunkLookup::Chunk(_))) {
    }
    let answer = range(&server, &id, "bytes=2-5").await;
    assert_eq!((answer.status.as_u16(), &answer.body[..]), (206, &b"2345"[..]));
    assert_eq!(answer.headers["content-range"], "bytes 2-5/*");
    for later in ["bytes=2-10", "bytes=2-", "bytes=-2"] {
        let detail = range(&server, &id, later).await.problem("buffer_not_ready");
        assert!(detail.contains("10 bytes so far"), "{detail}");
    }
    sender.send(InputEvent::End).await.unwrap();
    running.await.unwrap().unwrap();
    assert_eq!(range(&server, &id, "bytes=-2").await.body, "89");
}

#[tokio::test(flavor = "multi_thread")]
async fn browsers_do_not_run_stored_content() {
    let server = TestServer::start().await;
    let id = empty(&server).await;
    server.fill(&id, "<script>alert(1)</script>").await.success();
    let safe = |headers: &HeaderMap| {
        assert_eq!(headers["content-type"], "application/octet-stream");
        assert_eq!(headers["x-content-type-options"], "nosniff");
    };
    let content = server.get(&format!("/v1/buffers/{id}/content")).await;
    safe(&content.headers);
    assert_eq!(content.headers["content-disposition"], format!("attachment; filename=\"{id}\""));
    assert!(content.headers["content-security-policy"].to_str().unwrap().contains("sandbox"));
    safe(&server.get(&format!("/v1/buffers/{id}/chunks/0")).await.headers);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_head_request_describes_a_chunk_without_its_data() {
    let server = TestServer::start().await;
    let id = empty(&server).await;
    server.fill(&id, "0123456789").await.success();
    let ChunkLookup::Chunk(head) = server.client().chunk_head(&id, 0).await.unwrap() else {
        panic!("no chunk")
    };
    let ChunkLookup::Chunk(whole) = server.client().chunk(&id, 0, Duration::ZERO).await.unwrap() else {
        panic!("no chunk")
    };
    assert_eq!((head.length, head.hash, head.chain), (whole.length, whole.hash, whole.chain));
    assert!(head.pieces.is_empty() && whole.pieces.concat() == b"0123456789");
    assert!(
        matches!(server.client().chunk_head(&id, 1).await.unwrap(), ChunkLookup::End(at) if at.bytes == 10)
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn a_stopping_server_does_not_wait_for_readers() {
    // Longer than any wait in this test, so that no connection is cut.
    let mut server = TestServer::start_with(|settings| settings.drain = Duration::from_secs(600)).await;
    let id = empty(&server).await;
    let mut chunk = Raw::connect(server.address).await;
    chunk.send(format!("GET /v1/buffers/{id}/chunks/0?wait=5m HTTP/1.1\r\nhost: localhost\r\n\r\n")).await;
    let content = server.client().content(&id, 0..u64::MAX).await.unwrap();
    for _ in 0..20 {
        server.get("/healthz").await.success();
    }
    server.stop();
    chunk.answer().await.unwrap().problem("stopping");
    assert!(read_to_end(content).await.1.is_err(), "an incomplete stream ended without an error");
    tokio::time::timeout(Duration::from_secs(60), server.stopped()).await.unwrap();
}
