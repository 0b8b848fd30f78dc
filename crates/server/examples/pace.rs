//! Measures how much of a rate waiting receivers use.
//!
//! `cargo run -p towline-server --example pace -- [rate] [receivers] [seconds]`: an embedded store and its broker in
//! one process, by default 1000/s, 16 receivers and 10 seconds. Each receiver receives and commits one item at a time.

#![allow(clippy::print_stdout, reason = "prints a measurement")]

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;
use towline_broker::{Broker, ReceiveRequest, Sharing, SteadyClock};
use towline_domain::command::Verb;
use towline_domain::{
    Adjust, FieldSet, Flow, LeaseCall, Millis, Outcome, Policy, QueueName, Rate, Schema, Submission, limits,
};
use towline_embedded::{Embedded, Options};
use towline_store::{Clock, Operation};

type Fault = Box<dyn std::error::Error + Send + Sync>;

#[tokio::main(flavor = "multi_thread", worker_threads = 2)]
async fn main() -> Result<(), Fault> {
    let mut arguments = std::env::args().skip(1);
    let rate: Rate = arguments.next().as_deref().unwrap_or("1000/s").parse()?;
    let receivers: usize = arguments.next().as_deref().unwrap_or("16").parse()?;
    let seconds: u64 = arguments.next().as_deref().unwrap_or("10").parse()?;
    let directory = tempfile::tempdir()?;
    let clock = Arc::new(SteadyClock::new());
    let store = Arc::new(Embedded::open(directory.path(), Options::default(), clock.clone())?);
    let broker = Broker::start(store, clock.clone(), None, Sharing::Alone);
    let queue: QueueName = "jobs".parse()?;
    let create = Operation::CreateQueue {
        queue: queue.clone(),
        schema: Box::new(Schema::default()),
        policy: Box::new(Policy { flow: Flow { rate: Some(rate), ..Flow::default() }, ..Policy::default() }),
    };
    broker.update(vec![create]).await?.remove(0)?;
    let allowed = u64::from(rate.count) * seconds * 1000 / rate.per.0;
    let mut missing = usize::try_from(allowed)? * 2 + rate.burst as usize;
    while missing > 0 {
        let some = missing.min(limits::BATCH_MAX);
        let submit =
            || Operation::Submit { queue: queue.clone(), submission: Box::new(Submission::default()) };
        broker.update((0..some).map(|_| submit()).collect()).await?;
        missing -= some;
    }
    let given = Arc::new(AtomicU64::new(0));
    let end = clock.now().after(Millis::seconds(seconds));
    let mut tasks = Vec::new();
    for _ in 0..receivers {
        let (broker, clock, given, queue) = (broker.clone(), clock.clone(), given.clone(), queue.clone());
        tasks.push(tokio::spawn(async move {
            loop {
                let request = ReceiveRequest {
                    queue: queue.clone(),
                    max: 1,
                    wait: Duration::from_secs(1),
                    visibility: None,
                    fields: FieldSet::ALL,
                    make_buffers: false,
                };
                let items = broker.receive(request).await?.items;
                if clock.now() >= end {
                    return Ok::<(), Fault>(());
                }
                for item in items {
                    given.fetch_add(1, Ordering::Relaxed);
                    let token = item.head.lease().ok_or("an item without a lease")?.token;
                    let verb = Verb::Commit(Outcome::default());
                    let call = Box::new(LeaseCall { token, verb, adjust: Adjust::default() });
                    broker.update(vec![Operation::Lease { id: item.head.id, call }]).await?.remove(0)?;
                }
            }
        }));
    }
    for task in tasks {
        task.await??;
    }
    let given = given.load(Ordering::Relaxed);
    let share = given as f64 * 100.0 / allowed as f64;
    println!(
        "{rate}, {receivers} receivers, {seconds} s: {given} of {allowed} given out ({share:.1}%), and a burst of {} may pass",
        rate.burst
    );
    broker.stop();
    Ok(())
}
