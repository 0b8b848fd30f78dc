//! The runs and their default parameters.

use super::BenchArgs;
use super::payload::STAMP_BYTES;
use super::workload::Workload;
use anyhow::{bail, ensure};
use std::time::Duration;

/// Names as in the peers' benchmark.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
pub enum Op {
    /// One item per call, 1 connection.
    Enq1,
    /// One item per call, 16 connections.
    Enq16,
    /// One item per call, 64 connections.
    Enq64,
    /// Many items per call.
    Bulk,
    /// Enqueue all, then receive and commit all in batches.
    Life,
    /// Like life, but one item at a time with 16 workers.
    Life1,
    /// Latency from before an enqueue until a waiting worker has the item.
    Lat,
    /// Like lat, with 16 producers and 16 workers.
    Lat16,
    /// Like lat, with 64 producers and 64 workers.
    Lat64,
}

impl Op {
    pub fn name(self) -> &'static str {
        match self {
            Op::Enq1 => "enq1",
            Op::Enq16 => "enq16",
            Op::Enq64 => "enq64",
            Op::Bulk => "bulk",
            Op::Life => "life",
            Op::Life1 => "life1",
            Op::Lat => "lat",
            Op::Lat16 => "lat16",
            Op::Lat64 => "lat64",
        }
    }
}

#[derive(Debug, Clone, PartialEq)]
pub struct Run {
    pub op: Op,
    /// Payload size in bytes.
    pub size: usize,
    pub work: Work,
    pub workload: Workload,
    /// The baseline that the next run is compared with.
    pub is_plain: bool,
}

impl Run {
    pub fn name(&self) -> String {
        let plain = if self.is_plain { " plain" } else { "" };
        format!("{}{plain}", self.op.name())
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Work {
    Enqueue { submit: Submit, warm_up: Duration, measured: Duration },
    Life { submit: Submit, items: u64, drain: Drain },
    Latency { connections: usize, samples: u64 },
}

/// How items are enqueued. Every connection waits for the answer to its last call.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Submit {
    pub connections: usize,
    /// Items per call.
    pub batch: usize,
}

/// How items are drained. Every worker receives, then commits.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Drain {
    pub workers: usize,
    /// Items received and committed at a time.
    pub take: usize,
}

/// Maximum items of a life-cycle run: as in the peers' runs at 100 B.
const LIFE_ITEMS_MAX: u64 = 500_000;
/// Maximum payload of a life-cycle run: as in the peers' runs at 4.5 KB.
const LIFE_BYTES_MAX: u64 = 675_000_000;
/// Items of a run one by one: as in the peers' runs.
const SINGLE_ITEMS_MAX: u64 = 30_000;
const SINGLE_WORKERS: usize = 16;
/// Maximum items that the server accepts in one call.
const BATCH_MAX: usize = 10_000;
/// The size with nearly the least CPU time per item of all that were measured (docs/bench.md).
const BATCH_ITEMS: usize = 1024;
const BATCH_BYTES: usize = 512 << 10;
const CONNECTIONS: usize = 4;
const WORKERS: usize = 4;

fn batch(size: usize) -> usize {
    (BATCH_BYTES / size.max(1)).clamp(1, BATCH_ITEMS)
}

pub fn runs(args: &BenchArgs) -> anyhow::Result<Vec<Run>> {
    let both = args.workload.get()?;
    let zero = [
        ("--connections", args.connections == Some(0)),
        ("--workers", args.workers == Some(0)),
        ("--items", args.items == Some(0)),
        ("--samples", args.samples == 0),
        ("--repeat", args.repeat == 0),
        ("--threads", args.threads == 0),
    ];
    if let Some((name, _)) = zero.into_iter().find(|(_, zero)| *zero) {
        bail!("{name} is 0; use 1 or more");
    }
    for (name, value) in [("--batch", args.batch), ("--take", args.take)] {
        if let Some(value) = value {
            ensure!(
                (1..=BATCH_MAX).contains(&value),
                "{name} is {value}; a call takes 1 to {BATCH_MAX} items"
            );
        }
    }
    ensure!(
        args.seconds.is_finite() && args.seconds > 0.0 && args.seconds <= 86_400.0,
        "--seconds is {}; use a positive number, at most a day",
        args.seconds
    );
    let mut runs = Vec::new();
    for &size in &args.sizes {
        for &op in &args.ops {
            let work = work(op, size, args)?;
            for (at, workload) in both.iter().enumerate() {
                ensure!(
                    !workload.replaces() || matches!(work, Work::Enqueue { .. }),
                    "--replace-keys works only with enqueueing runs, not with {}: a replaced item is never received",
                    op.name()
                );
                runs.push(Run { op, size, work, workload: workload.clone(), is_plain: at + 1 < both.len() });
            }
        }
    }
    Ok(runs)
}

fn work(op: Op, size: usize, args: &BenchArgs) -> anyhow::Result<Work> {
    let measured = Duration::from_secs_f64(args.seconds);
    let warm_up = Duration::from_secs(1);
    let single = |connections| Work::Enqueue { submit: Submit { connections, batch: 1 }, warm_up, measured };
    let submit = Submit {
        connections: args.connections.unwrap_or(CONNECTIONS),
        batch: args.batch.unwrap_or_else(|| batch(size)),
    };
    let items = args.items.unwrap_or_else(|| (LIFE_BYTES_MAX / size.max(1) as u64).clamp(1, LIFE_ITEMS_MAX));
    let latency = |connections| {
        ensure!(size >= STAMP_BYTES, "{size} B is too small for {}; use {STAMP_BYTES} or more", op.name());
        Ok(Work::Latency { connections, samples: args.samples })
    };
    Ok(match op {
        Op::Enq1 => single(1),
        Op::Enq16 => single(16),
        Op::Enq64 => single(64),
        Op::Bulk => Work::Enqueue { submit, warm_up, measured },
        Op::Life => {
            let workers = args.workers.unwrap_or(WORKERS);
            Work::Life {
                submit,
                items,
                drain: Drain { workers, take: args.take.unwrap_or_else(|| batch(size)) },
            }
        }
        Op::Life1 => {
            let items = args.items.unwrap_or_else(|| items.min(SINGLE_ITEMS_MAX));
            Work::Life { submit, items, drain: Drain { workers: SINGLE_WORKERS, take: 1 } }
        }
        Op::Lat => latency(1)?,
        Op::Lat16 => latency(16)?,
        Op::Lat64 => latency(64)?,
    })
}

impl std::fmt::Display for Work {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Work::Enqueue { submit, .. } => write!(f, "{submit}"),
            Work::Life { submit, drain: Drain { workers, take }, .. } => {
                write!(f, "{submit}; {workers} workers x {take}")
            }
            Work::Latency { connections, .. } => write!(f, "{connections} waiting"),
        }
    }
}

impl std::fmt::Display for Submit {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{} conn x {}", self.connections, self.batch)
    }
}
