//! `towline queue item purge`.

use super::list::FilterArgs;
use crate::connect::Session;
use crate::exit::Failure;
use crate::output::Format;
use clap::Args;
use towline_api::Purged;
use towline_api::client::ItemQuery;

/// Remove items by state, and print how many there were.
#[derive(Debug, Args)]
pub struct PurgeArgs {
    /// The queue's name.
    queue: String,
    #[command(flatten)]
    filter: FilterArgs,
    /// Also items that somebody works on; their holders' next call is refused.
    #[arg(long)]
    force: bool,
}

pub async fn run(session: &Session, args: PurgeArgs) -> Result<(), Failure> {
    let query = args.filter.query();
    if query.state.is_none() {
        return Err(Failure::Usage("say which items to remove, like --status failed".to_owned()));
    }
    let mut query = ItemQuery { force: args.force, ..query };
    let mut removed = 0;
    loop {
        let purged = session.client.purge(&args.queue, &query).await?;
        removed += purged.removed;
        query.cursor = purged.next;
        if query.cursor.is_none() {
            break;
        }
    }
    match session.output.asked() {
        Some(Format::Json | Format::Ndjson) => session.output.object(&Purged { removed, next: None }),
        Some(Format::Table) | None => crate::output::text(&format!("{removed}\n")),
    }
}
