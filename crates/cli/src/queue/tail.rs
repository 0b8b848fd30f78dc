//! `towline queue tail`: prints new items without leasing them.

use crate::connect::Session;
use crate::events::follow;
use crate::exit::Failure;
use crate::output;
use crate::reconnect::PATIENCE;
use crate::value::PayloadArgs;
use clap::Args;
use towline_api::Code;
use towline_api::client::EventQuery;

/// The queue ends with these: no item comes after them.
const ENDS: [&str; 2] = ["queue.completed", "queue.deleted"];

/// Print new items of a queue as they are submitted, one JSON object per line, without leasing them.
///
/// Workers get the items as if nothing was printed. Ends when the queue is completed or deleted. Waits for a server that
/// restarts, and misses no item.
#[derive(Debug, Args)]
pub struct TailArgs {
    /// The queue's name.
    queue: String,
    /// Start after the event with this id, or with `oldest` [default: only new items].
    #[arg(long, value_name = "ID", visible_alias = "after")]
    cursor: Option<String>,
    /// Stop after this many items.
    #[arg(long, value_name = "N")]
    count: Option<u64>,
    #[command(flatten)]
    payload: PayloadArgs,
}

pub async fn run(session: &Session, args: TailArgs) -> Result<(), Failure> {
    let TailArgs { queue, cursor, count, payload } = args;
    // Report a missing queue before waiting for its events.
    session.client.queue(&queue).await?;
    let client = session.client.clone().retry_for(PATIENCE);
    let kinds = ["item.submitted", "item.replaced"].into_iter().chain(ENDS).map(str::to_owned).collect();
    let query = EventQuery { cursor, kinds, queues: vec![queue], ..EventQuery::default() };
    let mut left = count.unwrap_or(u64::MAX);
    if left == 0 {
        return Ok(());
    }
    follow(session, query, async |event| {
        let Some(id) = event.item else { return Ok(!ENDS.contains(&event.kind.as_str())) };
        match client.item(id).await {
            Ok(item) => output::json_line(&item.payload_as(payload.form()))?,
            // It was removed meanwhile.
            Err(error) if error.code() == Some(Code::ItemNotFound) => return Ok(true),
            Err(error) => return Err(error.into()),
        }
        left -= 1;
        Ok(left > 0)
    })
    .await
}
