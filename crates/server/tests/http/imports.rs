//! Importing an export into a running server.

use crate::test_server::TestServer;
use bytes::Bytes;
use futures::channel::mpsc;
use futures::{SinkExt, StreamExt};
use http::{Method, Request};
use http_body_util::{BodyExt, StreamBody};
use hyper::body::Frame;
use hyper_util::client::legacy::Client;
use hyper_util::rt::TokioExecutor;
use serde_json::{Value, json};
use std::convert::Infallible;

const NDJSON: (&str, &str) = ("content-type", "application/x-ndjson");
const BEGIN: &str = "{\"towline\":{\"export\":1}}\n";
const END: &str = "{\"end\":{\"queues\":0,\"items\":0}}";

#[tokio::test(flavor = "multi_thread")]
async fn changes_are_refused_until_the_import_ends() {
    let server = TestServer::start().await;
    let (mut lines, receiver) = mpsc::channel::<Bytes>(1);
    let body = StreamBody::new(receiver.map(|line| Ok::<_, Infallible>(Frame::data(line))));
    let request = Request::post(format!("{}/v1/import", server.url())).header(NDJSON.0, NDJSON.1);
    let request = request.body(body).unwrap();
    let importing = tokio::spawn(Client::builder(TokioExecutor::new()).build_http().request(request));
    lines.send(BEGIN.into()).await.unwrap();
    while server.post("/v1/topics/news", json!({"message": ""})).await.status == 200 {
        tokio::task::yield_now().await;
    }
    let refused = server.put("/v1/queues/jobs", json!({})).await;
    assert_eq!(refused.headers["retry-after"], "1");
    assert!(refused.problem("busy").contains("import"));
    server.send_bytes(Method::POST, "/v1/import", &[NDJSON], BEGIN).await.problem("busy");
    assert_eq!(server.get("/v1/queues").await.success()["queues"], json!([]), "reads continue");
    lines.send(END.into()).await.unwrap();
    drop(lines);
    let answer = importing.await.unwrap().unwrap();
    assert_eq!(answer.status(), 200);
    let counts: Value =
        serde_json::from_slice(&answer.into_body().collect().await.unwrap().to_bytes()).unwrap();
    assert_eq!(counts, json!({"queues": 0, "items": 0, "schedules": 0, "records": 0, "tokens": 0}));
    server.put("/v1/queues/jobs", json!({})).await.success();
    let import = async |text: String| server.send_bytes(Method::POST, "/v1/import", &[NDJSON], text).await;
    import(format!("{BEGIN}{END}")).await.problem("store_not_empty");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_bad_line_is_named_and_the_server_goes_on() {
    let server = TestServer::start().await;
    for (text, words) in [
        (format!("{BEGIN}nonsense\n{END}"), "line 2 of the export"),
        (BEGIN.to_owned(), "incomplete"),
        ("{}".to_owned(), "line 1"),
        (format!("{BEGIN}{{\"failed\":\"the disk is full\"}}"), "the disk is full"),
        (format!("{BEGIN}{{\"end\":{{\"queues\":1,\"items\":0}}}}"), "1 queue, 0 items were exported"),
    ] {
        let answer = server.send_bytes(Method::POST, "/v1/import", &[NDJSON], text).await;
        let detail = answer.problem("invalid");
        assert!(detail.contains(words), "{words}: {detail}");
    }
    server.put("/v1/queues/jobs", json!({})).await.success();
}

#[tokio::test(flavor = "multi_thread")]
async fn tokens_are_not_imported_into_a_server_that_requires_tokens() {
    let server = TestServer::start_with_tokens(|_| {}).await;
    let line = "{\"record\":{\"key\":\"towline/tokens\",\"value\":\"MQ==\"}}\n";
    let import = server.send_bytes(Method::POST, "/v1/import", &[NDJSON], format!("{BEGIN}{line}")).await;
    let detail = import.problem("store_not_empty");
    for remedy in ["the token of this import", "without --with-tokens", "--data into a new directory"] {
        assert!(detail.contains(remedy), "{detail}");
    }
}
