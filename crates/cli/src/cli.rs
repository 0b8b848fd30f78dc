//! The commands and global options.

use crate::connect::Connection;
use crate::output::Format;
use crate::{
    backup, bench, buffer, completions, compute, doctor, events, export_import, group, item, kv, man,
    migrate, queue, restore, schedule, serve, token, topic,
};
use clap::{ColorChoice, Parser, Subcommand};

/// A durable work queue in one binary.
///
/// `towline serve` runs a server. `migrate`, `doctor`, `restore` and `import` work on its store. Every other command calls
/// a server.
#[derive(Debug, Parser)]
#[command(
    name = "towline",
    version,
    disable_help_subcommand = true,
    subcommand_required = true,
    arg_required_else_help = true,
    after_help = "Exit codes: 0 success, 1 refused or failed, 2 usage error, 3 no server answered or TLS failed, 4 timeout."
)]
pub struct Cli {
    #[command(flatten)]
    pub connection: Connection,
    /// How to print results. Default: lists are tables on a terminal, and one JSON array otherwise.
    // Not `--output`: as in Tyger, that names a slot.
    #[arg(short = 'o', long, global = true, value_name = "FORMAT", help_heading = "Global options")]
    pub format: Option<Format>,
    /// When to use colours: auto is on a terminal, unless NO_COLOR is set.
    #[arg(long, global = true, value_name = "WHEN", default_value_t, help_heading = "Global options")]
    pub color: ColorChoice,
    #[command(subcommand)]
    pub command: Command,
}

#[derive(Debug, Subcommand)]
pub enum Command {
    /// Run a server.
    Serve(Box<serve::ServeArgs>),
    /// Migrate the schema of a PostgreSQL store.
    Migrate(migrate::MigrateArgs),
    /// Check an embedded store for damage, and save what is intact.
    Doctor(doctor::DoctorArgs),
    /// Back up a store with its buffers, also while its server runs.
    Backup(backup::BackupArgs),
    /// Restore a backup into a new data directory.
    Restore(restore::RestoreArgs),
    /// Export queues, items, schedules and records to standard output.
    Export(export_import::ExportArgs),
    /// Import the output of `towline export` into an empty store, or the jobs of another queue.
    Import(Box<export_import::ImportArgs>),
    /// Create queues, submit and receive items.
    #[command(subcommand, visible_alias = "queues")]
    Queue(Box<queue::QueueCommand>),
    /// Work on items (the same as `queue item`).
    #[command(subcommand, visible_alias = "items")]
    Item(Box<item::ItemCommand>),
    /// Write and read buffers: large data that items refer to.
    #[command(subcommand, visible_alias = "buffers")]
    Buffer(Box<buffer::BufferCommand>),
    /// Show, wait for and cancel groups of items.
    #[command(subcommand, visible_alias = "groups")]
    Group(group::GroupCommand),
    /// Submit items on a schedule: cron or intervals.
    #[command(subcommand, visible_alias = "schedules")]
    Schedule(Box<schedule::ScheduleCommand>),
    /// Describe what to run: codespecs, which never change.
    #[command(subcommand, visible_alias = "codespecs")]
    Codespec(compute::codespec::CodespecCommand),
    /// Run jobs: programs that read and write buffers.
    #[command(subcommand, visible_alias = "runs")]
    Run(compute::run::RunCommand),
    /// Run services: programs that run until they are stopped, and work on queues.
    #[command(subcommand, visible_alias = "services")]
    Service(compute::service::ServiceCommand),
    /// Run a job for each item of a queue.
    #[command(subcommand, visible_alias = "triggers")]
    Trigger(compute::trigger::TriggerCommand),
    #[command(visible_alias = "nodes")]
    Node(Box<compute::node::NodeArgs>),
    /// Print events as they happen.
    Events(Box<events::EventsArgs>),
    /// Store small key-value records: values, counters, locks.
    #[command(subcommand)]
    Kv(kv::KvCommand),
    /// Publish to and subscribe to topics (not stored).
    #[command(subcommand, visible_alias = "topics")]
    Topic(topic::TopicCommand),
    /// Create, list and revoke tokens.
    #[command(subcommand, visible_alias = "tokens")]
    Token(token::TokenCommand),
    /// Show the identity and scopes of the current token.
    Whoami,
    /// Measure the speed of a server.
    Bench(Box<bench::BenchArgs>),
    /// Print completions for a shell, for example `towline completions bash`.
    Completions(completions::CompletionsArgs),
    /// Print the manual page, or write the pages of all commands.
    Man(man::ManArgs),
}
