//! Enqueueing as fast as the server acknowledges: `enq1`, `enq16`, `enq64` and `bulk`.

use super::bench_queue::BenchQueue;
use super::clock;
use super::cpu::{CpuMeter, Usage};
use super::latency::{Times, new_times, record};
use super::plan::Submit;
use super::task_group::TaskGroup;
use std::time::{Duration, Instant};
use towline_api::Client;

#[derive(Debug)]
pub struct EnqueueResult {
    pub items_per_second: f64,
    /// Duration of the calls.
    pub calls: Times,
    pub cpu: Usage,
}

/// The result of one connection.
#[derive(Debug)]
struct ConnectionResult {
    /// Items acknowledged in the measured time.
    measured: u64,
    /// Items acknowledged in total.
    total: u64,
    calls: Times,
}

pub async fn measure(
    bench_queue: &BenchQueue,
    submit: Submit,
    warm_up: Duration,
    measured: Duration,
) -> anyhow::Result<EnqueueResult> {
    let clients = bench_queue.clients(submit.connections).await?;
    let from = clock::now() + warm_up;
    let until = from + measured;
    let mut tasks = TaskGroup::new();
    for client in clients {
        tasks.add(enqueue(bench_queue.clone(), client, submit.batch, from, until));
    }
    tasks.meanwhile(clock::until(from)).await?;
    let meter = CpuMeter::start(bench_queue.server.pid);
    tasks.meanwhile(clock::until(until)).await?;
    let cpu = meter.stop();
    let results = tasks.all().await?;

    let sum = |of: fn(&ConnectionResult) -> u64| results.iter().map(of).sum::<u64>();
    bench_queue.expect(&bench_queue.counts().await?, sum(|result| result.total))?;
    let mut calls = new_times()?;
    for result in &results {
        calls.add(&result.calls)?;
    }
    Ok(EnqueueResult {
        items_per_second: sum(|result| result.measured) as f64 / measured.as_secs_f64(),
        calls,
        cpu,
    })
}

async fn enqueue(
    bench_queue: BenchQueue,
    client: Client,
    batch: usize,
    from: Instant,
    until: Instant,
) -> anyhow::Result<ConnectionResult> {
    let mut result = ConnectionResult { measured: 0, total: 0, calls: new_times()? };
    let mut start = clock::now();
    while start < until {
        bench_queue.submit(&client, bench_queue.items(batch)).await?;
        let end = clock::now();
        result.total += batch as u64;
        if (from..until).contains(&end) {
            result.measured += batch as u64;
            record(&mut result.calls, end - start);
        }
        start = end;
    }
    Ok(result)
}
