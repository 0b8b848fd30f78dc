//! A bounded queue of finished spans, and the task that sends them in batches.
//!
//! **Invariant:** ending a span never waits. Spans that do not fit into the queue or cannot be sent are counted and dropped.

use super::otlp_client::LastError;
use opentelemetry::Context;
use opentelemetry_otlp::SpanExporter;
use opentelemetry_sdk::error::OTelSdkResult;
use opentelemetry_sdk::trace::{Span, SpanData, SpanExporter as _, SpanProcessor};
use parking_lot::Mutex;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;
use tokio::sync::{Notify, mpsc};
use tokio::task::JoinHandle;

/// Spans in the queue.
const QUEUED_MAX: usize = 4096;
/// Spans per request to the collector.
const BATCH_MAX: usize = 512;
/// How long a batch waits for more spans.
const GATHER: Duration = Duration::from_millis(500);
/// Limit for sending one batch, with all retries.
const SEND_MAX: Duration = Duration::from_secs(15);

/// How many spans were sent and how many were not.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) struct SpanCounts {
    pub(crate) sent: u64,
    /// The queue was full.
    pub(crate) dropped: u64,
    /// The collector did not accept them.
    pub(crate) lost: u64,
}

#[derive(Debug, Default)]
struct SpanCounters {
    sent: AtomicU64,
    dropped: AtomicU64,
    lost: AtomicU64,
}

#[derive(Debug)]
pub(super) struct SpanQueue {
    counts: Arc<SpanCounters>,
    stop: Arc<Notify>,
    task: Mutex<Option<JoinHandle<()>>>,
}

impl SpanQueue {
    pub(super) fn start(
        exporter: SpanExporter,
        last_error: LastError,
        endpoint: String,
    ) -> (SpanQueue, QueueProcessor) {
        let (sender, receiver) = mpsc::channel(QUEUED_MAX);
        let (counts, stop) = (Arc::<SpanCounters>::default(), Arc::<Notify>::default());
        let export_task =
            ExportTask { exporter, last_error, endpoint, counts: Arc::clone(&counts), is_down: false };
        let task = tokio::spawn(export_task.run(receiver, Arc::clone(&stop)));
        let processor = QueueProcessor { queue: sender, counts: Arc::clone(&counts) };
        (SpanQueue { counts, stop, task: Mutex::new(Some(task)) }, processor)
    }

    pub(super) fn counts(&self) -> SpanCounts {
        let read = |count: &AtomicU64| count.load(Ordering::Relaxed);
        let SpanCounters { sent, dropped, lost } = &*self.counts;
        SpanCounts { sent: read(sent), dropped: read(dropped), lost: read(lost) }
    }

    pub(super) async fn stop(&self, time_max: Duration) {
        self.stop.notify_one();
        let task = self.task.lock().take();
        if let Some(mut task) = task
            && tokio::time::timeout(time_max, &mut task).await.is_err()
        {
            task.abort();
            tracing::warn!("could not send the last spans in time");
        }
    }
}

/// Puts each finished span into the queue.
#[derive(Debug)]
pub(super) struct QueueProcessor {
    queue: mpsc::Sender<SpanData>,
    counts: Arc<SpanCounters>,
}

impl SpanProcessor for QueueProcessor {
    fn on_start(&self, _: &mut Span, _: &Context) {}

    fn on_end(&self, span: SpanData) {
        if span.span_context.is_sampled() && self.queue.try_send(span).is_err() {
            self.counts.dropped.fetch_add(1, Ordering::Relaxed);
        }
    }

    fn force_flush(&self) -> OTelSdkResult {
        Ok(())
    }

    fn shutdown_with_timeout(&self, _: Duration) -> OTelSdkResult {
        Ok(())
    }
}

struct ExportTask {
    exporter: SpanExporter,
    last_error: LastError,
    endpoint: String,
    counts: Arc<SpanCounters>,
    /// Whether the last batch failed. The failure is logged once.
    is_down: bool,
}

impl ExportTask {
    async fn run(mut self, mut spans: mpsc::Receiver<SpanData>, stop: Arc<Notify>) {
        let mut stopping = false;
        loop {
            let mut batch = Vec::new();
            tokio::select! {
                count = spans.recv_many(&mut batch, BATCH_MAX) => if count == 0 { return },
                () = stop.notified(), if !stopping => {
                    stopping = true;
                    // The receiver still returns the queued spans, and then ends.
                    spans.close();
                    continue;
                }
            }
            if !stopping && batch.len() < BATCH_MAX {
                tokio::select! {
                    () = tokio::time::sleep(GATHER) => {}
                    () = stop.notified() => {
                        stopping = true;
                        spans.close();
                    }
                }
                while batch.len() < BATCH_MAX
                    && let Ok(span) = spans.try_recv()
                {
                    batch.push(span);
                }
            }
            self.send(batch).await;
        }
    }

    async fn send(&mut self, batch: Vec<SpanData>) {
        let count = batch.len() as u64;
        let sent = tokio::time::timeout(SEND_MAX, self.exporter.export(batch)).await;
        let cause = match sent {
            Ok(Ok(())) => {
                self.counts.sent.fetch_add(count, Ordering::Relaxed);
                if std::mem::take(&mut self.is_down) {
                    tracing::info!(endpoint = %self.endpoint, "the collector accepts spans again");
                }
                return;
            }
            Ok(Err(error)) => self.last_error.take().unwrap_or_else(|| error.to_string()),
            Err(_) => format!("no response within {} s", SEND_MAX.as_secs()),
        };
        self.counts.lost.fetch_add(count, Ordering::Relaxed);
        if !std::mem::replace(&mut self.is_down, true) {
            tracing::warn!(endpoint = %self.endpoint, cause, "cannot send spans; dropping them until the collector accepts them again");
        }
    }
}
