//! How many pieces of work that do nothing go through the library in a second, in memory and on an embedded store.
//!
//! `cargo run --release -p towline --features embedded --example overhead -- [pieces] [rounds]`
//!
//! Queued and done at the same time: the clock runs from the first push to the last ack.
#![allow(clippy::unwrap_used, clippy::print_stdout, reason = "a benchmark")]

use futures::stream::{self, StreamExt};
use std::time::{Duration, Instant};
use towline::{Backend, Doer, Embedded, Memory, Outcome, System, work};

/// Pushes under way at one time: one sync of the store serves many.
const AT_ONCE: usize = 256;

#[expect(clippy::disallowed_methods, reason = "a benchmark")]
async fn pieces_per_second(backend: impl Into<Backend>, pieces: u64) -> f64 {
    let nothing = work("nothing", |_: u64, _| async { Ok(Outcome::<()>::Void) });
    let system = System::on(backend).work(&nothing).doer(Doer::balanced(AT_ONCE)).start().unwrap();
    let begun = Instant::now();
    stream::iter(0..pieces)
        .for_each_concurrent(AT_ONCE, |n| {
            let (system, job) = (system.clone(), nothing.of(n));
            async move { drop(system.queue(job).await.unwrap()) }
        })
        .await;
    while system.stats().completed < pieces {
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
    let took = begun.elapsed();
    system.stop(Duration::from_secs(10)).await;
    pieces as f64 / took.as_secs_f64()
}

fn main() {
    let mut numbers = std::env::args().skip(1).map(|number| number.parse::<u64>().unwrap());
    let (pieces, rounds) = (numbers.next().unwrap_or(20_000), numbers.next().unwrap_or(3));
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().unwrap();
    runtime.block_on(async {
        for _ in 0..rounds {
            println!("memory   {:>9.0} pieces/s", pieces_per_second(Memory::new(), pieces).await);
            let directory = tempfile::tempdir().unwrap();
            let embedded = Embedded::open(directory.path()).unwrap();
            println!("embedded {:>9.0} pieces/s", pieces_per_second(embedded, pieces).await);
        }
    });
}
