//! HTTP/2 with prior knowledge.

use crate::test_server::TestServer;
use bytes::Bytes;
use futures::future::join_all;
use http::{Request, Version};
use http_body_util::{BodyExt, Full};
use hyper_util::client::legacy::Client;
use hyper_util::rt::TokioExecutor;
use serde_json::{Value, json};

#[tokio::test(flavor = "multi_thread")]
async fn http2_runs_many_requests_in_parallel_on_one_connection() {
    let server = TestServer::start().await;
    server.queue("jobs", json!({})).await;
    let http: Client<_, Full<Bytes>> = Client::builder(TokioExecutor::new()).http2_only(true).build_http();
    let post = |path: &str, body: Value| {
        let request =
            Request::post(format!("{}{path}", server.url())).header("content-type", "application/json");
        let answer = http.request(request.body(Full::from(body.to_string())).unwrap());
        async move {
            let answer = answer.await.unwrap();
            assert_eq!(answer.version(), Version::HTTP_2);
            let status = answer.status().as_u16();
            let body = answer.into_body().collect().await.unwrap().to_bytes();
            (status, serde_json::from_slice::<Value>(&body).unwrap())
        }
    };
    // Receivers wait on the connection that submits the items.
    let receivers = (0..50).map(|_| post("/v1/queues/jobs/receive", json!({"wait": "5m"})));
    let submitters = (0..50).map(|n| post("/v1/queues/jobs/items", json!({"items": [{"params": {"n": n}}]})));
    let (received, submitted) = tokio::join!(join_all(receivers), join_all(submitters));
    assert!(submitted.iter().all(|(status, answer)| *status == 200 && answer["items"][0]["created"] == true));
    let mut seen: Vec<u64> =
        received.iter().map(|(_, answer)| answer["items"][0]["params"]["n"].as_u64().unwrap()).collect();
    seen.sort_unstable();
    assert_eq!(seen, (0..50).collect::<Vec<_>>());
    let (status, problem) = post("/v1/queues/nowhere/receive", json!({})).await;
    assert_eq!((status, &problem["code"]), (404, &json!("queue_not_found")));
}

#[tokio::test(flavor = "multi_thread")]
async fn the_http2_authority_is_checked_like_the_host() {
    let server = TestServer::start().await;
    let stream = tokio::net::TcpStream::connect(server.address).await.unwrap();
    let io = hyper_util::rt::TokioIo::new(stream);
    let (mut http, connection) =
        hyper::client::conn::http2::handshake(TokioExecutor::new(), io).await.unwrap();
    tokio::spawn(connection);
    for (authority, status) in [("localhost:7420", 200), ("evil.example", 403)] {
        let request =
            Request::get(format!("http://{authority}/healthz")).body(Full::<Bytes>::default()).unwrap();
        assert_eq!(http.send_request(request).await.unwrap().status().as_u16(), status);
    }
}
