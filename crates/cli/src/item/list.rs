//! `towline queue item list`.

use crate::connect::Session;
use crate::exit::Failure;
use crate::value::{Pair, pair};
use clap::Args;
use towline_api::ItemShown;
use towline_api::client::ItemQuery;

const PAGE: usize = 1000;

/// List a queue's items in the order of their submission.
#[derive(Debug, Args)]
pub struct ListArgs {
    /// The queue's name.
    queue: String,
    #[command(flatten)]
    filter: FilterArgs,
    /// At most so many [default: all].
    #[arg(long, value_name = "N")]
    limit: Option<usize>,
    /// Which payload fields to bring along, of payload, state_blob, metadata, parameters [default: none].
    #[arg(long, value_name = "FIELD,...")]
    fields: Option<String>,
    /// Where an earlier list ended: the `next` of the HTTP API.
    #[arg(long, value_name = "CURSOR")]
    cursor: Option<String>,
}

/// Which items are meant.
#[derive(Debug, Args)]
pub struct FilterArgs {
    /// Only items in this state: pending, scheduled, processing, paused, completed, failed, unfinished.
    #[arg(long, visible_alias = "state", value_name = "STATE")]
    status: Option<String>,
    /// Only items with this tag. Repeatable: all must match.
    #[arg(long, value_name = "NAME=VALUE", value_parser = pair)]
    tag: Vec<Pair<String>>,
}

impl FilterArgs {
    pub fn query(self) -> ItemQuery {
        let tags = self.tag.into_iter().map(|Pair { name, value }| (name, value)).collect();
        ItemQuery { state: self.status, tags, ..ItemQuery::default() }
    }
}

pub async fn run(session: &Session, args: ListArgs) -> Result<(), Failure> {
    let headers = &["ID", "STATE", "PRIORITY", "ATTEMPT", "CREATED", "LAST ERROR"];
    let mut listing = session.output.listing(headers);
    let mut query = ItemQuery { cursor: args.cursor, fields: args.fields, ..args.filter.query() };
    let mut left = args.limit.unwrap_or(usize::MAX);
    while left > 0 {
        query.limit = Some(left.min(PAGE));
        let page = session.client.items(&args.queue, &query).await?;
        for item in page.items.iter().take(left) {
            listing.push(item, row)?;
        }
        left = left.saturating_sub(page.items.len());
        query.cursor = page.next;
        if query.cursor.is_none() {
            break;
        }
    }
    listing.finish()
}

fn row(item: &ItemShown) -> Vec<String> {
    let state = match &item.failure {
        Some(kind) => format!("{} ({kind})", item.state),
        None => item.state.clone(),
    };
    let error = item.errors.last().map(|error| match error.message.as_str() {
        "" => error.kind.clone(),
        message => message.to_owned(),
    });
    vec![
        item.id.to_string(),
        state,
        item.priority.to_string(),
        item.attempt.to_string(),
        item.created_at.to_string(),
        error.unwrap_or_default(),
    ]
}
