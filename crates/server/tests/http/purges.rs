//! Deleting all items that match.

use crate::rig::Rig;
use serde_json::json;

#[tokio::test(flavor = "multi_thread")]
async fn of_one_state_and_only_that() {
    let rig = Rig::start().await;
    rig.queue("jobs", json!({"order": "fifo"})).await;
    let made = rig.submit("jobs", json!([{}, {}, {}, {"delay": "1h"}, {"tags": {"a": "b"}}])).await;
    let held = rig.post("/v1/queues/jobs/receive", json!({"max": 2})).await.good();
    rig.act(&made[0], "fail", json!({"lease": held["items"][0]["lease"]})).await.good();
    let path = "/v1/queues/jobs/items";
    assert_eq!(rig.delete(&format!("{path}?state=failed")).await.good(), json!({"removed": 1, "next": null}));
    assert_eq!(rig.delete(&format!("{path}?state=failed")).await.good(), json!({"removed": 0, "next": null}));
    assert_eq!(rig.delete(&format!("{path}?state=pending&tag=a%3Db")).await.good()["removed"], 1);
    assert_eq!(rig.delete(&format!("{path}?status=scheduled")).await.good()["removed"], 1);
    // Who works on an item is not robbed of it.
    assert_eq!(rig.delete(&format!("{path}?state=processing")).await.good()["removed"], 0);
    assert_eq!(rig.delete(&format!("{path}?state=all")).await.good()["removed"], 1);
    assert_eq!(rig.counts("jobs").await["processing"], 1);
    assert_eq!(rig.delete(&format!("{path}?state=all&force=true")).await.good()["removed"], 1);
    rig.act(&made[1], "commit", json!({"lease": held["items"][1]["lease"]})).await.code();
}

#[tokio::test(flavor = "multi_thread")]
async fn without_a_state_nothing_is_deleted() {
    let rig = Rig::start().await;
    rig.queue("jobs", json!({})).await;
    rig.submit("jobs", json!([{}])).await;
    for (query, words) in [
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
            // Two answers to one question.
            rig.delete(&format!("/v1/queues/jobs/items{query}")).await.refused("invalid");
            continue;
        }
        let detail = rig.delete(&format!("/v1/queues/jobs/items{query}")).await.refused("invalid");
        assert!(detail.contains(words), "{query}: {detail}");
    }
    assert_eq!(rig.counts("jobs").await["pending"], 1);
}

#[tokio::test(flavor = "multi_thread")]
async fn it_goes_on_from_where_it_was_left() {
    let rig = Rig::start().await;
    rig.queue("jobs", json!({})).await;
    let made = rig.submit("jobs", json!(vec![json!({}); 2_500])).await;
    let page = rig.get("/v1/queues/jobs/items?limit=500").await.good();
    let cursor = page["next"].as_str().unwrap();
    let purged = rig.delete(&format!("/v1/queues/jobs/items?state=pending&cursor={cursor}")).await.good();
    assert_eq!(purged, json!({"removed": 2_000, "next": null}));
    assert_eq!(rig.counts("jobs").await["pending"], 500);
    rig.item(&made[499]).await;
    rig.get(&format!("/v1/items/{}", made[500])).await.refused("item_not_found");
}
