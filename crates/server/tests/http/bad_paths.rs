//! Invalid paths and query strings are rejected with a reason.

use crate::raw::Raw;
use crate::test_server::TestServer;
use http::Method;
use serde_json::json;

#[tokio::test(flavor = "multi_thread")]
async fn queue_names_with_invalid_characters_are_rejected() {
    let server = TestServer::start().await;
    for byte in 0..=255_u8 {
        let fine = byte.is_ascii_alphanumeric() || b"._-:".contains(&byte);
        let path = format!("/v1/queues/a%{byte:02X}b");
        let answer = server.put(&path, json!({})).await;
        if fine {
            answer.success();
        } else {
            answer.problem("invalid");
        }
    }
    for name in ["-a", ".a", ":a", "..", "%2e%2e", "a%20b", "%C3%BC", "%F0%9F%98%80", "a%00", "%", "a%zz"] {
        let answer = server.put(&format!("/v1/queues/{name}"), json!({})).await;
        assert!(matches!(answer.code(), "invalid" | "route_not_found"), "{name}: {}", answer.json());
    }
    server.put(&format!("/v1/queues/{}", "x".repeat(255)), json!({})).await.success();
    let detail = server.put(&format!("/v1/queues/{}", "x".repeat(256)), json!({})).await.problem("invalid");
    assert!(detail.contains("255"), "{detail}");
    let detail =
        server.put(&format!("/v1/queues/{}", "x".repeat(50_000)), json!({})).await.problem("invalid");
    assert!(detail.len() < 1_000, "{detail}");
    // The same name, percent-encoded.
    server.put("/v1/queues/%6a%6F%62s", json!({})).await.success();
    assert_eq!(server.get("/v1/queues/jobs").await.success()["name"], "jobs");
}

#[tokio::test(flavor = "multi_thread")]
async fn invalid_item_ids_are_rejected() {
    let server = TestServer::start().await;
    for id in ["1", "x", "%00", "%FF", "01890000-0000-7000-8000-00000000000g", &"a".repeat(10_000)] {
        for (method, rest) in [
            (Method::GET, ""),
            (Method::GET, "/wait"),
            (Method::DELETE, ""),
            (Method::POST, "/cancel"),
            (Method::POST, "/commit"),
        ] {
            let body = (method == Method::POST).then(|| json!({}));
            let detail = server.call(method, &format!("/v1/items/{id}{rest}"), body).await.problem("invalid");
            assert!(detail.len() < 1_000, "{detail}");
            assert!(detail.contains(if id == "%FF" { "UTF-8" } else { "UUID" }), "{detail}");
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn unknown_paths_are_not_found() {
    let server = TestServer::start().await;
    let id = "01890000-0000-7000-8000-000000000000";
    for path in [
        "/",
        "/v1",
        "/v1/",
        "/v2/queues",
        "/v1/queue",
        "/v1/queues/",
        "/v1/queues/a/b",
        "/V1/queues",
        "/v1/item",
        "/healthz/",
        "//healthz",
    ] {
        let detail = server.get(path).await.problem("route_not_found");
        assert!(detail.contains("/v1/openapi.json"), "{detail}");
    }
    let detail = server.get("/v1/queues//items").await.problem("invalid");
    assert!(detail.contains("must not be empty"), "{detail}");
    let detail = server.post(&format!("/v1/items/{id}/comit"), json!({})).await.problem("route_not_found");
    assert!(detail.contains("comit") && detail.contains("commit") && detail.contains("redrive"), "{detail}");
    server.get(&format!("/{}", "x".repeat(60_000))).await.problem("route_not_found");
}

#[tokio::test(flavor = "multi_thread")]
async fn the_wrong_method_is_rejected_with_the_allowed_ones() {
    let server = TestServer::start().await;
    let id = "01890000-0000-7000-8000-000000000000";
    for (method, path, allowed) in [
        (Method::POST, "/v1/queues".to_owned(), "GET,HEAD"),
        (Method::POST, "/v1/queues/a".to_owned(), "PUT,GET,HEAD,PATCH,DELETE"),
        (Method::GET, "/v1/queues/a/receive".to_owned(), "POST"),
        (Method::PUT, "/v1/queues/a/items".to_owned(), "POST,GET,HEAD,DELETE"),
        (Method::GET, "/v1/settle".to_owned(), "POST"),
        (Method::GET, format!("/v1/items/{id}/commit"), "POST"),
        (Method::POST, format!("/v1/items/{id}/wait"), "GET,HEAD"),
        (Method::OPTIONS, "/v1/queues".to_owned(), "GET,HEAD"),
        (Method::DELETE, "/healthz".to_owned(), "GET,HEAD"),
        (Method::TRACE, "/v1/openapi.json".to_owned(), "GET,HEAD"),
        (Method::from_bytes(b"BREW").unwrap(), "/v1/queues".to_owned(), "GET,HEAD"),
    ] {
        let answer = server.call(method.clone(), &path, None).await;
        let detail = answer.problem("method_not_allowed");
        assert!(detail.contains(method.as_str()), "{detail}");
        let mut listed: Vec<&str> = answer.headers["allow"].to_str().unwrap().split(',').collect();
        let mut allowed: Vec<&str> = allowed.split(',').collect();
        listed.sort_unstable();
        allowed.sort_unstable();
        assert_eq!(listed, allowed, "{path}");
    }
    let head = server.call(Method::HEAD, "/healthz", None).await;
    assert_eq!((head.status.as_u16(), head.body.len()), (200, 0));
}

#[tokio::test(flavor = "multi_thread")]
async fn an_unknown_query_parameter_is_rejected() {
    let server = TestServer::start().await;
    server.queue("jobs", json!({})).await;
    let (id, lease) = server.hold("jobs").await;
    for (method, path, body) in [
        (Method::GET, "/v1/queues?page=1".to_owned(), None),
        (Method::GET, "/v1/queues/jobs?fields=".to_owned(), None),
        (Method::PUT, "/v1/queues/jobs?max_retries=1".to_owned(), Some(json!({}))),
        (Method::PATCH, "/v1/queues/jobs?max_retries=1".to_owned(), Some(json!({}))),
        (Method::DELETE, "/v1/queues/jobs?forced=true".to_owned(), None),
        (Method::GET, "/v1/queues/jobs/counts?state=pending".to_owned(), None),
        (Method::POST, "/v1/queues/jobs/close?force=true".to_owned(), None),
        (Method::POST, "/v1/queues/jobs/pause?for=5m".to_owned(), None),
        (Method::POST, "/v1/queues/jobs/resume?for=5m".to_owned(), None),
        (Method::POST, "/v1/queues/jobs/items?priority=5".to_owned(), Some(json!({"items": [{}]}))),
        (Method::POST, "/v1/queues/jobs/receive?max=10".to_owned(), Some(json!({}))),
        (Method::POST, "/v1/settle?dry".to_owned(), Some(json!({"actions": []}))),
        (Method::GET, format!("/v1/items/{id}?queue=jobs"), None),
        (Method::DELETE, format!("/v1/items/{id}?forced=true"), None),
        (Method::GET, format!("/v1/items/{id}/wait?for=5m"), None),
        (Method::POST, format!("/v1/items/{id}/cancel?reason=x"), None),
        (Method::POST, format!("/v1/items/{id}/redrive?x"), None),
        (Method::POST, format!("/v1/items/{id}/pause?x"), None),
        (Method::POST, format!("/v1/items/{id}/resume?x"), None),
        (Method::POST, format!("/v1/items/{id}/commit?lease={lease}"), Some(json!({"lease": lease}))),
    ] {
        let detail = server.call(method, &path, body).await.problem("invalid");
        assert!(detail.contains("not a parameter of this route"), "{path}: {detail}");
    }
    assert_eq!(server.counts("jobs").await["processing"], 1);
    // An empty query string is no query.
    server.get("/v1/queues/jobs?").await.success();
}

#[tokio::test(flavor = "multi_thread")]
async fn bytes_that_are_not_http_do_no_harm() {
    let server = TestServer::start().await;
    for bytes in [
        "GARBAGE\r\n\r\n".to_owned(),
        "GET /healthz HTTP/9.9\r\n\r\n".to_owned(),
        "\u{16}\u{3}\u{1}\0 hello".to_owned(),
        format!("GET /{} HTTP/1.1\r\nhost: localhost\r\n\r\n", "x".repeat(70_000)),
        format!("GET /healthz HTTP/1.1\r\nhost: localhost\r\n{}\r\n", "a: b\r\n".repeat(200)),
        format!("GET /healthz HTTP/1.1\r\nhost: localhost\r\nx: {}\r\n\r\n", "y".repeat(1 << 20)),
        "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\nnot frames at all, but long enough to be read as one".to_owned(),
        "POST /v1/settle HTTP/1.1\r\nhost: localhost\r\ncontent-length: 5\r\ncontent-length: 6\r\n\r\n"
            .to_owned(),
        "POST /v1/settle HTTP/1.1\r\nhost: localhost\r\ncontent-length: -1\r\n\r\n".to_owned(),
    ] {
        let mut raw = Raw::connect(server.address).await;
        raw.send_some(bytes).await;
        raw.finish_some().await;
        raw.hung_up().await;
    }
    assert_eq!(server.get("/healthz").await.success()["status"], "ok");
}
