//! `towline bench`: measures a server with the same runs as the benchmark of its peers. No other command uses
//! this module.
//!
//! **Invariant:** a metric counts acknowledged work only. If a call fails, or an item is refused, lost,
//! changed or delivered twice, the benchmark ends with an error.
//!
//! **Invariant:** the benchmark deletes what it creates, even if it fails or is interrupted: its queues, and
//! with `--embedded` its servers and their directory.

mod bench_queue;
mod clock;
mod cpu;
mod disk;
mod enqueue;
mod latency;
mod life_cycle;
mod metrics;
mod own_server;
mod payload;
mod plan;
mod progress;
mod report;
mod server;
mod task_group;
mod workload;

use crate::connect::Connection;
use crate::interrupt::Interrupt;
use crate::output::Format;
use anyhow::Context;
use bench_queue::BenchQueue;
use metrics::Metrics;
use own_server::{Directory, OwnServer};
use plan::{Op, Run, Work};
use progress::Progress;
use report::{Report, ServerShown};
use server::Server;
use std::io::Write;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::AtomicU64;
use workload::WorkloadArgs;

/// Measure the speed of a server: enqueueing, whole life-cycles, latency.
#[derive(Debug, clap::Args)]
pub struct BenchArgs {
    #[command(flatten)]
    connection: Connection,
    /// Start a new server for every run, with its data in a temporary directory.
    #[arg(long)]
    embedded: bool,
    /// Parent of the temporary directory, on the disk to measure [default: the system's].
    #[arg(long, requires = "embedded", value_name = "DIRECTORY")]
    dir: Option<PathBuf>,
    /// Durability of the new servers: `sync` or `interval:<ms>` [default: sync].
    #[arg(long, requires = "embedded")]
    durability: Option<String>,
    /// Which runs to measure.
    #[arg(long, value_delimiter = ',', value_enum,
        default_values_t = [Op::Enq1, Op::Enq16, Op::Enq64, Op::Bulk, Op::Life, Op::Life1, Op::Lat, Op::Lat16, Op::Lat64])]
    ops: Vec<Op>,
    /// Payload sizes in bytes.
    #[arg(long, value_delimiter = ',', default_values_t = [100, 4500])]
    sizes: Vec<usize>,
    /// Items of a life-cycle run [default: 500,000 or 675 MB, whichever is less; 30,000 for life1].
    #[arg(long)]
    items: Option<u64>,
    /// Measured time of an enqueueing run, after one second of warm-up.
    #[arg(long, default_value_t = 2.5)]
    seconds: f64,
    /// Items of a latency run.
    #[arg(long, default_value_t = 1000)]
    samples: u64,
    /// How often to repeat all runs. The report has the medians.
    #[arg(long, default_value_t = 1)]
    repeat: usize,
    /// Connections of a bulk run [default: 4].
    #[arg(long)]
    connections: Option<usize>,
    /// Items per bulk call [default: 512 KiB, at most 1024 items].
    #[arg(long)]
    batch: Option<usize>,
    /// Workers of a life-cycle run, each with one connection [default: 4].
    #[arg(long)]
    workers: Option<usize>,
    /// Items that such a worker receives at a time [default: as --batch].
    #[arg(long)]
    take: Option<usize>,
    /// Threads of this client.
    #[arg(long, default_value_t = 1)]
    threads: usize,
    /// Wire format.
    #[arg(long, value_enum, default_value_t = Wire::Msgpack)]
    wire: Wire,
    #[command(flatten)]
    workload: WorkloadArgs,
    /// How to print the report.
    #[arg(short = 'o', long, value_name = "FORMAT", default_value = "table")]
    format: Format,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
enum Wire {
    Msgpack,
    Json,
}

impl Wire {
    fn format(self) -> towline_api::Format {
        match self {
            Wire::Msgpack => towline_api::Format::MessagePack,
            Wire::Json => towline_api::Format::Json,
        }
    }

    fn name(self) -> &'static str {
        match self {
            Wire::Msgpack => "msgpack",
            Wire::Json => "json",
        }
    }
}

pub fn run(args: BenchArgs) -> anyhow::Result<()> {
    let runs = plan::runs(&args)?;
    let (repeat, format) = (args.repeat, args.format);
    let runtime =
        tokio::runtime::Builder::new_multi_thread().worker_threads(args.threads).enable_all().build()?;
    let report = runtime.block_on(bench(BenchTarget::new(args)?, &runs, repeat))?;
    let text = match format {
        Format::Table => report.table(),
        Format::Json => serde_json::to_string_pretty(&report)?,
        Format::Ndjson => serde_json::to_string(&report)?,
    };
    writeln!(std::io::stdout().lock(), "{text}").context("cannot write the report")
}

async fn bench(target: BenchTarget, runs: &[Run], repeat: usize) -> anyhow::Result<Report> {
    let interrupt = Interrupt::listen()?;
    let progress = Progress::new(runs.len() * repeat)?;
    let mut repeats: Vec<Vec<Metrics>> = vec![Vec::new(); runs.len()];
    // All runs once, then all again, so that a slow phase of the disk affects every run alike.
    for time in 0..repeat {
        for (run, metrics) in runs.iter().zip(&mut repeats) {
            let queue = format!("bench-{}-{}-{}-{time}", run.op.name(), run.size, std::process::id());
            let context = || format!("{} of {} B", run.name(), run.size);
            metrics.push(target.measure(run, &queue, &interrupt, &progress).await.with_context(context)?);
            progress.finished_one();
        }
    }
    Ok(Report { server: target.shown(), wire: target.wire.name(), runs: report::shown(runs, repeats) })
}

/// The server to measure.
#[derive(Debug)]
struct BenchTarget {
    source: ServerSource,
    wire: Wire,
}

#[derive(Debug)]
enum ServerSource {
    Given(Arc<Server>),
    /// A new server for every run, like the peers: no run inherits the data of another.
    Own {
        parent: PathBuf,
        durability: Option<String>,
    },
}

impl BenchTarget {
    fn new(args: BenchArgs) -> anyhow::Result<BenchTarget> {
        let source = if args.embedded {
            ServerSource::Own {
                parent: args.dir.unwrap_or_else(std::env::temp_dir),
                durability: args.durability,
            }
        } else {
            ServerSource::Given(Arc::new(Server::given(args.connection, args.wire.format())?))
        };
        Ok(BenchTarget { source, wire: args.wire })
    }

    fn shown(&self) -> ServerShown {
        match &self.source {
            ServerSource::Given(server) => ServerShown::Url(server.url.clone()),
            ServerSource::Own { parent, durability } => ServerShown::Embedded {
                durability: durability.clone().unwrap_or_else(|| "sync".to_owned()),
                directory: parent.display().to_string(),
            },
        }
    }

    async fn measure(
        &self,
        run: &Run,
        queue: &str,
        interrupt: &Interrupt,
        progress: &Progress,
    ) -> anyhow::Result<Metrics> {
        match &self.source {
            ServerSource::Given(server) => measure_on_queue(server, run, queue, interrupt, progress).await,
            ServerSource::Own { parent, durability } => {
                let directory = Directory::new(parent, &format!("towline-{queue}"))?;
                let sync_time = disk::sync_time(directory.path())?;
                let mut own = interrupt.or(OwnServer::start(directory, durability.as_deref())).await?;
                let server = Arc::new(Server::own(own.url.clone(), self.wire.format(), own.pid()));
                let measured = measure_on_queue(&server, run, queue, interrupt, progress).await;
                let measured = measured.map_err(|error| own.explain(error));
                let stopped = own.stop().await;
                let metrics = measured?;
                stopped?;
                Ok(metrics.sync_time(Some(sync_time)))
            }
        }
    }
}

/// Measures one run on a new queue, and deletes the queue.
async fn measure_on_queue(
    server: &Arc<Server>,
    run: &Run,
    queue: &str,
    interrupt: &Interrupt,
    progress: &Progress,
) -> anyhow::Result<Metrics> {
    let items = Arc::new(AtomicU64::new(0));
    let _watch = progress.watch(run, &items);
    let measured = interrupt
        .or(async {
            let bench_queue = BenchQueue::open(server.clone(), queue, run, items).await?;
            Ok(match run.work {
                Work::Enqueue { submit, warm_up, measured } => {
                    enqueue::measure(&bench_queue, submit, warm_up, measured).await?.into()
                }
                Work::Life { submit, items, drain } => {
                    life_cycle::measure(&bench_queue, submit, items, drain).await?.into()
                }
                Work::Latency { connections, samples } => {
                    latency::measure(&bench_queue, connections, samples).await?.into()
                }
            })
        })
        .await;
    let closed = BenchQueue::close(server, queue).await;
    let metrics = measured?;
    closed?;
    Ok(metrics)
}
