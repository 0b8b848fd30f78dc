//! A receiver that disconnects takes no item with it.

use crate::raw::{Raw, request};
use crate::test_server::TestServer;
use bytes::Bytes;
use http::Request;
use http_body_util::Full;
use hyper_util::rt::{TokioExecutor, TokioIo};
use serde_json::json;

/// Other requests complete, so the server has read what was sent before them.
async fn let_it_be_read(server: &TestServer) {
    for _ in 0..20 {
        server.get("/healthz").await.success();
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_wait_ends_when_its_item_ends_meanwhile() {
    let server = TestServer::start().await;
    server.queue("jobs", json!({})).await;
    for _ in 0..5 {
        for _ in 0..10 {
            let mut raw = Raw::connect(server.address).await;
            raw.send(request("POST", "/v1/queues/jobs/receive", &json!({"wait": "5m"}))).await;
        }
        let_it_be_read(&server).await;
        let id = server.submit("jobs", json!([{}])).await.remove(0);
        let item = server.receive("jobs").await;
        assert_eq!((&item["id"], &item["retries"], &item["attempt"]), (&json!(id), &json!(0), &json!(1)));
        server.act(&id, "commit", json!({"lease": item["lease"]})).await.success();
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_waiting_receive_returns_when_an_item_is_submitted() {
    let server = TestServer::start().await;
    server.queue("jobs", json!({})).await;
    for _ in 0..50 {
        let mut leaving = Raw::connect(server.address).await;
        leaving.send(request("POST", "/v1/queues/jobs/receive", &json!({"wait": "5m"}))).await;
        let_it_be_read(&server).await;
        // The receiver disconnects, and an item is submitted before the server may have noticed.
        drop(leaving);
        let id = server.submit("jobs", json!([{}])).await.remove(0);
        let item = server.receive("jobs").await;
        assert_eq!((&item["id"], &item["retries"], &item["attempt"]), (&json!(id), &json!(0), &json!(1)));
        server.act(&id, "commit", json!({"lease": item["lease"]})).await.success();
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_cancelled_http2_receive_takes_no_item() {
    let server = TestServer::start().await;
    server.queue("jobs", json!({})).await;
    let stream = tokio::net::TcpStream::connect(server.address).await.unwrap();
    let (mut http, connection) =
        hyper::client::conn::http2::handshake(TokioExecutor::new(), TokioIo::new(stream)).await.unwrap();
    tokio::spawn(connection);
    for _ in 0..20 {
        let receive = Request::post(format!("{}/v1/queues/jobs/receive", server.url()))
            .header("content-type", "application/json")
            .body(Full::<Bytes>::from(r#"{"wait":"5m"}"#))
            .unwrap();
        let waiting = tokio::spawn(http.send_request(receive));
        let_it_be_read(&server).await;
        // HTTP/2 resets one request and keeps the connection.
        waiting.abort();
        waiting.await.unwrap_err();
        // The server reads later requests on this connection after the reset.
        for _ in 0..20 {
            let health = Request::get(format!("{}/healthz", server.url())).body(Full::default()).unwrap();
            assert_eq!(http.send_request(health).await.unwrap().status().as_u16(), 200);
        }
        let id = server.submit("jobs", json!([{}])).await.remove(0);
        let item = server.receive("jobs").await;
        assert_eq!((&item["id"], &item["retries"]), (&json!(id), &json!(0)));
        server.act(&id, "commit", json!({"lease": item["lease"]})).await.success();
    }
}
