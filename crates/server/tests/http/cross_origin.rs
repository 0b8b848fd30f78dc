//! Requests from pages of other sites, in a browser on the same machine, are rejected.

use crate::raw::Raw;
use crate::test_server::TestServer;
use http::Method;
use serde_json::json;
use towline_server::Settings;

#[tokio::test(flavor = "multi_thread")]
async fn a_host_that_another_site_can_have_is_rejected() {
    let server = TestServer::start().await;
    for host in ["evil.example", "evil.example:7420", "127.0.0.1.nip.io", "localhost.evil.example", ""] {
        for path in ["/healthz", "/v1/queues", "/v1/openapi.json", "/nothing"] {
            let detail =
                server.send_bytes(Method::GET, path, &[("host", host)], "").await.problem("cross_origin");
            assert!(detail.contains(host), "{detail}");
        }
    }
    for host in
        ["localhost", "LocalHost:1", "127.0.0.1", "[::1]:7420", "10.0.0.1", "[::2]", "towline.localhost"]
    {
        server.send_bytes(Method::GET, "/healthz", &[("host", host)], "").await.success();
    }
    // An absolute URL in the request line, as for a proxy.
    let mut raw = Raw::connect(server.address).await;
    for hosts in [
        "http://evil.example/healthz HTTP/1.1\r\nhost: localhost",
        "/healthz HTTP/1.1\r\nhost: localhost\r\nhost: evil.example",
    ] {
        raw.send(&format!("GET {hosts}\r\n\r\n")).await;
        raw.answer().await.unwrap().problem("cross_origin");
    }
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
async fn a_server_on_a_public_address_accepts_its_configured_names() {
    let answer = async |change: fn(&mut Settings), host: &str, headers: &str| {
        let server = TestServer::start_with_tokens(|settings| {
            settings.listen = "0.0.0.0:0".parse().unwrap();
            (settings.insecure, settings.require_tokens) = (true, false);
            settings.hosts = vec!["queue.example".to_owned()];
            change(settings);
        })
        .await;
        let mut raw = Raw::connect(([127, 0, 0, 1], server.address.port()).into()).await;
        raw.send(&format!("GET /healthz HTTP/1.1\r\nhost: {host}\r\n{headers}\r\n")).await;
        raw.answer().await.unwrap()
    };
    let open: fn(&mut Settings) = |_| {};
    assert_eq!(answer(open, "Queue.Example:7420", "").await.success()["status"], json!("ok"));
    let detail = answer(open, "evil.example", "").await.problem("cross_origin");
    assert!(detail.contains("evil.example") && detail.contains("the setting hosts"), "{detail}");
    answer(open, "queue.example", "origin: http://evil.example\r\n").await.problem("cross_origin");
    // A page of another site has no token.
    answer(|settings| settings.require_tokens = true, "proxy.example", "").await.success();
}
