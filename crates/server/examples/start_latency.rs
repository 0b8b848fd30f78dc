//! Measures how soon a receiver that waits at one server gets an item submitted to another server.
//!
//! `cargo run --release -p towline-server --example start_latency -- <database URL> [rounds]`: alternates between servers with and
//! without notifications. Each turn has its own schema, and drops it.

#![allow(clippy::print_stdout, clippy::disallowed_methods, reason = "prints a measurement")]

use std::sync::Arc;
use std::time::{Duration, Instant};
use towline_broker::{Broker, ReceiveRequest, Sharing, SteadyClock};
use towline_domain::{FieldSet, Policy, QueueName, Schema, Submission};
use towline_postgres::{Options, Postgres, Time};
use towline_store::Operation;

type Fault = Box<dyn std::error::Error>;

#[tokio::main(flavor = "multi_thread", worker_threads = 2)]
async fn main() -> Result<(), Fault> {
    let mut arguments = std::env::args().skip(1);
    let address: tokio_postgres::Config = arguments.next().ok_or("give the URL of a database")?.parse()?;
    let rounds: usize = arguments.next().map_or(Ok(200), |text| text.parse())?;
    for turn in 0..4 {
        let notify = turn % 2 == 0;
        let mut waits = measure(&address, turn, notify, rounds).await?;
        waits.sort();
        let at = |permille: usize| waits[(waits.len() - 1) * permille / 1000].as_secs_f64() * 1000.0;
        let how = if notify { "with notifications" } else { "by polling" };
        println!("{how:>20}: p50 {:.1} ms, p99 {:.1} ms, {rounds} rounds", at(500), at(990));
    }
    Ok(())
}

async fn measure(
    address: &tokio_postgres::Config,
    turn: usize,
    notify: bool,
    rounds: usize,
) -> Result<Vec<Duration>, Fault> {
    let options = Options { schema: format!("start_latency_{turn}"), notify, ..Options::default() };
    let mut servers = Vec::new();
    for _ in 0..2 {
        let store = Arc::new(Postgres::open(&address.clone().into(), options.clone(), Time::Database).await?);
        let sharing = Sharing::Shared { poll_every: Duration::from_millis(500) };
        let broker = Broker::start(store.clone(), Arc::new(SteadyClock::new()), None, sharing);
        servers.push((store, broker));
    }
    let queue: QueueName = "jobs".parse()?;
    let create = Operation::CreateQueue {
        queue: queue.clone(),
        schema: Box::new(Schema::default()),
        policy: Box::new(Policy::default()),
    };
    let (here, there) = (servers[0].1.clone(), servers[1].1.clone());
    here.update(vec![create]).await?;
    let (listening, store) = (there.clone(), servers[1].0.clone());
    let listener = tokio::spawn(async move {
        loop {
            let hints = store.peer_hints().await;
            listening.peers_heard(hints.listening);
            listening.peer_hints(&hints);
        }
    });
    let mut waits = Vec::new();
    for round in 0..rounds {
        let request = ReceiveRequest {
            queue: queue.clone(),
            max: 1,
            wait: Duration::from_secs(30),
            visibility: None,
            fields: FieldSet::ALL,
            make_buffers: false,
        };
        let receiver = there.clone();
        let received = tokio::spawn(async move { (receiver.receive(request).await, Instant::now()) });
        // Varies the delay, so that submits are not in step with the polling interval.
        tokio::time::sleep(Duration::from_millis(60 + (round as u64 * 37) % 200)).await;
        let submission = Box::new(Submission::default());
        here.update(vec![Operation::Submit { queue: queue.clone(), submission }]).await?;
        let submitted = Instant::now();
        let (answer, at) = received.await?;
        assert_eq!(answer?.items.len(), 1);
        waits.push(at.saturating_duration_since(submitted));
    }
    listener.abort();
    servers.iter().for_each(|(_, broker)| broker.stop());
    drop(servers);
    let (client, connection) = address.connect(tokio_postgres::NoTls).await?;
    tokio::spawn(connection);
    client.batch_execute(&format!("DROP SCHEMA {} CASCADE", options.schema)).await?;
    Ok(waits)
}
