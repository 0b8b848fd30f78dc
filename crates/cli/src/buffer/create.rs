//! `towline buffer create` and `copy`.

use crate::connect::Session;
use crate::exit::Failure;
use crate::value::{Pair, duration, map, pair};
use clap::Args;
use towline_api::Millis;
use towline_api::buffer::NewBuffer;

/// Create an empty buffer and print its id.
#[derive(Debug, Args)]
pub struct CreateArgs {
    #[command(flatten)]
    options: BufferOptions,
}

/// Copy a complete buffer within object storage, and print the copy's id.
#[derive(Debug, Args)]
pub struct CopyArgs {
    /// The buffer to copy.
    #[arg(value_name = "BUFFER")]
    id: String,
    #[command(flatten)]
    options: BufferOptions,
}

#[derive(Debug, Args)]
struct BufferOptions {
    /// A tag to find the buffer by. Repeatable.
    #[arg(long, value_name = "NAME=VALUE", value_parser = pair)]
    tag: Vec<Pair<String>>,
    /// Delete the buffer after this time [default: never].
    #[arg(long, value_name = "DURATION", value_parser = duration)]
    ttl: Option<Millis>,
}

impl BufferOptions {
    fn new_buffer(self) -> Result<NewBuffer, Failure> {
        Ok(NewBuffer { tags: map("--tag", self.tag)?, ttl: self.ttl.map(Into::into) })
    }
}

pub async fn run(session: &Session, args: CreateArgs) -> Result<(), Failure> {
    let made = session.client.create_buffer(&args.options.new_buffer()?).await?;
    session.output.name_or_json(&made.id, &made)
}

pub async fn copy(session: &Session, args: CopyArgs) -> Result<(), Failure> {
    let made = session.client.copy_buffer(&args.id, &args.options.new_buffer()?).await?;
    session.output.name_or_json(&made.id, &made)
}
