//! Measures the throughput of buffers in one process, without a server:
//! `cargo run --release -p towline-buffers --example throughput -- --help`.
//!
//! Every written byte is durable. Every byte read was checked against its hash and the hash chain, usually from the page
//! cache. For comparison, the raw figure shows plain threads that write and sync the same files without hashes.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::print_stdout,
    reason = "a benchmark prints its results and stops at an error"
)]
#![allow(clippy::disallowed_methods, reason = "a benchmark measures time")]

use std::io::Write;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use bytes::Bytes;
use clap::Parser;
use futures::{StreamExt, TryStreamExt, stream};
use towline_buffers::{Buffers, Location, NewBuffer, NewChunk, Options, Position, WriterId};

const NOW: u64 = 1_800_000_000_000;
const WRITER: WriterId = WriterId::from_bytes([1; 16]);
const WAIT: Duration = Duration::from_secs(60);

#[derive(Parser)]
struct Arguments {
    /// Directory on the disk to measure. The benchmark uses a temporary directory in it.
    #[arg(long, default_value = ".")]
    directory: PathBuf,
    /// Size of each buffer, in MiB.
    #[arg(long, default_value_t = 1024)]
    mib: u64,
    /// Size of a chunk, in KiB.
    #[arg(long, default_value_t = 4096)]
    chunk_kib: usize,
    /// Number of chunks sent in parallel.
    #[arg(long, default_value_t = 4)]
    parallel: usize,
    /// Number of rounds. Each figure is the median of all rounds.
    #[arg(long, default_value_t = 5)]
    rounds: usize,
}

struct Plan {
    chunks: Vec<NewChunk>,
    totals: Position,
    parallel: usize,
}

impl Plan {
    /// Hashes and links the chunks once, because a client does this work.
    fn new(arguments: &Arguments) -> Self {
        let bytes = arguments.chunk_kib << 10;
        let count = (arguments.mib << 20).div_ceil(bytes as u64) as u32;
        let mut data = vec![0; bytes];
        blake3::Hasher::new().finalize_xof().fill(&mut data);
        let data = Bytes::from(data);
        let hash = blake3::hash(&data);
        let mut totals = Position::START;
        let next = |n| {
            totals = totals.after(bytes as u64, &hash);
            NewChunk { n, hash, chain: totals.chain, data: vec![data.clone()] }
        };
        let chunks = (0..count).map(next).collect();
        Self { chunks, totals, parallel: arguments.parallel }
    }

    async fn write(&self, buffers: &Buffers, id: &str) {
        buffers.begin(id, WRITER, NOW).await.unwrap();
        let puts = stream::iter(&self.chunks).map(|chunk| buffers.put_chunk(id, WRITER, chunk.clone(), NOW));
        puts.buffer_unordered(self.parallel).try_for_each(|_| async { Ok(()) }).await.unwrap();
        buffers.finish(id, WRITER, self.totals, NOW).await.unwrap();
    }

    /// Writes the same files without buffers: write, sync, rename, sync the directory.
    fn write_raw(&self, directory: &Path) {
        std::fs::create_dir_all(directory).unwrap();
        std::thread::scope(|scope| {
            for thread in 0..self.parallel {
                scope.spawn(move || {
                    for chunk in self.chunks.iter().skip(thread).step_by(self.parallel) {
                        let name = directory.join(format!("{:08}", chunk.n));
                        let temporary = name.with_extension("tmp");
                        let mut file = std::fs::File::create(&temporary).unwrap();
                        file.write_all(&chunk.data[0]).unwrap();
                        file.sync_all().unwrap();
                        std::fs::rename(temporary, name).unwrap();
                        std::fs::File::open(directory).unwrap().sync_all().unwrap();
                    }
                });
            }
        });
    }
}

async fn read(buffers: &Buffers, id: &str) -> u64 {
    let stream = buffers.read(id, 0..u64::MAX, WAIT, NOW).await.unwrap();
    stream.try_fold(0, |sum, piece| async move { Ok(sum + piece.len() as u64) }).await.unwrap()
}

/// GB (10^9 bytes) a second.
fn rate(bytes: u64, since: Instant) -> f64 {
    bytes as f64 / since.elapsed().as_secs_f64() / 1e9
}

fn median(mut figures: Vec<f64>) -> f64 {
    figures.sort_by(f64::total_cmp);
    figures[figures.len() / 2]
}

#[tokio::main]
async fn main() {
    let arguments = Arguments::parse();
    let directory = tempfile::tempdir_in(&arguments.directory).unwrap();
    let location = Location::Directory(directory.path().join("buffers"));
    let buffers = Buffers::open(&location, Options::default()).unwrap();
    let plan = Plan::new(&arguments);
    let bytes = plan.totals.bytes;
    let [mut raw, mut alone, mut again, mut both] = [const { Vec::new() }; 4];
    for _ in 0..arguments.rounds {
        let raw_directory = directory.path().join("raw");
        let start = Instant::now();
        plan.write_raw(&raw_directory);
        raw.push(rate(bytes, start));
        std::fs::remove_dir_all(&raw_directory).unwrap();

        buffers.create("alone", NewBuffer::default(), NOW).await.unwrap();
        let start = Instant::now();
        plan.write(&buffers, "alone").await;
        alone.push(rate(bytes, start));
        let start = Instant::now();
        assert_eq!(read(&buffers, "alone").await, bytes);
        again.push(rate(bytes, start));
        buffers.delete("alone").await.unwrap();

        buffers.create("both", NewBuffer::default(), NOW).await.unwrap();
        let start = Instant::now();
        let (reader, writer) = (buffers.clone(), plan.write(&buffers, "both"));
        let reader = tokio::spawn(async move { read(&reader, "both").await });
        writer.await;
        assert_eq!(reader.await.unwrap(), bytes);
        both.push(rate(bytes, start));
        buffers.delete("both").await.unwrap();
    }
    let chunk_kib = arguments.chunk_kib;
    println!("{} MiB, chunks of {chunk_kib} KiB, {} in parallel, GB/s:", arguments.mib, arguments.parallel);
    println!("  raw files, written and synced  {:6.2}", median(raw));
    println!("  written                        {:6.2}", median(alone));
    println!("  read                           {:6.2}", median(again));
    println!("  written and read in parallel {:6.2} each", median(both));
}
