//! Whole life-cycles: enqueue all items, then receive and commit them until the server has none left.

use super::bench_queue::BenchQueue;
use super::clock;
use super::cpu::{CpuMeter, Usage};
use super::plan::{Drain, Submit};
use super::task_group::TaskGroup;
use anyhow::{bail, ensure};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};
use towline_api::{Action, Client, ItemState, ReceiveRequest, ReceivedItem, Settled, Span, VerbName};

/// How long a worker waits while other workers hold the last items.
const WAIT: Duration = Duration::from_millis(100);
/// Items that do not arrive for this long are lost.
const LOST_AFTER: Duration = Duration::from_secs(30);

#[derive(Debug)]
pub struct LifeCycleResult {
    pub enqueued_per_second: f64,
    pub drained_per_second: f64,
    /// Over both phases.
    pub items_per_second: f64,
    pub cpu: Usage,
}

pub async fn measure(
    bench_queue: &BenchQueue,
    submit: Submit,
    items: u64,
    drain: Drain,
) -> anyhow::Result<LifeCycleResult> {
    let (producers, workers) =
        (bench_queue.clients(submit.connections).await?, bench_queue.clients(drain.workers).await?);
    let meter = CpuMeter::start(bench_queue.server.pid);
    let fill_time = fill(bench_queue, producers, submit.batch, items).await?;
    bench_queue.expect(&bench_queue.counts().await?, items)?;
    bench_queue.progress.store(0, Ordering::Relaxed);
    let drain_time = drain_all(bench_queue, workers, drain.take, items).await?;
    let cpu = meter.stop();
    let rate = |time: Duration| items as f64 / time.as_secs_f64();
    Ok(LifeCycleResult {
        enqueued_per_second: rate(fill_time),
        drained_per_second: rate(drain_time),
        items_per_second: rate(fill_time + drain_time),
        cpu,
    })
}

async fn fill(
    bench_queue: &BenchQueue,
    clients: Vec<Client>,
    batch: usize,
    items: u64,
) -> anyhow::Result<Duration> {
    let left = Arc::new(AtomicU64::new(items));
    let start = clock::now();
    let mut tasks = TaskGroup::new();
    for client in clients {
        let (bench_queue, left) = (bench_queue.clone(), left.clone());
        tasks.add(async move {
            loop {
                let take = |left: u64| (left > 0).then(|| left.saturating_sub(batch as u64));
                let Ok(before) = left.fetch_update(Ordering::Relaxed, Ordering::Relaxed, take) else {
                    return Ok(());
                };
                let count = usize::try_from(before).map_or(batch, |before| before.min(batch));
                bench_queue.submit(&client, bench_queue.items(count)).await?;
            }
        });
    }
    tasks.all().await?;
    Ok(clock::since(start))
}

async fn drain_all(
    bench_queue: &BenchQueue,
    clients: Vec<Client>,
    take: usize,
    items: u64,
) -> anyhow::Result<Duration> {
    let given = Arc::new(AtomicU64::new(0));
    let start = clock::now();
    let mut tasks = TaskGroup::new();
    for client in clients {
        tasks.add(worker(bench_queue.clone(), client, take, items, given.clone()));
    }
    let end = tasks.all().await?.into_iter().max().unwrap_or(start);
    let given = given.load(Ordering::Relaxed);
    ensure!(given == items, "{items} items were submitted and {given} received");
    // The server keeps completed items until their leases would have ended, so only unfinished items are checked.
    let counts = bench_queue.counts().await?;
    ensure!(counts.pending == 0 && counts.processing == 0, "items are left: {counts:?}");
    Ok(end - start)
}

/// Returns when its last commit was acknowledged.
async fn worker(
    bench_queue: BenchQueue,
    client: Client,
    take: usize,
    items: u64,
    given: Arc<AtomicU64>,
) -> anyhow::Result<Instant> {
    let request = ReceiveRequest {
        max: Some(i64::try_from(take)?),
        wait: Some(Span::from(WAIT)),
        ..Default::default()
    };
    let mut last = clock::now();
    while given.load(Ordering::Relaxed) < items {
        let answer = client.receive(&bench_queue.queue, &request).await?;
        let count = answer.items.len() as u64;
        if count == 0 {
            ensure!(
                clock::since(last) < LOST_AFTER,
                "{} of {items} items were received, then none for {LOST_AFTER:?}",
                given.load(Ordering::Relaxed)
            );
            continue;
        }
        given.fetch_add(count, Ordering::Relaxed);
        commit(&client, answer.items, bench_queue.text.len()).await?;
        last = clock::now();
        bench_queue.progress.fetch_add(count, Ordering::Relaxed);
    }
    Ok(last)
}

/// Commits items: one with a single call, several with a batch call.
pub async fn commit(client: &Client, items: Vec<ReceivedItem>, size: usize) -> anyhow::Result<()> {
    let count = items.len();
    let mut actions = Vec::with_capacity(count);
    for item in items {
        ensure!(item.deliveries == 1, "the item {} was delivered {} times", item.id, item.deliveries);
        let bytes =
            item.payload.map(|payload| payload.into_domain("payload")).transpose()?.unwrap_or_default();
        ensure!(bytes.len() == size, "the item {} has {} bytes, not {size}", item.id, bytes.len());
        let (id, lease) = (Some(item.id), Some(item.lease));
        actions.push(Action { verb: Some(VerbName::Commit.into()), id, lease, ..Action::default() });
    }
    let results = match actions.pop() {
        Some(only) if actions.is_empty() => vec![client.act(only).await?],
        Some(last) => {
            actions.push(last);
            client.settle(actions).await?
        }
        None => Vec::new(),
    };
    ensure!(results.len() == count, "{count} items were committed, {} answered", results.len());
    for Settled { state, error, .. } in results {
        if let Some(error) = error {
            bail!("a commit was refused: {} ({})", error.message, error.code);
        }
        ensure!(state.as_deref() == Some(ItemState::Completed.name()), "a committed item is {state:?}");
    }
    Ok(())
}
