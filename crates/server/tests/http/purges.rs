//! Purging: deleting all items that match a filter.

use crate::test_server::TestServer;
use serde_json::json;

#[tokio::test(flavor = "multi_thread")]
async fn a_purge_deletes_only_items_in_the_given_state() {
    let server = TestServer::start().await;
    server.queue("jobs", json!({"order": "fifo"})).await;
    let made = server.submit("jobs", json!([{}, {}, {}, {"delay": "1h"}, {"tags": {"a": "b"}}])).await;
    let held = server.post("/v1/queues/jobs/receive", json!({"max": 2})).await.success();
    server.act(&made[0], "fail", json!({"lease": held["items"][0]["lease"]})).await.success();
    let path = "/v1/queues/jobs/items";
    assert_eq!(
        server.delete(&format!("{path}?state=failed")).await.success(),
        json!({"matched": 1, "done": 1, "left": {}, "next": null})
    );
    assert_eq!(
        server.delete(&format!("{path}?state=failed")).await.success(),
        json!({"matched": 0, "done": 0, "left": {}, "next": null})
    );
    assert_eq!(server.delete(&format!("{path}?state=pending&tag=a%3Db")).await.success()["done"], 1);
    assert_eq!(server.delete(&format!("{path}?status=scheduled")).await.success()["done"], 1);
    // Items with a lease stay.
    assert_eq!(server.delete(&format!("{path}?state=processing")).await.success()["done"], 0);
    assert_eq!(server.delete(&format!("{path}?state=all")).await.success()["done"], 1);
    assert_eq!(server.counts("jobs").await["processing"], 1);
    assert_eq!(server.delete(&format!("{path}?state=all&force=true")).await.success()["done"], 1);
    server.act(&made[1], "commit", json!({"lease": held["items"][1]["lease"]})).await.code();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_purge_without_a_state_is_rejected() {
    let server = TestServer::start().await;
    server.queue("jobs", json!({})).await;
    server.submit("jobs", json!([{}])).await;
    for (query, expected) in [
        ("", "state=all"),
        ("?tag=a=b", "state=all"),
        ("?force=true", "state=all"),
        ("?state=gone", "gone"),
        ("?state=all&state=pending", ""),
        ("?state=all&limit=5", "limit"),
        ("?state=all&olderthan=5d", "olderthan"),
        ("?state=all&cursor=x", "cursor"),
        ("?state=all&force=maybe", "force"),
    ] {
        if query == "?state=all&state=pending" {
            // Two contradicting states.
            server.delete(&format!("/v1/queues/jobs/items{query}")).await.problem("invalid");
            continue;
        }
        let detail = server.delete(&format!("/v1/queues/jobs/items{query}")).await.problem("invalid");
        assert!(detail.contains(expected), "{query}: {detail}");
    }
    assert_eq!(server.counts("jobs").await["pending"], 1);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_stream_resumes_at_a_cursor() {
    let server = TestServer::start().await;
    server.queue("jobs", json!({})).await;
    let made = server.submit("jobs", json!(vec![json!({}); 2_500])).await;
    let page = server.get("/v1/queues/jobs/items?limit=500").await.success();
    let cursor = page["next"].as_str().unwrap();
    let purged =
        server.delete(&format!("/v1/queues/jobs/items?state=pending&cursor={cursor}")).await.success();
    assert_eq!((&purged["done"], &purged["next"]), (&json!(2_000), &json!(null)));
    assert_eq!(server.counts("jobs").await["pending"], 500);
    server.item(&made[499]).await;
    server.get(&format!("/v1/items/{}", made[500])).await.problem("item_not_found");
}
