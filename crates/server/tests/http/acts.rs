//! Counting and acting on all items that match.

use crate::rig::{Answer, Rig};
use http::Method;
use serde_json::{Value, json};

async fn count(rig: &Rig, query: &str) -> Value {
    let counted = rig.get(&format!("/v1/queues/jobs/items/count?{query}")).await.good();
    let listed = rig.get(&format!("/v1/queues/jobs/items?limit=10000&{query}")).await.good();
    assert_eq!(counted["count"], listed["items"].as_array().unwrap().len(), "{query}");
    assert_eq!(counted["next"], Value::Null);
    counted["count"].clone()
}

async fn act(rig: &Rig, act: &str, query: &str) -> Answer {
    rig.call(Method::POST, &format!("/v1/queues/jobs/items/{act}?{query}"), None).await
}

/// What is next, and its lease.
async fn take(rig: &Rig) -> (String, String) {
    let received = rig.post("/v1/queues/jobs/receive", json!({})).await.good();
    let text = |name: &str| received["items"][0][name].as_str().unwrap().to_owned();
    (text("id"), text("lease"))
}

#[tokio::test(flavor = "multi_thread")]
async fn as_many_are_counted_as_are_listed() {
    let rig = Rig::start().await;
    rig.queue("jobs", json!({"order": "fifo", "max_retries": 1})).await;
    rig.queue("other", json!({})).await;
    rig.submit("other", json!([{"tags": {"path": "/ab"}}])).await;
    let made = rig
        .submit(
            "jobs",
            json!([
                {"tags": {"path": "/ab", "type": "mail"}, "priority": -3}, {"tags": {"path": "/ab/c"}},
                {"tags": {"path": "/abc"}, "group": "g"}, {"priority": 9}, {"delay": "1h", "idempotency_key": "k"},
            ]),
        )
        .await;
    for (n, verb) in [(0, "commit"), (1, "fail"), (2, "retry")] {
        let (id, lease) = take(&rig).await;
        assert_eq!(id, made[n]);
        let body = match verb {
            "commit" => json!({"lease": lease}),
            "fail" => json!({"lease": lease, "reason": "Out Of Memory"}),
            _ => json!({"lease": lease, "error": "out of luck"}),
        };
        rig.act(&id, verb, body).await.good();
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
        assert_eq!(count(&rig, query).await, expected, "{query}");
    }
    assert_eq!(rig.get("/v1/items/count").await.good()["count"], 6);
    assert_eq!(rig.get("/v1/items/count?tag_prefix=path=/ab").await.good()["count"], 3);
    let everywhere = rig.get("/v1/items?tag=path=/ab").await.good();
    let queues: Vec<&str> =
        everywhere["items"].as_array().unwrap().iter().map(|item| item["queue"].as_str().unwrap()).collect();
    assert_eq!(queues, ["other", "jobs"]);
    rig.get("/v1/queues/nowhere/items/count").await.refused("queue_not_found");
}

#[tokio::test(flavor = "multi_thread")]
async fn what_is_not_understood_is_refused_with_the_nearest_word() {
    let rig = Rig::start().await;
    rig.queue("jobs", json!({})).await;
    let calls = [
        (Method::GET, "/v1/queues/jobs/items"),
        (Method::GET, "/v1/items"),
        (Method::GET, "/v1/queues/jobs/items/count"),
        (Method::GET, "/v1/items/count"),
        (Method::DELETE, "/v1/queues/jobs/items"),
        (Method::POST, "/v1/queues/jobs/items/pause"),
    ];
    for (method, path) in calls {
        for (query, words) in [
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
            let answer = rig.call(method.clone(), &format!("{path}?{state}{query}"), None).await;
            let detail = answer.refused("invalid");
            assert!(detail.contains(words), "{method} {path}?{query}: {detail}");
        }
        let long = "x".repeat(1025);
        rig.call(method.clone(), &format!("{path}?state=failed&error={long}"), None)
            .await
            .refused("too_large");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn acts_reach_what_matches() {
    let rig = Rig::start().await;
    rig.queue("jobs", json!({})).await;
    rig.queue("other", json!({})).await;
    let items: Vec<Value> =
        (0..1200).map(|n| json!({"tags": {"half": if n % 2 == 0 { "a" } else { "b" }}})).collect();
    rig.submit("jobs", json!(items)).await;
    let done = |matched: u64, done: u64| json!({"matched": matched, "done": done, "left": {}, "next": null});
    assert_eq!(act(&rig, "pause", "tag=half=a&dry_run=true").await.good(), done(600, 0));
    assert_eq!(rig.counts("jobs").await["paused"], 0, "a dry run changes nothing");
    assert_eq!(act(&rig, "pause", "tag=half=a").await.good(), done(600, 600));
    assert_eq!(rig.counts("jobs").await["paused"], 600);
    assert_eq!(act(&rig, "set-priority", "to=-4&state=paused").await.good(), done(600, 600));
    assert_eq!(count(&rig, "priority=-4").await, 600);
    assert_eq!(act(&rig, "resume", "state=paused").await.good(), done(600, 600));
    let (held, lease) = take(&rig).await;
    assert_eq!(rig.item(&held).await["priority"], -4);
    let moved = act(&rig, "move", "to=other&tag=half=a").await.good();
    assert_eq!(moved, json!({"matched": 600, "done": 599, "left": {"wrong_state": 1}, "next": null}));
    assert_eq!(rig.counts("other").await["pending"], 599);
    assert_eq!(act(&rig, "cancel", "reason=enough&state=pending").await.good(), done(600, 600));
    assert_eq!(count(&rig, "state=cancelled&error=ENOUGH").await, 600);
    assert_eq!(act(&rig, "redrive", "failure=cancelled").await.good(), done(600, 600));
    assert_eq!(count(&rig, "state=pending").await, 600);
    let gone = rig.delete("/v1/queues/jobs/items?state=pending&dry_run=1").await.good();
    assert_eq!(gone, json!({"removed": 0, "matched": 600, "next": null}));
    assert_eq!(rig.delete("/v1/queues/jobs/items?state=pending").await.good()["removed"], 600);
    rig.act(&held, "commit", json!({"lease": lease})).await.good();
}

#[tokio::test(flavor = "multi_thread")]
async fn an_act_that_cannot_be_is_refused_once() {
    let rig = Rig::start().await;
    rig.queue("jobs", json!({})).await;
    rig.queue("closed", json!({})).await;
    rig.submit("jobs", json!([{}])).await;
    rig.call(Method::POST, "/v1/queues/closed/close", None).await.good();
    act(&rig, "explode", "").await.refused("route_not_found");
    act(&rig, "move", "state=all&to=nowhere").await.refused("queue_not_found");
    act(&rig, "move", "state=all&to=closed").await.refused("queue_closed");
    for (name, query, words) in [
        ("move", "", "to:"),
        ("move", "to=a/b", "to"),
        ("set-priority", "", "to:"),
        ("set-priority", "to=99999", "to"),
        ("pause", "state=all&to=5", "not known"),
        ("pause", "state=all&reason=x", "not known"),
        ("pause", "state=all&state=ready", "choose one"),
        ("pause", "cursor=x", "cursor"),
        ("redrive", "dry_run=maybe", "dry_run"),
    ] {
        let detail = act(&rig, name, query).await.refused("invalid");
        assert!(detail.contains(words), "{name}?{query}: {detail}");
    }
    assert_eq!(rig.counts("jobs").await["pending"], 1);
}

#[tokio::test(flavor = "multi_thread")]
async fn an_act_on_everything_is_said_in_so_many_words() {
    let rig = Rig::start().await;
    rig.queue("jobs", json!({})).await;
    rig.queue("other", json!({})).await;
    rig.submit("jobs", json!([{}, {"tags": {"a": "b"}}])).await;
    for name in ["cancel", "redrive", "pause", "resume", "set-priority", "move"] {
        let to = match name {
            "set-priority" => "to=1",
            "move" => "to=other",
            _ => "",
        };
        for query in [to.to_owned(), format!("{to}&dry_run=true"), format!("{to}&cursor=0")] {
            let detail = act(&rig, name, &query).await.refused("invalid");
            assert!(detail.contains("state=all"), "{name}?{query}: {detail}");
        }
    }
    assert_eq!(rig.counts("jobs").await["pending"], 2);
    assert_eq!(act(&rig, "pause", "tag=a=b").await.good()["done"], 1);
    assert_eq!(act(&rig, "resume", "status=all").await.good()["done"], 1);
    assert_eq!(act(&rig, "move", "state=all&to=other").await.good()["done"], 2);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_summary_leaves_out_what_went_in_and_came_out() {
    let rig = Rig::start().await;
    rig.queue("jobs", json!({"max_retries": 2})).await;
    let item = json!({"params": {"n": 1}, "payload": "cA==", "tags": {"a": "b"}});
    let own = json!({"max_retries": 5});
    let made = rig.submit("jobs", json!([item, own])).await;
    let (id, lease) = take(&rig).await;
    rig.act(&id, "retry", json!({"lease": lease, "error": "first"})).await.good();
    let one = rig.get(&format!("/v1/items/{id}?view=summary")).await.good();
    let page = rig.get("/v1/queues/jobs/items?view=summary&fields=payload").await.good();
    let lines = rig
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
        for left_out in ["params", "inputs", "outputs", "output_params", "payload"] {
            assert_eq!(shown.get(left_out), None, "{left_out}");
        }
    }
    assert_eq!(rig.item(&made[1]).await["retries_left"], 5, "its own");
    rig.get("/v1/queues/jobs/items?view=tiny").await.refused("invalid");
}
