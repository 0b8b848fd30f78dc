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

/// All on one connection, so the limit on connections of one address does not matter.
#[tokio::test(flavor = "multi_thread")]
async fn the_requests_in_progress_of_one_token_are_limited() {
    let server = TestServer::start_with_tokens(|settings| settings.connections_max = 4).await;
    let [(one, _), (other, _)] = [server.token_for(&["admin"]).await, server.token_for(&["admin"]).await];
    let stream = tokio::net::TcpStream::connect(server.address).await.unwrap();
    let io = hyper_util::rt::TokioIo::new(stream);
    let (http, connection) = hyper::client::conn::http2::handshake(TokioExecutor::new(), io).await.unwrap();
    tokio::spawn(connection);
    let get = async |token: &str, path: &str| {
        let request = Request::get(format!("http://localhost{path}"))
            .header("authorization", format!("Bearer {token}"))
            .body(Full::<Bytes>::default())
            .unwrap();
        http.clone().send_request(request).await.unwrap()
    };
    let mut streams = Vec::new();
    for _ in 0..3 {
        let answer = get(&one, "/v1/events").await;
        assert_eq!(answer.status(), 200);
        streams.push(answer);
    }
    let refused = get(&one, "/v1/whoami").await;
    assert_eq!(refused.status(), 429);
    assert!(refused.headers().contains_key("retry-after"));
    let problem = refused.into_body().collect().await.unwrap().to_bytes();
    let problem: Value = serde_json::from_slice(&problem).unwrap();
    assert_eq!(problem["code"], "rate_limited");
    assert!(problem["detail"].as_str().unwrap().contains("3 requests in progress"), "{problem}");
    assert_eq!(get(&other, "/v1/whoami").await.status(), 200);
    // The server learns a moment later that a stream has ended.
    drop(streams.pop());
    while get(&one, "/v1/whoami").await.status() != 200 {
        tokio::task::yield_now().await;
    }
}
