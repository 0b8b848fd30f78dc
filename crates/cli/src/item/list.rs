//! `towline queue item list`.

use super::filter::FilterArgs;
use crate::connect::Session;
use crate::exit::Failure;
use clap::Args;
use towline_api::client::ItemQuery;
use towline_api::{ItemFilter, ItemShown};

const PAGE: usize = 1000;

/// List items in order of submission.
#[derive(Debug, Args)]
pub struct ListArgs {
    /// The queue's name [default: all queues].
    queue: Option<String>,
    #[command(flatten)]
    filter: FilterArgs,
    /// Maximum number of items [default: all].
    #[arg(long, value_name = "N")]
    limit: Option<usize>,
    /// Payload fields to return: payload, state_blob, metadata, parameters [default: none].
    #[arg(long, value_name = "FIELD,...")]
    fields: Option<String>,
    /// Continue from the `next` of a page of the HTTP API.
    #[arg(long, value_name = "CURSOR")]
    cursor: Option<String>,
    /// Leave out inputs, parameters and outputs.
    #[arg(long, conflicts_with = "fields")]
    summary: bool,
}

pub async fn run(session: &Session, args: ListArgs) -> Result<(), Failure> {
    let query = ItemQuery {
        filter: args.filter.get(),
        cursor: args.cursor,
        fields: args.fields,
        view: args.summary.then(|| "summary".to_owned()),
        ..ItemQuery::default()
    };
    list(session, args.queue.as_deref(), query, args.limit).await
}

/// Lists all matching items of all queues.
pub async fn all(session: &Session, filter: ItemFilter, summary: bool) -> Result<(), Failure> {
    let view = summary.then(|| "summary".to_owned());
    list(session, None, ItemQuery { filter, view, ..ItemQuery::default() }, None).await
}

async fn list(
    session: &Session,
    queue: Option<&str>,
    mut query: ItemQuery,
    limit: Option<usize>,
) -> Result<(), Failure> {
    let summary = query.view.is_some();
    let headers: &'static [&'static str] = match queue {
        Some(_) => &["ID", "STATE", "PRIORITY", "ATTEMPT", "CREATED", "LAST ERROR"],
        None => &["ID", "STATE", "PRIORITY", "ATTEMPT", "CREATED", "QUEUE", "LAST ERROR"],
    };
    let with_queue = queue.is_none();
    let row = |item: &ItemShown| row(item, with_queue);
    let mut listing = session.output.listing(headers);
    let mut left = limit.unwrap_or(usize::MAX);
    while left > 0 {
        query.limit = Some(left.min(PAGE));
        let page = session.client.items(queue, &query).await?;
        for item in page.items.iter().take(left) {
            match summary {
                false => listing.push(item, row)?,
                true => listing.push(&item.summary(), |_| row(item))?,
            }
        }
        left = left.saturating_sub(page.items.len());
        query.cursor = page.next;
        if query.cursor.is_none() {
            break;
        }
    }
    listing.finish()
}

fn row(item: &ItemShown, with_queue: bool) -> Vec<String> {
    let state = match &item.failure {
        Some(kind) => format!("{} ({kind})", item.state),
        None => item.state.clone(),
    };
    let error = item.errors.last().map(|error| match error.message.as_str() {
        "" => error.kind.clone(),
        message => message.to_owned(),
    });
    let mut cells = vec![
        item.id.to_string(),
        state,
        item.priority.to_string(),
        item.attempt.to_string(),
        item.created_at.to_string(),
    ];
    cells.extend(with_queue.then(|| item.queue.clone()));
    cells.push(error.unwrap_or_default());
    cells
}
