//! Commits that submit items in the same step.

use crate::test_server::TestServer;
use base64::Engine;
use base64::prelude::BASE64_STANDARD;
use serde_json::{Value, json};
use std::time::Duration;
use towline_api::{Action, HandOffBody, NewItem, VerbName};

async fn with_queues() -> TestServer {
    let server = TestServer::start().await;
    server.queue("jobs", json!({})).await;
    server.queue("next", json!({})).await;
    server
}

#[tokio::test(flavor = "multi_thread")]
async fn a_commit_submits_items_and_a_repeated_commit_answers_their_ids() {
    let server = with_queues().await;
    server.submit("jobs", json!([{}])).await;
    let (id, lease) = server.hold("jobs").await;
    let large = BASE64_STANDARD.encode(vec![7; 200_000]);
    let body = json!({"lease": lease, "then_submit": [
        {"queue": "next", "item": {"params": {"n": 1}, "payload": large}},
        {"queue": "next", "item": {"delay": "1h", "tags": {"stage": "two"}}},
        {"queue": "jobs"},
    ]});
    let first = server.act(&id, "commit", body.clone()).await.success();
    assert_eq!(first["state"], "completed");
    let ids: Vec<&str> = first["handed_off"].as_array().unwrap().iter().filter_map(Value::as_str).collect();
    assert_eq!(ids.len(), 3, "{first}");
    assert_eq!(server.act(&id, "commit", body).await.success(), first, "a repeated commit");
    assert_eq!(server.item(&id).await["handed_off"], first["handed_off"]);
    let shown = server.get(&format!("/v1/items/{}?fields=payload", ids[0])).await.success();
    assert_eq!((&shown["parent"], &shown["queue"]), (&json!(id), &json!("next")));
    assert_eq!(shown["payload"], json!(large), "a payload in object storage");
    assert_eq!(server.item(ids[1]).await["state"], "scheduled");
    assert_eq!(server.counts("next").await["pending"], 1);
    let other = server.act(&id, "commit", json!({"lease": lease})).await;
    other.problem("already_settled");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_refused_item_is_named_and_the_lease_stays() {
    let server = with_queues().await;
    server.submit("jobs", json!([{}])).await;
    let (id, lease) = server.hold("jobs").await;
    let good = json!({"queue": "next"});
    for (bad, code) in [
        (json!({"queue": "missing"}), "queue_not_found"),
        (json!({"queue": "next", "item": {"priority": 100_000}}), "invalid"),
        (json!({"queue": "not a name"}), "invalid"),
        (
            json!({"queue": "next", "item": {"after": {"items": [id]}, "payload": "bm90", "payload_text": "x"}}),
            "invalid",
        ),
    ] {
        let body = json!({"lease": lease, "then_submit": [good, bad]});
        let message = server.act(&id, "commit", body).await.problem(code);
        assert!(message.starts_with("then_submit[1]: "), "{message}");
    }
    for bad in [json!(["next"]), json!([["next", {}]]), json!({"queue": "next"}), json!([{"item": {}}])] {
        let body = json!({"lease": lease, "then_submit": bad});
        server.act(&id, "commit", body).await.problem("malformed_body");
    }
    let body = json!({"lease": lease, "then_submit": [good]});
    let message = server.act(&id, "fail", body).await.problem("invalid");
    assert!(message.contains("commit"), "{message}");
    assert_eq!(server.item(&id).await["state"], "processing");
    assert_eq!(server.counts("next").await["pending"], 0);
}

#[tokio::test(flavor = "multi_thread")]
async fn each_call_of_a_batch_hands_off_for_itself() {
    let server = with_queues().await;
    server.submit("jobs", json!([{}, {}])).await;
    let held = server.post("/v1/queues/jobs/receive", json!({"max": 2})).await.success();
    let commit = |n: usize, queue: &str| {
        let item = &held["items"][n];
        json!({"verb": "commit", "id": item["id"], "lease": item["lease"], "then_submit": [{"queue": queue}]})
    };
    let actions = json!({"actions": [commit(0, "missing"), commit(1, "next")]});
    let answer = server.post("/v1/settle", actions).await.success();
    assert_eq!(answer["results"][0]["error"]["code"], "queue_not_found");
    assert_eq!(answer["results"][1]["handed_off"].as_array().unwrap().len(), 1);
    assert_eq!(server.counts("next").await["pending"], 1);
}

#[tokio::test(flavor = "multi_thread")]
async fn each_queue_needs_the_right_to_submit() {
    let server = TestServer::start_with_tokens(|_| {}).await;
    server.queue("jobs", json!({})).await;
    server.queue("next", json!({})).await;
    server.submit("jobs", json!([{}])).await;
    let receiver = server.token_for(&["queue:jobs:receive"]).await.0;
    let both = server.token_for(&["queue:jobs:receive", "queue:next:submit"]).await.0;
    let held = server.post_as(&receiver, "/v1/queues/jobs/receive", json!({})).await.success();
    let (id, lease) = (held["items"][0]["id"].as_str().unwrap(), &held["items"][0]["lease"]);
    let path = format!("/v1/items/{id}/commit");
    let body = json!({"lease": lease, "then_submit": [{"queue": "next"}]});
    let message = server.post_as(&receiver, &path, body.clone()).await.problem("forbidden");
    assert!(message.contains("queue:next:submit"), "{message}");
    let foreign = json!({"lease": lease, "then_submit": [{"queue": "next", "item": {"group": "g"}}]});
    server.post_as(&both, &path, foreign).await.problem("forbidden");
    server.post_as(&both, &path, body).await.success();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_waiting_receiver_gets_a_handed_off_item() {
    let server = with_queues().await;
    server.submit("jobs", json!([{}])).await;
    let (id, lease) = server.hold("jobs").await;
    let client = server.client();
    let receiver = tokio::spawn(async move {
        let request = towline_api::ReceiveRequest {
            wait: Some(towline_domain::Millis::seconds(60).into()),
            ..Default::default()
        };
        client.receive("next", &request).await.unwrap()
    });
    // The receiver may come before or after the item: it gets the item either way.
    tokio::time::sleep(Duration::from_millis(50)).await;
    let hand_off = HandOffBody { queue: "next".to_owned(), item: NewItem::default() };
    let action = Action {
        then_submit: vec![hand_off],
        ..Action::new(VerbName::Commit, id.parse().unwrap(), lease.parse().unwrap())
    };
    let settled = server.client().act(action).await.unwrap();
    let received = receiver.await.unwrap();
    assert_eq!(received.items[0].id, settled.handed_off[0]);
}
