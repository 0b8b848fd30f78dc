//! Receiving: how many, in which order, for how long, with how much.

use crate::rig::Rig;
use serde_json::{Value, json};

fn ids(answer: &Value) -> Vec<&str> {
    answer["items"].as_array().unwrap().iter().map(|item| item["id"].as_str().unwrap()).collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn as_many_as_asked_for_in_the_queues_order() {
    let rig = Rig::start().await;
    rig.queue("jobs", json!({})).await;
    let made = rig.submit("jobs", json!([{"priority": 5}, {"priority": -5}, {}, {"priority": 5}, {}])).await;
    let path = "/v1/queues/jobs/receive";
    let first = rig.post(path, json!({})).await.good();
    assert_eq!(ids(&first), [&made[1]]);
    let next = rig.post(path, json!({"max": 3})).await.good();
    assert_eq!(ids(&next), [&made[2], &made[4], &made[0]]);
    let rest = rig.post(path, json!({"max": 10_000})).await.good();
    assert_eq!(ids(&rest), [&made[3]]);
    assert_eq!(rig.post(path, json!({"max": 10_000})).await.good(), json!({"status": "open", "items": []}));
}

#[tokio::test(flavor = "multi_thread")]
async fn without_a_body_one_item() {
    let rig = Rig::start().await;
    rig.queue("jobs", json!({})).await;
    rig.submit("jobs", json!([{}, {}])).await;
    let answer = rig.call(http::Method::POST, "/v1/queues/jobs/receive", None).await.good();
    assert_eq!(ids(&answer).len(), 1);
}

#[tokio::test(flavor = "multi_thread")]
async fn only_the_fields_asked_for() {
    let rig = Rig::start().await;
    rig.queue("jobs", json!({})).await;
    let item = json!({"payload": "cA==", "state_blob": "cw==", "metadata": "bQ==", "parameters": "cQ==", "params": {"a": 1}});
    rig.submit("jobs", json!([item, item, item, item])).await;
    let heavy = ["payload", "state_blob", "metadata", "parameters"];
    for (asked, given) in [
        (json!({}), &heavy[..]),
        (json!({"fields": []}), &[]),
        (json!({"fields": ["payload", "metadata"]}), &["payload", "metadata"]),
        (json!({"fields": ["blob"]}), &["payload"]),
    ] {
        let answer = rig.post("/v1/queues/jobs/receive", asked.clone()).await.good();
        let item = &answer["items"][0];
        for field in heavy {
            let expected = if given.contains(&field) { &[][..] } else { &[field] };
            assert_eq!(item.get(field).is_none(), !expected.is_empty(), "{asked}: {item}");
        }
        assert_eq!(item["params"], json!({"a": 1}));
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn whoever_waits_is_given_what_comes() {
    let rig = Rig::start().await;
    rig.queue("jobs", json!({})).await;
    let (received, made) = tokio::join!(
        rig.post("/v1/queues/jobs/receive", json!({"wait": "5m", "max": 10})),
        rig.submit("jobs", json!([{"payload": "aGk="}])),
    );
    let received = received.good();
    assert_eq!(ids(&received), [&made[0]]);
    assert_eq!(received["items"][0]["payload"], "aGk=");
    // Also a number of milliseconds, after which the answer is empty.
    let empty = rig.post("/v1/queues/jobs/receive", json!({"wait": 20})).await.good();
    assert_eq!(empty, json!({"status": "open", "items": []}));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_lease_lasts_as_long_as_asked_for_and_then_lapses() {
    let rig = Rig::start().await;
    rig.queue("jobs", json!({"visibility_timeout": "5m"})).await;
    rig.submit("jobs", json!([{}, {}])).await;
    let path = "/v1/queues/jobs/receive";
    let long = rig.post(path, json!({"visibility_timeout": "1h"})).await.good();
    let short = rig.post(path, json!({"visibility_timeout": 100})).await.good();
    let until = |answer: &Value| answer["items"][0]["lease_expires_at"].as_str().unwrap().to_owned();
    assert!(until(&long) > until(&short));
    // It lapses: the item comes again, to somebody who waits, and counts as an attempt.
    let again = rig.receive("jobs").await;
    assert_eq!(again["id"], short["items"][0]["id"]);
    assert_eq!(
        (&again["attempt"], &again["retries"], &again["deliveries"]),
        (&json!(2), &json!(1), &json!(2))
    );
    let late = json!({"lease": short["items"][0]["lease"]});
    let detail = rig.act(again["id"].as_str().unwrap(), "commit", late).await.refused("lease_lost");
    assert!(detail.contains("stop working"), "{detail}");
}

#[tokio::test(flavor = "multi_thread")]
async fn what_cannot_be_given_is_refused_in_words() {
    let rig = Rig::start().await;
    rig.queue("jobs", json!({})).await;
    rig.submit("jobs", json!([{}])).await;
    for (body, code, words) in [
        (json!({"max": 0}), "invalid", "max"),
        (json!({"max": -1}), "invalid", "max"),
        (json!({"max": 10_001}), "invalid", "10000"),
        (json!({"max": i64::MAX}), "invalid", "max"),
        (json!({"max": 1.5}), "malformed_body", "max"),
        (json!({"wait": "5m1s"}), "invalid", "wait"),
        (json!({"wait": "5"}), "invalid", "unit"),
        (json!({"visibility_timeout": "1ms"}), "invalid", "visibility"),
        (json!({"visibility_timeout": "1000y"}), "invalid", "visibility_timeout"),
        (json!({"fields": ["inputs"]}), "invalid", "inputs"),
        (json!({"fields": "payload"}), "malformed_body", "fields"),
        (json!({"maximum": 5}), "malformed_body", "maximum"),
    ] {
        let detail = rig.post("/v1/queues/jobs/receive", body.clone()).await.refused(code);
        assert!(detail.contains(words), "{body}: {detail}");
    }
    // None of the above has touched the item.
    // No slots, no buffers.
    let answer = rig.post("/v1/queues/jobs/receive", json!({"create_output_buffers": true})).await.good();
    assert_eq!((&answer["items"][0]["deliveries"], &answer["items"][0]["outputs"]), (&json!(1), &json!({})));
}
