//! Tokens: shown, refused, revoked, limited.

use crate::raw::Raw;
use crate::rig::Rig;
use bytes::Bytes;
use http::Method;
use serde_json::{Value, json};
use std::time::Duration;
use tokio::sync::mpsc;
use towline_api::Code;
use towline_api::client::Upload;
use towline_api::client::chunker::{Chunk, InputEvent};
use towline_server::{Server, ServerError, Settings};

async fn whoami(rig: &Rig, authorization: &str) -> crate::rig::Answer {
    rig.send_as_is(Method::GET, "/v1/whoami", &[("authorization", authorization)], "").await
}

#[tokio::test(flavor = "multi_thread")]
async fn without_tokens_everybody_may_do_everything() {
    let rig = Rig::start().await;
    let answer = rig.get("/v1/whoami").await.good();
    assert_eq!(answer, json!({"tokens_required": false}));
    // One that is shown all the same does no harm.
    whoami(&rig, "Bearer secret").await.good();
    let made = rig.post("/v1/tokens", json!({"name": "ops", "scopes": ["admin"]})).await.good();
    assert!(made["token"].as_str().unwrap().starts_with("tow_1_"), "{made}");
    let listed = rig.get("/v1/tokens").await.good();
    assert_eq!(listed["tokens"][0]["name"], "ops");
    assert!(!listed.to_string().contains("tow_"), "{listed}");
}

#[tokio::test(flavor = "multi_thread")]
async fn what_is_not_a_good_token_is_refused_and_says_why() {
    let rig = Rig::start_with_tokens(|_| {}).await;
    let (token, id) = rig.token_for(&["queue:jobs:read"]).await;
    let shown = whoami(&rig, &format!("Bearer {token}")).await.good();
    assert_eq!(shown["token"]["id"], json!(id));
    assert_eq!(shown["token"]["scopes"], json!(["queue:jobs:read"]));
    whoami(&rig, &format!("bearer  {token}")).await.good();
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
        let answer = whoami(&rig, &bad).await;
        let detail = answer.refused("unauthenticated");
        assert!(!detail.contains(&token[8..]), "{detail}");
        assert!(answer.headers["www-authenticate"].to_str().unwrap().contains("invalid_token"), "{bad}");
    }
    rig.post(&format!("/v1/tokens/{id}/revoke"), json!({})).await.good();
    let answer = whoami(&rig, &format!("Bearer {token}")).await;
    assert!(answer.refused("unauthenticated").contains("revoked"));
    // Again is fine, and another is not there.
    let again = rig.post(&format!("/v1/tokens/{id}/revoke"), json!({})).await.good();
    assert!(again["revoked_at"].is_string(), "{again}");
    for absent in ["99", "0", "x", "01"] {
        rig.post(&format!("/v1/tokens/{absent}/revoke"), json!({})).await.refused("token_not_found");
    }
    // What needs none needs none.
    for path in ["/healthz", "/v1/openapi.json"] {
        assert!(rig.send_as_is(Method::GET, path, &[], "").await.status.is_success(), "{path}");
    }
    rig.send_as_is(Method::GET, "/nothing", &[], "").await.refused("route_not_found");
    rig.send_as_is(Method::PATCH, "/v1/whoami", &[], "").await.refused("method_not_allowed");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_token_that_cannot_be_is_not_made() {
    let rig = Rig::start_with_tokens(|_| {}).await;
    for body in [
        json!({}),
        json!({"name": "x", "scopes": []}),
        json!({"name": "x", "scopes": ["root"]}),
        json!({"name": "x", "scopes": ["admin"], "expires_in": "0s"}),
        json!({"name": "x", "scopes": ["admin"], "rate_limit": {"per_second": 0}}),
    ] {
        rig.post("/v1/tokens", body).await.refused("invalid");
    }
    rig.post("/v1/tokens", json!({"name": "x", "scopes": ["admin"], "secret": "s"}))
        .await
        .refused("malformed_body");
}

#[tokio::test(flavor = "multi_thread")]
async fn who_waits_is_let_go_when_the_token_ends() {
    let rig = Rig::start_with_tokens(|_| {}).await;
    rig.queue("jobs", json!({})).await;
    let (token, id) = rig.token_for(&["queue:jobs:receive"]).await;
    let brief = json!({"name": "brief", "scopes": ["queue:jobs:receive"], "expires_in": "2s"});
    let brief = rig.post("/v1/tokens", brief).await.good()["token"].as_str().unwrap().to_owned();
    let wait = |token: String| {
        let rig = &rig;
        async move { rig.post_as(&token, "/v1/queues/jobs/receive", json!({"wait": "5m"})).await }
    };
    let revoke = async {
        // In line by then: its last use is kept only after it was let in.
        loop {
            let listed = rig.get("/v1/tokens").await.good();
            let tokens = listed["tokens"].as_array().unwrap();
            if tokens.iter().any(|shown| shown["id"] == json!(id) && shown["last_used_at"].is_string()) {
                break;
            }
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
        rig.post(&format!("/v1/tokens/{id}/revoke"), json!({})).await.good();
    };
    let (revoked, expired, ()) = tokio::join!(wait(token), wait(brief), revoke);
    revoked.refused("unauthenticated");
    expired.refused("unauthenticated");
    // Nobody is left in line.
    rig.submit("jobs", json!([{}])).await;
    rig.receive("jobs").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_stream_breaks_off_when_the_token_ends() {
    let rig = Rig::start_with_tokens(|_| {}).await;
    let id = rig.post("/v1/buffers", json!({})).await.good()["id"].as_str().unwrap().to_owned();
    let (writer, _) = rig.token_for(&["buffer:*"]).await;
    let (reader, reader_id) = rig.token_for(&["buffer:read"]).await;
    let client = |token: &str| rig.client().token(token).unwrap().retry_for(Duration::ZERO);
    let mut upload = Upload::begin(client(&writer), &id, "000102030405060708090a0b0c0d0e0f").await.unwrap();
    let (input, cuts) = mpsc::channel(1);
    let writing = tokio::spawn(async move { upload.run(cuts, |_| {}).await.map(drop) });
    let chunk = Chunk::new(Bytes::from_static(b"first")).unwrap();
    input.send(InputEvent::Chunk(chunk)).await.unwrap();
    // More is to come: the stream goes on.
    let mut content = loop {
        match client(&reader).content(&id, 0..u64::MAX).await {
            Ok(content) => break content,
            Err(error) => assert_eq!(error.code(), Some(Code::BufferNotReady), "{error}"),
        }
    };
    assert_eq!(content.next().await.unwrap().as_deref(), Some(&b"first"[..]));
    rig.post(&format!("/v1/tokens/{reader_id}/revoke"), json!({})).await.good();
    let cut_off = content.next().await;
    assert!(cut_off.is_err(), "not taken for whole: {cut_off:?}");
    // The writer has a token of its own.
    input.send(InputEvent::End).await.unwrap();
    writing.await.unwrap().unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_token_with_a_limit_is_told_when_to_come_back() {
    let rig = Rig::start_with_tokens(|_| {}).await;
    let new = json!({"name": "busy", "scopes": ["admin"], "rate_limit": {"per_second": 1, "burst": 2}});
    let token = rig.post("/v1/tokens", new).await.good()["token"].as_str().unwrap().to_owned();
    let mut limited = None;
    for _ in 0..1000 {
        let answer = rig.call_as(&token, Method::GET, "/v1/whoami", None).await;
        if !answer.status.is_success() {
            limited = Some(answer);
            break;
        }
    }
    let limited = limited.expect("the limit holds");
    assert!(limited.refused("rate_limited").contains("busy"));
    assert!(limited.headers["retry-after"].to_str().unwrap().parse::<u64>().unwrap() >= 1);
    // Others are not held back.
    rig.get("/v1/whoami").await.good();
}

#[tokio::test(flavor = "multi_thread")]
async fn who_guesses_is_held_back_and_who_has_a_token_in_use_is_not() {
    let rig = Rig::start_with_tokens(|_| {}).await;
    rig.get("/v1/whoami").await.good();
    let guess = format!("Bearer tow_1_{}", "0".repeat(64));
    let mut held_back = false;
    for _ in 0..200 {
        let answer = whoami(&rig, &guess).await;
        if answer.code() == "rate_limited" {
            assert!(answer.headers.contains_key("retry-after"));
            held_back = true;
            break;
        }
        answer.refused("unauthenticated");
    }
    assert!(held_back);
    rig.get("/v1/whoami").await.good();
}

#[tokio::test(flavor = "multi_thread")]
async fn administrative_acts_are_told_to_the_audit_log() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("audit");
    let rig = Rig::start_with_tokens(|settings| settings.audit_log = Some(path.clone())).await;
    rig.queue("jobs", json!({})).await;
    let (weak, id) = rig.token_for(&["queue:jobs:read"]).await;
    rig.call_as(&weak, Method::DELETE, "/v1/queues/jobs?force=true", None).await.refused("forbidden");
    rig.call_as(&weak, Method::GET, "/v1/queues/jobs", None).await.good();
    rig.submit("jobs", json!([{}])).await;
    rig.delete("/v1/queues/jobs").await.refused("queue_busy");
    let lines = std::fs::read_to_string(&path).unwrap();
    assert!(!lines.contains("tow_"), "no token is told: {lines}");
    let entries: Vec<Value> = lines.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    let acts: Vec<(&str, u64)> = entries
        .iter()
        .map(|entry| (entry["act"].as_str().unwrap(), entry["status"].as_u64().unwrap()))
        .collect();
    assert_eq!(
        acts,
        [("put_queue", 200), ("create_token", 200), ("delete_queue", 403), ("delete_queue", 409)]
    );
    assert_eq!(entries[0]["name"], "test");
    assert!(entries[0]["time"].is_string() && entries[0]["from"].as_str().unwrap().starts_with("127.0.0.1:"));
    assert!(entries[1]["about"].as_str().unwrap().contains("queue:jobs:read"), "{}", entries[1]);
    assert_eq!((&entries[2]["token"].to_string(), &entries[2]["code"]), (&id, &json!("forbidden")));
    assert_eq!(entries[2]["path"], "/v1/queues/jobs?force=true");
    let mode = std::os::unix::fs::PermissionsExt::mode(&std::fs::metadata(&path).unwrap().permissions());
    assert_eq!(mode & 0o777, 0o600);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_server_that_nobody_could_call_does_not_start() {
    let directory = tempfile::tempdir().unwrap();
    let settings = Settings {
        listen: "127.0.0.1:0".parse().unwrap(),
        data: directory.path().join("data"),
        require_tokens: true,
        ..Settings::default()
    };
    let refused = tokio::spawn(Server::open(settings)).await.unwrap().unwrap_err();
    assert!(matches!(refused, ServerError::NoTokens), "{refused}");
    assert!(refused.to_string().contains("towline token create"), "{refused}");
}

#[tokio::test(flavor = "multi_thread")]
async fn any_header_is_answered() {
    let rig = Rig::start_with_tokens(|_| {}).await;
    for header in [
        "",
        " ",
        "Bearer ",
        "Bearer tow_",
        "Bearer \u{fffd}",
        "Bearer tow_18446744073709551616_00",
        "\tBearer x",
    ] {
        let mut raw = Raw::connect(rig.address).await;
        raw.send(&format!("GET /v1/whoami HTTP/1.1\r\nhost: localhost\r\nauthorization: {header}\r\n\r\n"))
            .await;
        raw.answer().await.unwrap().refused("unauthenticated");
    }
}
