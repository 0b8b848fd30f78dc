//! Bulk actions: repeats the call until all matching items are done, with a progress bar on a terminal.

use super::filter::FilterArgs;
use crate::connect::Session;
use crate::exit::Failure;
use crate::output::{self, Format};
use crate::value::item_id;
use clap::Args;
use indicatif::{ProgressBar, ProgressStyle};
use std::io::{self, IsTerminal};
use towline_api::client::ItemQuery;
use towline_api::{BulkResult, ClientError, ItemFilter, ItemId};

/// Items by id, or all matching items of a queue.
#[derive(Debug, Args)]
pub struct ItemsArgs {
    /// The items' ids.
    #[arg(value_name = "ITEM", required_unless_present = "queue", value_parser = item_id)]
    pub ids: Vec<ItemId>,
    /// All matching items of this queue, instead of ids.
    #[arg(long, value_name = "QUEUE", conflicts_with = "ids")]
    pub queue: Option<String>,
    #[command(flatten)]
    pub all: MatchArgs,
}

/// A filter, and whether to run dry.
#[derive(Debug, Args)]
pub struct MatchArgs {
    #[command(flatten)]
    pub filter: FilterArgs,
    /// Print how many items match, and change none.
    #[arg(long)]
    pub dry_run: bool,
}

#[derive(Debug, Args)]
pub struct SetPriorityArgs {
    /// The queue's name.
    queue: String,
    /// The new priority. Lower numbers are delivered first.
    #[arg(long, value_name = "N", allow_negative_numbers = true)]
    to: i16,
    #[command(flatten)]
    all: MatchArgs,
}

#[derive(Debug, Args)]
pub struct MoveArgs {
    /// The queue's name.
    queue: String,
    /// The queue to move the items to.
    #[arg(long, value_name = "QUEUE")]
    to: String,
    #[command(flatten)]
    all: MatchArgs,
}

impl ItemsArgs {
    /// The queue, if the flags name one instead of ids.
    pub fn queue(&self) -> Result<Option<&str>, Failure> {
        let filtered = self.all.dry_run || self.all.filter.clone().get() != ItemFilter::default();
        if self.queue.is_none() && filtered {
            let words = "name the queue with --queue, or give only ids".to_owned();
            return Err(Failure::Usage(words));
        }
        Ok(self.queue.as_deref())
    }
}

impl MatchArgs {
    pub fn query(self) -> ItemQuery {
        ItemQuery { filter: self.filter.get(), dry_run: self.dry_run, ..ItemQuery::default() }
    }
}

pub async fn set_priority(session: &Session, args: SetPriorityArgs) -> Result<(), Failure> {
    let query = ItemQuery { to: Some(args.to.to_string()), ..args.all.query() };
    run_bulk_action(session, &args.queue, "set-priority", query).await
}

pub async fn move_to(session: &Session, args: MoveArgs) -> Result<(), Failure> {
    let query = ItemQuery { to: Some(args.to), ..args.all.query() };
    run_bulk_action(session, &args.queue, "move", query).await
}

/// Refuses an empty filter, so that a forgotten flag does not change every item.
fn check_filter(query: &ItemQuery) -> Result<(), Failure> {
    match query.filter == ItemFilter::default() {
        false => Ok(()),
        true => Err(Failure::Usage(
            "name the items, for example --state failed; --state all means every item that allows it"
                .to_owned(),
        )),
    }
}

/// Runs a bulk action to its end and prints how many items it changed. In a dry run, prints how many match.
pub async fn run_bulk_action(
    session: &Session,
    queue: &str,
    action: &str,
    query: ItemQuery,
) -> Result<(), Failure> {
    check_filter(&query)?;
    let call = async |query: &ItemQuery| session.client.act_on_all(queue, action, query).await;
    repeat_until_done(session, query, call).await
}

/// Repeats a bulk call until it is complete, and prints the sum.
pub async fn repeat_until_done(
    session: &Session,
    mut query: ItemQuery,
    call: impl AsyncFn(&ItemQuery) -> Result<BulkResult, ClientError>,
) -> Result<(), Failure> {
    let mut sum = BulkResult::default();
    let bar = bar();
    loop {
        let acted = call(&query).await?;
        sum.matched += acted.matched;
        sum.done += acted.done;
        for (code, count) in acted.left {
            *sum.left.entry(code).or_default() += count;
        }
        bar.set_message(format!("{} of {} items", sum.done, sum.matched));
        bar.tick();
        query.cursor = acted.next;
        if query.cursor.is_none() {
            break;
        }
    }
    bar.finish_and_clear();
    for (code, count) in &sum.left {
        output::say(format_args!("{count} items unchanged: {code}"));
    }
    match session.output.requested() {
        Some(Format::Json | Format::Ndjson) => session.output.object(&sum),
        Some(Format::Table) | None => {
            let number = if query.dry_run { sum.matched } else { sum.done };
            output::text(&format!("{number}\n"))
        }
    }
}

/// A spinner with the progress, only on a terminal.
fn bar() -> ProgressBar {
    if !io::stderr().is_terminal() {
        return ProgressBar::hidden();
    }
    let style = ProgressStyle::with_template("{spinner} {msg}");
    ProgressBar::new_spinner().with_style(style.unwrap_or_else(|_| ProgressStyle::default_spinner()))
}
