//! Metrics for Prometheus.

use crate::app::App;
use crate::auth::{TokenStore, VALID_MAX};
use crate::response::ProblemResponse;
use crate::traces::SpanCounts;
use axum::extract::{MatchedPath, Request, State};
use axum::middleware::Next;
use axum::response::Response;
use parking_lot::Mutex;
use prometheus::proto::{Bucket, Histogram, LabelPair, Metric, MetricFamily, MetricType};
use prometheus::{
    Encoder, Gauge, GaugeVec, HistogramOpts, HistogramVec, IntCounterVec, IntGauge, IntGaugeVec, Opts,
    Registry, TextEncoder,
};
use std::time::{Duration, Instant};
use towline_api::Code;
use towline_broker::{CALLS, LATENCY_BOUNDS, VERBS};
use towline_domain::id::SEQUENCE_ACCEPTED_MAX;
use towline_domain::{Counts, Ending, Millis, Order, Timestamp, limits};
use towline_store::{DurationHistogram, RetryReason, StoreMetrics};

/// Queues with metrics of their own. More would be too many time series for a monitoring system.
const QUEUES_MAX: usize = 1000;
/// Request durations in seconds. Requests that wait are the long ones.
const BUCKETS: [f64; 14] =
    [0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 5.0, 30.0, 300.0];

const TOKENS_COUNTED_EVERY: Millis = Millis::minutes(1);

#[derive(Debug)]
pub(crate) struct Metrics {
    registry: Registry,
    requests: IntCounterVec,
    seconds: HistogramVec,
    /// How many tokens are valid, and when they were counted.
    tokens: Mutex<Option<(Timestamp, u64)>>,
}

impl Metrics {
    pub(crate) fn new() -> Result<Metrics, prometheus::Error> {
        let registry = Registry::new();
        let requests = IntCounterVec::new(
            Opts::new("towline_http_requests_total", "Requests by method, route and status."),
            &["method", "route", "status"],
        )?;
        let seconds = HistogramVec::new(
            HistogramOpts::new(
                "towline_http_request_seconds",
                "Time from the head of a request to the head of its response, by method and route.",
            )
            .buckets(BUCKETS.to_vec()),
            &["method", "route"],
        )?;
        registry.register(Box::new(requests.clone()))?;
        registry.register(Box::new(seconds.clone()))?;
        registry.register(Box::new(prometheus::process_collector::ProcessCollector::for_self()))?;
        Ok(Metrics { registry, requests, seconds, tokens: Mutex::default() })
    }

    /// All metrics in the text format of Prometheus.
    pub(crate) async fn render(&self, app: &App) -> Result<Vec<u8>, ProblemResponse> {
        let snapshot = MetricsText::new();
        let metrics = app.broker.store().metrics().await?;
        snapshot.collect(app, &metrics).await?;
        let mut families = self.registry.gather();
        families.extend(snapshot.0.gather());
        families.extend(histograms(app, &metrics));
        let mut text = Vec::new();
        TextEncoder::new().encode(&families, &mut text).map_err(internal)?;
        Ok(text)
    }
}

impl Metrics {
    /// Counts them at most once in [`TOKENS_COUNTED_EVERY`], because that reads all tokens.
    async fn valid_tokens(&self, app: &App) -> Result<u64, ProblemResponse> {
        let now = app.now();
        let known = *self.tokens.lock();
        if let Some((at, count)) = known
            && now.since(at) < TOKENS_COUNTED_EVERY
        {
            return Ok(count);
        }
        let count = TokenStore::Broker(&app.broker).valid_tokens(now).await? as u64;
        *self.tokens.lock() = Some((now, count));
        Ok(count)
    }
}

fn by_state(counts: &Counts) -> [(&'static str, u64); 6] {
    [
        ("pending", counts.pending),
        ("scheduled", counts.scheduled),
        ("processing", counts.processing),
        ("paused", counts.paused),
        ("completed", counts.completed),
        ("failed", counts.failed),
    ]
}

fn internal(error: prometheus::Error) -> ProblemResponse {
    ProblemResponse::new(Code::Internal, error.to_string())
}

/// The histograms of the store and the broker.
fn histograms(app: &App, metrics: &StoreMetrics) -> [MetricFamily; 3] {
    let items = |name: &str, help: &str, durations: &DurationHistogram| {
        let bounds = DurationHistogram::BOUNDS_MS.map(Duration::from_millis);
        let sum = Duration::from_millis(durations.sum().0);
        histogram(name, help, vec![metric(None, &bounds, durations.counts(), sum)])
    };
    let latencies = CALLS.into_iter().zip(app.broker.latencies());
    let updates = latencies
        .map(|(call, latency)| metric(Some(("call", call)), &LATENCY_BOUNDS, &latency.counts, latency.sum));
    [
        items(
            "towline_item_wait_seconds",
            "Time from when an item was ready until it was delivered, per delivery.",
            &metrics.waited,
        ),
        items(
            "towline_item_run_seconds",
            "Time from a delivery until the lease holder settled it.",
            &metrics.ran,
        ),
        histogram(
            "towline_store_update_seconds",
            "Time until an update of the store was durable, by the first operation of its batch.",
            updates.collect(),
        ),
    ]
}

fn histogram(name: &str, help: &str, metrics: Vec<Metric>) -> MetricFamily {
    let mut family = MetricFamily::default();
    family.set_name(name.to_owned());
    family.set_help(help.to_owned());
    family.set_field_type(MetricType::HISTOGRAM);
    family.set_metric(metrics);
    family
}

/// `counts`: the count of each bucket, and of the values above the last bound.
fn metric(label: Option<(&str, &str)>, bounds: &[Duration], counts: &[u64], sum: Duration) -> Metric {
    let mut cumulative = 0;
    let buckets = bounds.iter().zip(counts).map(|(bound, count)| {
        cumulative += count;
        let mut bucket = Bucket::default();
        bucket.set_upper_bound(bound.as_secs_f64());
        bucket.set_cumulative_count(cumulative);
        bucket
    });
    let mut histogram = Histogram::default();
    histogram.set_bucket(buckets.collect());
    histogram.set_sample_count(counts.iter().sum());
    histogram.set_sample_sum(sum.as_secs_f64());
    let label = label.map(|(name, value)| {
        let mut label = LabelPair::default();
        label.set_name(name.to_owned());
        label.set_value(value.to_owned());
        label
    });
    let mut metric = Metric::from_label(label.into_iter().collect());
    metric.set_histogram(histogram);
    metric
}

/// The metrics that are read for each request of `/metrics`.
struct MetricsText(Registry);

impl MetricsText {
    fn new() -> MetricsText {
        MetricsText(Registry::new())
    }

    async fn collect(&self, app: &App, metrics: &StoreMetrics) -> Result<(), ProblemResponse> {
        let done = app.broker.operation_counts();
        self.counter(
            "towline_items_submitted_total",
            "Items submitted. Repeated submits with the same idempotency key are not counted.",
            done.submitted,
        )?;
        self.counter("towline_items_received_total", "Deliveries.", done.received)?;
        let swept = "Items changed by time: leases that lapsed, items that expired, items removed after their retention.";
        self.counter("towline_items_swept_total", swept, done.swept)?;
        self.counter("towline_refusals_total", "Operations that the store refused.", done.refused)?;
        let calls = VERBS.into_iter().zip(done.verbs);
        self.counters("towline_lease_calls_total", "Calls of lease holders, by verb.", "verb", calls)?;
        let completed = metrics.finished.get(Ending::Completed);
        self.counter("towline_items_completed_total", "Items that completed.", completed)?;
        let failed = Ending::ALL.into_iter().filter(|ending| *ending != Ending::Completed);
        let failed = failed.map(|ending| (ending.name(), metrics.finished.get(ending)));
        self.counters("towline_items_failed_total", "Items that failed, by kind.", "kind", failed)?;
        let retried = RetryReason::ALL.into_iter().map(|reason| (reason.name(), metrics.retried(reason)));
        let help = "Attempts that failed and are retried, by reason.";
        self.counters("towline_items_retried_total", help, "reason", retried)?;
        let collected = app.broker.collected();
        let removed = [
            ("output", collected.outputs),
            ("field", collected.fields),
            ("expired", collected.expired),
            ("orphan", collected.orphans),
        ];
        let help = "Objects removed from buffer storage: uncommitted outputs, payload fields without an item, expired \
                     buffers, and orphans.";
        self.counters("towline_collected_total", help, "kind", removed.into_iter())?;
        let rounds = [("complete", collected.rounds), ("stopped", collected.rounds_stopped)];
        let help = "Rounds of collection from buffer storage, by outcome: complete, or stopped by an error that the log names.";
        self.counters("towline_collection_rounds_total", help, "outcome", rounds.into_iter())?;
        if let Some(traces) = &app.traces {
            let SpanCounts { sent, dropped, lost } = traces.counts();
            let help = "Spans by outcome: sent, dropped because the queue was full, or lost because the collector did not accept them.";
            let spans = [("sent", sent), ("dropped", dropped), ("lost", lost)];
            self.counters("towline_spans_total", help, "outcome", spans.into_iter())?;
        }
        let followers = app.broker.followers() as u64;
        self.gauge("towline_event_followers", "Open event streams.", followers)?;
        self.clock(metrics)?;
        self.shards(app).await?;
        self.disks(app)?;
        self.limits(app).await?;
        self.queues(app).await?;
        self.store(app, metrics.damages).await
    }

    /// What the server holds of everything that has a limit, and the limit.
    async fn limits(&self, app: &App) -> Result<(), ProblemResponse> {
        let help = "Open connections, with the one that the server is ready to accept.";
        self.gauge("towline_connections", help, app.connections_taken() as u64)?;
        let help = "Maximum number of connections (connections_max).";
        self.gauge("towline_connections_max", help, app.connections_max as u64)?;
        let (taken, all) = app.body_room.bytes();
        self.gauge("towline_body_memory_bytes", "Memory of request bodies.", taken)?;
        let help = "Maximum memory of request bodies (bodies_bytes_max).";
        self.gauge("towline_body_memory_max_bytes", help, all)?;
        let help = "Valid tokens, counted at most once a minute.";
        self.gauge("towline_tokens", help, app.metrics.valid_tokens(app).await?)?;
        self.gauge("towline_tokens_max", "Maximum number of valid tokens.", VALID_MAX as u64)
    }

    fn clock(&self, metrics: &StoreMetrics) -> Result<(), ProblemResponse> {
        let help =
            "How far the store's time is ahead of the machine's clock, or PostgreSQL's. Negative: behind.";
        let ahead = Gauge::with_opts(Opts::new("towline_clock_ahead_seconds", help)).map_err(internal)?;
        ahead.set(metrics.clock.ahead_ms as f64 / 1000.0);
        self.0.register(Box::new(ahead)).map_err(internal)?;
        let help = "Steps of the store's time that were cut to 30 days because the clock was further ahead.";
        self.counter("towline_clock_steps_cut_total", help, metrics.clock.steps_cut)
    }

    async fn shards(&self, app: &App) -> Result<(), ProblemResponse> {
        let shards = app.shard_health();
        if shards.is_empty() {
            return Ok(());
        }
        let opts = Opts::new("towline_shard_up", "Whether a shard responds.");
        let up = IntGaugeVec::new(opts, &["shard"]).map_err(internal)?;
        for shard in &shards {
            up.with_label_values(&[shard.name.as_str()]).set(shard.down.is_none().into());
        }
        self.0.register(Box::new(up)).map_err(internal)?;
        let help = "Items by shard and state, in its first 1000 queues by name. Absent while the shard does not respond.";
        let items = IntGaugeVec::new(Opts::new("towline_shard_items", help), &["shard", "state"]);
        let items = items.map_err(internal)?;
        for (shard, counts) in app.shard_counts(QUEUES_MAX).await {
            for (state, count) in by_state(&counts) {
                items.with_label_values(&[shard.as_str(), state]).set(count.cast_signed());
            }
        }
        self.0.register(Box::new(items)).map_err(internal)
    }

    /// Room on the disks of the data directory and of the place for buffers. A directory that cannot be asked is left out.
    fn disks(&self, app: &App) -> Result<(), ProblemResponse> {
        let gauge =
            |name: &str, help: &str| IntGaugeVec::new(Opts::new(name, help), &["place"]).map_err(internal);
        let size = gauge("towline_disk_size_bytes", "Size of the file system of a place: data, buffers.")?;
        let help = "Free bytes that the server may use on the file system of a place: data, buffers.";
        let available = gauge("towline_disk_available_bytes", help)?;
        for (place, directory) in &app.disks {
            // A network file system may not answer for a while.
            let Ok(disk) = tokio::task::block_in_place(|| rustix::fs::statvfs(directory)) else { continue };
            let bytes = |blocks: u64| blocks.saturating_mul(disk.f_frsize).cast_signed();
            size.with_label_values(&[place]).set(bytes(disk.f_blocks));
            available.with_label_values(&[place]).set(bytes(disk.f_bavail));
        }
        self.0.register(Box::new(size)).map_err(internal)?;
        self.0.register(Box::new(available)).map_err(internal)
    }

    async fn queues(&self, app: &App) -> Result<(), ProblemResponse> {
        let opts = Opts::new("towline_items", "Items by queue and state, for the first 1000 queues by name.");
        let items = IntGaugeVec::new(opts, &["queue", "state"]).map_err(internal)?;
        let oldest = Opts::new(
            "towline_oldest_ready_seconds",
            "How long the oldest ready item has been ready, for the same queues. 0 if no item is ready.",
        );
        let oldest = GaugeVec::new(oldest, &["queue"]).map_err(internal)?;
        let now = app.now();
        let queues = app.broker.store().queues(None, QUEUES_MAX.min(limits::PAGE_MAX)).await?;
        for view in &queues {
            let counts = &view.counts;
            if !matches!(view.queue.policy.order, Order::Score(_)) {
                let waits = view.oldest_ready.map_or(Millis::ZERO, |since| now.since(since));
                let seconds = Duration::from_millis(waits.0).as_secs_f64();
                oldest.with_label_values(&[view.queue.name.as_str()]).set(seconds);
            }
            for (state, count) in by_state(counts) {
                items.with_label_values(&[view.queue.name.as_str(), state]).set(count.cast_signed());
            }
        }
        self.0.register(Box::new(oldest)).map_err(internal)?;
        self.0.register(Box::new(items)).map_err(internal)
    }

    async fn store(&self, app: &App, damages: u64) -> Result<(), ProblemResponse> {
        let embedded = match app.embedded() {
            Some(store) => Some((store.status().await?, store)),
            None => None,
        };
        let help = "Damage met since the start: failed reads, failed collection of the embedded store, and items whose \
                     offloaded payload is gone or damaged.";
        self.gauge("towline_store_damaged", help, app.broker.damaged() + damages)?;
        let Some((status, store)) = embedded else { return Ok(()) };
        self.counter("towline_store_syncs_total", "Syncs of the log.", store.syncs())?;
        self.counter("towline_store_written_bytes_total", "Bytes written to the log.", status.bytes_written)?;
        let carried = "Bytes written to the log by collection, to carry live records forward.";
        self.counter("towline_store_carried_bytes_total", carried, status.bytes_carried)?;
        self.gauge("towline_store_live_bytes", "Live bytes of the log.", status.live_bytes)?;
        let disk = (status.segments + status.segments_free) * status.segment_bytes;
        self.gauge("towline_store_disk_bytes", "Bytes of all segments, including free ones.", disk)?;
        self.gauge("towline_store_items", "Items in the store.", status.items)?;
        let help = "Bytes of all records: those of clients, tokens, schedules, groups.";
        self.gauge("towline_store_record_bytes", help, status.kv_bytes)?;
        self.gauge("towline_store_record_max_bytes", "Maximum bytes of all records.", status.kv_bytes_max)?;
        let help = "Item numbers that were given out. They are never used again.";
        self.gauge("towline_store_item_numbers", help, status.item_numbers)?;
        let help = "Item numbers after which the store accepts no more items.";
        self.gauge("towline_store_item_numbers_max", help, SEQUENCE_ACCEPTED_MAX)?;
        self.gauge("towline_store_queues", "Queues in the store.", status.queues)?;
        self.gauge(
            "towline_store_full",
            "Whether the store is full and refuses submits.",
            status.full.is_some().into(),
        )
    }

    fn gauge(&self, name: &str, help: &str, value: u64) -> Result<(), ProblemResponse> {
        let gauge = IntGauge::new(name, help).map_err(internal)?;
        gauge.set(value.cast_signed());
        self.0.register(Box::new(gauge)).map_err(internal)
    }

    fn counter(&self, name: &str, help: &str, value: u64) -> Result<(), ProblemResponse> {
        let counter = prometheus::IntCounter::new(name, help).map_err(internal)?;
        counter.inc_by(value);
        self.0.register(Box::new(counter)).map_err(internal)
    }

    fn counters(
        &self,
        name: &str,
        help: &str,
        label: &str,
        values: impl Iterator<Item = (&'static str, u64)>,
    ) -> Result<(), ProblemResponse> {
        let counters = IntCounterVec::new(Opts::new(name, help), &[label]).map_err(internal)?;
        for (value, count) in values {
            counters.with_label_values(&[value]).inc_by(count);
        }
        self.0.register(Box::new(counters)).map_err(internal)
    }
}

/// Counts and times every request.
#[expect(clippy::disallowed_methods, reason = "durations are only measured")]
pub(crate) async fn measure(State(app): State<App>, request: Request, next: Next) -> Response {
    let started = Instant::now();
    let route = request.extensions().get::<MatchedPath>().cloned();
    // Clients can invent any number of methods, and each would be a time series.
    let method = match request.method().as_str() {
        method @ ("GET" | "HEAD" | "PUT" | "POST" | "PATCH" | "DELETE" | "OPTIONS") => method.to_owned(),
        _ => "other".to_owned(),
    };
    let response = next.run(request).await;
    let route = route.as_ref().map_or("none", |route| route.as_str());
    let metrics = &app.metrics;
    metrics.requests.with_label_values(&[method.as_str(), route, response.status().as_str()]).inc();
    metrics.seconds.with_label_values(&[method.as_str(), route]).observe(started.elapsed().as_secs_f64());
    response
}
