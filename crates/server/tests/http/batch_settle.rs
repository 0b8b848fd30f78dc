//! Batches of calls of lease holders: each gets its own result.

use crate::test_server::TestServer;
use serde_json::{Value, json};

#[tokio::test(flavor = "multi_thread")]
async fn a_batch_may_mix_verbs_and_invalid_elements() {
    let server = TestServer::start().await;
    server.queue("jobs", json!({})).await;
    server.submit("jobs", json!(vec![json!({}); 8])).await;
    let held = server.post("/v1/queues/jobs/receive", json!({"max": 8})).await.success();
    let item = |n: usize, verb: &str| json!({"verb": verb, "id": held["items"][n]["id"], "lease": held["items"][n]["lease"]});
    let with = |mut action: Value, name: &str, value: Value| {
        action[name] = value;
        action
    };
    let without = |mut action: Value, name: &str| {
        action.as_object_mut().unwrap().remove(name);
        action
    };
    let unknown = "01890000-0000-7000-8000-000000000000";
    let cases = [
        (item(0, "commit"), Ok("completed")),
        (item(0, "commit"), Ok("completed")),
        (item(0, "fail"), Err("already_settled")),
        (item(1, "heartbeat"), Ok("processing")),
        (with(item(1, "edit"), "set", json!({"payload": "YQ=="})), Ok("processing")),
        (with(item(1, "retry"), "reason", json!("again")), Ok("pending")),
        (item(2, "fail"), Ok("failed")),
        (item(3, "release"), Ok("pending")),
        (with(item(4, "defer"), "delay", json!("1h")), Ok("pending")),
        (with(item(5, "commit"), "lease", json!("garbage")), Err("lease_lost")),
        (with(item(5, "commit"), "lease", held["items"][6]["lease"].clone()), Err("lease_lost")),
        (with(item(5, "commit"), "id", json!("no-id")), Err("invalid")),
        (with(item(5, "commit"), "id", json!(unknown)), Err("item_not_found")),
        (with(item(5, "commit"), "reason", json!("x")), Err("invalid")),
        (with(item(5, "commit"), "verb", json!("comit")), Err("invalid")),
        (without(item(5, "commit"), "verb"), Err("invalid")),
        (without(item(5, "commit"), "id"), Err("invalid")),
        (without(item(5, "commit"), "lease"), Err("invalid")),
        (json!({}), Err("invalid")),
        (item(7, "commit"), Ok("completed")),
    ];
    let actions: Vec<&Value> = cases.iter().map(|(action, _)| action).collect();
    let answer = server.post("/v1/settle", json!({"actions": actions})).await.success();
    let results = answer["results"].as_array().unwrap();
    assert_eq!(results.len(), cases.len());
    for (result, (action, expected)) in results.iter().zip(&cases) {
        assert_eq!(result.get("id"), action.get("id"), "{action}: {result}");
        match expected {
            Ok(state) => assert_eq!(
                (&result["state"], result.get("error")),
                (&json!(state), None),
                "{action}: {result}"
            ),
            Err(code) => assert_eq!(
                (&result["error"]["code"], result.get("state")),
                (&json!(code), None),
                "{action}: {result}"
            ),
        }
    }
    let message = results[14]["error"]["message"].as_str().unwrap();
    assert!(message.contains("comit") && message.contains("commit"), "{message}");
    assert_eq!(server.item(held["items"][5]["id"].as_str().unwrap()).await["state"], "processing");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_batch_has_at_most_ten_thousand_elements() {
    let server = TestServer::start().await;
    server.queue("jobs", json!({})).await;
    server.submit("jobs", json!(vec![json!({}); 10_000])).await;
    let held = server.post("/v1/queues/jobs/receive", json!({"max": 10_000})).await.success();
    let mut actions: Vec<Value> = held["items"]
        .as_array()
        .unwrap()
        .iter()
        .map(|item| json!({"verb": "commit", "id": item["id"], "lease": item["lease"]}))
        .collect();
    assert_eq!(actions.len(), 10_000);
    actions.push(actions[0].clone());
    server.post("/v1/settle", json!({"actions": actions})).await.problem("too_large");
    actions.pop();
    let answer = server.post("/v1/settle", json!({"actions": actions})).await.success();
    assert!(answer["results"].as_array().unwrap().iter().all(|result| result["state"] == "completed"));
    assert_eq!(server.counts("jobs").await["completed"], 10_000);
    assert_eq!(server.post("/v1/settle", json!({"actions": []})).await.success(), json!({"results": []}));
}
