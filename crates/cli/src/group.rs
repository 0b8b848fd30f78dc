//! `towline group`: shows, waits for, lists and cancels the members of a group.

use crate::clock;
use crate::connect::Session;
use crate::exit::Failure;
use crate::item::{list_results, repeat_until_done};
use crate::output;
use crate::reconnect::Reconnect;
use crate::value::duration;
use clap::{Args, Subcommand};
use std::time::Duration;
use towline_api::client::ItemQuery;
use towline_api::{GroupShown, ItemFilter, Millis};

/// How long one call waits. Short enough to detect a server that disappeared.
const SLICE: Duration = Duration::from_secs(60);
const GRACE: Duration = Duration::from_secs(30);

#[derive(Debug, Subcommand)]
pub enum GroupCommand {
    /// Show how many members there are, and how they ended.
    Show(ShowArgs),
    /// Wait until all members have ended.
    Wait(WaitArgs),
    /// List the members with their results.
    Results(ResultsArgs),
    /// Cancel all unfinished members.
    Cancel(CancelArgs),
}

#[derive(Debug, Args)]
pub struct ShowArgs {
    /// The group's name.
    group: String,
}

/// Wait until all members of a group have ended.
///
/// Exit code 0: all completed. 1: some failed or were deleted. 4: timeout. Waits for a server that restarts.
#[derive(Debug, Args)]
pub struct WaitArgs {
    /// The group's name.
    group: String,
    /// How many members the group will have. Waits until it has this many.
    #[arg(long, value_name = "N", default_value_t = 0, hide_default_value = true)]
    expect: u64,
    /// Wait at most this long [default: no limit].
    #[arg(long, value_name = "DURATION", value_parser = duration)]
    timeout: Option<Millis>,
}

#[derive(Debug, Args)]
pub struct ResultsArgs {
    /// The group's name.
    group: String,
    /// Only members in this state, for example completed or failed.
    #[arg(long, visible_alias = "status", value_name = "STATE")]
    state: Option<String>,
    /// Leave out inputs, parameters and outputs.
    #[arg(long)]
    summary: bool,
}

#[derive(Debug, Args)]
pub struct CancelArgs {
    /// The group's name.
    group: String,
    /// The reason, stored with each item.
    #[arg(long, value_name = "TEXT")]
    reason: Option<String>,
    /// Print how many members would be cancelled, and cancel none.
    #[arg(long)]
    dry_run: bool,
}

pub async fn run(session: &Session, command: GroupCommand) -> Result<(), Failure> {
    match command {
        GroupCommand::Show(args) => {
            let group = session.client.group(&args.group).await?;
            output::say_all(&group.notes);
            session.output.object(&group)
        }
        GroupCommand::Wait(args) => wait(session, args).await,
        GroupCommand::Results(args) => {
            let filter = ItemFilter { group: Some(args.group), state: args.state, ..ItemFilter::default() };
            list_results(session, filter, args.summary).await
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
    // The first call does not wait, so that an empty group is reported at once.
    let mut slice_max = Duration::ZERO;
    loop {
        let rest = until.map(|until| until.saturating_duration_since(clock::now()));
        let slice = rest.map_or(slice_max, |rest| rest.min(slice_max));
        let call = client.wait_group(&args.group, args.expect, slice);
        let Some(group) = reconnect.attempt(client.url(), slice + GRACE, call).await? else { continue };
        if slice_max.is_zero() {
            output::say_all(&group.notes);
            slice_max = SLICE;
        }
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
            let words = match members {
                0 => format!("group {:?} has no members", args.group),
                _ => format!("group {:?}: {unfinished} of {members} members are unfinished", args.group),
            };
            return Err(Failure::TimedOut(words));
        }
    }
}

fn ended(group: &GroupShown) -> String {
    let GroupShown { group, members, failed, removed, .. } = group;
    format!("group {group:?}: of {members} members {failed} failed and {removed} were removed")
}
