//! `towline queue receive --follow`, also called `queue watch`: prints items as it receives them, for a reader at the other end of a pipe.

use super::receive::{ReceiveOptions, receive};
use crate::connect::Session;
use crate::exit::Failure;
use crate::output;
use crate::reconnect::Reconnect;
use crate::stdout_reader::StdoutReader;
use clap::Args;
use std::time::Duration;
use towline_api::{Action, ReceiveRequest, ReceivedItem, VerbName};

/// How long one call waits. Short enough to detect a server that disappeared.
const WAIT: Duration = Duration::from_secs(60);

/// Receive items until the queue is completed (the same as `receive --follow`), and print one JSON object per line.
///
/// Each printed item is leased: commit it, or give it back. `queue tail` shows items without a lease. Waits for a server that
/// restarts. Receives the next item after the reader has taken the last one.
#[derive(Debug, Args)]
pub struct WatchArgs {
    /// The queue's name.
    pub queue: String,
    #[command(flatten)]
    pub options: ReceiveOptions,
    /// Receive up to this many items at a time.
    #[arg(long, value_name = "N", default_value_t = 1)]
    pub max: i64,
    /// Stop after this many items.
    #[arg(long, value_name = "N")]
    pub count: Option<u64>,
}

pub async fn run(session: &Session, args: WatchArgs) -> Result<(), Failure> {
    let request = args.options.request();
    let reader = StdoutReader::new();
    let mut reconnect = Reconnect::new(None);
    let mut left = args.count.unwrap_or(u64::MAX);
    while left > 0 {
        // An item that waits in the pipe would lose its lease.
        reader.drained().await;
        let request = ReceiveRequest { max: Some(args.max.min(clamped(left))), ..request.clone() };
        let received = tokio::select! {
            received = receive(&session.client, &args.queue, &request, WAIT, &mut reconnect) => received?,
            () = reader.closed() => return Err(Failure::ReaderGone),
        };
        let Some(answer) = received else { continue };
        if answer.items.is_empty() && answer.is_completed() {
            return Ok(());
        }
        for (at, item) in answer.items.iter().enumerate() {
            if let Err(failure) = output::json_line(item) {
                give_back(session, &answer.items[at..]).await;
                return Err(failure);
            }
            left -= 1;
        }
    }
    Ok(())
}

fn clamped(count: u64) -> i64 {
    i64::try_from(count).unwrap_or(i64::MAX)
}

/// Returns items that no worker got. Deferring does not count an attempt.
async fn give_back(session: &Session, items: &[ReceivedItem]) {
    let defer = |item: &ReceivedItem| Action {
        verb: Some(VerbName::Defer.into()),
        id: Some(item.id.clone()),
        lease: Some(item.lease.clone()),
        ..Action::default()
    };
    // If this fails, the items come back when their leases lapse.
    let _ = session.client.settle(items.iter().map(defer).collect()).await;
}
