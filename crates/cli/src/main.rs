//! The `towline` command: the server, and everything one says to it.
//!
//! Results go to stdout in the shape a script expects, words go to stderr, and the exit code tells which kind of end it
//! was: 0 well, 1 refused or failed, 2 usage, 3 nobody answered, 4 waited in vain.

#![allow(clippy::print_stdout, clippy::print_stderr, reason = "this is the crate that prints")]

mod absent;
mod bench;
mod buffer;
mod cli;
mod clock;
mod completions;
mod connect;
mod entropy;
mod events;
mod exit;
mod group;
mod interrupt;
mod item;
mod kv;
mod man;
mod migrate;
mod moving;
mod outage;
mod output;
mod policy;
mod queue;
mod reader;
mod schedule;
mod serve;
mod source;
mod table;
mod token;
mod topic;
mod value;

use clap::Parser;
use cli::{Cli, Command};
use exit::Failure;
use std::process::ExitCode;

fn main() -> ExitCode {
    // Before anything takes time: a parent that dies later must be noticed.
    let parent = item::Parent::now();
    let end = match Cli::try_parse() {
        Ok(cli) => run(cli, parent),
        Err(error) => match absent::refusal(&error) {
            Some(words) => Err(Failure::Usage(words)),
            None => return exit::of_arguments(&error),
        },
    };
    exit::of(end)
}

fn run(cli: Cli, parent: item::Parent) -> Result<(), Failure> {
    let Cli { connection, format, command } = cli;
    let talk = match command {
        Command::Serve(args) => return serve::run(*args).map_err(Failure::from),
        Command::Migrate(args) => return migrate::run(&args, output::Output::new(format)),
        Command::Export(args) => return moving::export(&args),
        Command::Import(args) => return moving::import(&args),
        Command::Token(command) => return token::run(&connection, format, command),
        Command::Bench(args) => return bench::run(*args).map_err(Failure::from),
        Command::Completions(args) => return completions::print(&args),
        Command::Man(args) => return man::write(&args),
        Command::Whoami => Talk::Whoami,
        Command::Queue(command) => Talk::Queue(command),
        Command::Item(command) => Talk::Item(command),
        Command::Buffer(command) => Talk::Buffer(command),
        Command::Group(command) => Talk::Group(command),
        Command::Schedule(command) => Talk::Schedule(command),
        Command::Events(args) => Talk::Events(args),
        Command::Kv(command) => Talk::Kv(command),
        Command::Topic(command) => Talk::Topic(command),
    };
    let runtime = match talk {
        // Bytes are checked and moved at the same time.
        Talk::Buffer(_) => {
            tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build()?
        }
        _ => tokio::runtime::Builder::new_current_thread().enable_all().build()?,
    };
    let end = runtime.block_on(async {
        let session = connection.open(format)?;
        match talk {
            Talk::Whoami => token::whoami(&session).await,
            Talk::Queue(command) => queue::run(&session, *command, parent).await,
            Talk::Item(command) => item::run(&session, *command, parent).await,
            Talk::Buffer(command) => buffer::run(&session, *command).await,
            Talk::Group(command) => group::run(&session, command).await,
            Talk::Schedule(command) => schedule::run(&session, *command).await,
            Talk::Events(args) => events::run(&session, *args).await,
            Talk::Kv(command) => kv::run(&session, command).await,
            Talk::Topic(command) => topic::run(&session, command).await,
        }
    });
    // A thread may be waiting for standard input, which may never come.
    runtime.shutdown_background();
    end
}

/// What needs a server to talk to.
enum Talk {
    Whoami,
    Queue(Box<queue::QueueCommand>),
    Item(Box<item::ItemCommand>),
    Buffer(Box<buffer::BufferCommand>),
    Group(group::GroupCommand),
    Schedule(Box<schedule::ScheduleCommand>),
    Events(Box<events::EventsArgs>),
    Kv(kv::KvCommand),
    Topic(topic::TopicCommand),
}
