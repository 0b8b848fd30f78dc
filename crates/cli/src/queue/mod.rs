//! `towline queue`: one file for each verb that is more than one call.

mod bulk_reader;
mod bulk_submit;
mod create;
mod item_args;
mod list;
mod receive;
mod submit;
mod tail;
mod tally;
mod watch;

pub use create::outcome;
pub use item_args::ItemArgs;

use crate::connect::Session;
use crate::exit::Failure;
use crate::item::{self, ItemCommand, ParentProcess};
use crate::policy::PolicyArgs;
use clap::{Args, Subcommand};

#[derive(Debug, Subcommand)]
pub enum QueueCommand {
    Create(Box<create::CreateArgs>),
    Apply(Box<create::ApplyArgs>),
    /// List queues.
    List,
    /// Show a queue.
    Show(QueueArg),
    /// Count a queue's items by state.
    Counts(QueueArg),
    Tally(tally::TallyArgs),
    /// Close a queue: refuse new items, and complete when all items are finished. Cannot be undone.
    Close(QueueArg),
    /// Pause a queue: deliver no items until it is resumed.
    Pause(QueueArg),
    /// Resume a paused queue.
    Resume(QueueArg),
    /// Change a queue's policy.
    Update(Box<UpdateArgs>),
    /// Delete a queue with its finished items.
    Delete(DeleteArgs),
    Submit(Box<submit::SubmitArgs>),
    Receive(receive::ReceiveArgs),
    Watch(watch::WatchArgs),
    Tail(tail::TailArgs),
    /// Work on items.
    #[command(subcommand, visible_alias = "items")]
    Item(Box<ItemCommand>),
}

#[derive(Debug, Args)]
pub struct QueueArg {
    /// The queue's name.
    #[arg(value_name = "QUEUE")]
    name: String,
}

#[derive(Debug, Args)]
pub struct UpdateArgs {
    /// The queue's name.
    #[arg(value_name = "QUEUE")]
    name: String,
    #[command(flatten)]
    policy: PolicyArgs,
}

#[derive(Debug, Args)]
pub struct DeleteArgs {
    /// The queue's name.
    #[arg(value_name = "QUEUE")]
    name: String,
    /// Also delete unfinished items.
    #[arg(long)]
    force: bool,
}

pub async fn run(session: &Session, command: QueueCommand, parent: ParentProcess) -> Result<(), Failure> {
    let Session { client, output } = session;
    match command {
        QueueCommand::Create(args) => create::run(session, *args).await,
        QueueCommand::Apply(args) => create::apply(session, *args).await,
        QueueCommand::List => list::run(session).await,
        QueueCommand::Show(args) => output.object(&client.queue(&args.name).await?),
        QueueCommand::Counts(args) => list::counts(session, &args.name).await,
        QueueCommand::Tally(args) => tally::run(session, args).await,
        QueueCommand::Close(args) => output.json_only(&client.close_queue(&args.name).await?),
        QueueCommand::Pause(args) => output.json_only(&client.pause_queue(&args.name).await?),
        QueueCommand::Resume(args) => output.json_only(&client.resume_queue(&args.name).await?),
        QueueCommand::Update(args) => {
            let UpdateArgs { name, policy } = *args;
            output.json_only(&client.change_policy(&name, &policy.patch()?).await?)
        }
        QueueCommand::Delete(args) => Ok(client.delete_queue(&args.name, args.force).await?),
        QueueCommand::Submit(args) => submit::run(session, *args).await,
        QueueCommand::Receive(args) => receive::run(session, args).await,
        QueueCommand::Watch(args) => watch::run(session, args).await,
        QueueCommand::Tail(args) => tail::run(session, args).await,
        QueueCommand::Item(command) => item::run(session, *command, parent).await,
    }
}
