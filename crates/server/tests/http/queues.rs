//! Queues: made, made again, changed, counted, closed, paused, deleted.

use crate::rig::Rig;
use http::Method;
use serde_json::{Value, json};

#[tokio::test(flavor = "multi_thread")]
async fn the_same_again_is_fine_and_another_is_told_what_differs() {
    let rig = Rig::start().await;
    let asked = json!({"schema": {"inputs": ["raw", "mask?"], "output_params": ["quality"]},
        "policy": {"visibility_timeout": 90_000, "max_retries": 7, "backoff": "ayepi", "item_ttl": "2d", "failed_ttl": null}});
    let made = rig.put("/v1/queues/jobs", asked.clone()).await.good();
    assert_eq!(
        (&made["name"], &made["state"], &made["paused"]),
        (&json!("jobs"), &json!("open"), &json!(false))
    );
    assert_eq!(made["policy"]["visibility_timeout"], "1m30s");
    assert_eq!(
        (&made["policy"]["completed_ttl"], &made["policy"]["failed_ttl"]),
        (&json!("2d"), &Value::Null)
    );
    assert_eq!(
        made["schema"],
        json!({"inputs": ["mask?", "raw"], "outputs": [], "input_params": [], "output_params": ["quality"]})
    );
    assert_eq!(rig.put("/v1/queues/jobs", asked.clone()).await.good(), made);
    assert_eq!(rig.get("/v1/queues/jobs").await.good(), made);
    // What is shown can be sent back.
    let shown = json!({"schema": made["schema"], "policy": made["policy"]});
    assert_eq!(rig.put("/v1/queues/jobs", shown).await.good(), made);

    let differently = |change: fn(&mut Value)| {
        let mut other = asked.clone();
        change(&mut other);
        rig.put("/v1/queues/jobs", other)
    };
    for (change, named) in [
        (
            (|other| other["policy"]["max_retries"] = json!(8)) as fn(&mut Value),
            "another policy.max_retries;",
        ),
        (|other| other["policy"]["failed_ttl"] = json!("1d"), "another policy.failed_ttl;"),
        (|other| other["schema"]["inputs"] = json!(["raw"]), "another schema.inputs;"),
        (
            |other| *other = json!({"policy": other["policy"], "schema": {"inputs": ["mask?", "raw"]}}),
            "another schema.output_params;",
        ),
        (
            |other| *other = json!({}),
            "another schema.inputs, schema.output_params, policy.visibility_timeout, policy.max_retries, policy.backoff, policy.completed_ttl, policy.failed_ttl;",
        ),
    ] {
        let detail = differently(change).await.refused("queue_exists");
        assert!(detail.contains(named), "{detail}");
    }
    assert_eq!(rig.get("/v1/queues/jobs").await.good(), made);
}

#[tokio::test(flavor = "multi_thread")]
async fn everything_about_a_queue_is_optional() {
    let rig = Rig::start().await;
    // Not even a body is needed.
    let made = rig.call(Method::PUT, "/v1/queues/a", None).await.good();
    assert_eq!(made["policy"]["visibility_timeout"], "5m");
    assert_eq!(made["policy"]["max_retries"], 3);
    assert_eq!(made["policy"]["order"], "priority");
    assert_eq!(made["policy"]["backoff"], "none");
    for body in [json!({}), json!({"policy": {}}), json!({"schema": {}, "policy": {"order": "priority"}})] {
        assert_eq!(rig.put("/v1/queues/a", body).await.good(), made);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_policy_is_changed_in_part() {
    let rig = Rig::start().await;
    rig.queue("jobs", json!({"max_retries": 1, "depth_limit": 5})).await;
    let changed = rig.patch("/v1/queues/jobs", json!({"policy": {"max_retries": 10_000}})).await.good();
    assert_eq!(
        (&changed["policy"]["max_retries"], &changed["policy"]["depth_limit"]),
        (&json!(10_000), &json!(5))
    );
    let changed =
        rig.patch("/v1/queues/jobs", json!({"depth_limit": null, "visibility_timeout": "2m"})).await.good();
    assert_eq!(changed["policy"]["depth_limit"], Value::Null);
    assert_eq!(changed["policy"]["visibility_timeout"], "2m");
    assert_eq!(changed["policy"]["max_retries"], 10_000);
    assert_eq!(rig.get("/v1/queues/jobs").await.good(), changed);
    assert_eq!(rig.patch("/v1/queues/jobs", json!({})).await.good(), changed);

    for (body, code, words) in [
        (json!({"max_retries": 10_001}), "invalid", "max_retries"),
        (json!({"policy": {"max_retries": -1}}), "invalid", "max_retries"),
        (json!({"policy": {"order": "fifo"}}), "invalid", "cannot be changed"),
        (json!({"policy": {"retries_max": 1}}), "malformed_body", "retries_max"),
        (json!({"retries_max": 1}), "malformed_body", "retries_max"),
        (json!({"policy": {}, "schema": {}}), "malformed_body", "only the policy"),
        (json!({"policy": null}), "malformed_body", "null"),
        (json!({"visibility_timeout": "5 parsecs"}), "invalid", "parsecs"),
        (json!({"dead_letter_queue": "jobs"}), "invalid", "own dead-letter queue"),
        (json!([]), "malformed_body", "an object"),
        (json!({"policy": []}), "malformed_body", "an object"),
    ] {
        let detail = rig.patch("/v1/queues/jobs", body.clone()).await.refused(code);
        assert!(detail.contains(words), "{body}: {detail}");
    }
    assert_eq!(rig.get("/v1/queues/jobs").await.good(), changed);
}

#[tokio::test(flavor = "multi_thread")]
async fn numbers_have_bounds_and_names_have_rules() {
    let rig = Rig::start().await;
    rig.put("/v1/queues/most", json!({"policy": {"max_retries": 10_000}})).await.good();
    for (policy, words) in [
        (json!({"max_retries": 10_001}), "max_retries"),
        (json!({"max_retries": 1_u64 << 40}), "max_retries"),
        (json!({"visibility_timeout": 99}), "visibility_timeout"),
        (json!({"visibility_timeout": "31d"}), "visibility_timeout"),
        (json!({"completed_ttl": -1}), "completed_ttl"),
        (json!({"item_ttl": 1.5}), "completed_ttl"),
        (json!({"depth_limit": 0}), "depth_limit"),
        (json!({"poison_after": 0}), "poison_after"),
        (json!({"order": "lifo"}), "fifo, priority, score"),
        (json!({"order": {"score": {"tiers_permille": {"t".repeat(256): 1}}}}), "order.tiers"),
        (json!({"backoff": "sometimes"}), "cyclotron"),
        (json!({"backoff": {"base": "1s", "factor": 1e300}}), "factor"),
        (json!({"dead_letter_queue": "no/where"}), "no/where"),
        (json!({"lease": {"renewal_permille": 0}}), "renewal_permille"),
    ] {
        let detail = rig.put("/v1/queues/a", json!({"policy": policy})).await.refused("invalid");
        assert!(detail.contains(words), "{policy}: {detail}");
    }
    for (schema, words) in [
        (json!({"inputs": ["Raw"]}), "Raw"),
        (json!({"outputs": ["?"]}), "empty"),
        (json!({"input_params": ["x".repeat(64)]}), "63"),
        (json!({"inputs": (0..65).map(|n| format!("s{n}")).collect::<Vec<_>>()}), "64"),
    ] {
        let detail = rig.put("/v1/queues/a", json!({"schema": schema})).await.refused("invalid");
        assert!(detail.contains(words), "{schema}: {detail}");
    }
    rig.get("/v1/queues/a").await.refused("queue_not_found");
}

#[tokio::test(flavor = "multi_thread")]
async fn queues_are_listed_in_pages() {
    let rig = Rig::start().await;
    assert_eq!(rig.get("/v1/queues").await.good(), json!({"queues": [], "next": null}));
    let names = ["a", "b.c", "b_d", "c", "d"];
    for name in names {
        rig.queue(name, json!({})).await;
    }
    let mut seen = Vec::new();
    let mut next = String::new();
    loop {
        let page = rig.get(&format!("/v1/queues?limit=2{next}")).await.good();
        let queues = page["queues"].as_array().unwrap();
        assert!(queues.len() <= 2);
        seen.extend(queues.iter().map(|queue| queue["name"].as_str().unwrap().to_owned()));
        match page["next"].as_str() {
            Some(cursor) => next = format!("&cursor={cursor}"),
            None => break,
        }
    }
    assert_eq!(seen, names);
    let all = rig.get("/v1/queues").await.good();
    assert_eq!((all["queues"].as_array().unwrap().len(), &all["next"]), (5, &Value::Null));
    for bad in ["limit=0", "limit=10001", "limit=x", "cursor=%2F", "limit=1&limit=2", "page=2"] {
        rig.get(&format!("/v1/queues?{bad}")).await.refused("invalid");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_queue_closes_and_completes_by_its_last_item() {
    let rig = Rig::start().await;
    rig.queue("jobs", json!({})).await;
    let (id, lease) = rig.hold("jobs").await;
    let closed = rig.call(Method::POST, "/v1/queues/jobs/close", None).await.good();
    assert_eq!(closed["state"], "closed");
    assert!(closed["since"].is_string());
    assert_eq!(rig.call(Method::POST, "/v1/queues/jobs/close", None).await.good(), closed);
    let answer = rig.post("/v1/queues/jobs/items", json!({"items": [{}]})).await.good();
    assert_eq!(answer["items"][0]["error"]["code"], "queue_closed");
    let empty = rig.post("/v1/queues/jobs/receive", json!({})).await.good();
    assert_eq!(empty, json!({"status": "closed", "items": []}));

    rig.act(&id, "commit", json!({"lease": lease})).await.good();
    assert_eq!(rig.get("/v1/queues/jobs").await.good()["state"], "completed");
    // Nobody waits for what cannot come.
    let done = rig.post("/v1/queues/jobs/receive", json!({"wait": "5m"})).await.good();
    assert_eq!(done, json!({"status": "completed", "items": []}));

    rig.queue("empty", json!({})).await;
    assert_eq!(rig.call(Method::POST, "/v1/queues/empty/close", None).await.good()["state"], "completed");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_paused_queue_takes_items_and_gives_none() {
    let rig = Rig::start().await;
    rig.queue("jobs", json!({})).await;
    let paused = rig.call(Method::POST, "/v1/queues/jobs/pause", None).await.good();
    assert_eq!((&paused["paused"], &paused["state"]), (&json!(true), &json!("open")));
    let ids = rig.submit("jobs", json!([{}])).await;
    assert_eq!(
        rig.post("/v1/queues/jobs/receive", json!({})).await.good(),
        json!({"status": "open", "items": []})
    );
    let resumed = rig.call(Method::POST, "/v1/queues/jobs/resume", None).await.good();
    assert_eq!(resumed["paused"], false);
    assert_eq!(rig.receive("jobs").await["id"], ids[0].as_str());
}

#[tokio::test(flavor = "multi_thread")]
async fn a_queue_with_work_in_it_is_deleted_by_force_only() {
    let rig = Rig::start().await;
    rig.queue("jobs", json!({})).await;
    let (id, lease) = rig.hold("jobs").await;
    let detail = rig.delete("/v1/queues/jobs").await.refused("queue_busy");
    assert!(detail.contains("1 unfinished") && detail.contains("force"), "{detail}");
    rig.delete("/v1/queues/jobs?force=false").await.refused("queue_busy");
    rig.delete("/v1/queues/jobs?force=perhaps").await.refused("invalid");
    let gone = rig.delete("/v1/queues/jobs?force=true").await;
    assert_eq!((gone.status.as_u16(), gone.body.len()), (204, 0));
    rig.delete("/v1/queues/jobs?force=true").await.refused("queue_not_found");
    rig.get(&format!("/v1/items/{id}")).await.refused("item_not_found");
    let lost = rig.act(&id, "commit", json!({"lease": lease})).await;
    assert!(matches!(lost.code(), "lease_lost" | "item_not_found"), "{}", lost.json());
    // Its name is free.
    rig.queue("jobs", json!({"max_retries": 9})).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn counts_tell_where_items_stand() {
    let rig = Rig::start().await;
    rig.queue("jobs", json!({"order": "fifo"})).await;
    let ids = rig.submit("jobs", json!([{}, {}, {}, {}, {"delay": "1h"}, {}])).await;
    let held = rig.post("/v1/queues/jobs/receive", json!({"max": 3})).await.good();
    let lease = |n: usize| held["items"][n]["lease"].clone();
    rig.act(&ids[0], "commit", json!({"lease": lease(0)})).await.good();
    rig.act(&ids[1], "fail", json!({"lease": lease(1)})).await.good();
    rig.call(Method::POST, &format!("/v1/items/{}/pause", ids[3]), None).await.good();
    let counts =
        json!({"pending": 1, "scheduled": 1, "processing": 1, "paused": 1, "completed": 1, "failed": 1});
    assert_eq!(rig.counts("jobs").await, counts);
    assert_eq!(rig.get("/v1/queues/jobs").await.good()["counts"], counts);
    assert_eq!(rig.get("/v1/queues").await.good()["queues"][0]["counts"], counts);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_queue_that_is_not_there_is_named() {
    let rig = Rig::start().await;
    for (method, path, body) in [
        (Method::GET, "", None),
        (Method::DELETE, "", None),
        (Method::PATCH, "", Some(json!({}))),
        (Method::GET, "/counts", None),
        (Method::POST, "/close", None),
        (Method::POST, "/pause", None),
        (Method::POST, "/resume", None),
        (Method::GET, "/items", None),
        (Method::DELETE, "/items?state=all", None),
        (Method::POST, "/receive", Some(json!({}))),
        (Method::POST, "/receive", Some(json!({"wait": "5m"}))),
        (Method::POST, "/items", Some(json!({"items": [{}]}))),
        (Method::POST, "/items", Some(json!({"items": []}))),
        (Method::POST, "/items", Some(json!({"items": [{"id": "?"}]}))),
    ] {
        let detail =
            rig.call(method, &format!("/v1/queues/nowhere{path}"), body).await.refused("queue_not_found");
        assert!(detail.contains("nowhere"), "{path}: {detail}");
    }
}
