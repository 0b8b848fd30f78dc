//! `towline queue`: one file for each verb that is more than a call.

mod bulk;
mod bulk_lines;
mod create;
mod item_args;
mod list;
mod receive;
mod submit;
mod tally;
mod watch;

pub use item_args::ItemArgs;

use crate::connect::Session;
use crate::exit::Failure;
use crate::item::{self, ItemCommand, Parent};
use crate::policy::PolicyArgs;
use clap::{Args, Subcommand};

#[derive(Debug, Subcommand)]
pub enum QueueCommand {
    Create(Box<create::CreateArgs>),
    /// List queues.
    List,
    /// Show a queue.
    Show(Name),
    /// Count a queue's items by state.
    Counts(Name),
    Tally(tally::TallyArgs),
    /// Take no new items; the queue completes when its items are done. Cannot be undone.
    Close(Name),
    /// Give no items out until resumed.
    Pause(Name),
    /// Give items out again.
    Resume(Name),
    /// Change a queue's policy.
    Update(Box<UpdateArgs>),
    /// Delete a queue with its finished items.
    Delete(DeleteArgs),
    Submit(Box<submit::SubmitArgs>),
    Receive(receive::ReceiveArgs),
    Watch(watch::WatchArgs),
    /// Work on items.
    #[command(subcommand, visible_alias = "items")]
    Item(Box<ItemCommand>),
}

#[derive(Debug, Args)]
pub struct Name {
    /// Its name.
    #[arg(value_name = "QUEUE")]
    name: String,
}

#[derive(Debug, Args)]
pub struct UpdateArgs {
    /// Its name.
    #[arg(value_name = "QUEUE")]
    name: String,
    #[command(flatten)]
    policy: PolicyArgs,
}

#[derive(Debug, Args)]
pub struct DeleteArgs {
    /// Its name.
    #[arg(value_name = "QUEUE")]
    name: String,
    /// Also with items that are not finished; they are lost.
    #[arg(long)]
    force: bool,
}

pub async fn run(session: &Session, command: QueueCommand, parent: Parent) -> Result<(), Failure> {
    let Session { client, output } = session;
    match command {
        QueueCommand::Create(args) => create::run(session, *args).await,
        QueueCommand::List => list::run(session).await,
        QueueCommand::Show(args) => output.object(&client.queue(&args.name).await?),
        QueueCommand::Counts(args) => list::counts(session, &args.name).await,
        QueueCommand::Tally(args) => tally::run(session, args).await,
        QueueCommand::Close(args) => output.silent(&client.close_queue(&args.name).await?),
        QueueCommand::Pause(args) => output.silent(&client.pause_queue(&args.name).await?),
        QueueCommand::Resume(args) => output.silent(&client.resume_queue(&args.name).await?),
        QueueCommand::Update(args) => {
            let UpdateArgs { name, policy } = *args;
            output.silent(&client.change_policy(&name, &policy.change()?).await?)
        }
        QueueCommand::Delete(args) => Ok(client.delete_queue(&args.name, args.force).await?),
        QueueCommand::Submit(args) => submit::run(session, *args).await,
        QueueCommand::Receive(args) => receive::run(session, args).await,
        QueueCommand::Watch(args) => watch::run(session, args).await,
        QueueCommand::Item(command) => item::run(session, *command, parent).await,
    }
}
