//! StoreMetrics for Prometheus: what the server has done, what it holds, and how long requests took.

use crate::app::App;
use crate::refuse::Refused;
use crate::traces::Sent;
use axum::extract::{MatchedPath, Request, State};
use axum::middleware::Next;
use axum::response::Response;
use prometheus::proto::{Bucket, Histogram, LabelPair, Metric, MetricFamily, MetricType};
use prometheus::{
    Encoder, GaugeVec, HistogramOpts, HistogramVec, IntCounterVec, IntGauge, IntGaugeVec, Opts, Registry,
    TextEncoder,
};
use std::time::{Duration, Instant};
use towline_api::Code;
use towline_broker::{CALLS, LATENCY_BOUNDS, VERBS};
use towline_domain::{Ending, Millis, Order, limits};
use towline_store::{DurationHistogram, RetryReason, StoreMetrics};

/// Queues that are told one by one; a monitor that is told of more breaks down.
const QUEUES_TOLD_MAX: usize = 1000;
/// Of a request, in seconds. The long ones are those that wait.
const BUCKETS: [f64; 14] =
    [0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 5.0, 30.0, 300.0];

#[derive(Debug)]
pub(crate) struct Metrics {
    registry: Registry,
    requests: IntCounterVec,
    seconds: HistogramVec,
}

impl Metrics {
    pub(crate) fn new() -> Result<Metrics, prometheus::Error> {
        let registry = Registry::new();
        let requests = IntCounterVec::new(
            Opts::new("towline_http_requests_total", "Requests answered, by method, route and status."),
            &["method", "route", "status"],
        )?;
        let seconds = HistogramVec::new(
            HistogramOpts::new(
                "towline_http_request_seconds",
                "From a request's head to its answer's, by method and route.",
            )
            .buckets(BUCKETS.to_vec()),
            &["method", "route"],
        )?;
        registry.register(Box::new(requests.clone()))?;
        registry.register(Box::new(seconds.clone()))?;
        registry.register(Box::new(prometheus::process_collector::ProcessCollector::for_self()))?;
        Ok(Metrics { registry, requests, seconds })
    }

    /// Everything there is, as text.
    pub(crate) async fn tell(&self, app: &App) -> Result<Vec<u8>, Refused> {
        let now = Now::new();
        let figures = app.broker.store().metrics().await?;
        now.tell(app, &figures).await?;
        let mut families = self.registry.gather();
        families.extend(now.0.gather());
        families.extend(spans(app, &figures));
        let mut text = Vec::new();
        TextEncoder::new().encode(&families, &mut text).map_err(internal)?;
        Ok(text)
    }
}

fn internal(error: prometheus::Error) -> Refused {
    Refused::new(Code::Internal, error.to_string())
}

/// Histograms that others keep.
fn spans(app: &App, figures: &StoreMetrics) -> [MetricFamily; 3] {
    let items = |name: &str, help: &str, spans: &DurationHistogram| {
        let bounds = DurationHistogram::BOUNDS_MS.map(Duration::from_millis);
        let sum = Duration::from_millis(spans.sum().0);
        histogram(name, help, vec![metric(None, &bounds, spans.counts(), sum)])
    };
    let latencies = CALLS.into_iter().zip(app.broker.latencies());
    let updates = latencies
        .map(|(call, latency)| metric(Some(("call", call)), &LATENCY_BOUNDS, &latency.counts, latency.sum));
    [
        items(
            "towline_item_wait_seconds",
            "From when an item could be given out until it was, at every delivery.",
            &figures.waited,
        ),
        items("towline_item_run_seconds", "From a delivery until its holder settled it.", &figures.ran),
        histogram(
            "towline_store_update_seconds",
            "From handing the store a batch to its durable answer, by what it begins with.",
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

/// `counts`: for each bound, and those beyond the last.
fn metric(label: Option<(&str, &str)>, bounds: &[Duration], counts: &[u64], sum: Duration) -> Metric {
    let mut so_far = 0;
    let buckets = bounds.iter().zip(counts).map(|(bound, count)| {
        so_far += count;
        let mut bucket = Bucket::default();
        bucket.set_upper_bound(bound.as_secs_f64());
        bucket.set_cumulative_count(so_far);
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

/// What is read when somebody asks.
struct Now(Registry);

impl Now {
    fn new() -> Now {
        Now(Registry::new())
    }

    async fn tell(&self, app: &App, figures: &StoreMetrics) -> Result<(), Refused> {
        let done = app.broker.done();
        self.counter("towline_items_submitted_total", "Items that were new.", done.submitted)?;
        self.counter("towline_items_received_total", "Deliveries.", done.received)?;
        let swept = "Items that time alone changed: leases that lapsed, items that expired or were removed.";
        self.counter("towline_items_swept_total", swept, done.swept)?;
        self.counter("towline_refusals_total", "Operations that were refused.", done.refused)?;
        let calls = VERBS.into_iter().zip(done.verbs);
        self.counters("towline_lease_calls_total", "Calls of lease holders.", "verb", calls)?;
        let completed = figures.finished.get(Ending::Completed);
        self.counter("towline_items_completed_total", "Items that were committed.", completed)?;
        let failed = Ending::ALL.into_iter().filter(|ending| *ending != Ending::Completed);
        let failed = failed.map(|ending| (ending.name(), figures.finished.get(ending)));
        self.counters("towline_items_failed_total", "Items that failed, by kind.", "kind", failed)?;
        let retried = RetryReason::ALL.into_iter().map(|reason| (reason.name(), figures.retried(reason)));
        let words = "Attempts that ended without a result and are made again, by reason.";
        self.counters("towline_items_retried_total", words, "reason", retried)?;
        let gone = app.broker.collected();
        let removed = [
            ("output", gone.outputs),
            ("field", gone.fields),
            ("expired", gone.expired),
            ("orphan", gone.orphans),
        ];
        let words = "Removed from object storage: outputs nobody committed, payload fields no item names, buffers whose \
                     time was over, and what belonged to nothing.";
        self.counters("towline_collected_total", words, "kind", removed.into_iter())?;
        if let Some(traces) = &app.traces {
            let Sent { sent, dropped, lost } = traces.sent();
            let words = "DurationHistogram, by what became of them: sent, dropped for want of room, or lost because nobody took them.";
            let spans = [("sent", sent), ("dropped", dropped), ("lost", lost)];
            self.counters("towline_spans_total", words, "outcome", spans.into_iter())?;
        }
        let followers = app.broker.followers() as u64;
        self.gauge("towline_event_followers", "Who follows events at this server.", followers)?;
        self.shards(app)?;
        self.queues(app).await?;
        self.store(app).await
    }

    fn shards(&self, app: &App) -> Result<(), Refused> {
        let shards = app.shards();
        if shards.is_empty() {
            return Ok(());
        }
        let opts = Opts::new("towline_shard_up", "Whether a database answers, of several.");
        let up = IntGaugeVec::new(opts, &["shard"]).map_err(internal)?;
        for shard in &shards {
            up.with_label_values(&[shard.name.as_str()]).set(shard.down.is_none().into());
        }
        self.0.register(Box::new(up)).map_err(internal)
    }

    async fn queues(&self, app: &App) -> Result<(), Refused> {
        let opts = Opts::new("towline_items", "Items by queue and state, of the first 1000 queues by name.");
        let items = IntGaugeVec::new(opts, &["queue", "state"]).map_err(internal)?;
        let oldest = Opts::new(
            "towline_oldest_ready_seconds",
            "How long the item waits that is ready for longest, of the same queues; 0: none is ready.",
        );
        let oldest = GaugeVec::new(oldest, &["queue"]).map_err(internal)?;
        let now = app.now();
        let queues = app.broker.store().queues(None, QUEUES_TOLD_MAX.min(limits::PAGE_MAX)).await?;
        for view in &queues {
            let counts = &view.counts;
            if !matches!(view.queue.policy.order, Order::Score(_)) {
                let waits = view.oldest_ready.map_or(Millis::ZERO, |since| now.since(since));
                let seconds = Duration::from_millis(waits.0).as_secs_f64();
                oldest.with_label_values(&[view.queue.name.as_str()]).set(seconds);
            }
            for (state, count) in [
                ("pending", counts.pending),
                ("scheduled", counts.scheduled),
                ("processing", counts.processing),
                ("paused", counts.paused),
                ("completed", counts.completed),
                ("failed", counts.failed),
            ] {
                items.with_label_values(&[view.queue.name.as_str(), state]).set(count.cast_signed());
            }
        }
        self.0.register(Box::new(oldest)).map_err(internal)?;
        self.0.register(Box::new(items)).map_err(internal)
    }

    async fn store(&self, app: &App) -> Result<(), Refused> {
        let Some(store) = app.embedded() else { return Ok(()) };
        let status = store.status().await?;
        self.counter("towline_store_syncs_total", "Syncs of the log.", store.syncs())?;
        self.counter("towline_store_written_bytes_total", "Bytes written to the log.", status.bytes_written)?;
        let carried = "Of these, bytes that collection carried forward.";
        self.counter("towline_store_carried_bytes_total", carried, status.bytes_carried)?;
        self.gauge("towline_store_live_bytes", "Bytes of the log that are needed.", status.live_bytes)?;
        let disk = (status.segments + status.segments_free) * status.segment_bytes;
        self.gauge("towline_store_disk_bytes", "Bytes of all segments, those kept for reuse too.", disk)?;
        self.gauge("towline_store_items", "Items in the store.", status.items)?;
        self.gauge("towline_store_queues", "Queues in the store.", status.queues)?;
        self.gauge(
            "towline_store_full",
            "Whether submits are refused for want of space.",
            status.full.is_some().into(),
        )?;
        self.gauge("towline_store_damaged", "Whether damage was met.", status.damage.is_some().into())
    }

    fn gauge(&self, name: &str, help: &str, value: u64) -> Result<(), Refused> {
        let gauge = IntGauge::new(name, help).map_err(internal)?;
        gauge.set(value.cast_signed());
        self.0.register(Box::new(gauge)).map_err(internal)
    }

    fn counter(&self, name: &str, help: &str, value: u64) -> Result<(), Refused> {
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
    ) -> Result<(), Refused> {
        let counters = IntCounterVec::new(Opts::new(name, help), &[label]).map_err(internal)?;
        for (value, count) in values {
            counters.with_label_values(&[value]).inc_by(count);
        }
        self.0.register(Box::new(counters)).map_err(internal)
    }
}

/// Measures every request.
#[expect(clippy::disallowed_methods, reason = "how long something took decides nothing")]
pub(crate) async fn measure(State(app): State<App>, request: Request, next: Next) -> Response {
    let begun = Instant::now();
    let route = request.extensions().get::<MatchedPath>().cloned();
    // Methods of a client's own making would be without number.
    let method = match request.method().as_str() {
        method @ ("GET" | "HEAD" | "PUT" | "POST" | "PATCH" | "DELETE" | "OPTIONS") => method.to_owned(),
        _ => "other".to_owned(),
    };
    let response = next.run(request).await;
    let route = route.as_ref().map_or("none", |route| route.as_str());
    let metrics = &app.metrics;
    metrics.requests.with_label_values(&[method.as_str(), route, response.status().as_str()]).inc();
    metrics.seconds.with_label_values(&[method.as_str(), route]).observe(begun.elapsed().as_secs_f64());
    response
}
