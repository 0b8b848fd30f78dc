//! `towline buffer`: one file for each verb that is more than one call.

mod create;
mod input;
mod list;
mod range;
mod read;
mod resume;
mod sink;
mod write;

pub use sink::Sink;
pub use write::hexadecimal;

use crate::connect::Session;
use crate::exit::Failure;
use crate::output;
use crate::value::item_id;
use clap::{Args, Subcommand};
use std::time::Duration;
use towline_api::{Client, ClientError, ItemId};

/// How long to wait for a server that restarts. A writer waits as long as the server waits for a silent
/// writer.
const WRITE_PATIENCE: Duration = Duration::from_secs(60);
const READ_PATIENCE: Duration = Duration::from_secs(600);

#[derive(Debug, Subcommand)]
pub enum BufferCommand {
    Create(create::CreateArgs),
    Write(write::WriteArgs),
    Read(read::ReadArgs),
    /// Show a buffer: its state, size and tags.
    Show(BufferArg),
    List(list::ListArgs),
    /// Delete buffers, even while they are written or read.
    Delete(BufferIds),
    Copy(create::CopyArgs),
}

#[derive(Debug, Args)]
pub struct BufferArg {
    /// The buffer's id.
    #[arg(value_name = "BUFFER")]
    id: String,
    #[command(flatten)]
    held: HeldArgs,
}

/// A lease that permits the use of the buffers of its item.
#[derive(Debug, Args)]
pub struct HeldArgs {
    /// Use the lease on this item: it permits reading the item's inputs, and writing the outputs of its attempt, without a
    /// scope for buffers.
    #[arg(long, value_name = "ITEM", value_parser = item_id, requires = "lease")]
    item: Option<ItemId>,
    /// The lease token that came with the item.
    #[arg(long, value_name = "TOKEN", requires = "item")]
    lease: Option<String>,
}

impl HeldArgs {
    fn client(&self, session: &Session) -> Result<Client, Failure> {
        let client = session.client.clone();
        match (&self.item, &self.lease) {
            (Some(item), Some(lease)) => Ok(client.lease(item, lease)?),
            _ => Ok(client),
        }
    }
}

#[derive(Debug, Args)]
pub struct BufferIds {
    /// The buffers' ids.
    #[arg(value_name = "BUFFER", required = true)]
    ids: Vec<String>,
}

pub async fn run(session: &Session, command: BufferCommand) -> Result<(), Failure> {
    let Session { output, .. } = session;
    match command {
        BufferCommand::Create(args) => create::run(session, args).await,
        BufferCommand::Write(args) => write::run(session, args).await,
        BufferCommand::Read(args) => read::run(session, args).await,
        BufferCommand::Show(args) => output.object(&args.held.client(session)?.buffer(&args.id).await?),
        BufferCommand::List(args) => list::run(session, args).await,
        BufferCommand::Delete(args) => delete(session, args).await,
        BufferCommand::Copy(args) => create::copy(session, args).await,
    }
}

/// Deletes buffers. A refusal does not stop the rest.
async fn delete(session: &Session, args: BufferIds) -> Result<(), Failure> {
    let mut refused = false;
    for id in args.ids {
        match session.client.delete_buffer(&id).await {
            Ok(()) => {}
            Err(error @ ClientError::Refused(_)) => {
                output::say(&error);
                refused = true;
            }
            Err(error) => return Err(error.into()),
        }
    }
    if refused { Err(Failure::AlreadyReported) } else { Ok(()) }
}
