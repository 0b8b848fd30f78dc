//! The calls of lease holders, and the errors for everyone else.

use crate::test_server::TestServer;
use serde_json::{Value, json};

const VERBS: [&str; 7] = ["heartbeat", "edit", "commit", "fail", "retry", "release", "defer"];

#[tokio::test(flavor = "multi_thread")]
async fn every_verb_returns_the_new_state_of_the_item() {
    let server = TestServer::start().await;
    server.queue("jobs", json!({})).await;
    let b9 = server.buffer().await;
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
        let (id, lease) = server.hold("jobs").await;
        let mut body = more.clone();
        body["lease"] = json!(lease);
        let answer = server.act(&id, verb, body).await.success();
        let expected = if state == "scheduled" { "pending" } else { state };
        assert_eq!((&answer["id"], &answer["state"]), (&json!(id), &json!(expected)), "{verb}");
        assert_eq!(answer["lease_expires_at"].is_string(), state == "processing", "{verb}: {answer}");
        let shown = server.item(&id).await;
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
        server.delete(&format!("/v1/items/{id}?force=true")).await.success();
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn every_verb_can_set_and_clear_fields() {
    let server = TestServer::start().await;
    server.queue("jobs", json!({"max_retries": 100})).await;
    let fields = ["payload", "state_blob", "metadata", "parameters"];
    let id = server.submit("jobs", json!([{"payload": "MQ==", "metadata": "Mg=="}])).await.remove(0);
    for verb in ["heartbeat", "edit", "retry", "release", "defer", "fail"] {
        let mut lease = server.receive("jobs").await["lease"].clone();
        for field in fields {
            let value = json!(if field == "metadata" { "" } else { "AAH/" });
            let body = json!({"lease": lease, "set": {field: value}});
            server.act(&id, verb, body).await.success();
            if verb == "fail" {
                server.call(http::Method::POST, &format!("/v1/items/{id}/redrive"), None).await.success();
            }
            assert_eq!(server.item(&id).await[field], value, "{verb} {field}");
            if !matches!(verb, "heartbeat" | "edit") {
                lease = server.receive("jobs").await["lease"].clone();
            }
        }
        let all = json!({"lease": lease, "unset": ["blob", "state_blob", "metadata", "parameters"]});
        server.act(&id, "edit", all).await.success();
        let shown = server.item(&id).await;
        assert!(fields.iter().all(|field| shown.get(*field).is_none()), "{verb}: {shown}");
        server.act(&id, "defer", json!({"lease": lease, "set": {"blob": "MQ=="}})).await.success();
        assert_eq!(server.item(&id).await["payload"], "MQ==");
    }
    // Settling too: the committed fields are stored.
    let lease = server.receive("jobs").await["lease"].clone();
    server
        .act(&id, "commit", json!({"lease": lease, "set": {"metadata": "bQ=="}, "unset": ["payload"]}))
        .await
        .success();
    let shown = server.item(&id).await;
    assert_eq!((&shown["metadata"], shown.get("payload")), (&json!("bQ=="), None));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_lease_of_another_delivery_is_lost() {
    let server = TestServer::start().await;
    server.queue("jobs", json!({"max_retries": 100})).await;
    let (id, stale) = server.hold("jobs").await;
    server.act(&id, "release", json!({"lease": stale})).await.success();
    let current = server.receive("jobs").await["lease"].clone();
    let (_, foreign) = server.hold("jobs").await;
    let before = server.item(&id).await;
    for verb in VERBS {
        for lease in
            [&stale, &foreign, "00000000000000000000000000000000", "garbage", "", &"x".repeat(10_000)]
        {
            if verb == "release" && lease == stale {
                // The same settle again gets the same response.
                assert_eq!(
                    server.act(&id, verb, json!({"lease": lease})).await.success()["state"],
                    "pending"
                );
                continue;
            }
            let answer = server.act(&id, verb, json!({"lease": lease})).await;
            let settled_before = *lease == *stale;
            assert_eq!(
                answer.code(),
                if settled_before { "already_settled" } else { "lease_lost" },
                "{verb} {lease}"
            );
            assert_eq!(answer.status.as_u16(), 409);
        }
        let detail = server.act(&id, verb, json!({})).await.problem("invalid");
        assert!(detail.contains("lease: missing"), "{detail}");
        server.act(&id, verb, json!({"lease": 5})).await.problem("malformed_body");
    }
    assert_eq!(server.item(&id).await, before, "none of the calls has changed the item");
    server.act(&id, "commit", json!({"lease": current})).await.success();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_lease_holder_learns_that_its_item_was_cancelled() {
    let server = TestServer::start().await;
    server.queue("jobs", json!({})).await;
    let (cancelled, lease) = server.hold("jobs").await;
    server.post(&format!("/v1/items/{cancelled}/cancel"), json!({})).await.success();
    for verb in VERBS {
        server.act(&cancelled, verb, json!({"lease": lease})).await.problem("lease_lost");
    }
    let (deleted, lease) = server.hold("jobs").await;
    server.delete(&format!("/v1/items/{deleted}")).await.problem("wrong_state");
    server.delete(&format!("/v1/items/{deleted}?force=true")).await.success();
    for verb in VERBS {
        let code = server.act(&deleted, verb, json!({"lease": lease})).await.code();
        assert!(matches!(code, "lease_lost" | "item_not_found"), "{verb}: {code}");
    }
    for verb in VERBS {
        let id = "01890000-0000-7000-8000-000000000000";
        server.act(id, verb, json!({"lease": lease})).await.problem("item_not_found");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn fields_that_a_verb_does_not_support_are_named() {
    let server = TestServer::start().await;
    server.queue("jobs", json!({})).await;
    let (id, lease) = server.hold("jobs").await;
    let before = server.item(&id).await;
    let call = |verb: &'static str, mut body: Value| {
        body["lease"] = json!(lease);
        server.act(&id, verb, body)
    };
    for (verb, body, expected) in [
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
        ("heartbeat", json!({"id": "01890000-0000-7000-8000-000000000000"}), "the body and the path differ"),
        ("heartbeat", json!({"verb": "commit"}), "the body and the path differ"),
        ("commit", json!({"outputs": {"A": "b"}}), "A"),
    ] {
        let answer = call(verb, body.clone()).await;
        assert!(matches!(answer.code(), "invalid" | "too_large"), "{verb} {body}: {}", answer.json());
        assert!(
            answer.json()["detail"].as_str().unwrap().contains(expected),
            "{verb} {body}: {}",
            answer.json()
        );
    }
    for (body, expected) in [
        (json!({"set": {"inputs": ""}}), "set"),
        (json!({"colour": "red"}), "colour"),
        (json!({"priority": "high"}), "priority"),
        (json!({"unset": "blob"}), "unset"),
    ] {
        let detail = call("edit", body.clone()).await.problem("malformed_body");
        assert!(detail.contains(expected), "{body}: {detail}");
    }
    assert_eq!(server.item(&id).await, before);
    // The body may repeat what the path says.
    call("heartbeat", json!({"verb": "heartbeat", "id": id})).await.success();
}

#[tokio::test(flavor = "multi_thread")]
async fn the_last_failed_attempt_fails_the_item() {
    let server = TestServer::start().await;
    server.queue("jobs", json!({"max_retries": 1})).await;
    let (id, lease) = server.hold("jobs").await;
    assert_eq!(
        server.act(&id, "retry", json!({"lease": lease, "reason": "first"})).await.success()["state"],
        "pending"
    );
    let lease = server.receive("jobs").await["lease"].clone();
    assert_eq!(
        server.act(&id, "retry", json!({"lease": lease, "reason": "second"})).await.success()["state"],
        "failed"
    );
    let shown = server.item(&id).await;
    assert_eq!((&shown["failure"], &shown["attempt"]), (&json!("retries_exhausted"), &json!(2)));
    let messages: Vec<&Value> =
        shown["errors"].as_array().unwrap().iter().map(|error| &error["message"]).collect();
    assert_eq!(messages, ["first", "second"]);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_release_can_change_queue_and_priority() {
    let server = TestServer::start().await;
    server.queue("jobs", json!({})).await;
    server.queue("slow", json!({})).await;
    for verb in ["retry", "release", "defer"] {
        let (id, lease) = server.hold("jobs").await;
        server.act(&id, verb, json!({"lease": lease, "queue": "slow", "priority": -7})).await.success();
        let moved = server.receive("slow").await;
        assert_eq!(
            (&moved["id"], &moved["queue"], &moved["priority"]),
            (&json!(id), &json!("slow"), &json!(-7))
        );
    }
    let (id, lease) = server.hold("jobs").await;
    server.act(&id, "defer", json!({"lease": lease, "queue": "nowhere"})).await.problem("queue_not_found");
    server.act(&id, "commit", json!({"lease": lease})).await.success();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_commit_that_violates_the_schema_is_refused_and_keeps_the_lease() {
    let server = TestServer::start().await;
    server
        .put(
            "/v1/queues/jobs",
            json!({"schema": {"outputs": ["image"], "output_params": ["quality", "note?"]}}),
        )
        .await
        .success();
    let (id, lease) = server.hold("jobs").await;
    let b = server.buffer().await;
    for body in [
        json!({}),
        json!({"outputs": {"image": b}}),
        json!({"outputs": {"image": b}, "output_params": {"quality": 1, "other": 2}}),
        json!({"outputs": {"image": b, "film": b}, "output_params": {"quality": 1}}),
    ] {
        let mut body = body;
        body["lease"] = json!(lease);
        server.act(&id, "commit", body).await.problem("schema_mismatch");
    }
    let good = json!({"lease": lease, "outputs": {"image": b}, "output_params": {"quality": null}});
    assert_eq!(server.act(&id, "commit", good).await.success()["state"], "completed");
}
