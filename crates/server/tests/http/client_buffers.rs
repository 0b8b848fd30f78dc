//! Whole buffers through the Rust client, over connections that break.

use crate::proxy::{Fate, Proxy};
use crate::test_server::TestServer;
use serde_json::json;
use std::io::Cursor;
use std::time::Duration;
use tokio::sync::mpsc;
use towline_api::chain::Position;
use towline_api::client::chunker::{self, InputEvent};
use towline_api::client::{Download, Upload, UploadError};
use towline_api::{CHUNK_BYTES, Client, ClientError};

const WRITER: &str = "000102030405060708090a0b0c0d0e0f";

fn content(length: usize) -> Vec<u8> {
    (0..length).map(|at| (at / 1000 % 251) as u8).collect()
}

async fn empty(server: &TestServer) -> String {
    server.post("/v1/buffers", json!({})).await.success()["id"].as_str().unwrap().to_owned()
}

async fn download(client: Client, id: &str) -> Result<Vec<u8>, ClientError> {
    let mut download = Download::new(client, id, Position::START);
    let mut all = Vec::new();
    while let Some(pieces) = download.next().await? {
        pieces.iter().for_each(|piece| all.extend_from_slice(piece));
    }
    Ok(all)
}

/// Connections that break after more and more bytes.
const BREAKS: usize = 8;

fn breaking() -> impl Iterator<Item = Fate> {
    (0..BREAKS as u64).map(|n| Fate::CutAfterBytes(300_000 + n * 700_000))
}

#[tokio::test(flavor = "multi_thread")]
async fn transfers_survive_broken_connections() {
    let server = TestServer::start().await;
    let proxy = Proxy::start(server.address).await;
    let client = || Client::new(&proxy.url()).unwrap().retry_for(Duration::from_secs(60));
    let (id, bytes) = (empty(&server).await, content(10 * CHUNK_BYTES + 12_345));
    // The reader starts first, over the same unreliable proxy.
    proxy.plan(breaking());
    let reading = tokio::spawn({
        let (client, id) = (client(), id.clone());
        async move { download(client, &id).await }
    });
    let mut upload = Upload::begin(client(), &id, WRITER).await.unwrap();
    let mut safe = 0;
    let totals =
        upload.run(chunker::chunk_input(Cursor::new(bytes.clone())), |bytes| safe += bytes).await.unwrap();
    assert_eq!((totals.bytes, safe), (bytes.len() as u64, bytes.len() as u64));
    assert!(reading.await.unwrap().unwrap() == bytes);
    let accepted = proxy.accepted();
    assert!(accepted > BREAKS, "only {accepted} connections: some did not break");
    proxy.plan(breaking());
    assert!(download(client(), &id).await.unwrap() == bytes);
    assert!(
        proxy.accepted() > accepted + BREAKS,
        "only {} connections: some did not break",
        proxy.accepted()
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn an_upload_with_a_failing_source_does_not_complete_the_buffer() {
    let server = TestServer::start().await;
    for end in [Some(InputEvent::Failed(std::io::Error::other("torn"))), None] {
        let id = empty(&server).await;
        let mut upload = Upload::begin(server.client(), &id, WRITER).await.unwrap();
        let (sender, receiver) = mpsc::channel(4);
        sender.send(InputEvent::Chunk(chunker::Chunk::new("half".into()).unwrap())).await.unwrap();
        if let Some(end) = end {
            sender.send(end).await.unwrap();
        }
        drop(sender);
        let ended = upload.run(receiver, |_| {}).await;
        assert!(matches!(ended, Err(UploadError::Input(_))), "{ended:?}");
        assert_eq!(server.get(&format!("/v1/buffers/{id}")).await.success()["state"], "writing");
        upload.fail("torn").await.unwrap();
        let read = download(server.client(), &id).await.unwrap_err();
        assert!(read.to_string().contains("torn"), "{read}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn damaged_chunks_are_never_returned() {
    let server = TestServer::start().await;
    let (id, bytes) = (empty(&server).await, content(2 * CHUNK_BYTES));
    server.fill(&id, bytes).await.success();
    server.damage_chunk(&id, 1);
    let error = download(server.client(), &id).await.unwrap_err();
    assert_eq!(error.code(), Some(towline_api::Code::Damaged), "{error}");
    let mut content = server.client().content(&id, 0..u64::MAX).await.unwrap();
    let broken = loop {
        match content.next().await {
            Ok(Some(_)) => {}
            end => break end,
        }
    };
    assert!(broken.is_err(), "a damaged buffer was read to its end");
}
