//! A page of another site, open in a browser on this machine, gets nothing.

use crate::raw::Raw;
use crate::rig::Rig;
use http::Method;
use serde_json::json;

#[tokio::test(flavor = "multi_thread")]
async fn a_host_that_is_not_this_machine() {
    let rig = Rig::start().await;
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
                rig.send_bytes(Method::GET, path, &[("host", host)], "").await.refused("cross_origin");
            assert!(detail.contains(host), "{detail}");
        }
    }
    for host in ["localhost", "LocalHost:1", "127.0.0.1", "[::1]:7420", "towline.localhost"] {
        rig.send_bytes(Method::GET, "/healthz", &[("host", host)], "").await.good();
    }
    // In the request line, as a proxy would be asked.
    let mut raw = Raw::connect(rig.address).await;
    raw.send("GET http://evil.example/healthz HTTP/1.1\r\nhost: evil.example\r\n\r\n").await;
    raw.answer().await.unwrap().refused("cross_origin");
}

#[tokio::test(flavor = "multi_thread")]
async fn an_origin_that_is_not_the_servers_own() {
    let rig = Rig::start().await;
    let own = format!("http://{}", rig.address);
    for origin in
        ["http://evil.example", "null", "", "http://localhost", "http://127.0.0.1:1", "evil", "file://"]
    {
        for (method, body) in [(Method::GET, ""), (Method::POST, "{}"), (Method::OPTIONS, "")] {
            let headers = [("origin", origin), ("content-type", "application/json")];
            rig.send_bytes(method, "/v1/queues", &headers, body).await.refused("cross_origin");
        }
    }
    rig.send_bytes(Method::GET, "/v1/queues", &[("origin", &own)], "").await.good();
    // Nothing invites them either.
    let answer = rig.get("/v1/queues").await;
    assert!(answer.headers.keys().all(|name| !name.as_str().starts_with("access-control")));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_server_for_others_is_called_by_any_name() {
    let rig = Rig::start_with(|settings| {
        settings.listen = "0.0.0.0:0".parse().unwrap();
        settings.insecure = true;
    })
    .await;
    let mut raw = Raw::connect(([127, 0, 0, 1], rig.address.port()).into()).await;
    raw.send("GET /healthz HTTP/1.1\r\nhost: queue.example\r\n\r\n").await;
    assert_eq!(raw.answer().await.unwrap().good()["status"], json!("ok"));
    raw.send("GET /healthz HTTP/1.1\r\nhost: queue.example\r\norigin: http://evil.example\r\n\r\n").await;
    raw.answer().await.unwrap().refused("cross_origin");
}
