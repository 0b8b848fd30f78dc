//! `towline queue submit`: submits one item from flags, or many from a file.

use super::{ItemArgs, bulk_submit};
use crate::connect::Session;
use crate::exit::Failure;
use crate::output;
use crate::source::Source;
use crate::value::{duration, item_id, time};
use clap::Args;
use std::time::Duration;
use towline_api::{ItemId, Millis, NewItem, Span, Time, Trace, TraceParent, TraceState};

/// Submit an item and print its id.
///
/// With --bulk or --from-file: submit one item per line of NDJSON, in the format of the HTTP API, and print
/// the ids in order. Refused lines are reported on stderr; the rest is submitted, and the exit code is 1.
#[derive(Debug, Args)]
pub struct SubmitArgs {
    /// The queue's name.
    queue: String,
    /// Make the submit repeatable: a second submit with the same key prints the first item's id.
    #[arg(long, value_name = "KEY")]
    idempotency_key: Option<String>,
    /// How long the key belongs to this item: while_exists or while_unfinished [default: as the queue's policy says].
    #[arg(long, value_name = "RULE", requires = "idempotency_key")]
    unique: Option<String>,
    /// Replace the pending item with the same key, if there is one (debounce). The item keeps its id.
    #[arg(long, value_name = "KEY", conflicts_with_all = ["idempotency_key", "id"])]
    replace_key: Option<String>,
    /// However often the item is replaced, deliver it at the latest this long after the first submit with its
    /// --replace-key.
    #[arg(long, value_name = "DURATION", value_parser = duration, requires = "replace_key")]
    delay_max: Option<Millis>,
    /// Deliver the item no earlier than this time, for example 2030-01-31T08:00:00Z.
    #[arg(long, value_name = "TIME", value_parser = time, conflicts_with = "delay", visible_alias = "at")]
    ready_at: Option<Time>,
    /// The item's id, a UUID [default: the server generates one].
    #[arg(long, value_name = "UUID", value_parser = item_id)]
    id: Option<ItemId>,
    /// The item's trace, a W3C traceparent [env: TRACEPARENT]
    #[arg(long, value_name = "00-TRACE-SPAN-FLAGS")]
    traceparent: Option<TraceParent>,
    /// The tracestate of that trace [env: TRACESTATE]
    #[arg(long, value_name = "KEY=VALUE,...", requires = "traceparent")]
    tracestate: Option<TraceState>,
    /// Wait this long for room while the queue is full. At most 5m per call [default: no wait].
    #[arg(long, value_name = "DURATION", value_parser = duration)]
    wait: Option<Millis>,
    #[command(flatten)]
    item: ItemArgs,
    /// Read items from standard input, one JSON object per line.
    #[arg(long, conflicts_with = "from_file", help_heading = "Bulk")]
    bulk: bool,
    /// Read items from this file (`-`: standard input), one JSON object per line.
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
            let words = "--bulk takes everything about an item from its line; flags about an item cannot be combined with it";
            return Err(Failure::Usage(words.to_owned()));
        }
        return bulk_submit::run(session, &queue, lines, wait).await;
    }
    let Some(submitted) = session.client.submit_or_wait(&queue, vec![item], wait).await?.pop() else {
        return Err(Failure::refused("the answer of the server has no result for the item"));
    };
    output::say_all(&submitted.notes);
    match (&submitted.error, &submitted.id) {
        (None, Some(id)) => session.output.name_or_json(id, &submitted),
        (Some(error), _) => Err(Failure::refused(&error.message)),
        (None, None) => Err(Failure::refused("the answer of the server has no id")),
    }
}

impl SubmitArgs {
    fn item(self) -> Result<NewItem, Failure> {
        let state = self.tracestate;
        Ok(NewItem {
            trace: self.traceparent.map(|parent| Trace { parent, state }.into()),
            id: self.id.map(Into::into),
            idempotency_key: self.idempotency_key,
            unique: self.unique,
            replace_key: self.replace_key,
            delay_max: self.delay_max.map(Span::from),
            ready_at: self.ready_at,
            ..self.item.item()?
        })
    }
}
