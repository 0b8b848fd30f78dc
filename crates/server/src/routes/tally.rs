//! Tallies: how many items of a queue finished per hour or day.

use super::queues::find;
use crate::app::App;
use crate::request::{Query, QueuePath};
use crate::response::{ProblemResponse, Responder};
use axum::extract::State;
use axum::response::Response;
use std::collections::BTreeMap;
use towline_api::{TallyRowShown, TallyShown};
use towline_domain::{Refusal, Tally, Timestamp, limits};
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
        ("tag" = Option<String>, Query, description = "Count separately for each value of this tag. The policy of the queue must name it in `tally_tags`"),
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
    let (from, until, by, tag) =
        (query.time("from")?, query.time("to")?, query.one("by")?, query.one("tag")?);
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
    if let Some(tag) = tag.as_ref().filter(|tag| tag.is_empty() || tag.len() > limits::TAG_KEY_BYTES_MAX) {
        let message = format!("the name has {} bytes; use 1 to {}", tag.len(), limits::TAG_KEY_BYTES_MAX);
        return Err(invalid("tag", message));
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
    let rows = if by_day { days(rows) } else { rows.into_iter().map(hour).collect() };
    let count = rows.len();
    respond.with_many(&TallyShown { by, tag, rows }, count)
}

fn invalid(what: &'static str, message: String) -> ProblemResponse {
    Refusal::Invalid { what, message }.into()
}

fn hour(row: TallyRow) -> TallyRowShown {
    TallyRowShown::new(row.hour.begin(), row.value, &row.tally)
}

fn days(rows: Vec<TallyRow>) -> Vec<TallyRowShown> {
    let mut days: BTreeMap<(u64, bool, Option<String>), Tally> = BTreeMap::new();
    for TallyRow { hour, value, tally } in rows {
        // The row of items without the tag comes last.
        let sum = days.entry((hour.begin().0 / DAY_MS, value.is_none(), value)).or_default();
        *sum = sum.plus(&tally);
    }
    let row = |((day, _, value), tally): (_, Tally)| {
        let day: u64 = day;
        TallyRowShown::new(Timestamp(day * DAY_MS), value, &tally)
    };
    days.into_iter().map(row).collect()
}
