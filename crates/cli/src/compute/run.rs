//! `towline run`.

use super::choose_codespec;
use super::file::read_of_kind;
use super::logs::{LogArgs, print_log};
use super::run_exec::{self, ExecArgs};
use crate::clock;
use crate::connect::Session;
use crate::exit::Failure;
use crate::reconnect::Reconnect;
use crate::value::{Pair, duration, item_id, map, pair, param};
use clap::{Args, Subcommand};
use std::path::PathBuf;
use std::time::Duration;
use towline_api::client::RunsQuery;
use towline_api::compute::{CodespecKind, NewRun, RunShown, RunState};
use towline_api::{ItemId, Json, Millis, Time};

/// How long one call waits.
const SLICE: Duration = Duration::from_secs(60);
const GRACE: Duration = Duration::from_secs(30);

#[derive(Debug, Subcommand)]
pub enum RunCommand {
    /// Create a run and print its id. A node of its pool starts it.
    Create(Box<RunOptions>),
    Exec(Box<ExecArgs>),
    List(Box<ListArgs>),
    /// Show a run: its state, its buffers, its node and how it ended.
    Show(RunArg),
    Logs(RunLogsArgs),
    Wait(WaitArgs),
    Cancel(CancelArgs),
}

#[derive(Debug, Args)]
pub struct RunArg {
    /// The run's id, or the id of an item of a trigger's queue.
    #[arg(value_name = "RUN", value_parser = item_id)]
    id: ItemId,
}

#[derive(Debug, Args)]
pub struct RunOptions {
    /// YAML file that describes the run; - for standard input. Flags replace what it says.
    #[arg(short, long, value_name = "RUN.YAML")]
    file: Option<PathBuf>,
    /// The job to run: NAME or NAME@VERSION.
    #[arg(long, value_name = "CODESPEC")]
    codespec: Option<String>,
    /// The buffer of a parameter. Outputs that are not given are created. Repeatable.
    #[arg(long, value_name = "PARAM=BUFFER", value_parser = pair)]
    buffer: Vec<Pair<String>>,
    /// A value for the variable PARAM_<NAME>: k=v is text, k:=v is JSON. Repeatable.
    #[arg(long, value_name = "NAME=VALUE", value_parser = param)]
    param: Vec<Pair<Json>>,
    /// An environment variable. Repeatable.
    #[arg(long, value_name = "NAME=VALUE", value_parser = pair)]
    env: Vec<Pair<String>>,
    /// The run fails if it has not ended this long after its start [default: 12h].
    #[arg(long, value_name = "DURATION", value_parser = duration)]
    timeout: Option<Millis>,
    /// A tag to find the run by. Repeatable.
    #[arg(long, value_name = "NAME=VALUE", value_parser = pair)]
    tag: Vec<Pair<String>>,
    /// The pool of nodes that may take it [default: the pool of the codespec, or default].
    #[arg(long, visible_alias = "node-pool", value_name = "POOL")]
    pool: Option<String>,
    /// Lower numbers start first [default: 0].
    #[arg(long, value_name = "N", allow_hyphen_values = true)]
    priority: Option<i64>,
    /// How often the run starts again after its node was lost [default: 3].
    #[arg(long, value_name = "N")]
    max_retries: Option<i64>,
    /// A second create with the same key returns the first run.
    #[arg(long, value_name = "KEY")]
    idempotency_key: Option<String>,
}

impl RunOptions {
    pub fn new_run(self) -> Result<NewRun, Failure> {
        let mut run = match &self.file {
            Some(path) => read_of_kind::<NewRun>(path, CodespecKind::Job)?.value,
            None => NewRun::default(),
        };
        run.codespec = choose_codespec(self.codespec, run.codespec)?;
        run.buffers.extend(map("--buffer", self.buffer)?);
        run.params.extend(map("--param", self.param)?);
        run.env.extend(map("--env", self.env)?);
        run.tags.extend(map("--tag", self.tag)?);
        run.timeout = self.timeout.map(Into::into).or(run.timeout);
        run.pool = self.pool.or(run.pool);
        run.priority = self.priority.or(run.priority);
        run.max_retries = self.max_retries.or(run.max_retries);
        run.idempotency_key = self.idempotency_key.or(run.idempotency_key);
        Ok(run)
    }
}

/// List runs in order of creation. Without --trigger: the runs that no trigger started.
#[derive(Debug, Args)]
pub struct ListArgs {
    /// Only runs in this state: pending, running, succeeded, failed, canceling or canceled.
    #[arg(long, visible_alias = "status", value_name = "STATE")]
    state: Option<RunState>,
    /// Only runs of this codespec: NAME or NAME@VERSION.
    #[arg(long, value_name = "CODESPEC")]
    codespec: Option<String>,
    /// Only runs of this pool.
    #[arg(long, visible_alias = "node-pool", value_name = "POOL")]
    pool: Option<String>,
    /// The runs of this trigger.
    #[arg(long, value_name = "TRIGGER")]
    trigger: Option<String>,
    /// Only runs with this tag. Repeatable; then all tags must match.
    #[arg(long, value_name = "NAME=VALUE")]
    tag: Vec<String>,
    /// At most this many [default: all].
    #[arg(long, value_name = "N")]
    limit: Option<usize>,
}

/// Print the log of a run: what its program wrote to standard output and standard error.
#[derive(Debug, Args)]
pub struct RunLogsArgs {
    /// The run's id, or the id of an item of a trigger's queue.
    #[arg(value_name = "RUN", value_parser = item_id)]
    id: ItemId,
    #[command(flatten)]
    log: LogArgs,
}

/// Wait until a run has ended.
///
/// Exit code 0: it succeeded. 1: it failed or was canceled, with the reason on stderr. 4: timeout.
#[derive(Debug, Args)]
pub struct WaitArgs {
    /// The run's id.
    #[arg(value_name = "RUN", value_parser = item_id)]
    id: ItemId,
    /// Wait at most this long, for example 1m [default: no limit].
    #[arg(long, value_name = "DURATION", value_parser = duration)]
    timeout: Option<Millis>,
}

/// Cancel a run. A run that a node has is stopped first: SIGTERM, and SIGKILL after the grace time of its codespec.
#[derive(Debug, Args)]
pub struct CancelArgs {
    /// The run's id, or the id of an item of a trigger's queue.
    #[arg(value_name = "RUN", value_parser = item_id)]
    id: ItemId,
    /// The reason, stored with the run.
    #[arg(long, value_name = "TEXT")]
    reason: Option<String>,
}

pub async fn run(session: &Session, command: RunCommand) -> Result<(), Failure> {
    let Session { client, output } = session;
    match command {
        RunCommand::Create(args) => {
            let run = client.create_run(&args.new_run()?).await?;
            output.name_or_json(&run.id, &run)
        }
        RunCommand::Exec(args) => run_exec::run(session, *args).await,
        RunCommand::List(args) => list(session, *args).await,
        RunCommand::Show(args) => output.object(&client.run(args.id).await?),
        RunCommand::Logs(args) => logs(session, args).await,
        RunCommand::Wait(args) => {
            let run = wait(session, args.id, args.timeout).await?;
            output.json_only(&run)?;
            success(&run)
        }
        RunCommand::Cancel(args) => output.json_only(&client.cancel_run(args.id, args.reason).await?),
    }
}

/// Waits until a run has ended.
pub async fn wait(session: &Session, id: ItemId, timeout: Option<Millis>) -> Result<RunShown, Failure> {
    let until = timeout.map(|timeout| clock::now() + Duration::from_millis(timeout.0));
    let mut reconnect = Reconnect::new(until);
    let client = &session.client;
    loop {
        let rest = until.map(|until| until.saturating_duration_since(clock::now()));
        let slice = rest.map_or(SLICE, |rest| rest.min(SLICE));
        let call = client.wait_for_run(id, slice);
        let Some(run) = reconnect.attempt(client.url(), slice + GRACE, call).await? else { continue };
        if run.state.is_terminal() {
            return Ok(run);
        }
        if rest.is_some_and(|rest| rest <= slice) {
            return Err(Failure::TimedOut(format!("run {id} is still {}", run.state)));
        }
    }
}

fn success(run: &RunShown) -> Result<(), Failure> {
    match run.state {
        RunState::Succeeded => Ok(()),
        state => Err(Failure::Refused(reason(run, state))),
    }
}

pub fn reason(run: &RunShown, state: RunState) -> String {
    match &run.reason {
        Some(reason) => format!("run {} {state}: {reason}", run.id),
        None => format!("run {} {state}", run.id),
    }
}

async fn list(session: &Session, args: ListArgs) -> Result<(), Failure> {
    let headers = &["ID", "STATE", "CODESPEC", "NODE", "CREATED", "FINISHED", "EXIT", "REASON"];
    let mut listing = session.output.listing(headers);
    let mut left = args.limit.unwrap_or(usize::MAX);
    let mut query = RunsQuery {
        state: args.state.map(|state| state.to_string()),
        codespec: args.codespec,
        pool: args.pool,
        trigger: args.trigger,
        tags: args.tag,
        ..RunsQuery::default()
    };
    while left > 0 {
        query.limit = Some(left.min(towline_api::PAGE_MAX));
        let page = session.client.runs(&query).await?;
        for run in page.runs.iter().take(left) {
            listing.push(run, row)?;
        }
        left = left.saturating_sub(page.runs.len());
        query.cursor = page.next;
        if query.cursor.is_none() {
            break;
        }
    }
    listing.finish()
}

fn row(run: &RunShown) -> Vec<String> {
    let time = |time: &Option<Time>| time.as_ref().map_or_else(String::new, ToString::to_string);
    vec![
        run.id.to_string(),
        run.state.to_string(),
        run.codespec.clone(),
        run.node.clone().unwrap_or_default(),
        run.created_at.to_string(),
        time(&run.finished_at),
        run.exit_code.map_or_else(String::new, |code| code.to_string()),
        run.reason.clone().unwrap_or_default(),
    ]
}

async fn logs(session: &Session, args: RunLogsArgs) -> Result<(), Failure> {
    let mut printed = None;
    loop {
        let run = session.client.run(args.id).await?;
        let ended = run.state.is_terminal();
        if run.log.is_some() && run.log != printed {
            let log = run.log.clone().unwrap_or_default();
            // A log of an earlier attempt may have failed with its node: the next attempt has another one.
            let shown = print_log(&session.client, &log, &args.log, None).await;
            if ended || !args.log.follow {
                return shown;
            }
            printed = run.log;
        }
        if ended || !args.log.follow {
            return Ok(());
        }
        session.client.wait_for_run(args.id, Duration::from_millis(500)).await?;
    }
}
