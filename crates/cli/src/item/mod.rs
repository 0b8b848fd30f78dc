//! `towline queue item`: commands about items.

mod bulk_action;
mod count;
mod filter;
mod heartbeat;
mod list;
mod operator;
mod parent_process;
mod purge;
mod settle;
mod wait;
mod while_alive;

pub use bulk_action::repeat_until_done;
pub use list::results as list_results;
pub use parent_process::ParentProcess;

use crate::connect::Session;
use crate::exit::Failure;
use crate::value::{PayloadArgs, item_id};
use clap::{Args, Subcommand};
use towline_api::ItemId;

#[derive(Debug, Subcommand)]
pub enum ItemCommand {
    Heartbeat(heartbeat::HeartbeatArgs),
    Commit(settle::CommitArgs),
    Fail(settle::FailArgs),
    Retry(settle::RetryArgs),
    Release(settle::ReleaseArgs),
    Defer(settle::DeferArgs),
    Edit(settle::EditArgs),
    /// Show an item with its result.
    Show(ShowArgs),
    Wait(wait::WaitArgs),
    List(list::ListArgs),
    Count(count::CountArgs),
    Purge(purge::PurgeArgs),
    /// Cancel unfinished items. They fail as `cancelled`.
    Cancel(operator::CancelArgs),
    /// Redrive finished items: make them pending again, with all their retries.
    Redrive(bulk_action::ItemsArgs),
    /// Pause pending items until they are resumed.
    Pause(operator::PauseArgs),
    /// Resume paused items.
    Resume(bulk_action::ItemsArgs),
    /// Change the priority of pending items and print how many.
    SetPriority(bulk_action::SetPriorityArgs),
    /// Move pending items to another queue and print how many.
    Move(bulk_action::MoveArgs),
    /// Delete items.
    Delete(operator::DeleteArgs),
}

#[derive(Debug, Args)]
pub struct ShowArgs {
    /// The item's id.
    #[arg(value_name = "ITEM", value_parser = item_id)]
    id: ItemId,
    #[command(flatten)]
    payload: PayloadArgs,
}

pub async fn run(session: &Session, command: ItemCommand, parent: ParentProcess) -> Result<(), Failure> {
    let Session { client, output } = session;
    match command {
        ItemCommand::Heartbeat(args) => heartbeat::run(session, args, parent).await,
        ItemCommand::Commit(args) => settle::send(session, args.action()?).await,
        ItemCommand::Fail(args) => settle::send(session, args.action()?).await,
        ItemCommand::Retry(args) => settle::send(session, args.action()?).await,
        ItemCommand::Release(args) => settle::send(session, args.action()?).await,
        ItemCommand::Defer(args) => settle::send(session, args.action()?).await,
        ItemCommand::Edit(args) => settle::send(session, args.action()?).await,
        ItemCommand::Show(args) => {
            output.object(&client.item(args.id).await?.payload_as(args.payload.form()))
        }
        ItemCommand::Wait(args) => wait::run(session, args).await,
        ItemCommand::List(args) => list::run(session, args).await,
        ItemCommand::Count(args) => count::run(session, args).await,
        ItemCommand::SetPriority(args) => bulk_action::set_priority(session, args).await,
        ItemCommand::Move(args) => bulk_action::move_to(session, args).await,
        ItemCommand::Purge(args) => purge::run(session, args).await,
        ItemCommand::Cancel(args) => operator::cancel(session, args).await,
        ItemCommand::Redrive(args) => operator::redrive(session, args).await,
        ItemCommand::Pause(args) => operator::pause(session, args).await,
        ItemCommand::Resume(args) => operator::resume(session, args).await,
        ItemCommand::Delete(args) => operator::delete(session, args).await,
    }
}
