//! `towline buffer`: one file for each verb that is more than one call.

mod create;
mod input;
mod list;
mod range;
mod read;
mod resume;
mod sink;
mod write;

use crate::connect::Session;
use crate::exit::Failure;
use crate::output;
use clap::{Args, Subcommand};
use std::time::Duration;
use towline_api::ClientError;

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
}

#[derive(Debug, Args)]
pub struct BufferIds {
    /// The buffers' ids.
    #[arg(value_name = "BUFFER", required = true)]
    ids: Vec<String>,
}

pub async fn run(session: &Session, command: BufferCommand) -> Result<(), Failure> {
    let Session { client, output } = session;
    match command {
        BufferCommand::Create(args) => create::run(session, args).await,
        BufferCommand::Write(args) => write::run(session, args).await,
        BufferCommand::Read(args) => read::run(session, args).await,
        BufferCommand::Show(args) => output.object(&client.buffer(&args.id).await?),
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
