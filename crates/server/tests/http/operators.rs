//! What anybody may do with an item: cancel, redrive, pause, resume, delete.

use crate::rig::Rig;
use http::Method;
use serde_json::json;

async fn post(rig: &Rig, id: &str, verb: &str) -> crate::rig::Answer {
    rig.call(Method::POST, &format!("/v1/items/{id}/{verb}"), None).await
}

#[tokio::test(flavor = "multi_thread")]
async fn cancelled_with_a_reason_and_redriven() {
    let rig = Rig::start().await;
    rig.queue("jobs", json!({})).await;
    let id = rig.submit("jobs", json!([{}])).await.remove(0);
    let answer = rig.post(&format!("/v1/items/{id}/cancel"), json!({"reason": "not needed"})).await.good();
    assert_eq!(answer, json!({"id": id, "state": "failed"}));
    let shown = rig.item(&id).await;
    assert_eq!(
        (&shown["failure"], &shown["errors"][0]["message"]),
        (&json!("cancelled"), &json!("not needed"))
    );
    assert_eq!(post(&rig, &id, "redrive").await.good(), json!({"id": id, "state": "pending"}));
    let again = rig.receive("jobs").await;
    assert_eq!((&again["id"], &again["attempt"]), (&json!(id), &json!(1)));
    // A cancel needs no reason, nor a body.
    assert_eq!(post(&rig, &id, "cancel").await.good()["state"], "failed");
    post(&rig, &id, "pause").await.refused("wrong_state");
    rig.post(&format!("/v1/items/{id}/cancel"), json!({"reason": "x".repeat(5000)})).await;
    rig.post(&format!("/v1/items/{id}/cancel"), json!({"why": ""})).await.refused("malformed_body");
}

#[tokio::test(flavor = "multi_thread")]
async fn paused_and_resumed() {
    let rig = Rig::start().await;
    rig.queue("jobs", json!({})).await;
    let id = rig.submit("jobs", json!([{}])).await.remove(0);
    assert_eq!(post(&rig, &id, "pause").await.good(), json!({"id": id, "state": "paused"}));
    assert_eq!(rig.post("/v1/queues/jobs/receive", json!({})).await.good()["items"], json!([]));
    assert_eq!(post(&rig, &id, "resume").await.good(), json!({"id": id, "state": "pending"}));
    assert_eq!(rig.receive("jobs").await["id"], id);
    for verb in ["resume", "redrive"] {
        let detail = post(&rig, &id, verb).await.refused("wrong_state");
        assert!(detail.contains("processing"), "{verb}: {detail}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn deleted_unless_somebody_works_on_it() {
    let rig = Rig::start().await;
    rig.queue("jobs", json!({})).await;
    let (id, lease) = rig.hold("jobs").await;
    let path = format!("/v1/items/{id}");
    rig.delete(&path).await.refused("wrong_state");
    rig.act(&id, "commit", json!({"lease": lease})).await.good();
    let gone = rig.delete(&path).await;
    assert_eq!((gone.status.as_u16(), gone.body.len()), (204, 0));
    rig.delete(&path).await.refused("item_not_found");
    let (id, _) = rig.hold("jobs").await;
    assert_eq!(rig.delete(&format!("/v1/items/{id}?force")).await.status.as_u16(), 204);
    assert_eq!(rig.counts("jobs").await["processing"], 0);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_dead_letter_knows_its_origin_and_goes_home() {
    let rig = Rig::start().await;
    rig.queue("dead", json!({})).await;
    rig.queue("jobs", json!({"dead_letter_queue": "dead"})).await;
    let (id, lease) = rig.hold("jobs").await;
    rig.act(&id, "fail", json!({"lease": lease, "reason": "broken"})).await.good();
    let shown = rig.item(&id).await;
    assert_eq!((&shown["queue"], &shown["origin"]["queue"]), (&json!("dead"), &json!("jobs")));
    post(&rig, &id, "redrive").await.good();
    assert_eq!(rig.receive("jobs").await["id"], id);
    // Not into a queue that is done for good.
    let (id, lease) = rig.hold("jobs").await;
    rig.act(&id, "fail", json!({"lease": lease})).await.good();
    rig.call(Method::POST, "/v1/queues/jobs/close", None).await.good();
    rig.delete("/v1/queues/jobs/items?state=all&force=true").await.good();
    post(&rig, &id, "redrive").await.refused("queue_completed");
}

#[tokio::test(flavor = "multi_thread")]
async fn an_item_that_is_not_there() {
    let rig = Rig::start().await;
    let id = "01890000-0000-7000-8000-000000000000";
    for verb in ["cancel", "redrive", "pause", "resume"] {
        let detail = post(&rig, id, verb).await.refused("item_not_found");
        assert!(detail.contains(id), "{detail}");
    }
    rig.get(&format!("/v1/items/{id}")).await.refused("item_not_found");
    rig.get(&format!("/v1/items/{id}/wait")).await.refused("item_not_found");
    rig.delete(&format!("/v1/items/{id}")).await.refused("item_not_found");
}
