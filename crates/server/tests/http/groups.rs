//! Groups are shown, waited for and cancelled; items wait for others.

use crate::rig::Rig;
use http::Method;
use serde_json::{Value, json};

async fn take(rig: &Rig) -> (String, String) {
    let received = rig.post("/v1/queues/jobs/receive", json!({"wait": "20s"})).await.good();
    let text = |name: &str| received["items"][0][name].as_str().unwrap().to_owned();
    (text("id"), text("lease"))
}

async fn group(rig: &Rig, name: &str) -> Value {
    rig.get(&format!("/v1/groups/{name}")).await.good()
}

fn stands(shown: &Value) -> [u64; 5] {
    ["members", "unfinished", "completed", "failed", "removed"].map(|name| shown[name].as_u64().unwrap())
}

#[tokio::test(flavor = "multi_thread")]
async fn a_group_spans_queues_and_is_cancelled_whole() {
    let rig = Rig::start().await;
    rig.queue("jobs", json!({})).await;
    rig.queue("others", json!({})).await;
    // Any text is a name.
    let (name, path) = ("b/7 & é", "b%2F7%20%26%20%C3%A9");
    assert_eq!(group(&rig, path).await["done"], false);
    rig.submit("jobs", json!([{"group": name}, {"group": name}, {}])).await;
    rig.submit("others", json!([{"group": name}])).await;
    let shown = group(&rig, path).await;
    assert_eq!((shown["group"].as_str(), stands(&shown)), (Some(name), [3, 3, 0, 0, 0]));
    let (id, lease) = take(&rig).await;
    rig.act(&id, "commit", json!({"lease": lease, "output_params": {"pages": 3}})).await.good();
    let cancel = format!("/v1/groups/{path}/cancel");
    let dry = rig.call(Method::POST, &format!("{cancel}?dry_run=true"), None).await.good();
    assert_eq!((&dry["matched"], &dry["done"]), (&json!(2), &json!(0)));
    let done = rig.call(Method::POST, &format!("{cancel}?reason=enough"), None).await.good();
    assert_eq!((&done["done"], &done["next"]), (&json!(2), &Value::Null));
    let shown = rig.get(&format!("/v1/groups/{path}/wait?timeout=20s&expect=3")).await.good();
    assert_eq!((&shown["done"], stands(&shown)), (&json!(true), [3, 0, 1, 2, 0]));
    let members = rig.get(&format!("/v1/items?group={path}")).await.good();
    let members = members["items"].as_array().unwrap();
    assert_eq!(members.len(), 3);
    let completed = members.iter().find(|item| item["state"] == "completed").unwrap();
    assert_eq!(completed["output_params"]["pages"], 3);
    let cancelled = members.iter().find(|item| item["queue"] == "others").unwrap();
    assert_eq!(cancelled["errors"][0]["message"], "enough");
    // The one that is in no group is still there.
    take(&rig).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn an_item_waits_for_others_and_says_for_whom() {
    let rig = Rig::start().await;
    rig.queue("jobs", json!({})).await;
    let last = rig.submit("jobs", json!([{"after": {"group": "g", "expect": 2}}])).await[0].clone();
    let first = rig.submit("jobs", json!([{"group": "g"}, {"group": "g"}])).await;
    let end = rig.submit("jobs", json!([{"after": {"items": [first[0], last], "when": "all-done"}}])).await;
    let shown = rig.get(&format!("/v1/items/{last}")).await.good();
    assert_eq!(shown["state"], "waiting");
    assert_eq!(shown["after"], json!({"group": "g", "expect": 2, "when": "all-success"}));
    for verb in ["pause", "resume"] {
        let refused = rig.call(Method::POST, &format!("/v1/items/{last}/{verb}"), None).await;
        refused.refused("wrong_state");
    }
    for _ in 0..2 {
        let (id, lease) = take(&rig).await;
        rig.act(&id, "commit", json!({"lease": lease})).await.good();
    }
    let (id, lease) = take(&rig).await;
    assert_eq!(id, last);
    let waits = rig.get(&format!("/v1/items/{}", end[0])).await.good();
    assert_eq!(waits["after"], json!({"items": [last], "when": "all-done"}), "the other has ended");
    rig.act(&id, "fail", json!({"lease": lease, "reason": "no"})).await.good();
    assert_eq!(take(&rig).await.0, end[0]);
}

#[tokio::test(flavor = "multi_thread")]
async fn what_cannot_be_waited_for_is_refused_by_itself() {
    let rig = Rig::start().await;
    rig.queue("jobs", json!({})).await;
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
    let answers = rig.post("/v1/queues/jobs/items", json!({"items": items})).await.good();
    let answers = answers["items"].as_array().unwrap();
    assert!(answers[0]["id"].is_string());
    for answer in &answers[1..] {
        assert_eq!(answer["error"]["code"], "invalid", "{answer}");
        assert!(answer.to_string().contains("after"), "{answer}");
    }
    assert!(answers[1].to_string().contains(unknown), "{}", answers[1]);
    rig.get(&format!("/v1/groups/{}", "x".repeat(256))).await.refused("invalid");
    rig.get("/v1/groups/g/wait?timeout=6m").await.refused("invalid");
    rig.get("/v1/groups/g/wait?expect=99999999999999").await.refused("invalid");
    rig.get("/v1/groups/g?wait=1s").await.refused("invalid");
}

#[tokio::test(flavor = "multi_thread")]
async fn events_are_told_of_a_group_alone() {
    let rig = Rig::start().await;
    rig.queue("jobs", json!({})).await;
    let made = rig.submit("jobs", json!([{"group": "g"}, {}, {"group": "h"}])).await;
    let path = "/v1/events?after=oldest&group=g&group=nobody";
    let told = rig.send_bytes(Method::GET, path, &[("accept", "application/json")], "").await.good();
    let told = told["events"].as_array().unwrap();
    assert_eq!(told.len(), 1);
    assert_eq!(told[0]["item"], made[0]);
}
