//! The `towline` command: the server, and a command for every call to it.
//!
//! Results go to stdout, in a shape for scripts. Messages go to stderr. Exit codes: 0 success, 1 refused or
//! failed, 2 usage error, 3 no server answered or TLS failed, 4 timeout.

#![allow(clippy::print_stdout, clippy::print_stderr, reason = "this is the crate that prints")]

mod backup;
mod bench;
mod buffer;
mod cli;
mod clock;
mod completions;
mod compute;
mod connect;
mod cyclotron;
mod doctor;
mod entropy;
mod events;
mod exit;
mod export_import;
mod group;
mod interrupt;
mod item;
mod kv;
mod man;
mod migrate;
mod output;
mod policy;
mod progress;
mod queue;
mod reconnect;
mod restore;
mod schedule;
mod serve;
mod source;
mod stdout_reader;
mod store_args;
mod table;
mod token;
mod topic;
mod value;

use clap::Parser;
use cli::{Cli, Command};
use exit::Failure;
use std::process::ExitCode;
use towline_node::runner::{exec_shim, guard};

fn main() -> ExitCode {
    if let Some(code) = run_for_node() {
        return code;
    }
    // First of all: a parent that exits later must be noticed.
    let parent = item::ParentProcess::now();
    let end = match Cli::try_parse() {
        Ok(cli) => run(cli, parent),
        Err(error) => return exit::report_usage(&error),
    };
    exit::report(end)
}

fn run(cli: Cli, parent: item::ParentProcess) -> Result<(), Failure> {
    let Cli { connection, format, color, command } = cli;
    output::set_color(color);
    let command = match command {
        Command::Serve(args) => return serve::run(*args).map_err(Failure::from),
        Command::Migrate(args) => return migrate::run(&args, output::Output::new(format)),
        Command::Doctor(args) => return doctor::run(&args, output::Output::new(format)),
        Command::Backup(args) => return backup::run(args, &connection, format),
        Command::Restore(args) => return restore::run(&args, output::Output::new(format)),
        Command::Export(args) => return export_import::export(&args, &connection, format),
        Command::Import(args) => return export_import::import(*args, &connection, format),
        Command::Token(command) => return token::run(&connection, format, command),
        Command::Bench(args) => return bench::run(*args).map_err(Failure::from),
        Command::Completions(args) => return completions::print(&args),
        Command::Man(args) => return man::write(&args),
        Command::Whoami => ServerCommand::Whoami,
        Command::Queue(command) => ServerCommand::Queue(command),
        Command::Item(command) => ServerCommand::Item(command),
        Command::Buffer(command) => ServerCommand::Buffer(command),
        Command::Group(command) => ServerCommand::Group(command),
        Command::Schedule(command) => ServerCommand::Schedule(command),
        Command::Events(args) => ServerCommand::Events(args),
        Command::Kv(command) => ServerCommand::Kv(command),
        Command::Topic(command) => ServerCommand::Topic(command),
        Command::Codespec(command) => ServerCommand::Codespec(command),
        Command::Run(command) => ServerCommand::Run(command),
        Command::Service(command) => ServerCommand::Service(command),
        Command::Trigger(command) => ServerCommand::Trigger(command),
        Command::Node(args) => match args.command {
            None => return compute::node::run(*args, &connection),
            Some(compute::node::NodesCommand::List) => ServerCommand::Nodes,
        },
    };
    let runtime = match command {
        // Buffers hash and transfer at the same time.
        ServerCommand::Buffer(_) => {
            tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build()?
        }
        _ => tokio::runtime::Builder::new_current_thread().enable_all().build()?,
    };
    let end = runtime.block_on(async {
        let session = connection.open(format)?;
        match command {
            ServerCommand::Whoami => token::whoami(&session).await,
            ServerCommand::Queue(command) => queue::run(&session, *command, parent).await,
            ServerCommand::Item(command) => item::run(&session, *command, parent).await,
            ServerCommand::Buffer(command) => buffer::run(&session, *command).await,
            ServerCommand::Group(command) => group::run(&session, command).await,
            ServerCommand::Schedule(command) => schedule::run(&session, *command).await,
            ServerCommand::Events(args) => events::run(&session, *args).await,
            ServerCommand::Kv(command) => kv::run(&session, command).await,
            ServerCommand::Topic(command) => topic::run(&session, command).await,
            ServerCommand::Codespec(command) => compute::codespec::run(&session, command).await,
            ServerCommand::Run(command) => compute::run::run(&session, command).await,
            ServerCommand::Service(command) => compute::service::run(&session, command).await,
            ServerCommand::Trigger(command) => compute::trigger::run(&session, command).await,
            ServerCommand::Nodes => compute::node::list(&session).await,
        }
    });
    // A thread may still be reading standard input. Do not wait for it.
    runtime.shutdown_background();
    end
}

/// A command that calls a server.
enum ServerCommand {
    Whoami,
    Queue(Box<queue::QueueCommand>),
    Item(Box<item::ItemCommand>),
    Buffer(Box<buffer::BufferCommand>),
    Group(group::GroupCommand),
    Schedule(Box<schedule::ScheduleCommand>),
    Events(Box<events::EventsArgs>),
    Kv(kv::KvCommand),
    Topic(topic::TopicCommand),
    Codespec(compute::codespec::CodespecCommand),
    Run(compute::run::RunCommand),
    Service(compute::service::ServiceCommand),
    Trigger(compute::trigger::TriggerCommand),
    Nodes,
}

/// The hidden commands with which a node starts its own program. They come before everything else: one runs for every process that
/// the node starts.
fn run_for_node() -> Option<ExitCode> {
    let mut args = std::env::args_os().skip(1);
    let ended = match args.next()?.to_str()? {
        compute::node::SHIM => exec_shim(args).map(|_| ()).map_err(|error| error.to_string()),
        compute::node::GUARDIAN => guard(args).map_err(|error| error.to_string()),
        _ => return None,
    };
    Some(match ended {
        Ok(()) => ExitCode::SUCCESS,
        Err(words) => {
            output::complain(words);
            // As shells do if they cannot execute a command.
            ExitCode::from(127)
        }
    })
}
