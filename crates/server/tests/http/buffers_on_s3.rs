//! Buffers in an S3-compatible service, through the server and directly with signed requests.

use crate::s3_server::{BUCKET, KEY, S3Server, SECRET};
use crate::test_server::TestServer;
use bytes::Bytes;
use http::{Method, Request};
use http_body_util::{BodyExt, Full};
use hyper_util::client::legacy::Client as Http;
use hyper_util::rt::TokioExecutor;
use serde_json::json;
use std::time::Duration;
use towline_api::buffer::{AdoptChunk, SignGet, SignPut, SignedRequest};
use towline_api::chain::{self, Position};
use towline_api::client::ChunkLookup;
use towline_server::{Server, ServerError, Settings};

const WRITER: &str = "000102030405060708090a0b0c0d0e0f";

fn on_s3(settings: &mut Settings, endpoint: &str, secret: &str) {
    let buffers = &mut settings.buffers;
    buffers.location = Some(format!("s3://{BUCKET}/some/prefix").parse().unwrap());
    buffers.endpoint = Some(endpoint.to_owned());
    buffers.region = Some("us-east-1".to_owned());
    buffers.access_key_id = Some(KEY.to_owned());
    buffers.secret_access_key = Some(towline_buffers::Secret::new(secret));
}

async fn send(signed: SignedRequest, body: Vec<u8>) -> (u16, Bytes) {
    let mut request =
        Request::builder().method(Method::from_bytes(signed.method.as_bytes()).unwrap()).uri(signed.url);
    for (name, value) in &signed.headers {
        request = request.header(name, value);
    }
    let http = Http::builder(TokioExecutor::new()).build_http();
    let answer = http.request(request.body(Full::new(Bytes::from(body))).unwrap()).await.unwrap();
    (answer.status().as_u16(), answer.into_body().collect().await.unwrap().to_bytes())
}

#[tokio::test(flavor = "multi_thread")]
async fn s3_behaves_like_a_directory() {
    let root = tempfile::tempdir().unwrap();
    let s3 = S3Server::start(root.path()).await;
    let server = TestServer::start_with(|settings| on_s3(settings, &s3.endpoint, SECRET)).await;
    let id = server.buffer().await;
    assert_eq!(server.get(&format!("/v1/buffers/{id}/content")).await.body, "data");
    assert_eq!(server.get("/v1/buffers").await.success()["buffers"][0]["id"], id.as_str());
    let copy = server.post(&format!("/v1/buffers/{id}/copy"), json!({})).await.success();
    server.delete(&format!("/v1/buffers/{id}")).await.success();
    assert_eq!(
        server.get(&format!("/v1/buffers/{}/content", copy["id"].as_str().unwrap())).await.body,
        "data"
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn chunks_are_transferred_directly_with_signed_requests() {
    let root = tempfile::tempdir().unwrap();
    let s3 = S3Server::start(root.path()).await;
    let server = TestServer::start_with(|settings| on_s3(settings, &s3.endpoint, SECRET)).await;
    let client = server.client();
    let id = server.post("/v1/buffers", json!({})).await.success()["id"].as_str().unwrap().to_owned();
    client.begin_buffer(&id, WRITER).await.unwrap();
    let hash = chain::hash([&b"past the server"[..]]);
    let after = Position::START.after(15, &hash);
    let sign = SignPut {
        writer: WRITER.to_owned(),
        length: 15,
        hash: hash.into(),
        chain: after.chain.into(),
        expires_in: None,
    };
    let adopt = AdoptChunk { writer: WRITER.to_owned(), check_data: None };
    assert!(client.adopt_chunk(&id, 0, &adopt).await.is_err(), "the chunk is not uploaded yet");
    let signed = client.sign_put(&id, 0, &sign).await.unwrap();
    let head = signed.head.clone().unwrap().into_domain("head").unwrap();
    let (status, _) = send(signed, [&head[..], b"past the server"].concat()).await;
    assert_eq!(status, 200);
    client.adopt_chunk(&id, 0, &adopt).await.unwrap();
    client.finish_buffer(&id, WRITER, &after).await.unwrap();
    let ChunkLookup::Chunk(got) = client.chunk(&id, 0, Duration::ZERO).await.unwrap() else {
        panic!("no chunk")
    };
    assert_eq!(got.pieces.concat(), b"past the server");
    let signed = client.sign_get(&id, 0, &SignGet::default()).await.unwrap();
    let skip = signed.head_bytes.unwrap() as usize;
    let (status, object) = send(signed, Vec::new()).await;
    assert_eq!((status, &object[skip..]), (200, &b"past the server"[..]));
    // A signed request for reading must not permit writing.
    assert!(!object.windows(16).any(|window| window == (0..16).collect::<Vec<u8>>()));
}

#[tokio::test(flavor = "multi_thread")]
async fn buffers_in_a_directory_have_no_signed_requests() {
    let server = TestServer::start().await;
    let id = server.buffer().await;
    server.post(&format!("/v1/buffers/{id}/chunks/0/sign_get"), json!({})).await.problem("not_supported");
    for expires_in in ["0ms", "2h"] {
        let body = json!({"expires_in": expires_in});
        server.post(&format!("/v1/buffers/{id}/chunks/0/sign_get"), body).await.problem("invalid");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn unusable_buffer_storage_is_an_error_at_start() {
    let root = tempfile::tempdir().unwrap();
    let s3 = S3Server::start(root.path()).await;
    let file = root.path().join("file");
    std::fs::write(&file, "no directory").unwrap();
    for (secret, place) in [(Some("wrong"), "s3://towline"), (None, "file")] {
        let data = root.path().join("data");
        let mut settings = Settings { listen: "127.0.0.1:0".parse().unwrap(), data, ..Settings::default() };
        match secret {
            Some(secret) => on_s3(&mut settings, &s3.endpoint, secret),
            None => settings.buffers.location = Some(file.to_str().unwrap().parse().unwrap()),
        }
        let error = tokio::spawn(Server::open(settings)).await.unwrap().unwrap_err();
        let detail = error.to_string();
        assert!(matches!(error, ServerError::Buffers { .. }), "{detail}");
        assert!(detail.contains(place) && detail.contains("--buffers"), "{detail}");
    }
}
