//! Life-cycles a second at the store's port: submit, receive with the payload, commit; in batches, by several callers,
//! while a queue of a given depth stays behind.
//!
//! `cargo run --release -p towline-postgres --example lifecycles -- --url 'host=/run/postgresql user=me dbname=bench'`
//!
//! It makes schemas named `bench_...` in that database, and removes them again.
#![allow(clippy::unwrap_used, clippy::print_stdout, reason = "a bench prints, and stops at the first fault")]

use bytes::Bytes;
use clap::Parser;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};
use tokio_postgres::{Config, NoTls};
use towline_domain::command::Verb;
use towline_domain::{Adjust, FieldSet, Fields, LeaseCall, Outcome, Policy, Schema, Submission, TokenSeed};
use towline_postgres::{Options, Postgres, Time};
use towline_store::{Operation, ReceiveCall, Reply, Store};

#[derive(Parser)]
struct Arguments {
    /// A PostgreSQL to use, as libpq spells it.
    #[arg(long)]
    url: Config,
    /// Payload sizes to measure.
    #[arg(long, value_delimiter = ',', default_values_t = [100, 4500])]
    bytes: Vec<usize>,
    /// Items in one call.
    #[arg(long, value_delimiter = ',', default_values_t = [64, 512])]
    batch: Vec<usize>,
    #[arg(long, default_value_t = 8)]
    callers: usize,
    /// Connections that write.
    #[arg(long, default_value_t = Options::default().workers)]
    workers: usize,
    /// Items that wait throughout.
    #[arg(long, default_value_t = 10_000)]
    depth: usize,
    #[arg(long, default_value_t = 5)]
    seconds: u64,
}

#[tokio::main(flavor = "multi_thread", worker_threads = 2)]
async fn main() {
    let arguments = Arguments::parse();
    println!("bytes batch callers workers depth | life-cycles/s");
    for &bytes in &arguments.bytes {
        for &batch in &arguments.batch {
            let rate = measure(&arguments, bytes, batch).await;
            let Arguments { callers, workers, depth, .. } = arguments;
            println!("{bytes:5} {batch:5} {callers:7} {workers:7} {depth:5} | {rate:13.0}");
        }
    }
}

#[expect(clippy::disallowed_methods, reason = "a bench measures time")]
async fn measure(arguments: &Arguments, bytes: usize, batch: usize) -> f64 {
    let schema = format!("bench_{bytes}_{batch}");
    drop_schema(&arguments.url, &schema).await;
    let options = Options { schema: schema.clone(), workers: arguments.workers, ..Options::default() };
    let store = Postgres::open(&arguments.url.clone().into(), options, Time::Database).await.unwrap();
    let (queue, payload) = ("bench".parse().unwrap(), noise(bytes));
    let (schema_of_queue, policy) = (Box::new(Schema::default()), Box::new(Policy::default()));
    store.update(vec![Operation::CreateQueue { queue, schema: schema_of_queue, policy }]).await.unwrap();
    for from in (0..arguments.depth).step_by(2000) {
        submit(&store, (arguments.depth - from).min(2000), &payload).await;
    }
    let done = AtomicU64::new(0);
    let begin = Instant::now();
    let until = begin + Duration::from_secs(arguments.seconds);
    let callers = (0..arguments.callers).map(|caller| {
        let (store, payload, done) = (&store, &payload, &done);
        async move {
            for round in 0_u64.. {
                if Instant::now() >= until {
                    break;
                }
                submit(store, batch, payload).await;
                let settled = receive_and_commit(store, batch, caller, round).await;
                done.fetch_add(settled, Ordering::Relaxed);
            }
        }
    });
    futures::future::join_all(callers).await;
    let rate = done.load(Ordering::Relaxed) as f64 / begin.elapsed().as_secs_f64();
    drop(store);
    drop_schema(&arguments.url, &schema).await;
    rate
}

async fn submit(store: &Postgres, count: usize, payload: &Bytes) {
    let fields = Fields { blob: Some(payload.clone()), ..Fields::default() };
    let one = || Operation::Submit {
        queue: "bench".parse().unwrap(),
        submission: Box::new(Submission { fields: fields.clone(), ..Submission::default() }),
    };
    let answers = store.update((0..count).map(|_| one()).collect()).await.unwrap();
    assert!(answers.iter().all(Result::is_ok));
}

async fn receive_and_commit(store: &Postgres, batch: usize, caller: usize, round: u64) -> u64 {
    let mut seed = [0; 32];
    seed[..8].copy_from_slice(&caller.to_le_bytes());
    seed[8..16].copy_from_slice(&round.to_le_bytes());
    let receive = Operation::Receive(Box::new(ReceiveCall {
        queue: "bench".parse().unwrap(),
        max: u32::try_from(batch).unwrap(),
        visibility: None,
        assigned: false,
        seed: TokenSeed(seed),
        fields: FieldSet::ALL,
        make_buffers: false,
    }));
    let answers = store.update(vec![receive]).await.unwrap();
    let Ok(Reply::Received(received)) = &answers[0] else { panic!("received: {answers:?}") };
    let commits = received.items.iter().map(|item| Operation::Lease {
        id: item.head.id,
        call: Box::new(LeaseCall {
            token: item.head.lease().unwrap().token,
            verb: Verb::Commit(Outcome::default()),
            adjust: Adjust::default(),
        }),
    });
    let answers = store.update(commits.collect()).await.unwrap();
    assert!(answers.iter().all(Result::is_ok));
    answers.len() as u64
}

/// Bytes that no compression shortens.
fn noise(length: usize) -> Bytes {
    let mut state = 0x9e37_79b9_7f4a_7c15_u64;
    let mut next = || {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        state.to_le_bytes()[3]
    };
    (0..length).map(|_| next()).collect()
}

async fn drop_schema(config: &Config, schema: &str) {
    let (client, connection) = config.connect(NoTls).await.unwrap();
    tokio::spawn(connection);
    client.batch_execute(&format!("DROP SCHEMA IF EXISTS {schema} CASCADE")).await.unwrap();
}
