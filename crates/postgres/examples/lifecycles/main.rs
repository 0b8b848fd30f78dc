//! Life-cycles a second (submit, receive with the payload, commit), of this store at its port and, in the same PostgreSQL,
//! of queues that are a table and a few statements: see `tables.rs` for what each of them does.
//!
//! `cargo run --release -p towline-postgres --example lifecycles -- --url 'host=/run/postgresql user=me dbname=bench'`
//!
//! A queue of `--depth` items stays behind throughout. `--items` are submitted in bulk, then drained; the rate is that of
//! both together. Payloads are noise. `--held-snapshot` has somebody else keep a transaction open meanwhile, `--retention`
//! removes that many finished items. It makes schemas named `bench_...` in that database, and removes them again.
#![allow(clippy::unwrap_used, clippy::print_stdout, reason = "a bench prints, and stops at the first fault")]

mod ours;
mod tables;

use clap::{Parser, ValueEnum};
use std::time::{Duration, Instant};
use tokio_postgres::{Client, Config, NoTls};

#[derive(Debug, Parser)]
pub struct Arguments {
    /// A PostgreSQL to use, as libpq spells it.
    #[arg(long)]
    url: Config,
    #[arg(long, value_delimiter = ',', default_value = "towline,skip-locked,pgmq-like,cyclotron-like")]
    who: Vec<Who>,
    /// Payload sizes to measure.
    #[arg(long, value_delimiter = ',', default_values_t = [100, 4500])]
    bytes: Vec<usize>,
    /// Items in one call to this store.
    #[arg(long, value_delimiter = ',', default_values_t = [64, 512])]
    batch: Vec<usize>,
    /// Callers of this store.
    #[arg(long, default_value_t = 8)]
    callers: usize,
    /// Connections of this store that write.
    #[arg(long, default_value_t = towline_postgres::Options::default().workers)]
    workers: usize,
    /// Items that wait throughout.
    #[arg(long, value_delimiter = ',', default_values_t = [10_000])]
    depth: Vec<usize>,
    /// Items that are submitted, received and committed; a tenth of it by the one that is slow.
    #[arg(long, default_value_t = 100_000)]
    items: usize,
    /// How often all of it is measured, in turns.
    #[arg(long, default_value_t = 1)]
    rounds: usize,
    /// Somebody else holds a snapshot throughout; so many seconds of the same traffic come before what is measured.
    #[arg(long)]
    held_snapshot: Option<u64>,
    /// Nothing is told of what this store does.
    #[arg(long)]
    without_events: bool,
    /// Instead of the rest: how long it takes to remove this many finished items.
    #[arg(long)]
    retention: Option<usize>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Who {
    Towline,
    SkipLocked,
    PgmqLike,
    CyclotronLike,
}

/// What was seen.
#[derive(Debug)]
pub struct Seen {
    filled: Duration,
    drained: Duration,
    wal_bytes: i64,
    items: usize,
}

#[tokio::main(flavor = "multi_thread", worker_threads = 2)]
async fn main() {
    let arguments = Arguments::parse();
    if let Some(items) = arguments.retention {
        return ours::retention(&arguments, items).await;
    }
    println!("{:14} bytes batch   depth | life-cycles/s | submits/s | drains/s | WAL bytes an item", "who");
    for _ in 0..arguments.rounds {
        for &depth in &arguments.depth {
            for &bytes in &arguments.bytes {
                for &who in &arguments.who {
                    measure_all(&arguments, who, bytes, depth).await;
                }
            }
        }
    }
}

async fn measure_all(arguments: &Arguments, who: Who, bytes: usize, depth: usize) {
    let name = who.to_possible_value().unwrap().get_name().to_owned();
    let print = |batch: usize, seen: &Seen| {
        let rate = |time: Duration| seen.items as f64 / time.as_secs_f64();
        let whole = rate(seen.filled + seen.drained);
        let (fill, drain) = (rate(seen.filled), rate(seen.drained));
        let wal = seen.wal_bytes / i64::try_from(seen.items).unwrap();
        println!(
            "{name:14} {bytes:5} {batch:5} {depth:7} | {whole:13.0} | {fill:9.0} | {drain:8.0} | {wal:6}"
        );
    };
    match who {
        Who::Towline => {
            for &batch in &arguments.batch {
                print(batch, &ours::measure(arguments, bytes, batch, depth).await);
            }
        }
        Who::SkipLocked => print(500, &tables::measure(arguments, tables::SKIP_LOCKED, bytes, depth).await),
        Who::PgmqLike => print(500, &tables::measure(arguments, tables::PGMQ_LIKE, bytes, depth).await),
        Who::CyclotronLike => {
            print(100, &tables::measure(arguments, tables::CYCLOTRON_LIKE, bytes, depth).await);
        }
    }
}

/// A snapshot that somebody else holds until this is dropped, and until when there is traffic before it is measured.
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

/// Bytes that no compression shortens, and that are text.
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
