//! Metrics for Prometheus.

use crate::test_server::TestServer;
use serde_json::json;
use std::collections::HashMap;

/// Maps each metric with its labels to its value.
async fn figures(server: &TestServer) -> HashMap<String, f64> {
    let answer = server.get("/metrics").await;
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

/// Receives the ready items.
async fn take(server: &TestServer) -> (String, String) {
    let item = server.receive("jobs").await;
    let text = |name: &str| item[name].as_str().unwrap().to_owned();
    (text("id"), text("lease"))
}

/// Polls until the condition holds.
async fn figures_once(
    server: &TestServer,
    is_so: impl Fn(&HashMap<String, f64>) -> bool,
) -> HashMap<String, f64> {
    loop {
        let seen = figures(server).await;
        if is_so(&seen) {
            return seen;
        }
        tokio::time::sleep(std::time::Duration::from_millis(5)).await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn metrics_count_operations() {
    let server = TestServer::start().await;
    server.queue("jobs", json!({})).await;
    server.submit("jobs", json!([{}, {}, {"delay": "1h"}, {"idempotency_key": "k"}])).await;
    server.submit("jobs", json!([{"idempotency_key": "k"}])).await;
    let (id, lease) = server.hold("jobs").await;
    server.act(&id, "heartbeat", json!({"lease": lease})).await.success();
    server.act(&id, "commit", json!({"lease": lease})).await.success();
    server.act(&id, "fail", json!({"lease": lease})).await.problem("already_settled");
    let seen = figures(&server).await;
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
async fn metrics_count_results_and_retries() {
    let server = TestServer::start().await;
    server.queue("jobs", json!({"max_retries": 1, "backoff": "none"})).await;
    server.submit("jobs", json!([{}])).await;
    let (id, lease) = take(&server).await;
    server.act(&id, "retry", json!({"lease": lease, "error": "busy", "delay": 0})).await.success();
    let (id, lease) = take(&server).await;
    server.act(&id, "retry", json!({"lease": lease, "error": "busy"})).await.success();
    server.submit("jobs", json!([{}, {}])).await;
    let (id, lease) = take(&server).await;
    server.act(&id, "fail", json!({"lease": lease})).await.success();
    let (id, lease) = take(&server).await;
    server.act(&id, "commit", json!({"lease": lease})).await.success();
    server.submit("jobs", json!([{"expire_after": "5ms"}])).await;
    // Without any request: the sweeper does it.
    let expired = "towline_items_failed_total{kind=\"expired\"}";
    let seen = figures_once(&server, |seen| seen[expired] > 0.0).await;
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
async fn metrics_show_the_age_of_the_oldest_ready_item() {
    let server = TestServer::start().await;
    server.queue("jobs", json!({})).await;
    let oldest = "towline_oldest_ready_seconds{queue=\"jobs\"}";
    server.submit("jobs", json!([{"delay": "1h"}])).await;
    assert_eq!(figures(&server).await.get(oldest), Some(&0.0));
    assert!(server.get("/v1/queues/jobs").await.success()["oldest_ready_at"].is_null());
    let ids = server.submit("jobs", json!([{}])).await;
    figures_once(&server, |seen| seen[oldest] > 0.0).await;
    let shown = server.get("/v1/queues/jobs").await.success();
    assert_eq!(shown["oldest_ready_at"], server.item(&ids[0]).await["ready_at"], "{shown}");
    take(&server).await;
    assert_eq!(figures(&server).await.get(oldest), Some(&0.0));
    server.queue("scored", json!({"order": "score"})).await;
    assert!(figures(&server).await.keys().all(|name| !name.contains("oldest_ready_seconds{queue=\"scored")));
}

#[tokio::test(flavor = "multi_thread")]
async fn invented_methods_and_paths_create_no_time_series() {
    let server = TestServer::start().await;
    for n in 0..50 {
        server.get(&format!("/made/up/{n}")).await;
    }
    let seen = figures(&server).await;
    let made_up = "towline_http_requests_total{method=\"GET\",route=\"none\",status=\"404\"}";
    assert_eq!(seen.get(made_up), Some(&50.0), "{seen:?}");
    assert!(seen.keys().all(|name| !name.contains("made/up")));
}

const ALERTS: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/prometheus-alerts.yaml");
const PAGE: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/metrics.md");

/// The names of metrics in a text.
fn names(text: &str) -> std::collections::BTreeSet<String> {
    let words = text.split(|c: char| !c.is_ascii_alphanumeric() && c != '_');
    words.filter(|word| word.starts_with("towline_")).map(str::to_owned).collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn every_metric_of_an_alert_exists() {
    let server = TestServer::start().await;
    server.queue("jobs", json!({})).await;
    server.submit("jobs", json!([{}])).await;
    let answer = server.get("/metrics").await;
    let exported = names(std::str::from_utf8(&answer.body).unwrap());
    let page = names(&std::fs::read_to_string(PAGE).unwrap());
    let rules = std::fs::read_to_string(ALERTS).unwrap();
    let expressions: Vec<&str> =
        rules.lines().filter_map(|line| line.trim().strip_prefix("expr: ")).collect();
    assert_eq!(expressions.len(), rules.matches("- alert: ").count());
    let mut used = 0;
    for name in expressions.iter().flat_map(|expression| names(expression)) {
        // A server with one store has no shards; a test with two databases asks for these.
        let is_of_shards = name.starts_with("towline_shard_");
        assert!(exported.contains(&name) != is_of_shards, "{name} is in an alert, and not in /metrics");
        let described = name.trim_end_matches("_bucket");
        assert!(page.contains(described), "{name} is in an alert, and not in docs/metrics.md");
        used += 1;
    }
    assert!(used > 15, "{used}");
}

#[tokio::test(flavor = "multi_thread")]
async fn metrics_show_damage_and_the_clock() {
    let server = TestServer::start().await;
    server.queue("jobs", json!({})).await;
    let ids = server.submit("jobs", json!([{"payload_text": "a payload to be damaged"}])).await;
    let seen = figures(&server).await;
    assert_eq!((seen["towline_store_damaged"], seen["towline_clock_steps_cut_total"]), (0.0, 0.0));
    // Its store is new, so it has the machine's time.
    assert!(seen["towline_clock_ahead_seconds"].abs() < 60.0, "{seen:?}");
    let show = format!("/v1/items/{}?fields=payload", ids[0]);
    server.get(&show).await.success();
    server.damage_log(b"a payload to be damaged");
    server.get(&show).await.problem("damaged");
    assert_eq!(figures(&server).await["towline_store_damaged"], 1.0);
}

#[tokio::test(flavor = "multi_thread")]
async fn metrics_show_the_room_on_the_disks() {
    let server = TestServer::start().await;
    let seen = figures(&server).await;
    for place in ["data", "buffers"] {
        let figure = |name: &str| seen[&format!("towline_disk_{name}_bytes{{place=\"{place}\"}}")];
        assert!(figure("available") > 0.0 && figure("available") <= figure("size"), "{seen:?}");
    }
}
