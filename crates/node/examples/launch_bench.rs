//! Measures the overhead of the process runner on `/bin/true` with one input and one output pipe, and the speed of its pipes:
//! `cargo run --release -p towline-node --example launch_bench`.
#![allow(clippy::unwrap_used, clippy::print_stdout, reason = "a bench")]

use clap::Parser;
use std::collections::BTreeMap;
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::time::{Duration, Instant};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use towline_node::runner::{
    Launch, Limits, ProcessConfig, ProcessRunner, PullPolicy, Runner, exec_shim, guard,
};

#[derive(Debug, Parser)]
struct Options {
    /// Launches one after the other.
    #[arg(long, default_value_t = 1000)]
    serial: usize,
    /// Launches in total at each concurrency.
    #[arg(long, default_value_t = 4000)]
    launches: usize,
    /// Launches at once.
    #[arg(long, default_value_t = 16)]
    concurrency: usize,
    /// MiB to copy through a command.
    #[arg(long, default_value_t = 2048)]
    stream_mib: usize,
}

fn main() {
    let mut args = std::env::args_os().skip(1);
    match args.next().as_deref().and_then(|name| name.to_str()) {
        Some("node-exec") => {
            let _ = exec_shim(args);
            std::process::exit(127);
        }
        Some("node-guardian") => return guard(args).unwrap(),
        _ => {}
    }
    let options = Options::parse();
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().unwrap();
    runtime.block_on(measure(&options));
}

async fn measure(options: &Options) {
    let root = tempfile::tempdir().unwrap();
    let runner = Arc::new(
        ProcessRunner::new(ProcessConfig {
            root: root.path().to_owned(),
            instance: "bench".to_owned(),
            shim: vec!["/proc/self/exe".into(), "node-exec".into()],
            guardian: vec!["/proc/self/exe".into(), "node-guardian".into()],
        })
        .unwrap(),
    );
    let plain = times(options.serial, spawn_and_wait);
    let mut through = Vec::new();
    for index in 0..options.serial {
        let start = now();
        launch(&*runner, format!("serial-{index}")).await;
        through.push(now() - start);
    }
    through.sort();
    report("plain spawn and wait", &plain);
    report("through the runner", &through);
    let ratio = middle(&through).as_secs_f64() / middle(&plain).as_secs_f64();
    println!("{:<24} {ratio:.2} of the plain p50", "ratio");

    let each = options.launches / options.concurrency;
    let start = now();
    std::thread::scope(|scope| {
        for _ in 0..options.concurrency {
            scope.spawn(move || (0..each).for_each(|_| spawn_and_wait()));
        }
    });
    rate("plain", options.concurrency, each, now() - start);
    let start = now();
    let tasks = (0..options.concurrency).map(|task| {
        let runner = Arc::clone(&runner);
        tokio::spawn(async move {
            for index in 0..each {
                launch(&*runner, format!("task-{task}-{index}")).await;
            }
        })
    });
    for task in tasks.collect::<Vec<_>>() {
        task.await.unwrap();
    }
    rate("through the runner", options.concurrency, each, now() - start);
    stream(&*runner, options.stream_mib).await;
}

/// Copies bytes through the two pipes of a `cat`.
async fn stream(runner: &dyn Runner, mib: usize) {
    let mut launch = launch_of("stream".to_owned());
    launch.command = ["/bin/sh", "-c", "cat < \"$IN_PIPE\" > \"$OUT_PIPE\""].map(str::to_owned).to_vec();
    let start = now();
    let mut running = runner.start(launch).await.unwrap();
    let mut input = running.inputs.remove("in").unwrap();
    let writing = tokio::spawn(async move {
        let piece = vec![7; 1 << 20];
        for _ in 0..mib {
            input.write_all(&piece).await.unwrap();
        }
    });
    let mut output = running.outputs.remove("out").unwrap();
    let (mut piece, mut total) = (vec![0; 256 << 10], 0);
    loop {
        match output.read(&mut piece).await.unwrap() {
            0 => break,
            count => total += count,
        }
    }
    writing.await.unwrap();
    assert!(running.handle.wait().await.is_success());
    assert_eq!(total, mib << 20);
    let speed = mib as f64 / (now() - start).as_secs_f64();
    println!("{:<24} {speed:>6.0} MiB/s through both pipes of `cat`", "stream");
}

async fn launch(runner: &dyn Runner, id: String) {
    let mut running = runner.start(launch_of(id)).await.unwrap();
    let mut input = running.inputs.remove("in").unwrap();
    let mut output = running.outputs.remove("out").unwrap();
    let (_, read, exit) = tokio::join!(
        async { input.write_all(b"never read").await },
        async { output.read_to_end(&mut Vec::new()).await.unwrap() },
        running.handle.wait()
    );
    assert_eq!(read, 0);
    assert!(exit.is_success());
}

fn launch_of(id: String) -> Launch {
    Launch {
        id,
        image: None,
        command: vec!["/bin/true".to_owned()],
        args: Vec::new(),
        environment: BTreeMap::new(),
        inputs: vec!["in".to_owned()],
        outputs: vec!["out".to_owned()],
        files: Vec::new(),
        limits: Limits::default(),
        pull: PullPolicy::default(),
        stop_grace: Duration::from_secs(1),
    }
}

fn spawn_and_wait() {
    let mut command = Command::new("/bin/true");
    command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
    assert!(command.spawn().unwrap().wait().unwrap().success());
}

fn times(count: usize, mut run: impl FnMut()) -> Vec<Duration> {
    let mut times: Vec<Duration> = (0..count)
        .map(|_| {
            let start = now();
            run();
            now() - start
        })
        .collect();
    times.sort();
    times
}

#[expect(clippy::disallowed_methods, reason = "a bench measures the machine's time")]
fn now() -> Instant {
    Instant::now()
}

fn middle(sorted: &[Duration]) -> Duration {
    sorted[sorted.len() / 2]
}

fn report(what: &str, sorted: &[Duration]) {
    let p99 = sorted[sorted.len() * 99 / 100];
    println!("{what:<24} p50 {:>8.3?}, p99 {p99:>8.3?}", middle(sorted));
}

fn rate(what: &str, concurrency: usize, each: usize, time: Duration) {
    let count = concurrency * each;
    let rate = count as f64 / time.as_secs_f64();
    println!("{what:<24} {rate:>6.0} launches/s at {concurrency} at once");
}
