//! `towline queue item purge`.

use super::bulk_action::{MatchArgs, repeat_until_done};
use crate::connect::Session;
use crate::exit::Failure;
use clap::Args;
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
    let query = ItemQuery { force: args.force, ..args.all.query() };
    if query.filter.state.is_none() {
        return Err(Failure::Usage("name the items to delete, for example --state failed".to_owned()));
    }
    repeat_until_done(session, query, async |query| session.client.purge(&args.queue, query).await).await
}
