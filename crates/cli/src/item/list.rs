//! `towline queue item list`.

use super::filter::FilterArgs;
use crate::connect::Session;
use crate::exit::Failure;
use crate::value::PayloadArgs;
use clap::Args;
use towline_api::client::ItemQuery;
use towline_api::payload::Form;
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
    #[command(flatten)]
    payload: PayloadArgs,
}

/// The columns of a table of items.
struct Columns {
    headers: &'static [&'static str],
    row: fn(&ItemShown) -> Vec<String>,
}

pub async fn run(session: &Session, args: ListArgs) -> Result<(), Failure> {
    let query = ItemQuery {
        filter: args.filter.get(),
        cursor: args.cursor,
        fields: args.fields,
        view: args.summary.then(|| "summary".to_owned()),
        ..ItemQuery::default()
    };
    let columns = match args.queue {
        Some(_) => Columns {
            headers: &["ID", "STATE", "PRIORITY", "ATTEMPT", "CREATED", "LAST ERROR"],
            row: row_of_queue,
        },
        None => Columns {
            headers: &["ID", "STATE", "PRIORITY", "ATTEMPT", "CREATED", "QUEUE", "LAST ERROR"],
            row,
        },
    };
    let limit = args.limit.unwrap_or(usize::MAX);
    list(session, args.queue.as_deref(), query, (limit, args.payload.form()), columns).await
}

/// Lists all matching items of all queues, with their results.
pub async fn results(session: &Session, filter: ItemFilter, summary: bool) -> Result<(), Failure> {
    let view = summary.then(|| "summary".to_owned());
    let query = ItemQuery { filter, view, ..ItemQuery::default() };
    list(
        session,
        None,
        query,
        (usize::MAX, Form::default()),
        Columns { headers: &["ID", "QUEUE", "STATE", "RESULT"], row: result_row },
    )
    .await
}

async fn list(
    session: &Session,
    queue: Option<&str>,
    mut query: ItemQuery,
    (mut left, form): (usize, Form),
    Columns { headers, row }: Columns,
) -> Result<(), Failure> {
    let summary = query.view.is_some();
    let mut listing = session.output.listing(headers);
    while left > 0 {
        query.limit = Some(left.min(PAGE));
        let page = session.client.items(queue, &query).await?;
        let taken = page.items.len();
        for item in page.items.into_iter().take(left) {
            match summary {
                false => listing.push(&item.payload_as(form), row)?,
                true => listing.push(&item.summary(), |_| row(&item))?,
            }
        }
        left = left.saturating_sub(taken);
        query.cursor = page.next;
        if query.cursor.is_none() {
            break;
        }
    }
    listing.finish()
}

fn row_of_queue(item: &ItemShown) -> Vec<String> {
    vec![
        item.id.to_string(),
        state(item),
        item.priority.to_string(),
        item.attempt.to_string(),
        item.created_at.to_string(),
        last_error(item),
    ]
}

fn row(item: &ItemShown) -> Vec<String> {
    let mut cells = row_of_queue(item);
    cells.insert(5, item.queue.clone());
    cells
}

/// Output parameters and output buffers, or why the item failed.
fn result_row(item: &ItemShown) -> Vec<String> {
    let outputs = item.outputs.iter().map(|(slot, buffer)| format!("{slot}={buffer}"));
    let params = item.output_params.iter().map(|(name, value)| format!("{name}={}", value.as_str()));
    let result = match item.failure {
        Some(_) => last_error(item),
        None => outputs.chain(params).collect::<Vec<_>>().join(" "),
    };
    vec![item.id.to_string(), item.queue.clone(), state(item), result]
}

fn state(item: &ItemShown) -> String {
    match &item.failure {
        Some(kind) => format!("{} ({kind})", item.state),
        None => item.state.clone(),
    }
}

fn last_error(item: &ItemShown) -> String {
    let last = item.errors.last();
    let words = last.map(|error| if error.message.is_empty() { &error.kind } else { &error.message });
    words.cloned().unwrap_or_default()
}
