//! Groups: how they stand, waiting for their end, and cancelling all of one.
//!
//! Members may be in any queue, so who sees a group sees all queues. Who may see some asks for the items of a group there.

use super::acts::{carry_out, count_all};
use super::filter::cursor;
use super::receive::check_wait;
use crate::answer::Reply;
use crate::app::App;
use crate::path::GroupPath;
use crate::query::{NoQuery, Query, invalid};
use crate::refuse::Refused;
use axum::extract::State;
use axum::response::Response;
use std::time::Duration;
use towline_api::{BulkResult, CountShown, GroupShown, Problem, Span};
use towline_domain::{HeadFilter, StateName, limits};
use towline_store::{BulkAction, Filter};

/// How a group stands. One that nobody has submitted to has no members, and is not done.
#[utoipa::path(get, path = "/v1/groups/{group}", operation_id = "show_group", tag = "groups", security(("token" = ["queue:*:read"])),
    params(("group" = String, Path)),
    responses(
        (status = 200, description = "How many members have ended, and how.", body = GroupShown),
        (status = 400, description = "Refused.", body = Problem, content_type = "application/problem+json"),
    ))]
pub(super) async fn show(
    State(app): State<App>,
    _: NoQuery,
    reply: Reply,
    GroupPath(group): GroupPath,
) -> Result<Response, Refused> {
    let counts = app.broker.group(&group).await?;
    let done = counts.is_done(0);
    reply.with(&GroupShown::new(group, &counts, done))
}

/// Waits until all members have ended, or until the time is over, and shows how the group then stands.
#[utoipa::path(get, path = "/v1/groups/{group}/wait", operation_id = "wait_for_group", tag = "groups", security(("token" = ["queue:*:read"])),
    params(
        ("group" = String, Path),
        ("timeout" = Option<Span>, Query, description = "How long, up to 5m: 30s"),
        ("expect" = Option<u64>, Query, description = "How many members there will be: before so many are there it is not done, whatever has ended"),
    ),
    responses(
        (status = 200, description = "The group; `done` tells whether all have ended.", body = GroupShown),
        (status = 400, description = "Refused.", body = Problem, content_type = "application/problem+json"),
    ))]
pub(super) async fn wait(
    State(app): State<App>,
    reply: Reply,
    GroupPath(group): GroupPath,
    mut query: Query,
) -> Result<Response, Refused> {
    let timeout = query.span("timeout")?;
    let expect: u64 = query.parse("expect")?.unwrap_or(0);
    query.end()?;
    if expect > limits::GROUP_EXPECT_MAX {
        return Err(invalid(
            "expect",
            format!("{expect} is out of range; at most {}", limits::GROUP_EXPECT_MAX),
        ));
    }
    let timeout = timeout.map_or(Ok(Duration::from_secs(30)), |span| check_wait("timeout", span))?;
    let (counts, done) = app.broker.wait_group(&group, expect, timeout).await?;
    reply.with(&GroupShown::new(group, &counts, done))
}

/// Cancels the unfinished members of a group, in whatever queue, a few seconds' worth; go on with `next` until it is `null`.
#[utoipa::path(post, path = "/v1/groups/{group}/cancel", operation_id = "cancel_group", tag = "groups", security(("token" = ["queue:*:admin"])),
    params(
        ("group" = String, Path),
        ("reason" = Option<String>, Query, description = "Kept with each"),
        ("cursor" = Option<String>, Query, description = "`next` of the answer before"),
        ("dry_run" = Option<bool>, Query, description = "Say how many there are, and cancel none"),
    ),
    responses(
        (status = 200, description = "How many were cancelled.", body = BulkResult),
        (status = 400, description = "Refused.", body = Problem, content_type = "application/problem+json"),
    ))]
pub(super) async fn cancel(
    State(app): State<App>,
    reply: Reply,
    GroupPath(group): GroupPath,
    mut query: Query,
) -> Result<Response, Refused> {
    let act = BulkAction::Cancel { reason: query.one("reason")?.unwrap_or_default() };
    let after = cursor(&mut query)?;
    let dry_run = query.flag("dry_run")?;
    query.end()?;
    let head = HeadFilter { state: Some(StateName::Unfinished), ..HeadFilter::default() };
    let filter = Filter { group: Some(group), head, ..Filter::default() };
    if dry_run {
        let CountShown { count: matched, next } = count_all(&app, &filter, after).await?;
        return reply.with(&BulkResult { matched, next, ..BulkResult::default() });
    }
    reply.with(&carry_out(&app, &act, &filter, after).await?)
}
