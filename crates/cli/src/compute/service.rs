//! `towline service`.

use super::file::read_of_kind;
use super::logs::{LogArgs, print_log};
use super::{choose_codespec, choose_name};
use crate::connect::Session;
use crate::exit::Failure;
use crate::output;
use crate::value::{Pair, map, pair};
use clap::{Args, Subcommand};
use std::path::PathBuf;
use std::time::Duration;
use towline_api::compute::{CodespecKind, NewService, ReplicaShown, Replicas, ServiceShown, ServiceState};

#[derive(Debug, Subcommand)]
pub enum ServiceCommand {
    Create(Box<CreateArgs>),
    /// List services.
    List(ListArgs),
    /// Show a service with each replica: its node, state, restarts and last exit.
    Show(ServiceArg),
    Scale(ScaleArgs),
    /// Replace all replicas, with the newest version of the codespec. At least half of the replicas run all the time.
    Restart(ServiceArg),
    /// Delete a service and stop its replicas.
    Delete(ServiceArg),
    Logs(ServiceLogsArgs),
}

#[derive(Debug, Args)]
pub struct ServiceArg {
    /// The service's name.
    #[arg(value_name = "SERVICE")]
    name: String,
}

/// Create a service: a program that runs in replicas until it is stopped.
///
/// Each replica can receive from and submit to the bound queues, and read and write buffers, with the command `towline` and no login.
/// Example: towline service create thumbnails --codespec resizer --replicas 2 --queue requests=thumbnail-jobs
#[derive(Debug, Args)]
pub struct CreateArgs {
    /// The service's name [default: the one in the file].
    #[arg(value_name = "SERVICE")]
    name: Option<String>,
    /// YAML file that describes the service; - for standard input. Flags replace what it says.
    #[arg(short, long, value_name = "SPEC.YAML")]
    file: Option<PathBuf>,
    /// The code to run: NAME or NAME@VERSION.
    #[arg(long, value_name = "CODESPEC")]
    codespec: Option<String>,
    #[command(flatten)]
    replicas: ReplicasArgs,
    /// The queue of a key that the codespec declares. Repeatable.
    #[arg(long, value_name = "KEY=QUEUE", value_parser = pair)]
    queue: Vec<Pair<String>>,
    /// The pool of nodes that may run replicas [default: the pool of the codespec, or default].
    #[arg(long, visible_alias = "node-pool", value_name = "POOL")]
    pool: Option<String>,
}

#[derive(Debug, Args)]
struct ReplicasArgs {
    /// How many replicas, or a range MIN..MAX that follows the number of ready items [default: 1].
    #[arg(long, value_name = "N", value_parser = replicas)]
    replicas: Option<Replicas>,
    /// With a range: ready items of the bound queues for each replica.
    #[arg(long, value_name = "ITEMS", requires = "replicas")]
    per_replica: Option<u64>,
}

impl ReplicasArgs {
    fn given(&self) -> Option<Replicas> {
        self.replicas
            .map(|replicas| Replicas { per_replica: self.per_replica.or(replicas.per_replica), ..replicas })
    }
}

fn replicas(text: &str) -> Result<Replicas, String> {
    let number =
        |text: &str| text.parse::<u32>().map_err(|_| format!("{text:?} is not a number; use N or MIN..MAX"));
    match text.split_once("..") {
        Some((min, max)) => Ok(Replicas { min: number(min)?, max: number(max)?, per_replica: None }),
        None => Ok(Replicas::fixed(number(text)?)),
    }
}

#[derive(Debug, Args)]
pub struct ListArgs {
    /// Only services in this state: running, stopped or failed.
    #[arg(long, visible_alias = "status", value_name = "STATE")]
    state: Option<ServiceState>,
}

/// Change the number of replicas. With 0 the service is stopped.
#[derive(Debug, Args)]
pub struct ScaleArgs {
    /// The service's name.
    #[arg(value_name = "SERVICE")]
    name: String,
    #[command(flatten)]
    replicas: ReplicasArgs,
}

/// Print the logs of a service's replicas.
#[derive(Debug, Args)]
pub struct ServiceLogsArgs {
    /// The service's name.
    #[arg(value_name = "SERVICE")]
    name: String,
    /// Only this replica, counted from 0. Without it, each line begins with the number of its replica.
    #[arg(long, value_name = "N")]
    replica: Option<u32>,
    #[command(flatten)]
    log: LogArgs,
}

pub async fn run(session: &Session, command: ServiceCommand) -> Result<(), Failure> {
    let Session { client, output } = session;
    match command {
        ServiceCommand::Create(args) => create(session, *args).await,
        ServiceCommand::List(args) => list(session, args.state).await,
        ServiceCommand::Show(args) => {
            let shown = client.service(&args.name).await?;
            output::say_all(&shown.notes);
            output.object(&shown)
        }
        ServiceCommand::Scale(args) => {
            let Some(replicas) = args.replicas.given() else {
                return Err(Failure::Usage("--replicas is missing; say how many".to_owned()));
            };
            output.json_only(&client.scale_service(&args.name, replicas).await?)
        }
        ServiceCommand::Restart(args) => output.json_only(&client.restart_service(&args.name).await?),
        ServiceCommand::Delete(args) => Ok(client.delete_service(&args.name).await?),
        ServiceCommand::Logs(args) => logs(session, args).await,
    }
}

async fn create(session: &Session, args: CreateArgs) -> Result<(), Failure> {
    let (mut in_file, mut new) = (None, NewService::default());
    if let Some(path) = &args.file {
        let described = read_of_kind(path, CodespecKind::Service)?;
        (in_file, new) = (described.name, described.value);
    }
    let name = choose_name("service", args.name, in_file)?;
    new.codespec = choose_codespec(args.codespec, new.codespec)?;
    new.replicas = args.replicas.given().or(new.replicas);
    new.queues.extend(map("--queue", args.queue)?);
    new.pool = args.pool.or(new.pool);
    let shown = session.client.put_service(&name, &new).await?;
    output::say_all(&shown.notes);
    session.output.name_or_json(&shown.name, &shown)
}

async fn list(session: &Session, state: Option<ServiceState>) -> Result<(), Failure> {
    let headers = &["NAME", "STATE", "RUNNING", "WANTED", "CODESPEC", "POOL", "QUEUES", "REASON"];
    let mut listing = session.output.listing(headers);
    let state = state.map(ServiceState::name);
    let mut cursor = None;
    loop {
        let page = session.client.services(state, cursor.as_deref()).await?;
        for service in &page.services {
            listing.push(service, row)?;
        }
        cursor = page.next;
        if cursor.is_none() {
            return listing.finish();
        }
    }
}

fn row(service: &ServiceShown) -> Vec<String> {
    let queues = service.queues.iter().map(|(key, queue)| format!("{key}={queue}")).collect::<Vec<_>>();
    vec![
        service.name.clone(),
        service.state.to_string(),
        service.running.to_string(),
        service.wanted.to_string(),
        service.codespec.clone(),
        service.pool.clone(),
        queues.join(" "),
        service.reason.clone().unwrap_or_default(),
    ]
}

async fn logs(session: &Session, args: ServiceLogsArgs) -> Result<(), Failure> {
    let shown = session.client.service(&args.name).await?;
    let wanted = |replica: &&ReplicaShown| args.replica.is_none_or(|index| replica.index == index);
    let indexes: Vec<u32> = shown.instances.iter().filter(wanted).map(|replica| replica.index).collect();
    if let (Some(index), true) = (args.replica, indexes.is_empty()) {
        return Err(Failure::Refused(format!("service {:?} has no replica {index}", args.name)));
    }
    let mut following = tokio::task::JoinSet::new();
    for index in indexes {
        let (client, name, log) = (session.client.clone(), args.name.clone(), args.log.clone());
        let prefix = args.replica.is_none().then(|| format!("[{index}] "));
        following.spawn(async move { replica_log(&client, &name, index, &log, prefix.as_deref()).await });
    }
    while let Some(ended) = following.join_next().await {
        ended.map_err(Failure::refused)??;
    }
    Ok(())
}

/// Prints the log of a replica. With `follow`, continues with the replica that takes its place.
async fn replica_log(
    client: &towline_api::Client,
    service: &str,
    index: u32,
    args: &LogArgs,
    prefix: Option<&str>,
) -> Result<(), Failure> {
    let mut printed = None;
    loop {
        let shown = client.service(service).await?;
        let replica = shown.instances.into_iter().find(|replica| replica.index == index);
        let log = replica.and_then(|replica| replica.log);
        if let Some(log) = log.filter(|log| Some(log) != printed.as_ref()) {
            print_log(client, &log, args, prefix).await?;
            printed = Some(log);
        }
        if !args.follow || shown.state != ServiceState::Running {
            return Ok(());
        }
        tokio::time::sleep(Duration::from_secs(1)).await;
    }
}
