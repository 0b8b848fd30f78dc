//! Compares the embedded store with the raw disk in one run: `cargo run --release -p towline-embedded --example bench`.
//!
//! All rates count acknowledged, durable operations. The raw rates write the same bytes in the same batches to a preallocated
//! file, with one fdatasync for each batch. No store on this disk can be faster.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::print_stdout, clippy::print_stderr)]
#![allow(clippy::disallowed_methods)] // A benchmark measures time.

use bytes::Bytes;
use clap::Parser;
use futures::executor::block_on;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};
use towline_domain::change::Answer;
use towline_domain::command::Verb;
use towline_domain::{
    Adjust, FieldSet, Fields, ItemId, ItemState, LeaseCall, Millis, Outcome, Policy, QueueName, Schema,
    Submission, Timestamp, TokenSeed,
};
use towline_embedded::{Durability, Embedded, Options};
use towline_store::{Clock, Operation, ReceiveCall, Reply, Store};

#[derive(Parser)]
struct Arguments {
    /// Print one JSON object instead of a table.
    #[arg(long)]
    json: bool,
    /// Directory for the stores, on the disk to be measured.
    #[arg(long)]
    directory: Option<PathBuf>,
    /// Seconds of measurement for each rate.
    #[arg(long, default_value_t = 4.0)]
    seconds: f64,
    /// Number of pending items in the large cases.
    #[arg(long, default_value_t = 10_000_000)]
    large: u64,
    /// Run only the measurements whose name contains this text.
    #[arg(long)]
    only: Option<String>,
    /// Number of concurrent callers in the life-cycle measurements.
    #[arg(long, default_value_t = 8)]
    clients: usize,
    /// Durability: `sync`, or `interval` for one sync a second.
    #[arg(long, default_value = "sync")]
    durability: String,
}

struct SystemClock;

impl Clock for SystemClock {
    fn now(&self) -> Timestamp {
        Timestamp(SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |d| d.as_millis() as u64))
    }
}

struct Bench {
    arguments: Arguments,
    directory: PathBuf,
    rows: Vec<(String, f64, &'static str, String)>,
}

impl Bench {
    fn row(&mut self, name: &str, value: f64, unit: &'static str, note: String) {
        if !self.arguments.json {
            let value = if value >= 1000.0 { format!("{value:.0}") } else { format!("{value:.2}") };
            println!("{name:<44} {value:>12} {unit:<10} {note}");
        }
        self.rows.push((name.to_owned(), value, unit, note));
    }

    fn wants(&self, name: &str) -> bool {
        self.arguments.only.as_ref().is_none_or(|only| name.contains(only.as_str()))
    }

    fn options(&self) -> Options {
        let durability = match self.arguments.durability.as_str() {
            "interval" => Durability::Interval(Duration::from_secs(1)),
            _ => Durability::Sync,
        };
        Options { salt: 0x5eed, durability, ..Options::default() }
    }

    fn open(&self, name: &str) -> (Embedded, PathBuf) {
        let path = self.directory.join(name);
        let _ = std::fs::remove_dir_all(&path);
        (Embedded::open(&path, self.options(), Arc::new(SystemClock)).unwrap(), path)
    }
}

fn main() {
    let arguments = Arguments::parse();
    let base = arguments.directory.clone().unwrap_or_else(|| PathBuf::from("target/bench-data"));
    std::fs::create_dir_all(&base).unwrap();
    let mut bench = Bench { arguments, directory: base.clone(), rows: Vec::new() };

    for (size, batch) in [(100, 64), (100, 4096), (4500, 64), (4500, 512)] {
        let case = format!("{size} B x {batch}");
        let (life, submits) = (format!("life-cycles, {case}"), format!("submits, {case}"));
        if bench.wants(&format!("raw durable writes, {case}")) || bench.wants(&life) || bench.wants(&submits)
        {
            raw(&mut bench, size, batch);
        }
        if bench.wants(&life) {
            lifecycle(&mut bench, &life, size, batch);
        }
        if bench.wants(&submits) {
            submit(&mut bench, &submits, size, batch);
        }
    }
    if bench.wants("single") {
        single(&mut bench);
    }
    if bench.wants("large") {
        large(&mut bench);
    }
    if bench.wants("purge") {
        purge(&mut bench);
    }
    let _ = std::fs::remove_dir_all(&base);
    if bench.arguments.json {
        let rows: Vec<_> = bench
            .rows
            .iter()
            .map(|(name, value, unit, note)| {
                serde_json::json!({"name": name, "value": value, "unit": unit, "note": note})
            })
            .collect();
        println!("{}", serde_json::json!({ "rows": rows }));
    }
}

/// Durable bytes a second of the raw disk: preallocated blocks, one fdatasync for each batch.
fn raw_rate(directory: &Path, bytes: usize, seconds: f64) -> f64 {
    let path = directory.join("raw");
    let file = std::fs::File::create(&path).unwrap();
    let buffer = noise(bytes);
    let span = (256 << 20) / bytes * bytes;
    for offset in (0..span).step_by(bytes) {
        file.write_all_at(&buffer, offset as u64).unwrap();
    }
    file.sync_all().unwrap();
    let (start, mut count) = (Instant::now(), 0u64);
    while start.elapsed().as_secs_f64() < seconds {
        file.write_all_at(&buffer, count * bytes as u64 % span as u64).unwrap();
        file.sync_data().unwrap();
        count += 1;
    }
    let rate = count as f64 * bytes as f64 / start.elapsed().as_secs_f64();
    let _ = std::fs::remove_file(path);
    rate
}

fn raw(bench: &mut Bench, size: usize, batch: usize) {
    let rate = raw_rate(&bench.directory, size * batch, bench.arguments.seconds.min(2.0));
    let name = format!("raw durable writes, {size} B x {batch}");
    bench.row(&name, rate / size as f64, "items/s", format!("{:.0} MB/s", rate / 1e6));
}

fn noise(bytes: usize) -> Vec<u8> {
    let mut state = 0x2545_f491_4f6c_dd1du64;
    (0..bytes)
        .map(|_| {
            state ^= state << 13;
            state ^= state >> 7;
            state ^= state << 17;
            state as u8
        })
        .collect()
}

fn queue(name: &str) -> QueueName {
    name.parse().unwrap()
}

fn create(store: &Embedded, name: &str) {
    // Finished items are removed at once, so that the store reuses segments in a steady state.
    let policy = Policy { completed_ttl: Some(Millis(0)), ..Policy::default() };
    let create = Operation::CreateQueue {
        queue: queue(name),
        schema: Box::new(Schema::default()),
        policy: Box::new(policy),
    };
    block_on(store.update(vec![create])).unwrap().answers[0].clone().unwrap();
}

fn submissions(name: &QueueName, payload: &Bytes, batch: usize) -> Vec<Operation> {
    let fields = Fields { blob: Some(payload.clone()), ..Fields::default() };
    let submission = Submission { fields, ..Submission::default() };
    (0..batch)
        .map(|_| Operation::Submit { queue: name.clone(), submission: Box::new(submission.clone()) })
        .collect()
}

static SEED: AtomicU64 = AtomicU64::new(1);

fn receive(name: &QueueName, max: usize, fields: FieldSet) -> Operation {
    let mut seed = [0; 32];
    seed[..8].copy_from_slice(&SEED.fetch_add(1, Ordering::Relaxed).to_le_bytes());
    Operation::Receive(Box::new(ReceiveCall {
        queue: name.clone(),
        max: max as u32,
        visibility: None,
        assigned: false,
        seed: TokenSeed(seed),
        fields,
        make_buffers: false,
    }))
}

fn received(store: &Embedded, name: &QueueName, max: usize, fields: FieldSet) -> Vec<(ItemId, Operation)> {
    let mut replies = block_on(store.update(vec![receive(name, max, fields)])).unwrap().answers;
    let Ok(Reply::Received(received)) = replies.remove(0) else { panic!("not received") };
    let commit = |item: towline_domain::Item| {
        let lease = item.head.lease().unwrap();
        let verb = Verb::Commit(Outcome::default());
        let call = LeaseCall { token: lease.token, verb, adjust: Adjust::default() };
        (item.head.id, Operation::Lease { id: item.head.id, call: Box::new(call) })
    };
    received.items.into_iter().map(commit).collect()
}

fn lifecycle(bench: &mut Bench, name: &str, size: usize, batch: usize) {
    let (store, path) = bench.open("life");
    let payload = Bytes::from(noise(size));
    let done = AtomicU64::new(0);
    let stop = AtomicBool::new(false);
    let clients = bench.arguments.clients;
    for client in 0..clients {
        create(&store, &format!("q{client}"));
    }
    let measured = std::thread::scope(|scope| {
        for client in 0..clients {
            let (store, payload, done, stop) = (&store, &payload, &done, &stop);
            scope.spawn(move || {
                let name = queue(&format!("q{client}"));
                while !stop.load(Ordering::Relaxed) {
                    let answers = block_on(store.update(submissions(&name, payload, batch))).unwrap().answers;
                    assert!(answers.iter().all(Result::is_ok));
                    let items = received(store, &name, batch, FieldSet::ALL);
                    assert_eq!(items.len(), batch);
                    let commits = items.into_iter().map(|(_, commit)| commit).collect();
                    let answers = block_on(store.update(commits)).unwrap().answers;
                    assert!(
                        answers.iter().all(|a| *a == Ok(Reply::Answer(Answer::State(ItemState::Completed))))
                    );
                    done.fetch_add(batch as u64, Ordering::Relaxed);
                }
            });
        }
        std::thread::sleep(Duration::from_secs_f64(bench.arguments.seconds.min(3.0)));
        let status = block_on(store.status()).unwrap();
        let (start, before, syncs) = (Instant::now(), done.load(Ordering::Relaxed), store.syncs());
        std::thread::sleep(Duration::from_secs_f64(bench.arguments.seconds));
        let (count, elapsed) = (done.load(Ordering::Relaxed) - before, start.elapsed().as_secs_f64());
        let after = block_on(store.status()).unwrap();
        let syncs = store.syncs() - syncs;
        stop.store(true, Ordering::Relaxed);
        let bytes = after.bytes_written - status.bytes_written;
        (count as f64 / elapsed, bytes as f64 / (count as f64 * size as f64), syncs as f64 / elapsed)
    });
    let (rate, amplification, syncs) = measured;
    bench.row(name, rate, "items/s", format!("written/submitted {amplification:.3}, {syncs:.0} syncs/s"));
    drop(store);
    let _ = std::fs::remove_dir_all(path);
}

/// Submits only, in rounds that fit into reused segments. Each round is deleted before the next. A long round into new files is
/// measured separately, because there the operating system also allocates blocks and memory.
fn submit(bench: &mut Bench, title: &str, size: usize, batch: usize) {
    let (store, path) = bench.open("submit");
    let payload = Bytes::from(noise(size));
    let clients = bench.arguments.clients;
    let name = queue("q");
    // Items and seconds.
    let round = |bytes: u64| {
        let limit = bytes / size as u64;
        create(&store, "q");
        let (done, start) = (AtomicU64::new(0), Instant::now());
        std::thread::scope(|scope| {
            for _ in 0..clients {
                scope.spawn(|| {
                    while done.fetch_add(batch as u64, Ordering::Relaxed) < limit {
                        let answers = block_on(store.update(submissions(&name, &payload, batch))).unwrap();
                        assert!(answers.answers.iter().all(Result::is_ok));
                    }
                });
            }
        });
        let elapsed = start.elapsed().as_secs_f64();
        let items = block_on(store.queue(name.clone())).unwrap().unwrap().counts.total();
        let delete = Operation::DeleteQueue { queue: name.clone(), force: true };
        block_on(store.update(vec![delete])).unwrap().answers[0].clone().unwrap();
        while block_on(store.status()).unwrap().live_bytes > 1 << 20 {
            std::thread::sleep(Duration::from_millis(2));
        }
        (items as f64, elapsed)
    };
    let (items, elapsed) = round((1 << 30).min(2_000_000 * size as u64));
    let growing = items / elapsed;
    // The speed of a disk varies, so each measurement is compared with the raw disk right after it.
    let mut measured: Vec<(f64, f64)> = (0..5)
        .map(|_| {
            let (mut items, mut elapsed) = (0.0, 0.0);
            while elapsed < bench.arguments.seconds / 8.0 {
                let (more, took) = round(96 << 20);
                (items, elapsed) = (items + more, elapsed + took);
            }
            let rate = items / elapsed;
            (rate * size as f64 / raw_rate(&bench.directory, size * batch, 0.4), rate)
        })
        .collect();
    measured.sort_by(|a, b| a.0.total_cmp(&b.0));
    let (ratio, rate) = measured[2];
    let note =
        format!("{ratio:.2} of the raw disk right after it (median of 5); into new files {growing:.0}");
    bench.row(title, rate, "items/s", note);
    drop(store);
    let _ = std::fs::remove_dir_all(path);
}

/// One caller, one item in each call.
fn single(bench: &mut Bench) {
    let (store, path) = bench.open("single");
    create(&store, "q");
    let name = queue("q");
    let payload = Bytes::from(noise(100));
    for clients in [1usize, 16, 64] {
        let (latencies, start) = (std::sync::Mutex::new(Vec::new()), Instant::now());
        let seconds = bench.arguments.seconds.min(2.0);
        std::thread::scope(|scope| {
            for _ in 0..clients {
                scope.spawn(|| {
                    let mut mine = Vec::new();
                    while start.elapsed().as_secs_f64() < seconds {
                        let begun = Instant::now();
                        block_on(store.update(submissions(&name, &payload, 1))).unwrap().answers[0]
                            .clone()
                            .unwrap();
                        mine.push(begun.elapsed());
                    }
                    latencies.lock().unwrap().extend(mine);
                });
            }
        });
        let elapsed = start.elapsed().as_secs_f64();
        let mut latencies = latencies.into_inner().unwrap();
        latencies.sort_unstable();
        let at = |share: f64| latencies[((latencies.len() - 1) as f64 * share) as usize].as_micros();
        let note = format!("p50 {} us, p99 {} us", at(0.5), at(0.99));
        bench.row(
            &format!("single submits, {clients} callers"),
            latencies.len() as f64 / elapsed,
            "items/s",
            note,
        );
    }
    drop(store);
    let _ = std::fs::remove_dir_all(path);
}

fn resident() -> f64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap();
    let line = status.lines().find(|line| line.starts_with("VmRSS")).unwrap();
    line.split_whitespace().nth(1).unwrap().parse::<f64>().unwrap() * 1024.0
}

fn fill(store: &Embedded, name: &QueueName, payload: &Bytes, count: u64) {
    for _ in 0..count / 5000 {
        let answers = block_on(store.update(submissions(name, payload, 5000))).unwrap().answers;
        assert!(answers.iter().all(Result::is_ok));
    }
}

/// Nanoseconds to receive one item without its payload.
fn receive_cost(store: &Embedded, name: &QueueName) -> f64 {
    let mut best = f64::MAX;
    for _ in 0..8 {
        let start = Instant::now();
        let items = received(store, name, 1000, FieldSet::NONE);
        best = best.min(start.elapsed().as_nanos() as f64 / items.len() as f64);
        assert_eq!(items.len(), 1000);
    }
    best
}

fn large(bench: &mut Bench) {
    let payload = Bytes::from(noise(100));
    let (store, path) = bench.open("large");
    let name = queue("q");
    create(&store, "q");
    fill(&store, &name, &payload, 20_000);
    let small = receive_cost(&store, &name);
    bench.row("receive at 10,000 pending", small, "ns/item", String::new());
    drop(store);
    let _ = std::fs::remove_dir_all(path);

    for count in [1_000_000, bench.arguments.large] {
        let (store, path) = bench.open("large");
        create(&store, "q");
        let before = resident();
        fill(&store, &name, &payload, count);
        let bytes = (resident() - before) / count as f64;
        bench.row(&format!("memory an item, {count} pending"), bytes, "bytes", String::new());
        let cost = receive_cost(&store, &name);
        let note = format!("{:.2} x that at 10,000", cost / small);
        bench.row(&format!("receive at {count} pending"), cost, "ns/item", note);
        drop(store);
        let start = Instant::now();
        let store = Embedded::open(&path, bench.options(), Arc::new(SystemClock)).unwrap();
        let elapsed = start.elapsed().as_secs_f64();
        bench.row(&format!("open with {count} pending"), elapsed, "s", String::new());
        assert_eq!(block_on(store.queue(name.clone())).unwrap().unwrap().counts.total(), count);
        drop(store);
        let _ = std::fs::remove_dir_all(path);
    }
}

/// Deletes a million items while a client submits. Measures the longest wait and the final size of the directory.
fn purge(bench: &mut Bench) {
    let (store, path) = bench.open("purge");
    let payload = Bytes::from(noise(1000));
    create(&store, "old");
    create(&store, "new");
    let (old, new) = (queue("old"), queue("new"));
    fill(&store, &old, &payload, 1_000_000);
    let full = directory_bytes(&path);
    let stop = AtomicBool::new(false);
    let (worst, elapsed) = std::thread::scope(|scope| {
        let submitter = scope.spawn(|| {
            let mut worst = Duration::ZERO;
            while !stop.load(Ordering::Relaxed) {
                let start = Instant::now();
                block_on(store.update(submissions(&new, &payload, 1))).unwrap().answers[0].clone().unwrap();
                worst = worst.max(start.elapsed());
                std::thread::sleep(Duration::from_millis(1));
            }
            worst
        });
        let start = Instant::now();
        let filter = towline_store::Filter { queue: Some(old.clone()), ..towline_store::Filter::default() };
        let mut after = None;
        loop {
            let delete = towline_store::BulkAction::Delete { force: false };
            let result = block_on(towline_store::bulk(&store, &delete, filter.clone(), after, 500)).unwrap();
            after = result.next;
            if after.is_none() {
                break;
            }
        }
        let elapsed = start.elapsed();
        let settled = Instant::now();
        while settled.elapsed() < Duration::from_secs(20) {
            let status = block_on(store.status()).unwrap();
            let allowed = 2 * status.live_bytes + 4 * status.segment_bytes;
            if directory_bytes(&path) <= allowed {
                break;
            }
            std::thread::sleep(Duration::from_millis(50));
        }
        stop.store(true, Ordering::Relaxed);
        (submitter.join().unwrap(), elapsed)
    });
    let status = block_on(store.status()).unwrap();
    let allowed = 2 * status.live_bytes + 4 * status.segment_bytes;
    let after = directory_bytes(&path);
    bench.row("purge of 1,000,000 items", elapsed.as_secs_f64(), "s", String::new());
    bench.row("longest submit during it", worst.as_secs_f64() * 1e3, "ms", String::new());
    let note =
        format!("from {:.0} MB; 2 x live + 4 segments is {:.0} MB", full as f64 / 1e6, allowed as f64 / 1e6);
    bench.row("directory after it", after as f64 / 1e6, "MB", note);
    drop(store);
    let _ = std::fs::remove_dir_all(path);
}

fn directory_bytes(path: &Path) -> u64 {
    use std::os::unix::fs::MetadataExt;
    let entries = std::fs::read_dir(path).unwrap().filter_map(Result::ok);
    entries.filter_map(|entry| entry.metadata().ok()).map(|meta| meta.blocks() * 512).sum()
}
