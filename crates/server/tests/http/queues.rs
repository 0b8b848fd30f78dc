//! Queues: created, created again, changed, counted, closed, paused, deleted.

use crate::test_server::TestServer;
use http::Method;
use serde_json::{Value, json};

#[tokio::test(flavor = "multi_thread")]
async fn creating_a_queue_again_succeeds_and_another_policy_is_a_conflict() {
    let server = TestServer::start().await;
    let request = json!({"schema": {"inputs": ["raw", "mask?"], "output_params": ["quality"]},
        "policy": {"visibility_timeout": 90_000, "max_retries": 7, "backoff": "ayepi", "item_ttl": "2d", "failed_ttl": null}});
    let made = server.put("/v1/queues/jobs", request.clone()).await.success();
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
    assert_eq!(server.put("/v1/queues/jobs", request.clone()).await.success(), made);
    assert_eq!(server.get("/v1/queues/jobs").await.success(), made);
    // The response can be sent back as a request.
    let shown = json!({"schema": made["schema"], "policy": made["policy"]});
    assert_eq!(server.put("/v1/queues/jobs", shown).await.success(), made);

    let differently = |change: fn(&mut Value)| {
        let mut other = request.clone();
        change(&mut other);
        server.put("/v1/queues/jobs", other)
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
        let detail = differently(change).await.problem("queue_exists");
        assert!(detail.contains(named), "{detail}");
    }
    assert_eq!(server.get("/v1/queues/jobs").await.success(), made);
}

#[tokio::test(flavor = "multi_thread")]
async fn every_field_of_a_new_queue_is_optional() {
    let server = TestServer::start().await;
    // No body is needed.
    let made = server.call(Method::PUT, "/v1/queues/a", None).await.success();
    assert_eq!(made["policy"]["visibility_timeout"], "5m");
    assert_eq!(made["policy"]["max_retries"], 3);
    assert_eq!(made["policy"]["order"], "priority");
    let backoff = json!({"base": "1s", "factor": 2.0, "max": "5m", "jitter": 0.5});
    assert_eq!(made["policy"]["backoff"], backoff);
    for body in [json!({}), json!({"policy": {}}), json!({"schema": {}, "policy": {"order": "priority"}})] {
        assert_eq!(server.put("/v1/queues/a", body).await.success(), made);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn apply_creates_or_changes_a_queue_and_says_what_changed() {
    let server = TestServer::start().await;
    let apply =
        async |query: &str, body: Value| server.post(&format!("/v1/queues/jobs/apply{query}"), body).await;
    let first = json!({"policy": {"max_retries": 1, "order": "fifo"}});
    let planned = apply("?dry_run=true", first.clone()).await.success();
    server.get("/v1/queues/jobs").await.problem("queue_not_found");
    let made = apply("", first.clone()).await.success();
    // Only the time differs.
    let without_time = |mut answer: Value| {
        answer["queue"].as_object_mut().unwrap().remove("created_at");
        answer
    };
    assert_eq!(without_time(planned), without_time(made.clone()), "a dry run answers like the real run");
    assert_eq!((&made["created"], &made["queue"]["policy"]["max_retries"]), (&json!(true), &json!(1)));
    let same = apply("", first).await.success();
    assert_eq!(
        (&same["created"], &same["changed"], &same["queue"]),
        (&json!(false), &json!([]), &made["queue"])
    );
    let next = json!({"policy": {"depth_limit": 5, "visibility_timeout": "1m"}});
    let expected = json!([
        {"setting": "depth_limit", "before": null, "after": 5},
        {"setting": "visibility_timeout", "before": "5m", "after": "1m"},
    ]);
    let planned = apply("?dry_run=true", next.clone()).await.success();
    assert_eq!(server.get("/v1/queues/jobs").await.success(), made["queue"]);
    let changed = apply("", next).await.success();
    assert_eq!(changed["changed"], expected);
    assert_eq!(planned, changed, "a dry run answers like the real run");
    assert_eq!(changed["queue"]["policy"]["max_retries"], 1, "it was not given, so it stays");
    assert_eq!(server.get("/v1/queues/jobs").await.success(), changed["queue"]);
    for (body, code, words) in [
        (json!({"policy": {"order": "priority"}}), "queue_exists", "policy.order: \"fifo\" -> \"priority\""),
        (json!({"schema": {"inputs": ["raw"]}}), "queue_exists", "schema.inputs: [] -> [\"raw\"]"),
        (json!({"policy": {"dead_letter_queue": "dead"}}), "invalid", "create it first"),
        (json!({"policy": {"dead_letter_queue": "jobs"}}), "invalid", "its own dead-letter queue"),
        (json!({"policy": {"max_retries": 10_001}}), "invalid", "max_retries"),
    ] {
        for query in ["", "?dry_run=true"] {
            let detail = apply(query, body.clone()).await.problem(code);
            assert!(detail.contains(words), "{detail}");
        }
    }
    let absent = server.delete("/v1/queues/absent").await.problem("queue_not_found");
    assert!(!absent.contains("create"), "{absent}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_put_of_a_different_schedule_is_refused_and_an_apply_changes_it() {
    let server = TestServer::start().await;
    server.queue("jobs", json!({})).await;
    let every = |every: &str| json!({"queue": "jobs", "every": every});
    let made = server.put("/v1/schedules/tick", every("1h")).await.success();
    assert_eq!(made["created"], true);
    assert_eq!(server.put("/v1/schedules/tick", every("1h")).await.success()["schedule"], made["schedule"]);
    let detail = server.put("/v1/schedules/tick", every("2h")).await.problem("schedule_exists");
    assert!(detail.contains("another every"), "{detail}");
    let planned = server.post("/v1/schedules/tick/apply?dry_run=true", every("2h")).await.success();
    assert_eq!(
        (&planned["created"], &planned["changed"]),
        (&json!(false), &json!([{"setting": "every", "before": "1h", "after": "2h"}]))
    );
    assert_eq!(server.get("/v1/schedules/tick").await.success(), made["schedule"]);
    let changed = server.post("/v1/schedules/tick/apply", every("2h")).await.success();
    assert_eq!(planned["changed"], changed["changed"]);
    assert_eq!(server.get("/v1/schedules/tick").await.success(), changed["schedule"]);
    assert_eq!(changed["schedule"]["every"], "2h");
    let body = json!({"queue": "jobs", "every": "2h", "jitter": "1m", "item": {"priority": 3}});
    let changed = server.post("/v1/schedules/tick/apply", body).await.success();
    let expected = json!([
        {"setting": "jitter", "before": null, "after": "1m"},
        {"setting": "item.priority", "before": null, "after": 3},
    ]);
    assert_eq!(changed["changed"], expected);
}

#[tokio::test(flavor = "multi_thread")]
async fn names_of_queues_may_contain_colons() {
    let server = TestServer::start_with_tokens(|_| {}).await;
    for path in ["queue:hog:dlq", "queue%3Ahog%3Alate"] {
        server.put(&format!("/v1/queues/{path}"), json!({})).await.success();
        server.submit(path, json!([{"idempotency_key": "k"}])).await;
        let name = path.replace("%3A", ":");
        let item = server.receive(path).await;
        assert_eq!(item["queue"], name);
        let commit = json!({"lease": item["lease"]});
        server.act(item["id"].as_str().unwrap(), "commit", commit).await.success();
        assert_eq!(server.get(&format!("/v1/queues/{path}")).await.success()["name"], name);
    }
    let metrics = server.get("/metrics").await;
    let shown = String::from_utf8(metrics.body.to_vec()).unwrap();
    assert!(shown.contains(r#"towline_items{queue="queue:hog:dlq",state="completed"} 1"#), "{shown}");
    let (token, _) = server.token_for(&["queue:queue:hog:*:submit"]).await;
    let submit = json!({"items": [{}]});
    server.post_as(&token, "/v1/queues/queue:hog:dlq/items", submit.clone()).await.success();
    server.post_as(&token, "/v1/queues/queue:dog/items", submit).await.problem("forbidden");
    for wrong in ["a%2Fb", ":a", "a%20b", "a%3Fb"] {
        server.put(&format!("/v1/queues/{wrong}"), json!({})).await.problem("invalid");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_server_may_create_queues_at_their_first_submit() {
    let submit = json!({"items": [{}]});
    let server = TestServer::start().await;
    server.post("/v1/queues/new/items", submit.clone()).await.problem("queue_not_found");
    let server = TestServer::start_with_tokens(|settings| settings.auto_create_queues = true).await;
    let (submitter, _) = server.token_for(&["queue:*:submit"]).await;
    server.post_as(&submitter, "/v1/queues/new/items", submit.clone()).await.problem("queue_not_found");
    let (admin, _) = server.token_for(&["queue:new*:admin"]).await;
    server.post_as(&admin, "/v1/queues/new/items", submit.clone()).await.success();
    server.post_as(&admin, "/v1/queues/other/items", submit.clone()).await.problem("forbidden");
    server.post_as(&submitter, "/v1/queues/new/items", submit.clone()).await.success();
    let made = server.get("/v1/queues/new").await.success();
    assert_eq!((&made["counts"]["pending"], &made["policy"]["max_retries"]), (&json!(2), &json!(3)));
    server.post("/v1/queues/new/close", json!({})).await.success();
    let refused = server.post_as(&admin, "/v1/queues/new/items", submit).await.success();
    assert_eq!(refused["items"][0]["error"]["code"], "queue_closed", "a queue that exists stays as it is");
    server.get("/v1/queues/absent").await.problem("queue_not_found");
    // A submit of nothing creates nothing.
    let path = "/v1/queues/new-2/items";
    assert_eq!(server.post_as(&admin, path, json!({"items": []})).await.success()["items"], json!([]));
    let malformed = json!({"items": [{"priority": "high"}]});
    let refused = server.post_as(&admin, path, malformed.clone()).await.success();
    assert_eq!(refused["items"][0]["error"]["code"], "malformed_body");
    server.post_as(&submitter, path, malformed).await.problem("queue_not_found");
    server.get("/v1/queues/new-2").await.problem("queue_not_found");
}

#[tokio::test(flavor = "multi_thread")]
async fn to_keep_a_dead_letter_queue_takes_no_right_on_it() {
    let server = TestServer::start_with_tokens(|_| {}).await;
    for name in ["failed", "other"] {
        server.queue(name, json!({})).await;
    }
    server.queue("jobs", json!({"dead_letter_queue": "failed"})).await;
    let (admin, _) = server.token_for(&["queue:jobs:admin"]).await;
    let apply = async |policy: Value| {
        server.post_as(&admin, "/v1/queues/jobs/apply", json!({ "policy": policy })).await
    };
    let patch =
        async |policy: Value| server.call_as(&admin, Method::PATCH, "/v1/queues/jobs", Some(policy)).await;
    for (number, kept) in [json!({}), json!({"dead_letter_queue": "failed"})].into_iter().enumerate() {
        let mut policy = kept;
        policy["max_retries"] = json!(number + 5);
        apply(policy.clone()).await.success();
        policy["max_retries"] = json!(number + 8);
        patch(policy).await.success();
    }
    let other = json!({"dead_letter_queue": "other"});
    apply(other.clone()).await.problem("forbidden");
    patch(other).await.problem("forbidden");
}

#[tokio::test(flavor = "multi_thread")]
async fn an_apply_may_name_slots_in_any_order() {
    let server = TestServer::start().await;
    let body = json!({"schema": {"inputs": ["b", "a?"], "output_params": ["z", "y"]}});
    for created in [true, false] {
        let applied = server.post("/v1/queues/jobs/apply", body.clone()).await.success();
        assert_eq!((&applied["created"], &applied["changed"]), (&json!(created), &json!([])));
    }
    let other = json!({"schema": {"inputs": ["b", "a"], "output_params": ["z", "y"]}});
    let detail = server.post("/v1/queues/jobs/apply", other).await.problem("queue_exists");
    assert!(detail.contains("schema.inputs") && !detail.contains("output_params"), "{detail}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_policy_is_patched() {
    let server = TestServer::start().await;
    server.queue("jobs", json!({"max_retries": 1, "depth_limit": 5})).await;
    let changed = server.patch("/v1/queues/jobs", json!({"policy": {"max_retries": 10_000}})).await.success();
    assert_eq!(
        (&changed["policy"]["max_retries"], &changed["policy"]["depth_limit"]),
        (&json!(10_000), &json!(5))
    );
    let changed = server
        .patch("/v1/queues/jobs", json!({"depth_limit": null, "visibility_timeout": "2m"}))
        .await
        .success();
    assert_eq!(changed["policy"]["depth_limit"], Value::Null);
    assert_eq!(changed["policy"]["visibility_timeout"], "2m");
    assert_eq!(changed["policy"]["max_retries"], 10_000);
    assert_eq!(server.get("/v1/queues/jobs").await.success(), changed);
    assert_eq!(server.patch("/v1/queues/jobs", json!({})).await.success(), changed);

    for (body, code, expected) in [
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
        let detail = server.patch("/v1/queues/jobs", body.clone()).await.problem(code);
        assert!(detail.contains(expected), "{body}: {detail}");
    }
    assert_eq!(server.get("/v1/queues/jobs").await.success(), changed);
}

#[tokio::test(flavor = "multi_thread")]
async fn invalid_numbers_and_names_of_a_policy_are_refused() {
    let server = TestServer::start().await;
    server.put("/v1/queues/most", json!({"policy": {"max_retries": 10_000}})).await.success();
    for (policy, expected) in [
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
        (
            json!({"lease": {"ack_timeout": "5s"}}),
            "lease.ack_timeout: it applies to leases that a dispatcher assigns",
        ),
    ] {
        let detail = server.put("/v1/queues/a", json!({"policy": policy})).await.problem("invalid");
        assert!(detail.contains(expected), "{policy}: {detail}");
    }
    for (schema, expected) in [
        (json!({"inputs": ["Raw"]}), "Raw"),
        (json!({"outputs": ["?"]}), "empty"),
        (json!({"input_params": ["x".repeat(64)]}), "63"),
        (json!({"inputs": (0..65).map(|n| format!("s{n}")).collect::<Vec<_>>()}), "64"),
    ] {
        let detail = server.put("/v1/queues/a", json!({"schema": schema})).await.problem("invalid");
        assert!(detail.contains(expected), "{schema}: {detail}");
    }
    server.get("/v1/queues/a").await.problem("queue_not_found");
}

#[tokio::test(flavor = "multi_thread")]
async fn queues_are_listed_in_pages() {
    let server = TestServer::start().await;
    assert_eq!(server.get("/v1/queues").await.success(), json!({"queues": [], "next": null}));
    let names = ["a", "b.c", "b_d", "c", "d"];
    for name in names {
        server.queue(name, json!({})).await;
    }
    let mut seen = Vec::new();
    let mut next = String::new();
    loop {
        let page = server.get(&format!("/v1/queues?limit=2{next}")).await.success();
        let queues = page["queues"].as_array().unwrap();
        assert!(queues.len() <= 2);
        seen.extend(queues.iter().map(|queue| queue["name"].as_str().unwrap().to_owned()));
        match page["next"].as_str() {
            Some(cursor) => next = format!("&cursor={cursor}"),
            None => break,
        }
    }
    assert_eq!(seen, names);
    let all = server.get("/v1/queues").await.success();
    assert_eq!((all["queues"].as_array().unwrap().len(), &all["next"]), (5, &Value::Null));
    for bad in ["limit=0", "limit=1001", "limit=x", "cursor=%2F", "limit=1&limit=2", "page=2"] {
        server.get(&format!("/v1/queues?{bad}")).await.problem("invalid");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_closed_queue_completes_with_its_last_item() {
    let server = TestServer::start().await;
    server.queue("jobs", json!({})).await;
    let (id, lease) = server.hold("jobs").await;
    let closed = server.call(Method::POST, "/v1/queues/jobs/close", None).await.success();
    assert_eq!(closed["state"], "closed");
    assert!(closed["since"].is_string());
    assert_eq!(server.call(Method::POST, "/v1/queues/jobs/close", None).await.success(), closed);
    let answer = server.post("/v1/queues/jobs/items", json!({"items": [{}]})).await.success();
    assert_eq!(answer["items"][0]["error"]["code"], "queue_closed");
    let empty = server.post("/v1/queues/jobs/receive", json!({})).await.success();
    assert_eq!(empty, json!({"status": "closed", "items": []}));

    server.act(&id, "commit", json!({"lease": lease})).await.success();
    assert_eq!(server.get("/v1/queues/jobs").await.success()["state"], "completed");
    // A receive does not wait for a queue that is completed.
    let done = server.post("/v1/queues/jobs/receive", json!({"wait": "5m"})).await.success();
    assert_eq!(done, json!({"status": "completed", "items": []}));

    server.queue("empty", json!({})).await;
    assert_eq!(
        server.call(Method::POST, "/v1/queues/empty/close", None).await.success()["state"],
        "completed"
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn a_paused_queue_accepts_items_and_delivers_none() {
    let server = TestServer::start().await;
    server.queue("jobs", json!({})).await;
    let paused = server.call(Method::POST, "/v1/queues/jobs/pause", None).await.success();
    assert_eq!((&paused["paused"], &paused["state"]), (&json!(true), &json!("open")));
    let ids = server.submit("jobs", json!([{}])).await;
    assert_eq!(
        server.post("/v1/queues/jobs/receive", json!({})).await.success(),
        json!({"status": "open", "items": [], "throttled": "paused"})
    );
    let resumed = server.call(Method::POST, "/v1/queues/jobs/resume", None).await.success();
    assert_eq!(resumed["paused"], false);
    assert_eq!(server.receive("jobs").await["id"], ids[0].as_str());
}

#[tokio::test(flavor = "multi_thread")]
async fn a_queue_with_unfinished_items_is_only_deleted_by_force() {
    let server = TestServer::start().await;
    server.queue("jobs", json!({})).await;
    let (id, lease) = server.hold("jobs").await;
    let detail = server.delete("/v1/queues/jobs").await.problem("queue_busy");
    assert!(detail.contains("1 unfinished") && detail.contains("force"), "{detail}");
    server.delete("/v1/queues/jobs?force=false").await.problem("queue_busy");
    server.delete("/v1/queues/jobs?force=perhaps").await.problem("invalid");
    let gone = server.delete("/v1/queues/jobs?force=true").await;
    assert_eq!((gone.status.as_u16(), gone.body.len()), (204, 0));
    server.delete("/v1/queues/jobs?force=true").await.problem("queue_not_found");
    server.get(&format!("/v1/items/{id}")).await.problem("item_not_found");
    let lost = server.act(&id, "commit", json!({"lease": lease})).await;
    assert!(matches!(lost.code(), "lease_lost" | "item_not_found"), "{}", lost.json());
    // The name can be used again.
    server.queue("jobs", json!({"max_retries": 9})).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn counts_show_items_by_state() {
    let server = TestServer::start().await;
    server.queue("jobs", json!({"order": "fifo"})).await;
    let ids = server.submit("jobs", json!([{}, {}, {}, {}, {"delay": "1h"}, {}])).await;
    let held = server.post("/v1/queues/jobs/receive", json!({"max": 3})).await.success();
    let lease = |n: usize| held["items"][n]["lease"].clone();
    server.act(&ids[0], "commit", json!({"lease": lease(0)})).await.success();
    server.act(&ids[1], "fail", json!({"lease": lease(1)})).await.success();
    server.call(Method::POST, &format!("/v1/items/{}/pause", ids[3]), None).await.success();
    let counts =
        json!({"pending": 1, "scheduled": 1, "processing": 1, "paused": 1, "completed": 1, "failed": 1});
    assert_eq!(server.counts("jobs").await, counts);
    assert_eq!(server.get("/v1/queues/jobs").await.success()["counts"], counts);
    assert_eq!(server.get("/v1/queues").await.success()["queues"][0]["counts"], counts);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_missing_queue_is_named_in_the_error() {
    let server = TestServer::start().await;
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
            server.call(method, &format!("/v1/queues/nowhere{path}"), body).await.problem("queue_not_found");
        assert!(detail.contains("nowhere"), "{path}: {detail}");
    }
}
