//! `towline group`: how a group stands, waiting for its end, what came of it, cancelling all of it.

use crate::clock;
use crate::connect::Session;
use crate::exit::Failure;
use crate::item::{list_all, repeat_until_done};
use crate::reconnect::Reconnect;
use crate::value::duration;
use clap::{Args, Subcommand};
use std::time::Duration;
use towline_api::client::ItemQuery;
use towline_api::{GroupShown, ItemFilter, Millis};

/// How long one call waits. Short enough to notice a server that vanished without a word.
const SLICE: Duration = Duration::from_secs(60);
const GRACE: Duration = Duration::from_secs(30);

#[derive(Debug, Subcommand)]
pub enum GroupCommand {
    /// Print how many members have ended, and how.
    Show(ShowArgs),
    /// Wait until all members have ended.
    Wait(WaitArgs),
    /// List the members, with what came of each.
    Results(ResultsArgs),
    /// Cancel all members that have not ended.
    Cancel(CancelArgs),
}

#[derive(Debug, Args)]
pub struct ShowArgs {
    /// The group's name.
    group: String,
}

/// Wait until all members of a group have ended.
///
/// Exit code 0: all completed. 1: all have ended, and some did not complete. 4: not all within --timeout. A server that
/// restarts is waited for.
#[derive(Debug, Args)]
pub struct WaitArgs {
    /// The group's name.
    group: String,
    /// How many members there will be: not done before so many are there.
    #[arg(long, value_name = "N", default_value_t = 0, hide_default_value = true)]
    expect: u64,
    /// Wait no longer than this [default: for ever].
    #[arg(long, value_name = "DURATION", value_parser = duration)]
    timeout: Option<Millis>,
}

#[derive(Debug, Args)]
pub struct ResultsArgs {
    /// The group's name.
    group: String,
    /// Only members in this state, like completed or failed.
    #[arg(long, visible_alias = "state", value_name = "STATE")]
    status: Option<String>,
    /// Leave out inputs, parameters and outputs.
    #[arg(long)]
    summary: bool,
}

#[derive(Debug, Args)]
pub struct CancelArgs {
    /// The group's name.
    group: String,
    /// Kept with each.
    #[arg(long, value_name = "TEXT")]
    reason: Option<String>,
    /// Print how many there are, and cancel none.
    #[arg(long)]
    dry_run: bool,
}

pub async fn run(session: &Session, command: GroupCommand) -> Result<(), Failure> {
    match command {
        GroupCommand::Show(args) => session.output.object(&session.client.group(&args.group).await?),
        GroupCommand::Wait(args) => wait(session, args).await,
        GroupCommand::Results(args) => {
            let filter = ItemFilter { group: Some(args.group), state: args.status, ..ItemFilter::default() };
            list_all(session, filter, args.summary).await
        }
        GroupCommand::Cancel(args) => {
            let query = ItemQuery { reason: args.reason, dry_run: args.dry_run, ..ItemQuery::default() };
            let call = async |query: &ItemQuery| session.client.cancel_group(&args.group, query).await;
            repeat_until_done(session, query, call).await
        }
    }
}

async fn wait(session: &Session, args: WaitArgs) -> Result<(), Failure> {
    let until = args.timeout.map(|timeout| clock::now() + Duration::from_millis(timeout.0));
    let mut reconnect = Reconnect::new(until);
    let client = &session.client;
    loop {
        let rest = until.map(|until| until.saturating_duration_since(clock::now()));
        let slice = rest.map_or(SLICE, |rest| rest.min(SLICE));
        let call = client.wait_group(&args.group, args.expect, slice);
        let Some(group) = reconnect.attempt(client.url(), slice + GRACE, call).await? else { continue };
        if group.done {
            session.output.json_only(&group)?;
            let bad = group.failed + group.removed;
            return match bad {
                0 => Ok(()),
                _ => Err(Failure::Refused(ended(&group))),
            };
        }
        if rest.is_some_and(|rest| rest <= slice) {
            let GroupShown { unfinished, members, .. } = group;
            let words = format!("group {:?}: {unfinished} of {members} members are unfinished", args.group);
            return Err(Failure::TimedOut(words));
        }
    }
}

fn ended(group: &GroupShown) -> String {
    let GroupShown { group, members, failed, removed, .. } = group;
    format!("group {group:?}: of {members} members {failed} failed and {removed} were removed")
}
