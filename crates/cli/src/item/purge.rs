//! `towline queue item purge`.

use super::bulk_action::{MatchArgs, bar};
use crate::connect::Session;
use crate::exit::Failure;
use crate::output::Format;
use clap::Args;
use towline_api::PurgeResult;
use towline_api::client::ItemQuery;

/// Delete items by state and print how many.
#[derive(Debug, Args)]
pub struct PurgeArgs {
    /// The queue's name.
    queue: String,
    #[command(flatten)]
    all: MatchArgs,
    /// Also delete items that a worker holds. The worker's next call is refused.
    #[arg(long)]
    force: bool,
}

pub async fn run(session: &Session, args: PurgeArgs) -> Result<(), Failure> {
    let mut query = ItemQuery { force: args.force, ..args.all.query() };
    if query.filter.state.is_none() {
        return Err(Failure::Usage("name the items to delete, for example --status failed".to_owned()));
    }
    let (mut removed, mut matched) = (0, query.dry_run.then_some(0));
    let bar = bar();
    loop {
        let purged = session.client.purge(&args.queue, &query).await?;
        removed += purged.removed;
        matched = matched.map(|sum| sum + purged.matched.unwrap_or(0));
        bar.set_message(format!("{removed} items"));
        bar.tick();
        query.cursor = purged.next;
        if query.cursor.is_none() {
            break;
        }
    }
    bar.finish_and_clear();
    match session.output.requested() {
        Some(Format::Json | Format::Ndjson) => {
            session.output.object(&PurgeResult { removed, matched, next: None })
        }
        Some(Format::Table) | None => crate::output::text(&format!("{}\n", matched.unwrap_or(removed))),
    }
}
