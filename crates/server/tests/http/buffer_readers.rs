//! Readers: those that come first wait, those that come late get all of it, and none takes a part for the whole.

use crate::raw::Raw;
use crate::rig::{Answer, Rig};
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

async fn empty(rig: &Rig) -> String {
    rig.post("/v1/buffers", json!({})).await.good()["id"].as_str().unwrap().to_owned()
}

/// A writer that does as it is told.
async fn writer(
    rig: &Rig,
    id: &str,
) -> (mpsc::Sender<InputEvent>, tokio::task::JoinHandle<Result<Position, String>>) {
    let mut upload = Upload::begin(rig.client(), id, WRITER).await.unwrap();
    let (sender, receiver) = mpsc::channel(1);
    let running =
        tokio::spawn(async move { upload.run(receiver, |_| {}).await.map_err(|error| error.to_string()) });
    (sender, running)
}

fn chunk(data: &'static str) -> InputEvent {
    InputEvent::Chunk(Chunk::new(data.into()).unwrap())
}

/// What came, and how it ended.
async fn to_its_end(mut content: Content) -> (Vec<u8>, Result<(), ClientError>) {
    let mut read = Vec::new();
    loop {
        match content.next().await {
            Ok(Some(piece)) => read.extend_from_slice(&piece),
            Ok(None) => return (read, Ok(())),
            Err(error) => return (read, Err(error)),
        }
    }
}

async fn range(rig: &Rig, id: &str, range: &str) -> Answer {
    rig.send_bytes(Method::GET, &format!("/v1/buffers/{id}/content"), &[("range", range)], "").await
}

#[tokio::test(flavor = "multi_thread")]
async fn a_reader_that_comes_first_gets_every_byte() {
    let rig = Arc::new(Rig::start().await);
    let id = empty(&rig).await;
    let (path, reading_rig) = (format!("/v1/buffers/{id}/content"), Arc::clone(&rig));
    let reading = tokio::spawn(async move { reading_rig.get(&path).await });
    let client = rig.client();
    let (waiting_id, wait) = (id.clone(), Duration::from_secs(60));
    let first = tokio::spawn(async move { client.chunk(&waiting_id, 0, wait).await.unwrap() });
    let (sender, running) = writer(&rig, &id).await;
    sender.send(chunk("one ")).await.unwrap();
    // It is read before the writer goes on.
    let ChunkLookup::Chunk(got) = first.await.unwrap() else { panic!("no chunk") };
    assert_eq!(got.pieces.concat(), b"one ");
    sender.send(chunk("two")).await.unwrap();
    sender.send(InputEvent::End).await.unwrap();
    assert_eq!(running.await.unwrap().unwrap().bytes, 7);
    assert_eq!(reading.await.unwrap().body, "one two");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_reader_of_a_writer_that_fails_is_cut_off() {
    let rig = Rig::start().await;
    let id = empty(&rig).await;
    let content = rig.client().content(&id, 0..u64::MAX).await.unwrap();
    let (sender, _running) = writer(&rig, &id).await;
    sender.send(chunk("half")).await.unwrap();
    let there = async {
        while !matches!(rig.client().chunk(&id, 0, Duration::from_secs(60)).await, Ok(ChunkLookup::Chunk(_)))
        {
        }
    };
    there.await;
    rig.client().fail_buffer(&id, WRITER, "fell over").await.unwrap();
    let (read, end) = to_its_end(content).await;
    assert_eq!(read, b"half");
    assert!(end.is_err(), "a part was taken for the whole");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_writer_that_vanishes_is_an_error_for_whoever_waits() {
    let timeout =
        |settings: &mut towline_server::Settings| settings.buffers.writer_timeout = Millis::seconds(1);
    let rig = Rig::start_with(timeout).await;
    let id = empty(&rig).await;
    rig.client().begin_buffer(&id, WRITER).await.unwrap();
    let answer = rig.get(&format!("/v1/buffers/{id}/chunks/0?wait=5m")).await;
    let words = answer.refused("buffer_failed");
    assert!(words.contains("vanished"), "{words}");
    assert_eq!(rig.get(&format!("/v1/buffers/{id}")).await.good()["state"], "failed");
}

#[tokio::test(flavor = "multi_thread")]
async fn what_is_not_there_yet_is_told_so() {
    let rig = Rig::start().await;
    let id = empty(&rig).await;
    for wait in ["", "?wait=1ms"] {
        let answer = rig.get(&format!("/v1/buffers/{id}/chunks/0{wait}")).await;
        assert_eq!(
            (answer.status.as_u16(), &answer.headers["towline-state"]),
            (204, &"writing".parse().unwrap())
        );
    }
    rig.get(&format!("/v1/buffers/{id}/chunks/0?wait=6m")).await.refused("invalid");
    rig.get(&format!("/v1/buffers/{id}/content?wait=6m")).await.refused("invalid");
    rig.get(&format!("/v1/buffers/{id}/content?wait=1m&x=1")).await.refused("invalid");
}

#[tokio::test(flavor = "multi_thread")]
async fn ranges_of_a_complete_buffer() {
    let rig = Rig::start().await;
    let id = empty(&rig).await;
    rig.fill(&id, "0123456789").await.good();
    for (asked, bytes, content_range) in [
        ("bytes=0-0", "0", "bytes 0-0/10"),
        ("bytes=2-5", "2345", "bytes 2-5/10"),
        ("bytes=7-", "789", "bytes 7-9/10"),
        ("bytes=7-100", "789", "bytes 7-9/10"),
        ("bytes=-2", "89", "bytes 8-9/10"),
        ("bytes=-100", "0123456789", "bytes 0-9/10"),
    ] {
        let answer = range(&rig, &id, asked).await;
        assert_eq!((answer.status.as_u16(), &answer.body[..]), (206, bytes.as_bytes()), "{asked}");
        assert_eq!(answer.headers["content-range"], content_range, "{asked}");
        assert_eq!(answer.headers["content-length"], bytes.len().to_string(), "{asked}");
    }
    for beyond in ["bytes=10-", "bytes=10-20", "bytes=-0"] {
        let answer = range(&rig, &id, beyond).await;
        answer.refused("range_not_satisfiable");
        assert_eq!(answer.headers["content-range"], "bytes */10", "{beyond}");
    }
    for whole in ["bytes=0-1,3-4", "lines=1-2", "bytes=x", "bytes=5-2"] {
        let answer = range(&rig, &id, whole).await;
        assert_eq!((answer.status.as_u16(), &answer.body[..]), (200, &b"0123456789"[..]), "{whole}");
    }
    let tag =
        rig.get(&format!("/v1/buffers/{id}/content")).await.headers["etag"].to_str().unwrap().to_owned();
    for (if_range, status) in [(tag.as_str(), 206), ("\"else\"", 200)] {
        let headers = [("range", "bytes=0-1"), ("if-range", if_range)];
        let answer = rig.send_bytes(Method::GET, &format!("/v1/buffers/{id}/content"), &headers, "").await;
        assert_eq!(answer.status, status, "{if_range}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn ranges_of_a_buffer_that_is_being_written() {
    let rig = Rig::start().await;
    let id = empty(&rig).await;
    let (sender, running) = writer(&rig, &id).await;
    sender.send(chunk("0123456789")).await.unwrap();
    while !matches!(rig.client().chunk(&id, 0, Duration::from_secs(60)).await, Ok(ChunkLookup::Chunk(_))) {}
    let answer = range(&rig, &id, "bytes=2-5").await;
    assert_eq!((answer.status.as_u16(), &answer.body[..]), (206, &b"2345"[..]));
    assert_eq!(answer.headers["content-range"], "bytes 2-5/*");
    for later in ["bytes=2-10", "bytes=2-", "bytes=-2"] {
        let words = range(&rig, &id, later).await.refused("buffer_not_ready");
        assert!(words.contains("10 bytes so far"), "{words}");
    }
    sender.send(InputEvent::End).await.unwrap();
    running.await.unwrap().unwrap();
    assert_eq!(range(&rig, &id, "bytes=-2").await.body, "89");
}

#[tokio::test(flavor = "multi_thread")]
async fn no_browser_runs_what_somebody_stored() {
    let rig = Rig::start().await;
    let id = empty(&rig).await;
    rig.fill(&id, "<script>alert(1)</script>").await.good();
    let safe = |headers: &HeaderMap| {
        assert_eq!(headers["content-type"], "application/octet-stream");
        assert_eq!(headers["x-content-type-options"], "nosniff");
    };
    let content = rig.get(&format!("/v1/buffers/{id}/content")).await;
    safe(&content.headers);
    assert_eq!(content.headers["content-disposition"], format!("attachment; filename=\"{id}\""));
    assert!(content.headers["content-security-policy"].to_str().unwrap().contains("sandbox"));
    safe(&rig.get(&format!("/v1/buffers/{id}/chunks/0")).await.headers);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_head_says_what_a_chunk_is_without_bringing_it() {
    let rig = Rig::start().await;
    let id = empty(&rig).await;
    rig.fill(&id, "0123456789").await.good();
    let ChunkLookup::Chunk(head) = rig.client().chunk_head(&id, 0).await.unwrap() else { panic!("no chunk") };
    let ChunkLookup::Chunk(whole) = rig.client().chunk(&id, 0, Duration::ZERO).await.unwrap() else {
        panic!("no chunk")
    };
    assert_eq!((head.length, head.hash, head.chain), (whole.length, whole.hash, whole.chain));
    assert!(head.pieces.is_empty() && whole.pieces.concat() == b"0123456789");
    assert!(matches!(rig.client().chunk_head(&id, 1).await.unwrap(), ChunkLookup::End(at) if at.bytes == 10));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_server_that_stops_does_not_wait_for_readers() {
    // Longer than anybody waits here: nothing below is cut.
    let mut rig = Rig::start_with(|settings| settings.drain = Duration::from_secs(600)).await;
    let id = empty(&rig).await;
    let mut chunk = Raw::connect(rig.address).await;
    chunk.send(format!("GET /v1/buffers/{id}/chunks/0?wait=5m HTTP/1.1\r\nhost: localhost\r\n\r\n")).await;
    let content = rig.client().content(&id, 0..u64::MAX).await.unwrap();
    for _ in 0..20 {
        rig.get("/healthz").await.good();
    }
    rig.stop();
    chunk.answer().await.unwrap().refused("stopping");
    assert!(to_its_end(content).await.1.is_err(), "a stream that was not whole ended well");
    tokio::time::timeout(Duration::from_secs(60), rig.stopped()).await.unwrap();
}
