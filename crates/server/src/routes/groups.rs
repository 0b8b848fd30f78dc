//! Groups: showing their counts, waiting for their end, and cancelling their items.
//!
//! Members of a group may be in any queue, so these routes require a right on the group or on all queues. A client with a right on some
//! queues can list the items of a group there.

use super::bulk::{check_no_lease, count_matching, run_action};
use super::filter::cursor;
use crate::app::App;
use crate::auth::Caller;
use crate::request::{DecodedBody, GroupPath, NoQuery, Query, invalid};
use crate::response::{ProblemResponse, Responder};
use axum::extract::State;
use axum::response::Response;
use std::time::Duration;
use towline_api::{BulkResult, CancelRequest, CountShown, GroupShown, Span};
use towline_domain::{HeadFilter, StateName, limits};
use towline_store::{BulkAction, Filter};

/// Show the counts of a group.
///
/// Groups need no set-up. A group without items has no members and is not done.
#[utoipa::path(get, path = "/v1/groups/{group}", operation_id = "show_group", tag = "groups", security(("token" = ["group:{group}:read"])),
    params(("group" = String, Path)),
    responses(
        (status = 200, description = "How many members are terminal, by result.", body = GroupShown),
    ))]
pub(super) async fn show(
    State(app): State<App>,
    _: NoQuery,
    respond: Responder,
    GroupPath(group): GroupPath,
) -> Result<Response, ProblemResponse> {
    let counts = app.broker.group(&group).await?;
    let done = counts.is_done(0);
    respond.with(&GroupShown::new(group, &counts, done))
}

/// Wait until all members of a group are terminal, or until the timeout, and show its counts.
#[utoipa::path(get, path = "/v1/groups/{group}/wait", operation_id = "wait_for_group", tag = "groups", security(("token" = ["group:{group}:read"])),
    params(
        ("group" = String, Path),
        ("timeout" = Option<Span>, Query, description = "How long to wait, up to 5m. Default: 30s"),
        ("expect" = Option<u64>, Query, description = "How many members the group will have. The group is not done before it has this many"),
    ),
    responses(
        (status = 200, description = "The group. `done` says whether all members are terminal.", body = GroupShown),
    ))]
pub(super) async fn wait(
    State(app): State<App>,
    respond: Responder,
    GroupPath(group): GroupPath,
    mut query: Query,
) -> Result<Response, ProblemResponse> {
    let timeout = query.wait("timeout", Duration::from_secs(30))?;
    let expect: u64 = query.parse("expect")?.unwrap_or(0);
    query.end()?;
    if expect > limits::GROUP_EXPECT_MAX {
        return Err(invalid(
            "expect",
            format!("{expect} is out of range; use at most {}", limits::GROUP_EXPECT_MAX),
        ));
    }
    let (counts, done) = app.broker.wait_group(&group, expect, timeout).await?;
    respond.with(&GroupShown::new(group, &counts, done))
}

/// Cancel the unfinished members of a group, in all queues.
///
/// A call runs for a few seconds at most. Repeat it with `next` as the cursor until `next` is `null`.
#[utoipa::path(post, path = "/v1/groups/{group}/cancel", operation_id = "cancel_group", tag = "groups", security(("token" = ["group:{group}:admin"])),
    params(
        ("group" = String, Path),
        ("cursor" = Option<String>, Query, description = "`next` of the previous response"),
        ("dry_run" = Option<bool>, Query, description = "Count the items without cancelling them"),
    ),
    request_body = CancelRequest,
    responses(
        (status = 200, description = "How many items were cancelled.", body = BulkResult),
    ))]
pub(super) async fn cancel(
    State(app): State<App>,
    respond: Responder,
    caller: Caller,
    GroupPath(group): GroupPath,
    mut query: Query,
    DecodedBody(body, ..): DecodedBody<CancelRequest>,
) -> Result<Response, ProblemResponse> {
    check_no_lease(&body)?;
    let action = BulkAction::Cancel { reason: body.reason.unwrap_or_default() };
    let after = cursor(&mut query)?;
    let dry_run = query.flag("dry_run")?;
    query.end()?;
    let head = HeadFilter { state: Some(StateName::Unfinished), ..HeadFilter::default() };
    let filter = Filter { group: Some(group), head, ..Filter::default() };
    if dry_run {
        let CountShown { count: matched, next } = count_matching(&app, &filter, after).await?;
        return respond.with(&BulkResult { matched, next, ..BulkResult::default() });
    }
    respond.with(&run_action(&app, &caller, &action, &filter, after).await?)
}
