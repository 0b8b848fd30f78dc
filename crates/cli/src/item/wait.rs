//! `towline queue item wait`.

use crate::clock;
use crate::connect::Session;
use crate::exit::Failure;
use crate::reconnect::Reconnect;
use crate::value::{PayloadArgs, duration, item_id};
use clap::Args;
use std::time::Duration;
use towline_api::{ItemId, ItemShown, ItemState, Millis};

/// How long one call waits. Short enough to detect a server that disappeared.
const SLICE: Duration = Duration::from_secs(60);
const GRACE: Duration = Duration::from_secs(30);

/// Wait until an item is completed or failed.
///
/// Exit code 0: completed. 1: failed, with the reason on stderr. 4: timeout. Waits for a server that
/// restarts.
#[derive(Debug, Args)]
pub struct WaitArgs {
    /// The item's id.
    #[arg(value_name = "ITEM", value_parser = item_id)]
    id: ItemId,
    /// Wait at most this long, for example 1m [default: no limit].
    #[arg(long, value_name = "DURATION", value_parser = duration)]
    timeout: Option<Millis>,
    #[command(flatten)]
    payload: PayloadArgs,
}

pub async fn run(session: &Session, args: WaitArgs) -> Result<(), Failure> {
    let until = args.timeout.map(|timeout| clock::now() + Duration::from_millis(timeout.0));
    let mut reconnect = Reconnect::new(until);
    let client = &session.client;
    loop {
        let rest = until.map(|until| until.saturating_duration_since(clock::now()));
        let slice = rest.map_or(SLICE, |rest| rest.min(SLICE));
        let call = client.wait(args.id, slice);
        let Some(item) = reconnect.attempt(client.url(), slice + GRACE, call).await? else { continue };
        if item.is_finished() {
            let item = item.payload_as(args.payload.form());
            session.output.json_only(&item)?;
            return match item.item_state() {
                Some(ItemState::Completed) => Ok(()),
                _ => Err(Failure::Refused(reason(&item))),
            };
        }
        if rest.is_some_and(|rest| rest <= slice) {
            return Err(Failure::TimedOut(format!("item {} is still {}", args.id, item.state)));
        }
    }
}

fn reason(item: &ItemShown) -> String {
    let kind = item.failure.as_deref().unwrap_or("failed");
    match item.errors.last().map(|error| error.message.as_str()).filter(|message| !message.is_empty()) {
        Some(message) => format!("item {} failed ({kind}): {message}", item.id),
        None => format!("item {} failed ({kind})", item.id),
    }
}
