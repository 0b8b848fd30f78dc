//! `towline buffer list`.

use crate::connect::Session;
use crate::exit::Failure;
use crate::value::{Pair, pair};
use clap::Args;
use towline_api::buffer::BufferListed;
use towline_api::client::BufferQuery;

const PAGE: usize = 1000;

/// List buffers in order of id. Buffers from `create` are in order of time.
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
    let mut listing = session.output.listing(&["ID", "CREATED", "EXPIRES", "TAGS"]);
    let tags = args.tag.into_iter().map(|Pair { name, value }| (name, value)).collect();
    let mut query = BufferQuery { tags, ..BufferQuery::default() };
    let mut left = args.limit.unwrap_or(usize::MAX);
    while left > 0 {
        query.limit = Some(left.min(PAGE));
        let page = session.client.buffers(&query).await?;
        for buffer in page.buffers.iter().take(left) {
            listing.push(buffer, row)?;
        }
        left = left.saturating_sub(page.buffers.len());
        query.cursor = page.next;
        if query.cursor.is_none() {
            break;
        }
    }
    listing.finish()
}

fn row(buffer: &BufferListed) -> Vec<String> {
    let tags: Vec<String> = buffer.tags.iter().map(|(name, value)| format!("{name}={value}")).collect();
    let expires = buffer.expires_at.as_ref().map(ToString::to_string).unwrap_or_default();
    vec![buffer.id.clone(), buffer.created_at.to_string(), expires, tags.join(" ")]
}
