//! Latency from before an enqueue until a waiting worker has the item.
//!
//! Producers do not wait for the worker: they send, pause 10 to 20 ms and send again. So a slow delivery
//! cannot hide behind the sends that it delays. The queue is empty whenever deliveries are faster than that.

use super::bench_queue::BenchQueue;
use super::clock;
use super::cpu::{CpuMeter, Usage};
use super::life_cycle::commit;
use super::payload;
use super::task_group::TaskGroup;
use anyhow::{Context, ensure};
use hdrhistogram::Histogram;
use parking_lot::Mutex;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};
use towline_api::{Client, ReceiveRequest, Span};

/// Histogram of nanoseconds.
pub type Times = Histogram<u64>;

const TIME_MAX: Duration = Duration::from_secs(600);
/// Items sent before the measured ones, by all producers together.
const WARM_UP: u64 = 20;
/// The stamp of an item that is not measured.
const UNCOUNTED: u64 = 0;
const PAUSE: Duration = Duration::from_millis(10);
/// How long a worker waits in one call.
const WAIT: Duration = Duration::from_secs(20);
const LOST_AFTER: Duration = Duration::from_secs(30);

pub fn new_times() -> anyhow::Result<Times> {
    Ok(Histogram::new_with_max(nanoseconds(TIME_MAX), 3)?)
}

pub fn record(times: &mut Times, time: Duration) {
    times.saturating_record(nanoseconds(time));
}

fn nanoseconds(time: Duration) -> u64 {
    u64::try_from(time.as_nanos()).unwrap_or(u64::MAX)
}

#[derive(Debug)]
pub struct LatencyResult {
    pub starts: Times,
    /// Duration of the enqueueing calls.
    pub calls: Times,
    pub cpu: Usage,
}

#[derive(Debug)]
struct Arrivals {
    base: Instant,
    expected: u64,
    seen: AtomicU64,
    starts: Mutex<Times>,
    all: tokio::sync::Notify,
}

pub async fn measure(
    bench_queue: &BenchQueue,
    connections: usize,
    samples: u64,
) -> anyhow::Result<LatencyResult> {
    let each = samples.div_ceil(connections as u64);
    let warm_up = WARM_UP.div_ceil(connections as u64);
    let arrivals = Arc::new(Arrivals {
        base: clock::now(),
        expected: (each + warm_up) * connections as u64,
        seen: AtomicU64::new(0),
        starts: Mutex::new(new_times()?),
        all: tokio::sync::Notify::new(),
    });
    let (receivers, senders) =
        (bench_queue.clients(connections).await?, bench_queue.clients(connections).await?);
    let mut workers = TaskGroup::new();
    for client in receivers {
        workers.add(receive(bench_queue.clone(), client, arrivals.clone()));
    }
    // Time for every worker to start waiting.
    workers.meanwhile(tokio::time::sleep(Duration::from_millis(300))).await?;
    let meter = CpuMeter::start(bench_queue.server.pid);
    let mut producers = TaskGroup::new();
    for (at, client) in senders.into_iter().enumerate() {
        producers.add(send(bench_queue.clone(), client, at as u64, warm_up, each, arrivals.base));
    }
    let calls_each = workers.meanwhile(producers.all()).await??;
    let cpu = meter.stop();
    let arrived = workers.meanwhile(tokio::time::timeout(LOST_AFTER, arrivals.all.notified())).await?;
    let seen = arrivals.seen.load(Ordering::Relaxed);
    arrived.with_context(|| format!("{} items were submitted and {seen} received", arrivals.expected))?;
    ensure!(seen == arrivals.expected, "{} items were submitted and {seen} received", arrivals.expected);

    let mut calls = new_times()?;
    for times in calls_each {
        calls.add(times)?;
    }
    let starts = arrivals.starts.lock().clone();
    Ok(LatencyResult { starts, calls, cpu })
}

async fn receive(bench_queue: BenchQueue, client: Client, arrivals: Arc<Arrivals>) -> anyhow::Result<()> {
    let request = ReceiveRequest { max: Some(1), wait: Some(Span::from(WAIT)), ..Default::default() };
    loop {
        let answer = client.receive(&bench_queue.queue, &request).await?;
        let arrived = clock::since(arrivals.base);
        for item in &answer.items {
            let bytes = item.payload.clone().map(|payload| payload.into_domain("payload")).transpose()?;
            let sent = bytes
                .and_then(|bytes| payload::stamp(&bytes))
                .context("a received item has a changed payload")?;
            if sent != UNCOUNTED {
                let mut starts = arrivals.starts.lock();
                record(&mut starts, arrived.saturating_sub(Duration::from_nanos(sent)));
            }
        }
        let count = answer.items.len() as u64;
        commit(&client, answer.items, bench_queue.text.len()).await?;
        if arrivals.seen.fetch_add(count, Ordering::Relaxed) + count >= arrivals.expected {
            arrivals.all.notify_one();
        }
    }
}

async fn send(
    bench_queue: BenchQueue,
    client: Client,
    number: u64,
    warm_up: u64,
    samples: u64,
    base: Instant,
) -> anyhow::Result<Times> {
    let mut calls = new_times()?;
    let mut text = bench_queue.text.to_vec();
    let mut jitter = 88_172_645_463_325_252_u64.wrapping_add(number);
    for at in 0..warm_up + samples {
        let counts = at >= warm_up;
        let start = clock::now();
        let stamp =
            if counts { nanoseconds(start.saturating_duration_since(base)).max(1) } else { UNCOUNTED };
        payload::set_stamp(&mut text, stamp);
        bench_queue.submit(&client, vec![bench_queue.item(&payload::payload(&text)?)]).await?;
        if counts {
            record(&mut calls, clock::since(start));
        }
        jitter ^= jitter << 13;
        jitter ^= jitter >> 7;
        jitter ^= jitter << 17;
        tokio::time::sleep(PAUSE + PAUSE.mul_f64((jitter % 1000) as f64 / 1000.0)).await;
    }
    Ok(calls)
}
