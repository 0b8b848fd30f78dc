//! Measures life cycles a second (submit, receive with the payload, commit) of this store and, in the same PostgreSQL, of
//! queues that are a table and a few statements. `tables.rs` describes them.
//!
//! `cargo run --release -p towline-postgres --example lifecycles -- --url 'host=/run/postgresql user=me dbname=bench'`
//!
//! A backlog of `--depth` items stays in the queue. `--items` items are submitted in bulk, then drained; the rate is that of
//! both together. Payloads are random. `--held-snapshot` keeps another transaction open during the measurement.
//! `--retention` measures the removal of that many terminal items. The program creates schemas named `bench_...` in the
//! database and drops them again.
#![allow(clippy::unwrap_used, clippy::print_stdout, reason = "a bench prints, and stops at the first fault")]

mod tables;
mod towline;

use clap::{Parser, ValueEnum};
use std::time::{Duration, Instant};
use tokio_postgres::{Client, Config, NoTls};

#[derive(Debug, Parser)]
pub struct Arguments {
    /// Connection string of the PostgreSQL to use.
    #[arg(long)]
    url: Config,
    /// The queues to measure.
    #[arg(long, value_delimiter = ',', default_value = "towline,skip-locked,pgmq-like,cyclotron-like")]
    queues: Vec<Contender>,
    /// Payload sizes in bytes.
    #[arg(long, value_delimiter = ',', default_values_t = [100, 4500])]
    bytes: Vec<usize>,
    /// How many items one call to this store has.
    #[arg(long, value_delimiter = ',', default_values_t = [64, 512])]
    batch: Vec<usize>,
    /// How many callers use this store at once.
    #[arg(long, default_value_t = 8)]
    callers: usize,
    /// How many connections of this store write.
    #[arg(long, default_value_t = towline_postgres::Options::default().workers)]
    workers: usize,
    /// How many items stay in the queue during the measurement.
    #[arg(long, value_delimiter = ',', default_values_t = [10_000])]
    depth: Vec<usize>,
    /// How many items are submitted, received and committed. cyclotron-like gets a tenth.
    #[arg(long, default_value_t = 100_000)]
    items: usize,
    /// How many rounds of all measurements to run.
    #[arg(long, default_value_t = 1)]
    rounds: usize,
    /// Another client holds a snapshot. The same traffic runs for this many seconds before the measurement.
    #[arg(long)]
    held_snapshot: Option<u64>,
    /// The store writes no events.
    #[arg(long)]
    without_events: bool,
    /// Measure only how long it takes to remove this many terminal items.
    #[arg(long)]
    retention: Option<usize>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Contender {
    Towline,
    SkipLocked,
    PgmqLike,
    CyclotronLike,
}

/// The result of one measurement.
#[derive(Debug)]
pub struct Measurement {
    filled: Duration,
    drained: Duration,
    wal_bytes: i64,
    items: usize,
}

#[tokio::main(flavor = "multi_thread", worker_threads = 2)]
async fn main() {
    let arguments = Arguments::parse();
    if let Some(items) = arguments.retention {
        return towline::retention(&arguments, items).await;
    }
    println!("{:14} bytes batch   depth | life-cycles/s | submits/s | drains/s | WAL bytes an item", "queue");
    for _ in 0..arguments.rounds {
        for &depth in &arguments.depth {
            for &bytes in &arguments.bytes {
                for &contender in &arguments.queues {
                    measure_all(&arguments, contender, bytes, depth).await;
                }
            }
        }
    }
}

async fn measure_all(arguments: &Arguments, contender: Contender, bytes: usize, depth: usize) {
    let name = contender.to_possible_value().unwrap().get_name().to_owned();
    let print = |batch: usize, seen: &Measurement| {
        let rate = |time: Duration| seen.items as f64 / time.as_secs_f64();
        let whole = rate(seen.filled + seen.drained);
        let (fill, drain) = (rate(seen.filled), rate(seen.drained));
        let wal = seen.wal_bytes / i64::try_from(seen.items).unwrap();
        println!(
            "{name:14} {bytes:5} {batch:5} {depth:7} | {whole:13.0} | {fill:9.0} | {drain:8.0} | {wal:6}"
        );
    };
    match contender {
        Contender::Towline => {
            for &batch in &arguments.batch {
                print(batch, &towline::measure(arguments, bytes, batch, depth).await);
            }
        }
        Contender::SkipLocked => {
            print(500, &tables::measure(arguments, tables::SKIP_LOCKED, bytes, depth).await)
        }
        Contender::PgmqLike => print(500, &tables::measure(arguments, tables::PGMQ_LIKE, bytes, depth).await),
        Contender::CyclotronLike => {
            print(100, &tables::measure(arguments, tables::CYCLOTRON_LIKE, bytes, depth).await);
        }
    }
}

/// A client that holds a snapshot until it is dropped, and the time at which the measurement starts.
pub async fn hold_snapshot(arguments: &Arguments) -> (Option<Client>, Instant) {
    let Some(seconds) = arguments.held_snapshot else { return (None, now()) };
    let holder = connect(&arguments.url, "public").await;
    let hold = "BEGIN ISOLATION LEVEL REPEATABLE READ; SELECT count(*) FROM pg_class";
    holder.batch_execute(hold).await.unwrap();
    (Some(holder), now() + Duration::from_secs(seconds))
}

pub async fn wal_position(client: &Client) -> i64 {
    let position = "SELECT pg_wal_lsn_diff(pg_current_wal_insert_lsn(), '0/0')::bigint";
    client.query_one(position, &[]).await.unwrap().get(0)
}

#[expect(clippy::disallowed_methods, reason = "a bench measures time")]
pub fn now() -> Instant {
    Instant::now()
}

/// Random text, so that PostgreSQL cannot compress it.
pub fn noise(length: usize, mut state: u64) -> Vec<u8> {
    state = state.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1;
    let mut next = || {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        b'0' + (state >> 33) as u8 % 74
    };
    let text = (0..length).map(|_| next());
    text.map(|byte| if byte == b'\\' { b'z' } else { byte }).collect()
}

pub async fn connect(config: &Config, schema: &str) -> Client {
    let mut config = config.clone();
    config.options(format!("-c search_path={schema}"));
    let (client, connection) = config.connect(NoTls).await.unwrap();
    tokio::spawn(connection);
    client
}

pub async fn drop_schema(config: &Config, schema: &str) {
    let drop = format!("DROP SCHEMA IF EXISTS {schema} CASCADE");
    connect(config, "public").await.batch_execute(&drop).await.unwrap();
}
