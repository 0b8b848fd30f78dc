//! `towline events`: prints events.

use crate::connect::Session;
use crate::exit::Failure;
use crate::output::{self, Format};
use crate::reconnect::Reconnect;
use crate::stdout_reader::StdoutReader;
use clap::Args;
use std::io::IsTerminal;
use std::time::Duration;
use towline_api::EventShown;
use towline_api::client::{EventQuery, cursor_has_reached};

/// How many events one call reads.
const PAGE: usize = 1000;
/// The pause after a page that did not advance the cursor.
const PAUSE: Duration = Duration::from_millis(100);
/// The stream itself detects a silent server, so this limit only bounds the rest.
const AT_ONCE: Duration = Duration::from_secs(60);

/// Print events as they happen: one JSON object per line, or a readable line on a terminal.
///
/// Waits for a server that restarts, and misses no event. Events are hints: show an item to learn its current
/// state.
#[derive(Debug, Args)]
pub struct EventsArgs {
    /// Only events of this queue, including dead letters that failed in it. Repeatable.
    #[arg(long, value_name = "QUEUE")]
    queue: Vec<String>,
    /// Only this kind, for example item.completed, or item.* for all kinds of items. Repeatable.
    #[arg(long, value_name = "KIND")]
    kind: Vec<String>,
    /// Only events of this item. Repeatable.
    #[arg(long, value_name = "ID")]
    item: Vec<String>,
    /// Only events of members of this group. Repeatable.
    #[arg(long, value_name = "GROUP")]
    group: Vec<String>,
    /// Start after the event with this id, or with `oldest` [default: only new events; with --once: oldest].
    #[arg(long, value_name = "ID", visible_alias = "after")]
    cursor: Option<String>,
    /// Stop after this many events.
    #[arg(long, value_name = "N")]
    limit: Option<u64>,
    /// Print the stored events, then stop.
    #[arg(long)]
    once: bool,
}

pub async fn run(session: &Session, args: EventsArgs) -> Result<(), Failure> {
    let cursor = args.cursor.or_else(|| args.once.then(|| "oldest".to_owned()));
    let query =
        EventQuery { cursor, queues: args.queue, kinds: args.kind, items: args.item, groups: args.group };
    let mut printer = Printer {
        for_people: match session.output.requested() {
            Some(Format::Table) => true,
            Some(Format::Json | Format::Ndjson) => false,
            None => std::io::stdout().is_terminal(),
        },
        left: args.limit.unwrap_or(u64::MAX),
    };
    if args.once {
        return print_kept(session, query, printer).await;
    }
    follow(session, query, async |event| printer.print(event)).await
}

async fn print_kept(session: &Session, mut query: EventQuery, mut printer: Printer) -> Result<(), Failure> {
    // Stop at the current end. On a busy server there would be no other end.
    let now = EventQuery { cursor: Some("now".to_owned()), ..EventQuery::default() };
    let now = session.client.events(&now, Some(1)).await?.next;
    while printer.left > 0 {
        let page = session.client.events(&query, Some(PAGE)).await?;
        let end = page.events.is_empty() && !page.more || cursor_has_reached(&page.next, &now);
        for event in &page.events {
            if !printer.print(event)? {
                return Ok(());
            }
        }
        if end {
            return Ok(());
        }
        if query.cursor.replace(page.next.clone()).as_ref() == Some(&page.next) {
            // A transaction in progress may still add events before the next ones.
            tokio::time::sleep(PAUSE).await;
        }
    }
    Ok(())
}

/// Passes on events as they happen, until `each` returns `false`.
pub async fn follow(
    session: &Session,
    query: EventQuery,
    mut each: impl AsyncFnMut(&EventShown) -> Result<bool, Failure>,
) -> Result<(), Failure> {
    let reader = StdoutReader::new();
    let mut events = session.client.follow_events(query);
    let mut reconnect = Reconnect::new(None);
    loop {
        let next = tokio::select! {
            next = events.next() => next,
            () = reader.closed() => return Err(Failure::ReaderGone),
        };
        // Report a server that was never there at once.
        let next = if events.has_begun() { next } else { Ok(next?) };
        let event = reconnect.attempt(session.client.url(), AT_ONCE, async { next }).await?;
        if let Some(event) = event
            && !each(&event).await?
        {
            return Ok(());
        }
    }
}

struct Printer {
    for_people: bool,
    left: u64,
}

impl Printer {
    /// Returns whether to continue.
    fn print(&mut self, event: &EventShown) -> Result<bool, Failure> {
        match self.for_people {
            true => output::text(&line(event))?,
            false => output::json_line(event)?,
        }
        self.left -= 1;
        Ok(self.left > 0)
    }
}

fn line(event: &EventShown) -> String {
    let mut parts = vec![event.at.to_string(), format!("{:<16}", event.kind)];
    parts.extend(event.queue.clone());
    parts.extend(event.item.map(|item| item.to_string()));
    parts.extend(event.attempt.filter(|attempt| *attempt > 1).map(|attempt| format!("attempt {attempt}")));
    parts.extend(event.origin.as_ref().map(|origin| format!("from {origin}")));
    parts.extend(event.deadline.as_ref().map(|deadline| format!("until {deadline}")));
    let why = [&event.failure, &event.reason].into_iter().flatten().cloned().collect::<Vec<_>>().join(": ");
    parts.extend(Some(why).filter(|why| !why.is_empty()).map(|why| format!("({why})")));
    // A reason is any text that a caller wrote.
    let line = output::printable(&parts.join("  ")).replace(['\n', '\t'], " ");
    format!("{line}\n")
}
