//! `towline queue item count`.

use super::filter::FilterArgs;
use crate::connect::Session;
use crate::exit::Failure;
use crate::output::Format;
use clap::Args;
use towline_api::CountShown;
use towline_api::client::ItemQuery;

/// Count matching items.
#[derive(Debug, Args)]
pub struct CountArgs {
    /// The queue's name [default: all queues].
    queue: Option<String>,
    #[command(flatten)]
    filter: FilterArgs,
}

pub async fn run(session: &Session, args: CountArgs) -> Result<(), Failure> {
    let mut query = ItemQuery { filter: args.filter.get(), ..ItemQuery::default() };
    let mut count = 0;
    loop {
        let part = session.client.count(args.queue.as_deref(), &query).await?;
        count += part.count;
        query.cursor = part.next;
        if query.cursor.is_none() {
            break;
        }
    }
    match session.output.requested() {
        Some(Format::Json | Format::Ndjson) => session.output.object(&CountShown { count, next: None }),
        Some(Format::Table) | None => crate::output::text(&format!("{count}\n")),
    }
}
