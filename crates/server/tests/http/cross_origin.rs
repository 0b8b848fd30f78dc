//! Requests from pages of other sites, in a browser on the same machine, are rejected.

use crate::raw::Raw;
use crate::test_server::TestServer;
use http::Method;
use serde_json::json;

#[tokio::test(flavor = "multi_thread")]
async fn a_host_header_that_is_not_loopback_is_rejected() {
    let server = TestServer::start().await;
    for host in [
        "evil.example",
        "evil.example:7420",
        "127.0.0.1.nip.io",
        "10.0.0.1",
        "localhost.evil.example",
        "[::2]",
        "",
    ] {
        for path in ["/healthz", "/v1/queues", "/v1/openapi.json", "/nothing"] {
            let detail =
                server.send_bytes(Method::GET, path, &[("host", host)], "").await.problem("cross_origin");
            assert!(detail.contains(host), "{detail}");
        }
    }
    for host in ["localhost", "LocalHost:1", "127.0.0.1", "[::1]:7420", "towline.localhost"] {
        server.send_bytes(Method::GET, "/healthz", &[("host", host)], "").await.success();
    }
    // An absolute URL in the request line, as for a proxy.
    let mut raw = Raw::connect(server.address).await;
    raw.send("GET http://evil.example/healthz HTTP/1.1\r\nhost: evil.example\r\n\r\n").await;
    raw.answer().await.unwrap().problem("cross_origin");
}

#[tokio::test(flavor = "multi_thread")]
async fn an_origin_of_another_site_is_rejected() {
    let server = TestServer::start().await;
    let own = format!("http://{}", server.address);
    for origin in
        ["http://evil.example", "null", "", "http://localhost", "http://127.0.0.1:1", "evil", "file://"]
    {
        for (method, body) in [(Method::GET, ""), (Method::POST, "{}"), (Method::OPTIONS, "")] {
            let headers = [("origin", origin), ("content-type", "application/json")];
            server.send_bytes(method, "/v1/queues", &headers, body).await.problem("cross_origin");
        }
    }
    server.send_bytes(Method::GET, "/v1/queues", &[("origin", &own)], "").await.success();
    // No CORS header permits such requests.
    let answer = server.get("/v1/queues").await;
    assert!(answer.headers.keys().all(|name| !name.as_str().starts_with("access-control")));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_server_on_a_public_address_accepts_any_host() {
    let server = TestServer::start_with(|settings| {
        settings.listen = "0.0.0.0:0".parse().unwrap();
        settings.insecure = true;
    })
    .await;
    let mut raw = Raw::connect(([127, 0, 0, 1], server.address.port()).into()).await;
    raw.send("GET /healthz HTTP/1.1\r\nhost: queue.example\r\n\r\n").await;
    assert_eq!(raw.answer().await.unwrap().success()["status"], json!("ok"));
    raw.send("GET /healthz HTTP/1.1\r\nhost: queue.example\r\norigin: http://evil.example\r\n\r\n").await;
    raw.answer().await.unwrap().problem("cross_origin");
}
