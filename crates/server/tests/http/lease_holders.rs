//! What the holder of a lease can do, and what everybody else is told.

use crate::rig::Rig;
use serde_json::{Value, json};

const VERBS: [&str; 7] = ["heartbeat", "edit", "commit", "fail", "retry", "release", "defer"];

#[tokio::test(flavor = "multi_thread")]
async fn every_verb_leaves_the_item_where_it_says() {
    let rig = Rig::start().await;
    rig.queue("jobs", json!({})).await;
    let b9 = rig.buffer().await;
    for (verb, more, state, retries, errors) in [
        ("heartbeat", json!({"visibility_timeout": "10m"}), "processing", 0, 0),
        ("edit", json!({"priority": 3}), "processing", 0, 0),
        ("commit", json!({"output_params": {"a": 1}, "outputs": {"image": b9}}), "completed", 0, 0),
        ("fail", json!({"reason": "no such file"}), "failed", 0, 1),
        ("retry", json!({"error": "out of memory", "delay": "1h"}), "scheduled", 1, 1),
        ("release", json!({"delay": 3_600_000}), "scheduled", 1, 0),
        ("defer", json!({"delay": "1h"}), "scheduled", 0, 0),
        ("defer", json!({"until": "2100-01-01T00:00:00Z"}), "scheduled", 0, 0),
    ] {
        let (id, lease) = rig.hold("jobs").await;
        let mut body = more.clone();
        body["lease"] = json!(lease);
        let answer = rig.act(&id, verb, body).await.good();
        let told = if state == "scheduled" { "pending" } else { state };
        assert_eq!((&answer["id"], &answer["state"]), (&json!(id), &json!(told)), "{verb}");
        assert_eq!(answer["lease_expires_at"].is_string(), state == "processing", "{verb}: {answer}");
        let shown = rig.item(&id).await;
        assert_eq!(shown["state"], state, "{verb}: {shown}");
        assert_eq!(shown["retries"], retries, "{verb}: {shown}");
        assert_eq!(shown["errors"].as_array().unwrap().len(), errors, "{verb}: {shown}");
        match verb {
            "fail" => {
                assert_eq!(shown["failure"], "explicit");
                assert_eq!(shown["errors"][0]["message"], "no such file");
            }
            "retry" => {
                assert_eq!(
                    (&shown["errors"][0]["kind"], &shown["errors"][0]["message"]),
                    (&json!("retried"), &json!("out of memory"))
                );
            }
            "commit" => {
                assert_eq!(
                    (&shown["output_params"], &shown["outputs"]),
                    (&json!({"a": 1}), &json!({"image": b9}))
                );
            }
            "edit" => assert_eq!(shown["priority"], 3),
            _ => {}
        }
        rig.delete(&format!("/v1/items/{id}?force=true")).await.good();
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn each_field_is_set_and_unset_with_any_verb() {
    let rig = Rig::start().await;
    rig.queue("jobs", json!({"max_retries": 100})).await;
    let fields = ["payload", "state_blob", "metadata", "parameters"];
    let id = rig.submit("jobs", json!([{"payload": "MQ==", "metadata": "Mg=="}])).await.remove(0);
    for verb in ["heartbeat", "edit", "retry", "release", "defer", "fail"] {
        let mut lease = rig.receive("jobs").await["lease"].clone();
        for field in fields {
            let value = json!(if field == "metadata" { "" } else { "AAH/" });
            let body = json!({"lease": lease, "set": {field: value}});
            rig.act(&id, verb, body).await.good();
            if verb == "fail" {
                rig.call(http::Method::POST, &format!("/v1/items/{id}/redrive"), None).await.good();
            }
            assert_eq!(rig.item(&id).await[field], value, "{verb} {field}");
            if !matches!(verb, "heartbeat" | "edit") {
                lease = rig.receive("jobs").await["lease"].clone();
            }
        }
        let all = json!({"lease": lease, "unset": ["blob", "state_blob", "metadata", "parameters"]});
        rig.act(&id, "edit", all).await.good();
        let shown = rig.item(&id).await;
        assert!(fields.iter().all(|field| shown.get(*field).is_none()), "{verb}: {shown}");
        rig.act(&id, "defer", json!({"lease": lease, "set": {"blob": "MQ=="}})).await.good();
        assert_eq!(rig.item(&id).await["payload"], "MQ==");
    }
    // And at the end of it: what is committed is kept.
    let lease = rig.receive("jobs").await["lease"].clone();
    rig.act(&id, "commit", json!({"lease": lease, "set": {"metadata": "bQ=="}, "unset": ["payload"]}))
        .await
        .good();
    let shown = rig.item(&id).await;
    assert_eq!((&shown["metadata"], shown.get("payload")), (&json!("bQ=="), None));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_lease_that_is_not_this_deliverys_is_lost() {
    let rig = Rig::start().await;
    rig.queue("jobs", json!({"max_retries": 100})).await;
    let (id, stale) = rig.hold("jobs").await;
    rig.act(&id, "release", json!({"lease": stale})).await.good();
    let current = rig.receive("jobs").await["lease"].clone();
    let (_, foreign) = rig.hold("jobs").await;
    let before = rig.item(&id).await;
    for verb in VERBS {
        for lease in
            [&stale, &foreign, "00000000000000000000000000000000", "garbage", "", &"x".repeat(10_000)]
        {
            if verb == "release" && lease == stale {
                // The same settle again gets the same answer.
                assert_eq!(rig.act(&id, verb, json!({"lease": lease})).await.good()["state"], "pending");
                continue;
            }
            let answer = rig.act(&id, verb, json!({"lease": lease})).await;
            let settled_before = *lease == *stale;
            assert_eq!(
                answer.code(),
                if settled_before { "already_settled" } else { "lease_lost" },
                "{verb} {lease}"
            );
            assert_eq!(answer.status.as_u16(), 409);
        }
        let detail = rig.act(&id, verb, json!({})).await.refused("invalid");
        assert!(detail.contains("lease: missing"), "{detail}");
        rig.act(&id, verb, json!({"lease": 5})).await.refused("malformed_body");
    }
    assert_eq!(rig.item(&id).await, before, "nothing of it has changed anything");
    rig.act(&id, "commit", json!({"lease": current})).await.good();
}

#[tokio::test(flavor = "multi_thread")]
async fn an_item_that_ended_under_its_holder_is_lost() {
    let rig = Rig::start().await;
    rig.queue("jobs", json!({})).await;
    let (cancelled, lease) = rig.hold("jobs").await;
    rig.post(&format!("/v1/items/{cancelled}/cancel"), json!({})).await.good();
    for verb in VERBS {
        rig.act(&cancelled, verb, json!({"lease": lease})).await.refused("lease_lost");
    }
    let (deleted, lease) = rig.hold("jobs").await;
    rig.delete(&format!("/v1/items/{deleted}")).await.refused("wrong_state");
    rig.delete(&format!("/v1/items/{deleted}?force=true")).await.good();
    for verb in VERBS {
        let code = rig.act(&deleted, verb, json!({"lease": lease})).await.code();
        assert!(matches!(code, "lease_lost" | "item_not_found"), "{verb}: {code}");
    }
    for verb in VERBS {
        let id = "01890000-0000-7000-8000-000000000000";
        rig.act(id, verb, json!({"lease": lease})).await.refused("item_not_found");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn what_does_not_go_with_a_verb_is_named() {
    let rig = Rig::start().await;
    rig.queue("jobs", json!({})).await;
    let (id, lease) = rig.hold("jobs").await;
    let before = rig.item(&id).await;
    let call = |verb: &'static str, mut body: Value| {
        body["lease"] = json!(lease);
        rig.act(&id, verb, body)
    };
    for (verb, body, words) in [
        ("commit", json!({"reason": "x"}), "reason: not for commit; it goes with fail, retry"),
        ("heartbeat", json!({"outputs": {"a": "b"}}), "outputs: not for heartbeat"),
        ("fail", json!({"output_params": {"a": 1}}), "output_params"),
        ("retry", json!({"visibility_timeout": "1m"}), "visibility_timeout"),
        ("commit", json!({"delay": "1m"}), "delay"),
        ("release", json!({"until": 0}), "ready_at"),
        ("defer", json!({"delay": 1, "until": 0}), "choose one"),
        ("commit", json!({"queue": "jobs"}), "queue"),
        ("edit", json!({"queue": "jobs"}), "queue"),
        ("edit", json!({"priority": 100_000}), "priority"),
        ("edit", json!({"set": {"payload": "?"}}), "base64"),
        ("edit", json!({"unset": ["inputs"]}), "inputs"),
        ("edit", json!({"set": {"payload": ""}, "unset": ["blob"]}), "choose one"),
        ("edit", json!({"unset": ["blob", "blob"]}), "choose one"),
        ("retry", json!({"reason": "x".repeat(70_000)}), "reason"),
        ("release", json!({"queue": "a b"}), "a b"),
        ("heartbeat", json!({"visibility_timeout": 1}), "visibility_timeout"),
        ("heartbeat", json!({"id": "01890000-0000-7000-8000-000000000000"}), "another than the path"),
        ("heartbeat", json!({"verb": "commit"}), "another than the path"),
        ("commit", json!({"outputs": {"A": "b"}}), "A"),
    ] {
        let answer = call(verb, body.clone()).await;
        assert!(matches!(answer.code(), "invalid" | "too_large"), "{verb} {body}: {}", answer.json());
        assert!(
            answer.json()["detail"].as_str().unwrap().contains(words),
            "{verb} {body}: {}",
            answer.json()
        );
    }
    for (body, words) in [
        (json!({"set": {"inputs": ""}}), "set"),
        (json!({"colour": "red"}), "colour"),
        (json!({"priority": "high"}), "priority"),
        (json!({"unset": "blob"}), "unset"),
    ] {
        let detail = call("edit", body.clone()).await.refused("malformed_body");
        assert!(detail.contains(words), "{body}: {detail}");
    }
    assert_eq!(rig.item(&id).await, before);
    // The path and the body may say the same.
    call("heartbeat", json!({"verb": "heartbeat", "id": id})).await.good();
}

#[tokio::test(flavor = "multi_thread")]
async fn the_last_attempt_ends_it() {
    let rig = Rig::start().await;
    rig.queue("jobs", json!({"max_retries": 1})).await;
    let (id, lease) = rig.hold("jobs").await;
    assert_eq!(
        rig.act(&id, "retry", json!({"lease": lease, "reason": "first"})).await.good()["state"],
        "pending"
    );
    let lease = rig.receive("jobs").await["lease"].clone();
    assert_eq!(
        rig.act(&id, "retry", json!({"lease": lease, "reason": "second"})).await.good()["state"],
        "failed"
    );
    let shown = rig.item(&id).await;
    assert_eq!((&shown["failure"], &shown["attempt"]), (&json!("retries_exhausted"), &json!(2)));
    let messages: Vec<&Value> =
        shown["errors"].as_array().unwrap().iter().map(|error| &error["message"]).collect();
    assert_eq!(messages, ["first", "second"]);
}

#[tokio::test(flavor = "multi_thread")]
async fn an_item_goes_back_to_another_queue_with_another_priority() {
    let rig = Rig::start().await;
    rig.queue("jobs", json!({})).await;
    rig.queue("slow", json!({})).await;
    for verb in ["retry", "release", "defer"] {
        let (id, lease) = rig.hold("jobs").await;
        rig.act(&id, verb, json!({"lease": lease, "queue": "slow", "priority": -7})).await.good();
        let moved = rig.receive("slow").await;
        assert_eq!(
            (&moved["id"], &moved["queue"], &moved["priority"]),
            (&json!(id), &json!("slow"), &json!(-7))
        );
    }
    let (id, lease) = rig.hold("jobs").await;
    rig.act(&id, "defer", json!({"lease": lease, "queue": "nowhere"})).await.refused("queue_not_found");
    rig.act(&id, "commit", json!({"lease": lease})).await.good();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_commit_brings_what_the_schema_asks_for_or_keeps_its_lease() {
    let rig = Rig::start().await;
    rig.put(
        "/v1/queues/jobs",
        json!({"schema": {"outputs": ["image"], "output_params": ["quality", "note?"]}}),
    )
    .await
    .good();
    let (id, lease) = rig.hold("jobs").await;
    let b = rig.buffer().await;
    for body in [
        json!({}),
        json!({"outputs": {"image": b}}),
        json!({"outputs": {"image": b}, "output_params": {"quality": 1, "other": 2}}),
        json!({"outputs": {"image": b, "film": b}, "output_params": {"quality": 1}}),
    ] {
        let mut body = body;
        body["lease"] = json!(lease);
        rig.act(&id, "commit", body).await.refused("schema_mismatch");
    }
    let good = json!({"lease": lease, "outputs": {"image": b}, "output_params": {"quality": null}});
    assert_eq!(rig.act(&id, "commit", good).await.good()["state"], "completed");
}
