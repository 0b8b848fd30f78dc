//! A receiver that goes away takes nothing with it.

use crate::raw::{Raw, request};
use crate::rig::Rig;
use bytes::Bytes;
use http::Request;
use http_body_util::Full;
use hyper_util::rt::{TokioExecutor, TokioIo};
use serde_json::json;

/// Other calls have come back since: what was sent before them has been read.
async fn let_it_be_read(rig: &Rig) {
    for _ in 0..20 {
        rig.get("/healthz").await.good();
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn while_it_waits() {
    let rig = Rig::start().await;
    rig.queue("jobs", json!({})).await;
    for _ in 0..5 {
        for _ in 0..10 {
            let mut raw = Raw::connect(rig.address).await;
            raw.send(request("POST", "/v1/queues/jobs/receive", &json!({"wait": "5m"}))).await;
        }
        let_it_be_read(&rig).await;
        let id = rig.submit("jobs", json!([{}])).await.remove(0);
        let item = rig.receive("jobs").await;
        assert_eq!((&item["id"], &item["retries"], &item["attempt"]), (&json!(id), &json!(0), &json!(1)));
        rig.act(&id, "commit", json!({"lease": item["lease"]})).await.good();
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn at_the_moment_an_item_comes() {
    let rig = Rig::start().await;
    rig.queue("jobs", json!({})).await;
    for _ in 0..50 {
        let mut leaving = Raw::connect(rig.address).await;
        leaving.send(request("POST", "/v1/queues/jobs/receive", &json!({"wait": "5m"}))).await;
        let_it_be_read(&rig).await;
        // It hangs up, and before the server may have noticed, there is something for it.
        drop(leaving);
        let id = rig.submit("jobs", json!([{}])).await.remove(0);
        let item = rig.receive("jobs").await;
        assert_eq!((&item["id"], &item["retries"], &item["attempt"]), (&json!(id), &json!(0), &json!(1)));
        rig.act(&id, "commit", json!({"lease": item["lease"]})).await.good();
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn without_hanging_up() {
    let rig = Rig::start().await;
    rig.queue("jobs", json!({})).await;
    let stream = tokio::net::TcpStream::connect(rig.address).await.unwrap();
    let (mut http, connection) =
        hyper::client::conn::http2::handshake(TokioExecutor::new(), TokioIo::new(stream)).await.unwrap();
    tokio::spawn(connection);
    for _ in 0..20 {
        let receive = Request::post(format!("{}/v1/queues/jobs/receive", rig.url()))
            .header("content-type", "application/json")
            .body(Full::<Bytes>::from(r#"{"wait":"5m"}"#))
            .unwrap();
        let waiting = tokio::spawn(http.send_request(receive));
        let_it_be_read(&rig).await;
        // HTTP/2 takes back one request and keeps the connection.
        waiting.abort();
        waiting.await.unwrap_err();
        // What is said on it afterwards is heard after that.
        for _ in 0..20 {
            let health = Request::get(format!("{}/healthz", rig.url())).body(Full::default()).unwrap();
            assert_eq!(http.send_request(health).await.unwrap().status().as_u16(), 200);
        }
        let id = rig.submit("jobs", json!([{}])).await.remove(0);
        let item = rig.receive("jobs").await;
        assert_eq!((&item["id"], &item["retries"]), (&json!(id), &json!(0)));
        rig.act(&id, "commit", json!({"lease": item["lease"]})).await.good();
    }
}
