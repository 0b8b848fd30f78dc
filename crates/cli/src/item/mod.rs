//! `towline queue item`: what is done with single items, and lists of them.

mod act;
mod count;
mod filter;
mod heartbeat;
mod list;
mod operate;
mod parent;
mod purge;
mod settle;
mod wait;
mod while_alive;

pub use act::repeat as cancel_all;
pub use list::all as list_all;
pub use parent::Parent;

use crate::connect::Session;
use crate::exit::Failure;
use crate::value::item_id;
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
    /// Show an item, with its result if it has one.
    Show(Id),
    Wait(wait::WaitArgs),
    List(list::ListArgs),
    Count(count::CountArgs),
    Purge(purge::PurgeArgs),
    /// End items that are not finished; they fail as `cancelled`.
    Cancel(operate::CancelArgs),
    /// Give finished items another life: pending again, with all their retries.
    Redrive(act::Items),
    /// Hold pending items back until they are resumed.
    Pause(act::Items),
    /// Let paused items go on.
    Resume(act::Items),
    /// Change the priority of items that wait, and print of how many.
    SetPriority(act::SetPriorityArgs),
    /// Move items that wait to another queue, and print how many.
    Move(act::MoveArgs),
    /// Remove items.
    Delete(operate::DeleteArgs),
}

#[derive(Debug, Args)]
pub struct Id {
    /// The item's id.
    #[arg(value_name = "ITEM", value_parser = item_id)]
    id: ItemId,
}

pub async fn run(session: &Session, command: ItemCommand, parent: Parent) -> Result<(), Failure> {
    let Session { client, output } = session;
    match command {
        ItemCommand::Heartbeat(args) => heartbeat::run(session, args, parent).await,
        ItemCommand::Commit(args) => settle::send(session, args.action()?).await,
        ItemCommand::Fail(args) => settle::send(session, args.action()?).await,
        ItemCommand::Retry(args) => settle::send(session, args.action()?).await,
        ItemCommand::Release(args) => settle::send(session, args.action()?).await,
        ItemCommand::Defer(args) => settle::send(session, args.action()?).await,
        ItemCommand::Edit(args) => settle::send(session, args.action()?).await,
        ItemCommand::Show(args) => output.object(&client.item(args.id).await?),
        ItemCommand::Wait(args) => wait::run(session, args).await,
        ItemCommand::List(args) => list::run(session, args).await,
        ItemCommand::Count(args) => count::run(session, args).await,
        ItemCommand::SetPriority(args) => act::set_priority(session, args).await,
        ItemCommand::Move(args) => act::move_to(session, args).await,
        ItemCommand::Purge(args) => purge::run(session, args).await,
        ItemCommand::Cancel(args) => operate::cancel(session, args).await,
        ItemCommand::Redrive(args) => operate::redrive(session, args).await,
        ItemCommand::Pause(args) => operate::pause(session, args).await,
        ItemCommand::Resume(args) => operate::resume(session, args).await,
        ItemCommand::Delete(args) => operate::delete(session, args).await,
    }
}
