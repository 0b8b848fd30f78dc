//! What finished in a queue, period by period.

use super::queues::find;
use crate::answer::Reply;
use crate::app::App;
use crate::path::QueuePath;
use crate::query::Query;
use crate::refuse::Refused;
use axum::extract::State;
use axum::response::Response;
use std::collections::BTreeMap;
use towline_api::{Problem, TallyRowShown, TallyShown};
use towline_domain::{Refusal, Tally, Timestamp, limits};
use towline_store::{TallyRange, TallyRow};

const DAY_MS: u64 = 86_400_000;

/// How many items finished in each hour of the last 30 days, and how: known when the items are gone. An item counts in the
/// queue it finished in, also if it became a dead letter by that, and once more when it is redriven and finishes again.
#[utoipa::path(get, path = "/v1/queues/{queue}/tally", operation_id = "tally_items", tag = "queues", security(("token" = ["queue:{queue}:read"])),
    params(
        ("queue" = String, Path),
        ("from" = Option<String>, Query, description = "From the period that this time is in: all that are kept"),
        ("to" = Option<String>, Query, description = "Up to this time, exclusively: now"),
        ("by" = Option<String>, Query, description = "`hour`, or `day` (of UTC): hour"),
        ("tag" = Option<String>, Query, description = "Apart for the values of a tag that the policy names in `tally_tags`"),
    ),
    responses(
        (status = 200, description = "What finished.", body = TallyShown),
        (status = 400, description = "Refused.", body = Problem, content_type = "application/problem+json"),
        (status = 404, description = "There is no such queue.", body = Problem, content_type = "application/problem+json"),
    ))]
pub(super) async fn tally(
    State(app): State<App>,
    reply: Reply,
    QueuePath(queue): QueuePath,
    mut query: Query,
) -> Result<Response, Refused> {
    let (from, until, by, tag) =
        (query.time("from")?, query.time("to")?, query.one("by")?, query.one("tag")?);
    query.end()?;
    let by_day = match by.as_deref() {
        None | Some("hour") => false,
        Some("day") => true,
        Some(other) => return Err(invalid("by", format!("{other:?} is neither hour nor day"))),
    };
    let (from, until) = (from.unwrap_or_default(), until.unwrap_or(Timestamp::MAX));
    if from >= until {
        return Err(invalid("from", format!("{from} is not before {until}, which is `to`")));
    }
    if let Some(tag) = tag.as_ref().filter(|tag| tag.is_empty() || tag.len() > limits::TAG_KEY_BYTES_MAX) {
        let message = format!("a name of {} bytes; use 1 to {}", tag.len(), limits::TAG_KEY_BYTES_MAX);
        return Err(invalid("tag", message));
    }
    let from = if by_day { Timestamp(from.0 / DAY_MS * DAY_MS) } else { from };
    let asked = TallyRange { from, until, tag: tag.clone() };
    let rows = app.broker.store().tally(queue.clone(), asked).await?;
    let rows = rows.ok_or_else(|| Refusal::QueueNotFound { name: queue.to_string() })?;
    if let Some(tag) = tag.as_ref().filter(|_| rows.is_empty()) {
        let policy = find(&app, queue.clone()).await?.queue.policy;
        if !policy.tally_tags.contains(tag) {
            let message =
                format!("{queue} does not count by {tag:?}; name it in `tally_tags` of the queue's policy");
            return Err(invalid("tag", message));
        }
    }
    let by = if by_day { "day" } else { "hour" }.to_owned();
    let rows = if by_day { days(rows) } else { rows.into_iter().map(hour).collect() };
    let count = rows.len();
    reply.with_long(&TallyShown { by, tag, rows }, count)
}

fn invalid(what: &'static str, message: String) -> Refused {
    Refusal::Invalid { what, message }.into()
}

fn hour(row: TallyRow) -> TallyRowShown {
    TallyRowShown::new(row.hour.begin(), row.value, &row.tally)
}

fn days(rows: Vec<TallyRow>) -> Vec<TallyRowShown> {
    let mut days: BTreeMap<(u64, bool, Option<String>), Tally> = BTreeMap::new();
    for TallyRow { hour, value, tally } in rows {
        // What is not told apart comes last.
        let sum = days.entry((hour.begin().0 / DAY_MS, value.is_none(), value)).or_default();
        *sum = sum.plus(&tally);
    }
    let shown = |((day, _, value), tally): (_, Tally)| {
        let day: u64 = day;
        TallyRowShown::new(Timestamp(day * DAY_MS), value, &tally)
    };
    days.into_iter().map(shown).collect()
}
