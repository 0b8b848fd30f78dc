//! `towline queue item heartbeat`: once, or for as long as somebody works.

use super::parent_process::ParentProcess;
use super::settle::{self, ChangeArgs, LeaseArgs};
use super::while_alive;
use crate::connect::Session;
use crate::exit::Failure;
use crate::value::duration;
use clap::Args;
use towline_api::{Action, Millis, Span, VerbName};

/// Extend the lease on an item.
///
/// With --while-alive: again and again, until the process that started this one is gone, the item is settled, or the
/// lease is lost. A server that restarts is waited for.
#[derive(Debug, Args)]
pub struct HeartbeatArgs {
    #[command(flatten)]
    lease: LeaseArgs,
    /// How long from now the item stays hidden, in place of the time it was received with.
    #[arg(long, value_name = "DURATION", value_parser = duration)]
    visibility_timeout: Option<Millis>,
    /// Go on until the parent process ends. Exit code 0 when it did or the item was settled, 1 when the lease was lost.
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
    // Changes are made once, by the first beat.
    let first = args.change.apply(action.clone())?;
    while_alive::run(session, id, first, action, args.visibility_timeout, parent).await
}
