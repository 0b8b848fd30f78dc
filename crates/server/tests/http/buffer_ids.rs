//! Buffer ids that try to leave the storage, or are not valid, are rejected by every route.

use crate::test_server::TestServer;
use http::Method;
use serde_json::json;

const WRITER: &str = "000102030405060708090a0b0c0d0e0f";

#[tokio::test(flavor = "multi_thread")]
async fn a_buffer_id_cannot_escape_the_storage() {
    let server = TestServer::start().await;
    let long = "a".repeat(241);
    let longer = "a".repeat(10_000);
    for id in [
        "..",
        "%2e%2e",
        ".",
        "..%2f..%2fetc%2fpasswd",
        "a%2fb",
        "%2fetc%2fpasswd",
        "a%5cb",
        "..%5c..",
        "a%00b",
        "%ff",
        ".hidden",
        "-flag",
        "%C3%BC",
        "a%20b",
        "a%0d%0ab",
        "",
        &long,
        &longer,
    ] {
        for (method, rest, body) in [
            (Method::GET, "", None),
            (Method::DELETE, "", None),
            (Method::GET, "/content", None),
            (Method::GET, "/chunks/0", None),
            (Method::POST, "/copy", Some(json!({}))),
            (Method::POST, "/writer", Some(json!({}))),
            (Method::POST, "/touch", Some(json!({"writer": WRITER}))),
            (Method::POST, "/fail", Some(json!({"writer": WRITER}))),
            (Method::POST, "/chunks/0/sign_get", Some(json!({}))),
            (Method::POST, "/chunks/0/adopt", Some(json!({"writer": WRITER}))),
        ] {
            let answer = server.call(method.clone(), &format!("/v1/buffers/{id}{rest}"), body).await;
            // An empty id makes it another path.
            let fine = matches!(answer.code(), "invalid" | "route_not_found" | "method_not_allowed");
            assert!(fine, "{method} {id}{rest}: {}", answer.json());
            assert!(answer.json()["detail"].as_str().unwrap().len() < 1_000, "{}", answer.json());
        }
        let answer = server.fill(id, "bytes").await;
        assert!(matches!(answer.code(), "invalid" | "route_not_found"), "{id}: {}", answer.json());
    }
    assert_eq!(server.get("/v1/buffers").await.success(), json!({"buffers": [], "next": null}));
}

#[tokio::test(flavor = "multi_thread")]
async fn invalid_chunk_numbers_are_rejected() {
    let server = TestServer::start().await;
    let id = server.buffer().await;
    for n in ["-1", "x", "4294967296", "1.5", "%00", "0%2f0"] {
        server.get(&format!("/v1/buffers/{id}/chunks/{n}")).await.problem("invalid");
    }
    // The largest number is valid, but the chunk does not exist.
    let answer = server.get(&format!("/v1/buffers/{id}/chunks/4294967295")).await;
    assert_eq!(
        (answer.status.as_u16(), &answer.headers["towline-state"]),
        (204, &"complete".parse().unwrap())
    );
}
