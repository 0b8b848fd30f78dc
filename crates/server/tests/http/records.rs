//! Key-value records and topics.

use crate::test_server::TestServer;
use http::Method;
use serde_json::{Value, json};
use std::time::Duration;
use towline_api::client::TopicEvent;
use towline_api::{Client, IncrementRecord, RecordAction, RecordResult, SetRecord};
use towline_domain::limits;

fn set(value: &str) -> SetRecord {
    SetRecord { value: value.to_owned(), ..SetRecord::default() }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_record_can_have_any_key() {
    let server = TestServer::start().await;
    let client = server.client();
    for key in
        ["a", "a/b", "..", "%2F", "ключ", "a b?c#d", " ", "\0", &"x".repeat(limits::RECORD_KEY_BYTES_MAX)]
    {
        assert_eq!(client.record(key).await.unwrap(), None, "{key:?}");
        assert!(client.set_record(key, &set(key)).await.unwrap());
        assert_eq!(client.record(key).await.unwrap().unwrap().value, key);
        assert!(client.delete_record(key).await.unwrap(), "{key:?}");
        assert!(!client.delete_record(key).await.unwrap());
    }
    let long = "x".repeat(limits::RECORD_KEY_BYTES_MAX + 1);
    let refused = server.call(Method::PUT, &format!("/v1/kv/{long}"), Some(json!({"value": ""}))).await;
    assert_eq!(refused.problem("invalid"), "key: 513 bytes; use 1 to 512");
    let large = "x".repeat(limits::KV_VALUE_BYTES_MAX + 1);
    server.call(Method::PUT, "/v1/kv/a", Some(json!({"value": large}))).await.problem("too_large");
    server.call(Method::PUT, "/v1/kv/a", Some(json!({"value": 7}))).await.problem("malformed_body");
    server.call(Method::PUT, "/v1/kv/a", Some(json!({"value": "", "ttl": "soon"}))).await.problem("invalid");
    server.get("/v1/kv/a").await.problem("record_not_found");
}

#[tokio::test(flavor = "multi_thread")]
async fn one_client_sets_an_absent_record_and_once_counts_once() {
    let server = TestServer::start().await;
    let client = server.client();
    let claim = SetRecord { if_absent: true, ..set("me") };
    assert!(client.set_record("slot", &claim).await.unwrap());
    assert!(!client.set_record("slot", &claim).await.unwrap());
    let add = async |by: i64, once: Option<&str>| {
        let ttl = once.map(|_| Duration::from_secs(60).into());
        let body = IncrementRecord { by: Some(by), once: once.map(str::to_owned), ttl };
        client.increment_record("n", &body).await.unwrap()
    };
    assert_eq!(add(2, None).await, 2);
    assert_eq!(add(5, Some("a")).await, 7);
    assert_eq!(add(1, None).await, 8);
    assert_eq!(add(5, Some("a")).await, 7);
    let one = server.call(Method::POST, "/v1/kv/n/increment", Some(json!({}))).await.success();
    assert_eq!(one, json!({"value": 9}));
    let forever = server.call(Method::POST, "/v1/kv/n/increment", Some(json!({"once": "b"}))).await;
    assert!(forever.problem("invalid").contains("ttl"));
    let brief = json!({"value": "x", "ttl": "1ms"});
    server.call(Method::PUT, "/v1/kv/brief", Some(brief)).await.success();
    while client.record("brief").await.unwrap().is_some() {
        tokio::task::yield_now().await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn records_are_listed_by_prefix_without_internal_records() {
    let server = TestServer::start_with_tokens(|_| {}).await;
    let token = server.token_for(&["kv:*:*"]).await.0;
    let client = Client::new(&server.url()).unwrap().token(&token).unwrap();
    for n in 0..limits::KV_PAGE_MAX + 3 {
        client.set_record(&format!("a/{n:03}"), &set("v")).await.unwrap();
    }
    client.set_record("b", &set("v")).await.unwrap();
    let count = IncrementRecord {
        once: Some("x".to_owned()),
        ttl: Some(Duration::from_secs(60).into()),
        ..IncrementRecord::default()
    };
    client.increment_record("c", &count).await.unwrap();
    let mut keys = Vec::new();
    let mut cursor = None;
    loop {
        let page = client.records("", cursor.as_deref()).await.unwrap();
        keys.extend(page.records.into_iter().map(|record| record.key));
        cursor = page.next;
        if cursor.is_none() {
            break;
        }
    }
    assert_eq!(keys.len(), limits::KV_PAGE_MAX + 5, "{keys:?}");
    assert!(keys.is_sorted() && keys.ends_with(&["b".to_owned(), "c".to_owned()]));
    assert_eq!(client.records("b", None).await.unwrap().records.len(), 1);
    let page = server.get("/v1/kv?prefix=a/&limit=2&cursor=a/000").await.success();
    assert_eq!(page["records"][0]["key"], "a/001");
    assert_eq!(page["next"], "a/002");
    server.get("/v1/kv?limit=1001").await.problem("invalid");
    server.get("/v1/kv?prefx=a").await.problem("invalid");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_message_reaches_every_subscriber_of_its_topic_and_no_other() {
    let mut server = TestServer::start().await;
    let client = server.client();
    assert_eq!(client.publish("news", "without subscribers").await.unwrap(), 0);
    let mut subscribers = Vec::new();
    for _ in 0..3 {
        subscribers.push(client.subscribe("news").await.unwrap());
    }
    let mut other = client.subscribe("other").await.unwrap();
    let detail = "line\r\none\n\ndata: two \u{1f409}";
    assert_eq!(client.publish("news", detail).await.unwrap(), 3);
    assert_eq!(client.publish("other", "else").await.unwrap(), 1);
    for subscriber in &mut subscribers {
        assert_eq!(subscriber.next().await.unwrap(), Some(TopicEvent::Message(detail.to_owned())));
    }
    assert_eq!(other.next().await.unwrap(), Some(TopicEvent::Message("else".to_owned())));
    // A subscriber that disconnects gets no more messages.
    drop(subscribers);
    while client.publish("news", "again").await.unwrap() > 0 {
        tokio::task::yield_now().await;
    }
    let refused = server.post("/v1/topics/no%20good", json!({"message": ""})).await.problem("invalid");
    assert!(refused.starts_with("topic name \"no good\"") && !refused.contains("queue"), "{refused}");
    server.get("/v1/topics/news?for=soon").await.problem("invalid");
    // Subscriptions end when the server stops.
    server.stopped().await;
    assert_eq!(other.next().await.unwrap_or_default(), None);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_subscriber_that_does_not_read_is_cut_off_with_a_last_event() {
    let server = TestServer::start().await;
    let client = server.client();
    let mut slow = client.subscribe("news").await.unwrap();
    // More than the broker holds for a subscriber, and more than fits into socket buffers.
    let message = "x".repeat(limits::TOPIC_MESSAGE_BYTES_MAX);
    for _ in 0..2000 {
        client.publish("news", &message).await.unwrap();
    }
    let mut received = 0;
    let missed = loop {
        match slow.next().await.unwrap() {
            Some(TopicEvent::Message(_)) => received += 1,
            Some(TopicEvent::CutOff { missed }) => break missed,
            None => panic!("the stream ended without an event after {received} messages"),
        }
    };
    assert!(missed > 0, "{received} were received");
    assert_eq!(slow.next().await.unwrap(), None);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_record_is_set_only_if_it_has_the_value() {
    let server = TestServer::start().await;
    let put = async |body: Value| server.put("/v1/kv/state", body).await;
    assert_eq!(put(json!({"value": "b", "if_value": "a"})).await.success(), json!({"set": false}));
    put(json!({"value": "a", "ttl": "1h"})).await.success();
    assert_eq!(put(json!({"value": "b", "if_value": "x"})).await.success(), json!({"set": false}));
    assert_eq!(put(json!({"value": "b", "if_value": "a"})).await.success(), json!({"set": true}));
    let shown = server.get("/v1/kv/state").await.success();
    assert!(shown["value"] == "b" && shown["expires_at"].is_string(), "{shown}");
    put(json!({"value": "b", "if_value": "a", "if_absent": true})).await.problem("invalid");
    assert_eq!(server.delete("/v1/kv/state").await.status, 204);
    server.delete("/v1/kv/state").await.problem("record_not_found");
}

#[tokio::test(flavor = "multi_thread")]
async fn one_call_acts_on_many_records() {
    let server = TestServer::start().await;
    let act = async |actions: Value| server.post("/v1/kv", json!({"actions": actions})).await;
    let results = act(json!([
        {"verb": "get", "key": "n"},
        {"verb": "set", "key": "a", "value": "1"},
        {"verb": "set", "key": "a", "value": "2", "if_value": "1"},
        {"verb": "set", "key": "a", "value": "3", "if_value": "1"},
        {"verb": "increment", "key": "n", "by": 5},
        {"verb": "increment", "key": "n"},
        {"verb": "increment", "key": "a", "by": "x"},
        {"verb": "increment", "key": "a", "value": "x"},
        {"verb": "set", "key": "b"},
        {"verb": "set", "key": "", "value": "x"},
        {"verb": "delete", "key": "a", "if_value": "1"},
        {"verb": "delete", "key": "a", "if_value": "2"},
        {"verb": "delete", "key": "a"},
        {"verb": "get", "key": "a"},
        {"verb": "grow", "key": "a"},
        {"verb": "get", "key": "n"},
        {"verb": "set", "key": "n", "value": "1"},
        {"verb": "get", "key": "n"},
        {"verb": "set", "key": "n", "value": "6"},
    ]))
    .await
    .success();
    let results = results["results"].as_array().unwrap().clone();
    let codes: Vec<&Value> = results.iter().map(|result| &result["error"]["code"]).collect();
    assert_eq!(codes[0], "record_not_found", "read before the changes");
    let plain = |n: usize| results[n].clone();
    assert_eq!([1, 2, 3].map(plain), [json!({"set": true}), json!({"set": true}), json!({"set": false})]);
    assert_eq!([4, 5].map(plain), [json!({"value": 5}), json!({"value": 6})]);
    assert_eq!([codes[6], codes[7], codes[8], codes[9]], ["malformed_body", "invalid", "invalid", "invalid"]);
    let deleted = |deleted: bool| json!({"deleted": deleted});
    assert_eq!([10, 11, 12].map(plain), [deleted(false), deleted(true), deleted(false)]);
    assert_eq!([codes[13], codes[14]], ["record_not_found", "malformed_body"]);
    assert_eq!([15, 17].map(|n| &results[n]["value"]), ["6", "1"], "each get reads what was set before it");
    let refused = server.post("/v1/kv/word/increment", json!({})).await.success();
    assert_eq!(refused["value"], 1);
    server.put("/v1/kv/word", json!({"value": "x"})).await.success();
    let refused = server.post("/v1/kv/word/increment", json!({})).await.problem("invalid");
    assert!(refused.contains("not a number") && !refused.contains("kv/"), "{refused}");
    let gets: Vec<Value> = (0..65).map(|n| json!({"verb": "get", "key": n.to_string()})).collect();
    act(json!(gets)).await.problem("too_large");

    let client = server.client();
    let get = RecordAction { key: "n".to_owned(), ..RecordAction::default() };
    assert!(
        matches!(&client.act_on_records(vec![get]).await.unwrap()[0], RecordResult::Shown(record) if record.value == "6")
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn a_page_of_records_ends_early_when_values_are_large() {
    let server = TestServer::start().await;
    let client = server.client();
    for n in 0..10 {
        client.set_record(&format!("{n}"), &set(&"x".repeat(1 << 20))).await.unwrap();
    }
    client.set_record("z", &set("v")).await.unwrap();
    let page = server.get("/v1/kv?limit=5").await.success();
    assert_eq!((page["records"].as_array().unwrap().len(), &page["next"]), (5, &json!("4")));
    let page = server.get("/v1/kv?prefix=z").await.success();
    assert_eq!((page["records"].as_array().unwrap().len(), &page["next"]), (1, &Value::Null));
}
