//! The command line as a whole.

use crate::connect::Connection;
use crate::output::Format;
use crate::{
    bench, buffer, completions, events, export_import, group, item, kv, man, migrate, queue, schedule, serve,
    token, topic,
};
use clap::{Parser, Subcommand};

/// A durable work queue in one binary.
///
/// `towline serve` is a complete server; `migrate`, `export` and `import` work on its store, every other command talks to it.
#[derive(Debug, Parser)]
#[command(
    name = "towline",
    version,
    disable_help_subcommand = true,
    subcommand_required = true,
    arg_required_else_help = true,
    after_help = "Exit codes: 0 well, 1 refused or failed, 2 usage, 3 no server answers, 4 waited in vain."
)]
pub struct Cli {
    #[command(flatten)]
    pub connection: Connection,
    /// How to print results. Lists are tables on a terminal and one JSON array otherwise.
    // `--output` names a slot, as in Tyger.
    #[arg(short = 'o', long, global = true, value_name = "FORMAT", help_heading = "Global options")]
    pub format: Option<Format>,
    #[command(subcommand)]
    pub command: Command,
}

#[derive(Debug, Subcommand)]
pub enum Command {
    /// Run a server.
    Serve(Box<serve::ServeArgs>),
    /// Bring the schema of a PostgreSQL store up to date.
    Migrate(migrate::MigrateArgs),
    /// Write everything in a store to standard output.
    Export(export_import::ExportArgs),
    /// Put what `towline export` wrote into an empty store.
    Import(export_import::ImportArgs),
    /// Make, fill, read and watch queues.
    #[command(subcommand, visible_alias = "queues")]
    Queue(Box<queue::QueueCommand>),
    /// Work on items: the same as `queue item`.
    #[command(subcommand, visible_alias = "items")]
    Item(Box<item::ItemCommand>),
    /// Write and read buffers: large data that items name.
    #[command(subcommand, visible_alias = "buffers")]
    Buffer(Box<buffer::BufferCommand>),
    /// Look at groups of items, wait for them, cancel them.
    #[command(subcommand, visible_alias = "groups")]
    Group(group::GroupCommand),
    /// Submit items by the clock: cron and intervals.
    #[command(subcommand, visible_alias = "schedules")]
    Schedule(Box<schedule::ScheduleCommand>),
    /// Print what happens, as it happens.
    Events(Box<events::EventsArgs>),
    /// Keep small records by key: values, counters, claims.
    #[command(subcommand)]
    Kv(kv::KvCommand),
    /// Tell, and hear, what is kept nowhere.
    #[command(subcommand, visible_alias = "topics")]
    Topic(topic::TopicCommand),
    /// Make, list and revoke tokens: who may call a server, and what for.
    #[command(subcommand, visible_alias = "tokens")]
    Token(token::TokenCommand),
    /// Print as whom the server takes you.
    Whoami,
    /// Measure a server.
    Bench(Box<bench::BenchArgs>),
    /// Print completions for a shell.
    Completions(completions::CompletionsArgs),
    /// Print the manual page, or write those of all commands.
    Man(man::ManArgs),
}
