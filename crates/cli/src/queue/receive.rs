//! `towline queue receive`.

use super::watch::{self, WatchArgs};
use crate::clock;
use crate::connect::Session;
use crate::exit::Failure;
use crate::reconnect::Reconnect;
use crate::value::{PayloadArgs, duration};
use clap::Args;
use std::time::Duration;
use towline_api::{Client, Millis, ReceiveAnswer, ReceiveRequest, Span, WAIT_MAX};

/// How much longer than the requested wait an answer may take.
const GRACE: Duration = Duration::from_secs(30);

/// Receive items to work on.
///
/// Prints {"status": ..., "items": [...]}: the queue's state (open, closed or completed), and the items with
/// their leases. Without a ready item the list is empty, and "throttled" says what holds items back: paused, concurrency, rate or
/// keys. With --follow, prints one item per line until the queue is completed.
#[derive(Debug, Args)]
pub struct ReceiveArgs {
    /// The queue's name.
    queue: String,
    #[command(flatten)]
    options: ReceiveOptions,
    /// Maximum number of items.
    #[arg(long, value_name = "N", default_value_t = 1)]
    max: i64,
    /// Wait up to this long for an item, for example 30s [default: no wait].
    #[arg(long, value_name = "DURATION", value_parser = duration)]
    wait: Option<Millis>,
    /// Receive until the queue is completed, and print one item per line. Each printed item is leased.
    #[arg(long, conflicts_with = "wait")]
    follow: bool,
    /// With --follow: stop after this many items.
    #[arg(long, value_name = "N", requires = "follow")]
    count: Option<u64>,
}

/// Options of `receive` and `watch`.
#[derive(Debug, Args)]
pub struct ReceiveOptions {
    /// How long the leases last without a heartbeat [default: the queue's visibility timeout].
    #[arg(long, value_name = "DURATION", value_parser = duration)]
    visibility_timeout: Option<Millis>,
    /// Create a buffer for every output slot.
    #[arg(long)]
    create_output_buffers: bool,
    /// Payload fields to return: payload, state_blob, metadata, parameters [default: all].
    #[arg(long, value_name = "FIELD,...", value_delimiter = ',')]
    fields: Option<Vec<String>>,
    #[command(flatten)]
    payload: PayloadArgs,
}

impl ReceiveOptions {
    pub fn request(self) -> ReceiveRequest {
        ReceiveRequest {
            visibility_timeout: self.visibility_timeout.map(Span::from),
            create_output_buffers: self.create_output_buffers.then_some(true),
            payload_as: Some(self.payload.form().name().to_owned()),
            fields: self.fields.map(|fields| fields.into_iter().filter(|field| !field.is_empty()).collect()),
            ..ReceiveRequest::default()
        }
    }
}

pub async fn run(session: &Session, args: ReceiveArgs) -> Result<(), Failure> {
    let ReceiveArgs { queue, options, max, count, follow, .. } = args;
    if follow {
        return watch::run(session, WatchArgs { queue, options, max, count }).await;
    }
    let request = ReceiveRequest { max: Some(max), ..options.request() };
    let Some(wait) = args.wait.filter(|wait| *wait > Millis::ZERO) else {
        return session.output.answer(&session.client.receive(&queue, &request).await?);
    };
    let until = clock::now() + Duration::from_millis(wait.0);
    let mut reconnect = Reconnect::new(Some(until));
    loop {
        let rest = until.saturating_duration_since(clock::now());
        let Some(answer) = receive(&session.client, &queue, &request, rest, &mut reconnect).await? else {
            continue;
        };
        let over = clock::now() >= until;
        if over || !answer.items.is_empty() || answer.is_completed() {
            return session.output.answer(&answer);
        }
    }
}

/// Makes one waiting call, as long as a call may wait. `None`: no server answered; call again.
pub async fn receive(
    client: &Client,
    queue: &str,
    request: &ReceiveRequest,
    wait: Duration,
    reconnect: &mut Reconnect,
) -> Result<Option<ReceiveAnswer>, Failure> {
    let wait = wait.min(Duration::from_millis(WAIT_MAX.0));
    let request = ReceiveRequest { wait: Some(Span::from(wait)), ..request.clone() };
    reconnect.attempt(client.url(), wait + GRACE, client.receive(queue, &request)).await
}
