//! `towline queue submit`: one item from flags.

use super::{ItemArgs, bulk_submit};
use crate::connect::Session;
use crate::exit::Failure;
use crate::source::Source;
use crate::value::{duration, item_id, time};
use clap::Args;
use std::time::Duration;
use towline_api::{ItemId, Millis, NewItem, Span, Time, Trace, TraceParent, TraceState};

/// Submit an item, and print its id alone.
///
/// With --bulk or --from-file: submit one item for each line of NDJSON, in the shape of the HTTP API, and print the ids
/// in the order of the lines. A line that is refused is told on stderr; the others go on, and the exit code is 1.
#[derive(Debug, Args)]
pub struct SubmitArgs {
    /// The queue's name.
    queue: String,
    /// One key, one item: a repetition prints the id of the first.
    #[arg(long, value_name = "KEY")]
    idempotency_key: Option<String>,
    /// Take the place of the item with this key that still waits, if there is one: it keeps its id, which is printed.
    #[arg(long, value_name = "KEY", conflicts_with_all = ["idempotency_key", "id"])]
    replace_key: Option<String>,
    /// However often it is replaced, not later than this after the first submit with its --replace-key.
    #[arg(long, value_name = "DURATION", value_parser = duration, requires = "replace_key")]
    delay_max: Option<Millis>,
    /// Not before this time, like 2030-01-31T08:00:00Z.
    #[arg(long, value_name = "TIME", value_parser = time, conflicts_with = "delay")]
    at: Option<Time>,
    /// An id of your own, a UUID; ids are used once.
    #[arg(long, value_name = "UUID", value_parser = item_id)]
    id: Option<ItemId>,
    /// The trace it is a part of, as in the header of W3C Trace Context [env: TRACEPARENT]
    #[arg(long, value_name = "00-TRACE-SPAN-FLAGS")]
    traceparent: Option<TraceParent>,
    /// What goes with that trace [env: TRACESTATE]
    #[arg(long, value_name = "KEY=VALUE,...", requires = "traceparent")]
    tracestate: Option<TraceState>,
    /// While the queue is full, wait this long for room; at most 5m for each call.
    #[arg(long, value_name = "DURATION", value_parser = duration)]
    wait: Option<Millis>,
    #[command(flatten)]
    item: ItemArgs,
    /// Read items from standard input, one JSON object a line.
    #[arg(long, conflicts_with = "from_file", help_heading = "Bulk")]
    bulk: bool,
    /// Read items from this file (`-`: standard input), one JSON object a line.
    #[arg(long, value_name = "PATH", help_heading = "Bulk")]
    from_file: Option<String>,
}

pub async fn run(session: &Session, args: SubmitArgs) -> Result<(), Failure> {
    let lines = match (&args.from_file, args.bulk) {
        (Some(path), _) => Some(Source::path(path)),
        (None, true) => Some(Source::Stdin),
        (None, false) => None,
    };
    let queue = args.queue.clone();
    let wait = Duration::from_millis(args.wait.unwrap_or(Millis::ZERO).0);
    let item = args.item()?;
    if let Some(lines) = lines {
        if item != NewItem::default() {
            let words =
                "with --bulk each line says everything about its item; flags about an item don't go with it";
            return Err(Failure::Usage(words.to_owned()));
        }
        return bulk_submit::run(session, &queue, lines, wait).await;
    }
    let Some(submitted) = session.client.submit_or_wait(&queue, vec![item], wait).await?.pop() else {
        return Err(Failure::refused("the server answered nothing about the item"));
    };
    match (&submitted.error, &submitted.id) {
        (None, Some(id)) => session.output.name_or_json(id, &submitted),
        (Some(error), _) => Err(Failure::refused(&error.message)),
        (None, None) => Err(Failure::refused("the server answered without an id")),
    }
}

impl SubmitArgs {
    fn item(self) -> Result<NewItem, Failure> {
        let state = self.tracestate;
        Ok(NewItem {
            trace: self.traceparent.map(|parent| Trace { parent, state }.into()),
            id: self.id.map(Into::into),
            idempotency_key: self.idempotency_key,
            replace_key: self.replace_key,
            delay_max: self.delay_max.map(Span::from),
            ready_at: self.at,
            ..self.item.item()?
        })
    }
}
