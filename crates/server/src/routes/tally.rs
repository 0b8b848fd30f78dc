//! Tallies: how many items of a queue finished per hour or day.

use super::queues::find;
use crate::app::App;
use crate::request::{Query, QueuePath};
use crate::response::{ProblemResponse, Responder};
use axum::extract::State;
use axum::response::Response;
use std::collections::BTreeMap;
use towline_api::{TallyRowShown, TallyShown};
use towline_domain::{Refusal, Tally, Timestamp, limits, tally_entry, tally_names};
use towline_store::{TallyRange, TallyRow};

const DAY_MS: u64 = 86_400_000;

/// Count the items that finished, per hour or day, for the last 30 days.
///
/// Items that are deleted meanwhile stay counted. An item counts in the queue in which it finished, even if it was then moved to a
/// dead-letter queue. It counts again if it is redriven and finishes again.
#[utoipa::path(get, path = "/v1/queues/{queue}/tally", operation_id = "tally_items", tag = "queues", security(("token" = ["queue:{queue}:read"])),
    params(
        ("queue" = String, Path),
        ("from" = Option<String>, Query, description = "Start, rounded down to the period. Default: 30 days ago"),
        ("to" = Option<String>, Query, description = "End, exclusive. Default: now"),
        ("by" = Option<String>, Query, description = "`hour`, or `day` in UTC. Default: `hour`"),
        ("tag" = Option<Vec<String>>, Query, description = "Count separately for each value of this tag, or for each pair of values if it is given twice. The policy of the queue must name it in `tally_tags`"),
    ),
    responses(
        (status = 200, description = "The counts.", body = TallyShown),
    ))]
pub(super) async fn tally(
    State(app): State<App>,
    respond: Responder,
    QueuePath(queue): QueuePath,
    mut query: Query,
) -> Result<Response, ProblemResponse> {
    let (from, until, by, tags) =
        (query.time("from")?, query.time("to")?, query.one("by")?, query.all("tag"));
    query.end()?;
    let by_day = match by.as_deref() {
        None | Some("hour") => false,
        Some("day") => true,
        Some(other) => return Err(invalid("by", format!("{other:?}; use hour or day"))),
    };
    let (from, until) = (from.unwrap_or_default(), until.unwrap_or(Timestamp::MAX));
    if from >= until {
        return Err(invalid("from", format!("{from} is not before `to`, which is {until}")));
    }
    let tag = (!tags.is_empty()).then(|| tally_entry(&tags));
    if let Some(tag) = &tag {
        check_tag(tag)?;
    }
    let from = if by_day { Timestamp(from.0 / DAY_MS * DAY_MS) } else { from };
    let range = TallyRange { from, until, tag: tag.clone() };
    let rows = app.broker.store().tally(queue.clone(), range).await?;
    let rows = rows.ok_or_else(|| Refusal::QueueNotFound { name: queue.to_string() })?;
    if let Some(tag) = tag.as_ref().filter(|_| rows.is_empty()) {
        let policy = find(&app, queue.clone()).await?.queue.policy;
        if !policy.tally_tags.contains(tag) {
            let message =
                format!("queue {queue} does not count by {tag:?}; add it to `tally_tags` in its policy");
            return Err(invalid("tag", message));
        }
    }
    let by = if by_day { "day" } else { "hour" }.to_owned();
    let shown = |(from, value, tally): Row| TallyRowShown::new(from, tag.as_deref(), value, &tally);
    let rows: Vec<TallyRowShown> = if by_day { days(rows) } else { rows.into_iter().map(hour).collect() }
        .into_iter()
        .map(shown)
        .collect();
    let count = rows.len();
    respond.with_many(&TallyShown { by, tag, rows }, count)
}

fn invalid(what: &'static str, message: String) -> ProblemResponse {
    Refusal::Invalid { what, message }.into()
}

fn check_tag(tag: &str) -> Result<(), ProblemResponse> {
    let names: Vec<&str> = tally_names(tag).collect();
    if let Some(name) = names.iter().find(|name| name.is_empty() || name.len() > limits::TAG_KEY_BYTES_MAX) {
        let message = format!("the name has {} bytes; use 1 to {}", name.len(), limits::TAG_KEY_BYTES_MAX);
        return Err(invalid("tag", message));
    }
    match names.len() {
        1 | 2 => Ok(()),
        more => Err(invalid("tag", format!("{more} tags; use one or two"))),
    }
}

/// The start of a period, the value of the tag, and the counts.
type Row = (Timestamp, Option<String>, Tally);

fn hour(row: TallyRow) -> Row {
    (row.hour.begin(), row.value, row.tally)
}

fn days(rows: Vec<TallyRow>) -> Vec<Row> {
    let mut days: BTreeMap<(u64, bool, Option<String>), Tally> = BTreeMap::new();
    for TallyRow { hour, value, tally } in rows {
        // The row of items without the tag comes last.
        let sum = days.entry((hour.begin().0 / DAY_MS, value.is_none(), value)).or_default();
        *sum = sum.plus(&tally);
    }
    days.into_iter().map(|((day, _, value), tally)| (Timestamp(day * DAY_MS), value, tally)).collect()
}
