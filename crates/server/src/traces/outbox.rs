//! Spans on their way out: held up to a number, sent in batches by a task of their own.
//!
//! **Invariant:** whoever ends a span never waits. What does not fit, and what cannot be sent, is counted and left out.

use super::post::Cause;
use opentelemetry::Context;
use opentelemetry_otlp::SpanExporter;
use opentelemetry_sdk::error::OTelSdkResult;
use opentelemetry_sdk::trace::{Span, SpanData, SpanExporter as _, SpanProcessor};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;
use tokio::sync::{Notify, mpsc};
use tokio::task::JoinHandle;

/// Spans that wait to be sent.
const HELD_MAX: usize = 4096;
/// Spans sent at a time.
const BATCH_MAX: usize = 512;
/// After a first span, how long to wait for more.
const GATHER: Duration = Duration::from_millis(500);
/// One batch, with all that it takes to try again.
const SEND_MAX: Duration = Duration::from_secs(15);

/// What became of spans.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) struct Sent {
    pub(crate) sent: u64,
    /// There was no room for them.
    pub(crate) dropped: u64,
    /// The collector did not take them.
    pub(crate) lost: u64,
}

#[derive(Debug, Default)]
struct Counts {
    sent: AtomicU64,
    dropped: AtomicU64,
    lost: AtomicU64,
}

#[derive(Debug)]
pub(super) struct Outbox {
    counts: Arc<Counts>,
    stop: Arc<Notify>,
    task: Mutex<Option<JoinHandle<()>>>,
}

impl Outbox {
    pub(super) fn start(exporter: SpanExporter, cause: Cause, endpoint: String) -> (Outbox, Outgoing) {
        let (give, take) = mpsc::channel(HELD_MAX);
        let (counts, stop) = (Arc::<Counts>::default(), Arc::<Notify>::default());
        let sender = Sender { exporter, cause, endpoint, counts: Arc::clone(&counts), is_down: false };
        let task = tokio::spawn(sender.run(take, Arc::clone(&stop)));
        let outgoing = Outgoing { give, counts: Arc::clone(&counts) };
        (Outbox { counts, stop, task: Mutex::new(Some(task)) }, outgoing)
    }

    pub(super) fn sent(&self) -> Sent {
        let read = |count: &AtomicU64| count.load(Ordering::Relaxed);
        let Counts { sent, dropped, lost } = &*self.counts;
        Sent { sent: read(sent), dropped: read(dropped), lost: read(lost) }
    }

    pub(super) async fn stop(&self, at_most: Duration) {
        self.stop.notify_one();
        let task = self.task.lock().unwrap_or_else(PoisonError::into_inner).take();
        if let Some(mut task) = task
            && tokio::time::timeout(at_most, &mut task).await.is_err()
        {
            task.abort();
            tracing::warn!("the last spans were not sent in time");
        }
    }
}

/// Where spans go when they end.
#[derive(Debug)]
pub(super) struct Outgoing {
    give: mpsc::Sender<SpanData>,
    counts: Arc<Counts>,
}

impl SpanProcessor for Outgoing {
    fn on_start(&self, _: &mut Span, _: &Context) {}

    fn on_end(&self, span: SpanData) {
        if span.span_context.is_sampled() && self.give.try_send(span).is_err() {
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

struct Sender {
    exporter: SpanExporter,
    cause: Cause,
    endpoint: String,
    counts: Arc<Counts>,
    /// Said once, not for every batch.
    is_down: bool,
}

impl Sender {
    async fn run(mut self, mut spans: mpsc::Receiver<SpanData>, stop: Arc<Notify>) {
        let mut stopping = false;
        loop {
            let mut batch = Vec::new();
            tokio::select! {
                count = spans.recv_many(&mut batch, BATCH_MAX) => if count == 0 { return },
                () = stop.notified(), if !stopping => {
                    stopping = true;
                    // What is held is given out still, and then it is over.
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
                    tracing::info!(endpoint = %self.endpoint, "spans are taken again");
                }
                return;
            }
            Ok(Err(error)) => self.cause.take().unwrap_or_else(|| error.to_string()),
            Err(_) => format!("no answer within {} s", SEND_MAX.as_secs()),
        };
        self.counts.lost.fetch_add(count, Ordering::Relaxed);
        if !std::mem::replace(&mut self.is_down, true) {
            let words = "spans cannot be sent and are left out, until the collector takes them again";
            tracing::warn!(endpoint = %self.endpoint, cause, "{words}");
        }
    }
}
