//! Pieces of work that do nothing, a second, through the worker library and through apalis, in turns in one process.
//!
//! `cargo run --release --manifest-path benches/apalis/Cargo.toml -- [pieces] [rounds]`
//!
//! Queued and done at the same time; the clock runs from the first push to the last end. In memory, apalis hands a value
//! from one task to another through a channel: no lease, no retry that outlives the worker, no result to wait for. On
//! disk it is SQLite, with `synchronous = FULL` (acknowledged is durable, as here) and pushes in bulk.

use apalis::prelude::*;
use apalis_sqlite::SqliteStorage;
use apalis::prelude::{MemorySink, MemoryStorageError};
use futures::stream::{self, StreamExt};
use futures::{Sink, SinkExt};
use std::sync::Arc;
use sqlx::sqlite::{SqliteConnectOptions, SqliteJournalMode, SqlitePoolOptions, SqliteSynchronous};
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};
use towline::{Backend, ConcurrencyLimiter, Embedded, Memory, Outcome, System, work};

/// Pushes under way at one time, and pieces that run at one time, of everybody.
const AT_ONCE: usize = 256;
/// Pushed to SQLite at one time, and taken from it: more was not faster.
const BULK: usize = 500;

static DONE: AtomicU64 = AtomicU64::new(0);

async fn nothing(_: u64) -> Result<(), BoxDynError> {
    DONE.fetch_add(1, Ordering::SeqCst);
    Ok(())
}

async fn until_done(pieces: u64) {
    while DONE.load(Ordering::SeqCst) < pieces {
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
}

fn rate(pieces: u64, begun: Instant) -> f64 {
    pieces as f64 / begun.elapsed().as_secs_f64()
}

/// How pieces are queued.
#[derive(Clone, Copy)]
enum Queued {
    Singly,
    Together,
}

const QUEUED: [(&str, Queued); 2] = [("singly", Queued::Singly), ("together", Queued::Together)];

async fn towline(backend: impl Into<Backend>, pieces: u64, queued: Queued) -> f64 {
    let nothing = work("nothing", |_: u64, _| async { Ok(Outcome::<()>::Void) });
    let system = System::on(backend).work(&nothing).concurrency(ConcurrencyLimiter::balanced(AT_ONCE)).start().unwrap();
    let begun = Instant::now();
    match queued {
        Queued::Singly => {
            let all = stream::iter(0..pieces).for_each_concurrent(AT_ONCE, |n| {
                let (system, job) = (system.clone(), nothing.of(n));
                async move { drop(system.submit(job).await.unwrap()) }
            });
            all.await;
        }
        Queued::Together => {
            let all: Vec<u64> = (0..pieces).collect();
            for bulk in all.chunks(BULK) {
                system.submit_all(bulk.iter().map(|n| nothing.of(*n))).await.unwrap();
            }
        }
    }
    while system.stats().completed < pieces {
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
    let rate = rate(pieces, begun);
    system.stop(Duration::from_secs(10)).await;
    rate
}

async fn apalis_memory(pieces: u64) -> f64 {
    DONE.store(0, Ordering::SeqCst);
    let (sender, receiver) = futures::channel::mpsc::unbounded::<Task<u64>>();
    let sender: Box<dyn Sink<Task<u64>, Error = MemoryStorageError> + Send + Sync + Unpin> =
        Box::new(sender.sink_map_err(MemoryStorageError::from));
    let mut sink = MemorySink::new(Arc::new(futures::lock::Mutex::new(sender)));
    let storage = MemoryStorage::new_with(sink.clone(), receiver.boxed());
    let worker = WorkerBuilder::new("memory")
        .backend(storage)
        .concurrency(AT_ONCE)
        .parallelize(tokio::spawn)
        .build(nothing);
    let running = tokio::task::spawn_local(async move { worker.run().await.unwrap() });
    let begun = Instant::now();
    for n in 0..pieces {
        sink.send(Task::new(n)).await.unwrap();
    }
    until_done(pieces).await;
    let rate = rate(pieces, begun);
    running.abort();
    rate
}

async fn apalis_sqlite(pieces: u64) -> f64 {
    DONE.store(0, Ordering::SeqCst);
    let directory = tempfile::tempdir().unwrap();
    let options = SqliteConnectOptions::new()
        .filename(directory.path().join("queue.db"))
        .create_if_missing(true)
        .journal_mode(SqliteJournalMode::Wal)
        .busy_timeout(Duration::from_secs(30))
        .synchronous(SqliteSynchronous::Full);
    let pool = SqlitePoolOptions::new().max_connections(4).connect_with(options).await.unwrap();
    SqliteStorage::setup(&pool).await.unwrap();
    let config = apalis_sqlite::Config::default().queue("q").batch_size(BULK);
    let make = || SqliteStorage::<u64>::new(&pool).with_config(config.clone());
    let worker = WorkerBuilder::new("sqlite")
        .backend(make().poll_with_interval(Duration::from_millis(10)))
        .concurrency(AT_ONCE)
        .parallelize(tokio::spawn)
        .build(nothing);
    let running = tokio::task::spawn_local(async move { worker.run().await.unwrap() });
    let begun = Instant::now();
    let mut storage = make();
    let all: Vec<u64> = (0..pieces).collect();
    for bulk in all.chunks(BULK) {
        storage.push_bulk(bulk.to_vec()).await.unwrap();
    }
    until_done(pieces).await;
    loop {
        let left = sqlx::query_scalar::<_, i64>("SELECT count(*) FROM Jobs WHERE status <> 'Done'");
        if left.fetch_one(&pool).await.unwrap() == 0 {
            break;
        }
        tokio::time::sleep(Duration::from_millis(2)).await;
    }
    let rate = rate(pieces, begun);
    running.abort();
    rate
}

#[tokio::main(flavor = "multi_thread", worker_threads = 2)]
async fn main() {
    let mut numbers = std::env::args().skip(1).map(|number| number.parse::<u64>().unwrap());
    let (pieces, rounds) = (numbers.next().unwrap_or(20_000), numbers.next().unwrap_or(3));
    let all = async {
        for _ in 0..rounds {
            let theirs = apalis_memory(pieces).await;
            for (how, queued) in QUEUED {
                let ours = towline(Memory::new(), pieces, queued).await;
                println!("memory,   {how:<8}: towline {ours:>9.0} apalis {theirs:>9.0} pieces/s: {:.2}", ours / theirs);
            }
            let theirs = apalis_sqlite(pieces / 5).await;
            for (how, queued) in QUEUED {
                let directory = tempfile::tempdir().unwrap();
                let ours = towline(Embedded::open(directory.path()).unwrap(), pieces, queued).await;
                println!("embedded, {how:<8}: towline {ours:>9.0} apalis {theirs:>9.0} pieces/s: {:.2}", ours / theirs);
            }
        }
    };
    tokio::task::LocalSet::new().run_until(all).await;
}
