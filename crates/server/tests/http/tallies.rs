//! Tallies by hour and by day.

use crate::test_server::TestServer;
use serde_json::{Value, json};

async fn finish(server: &TestServer, tags: Value, verb: &str) {
    server.submit("jobs", json!([{"tags": tags}])).await;
    let item = server.receive("jobs").await;
    server.act(item["id"].as_str().unwrap(), verb, json!({"lease": item["lease"]})).await.success();
}

/// Rows without their time.
fn counted(answer: &Value) -> Vec<Value> {
    let rows = answer["rows"].as_array().unwrap().clone();
    let strip = |mut row: Value| {
        let from = row.as_object_mut().unwrap().remove("from").unwrap();
        assert!(from.as_str().unwrap().ends_with(":00:00.000Z"), "{from}");
        row
    };
    rows.into_iter().map(strip).collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn a_tally_counts_by_hour_day_and_tag() {
    let server = TestServer::start().await;
    server.queue("jobs", json!({"tally_tags": ["team"]})).await;
    let path = "/v1/queues/jobs/tally";
    assert_eq!(server.get(path).await.success(), json!({"by": "hour", "rows": []}));
    for (team, verb) in [("a", "commit"), ("b", "fail"), ("a", "commit")] {
        finish(&server, json!({"team": team, "user": "u"}), verb).await;
    }
    finish(&server, json!({}), "commit").await;
    let none = json!({"completed": 0, "failed": 0, "explicit": 0, "retries_exhausted": 0, "expired": 0,
        "cancelled": 0, "poison": 0});
    let row = |changes: Value| {
        let mut row = none.clone();
        row.as_object_mut().unwrap().extend(changes.as_object().unwrap().clone());
        row
    };
    let all = server.get(&format!("{path}?by=day")).await.success();
    assert_eq!(all["by"], "day");
    // The hour may have changed meanwhile, and the day with it.
    let sum = |name: &str| counted(&all).iter().map(|row| row[name].as_u64().unwrap()).sum::<u64>();
    assert_eq!((sum("completed"), sum("failed"), sum("explicit")), (3, 1, 1));
    let by_tag = server.get(&format!("{path}?by=day&tag=team&from=2000-01-01T00:00:00Z")).await.success();
    assert_eq!(by_tag["tag"], "team");
    if counted(&by_tag).len() == 2 {
        let a = row(json!({"value": "a", "completed": 2}));
        let b = row(json!({"value": "b", "failed": 1, "explicit": 1}));
        assert_eq!(counted(&by_tag), [a, b]);
    }
    assert_eq!(server.get(&format!("{path}?to=2000-01-01T00:00:00Z")).await.success()["rows"], json!([]));
    // The tally stays after the items are deleted.
    server.delete("/v1/queues/jobs/items?state=all").await.success();
    assert_eq!(server.get(&format!("{path}?by=day")).await.success(), all);
    let server = server.restart().await;
    assert_eq!(server.get(&format!("{path}?by=day")).await.success(), all);
}

#[tokio::test(flavor = "multi_thread")]
async fn invalid_tally_requests_are_rejected() {
    let server = TestServer::start().await;
    server.queue("jobs", json!({"tally_tags": ["team"]})).await;
    for (query, expected) in [
        ("by=minute", "use hour or day"),
        ("from=2030-01-02T00:00:00Z&to=2030-01-01T00:00:00Z", "is not before"),
        ("from=yesterday", "yesterday"),
        ("tag=user", "does not count by"),
        ("tag=", "0 bytes"),
        ("since=1d", "since"),
    ] {
        let detail = server.get(&format!("/v1/queues/jobs/tally?{query}")).await.problem("invalid");
        assert!(detail.contains(expected), "{query}: {detail}");
    }
    assert_eq!(server.get("/v1/queues/jobs/tally?tag=team").await.success()["rows"], json!([]));
    server.get("/v1/queues/missing/tally").await.problem("queue_not_found");
    let tags = json!({"policy": {"tally_tags": ["a", "b", "c", "d", "e"]}});
    let detail = server.put("/v1/queues/many", tags).await.problem("invalid");
    assert!(detail.contains("tally_tags") && detail.contains("at most 4"), "{detail}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_tally_counts_by_two_tags_together() {
    let server = TestServer::start().await;
    // In any order.
    server.queue("jobs", json!({"tally_tags": ["type+team"], "tally_values_max": 2})).await;
    let policy = server.get("/v1/queues/jobs").await.success()["policy"].clone();
    assert_eq!((&policy["tally_tags"], &policy["tally_values_max"]), (&json!(["team+type"]), &json!(2)));
    for (team, kind) in [("red", "build"), ("red", "test"), ("red", "build"), ("blue", "build")] {
        finish(&server, json!({"team": team, "type": kind}), "commit").await;
    }
    let answers = ["tag=team&tag=type", "tag=type&tag=team", "tag=team%2Btype"].map(|query| {
        let path = format!("/v1/queues/jobs/tally?by=day&{query}");
        let server = &server;
        async move { server.get(&path).await.success() }
    });
    for answer in futures::future::join_all(answers).await {
        assert_eq!(answer["tag"], "team+type");
        let rows = answer["rows"].as_array().unwrap();
        let of = |team: &str, kind: &str| {
            let values = json!({"team": team, "type": kind});
            rows.iter()
                .filter(|row| row["values"] == values)
                .map(|row| row["completed"].as_u64().unwrap())
                .sum::<u64>()
        };
        let rest: u64 = rows
            .iter()
            .filter(|row| row.get("values").is_none())
            .map(|row| row["completed"].as_u64().unwrap())
            .sum();
        assert!(rows.iter().all(|row| row.get("value").is_none()), "{answer}");
        // The hour may have changed meanwhile: then each hour has two values of its own.
        assert_eq!(of("red", "build"), 2, "{answer}");
        assert_eq!(of("red", "build") + of("red", "test") + of("blue", "build") + rest, 4, "{answer}");
    }
    for (query, expected) in [
        ("tag=team", "does not count by \"team\""),
        ("tag=a&tag=b&tag=c", "3 tags; use one or two"),
        ("tag=team&tag=", "0 bytes"),
    ] {
        let detail = server.get(&format!("/v1/queues/jobs/tally?{query}")).await.problem("invalid");
        assert!(detail.contains(expected), "{query}: {detail}");
    }
    for (policy, expected) in [
        (json!({"tally_tags": ["a+b+c"]}), "more than two tags"),
        (json!({"tally_tags": ["a+a"]}), "twice"),
        (json!({"tally_values_max": 0}), "use 1 to 1000"),
        (json!({"tally_values_max": 1001}), "use 1 to 1000"),
    ] {
        let detail = server.put("/v1/queues/more", json!({"policy": policy})).await.problem("invalid");
        assert!(detail.contains(expected), "{detail}");
    }
}
