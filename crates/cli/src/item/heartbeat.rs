//! `towline queue item heartbeat`: once, or while the worker process is alive.

use super::parent_process::ParentProcess;
use super::settle::{self, ChangeArgs, LeaseArgs};
use super::while_alive;
use crate::connect::Session;
use crate::exit::Failure;
use crate::value::duration;
use clap::Args;
use towline_api::{Action, Millis, Span, VerbName};

/// Extend the lease of an item.
///
/// With --while-alive: keep extending it until the parent process exits, the item is settled, or the lease is
/// lost. Waits for a server that restarts.
#[derive(Debug, Args)]
pub struct HeartbeatArgs {
    #[command(flatten)]
    lease: LeaseArgs,
    /// How long the lease lasts from now [default: the visibility timeout of the receive].
    #[arg(long, value_name = "DURATION", value_parser = duration)]
    visibility_timeout: Option<Millis>,
    /// Repeat until the parent process exits. Exit code 0 if it exited or the item was settled, 1 if the
    /// lease was lost.
    #[arg(long)]
    while_alive: bool,
    #[command(flatten)]
    change: ChangeArgs,
}

pub async fn run(session: &Session, args: HeartbeatArgs, parent: ParentProcess) -> Result<(), Failure> {
    let id = args.lease.id;
    let action = Action {
        visibility_timeout: args.visibility_timeout.map(Span::from),
        ..args.lease.action(VerbName::Heartbeat)
    };
    if !args.while_alive {
        return settle::send(session, args.change.apply(action)?).await;
    }
    // Only the first heartbeat makes the changes.
    let first = args.change.apply(action.clone())?;
    while_alive::run(session, id, first, action, args.visibility_timeout, parent).await
}
