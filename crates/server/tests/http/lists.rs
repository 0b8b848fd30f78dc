//! Lists of items: which, how many, with what.

use crate::rig::Rig;
use serde_json::{Value, json};

fn ids(page: &Value) -> Vec<String> {
    page["items"].as_array().unwrap().iter().map(|item| item["id"].as_str().unwrap().to_owned()).collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn by_state_in_the_words_of_every_system() {
    let rig = Rig::start().await;
    rig.queue("jobs", json!({"order": "fifo"})).await;
    let made = rig.submit("jobs", json!([{}, {}, {}, {}, {"delay": "1h"}, {}])).await;
    let held = rig.post("/v1/queues/jobs/receive", json!({"max": 3})).await.good();
    rig.act(&made[0], "commit", json!({"lease": held["items"][0]["lease"]})).await.good();
    rig.act(&made[1], "fail", json!({"lease": held["items"][1]["lease"]})).await.good();
    rig.call(http::Method::POST, &format!("/v1/items/{}/pause", made[3]), None).await.good();
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
                let page = rig.get(&format!("/v1/queues/jobs/items?{name}={state}")).await.good();
                assert_eq!(ids(&page).iter().collect::<Vec<_>>(), expected, "{state}");
                assert_eq!(page["next"], Value::Null);
            }
        }
    }
    assert_eq!(ids(&rig.get("/v1/queues/jobs/items").await.good()), made);
}

#[tokio::test(flavor = "multi_thread")]
async fn by_tag_group_key_and_time() {
    let rig = Rig::start().await;
    rig.queue("jobs", json!({})).await;
    let made = rig
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
        let page = rig.get(&format!("/v1/queues/jobs/items?{query}")).await.good();
        let expected: Vec<&String> = expected.iter().map(|n| &made[*n]).collect();
        assert_eq!(ids(&page).iter().collect::<Vec<_>>(), expected, "{query}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn page_by_page() {
    let rig = Rig::start().await;
    rig.queue("jobs", json!({})).await;
    let made = rig.submit("jobs", json!(vec![json!({}); 250])).await;
    let mut seen = Vec::new();
    let mut cursor = String::new();
    loop {
        let page = rig.get(&format!("/v1/queues/jobs/items?limit=37{cursor}")).await.good();
        assert!(page["items"].as_array().unwrap().len() <= 37);
        seen.extend(ids(&page));
        match page["next"].as_str() {
            Some(next) => cursor = format!("&cursor={next}"),
            None => break,
        }
    }
    assert_eq!(seen, made);
    assert_eq!(
        ids(&rig.get("/v1/queues/jobs/items").await.good()).len(),
        100,
        "a page unless said otherwise"
    );
    assert_eq!(ids(&rig.get("/v1/queues/jobs/items?limit=10000").await.good()).len(), 250);
}

#[tokio::test(flavor = "multi_thread")]
async fn heavy_fields_only_if_asked_for() {
    let rig = Rig::start().await;
    rig.queue("jobs", json!({})).await;
    let id = rig
        .submit("jobs", json!([{"payload": "cA==", "metadata": "bQ==", "params": {"a": 1}}]))
        .await
        .remove(0);
    for (query, payload, metadata) in [
        ("", false, false),
        ("?fields=", false, false),
        ("?fields=payload", true, false),
        ("?fields=blob,metadata", true, true),
    ] {
        let page = rig.get(&format!("/v1/queues/jobs/items{query}")).await.good();
        let item = &page["items"][0];
        assert_eq!(
            (item.get("payload").is_some(), item.get("metadata").is_some()),
            (payload, metadata),
            "{query}"
        );
        assert_eq!(item["params"], json!({"a": 1}));
    }
    // Of one item all is shown, unless less is asked for.
    assert_eq!(rig.item(&id).await["payload"], "cA==");
    assert_eq!(rig.get(&format!("/v1/items/{id}?fields=")).await.good().get("payload"), None);
    assert_eq!(rig.get(&format!("/v1/items/{id}?fields=metadata")).await.good()["metadata"], "bQ==");
    rig.get(&format!("/v1/items/{id}?fields=inputs")).await.refused("invalid");
}

#[tokio::test(flavor = "multi_thread")]
async fn what_is_not_understood_is_refused() {
    let rig = Rig::start().await;
    rig.queue("jobs", json!({})).await;
    for (query, words) in [
        ("state=gone", "gone"),
        ("state=pending&status=failed", "choose one"),
        ("state=pending&state=failed", "2 times"),
        ("tag=team", "key=value"),
        ("limit=0", "limit"),
        ("limit=10001", "limit"),
        ("limit=-1", "limit"),
        ("limit=1e3", "limit"),
        ("cursor=abc", "cursor"),
        ("cursor=-1", "cursor"),
        ("cursor=99999999999999999999999", "cursor"),
        ("created_from=yesterday", "created_from"),
        ("fields=everything", "everything"),
        ("order=asc", "order"),
        ("State=pending", "State"),
        ("%FF=1", "not known here"),
    ] {
        for accept in ["application/json", "application/x-ndjson"] {
            if accept == "application/x-ndjson" && query == "limit=10001" {
                continue;
            }
            let path = format!("/v1/queues/jobs/items?{query}");
            let detail =
                rig.send_bytes(http::Method::GET, &path, &[("accept", accept)], "").await.refused("invalid");
            assert!(detail.contains(words), "{query}: {detail}");
        }
    }
    let many = "tag=a=b&".repeat(101);
    rig.get(&format!("/v1/queues/jobs/items?{many}")).await.refused("invalid");
    let tags = "tag=a=b&".repeat(33);
    rig.get(&format!("/v1/queues/jobs/items?{tags}")).await.refused("too_large");
}
