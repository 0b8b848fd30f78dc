//! Enqueueing as fast as the server acknowledges: `enq1`, `enq16`, `enq64` and `bulk`.

use super::clock;
use super::cpu::{Meter, Usage};
use super::crew::Crew;
use super::latency::{Times, new_times, record};
use super::plan::Submit;
use super::scene::Scene;
use std::time::{Duration, Instant};
use towline_api::Client;

#[derive(Debug)]
pub struct Load {
    pub items_per_second: f64,
    /// How long the calls took.
    pub calls: Times,
    pub cpu: Usage,
}

/// What one connection did.
#[derive(Debug)]
struct Tally {
    /// Acknowledged in the measured time.
    measured: u64,
    /// Acknowledged at all.
    total: u64,
    calls: Times,
}

pub async fn measure(
    scene: &Scene,
    submit: Submit,
    warm_up: Duration,
    measured: Duration,
) -> anyhow::Result<Load> {
    let clients = scene.clients(submit.connections).await?;
    let from = clock::now() + warm_up;
    let until = from + measured;
    let mut crew = Crew::new();
    for client in clients {
        crew.add(enqueue(scene.clone(), client, submit.batch, from, until));
    }
    crew.meanwhile(clock::until(from)).await?;
    let meter = Meter::start(scene.server.pid);
    crew.meanwhile(clock::until(until)).await?;
    let cpu = meter.stop();
    let tallies = crew.all().await?;

    let sum = |of: fn(&Tally) -> u64| tallies.iter().map(of).sum::<u64>();
    scene.expect(&scene.counts().await?, sum(|tally| tally.total))?;
    let mut calls = new_times()?;
    for tally in &tallies {
        calls.add(&tally.calls)?;
    }
    Ok(Load { items_per_second: sum(|tally| tally.measured) as f64 / measured.as_secs_f64(), calls, cpu })
}

async fn enqueue(
    scene: Scene,
    client: Client,
    batch: usize,
    from: Instant,
    until: Instant,
) -> anyhow::Result<Tally> {
    let mut tally = Tally { measured: 0, total: 0, calls: new_times()? };
    let mut start = clock::now();
    while start < until {
        scene.submit(&client, scene.items(batch)).await?;
        let end = clock::now();
        tally.total += batch as u64;
        if (from..until).contains(&end) {
            tally.measured += batch as u64;
            record(&mut tally.calls, end - start);
        }
        start = end;
    }
    Ok(tally)
}
