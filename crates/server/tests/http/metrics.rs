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

/// Receives what is there.
async fn take(rig: &Rig) -> (String, String) {
    let item = rig.receive("jobs").await;
    let text = |name: &str| item[name].as_str().unwrap().to_owned();
    (text("id"), text("lease"))
}

/// Asks until it is so.
async fn figures_once(rig: &Rig, is_so: impl Fn(&HashMap<String, f64>) -> bool) -> HashMap<String, f64> {
    loop {
        let seen = figures(rig).await;
        if is_so(&seen) {
            return seen;
        }
        tokio::time::sleep(std::time::Duration::from_millis(5)).await;
    }
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
async fn how_items_ended_and_why_they_are_tried_again_is_counted() {
    let rig = Rig::start().await;
    rig.queue("jobs", json!({"max_retries": 1, "backoff": "none"})).await;
    rig.submit("jobs", json!([{}])).await;
    let (id, lease) = take(&rig).await;
    rig.act(&id, "retry", json!({"lease": lease, "error": "busy", "delay": 0})).await.good();
    let (id, lease) = take(&rig).await;
    rig.act(&id, "retry", json!({"lease": lease, "error": "busy"})).await.good();
    rig.submit("jobs", json!([{}, {}])).await;
    let (id, lease) = take(&rig).await;
    rig.act(&id, "fail", json!({"lease": lease})).await.good();
    let (id, lease) = take(&rig).await;
    rig.act(&id, "commit", json!({"lease": lease})).await.good();
    rig.submit("jobs", json!([{"expire_after": "5ms"}])).await;
    // Nobody asks: the sweeper does it.
    let expired = "towline_items_failed_total{kind=\"expired\"}";
    let seen = figures_once(&rig, |seen| seen[expired] > 0.0).await;
    for (name, value) in [
        ("towline_items_completed_total", 1.0),
        ("towline_items_failed_total{kind=\"retries_exhausted\"}", 1.0),
        ("towline_items_failed_total{kind=\"explicit\"}", 1.0),
        (expired, 1.0),
        ("towline_items_failed_total{kind=\"cancelled\"}", 0.0),
        ("towline_items_failed_total{kind=\"poison\"}", 0.0),
        ("towline_items_retried_total{reason=\"retried\"}", 1.0),
        ("towline_items_retried_total{reason=\"lapsed\"}", 0.0),
        ("towline_item_wait_seconds_count", 4.0),
        ("towline_item_wait_seconds_bucket{le=\"+Inf\"}", 4.0),
        ("towline_item_run_seconds_count", 4.0),
        ("towline_item_run_seconds_bucket{le=\"+Inf\"}", 4.0),
        ("towline_store_update_seconds_count{call=\"submit\"}", 3.0),
        ("towline_store_update_seconds_count{call=\"receive\"}", 4.0),
        ("towline_store_update_seconds_count{call=\"settle\"}", 4.0),
    ] {
        assert_eq!(seen.get(name), Some(&value), "{name}: {seen:?}");
    }
    assert!(seen["towline_store_update_seconds_sum{call=\"submit\"}"] > 0.0);
    assert!(seen["towline_store_update_seconds_count{call=\"sweep\"}"] > 0.0);
}

#[tokio::test(flavor = "multi_thread")]
async fn how_long_the_oldest_is_ready_is_told() {
    let rig = Rig::start().await;
    rig.queue("jobs", json!({})).await;
    let oldest = "towline_oldest_ready_seconds{queue=\"jobs\"}";
    rig.submit("jobs", json!([{"delay": "1h"}])).await;
    assert_eq!(figures(&rig).await.get(oldest), Some(&0.0));
    assert!(rig.get("/v1/queues/jobs").await.good()["oldest_ready_at"].is_null());
    let ids = rig.submit("jobs", json!([{}])).await;
    figures_once(&rig, |seen| seen[oldest] > 0.0).await;
    let shown = rig.get("/v1/queues/jobs").await.good();
    assert_eq!(shown["oldest_ready_at"], rig.item(&ids[0]).await["ready_at"], "{shown}");
    take(&rig).await;
    assert_eq!(figures(&rig).await.get(oldest), Some(&0.0));
    rig.queue("scored", json!({"order": "score"})).await;
    assert!(figures(&rig).await.keys().all(|name| !name.contains("oldest_ready_seconds{queue=\"scored")));
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
