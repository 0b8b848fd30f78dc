//! Chunks that clients put and get by themselves.

use std::time::Duration;

use bytes::Bytes;
use http_body_util::{BodyExt, Full};
use hyper::Request;
use hyper_util::client::legacy::Client;
use hyper_util::rt::TokioExecutor;
use towline_buffers::{BufferError, Header, NewChunk, Signed};

use crate::rig::{NOW, Place, WRITER, assert_refused, created};

pub const MINUTE: Duration = Duration::from_secs(60);

/// A chunk object as a client makes it.
pub fn object(chunk: &NewChunk) -> Vec<u8> {
    let data = chunk.data.concat();
    let header = Header {
        n: chunk.n,
        length: data.len() as u64,
        put_at_ms: NOW,
        writer: WRITER.mark(),
        hash: chunk.hash,
        chain: chunk.chain,
    };
    [&header.encode()[..], &data].concat()
}

/// Sends a signed request as it is.
pub async fn send(signed: &Signed, body: Vec<u8>) -> (u16, Bytes) {
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
async fn a_directory_signs_nothing() {
    let place = Place::directory().await;
    let buffers = created(&place, "b").await;
    buffers.begin("b", WRITER, NOW).await.unwrap();
    assert_refused!(buffers.sign_chunk_put("b", WRITER, 0, MINUTE).await, BufferError::NotSupported { .. });
    assert_refused!(buffers.sign_chunk_get("b", 0, MINUTE).await, BufferError::NotSupported { .. });
    assert_refused!(buffers.adopt_chunk("b", WRITER, 0, true, NOW).await, BufferError::NotSupported { .. });
}
