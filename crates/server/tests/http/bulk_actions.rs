//! Bulk actions, and counting the items that match a filter.

use crate::test_server::{TestResponse, TestServer};
use http::Method;
use serde_json::{Value, json};

async fn count(server: &TestServer, query: &str) -> Value {
    let counted = server.get(&format!("/v1/queues/jobs/items/count?{query}")).await.success();
    let accept = [("accept", "application/x-ndjson")];
    let path = format!("/v1/queues/jobs/items?{query}");
    let listed = server.send_bytes(Method::GET, &path, &accept, "").await;
    assert_eq!(counted["count"], listed.body.iter().filter(|byte| **byte == b'\n').count(), "{query}");
    assert_eq!(counted["next"], Value::Null);
    counted["count"].clone()
}

async fn run(server: &TestServer, action: &str, query: &str) -> TestResponse {
    server.call(Method::POST, &format!("/v1/queues/jobs/items/{action}?{query}"), None).await
}

/// Receives an item: its id and its lease.
async fn take(server: &TestServer) -> (String, String) {
    let received = server.post("/v1/queues/jobs/receive", json!({})).await.success();
    let text = |name: &str| received["items"][0][name].as_str().unwrap().to_owned();
    (text("id"), text("lease"))
}

#[tokio::test(flavor = "multi_thread")]
async fn a_count_equals_the_length_of_the_list() {
    let server = TestServer::start().await;
    server.queue("jobs", json!({"order": "fifo", "max_retries": 1})).await;
    server.queue("other", json!({})).await;
    server.submit("other", json!([{"tags": {"path": "/ab"}}])).await;
    let made = server
        .submit(
            "jobs",
            json!([
                {"tags": {"path": "/ab", "type": "mail"}, "priority": -3}, {"tags": {"path": "/ab/c"}},
                {"tags": {"path": "/abc"}, "group": "g"}, {"priority": 9}, {"delay": "1h", "idempotency_key": "k"},
            ]),
        )
        .await;
    for (n, verb) in [(0, "commit"), (1, "fail"), (2, "retry")] {
        let (id, lease) = take(&server).await;
        assert_eq!(id, made[n]);
        let body = match verb {
            "commit" => json!({"lease": lease}),
            "fail" => json!({"lease": lease, "reason": "Out Of Memory"}),
            _ => json!({"lease": lease, "error": "out of luck"}),
        };
        server.act(&id, verb, body).await.success();
    }
    for (query, expected) in [
        ("", 5),
        ("state=pending", 3),
        ("state=unfinished", 3),
        ("state=completed", 1),
        ("state=failed&failure=explicit", 1),
        ("failure=poison", 0),
        ("state=expired", 0),
        ("tag=path=/ab", 1),
        ("tag_prefix=path=/ab", 2),
        ("tag_prefix=path=/ab&state=failed", 1),
        ("tag_prefix=path=/", 3),
        ("type=mail", 1),
        ("group=g", 1),
        ("idempotency_key=k", 1),
        ("priority=9", 1),
        ("priority_min=-3&priority_max=0", 4),
        ("attempt=2", 1),
        ("attempt_max=1", 4),
        ("finished_from=2020-01-01T00:00:00Z", 2),
        ("finished_before=2020-01-01T00:00:00Z", 0),
        ("error=out+of", 2),
        ("error=OUT+OF+MEM", 1),
        ("state=pending&error=out", 1),
    ] {
        assert_eq!(count(&server, query).await, expected, "{query}");
    }
    assert_eq!(server.get("/v1/items/count").await.success()["count"], 6);
    assert_eq!(server.get("/v1/items/count?tag_prefix=path=/ab").await.success()["count"], 3);
    let everywhere = server.get("/v1/items?tag=path=/ab").await.success();
    let queues: Vec<&str> =
        everywhere["items"].as_array().unwrap().iter().map(|item| item["queue"].as_str().unwrap()).collect();
    assert_eq!(queues, ["other", "jobs"]);
    server.get("/v1/queues/nowhere/items/count").await.problem("queue_not_found");
}

#[tokio::test(flavor = "multi_thread")]
async fn an_invalid_filter_is_rejected_with_a_suggestion() {
    let server = TestServer::start().await;
    server.queue("jobs", json!({})).await;
    let calls = [
        (Method::GET, "/v1/queues/jobs/items"),
        (Method::GET, "/v1/items"),
        (Method::GET, "/v1/queues/jobs/items/count"),
        (Method::GET, "/v1/items/count"),
        (Method::DELETE, "/v1/queues/jobs/items"),
        (Method::POST, "/v1/queues/jobs/items/pause"),
    ];
    for (method, path) in calls {
        for (query, expected) in [
            ("stat=failed", "\"state\""),
            ("tagprefix=a=b", "\"tag_prefix\""),
            ("priority-min=1", "\"priority_min\""),
            ("tag_prefix=path", "key=value"),
            ("priority=high", "priority"),
            ("priority=40000", "priority"),
            ("priority=1&priority_min=0", "choose one"),
            ("attempt_min=-1", "attempt_min"),
            ("failure=sad", "retries_exhausted"),
            ("state=expired&failure=poison", "choose one"),
            ("error=", "error"),
            ("finished_from=soon", "finished_from"),
        ] {
            let state =
                if method == Method::DELETE && !query.contains("state") { "state=failed&" } else { "" };
            let answer = server.call(method.clone(), &format!("{path}?{state}{query}"), None).await;
            let detail = answer.problem("invalid");
            assert!(detail.contains(expected), "{method} {path}?{query}: {detail}");
        }
        let long = "x".repeat(1025);
        server
            .call(method.clone(), &format!("{path}?state=failed&error={long}"), None)
            .await
            .problem("too_large");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn bulk_actions_change_the_matching_items() {
    let server = TestServer::start().await;
    server.queue("jobs", json!({})).await;
    server.queue("other", json!({})).await;
    let items: Vec<Value> =
        (0..1200).map(|n| json!({"tags": {"half": if n % 2 == 0 { "a" } else { "b" }}})).collect();
    server.submit("jobs", json!(items)).await;
    let done = |matched: u64, done: u64| json!({"matched": matched, "done": done, "left": {}, "next": null});
    assert_eq!(run(&server, "pause", "tag=half=a&dry_run=true").await.success(), done(600, 0));
    assert_eq!(server.counts("jobs").await["paused"], 0, "a dry run changes nothing");
    assert_eq!(run(&server, "pause", "tag=half=a").await.success(), done(600, 600));
    assert_eq!(server.counts("jobs").await["paused"], 600);
    assert_eq!(run(&server, "set-priority", "to=-4&state=paused").await.success(), done(600, 600));
    assert_eq!(count(&server, "priority=-4").await, 600);
    assert_eq!(run(&server, "resume", "state=paused").await.success(), done(600, 600));
    let (held, lease) = take(&server).await;
    assert_eq!(server.item(&held).await["priority"], -4);
    let moved = run(&server, "move", "to=other&tag=half=a").await.success();
    assert_eq!(moved, json!({"matched": 600, "done": 599, "left": {"wrong_state": 1}, "next": null}));
    assert_eq!(server.counts("other").await["pending"], 599);
    let path = "/v1/queues/jobs/items/cancel?state=pending";
    assert_eq!(server.post(path, json!({"reason": "enough"})).await.success(), done(600, 600));
    assert_eq!(count(&server, "state=cancelled&error=ENOUGH").await, 600);
    assert_eq!(run(&server, "redrive", "failure=cancelled").await.success(), done(600, 600));
    assert_eq!(count(&server, "state=pending").await, 600);
    let gone = server.delete("/v1/queues/jobs/items?state=pending&dry_run=1").await.success();
    assert_eq!(gone, done(600, 0));
    assert_eq!(server.delete("/v1/queues/jobs/items?state=pending").await.success(), done(600, 600));
    server.act(&held, "commit", json!({"lease": lease})).await.success();
}

#[tokio::test(flavor = "multi_thread")]
async fn an_impossible_bulk_action_is_rejected_as_a_whole() {
    let server = TestServer::start().await;
    server.queue("jobs", json!({})).await;
    server.queue("closed", json!({})).await;
    server.submit("jobs", json!([{}])).await;
    server.call(Method::POST, "/v1/queues/closed/close", None).await.success();
    run(&server, "explode", "").await.problem("route_not_found");
    run(&server, "move", "state=all&to=nowhere").await.problem("queue_not_found");
    run(&server, "move", "state=all&to=closed").await.problem("queue_closed");
    for (name, query, expected) in [
        ("move", "", "to:"),
        ("move", "to=a/b", "to"),
        ("set-priority", "", "to:"),
        ("set-priority", "to=99999", "to"),
        ("pause", "state=all&to=5", "not a parameter"),
        ("cancel", "state=all&reason=x", "not a parameter"),
        ("pause", "state=all&state=ready", "choose one"),
        ("pause", "cursor=x", "cursor"),
        ("redrive", "dry_run=maybe", "dry_run"),
    ] {
        let detail = run(&server, name, query).await.problem("invalid");
        assert!(detail.contains(expected), "{name}?{query}: {detail}");
    }
    let detail =
        server.post("/v1/queues/jobs/items/pause?state=all", json!({"reason": "x"})).await.problem("invalid");
    assert!(detail.contains("it goes with cancel"), "{detail}");
    assert_eq!(server.counts("jobs").await["pending"], 1);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_bulk_action_without_a_filter_needs_state_all() {
    let server = TestServer::start().await;
    server.queue("jobs", json!({})).await;
    server.queue("other", json!({})).await;
    server.submit("jobs", json!([{}, {"tags": {"a": "b"}}])).await;
    for name in ["cancel", "redrive", "pause", "resume", "set-priority", "move"] {
        let to = match name {
            "set-priority" => "to=1",
            "move" => "to=other",
            _ => "",
        };
        for query in [to.to_owned(), format!("{to}&dry_run=true"), format!("{to}&cursor=0")] {
            let detail = run(&server, name, &query).await.problem("invalid");
            assert!(detail.contains("state=all"), "{name}?{query}: {detail}");
        }
    }
    assert_eq!(server.counts("jobs").await["pending"], 2);
    assert_eq!(run(&server, "pause", "tag=a=b").await.success()["done"], 1);
    assert_eq!(run(&server, "resume", "status=all").await.success()["done"], 1);
    assert_eq!(run(&server, "move", "state=all&to=other").await.success()["done"], 2);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_summary_omits_inputs_outputs_and_payload() {
    let server = TestServer::start().await;
    server.queue("jobs", json!({"max_retries": 2})).await;
    let item = json!({"params": {"n": 1}, "payload": "cA==", "tags": {"a": "b"}});
    let own = json!({"max_retries": 5});
    let made = server.submit("jobs", json!([item, own])).await;
    let (id, lease) = take(&server).await;
    server.act(&id, "retry", json!({"lease": lease, "error": "first"})).await.success();
    let one = server.get(&format!("/v1/items/{id}?view=summary")).await.success();
    let page = server.get("/v1/queues/jobs/items?view=summary&fields=payload").await.success();
    let lines = server
        .send_bytes(
            Method::GET,
            "/v1/queues/jobs/items?view=summary",
            &[("accept", "application/x-ndjson")],
            "",
        )
        .await;
    let line: Value =
        serde_json::from_slice(lines.body.split(|byte| *byte == b'\n').next().unwrap()).unwrap();
    for shown in [&one, &page["items"][0], &line] {
        assert_eq!((&shown["id"], &shown["retries_left"]), (&json!(made[0]), &json!(1)));
        assert_eq!((&shown["tags"], &shown["errors"][0]["message"]), (&json!({"a": "b"}), &json!("first")));
        for omitted in ["params", "inputs", "outputs", "output_params", "payload"] {
            assert_eq!(shown.get(omitted), None, "{omitted}");
        }
    }
    assert_eq!(server.item(&made[1]).await["retries_left"], 5, "the value of the item itself");
    server.get("/v1/queues/jobs/items?view=tiny").await.problem("invalid");
}
