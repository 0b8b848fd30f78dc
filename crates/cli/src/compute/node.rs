//! `towline node`, and the node inside `towline serve`.

use crate::connect::{Connection, Session};
use crate::exit::Failure;
use anyhow::Context;
use clap::{Args, Subcommand, ValueEnum};
use std::ffi::OsString;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;
use tokio::signal::unix::{SignalKind, signal};
use towline_api::Client;
use towline_api::compute::NodeShown;
use towline_node::runner::{ContainerConfig, ContainerRunner, ProcessConfig, ProcessRunner, Runner};
use towline_node::{Node, NodeOptions, new_instance};
use towline_server::{Settings, logging};

/// Hidden commands: a node starts its own program with them.
pub const SHIM: &str = "node-exec";
pub const GUARDIAN: &str = "node-guardian";

#[derive(Debug, Subcommand)]
pub enum NodesCommand {
    /// List the nodes that work now.
    List,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum RunnerKind {
    /// As processes of this machine, with the rights of this user.
    Process,
    /// In containers of Docker or Podman.
    Container,
}

/// Run runs, services and triggers of a server on this machine.
///
/// A node connects to the server; nothing connects to the node. On SIGTERM it stops what runs and gives it back, so that another
/// node can take it. Its token needs the scope compute:node. `towline serve` has a node of its own.
#[derive(Debug, Args)]
#[command(args_conflicts_with_subcommands = true)]
pub struct NodeArgs {
    #[command(subcommand)]
    pub command: Option<NodesCommand>,
    /// The pool whose work it takes.
    #[arg(long, value_name = "POOL", default_value = towline_api::compute::POOL_DEFAULT)]
    pool: String,
    /// How much it runs at once.
    #[arg(long, value_name = "N", default_value_t = 16, value_parser = clap::value_parser!(u32).range(1..=10_000))]
    slots: u32,
    /// How it runs programs.
    #[arg(long, value_name = "RUNNER", default_value = "process")]
    runner: RunnerKind,
    /// Address of the container engine, unix:///path or http://host:port [default: $DOCKER_HOST, or the socket of Docker or Podman].
    #[arg(long, value_name = "ADDRESS", help_heading = "Containers")]
    engine: Option<String>,
    /// Network of the containers, for example host [default: the engine's].
    #[arg(long, value_name = "NETWORK", help_heading = "Containers")]
    network: Option<String>,
    /// A statically linked `towline` to mount into the containers.
    #[arg(long, value_name = "FILE", help_heading = "Containers")]
    container_cli: Option<PathBuf>,
    /// The name of the node [default: the name of this machine].
    #[arg(long, value_name = "NAME")]
    name: Option<String>,
    /// Where programs have their working directories and pipes [default: a directory for temporary files].
    #[arg(long, value_name = "DIRECTORY")]
    directory: Option<PathBuf>,
}

/// What a node needs besides a client.
pub struct NodeSetup {
    pub name: Option<String>,
    pub pool: String,
    pub slots: u32,
    pub directory: Option<PathBuf>,
    /// `None`: as processes.
    pub containers: Option<Containers>,
    pub url: String,
    pub ca_file: Option<PathBuf>,
}

/// How containers are run.
#[derive(Debug, Clone, Default)]
pub struct Containers {
    pub engine: Option<String>,
    pub network: Option<String>,
    pub cli: Option<PathBuf>,
}

/// Makes a node. Cleans up after nodes that died.
pub async fn make_node(setup: NodeSetup, client: Client) -> anyhow::Result<Node> {
    let instance = new_instance();
    let program = |role: &str| vec![OsString::from("/proc/self/exe"), OsString::from(role)];
    let root = setup.directory.unwrap_or_else(default_directory);
    let guardian = program(GUARDIAN);
    let (kind, runner): (_, Arc<dyn Runner>) = match setup.containers {
        None => {
            let config = ProcessConfig { root, instance: instance.clone(), shim: program(SHIM), guardian };
            ("process", Arc::new(ProcessRunner::new(config).context("cannot start the process runner")?))
        }
        Some(Containers { engine, network, cli }) => {
            let config = ContainerConfig {
                root,
                instance: instance.clone(),
                engine,
                guardian,
                network,
                is_read_only: false,
                capabilities: Vec::new(),
                cli,
            };
            let runner = ContainerRunner::connect(config).await.context("cannot use the container engine")?;
            ("container", Arc::new(runner))
        }
    };
    let name = setup.name.unwrap_or_else(machine_name);
    let options = NodeOptions {
        name,
        instance,
        pool: setup.pool,
        runner: kind,
        slots: setup.slots,
        url: setup.url,
        ca_file: setup.ca_file,
        cli: std::env::current_exe().ok(),
    };
    Ok(Node::new(options, client, runner))
}

/// A directory that only this user can use.
fn default_directory() -> PathBuf {
    let user = rustix::process::getuid().as_raw();
    match std::env::var_os("XDG_RUNTIME_DIR") {
        Some(directory) if !directory.is_empty() => PathBuf::from(directory).join("towline-node"),
        _ => std::env::temp_dir().join(format!("towline-node-{user}")),
    }
}

/// The name of this machine, as far as it is a valid name.
fn machine_name() -> String {
    let host = rustix::system::uname().nodename().to_string_lossy().into_owned();
    let name: String = host
        .chars()
        .map(|c| if c.is_ascii_alphanumeric() || "._-".contains(c) { c } else { '-' })
        .take(100)
        .collect();
    match name.chars().next() {
        Some(first) if first.is_ascii_alphanumeric() => name,
        _ => "node".to_owned(),
    }
}

pub fn run(args: NodeArgs, connection: &Connection) -> Result<(), Failure> {
    logging::start(&Settings::default());
    let Session { client, .. } = connection.open(None)?;
    let client = client.format(towline_api::Format::MessagePack).retry_for(Duration::from_secs(10));
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build()?;
    let url = client.url().to_owned();
    let ca_file =
        connection.ca_file().map(|file| std::path::absolute(file).unwrap_or_else(|_| file.to_owned()));
    runtime
        .block_on(async {
            tokio::spawn(async move {
                let setup = NodeSetup {
                    name: args.name,
                    pool: args.pool,
                    slots: args.slots,
                    directory: args.directory,
                    containers: (args.runner == RunnerKind::Container).then_some(Containers {
                        engine: args.engine,
                        network: args.network,
                        cli: args.container_cli,
                    }),
                    url,
                    ca_file,
                };
                let node = make_node(setup, client).await?;
                let (mut terminate, mut interrupt) =
                    (signal(SignalKind::terminate())?, signal(SignalKind::interrupt())?);
                node.run(async {
                    tokio::select! {
                        _ = terminate.recv() => {}
                        _ = interrupt.recv() => {}
                    }
                })
                .await;
                anyhow::Ok(())
            })
            .await
        })
        .map_err(Failure::refused)?
        .map_err(Failure::from)
}

pub async fn list(session: &Session) -> Result<(), Failure> {
    let mut listing =
        session.output.listing(&["NAME", "POOL", "RUNNER", "USED", "SLOTS", "VERSION", "LAST BEAT"]);
    let mut cursor = None;
    loop {
        let page = session.client.nodes(cursor.as_deref()).await?;
        for node in &page.nodes {
            listing.push(node, row)?;
        }
        cursor = page.next;
        if cursor.is_none() {
            return listing.finish();
        }
    }
}

fn row(node: &NodeShown) -> Vec<String> {
    vec![
        node.name.clone(),
        node.pool.clone(),
        node.runner.clone(),
        node.used.to_string(),
        node.slots.to_string(),
        node.version.clone(),
        node.last_beat_at.to_string(),
    ]
}
