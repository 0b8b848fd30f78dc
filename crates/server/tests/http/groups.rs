//! Groups are shown, waited for and cancelled. Items wait for dependencies.

use crate::test_server::TestServer;
use http::Method;
use serde_json::{Value, json};

async fn take(server: &TestServer) -> (String, String) {
    let received = server.post("/v1/queues/jobs/receive", json!({"wait": "20s"})).await.success();
    let text = |name: &str| received["items"][0][name].as_str().unwrap().to_owned();
    (text("id"), text("lease"))
}

async fn group(server: &TestServer, name: &str) -> Value {
    server.get(&format!("/v1/groups/{name}")).await.success()
}

fn counts(shown: &Value) -> [u64; 5] {
    ["members", "unfinished", "completed", "failed", "removed"].map(|name| shown[name].as_u64().unwrap())
}

#[tokio::test(flavor = "multi_thread")]
async fn a_group_spans_queues_and_is_cancelled_as_a_whole() {
    let server = TestServer::start().await;
    server.queue("jobs", json!({})).await;
    server.queue("second", json!({})).await;
    // Any text can be a group name.
    let (name, path) = ("b/7 & é", "b%2F7%20%26%20%C3%A9");
    assert_eq!(group(&server, path).await["done"], false);
    server.submit("jobs", json!([{"group": name}, {"group": name}, {}])).await;
    server.submit("second", json!([{"group": name}])).await;
    let shown = group(&server, path).await;
    assert_eq!((shown["group"].as_str(), counts(&shown)), (Some(name), [3, 3, 0, 0, 0]));
    let (id, lease) = take(&server).await;
    server.act(&id, "commit", json!({"lease": lease, "output_params": {"pages": 3}})).await.success();
    let cancel = format!("/v1/groups/{path}/cancel");
    let dry = server.call(Method::POST, &format!("{cancel}?dry_run=true"), None).await.success();
    assert_eq!((&dry["matched"], &dry["done"]), (&json!(2), &json!(0)));
    let done = server.post(&cancel, json!({"reason": "enough"})).await.success();
    assert_eq!((&done["done"], &done["next"]), (&json!(2), &Value::Null));
    let shown = server.get(&format!("/v1/groups/{path}/wait?timeout=20s&expect=3")).await.success();
    assert_eq!((&shown["done"], counts(&shown)), (&json!(true), [3, 0, 1, 2, 0]));
    let members = server.get(&format!("/v1/items?group={path}")).await.success();
    let members = members["items"].as_array().unwrap();
    assert_eq!(members.len(), 3);
    let completed = members.iter().find(|item| item["state"] == "completed").unwrap();
    assert_eq!(completed["output_params"]["pages"], 3);
    let cancelled = members.iter().find(|item| item["queue"] == "second").unwrap();
    assert_eq!(cancelled["errors"][0]["message"], "enough");
    // The item without a group stays.
    take(&server).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn an_item_waits_for_its_dependencies_and_shows_them() {
    let server = TestServer::start().await;
    server.queue("jobs", json!({})).await;
    let last = server.submit("jobs", json!([{"after": {"group": "g", "expect": 2}}])).await[0].clone();
    let first = server.submit("jobs", json!([{"group": "g"}, {"group": "g"}])).await;
    let end =
        server.submit("jobs", json!([{"after": {"items": [first[0], last], "when": "all-done"}}])).await;
    let shown = server.get(&format!("/v1/items/{last}")).await.success();
    assert_eq!(shown["state"], "waiting");
    assert_eq!(shown["after"], json!({"group": "g", "expect": 2, "when": "all-success"}));
    for verb in ["pause", "resume"] {
        let refused = server.call(Method::POST, &format!("/v1/items/{last}/{verb}"), None).await;
        refused.problem("wrong_state");
    }
    for _ in 0..2 {
        let (id, lease) = take(&server).await;
        server.act(&id, "commit", json!({"lease": lease})).await.success();
    }
    let (id, lease) = take(&server).await;
    assert_eq!(id, last);
    let waits = server.get(&format!("/v1/items/{}", end[0])).await.success();
    assert_eq!(waits["after"], json!({"items": [last], "when": "all-done"}), "the dependency is terminal");
    server.act(&id, "fail", json!({"lease": lease, "reason": "no"})).await.success();
    assert_eq!(take(&server).await.0, end[0]);
}

#[tokio::test(flavor = "multi_thread")]
async fn an_invalid_dependency_is_refused_per_item() {
    let server = TestServer::start().await;
    server.queue("jobs", json!({})).await;
    let unknown = "018f4e7e-2b3c-7def-8abc-0123456789ab";
    let many: Vec<&str> = vec![unknown; 2];
    let items = json!([
        {},
        {"after": {"items": many}},
        {"after": {}},
        {"after": {"group": "g", "when": "soon"}},
        {"after": {"group": "g"}, "group": "g"},
        {"after": {"group": "x".repeat(256)}},
        {"after": {"group": "g", "count": 0}},
    ]);
    let answers = server.post("/v1/queues/jobs/items", json!({"items": items})).await.success();
    let answers = answers["items"].as_array().unwrap();
    assert!(answers[0]["id"].is_string());
    for answer in &answers[1..] {
        assert_eq!(answer["error"]["code"], "invalid", "{answer}");
        assert!(answer.to_string().contains("after"), "{answer}");
    }
    assert!(answers[1].to_string().contains(unknown), "{}", answers[1]);
    server.get(&format!("/v1/groups/{}", "x".repeat(256))).await.problem("invalid");
    server.get("/v1/groups/g/wait?timeout=6m").await.problem("invalid");
    server.get("/v1/groups/g/wait?expect=99999999999999").await.problem("invalid");
    server.get("/v1/groups/g?wait=1s").await.problem("invalid");
}

#[tokio::test(flavor = "multi_thread")]
async fn events_can_be_filtered_by_group() {
    let server = TestServer::start().await;
    server.queue("jobs", json!({})).await;
    let made = server.submit("jobs", json!([{"group": "g"}, {}, {"group": "h"}])).await;
    let path = "/v1/events?after=oldest&group=g&group=missing";
    let events = server.send_bytes(Method::GET, path, &[("accept", "application/json")], "").await.success();
    let events = events["events"].as_array().unwrap();
    assert_eq!(events.len(), 1);
    assert_eq!(events[0]["item"], made[0]);
}
