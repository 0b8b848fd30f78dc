//! Payload fields as text and as JSON, beside base64.

use crate::test_server::TestServer;
use http::Method;
use serde_json::{Value, json};

const ITEMS: &str = "/v1/queues/jobs/items";

#[tokio::test(flavor = "multi_thread")]
async fn a_payload_is_given_as_text_or_json() {
    let server = TestServer::start().await;
    server.queue("jobs", json!({})).await;
    let body = r#"{"payload_text":"h\u00e9llo","state_blob_json":{"n": [1.50, null]},"metadata":"/w=="}"#;
    let id = server.post_text(ITEMS, body).await.success()["id"].as_str().unwrap().to_owned();
    let shown = server.item(&id).await;
    assert_eq!(shown["payload"], "aMOpbGxv");
    assert_eq!(shown["state_blob"], "eyJuIjpbMS41MCxudWxsXX0=", "the digits stay, the white space goes");

    // As text: the field that is not text stays base64.
    let path = format!("/v1/items/{id}");
    let text = server.get(&format!("{path}?payload_as=text")).await.success();
    assert_eq!(text["payload_text"], "héllo");
    assert_eq!(text["state_blob_text"], "{\"n\":[1.50,null]}");
    assert_eq!(text["metadata"], "/w==");
    assert!(text.get("payload").is_none() && text.get("metadata_text").is_none(), "{text}");
    // As JSON: the text is not JSON.
    let shown = server.get(&format!("{path}?payload_as=json")).await;
    assert!(String::from_utf8_lossy(&shown.body).contains(r#""state_blob_json":{"n":[1.50,null]}"#));
    assert_eq!(shown.success()["payload"], "aMOpbGxv");
    let list = server.get(&format!("{ITEMS}?fields=payload&payload_as=text")).await.success();
    assert_eq!(list["items"][0]["payload_text"], "héllo");
    let accept = [("accept", "application/x-ndjson")];
    let path = format!("{ITEMS}?fields=payload&payload_as=text");
    let lines = server.send_bytes(Method::GET, &path, &accept, "").await;
    assert_eq!(lines.success()["payload_text"], "héllo");
    server.get(&format!("/v1/items/{id}?payload_as=utf8")).await.problem("invalid");

    let receive = "/v1/queues/jobs/receive";
    server.post(receive, json!({"payload_as": "xml"})).await.problem("invalid");
    let held = server.post(receive, json!({"payload_as": "json", "fields": ["state_blob"]})).await.success();
    let held = &held["items"][0];
    assert_eq!(held["state_blob_json"], json!({"n": [1.5, null]}));
    // The holder sets fields in the same forms.
    let set = json!({"payload_json": [], "metadata_text": "done", "state_blob": "AA=="});
    server.act(&id, "edit", json!({"lease": held["lease"], "set": set})).await.success();
    let shown = server.get(&format!("/v1/items/{id}?payload_as=text")).await.success();
    let fields = ["payload_text", "metadata_text", "state_blob_text"].map(|name| &shown[name]);
    assert_eq!(fields, [&json!("[]"), &json!("done"), &json!("\u{0}")]);
}

#[tokio::test(flavor = "multi_thread")]
async fn messagepack_has_the_same_forms() {
    let server = TestServer::start().await;
    server.queue("jobs", json!({})).await;
    let packed = [("content-type", "application/msgpack")];
    let body =
        rmp_serde::to_vec_named(&json!({"payload_json": {"a": [1, "x"]}, "metadata_text": "m"})).unwrap();
    assert_eq!(server.send_bytes(Method::POST, ITEMS, &packed, body).await.status, 201);
    let body = rmp_serde::to_vec_named(&json!({"payload_as": "json"})).unwrap();
    let held = server.send_bytes(Method::POST, "/v1/queues/jobs/receive", &packed, body).await;
    let held: Value = rmp_serde::from_slice(&held.body).unwrap_or_default();
    // `m` is not JSON, so it comes as bytes, which a JSON value cannot hold.
    assert_eq!(held, Value::Null);
    let path = format!("{ITEMS}?fields=payload&payload_as=json");
    let shown = server.send_bytes(Method::GET, &path, &[("accept", "application/msgpack")], "").await;
    let shown: Value = rmp_serde::from_slice(&shown.body).unwrap();
    assert_eq!(shown["items"][0]["payload_json"], json!({"a": [1, "x"]}));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_payload_in_two_forms_or_in_a_wrong_one_is_refused_with_a_hint() {
    let server = TestServer::start().await;
    server.queue("jobs", json!({})).await;
    for (item, expected) in [
        (json!({"payload": "hello world"}), &["payload: not base64", "`payload_text`"][..]),
        (json!({"metadata": "?"}), &["metadata: not base64", "`metadata_text`"]),
        (json!({"payload": "AA==", "payload_text": "a"}), &["payload", "two forms", "`payload_json`"]),
        (json!({"blob": "AA==", "payload_json": 1}), &["two forms"]),
        (json!({"state_blob_text": "a", "state_blob_json": 1}), &["state_blob", "two forms"]),
    ] {
        let detail = server.post(ITEMS, item.clone()).await.problem("invalid");
        assert!(expected.iter().all(|word| detail.contains(word)), "{item}: {detail}");
    }
    // `null` is the same as absent.
    let item = json!({"payload": null, "payload_text": "a", "payload_json": null});
    let id = server.post(ITEMS, item).await.success()["id"].as_str().unwrap().to_owned();
    assert_eq!(server.item(&id).await["payload"], "YQ==");
    let too_large = server.post(ITEMS, json!({"payload_text": "x".repeat((4 << 20) + 1)})).await;
    too_large.problem("too_large");
}
