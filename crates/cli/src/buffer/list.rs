//! `towline buffer list`.

use crate::connect::Session;
use crate::exit::Failure;
use crate::value::{Pair, pair};
use clap::Args;
use indicatif::HumanBytes;
use towline_api::buffer::{BufferListed, BufferShown};
use towline_api::client::BufferQuery;
use towline_api::{Client, Code};

const PAGE: usize = 1000;
/// How many buffers are read at the same time.
const PARALLEL: usize = 16;

/// List buffers with their state and size, in order of id. Buffers from `create` are in order of time.
#[derive(Debug, Args)]
pub struct ListArgs {
    /// Only buffers with this tag. Repeatable; all must match.
    #[arg(long, value_name = "NAME=VALUE", value_parser = pair)]
    tag: Vec<Pair<String>>,
    /// Maximum number of buffers [default: all].
    #[arg(long, value_name = "N")]
    limit: Option<usize>,
}

pub async fn run(session: &Session, args: ListArgs) -> Result<(), Failure> {
    let mut listing = session.output.listing(&["ID", "STATE", "SIZE", "CREATED", "EXPIRES", "TAGS"]);
    let tags = args.tag.into_iter().map(|Pair { name, value }| (name, value)).collect();
    let mut query = BufferQuery { tags, ..BufferQuery::default() };
    let mut left = args.limit.unwrap_or(usize::MAX);
    while left > 0 {
        query.limit = Some(left.min(PAGE));
        let page = session.client.buffers(&query).await?;
        for some in page.buffers[..left.min(page.buffers.len())].chunks(PARALLEL) {
            for buffer in show(&session.client, some).await? {
                listing.push(&buffer, row)?;
            }
        }
        left = left.saturating_sub(page.buffers.len());
        query.cursor = page.next;
        if query.cursor.is_none() {
            break;
        }
    }
    listing.finish()
}

/// Reads buffers at the same time. Leaves out those that were deleted meanwhile.
async fn show(client: &Client, listed: &[BufferListed]) -> Result<Vec<BufferShown>, Failure> {
    let ask = |buffer: &BufferListed| {
        let (client, id) = (client.clone(), buffer.id.clone());
        tokio::spawn(async move { client.buffer(&id).await })
    };
    let asked: Vec<_> = listed.iter().map(ask).collect();
    let mut shown = Vec::with_capacity(asked.len());
    for answer in asked {
        match answer.await.map_err(Failure::refused)? {
            Ok(buffer) => shown.push(buffer),
            Err(error) if error.code() == Some(Code::BufferNotFound) => {}
            Err(error) => return Err(error.into()),
        }
    }
    Ok(shown)
}

fn row(buffer: &BufferShown) -> Vec<String> {
    let tags: Vec<String> = buffer.tags.iter().map(|(name, value)| format!("{name}={value}")).collect();
    let expires = buffer.expires_at.as_ref().map(ToString::to_string).unwrap_or_default();
    let (state, size) = (buffer.state.clone(), HumanBytes(buffer.bytes).to_string());
    vec![buffer.id.clone(), state, size, buffer.created_at.to_string(), expires, tags.join(" ")]
}
