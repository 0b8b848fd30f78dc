//! Tokens: accepted, rejected, revoked, rate-limited.

use crate::raw::Raw;
use crate::test_server::TestServer;
use bytes::Bytes;
use http::Method;
use serde_json::{Value, json};
use std::time::Duration;
use tokio::sync::mpsc;
use towline_api::client::Upload;
use towline_api::client::chunker::{Chunk, InputEvent};
use towline_api::{Code, NewToken};
use towline_server::{Server, ServerError, Settings, Tokens};

async fn whoami(server: &TestServer, authorization: &str) -> crate::test_server::TestResponse {
    server.send_as_is(Method::GET, "/v1/whoami", &[("authorization", authorization)], "").await
}

#[tokio::test(flavor = "multi_thread")]
async fn without_required_tokens_every_request_is_permitted() {
    let server = TestServer::start().await;
    let answer = server.get("/v1/whoami").await.success();
    assert_eq!(answer, json!({"tokens_required": false}));
    // A token in a request is ignored.
    whoami(&server, "Bearer secret").await.success();
    let made = server.post("/v1/tokens", json!({"name": "ops", "scopes": ["admin"]})).await.success();
    assert!(made["token"].as_str().unwrap().starts_with("tow_1_"), "{made}");
    let listed = server.get("/v1/tokens").await.success();
    assert_eq!(listed["tokens"][0]["name"], "ops");
    assert!(!listed.to_string().contains("tow_"), "{listed}");
}

#[tokio::test(flavor = "multi_thread")]
async fn an_invalid_token_is_rejected_with_a_reason() {
    let server = TestServer::start_with_tokens(|_| {}).await;
    let (token, id) = server.token_for(&["queue:jobs:read"]).await;
    let shown = whoami(&server, &format!("Bearer {token}")).await.success();
    assert_eq!(shown["token"]["id"], json!(id));
    assert_eq!(shown["token"]["scopes"], json!(["queue:jobs:read"]));
    whoami(&server, &format!("bearer  {token}")).await.success();
    let mut wrong = token.clone();
    wrong.replace_range(token.len() - 1.., if token.ends_with('0') { "1" } else { "0" });
    let foreign = token.replace(&format!("tow_{id}_"), "tow_1_");
    for bad in [
        format!("Bearer {wrong}"),
        format!("Bearer {foreign}"),
        token.clone(),
        format!("Basic {token}"),
        "Bearer".to_owned(),
    ] {
        let answer = whoami(&server, &bad).await;
        let detail = answer.problem("unauthenticated");
        assert!(!detail.contains(&token[8..]), "{detail}");
        assert!(answer.headers["www-authenticate"].to_str().unwrap().contains("invalid_token"), "{bad}");
    }
    server.post(&format!("/v1/tokens/{id}/revoke"), json!({})).await.success();
    let answer = whoami(&server, &format!("Bearer {token}")).await;
    assert!(answer.problem("unauthenticated").contains("revoked"));
    // Revoking again succeeds. An unknown token is not found.
    let again = server.post(&format!("/v1/tokens/{id}/revoke"), json!({})).await.success();
    assert!(again["revoked_at"].is_string(), "{again}");
    for absent in ["99", "0", "x", "01"] {
        server.post(&format!("/v1/tokens/{absent}/revoke"), json!({})).await.problem("token_not_found");
    }
    // Routes without a requirement need no token.
    for path in ["/healthz", "/v1/openapi.json"] {
        assert!(server.send_as_is(Method::GET, path, &[], "").await.status.is_success(), "{path}");
    }
    server.send_as_is(Method::GET, "/nothing", &[], "").await.problem("route_not_found");
    server.send_as_is(Method::PATCH, "/v1/whoami", &[], "").await.problem("method_not_allowed");
}

#[tokio::test(flavor = "multi_thread")]
async fn an_invalid_token_request_is_rejected() {
    let server = TestServer::start_with_tokens(|_| {}).await;
    for body in [
        json!({}),
        json!({"name": "x", "scopes": []}),
        json!({"name": "x", "scopes": ["root"]}),
        json!({"name": "x", "scopes": ["admin"], "expires_in": "0s"}),
        json!({"name": "x", "scopes": ["admin"], "rate_limit": {"per_second": 0}}),
    ] {
        server.post("/v1/tokens", body).await.problem("invalid");
    }
    server
        .post("/v1/tokens", json!({"name": "x", "scopes": ["admin"], "secret": "s"}))
        .await
        .problem("malformed_body");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_waiting_request_ends_when_its_token_ends() {
    let server = TestServer::start_with_tokens(|_| {}).await;
    server.queue("jobs", json!({})).await;
    let (token, id) = server.token_for(&["queue:jobs:receive"]).await;
    let brief = json!({"name": "brief", "scopes": ["queue:jobs:receive"], "expires_in": "2s"});
    let brief = server.post("/v1/tokens", brief).await.success()["token"].as_str().unwrap().to_owned();
    let wait = |token: String| {
        let server = &server;
        async move { server.post_as(&token, "/v1/queues/jobs/receive", json!({"wait": "5m"})).await }
    };
    let revoke = async {
        // The receiver waits by then: the server stores the last use of a token after it has authorized a request.
        loop {
            let listed = server.get("/v1/tokens").await.success();
            let tokens = listed["tokens"].as_array().unwrap();
            if tokens.iter().any(|shown| shown["id"] == json!(id) && shown["last_used_at"].is_string()) {
                break;
            }
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
        server.post(&format!("/v1/tokens/{id}/revoke"), json!({})).await.success();
    };
    let (revoked, expired, ()) = tokio::join!(wait(token), wait(brief), revoke);
    revoked.problem("unauthenticated");
    expired.problem("unauthenticated");
    // No receiver waits any more.
    server.submit("jobs", json!([{}])).await;
    server.receive("jobs").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_stream_ends_with_an_error_when_its_token_ends() {
    let server = TestServer::start_with_tokens(|_| {}).await;
    let id = server.post("/v1/buffers", json!({})).await.success()["id"].as_str().unwrap().to_owned();
    let (writer, _) = server.token_for(&["buffer:*"]).await;
    let (reader, reader_id) = server.token_for(&["buffer:read"]).await;
    let client = |token: &str| server.client().token(token).unwrap().retry_for(Duration::ZERO);
    let mut upload = Upload::begin(client(&writer), &id, "000102030405060708090a0b0c0d0e0f").await.unwrap();
    let (input, cuts) = mpsc::channel(1);
    let writing = tokio::spawn(async move { upload.run(cuts, |_| {}).await.map(drop) });
    let chunk = Chunk::new(Bytes::from_static(b"first")).unwrap();
    input.send(InputEvent::Chunk(chunk)).await.unwrap();
    // The stream continues.
    let mut content = loop {
        match client(&reader).content(&id, 0..u64::MAX).await {
            Ok(content) => break content,
            Err(error) => assert_eq!(error.code(), Some(Code::BufferNotReady), "{error}"),
        }
    };
    assert_eq!(content.next().await.unwrap().as_deref(), Some(&b"first"[..]));
    server.post(&format!("/v1/tokens/{reader_id}/revoke"), json!({})).await.success();
    let cut_off = content.next().await;
    assert!(cut_off.is_err(), "an incomplete body ended without an error: {cut_off:?}");
    // The writer has another token.
    input.send(InputEvent::End).await.unwrap();
    writing.await.unwrap().unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_rate_limited_token_gets_retry_after() {
    let server = TestServer::start_with_tokens(|_| {}).await;
    let new = json!({"name": "busy", "scopes": ["admin"], "rate_limit": {"per_second": 1, "burst": 2}});
    let token = server.post("/v1/tokens", new).await.success()["token"].as_str().unwrap().to_owned();
    let mut limited = None;
    for _ in 0..1000 {
        let answer = server.call_as(&token, Method::GET, "/v1/whoami", None).await;
        if !answer.status.is_success() {
            limited = Some(answer);
            break;
        }
    }
    let limited = limited.expect("the limit holds");
    assert!(limited.problem("rate_limited").contains("busy"));
    assert!(limited.headers["retry-after"].to_str().unwrap().parse::<u64>().unwrap() >= 1);
    // Other tokens are not limited.
    server.get("/v1/whoami").await.success();
}

#[tokio::test(flavor = "multi_thread")]
async fn invalid_tokens_do_not_shut_out_valid_ones_from_the_same_address() {
    let server = TestServer::start_with_tokens(|_| {}).await;
    let (valid, _) = server.token_for(&["queue:jobs:read"]).await;
    let guess = |n: usize| format!("Bearer tow_{}_{}", 1000 + n, "0".repeat(64));
    let guesses = futures::future::join_all((0..100).map(|n| {
        let server = &server;
        async move { whoami(server, &guess(n)).await.problem("unauthenticated") }
    }));
    // The valid token is used for the first time while the others are checked.
    let (_, answer) = tokio::join!(guesses, async { whoami(&server, &format!("Bearer {valid}")).await });
    answer.success();
}

#[tokio::test(flavor = "multi_thread")]
async fn the_audit_log_has_the_client_that_a_trusted_proxy_names() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("audit");
    let from = async |trusted: bool| {
        let server = TestServer::start_with(|settings| {
            settings.audit_log = Some(path.clone());
            if trusted {
                settings.trusted_proxies.networks = vec!["127.0.0.0/8".parse().unwrap()];
            }
        })
        .await;
        let headers = [("x-forwarded-for", "203.0.113.9, 192.0.2.7")];
        server.send_bytes(Method::DELETE, "/v1/queues/jobs", &headers, "").await.problem("queue_not_found");
        let line = std::fs::read_to_string(&path).unwrap().lines().last().unwrap().to_owned();
        serde_json::from_str::<Value>(&line).unwrap()["from"].as_str().unwrap().to_owned()
    };
    let address = from(false).await;
    assert!(address.starts_with("127.0.0.1:"), "{address}");
    let address = from(true).await;
    assert!(address.starts_with("192.0.2.7 via 127.0.0.1:"), "{address}");
}

#[tokio::test(flavor = "multi_thread")]
async fn administrative_calls_are_written_to_the_audit_log() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("audit");
    let server = TestServer::start_with_tokens(|settings| settings.audit_log = Some(path.clone())).await;
    server.queue("jobs", json!({})).await;
    let (weak, id) = server.token_for(&["queue:jobs:read"]).await;
    server.call_as(&weak, Method::DELETE, "/v1/queues/jobs?force=true", None).await.problem("forbidden");
    server.call_as(&weak, Method::GET, "/v1/queues/jobs", None).await.success();
    server.submit("jobs", json!([{}])).await;
    server.delete("/v1/queues/jobs").await.problem("queue_busy");
    server.put("/v1/schedules/hourly", json!({"queue": "jobs", "every": "1h"})).await.success();
    let buffer = server.buffer().await;
    server.delete(&format!("/v1/buffers/{buffer}")).await.success();
    server.put("/v1/kv/config", json!({"value": "1"})).await.success();
    let act = async |actions: Value| server.post("/v1/kv", json!({ "actions": actions })).await.success();
    act(json!([{"verb": "get", "key": "config"}])).await;
    act(json!([
        {"verb": "get", "key": "config"},
        {"verb": "set", "key": "b", "value": "1"},
        {"verb": "increment", "key": "a b"},
        {"verb": "delete", "key": "b"},
        {"verb": "set", "key": ""},
    ]))
    .await;
    let lines = std::fs::read_to_string(&path).unwrap();
    assert!(!lines.contains("tow_"), "the audit log contains no token: {lines}");
    let entries: Vec<Value> = lines.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    let acts: Vec<(&str, u64)> = entries
        .iter()
        .map(|entry| (entry["operation"].as_str().unwrap(), entry["status"].as_u64().unwrap()))
        .collect();
    assert_eq!(
        acts,
        [
            ("put_queue", 200),
            ("create_token", 200),
            ("delete_queue", 403),
            ("delete_queue", 409),
            ("put_schedule", 200),
            ("delete_buffer", 204),
            ("set_record", 200),
            ("act_on_records", 200)
        ]
    );
    assert_eq!(entries[7]["subject"], r#""a b" "b""#, "a call that only gets is not audited");
    assert_eq!(entries[0]["name"], "test");
    assert!(entries[0]["time"].is_string() && entries[0]["from"].as_str().unwrap().starts_with("127.0.0.1:"));
    assert!(entries[1]["subject"].as_str().unwrap().contains("queue:jobs:read"), "{}", entries[1]);
    assert_eq!((&entries[2]["token"].to_string(), &entries[2]["code"]), (&id, &json!("forbidden")));
    assert_eq!(entries[2]["path"], "/v1/queues/jobs?force=true");
    let mode = std::os::unix::fs::PermissionsExt::mode(&std::fs::metadata(&path).unwrap().permissions());
    assert_eq!(mode & 0o777, 0o600);
}

#[tokio::test(flavor = "multi_thread")]
async fn token_commands_on_a_store_are_written_to_the_audit_log() {
    let directory = tempfile::tempdir().unwrap();
    let audit = directory.path().join("audit");
    let settings = Settings {
        data: directory.path().join("data"),
        audit_log: Some(audit.clone()),
        ..Settings::default()
    };
    let done = tokio::spawn(async move {
        let tokens = Tokens::open(&settings).await.unwrap();
        let scopes = vec!["queue:jobs:read".to_owned()];
        let new = NewToken { name: "ops".to_owned(), scopes, ..NewToken::default() };
        let made = tokens.create(new).await.unwrap();
        tokens.revoke(&made.shown.id).await.unwrap();
        tokio::task::block_in_place(|| tokens.close());
    });
    done.await.unwrap();
    let lines = std::fs::read_to_string(&audit).unwrap();
    let entries: Vec<Value> = lines.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    let acts: Vec<&Value> = entries.iter().map(|entry| &entry["operation"]).collect();
    assert_eq!(acts, ["create_token", "revoke_token"]);
    for entry in entries {
        assert_eq!(entry["subject"], "token 1 \"ops\" queue:jobs:read", "{lines}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_server_that_requires_tokens_does_not_start_without_one() {
    let directory = tempfile::tempdir().unwrap();
    let settings = Settings {
        listen: "127.0.0.1:0".parse().unwrap(),
        data: directory.path().join("data"),
        require_tokens: true,
        ..Settings::default()
    };
    let refused = tokio::spawn(Server::open(settings)).await.unwrap().unwrap_err();
    assert!(matches!(refused, ServerError::NoTokens), "{refused}");
    let command = "towline token create NAME --scope admin --out FILE";
    assert!(refused.to_string().contains(command), "{refused}");
}

#[tokio::test(flavor = "multi_thread")]
async fn any_header_gets_a_response() {
    let server = TestServer::start_with_tokens(|_| {}).await;
    for header in [
        "",
        " ",
        "Bearer ",
        "Bearer tow_",
        "Bearer \u{fffd}",
        "Bearer tow_18446744073709551616_00",
        "\tBearer x",
    ] {
        let mut raw = Raw::connect(server.address).await;
        raw.send(&format!("GET /v1/whoami HTTP/1.1\r\nhost: localhost\r\nauthorization: {header}\r\n\r\n"))
            .await;
        raw.answer().await.unwrap().problem("unauthenticated");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn health_says_nothing_internal_without_a_token() {
    let server = TestServer::start_with_tokens(|_| {}).await;
    for path in ["/healthz", "/readyz"] {
        for headers in [&[][..], &[("authorization", "Bearer tow_1_00")]] {
            let answer = server.send_as_is(Method::GET, path, headers, "").await.success();
            assert_eq!(answer, json!({"status": "ok"}), "{path} {headers:?}");
        }
    }
    let with_token = server.get("/healthz").await.success();
    assert_eq!(with_token["version"], env!("CARGO_PKG_VERSION"));
}
