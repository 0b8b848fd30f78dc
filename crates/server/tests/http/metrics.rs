//! Figures for Prometheus.

use crate::rig::Rig;
use serde_json::json;
use std::collections::HashMap;

/// Each line's name with its labels, and its value.
async fn figures(rig: &Rig) -> HashMap<String, f64> {
    let answer = rig.get("/metrics").await;
    assert_eq!(answer.status.as_u16(), 200);
    let text = String::from_utf8(answer.body.to_vec()).unwrap();
    let lines = text.lines().filter(|line| !line.starts_with('#'));
    lines
        .map(|line| {
            let (name, value) = line.rsplit_once(' ').unwrap_or_else(|| panic!("{line}"));
            (name.to_owned(), value.parse().unwrap_or_else(|_| panic!("{line}")))
        })
        .collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn what_was_done_is_counted() {
    let rig = Rig::start().await;
    rig.queue("jobs", json!({})).await;
    rig.submit("jobs", json!([{}, {}, {"delay": "1h"}, {"idempotency_key": "k"}])).await;
    rig.submit("jobs", json!([{"idempotency_key": "k"}])).await;
    let (id, lease) = rig.hold("jobs").await;
    rig.act(&id, "heartbeat", json!({"lease": lease})).await.good();
    rig.act(&id, "commit", json!({"lease": lease})).await.good();
    rig.act(&id, "fail", json!({"lease": lease})).await.refused("already_settled");
    let seen = figures(&rig).await;
    let state = |state: &str| seen[&format!("towline_items{{queue=\"jobs\",state=\"{state}\"}}")];
    for (name, value) in [
        ("towline_items_submitted_total", 5.0),
        ("towline_items_received_total", 1.0),
        ("towline_refusals_total", 1.0),
        ("towline_lease_calls_total{verb=\"heartbeat\"}", 1.0),
        ("towline_lease_calls_total{verb=\"commit\"}", 1.0),
        ("towline_lease_calls_total{verb=\"fail\"}", 1.0),
        ("towline_lease_calls_total{verb=\"defer\"}", 0.0),
        ("towline_collected_total{kind=\"output\"}", 0.0),
        ("towline_store_items", 5.0),
        ("towline_store_queues", 1.0),
        ("towline_store_full", 0.0),
        (
            "towline_http_requests_total{method=\"POST\",route=\"/v1/queues/{queue}/items\",status=\"200\"}",
            3.0,
        ),
        ("towline_http_requests_total{method=\"POST\",route=\"/v1/items/{id}/{verb}\",status=\"409\"}", 1.0),
    ] {
        assert_eq!(seen.get(name), Some(&value), "{name}: {seen:?}");
    }
    assert_eq!((state("pending"), state("scheduled"), state("completed")), (3.0, 1.0, 1.0));
    assert!(seen["towline_store_syncs_total"] > 0.0 && seen["towline_store_written_bytes_total"] > 0.0);
    assert!(seen["process_resident_memory_bytes"] > 0.0);
}

#[tokio::test(flavor = "multi_thread")]
async fn what_a_client_makes_up_is_not_kept() {
    let rig = Rig::start().await;
    for n in 0..50 {
        rig.get(&format!("/made/up/{n}")).await;
    }
    let seen = figures(&rig).await;
    let made_up = "towline_http_requests_total{method=\"GET\",route=\"none\",status=\"404\"}";
    assert_eq!(seen.get(made_up), Some(&50.0), "{seen:?}");
    assert!(seen.keys().all(|name| !name.contains("made/up")));
}
