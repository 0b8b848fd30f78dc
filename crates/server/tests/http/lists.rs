//! Lists of items: filters, pages and fields.

use crate::test_server::TestServer;
use serde_json::{Value, json};

fn ids(page: &Value) -> Vec<String> {
    page["items"].as_array().unwrap().iter().map(|item| item["id"].as_str().unwrap().to_owned()).collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn lists_filter_by_state_and_its_aliases() {
    let server = TestServer::start().await;
    server.queue("jobs", json!({"order": "fifo"})).await;
    let made = server.submit("jobs", json!([{}, {}, {}, {}, {"delay": "1h"}, {}])).await;
    let held = server.post("/v1/queues/jobs/receive", json!({"max": 3})).await.success();
    server.act(&made[0], "commit", json!({"lease": held["items"][0]["lease"]})).await.success();
    server.act(&made[1], "fail", json!({"lease": held["items"][1]["lease"]})).await.success();
    server.call(http::Method::POST, &format!("/v1/items/{}/pause", made[3]), None).await.success();
    for (states, expected) in [
        (&["completed", "Succeeded"][..], &[0][..]),
        (&["failed", "dead"], &[1]),
        (&["processing", "RUNNING", "assigned"], &[2]),
        (&["paused"], &[3]),
        (&["scheduled", "delayed"], &[4]),
        (&["ready", "available", "queued"], &[5]),
        (&["pending"], &[4, 5]),
        (&["unfinished"], &[2, 3, 4, 5]),
    ] {
        let expected: Vec<&String> = expected.iter().map(|n| &made[*n]).collect();
        for state in states {
            for name in ["state", "status"] {
                let page = server.get(&format!("/v1/queues/jobs/items?{name}={state}")).await.success();
                assert_eq!(ids(&page).iter().collect::<Vec<_>>(), expected, "{state}");
                assert_eq!(page["next"], Value::Null);
            }
        }
    }
    assert_eq!(ids(&server.get("/v1/queues/jobs/items").await.success()), made);
}

#[tokio::test(flavor = "multi_thread")]
async fn lists_filter_by_tag_group_key_and_time() {
    let server = TestServer::start().await;
    server.queue("jobs", json!({})).await;
    let made = server
        .submit(
            "jobs",
            json!([
                {"tags": {"team": "mri", "site": "a=b&c"}}, {"tags": {"team": "ct"}, "group": "g 1"},
                {"tags": {"team": "mri"}, "idempotency_key": "k/1"}, {},
            ]),
        )
        .await;
    for (query, expected) in [
        ("tag=team%3Dmri", &[0, 2][..]),
        ("tag=team=mri&tag=site%3Da%3Db%26c", &[0]),
        ("tag=team=m", &[]),
        ("tag=team=mri&tag=team=ct", &[]),
        ("group=g+1", &[1]),
        ("group=g%201", &[1]),
        ("idempotency_key=k/1", &[2]),
        ("created_from=1970-01-01T00:00:00Z", &[0, 1, 2, 3]),
        ("created_before=1970-01-01T00:00:00Z", &[]),
        ("created_before=4102444800000", &[0, 1, 2, 3]),
        ("created_from=2100-01-01T00:00:00Z", &[]),
    ] {
        let page = server.get(&format!("/v1/queues/jobs/items?{query}")).await.success();
        let expected: Vec<&String> = expected.iter().map(|n| &made[*n]).collect();
        assert_eq!(ids(&page).iter().collect::<Vec<_>>(), expected, "{query}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn lists_are_paged() {
    let server = TestServer::start().await;
    server.queue("jobs", json!({})).await;
    let made = server.submit("jobs", json!(vec![json!({}); 250])).await;
    let mut seen = Vec::new();
    let mut cursor = String::new();
    loop {
        let page = server.get(&format!("/v1/queues/jobs/items?limit=37{cursor}")).await.success();
        assert!(page["items"].as_array().unwrap().len() <= 37);
        seen.extend(ids(&page));
        match page["next"].as_str() {
            Some(next) => cursor = format!("&cursor={next}"),
            None => break,
        }
    }
    assert_eq!(seen, made);
    assert_eq!(ids(&server.get("/v1/queues/jobs/items").await.success()).len(), 100, "the default page");
    assert_eq!(ids(&server.get("/v1/queues/jobs/items?limit=1000").await.success()).len(), 250);
}

#[tokio::test(flavor = "multi_thread")]
async fn lists_contain_payload_fields_only_on_request() {
    let server = TestServer::start().await;
    server.queue("jobs", json!({})).await;
    let id = server
        .submit("jobs", json!([{"payload": "cA==", "metadata": "bQ==", "params": {"a": 1}}]))
        .await
        .remove(0);
    for (query, payload, metadata) in [
        ("", false, false),
        ("?fields=", false, false),
        ("?fields=payload", true, false),
        ("?fields=blob,metadata", true, true),
    ] {
        let page = server.get(&format!("/v1/queues/jobs/items{query}")).await.success();
        let item = &page["items"][0];
        assert_eq!(
            (item.get("payload").is_some(), item.get("metadata").is_some()),
            (payload, metadata),
            "{query}"
        );
        assert_eq!(item["params"], json!({"a": 1}));
    }
    // A single item is shown in full, unless the request asks for less.
    assert_eq!(server.item(&id).await["payload"], "cA==");
    assert_eq!(server.get(&format!("/v1/items/{id}?fields=")).await.success().get("payload"), None);
    assert_eq!(server.get(&format!("/v1/items/{id}?fields=metadata")).await.success()["metadata"], "bQ==");
    server.get(&format!("/v1/items/{id}?fields=inputs")).await.problem("invalid");
}

#[tokio::test(flavor = "multi_thread")]
async fn invalid_query_parameters_are_rejected() {
    let server = TestServer::start().await;
    server.queue("jobs", json!({})).await;
    for (query, expected) in [
        ("state=gone", "gone"),
        ("state=pending&status=failed", "choose one"),
        ("state=pending&state=failed", "2 times"),
        ("tag=team", "key=value"),
        ("limit=0", "limit"),
        ("limit=1001", "limit"),
        ("limit=-1", "limit"),
        ("limit=1e3", "limit"),
        ("cursor=abc", "cursor"),
        ("cursor=-1", "cursor"),
        ("cursor=99999999999999999999999", "cursor"),
        ("created_from=yesterday", "created_from"),
        ("fields=everything", "everything"),
        ("order=asc", "order"),
        ("State=pending", "State"),
        ("%FF=1", "not a parameter of this route"),
    ] {
        for accept in ["application/json", "application/x-ndjson"] {
            if accept == "application/x-ndjson" && query == "limit=1001" {
                continue;
            }
            let path = format!("/v1/queues/jobs/items?{query}");
            let detail = server
                .send_bytes(http::Method::GET, &path, &[("accept", accept)], "")
                .await
                .problem("invalid");
            assert!(detail.contains(expected), "{query}: {detail}");
        }
    }
    let many = "tag=a=b&".repeat(101);
    server.get(&format!("/v1/queues/jobs/items?{many}")).await.problem("invalid");
    let tags = "tag=a=b&".repeat(33);
    server.get(&format!("/v1/queues/jobs/items?{tags}")).await.problem("too_large");
}
