//! Presigned requests, and helpers that send them as a client does.

use std::time::Duration;

use bytes::Bytes;
use http_body_util::{BodyExt, Full};
use hyper::Request;
use hyper_util::client::legacy::Client;
use hyper_util::rt::TokioExecutor;
use towline_buffers::{BufferError, ChunkHeader, NewChunk, PresignedRequest};

use crate::storage::{NOW, TestStorage, WRITER, assert_refused, created};

pub const MINUTE: Duration = Duration::from_secs(60);

/// Builds a chunk object as a client does.
pub fn object(chunk: &NewChunk) -> Vec<u8> {
    let data = chunk.data.concat();
    let header = ChunkHeader {
        n: chunk.n,
        length: data.len() as u64,
        put_at_ms: NOW,
        writer: WRITER.mark(),
        hash: chunk.hash,
        chain: chunk.chain,
    };
    [&header.encode()[..], &data].concat()
}

/// Sends a presigned request unchanged.
pub async fn send(signed: &PresignedRequest, body: Vec<u8>) -> (u16, Bytes) {
    let client = Client::builder(TokioExecutor::new()).build_http();
    let mut request = Request::builder().method(signed.method.clone()).uri(&signed.url);
    for (name, value) in &signed.headers {
        request = request.header(name, value);
    }
    let answer = client.request(request.body(Full::new(Bytes::from(body))).unwrap()).await.unwrap();
    let status = answer.status().as_u16();
    (status, answer.into_body().collect().await.unwrap().to_bytes())
}

#[tokio::test]
async fn a_directory_does_not_support_presigned_requests() {
    let storage = TestStorage::directory().await;
    let buffers = created(&storage, "b").await;
    buffers.begin("b", WRITER, NOW).await.unwrap();
    assert_refused!(
        buffers.sign_chunk_put("b", WRITER, 0, 3, MINUTE).await,
        BufferError::NotSupported { .. }
    );
    assert_refused!(buffers.sign_chunk_get("b", 0, MINUTE).await, BufferError::NotSupported { .. });
    assert_refused!(buffers.adopt_chunk("b", WRITER, 0, true, NOW).await, BufferError::NotSupported { .. });
}
