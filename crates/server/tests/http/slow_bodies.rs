//! Slow clients do not keep the memory for request bodies from other clients.

use crate::raw::{Raw, head, padded};
use crate::test_server::TestServer;
use serde_json::{Value, json};
use std::time::Duration;

const ITEMS: &str = "/v1/queues/jobs/items";

async fn server() -> TestServer {
    let server = TestServer::start_with(|settings| settings.bodies_bytes_max = 1 << 20).await;
    server.queue("jobs", json!({})).await;
    server
}

#[tokio::test(flavor = "multi_thread")]
async fn a_body_that_is_announced_but_not_sent_holds_no_memory() {
    let server = server().await;
    let body = padded(r#"{"items":[{}]}"#, 900_000);
    let mut dribbling = Vec::new();
    for _ in 0..9 {
        let mut raw = Raw::connect(server.address).await;
        raw.send(head("POST", ITEMS, body.len())).await;
        raw.send("{").await;
        dribbling.push(raw);
    }
    // All of them are being read: each answers as soon as its body ends.
    server.post_text(ITEMS, body.clone()).await.success();
    for mut raw in dribbling {
        raw.send(&body[1..]).await;
        raw.answer().await.unwrap().success();
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_slow_body_is_cut_when_another_needs_its_memory() {
    let server = server().await;
    let body = padded(r#"{"items":[{}]}"#, 900_000);
    let mut slow = Raw::hold_memory(&server, &body).await;
    let cut = tokio::spawn(async move { slow.answer().await });
    while server.post_text(ITEMS, body.clone()).await.status.as_u16() != 200 {
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    let detail = cut.await.unwrap().unwrap().problem("request_timeout");
    assert!(detail.contains("slowly"), "{detail}");
}

/// Before its end, an upload holds the memory of what has arrived and is not stored.
#[tokio::test(flavor = "multi_thread")]
async fn slow_uploads_of_buffers_do_not_block_large_bodies() {
    let server = server().await;
    let mut uploads = Vec::new();
    for _ in 0..4 {
        let made = server.post("/v1/buffers", json!({})).await.success();
        let path = format!("/v1/buffers/{}/content", made["id"].as_str().unwrap());
        let mut raw = Raw::connect(server.address).await;
        raw.send(head("PUT", &path, 100)).await;
        raw.send("x").await;
        uploads.push(raw);
    }
    server.post_text(ITEMS, padded(r#"{"items":[{}]}"#, 900_000)).await.success();
    for mut raw in uploads {
        raw.send("x".repeat(99)).await;
        raw.answer().await.unwrap().success();
    }
}

/// Waits until a receiver waits for items of the queue `jobs`.
async fn wait_for_receiver(server: &TestServer) {
    while server.get("/v1/queues/jobs").await.success()["consumers"][0]["waiting"] != 1 {
        tokio::task::yield_now().await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_receive_that_waits_holds_no_memory_of_its_body() {
    let server = server().await;
    // Spaces around a duration are allowed, and they are decoded with it.
    let wait = json!({"wait": format!("{}5m", " ".repeat(900_000))});
    let receive = server.post("/v1/queues/jobs/receive", wait);
    tokio::pin!(receive);
    tokio::select! {
        answer = &mut receive => panic!("{}", answer.json()),
        () = wait_for_receiver(&server) => {}
    }
    server.post_text(ITEMS, padded(r#"{"items":[{}]}"#, 900_000)).await.success();
    assert_eq!(receive.await.success()["items"].as_array().unwrap().len(), 1);
}

#[tokio::test(flavor = "multi_thread")]
async fn submits_that_wait_for_room_hold_a_share_of_the_memory() {
    let server = server().await;
    server.queue("full", json!({"depth_limit": 1})).await;
    server.submit("full", json!([{}])).await;
    let large = json!({"items": [{"payload": "A".repeat(200_000)}], "wait": "2m"});
    let submit = || server.post("/v1/queues/full/items", large.clone());
    let code = |answer: &Value| answer["items"][0]["error"]["code"].clone();
    // The share is 256 KiB, so one of the two waits and the other is refused at once.
    let (first, second) = (submit(), submit());
    tokio::pin!(first, second);
    let (refused, waiting) = tokio::select! {
        answer = &mut first => (answer, second),
        answer = &mut second => (answer, first),
    };
    assert_eq!(code(&refused.success()), "queue_full");
    // A small submit may still wait, and large bodies still fit.
    let small = json!({"items": [{}], "wait": "1ms"});
    assert_eq!(code(&server.post("/v1/queues/full/items", small).await.success()), "queue_full");
    server.post_text(ITEMS, padded(r#"{"items":[{}]}"#, 600_000)).await.success();
    let id = server.receive("full").await;
    let (id, lease) = (id["id"].as_str().unwrap().to_owned(), id["lease"].clone());
    let (waited, _) = tokio::join!(waiting, server.act(&id, "commit", json!({"lease": lease})));
    assert_eq!(waited.success()["items"][0]["created"], true);
}
