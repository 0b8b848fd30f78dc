//! Schedules: made, changed, shown, paused, run.

use crate::answer::Reply;
use crate::app::App;
use crate::auth::{Caller, Right};
use crate::body::Wire;
use crate::path::SchedulePath;
use crate::query::{NoQuery, Query};
use crate::refuse::Refused;
use axum::extract::State;
use axum::response::{IntoResponse, Response};
use http::StatusCode;
use towline_api::{
    Code, NextTimes, PAGE_DEFAULT, Problem, PutSchedule, ScheduleAnswer, SchedulePage, ScheduleRun,
    ScheduleShown,
};
use towline_domain::{Refusal, Schedule, ScheduleName, limits};

/// Next times shown unless the caller says otherwise.
const NEXT_DEFAULT: usize = 5;
/// Each has its item with it.
const LIST_MAX: usize = 1000;

async fn find(app: &App, name: &ScheduleName) -> Result<Schedule, Refused> {
    let found = app.broker.schedule(name).await?;
    found.ok_or_else(|| Refusal::ScheduleNotFound { name: name.to_string() }.into())
}

/// Schedules in order of name: those whose queue the caller may read.
#[utoipa::path(get, path = "/v1/schedules", operation_id = "list_schedules", tag = "schedules", security(("token" = ["any"])),
    params(
        ("cursor" = Option<String>, Query, description = "`next` of the page before"),
        ("limit" = Option<usize>, Query, description = "At most so many: 100, up to 1000", minimum = 1, maximum = 1000),
    ),
    responses(
        (status = 200, description = "A page of them.", body = SchedulePage),
        (status = 400, description = "Refused.", body = Problem, content_type = "application/problem+json"),
    ))]
pub(super) async fn list(
    State(app): State<App>,
    reply: Reply,
    caller: Caller,
    mut query: Query,
) -> Result<Response, Refused> {
    let after: Option<ScheduleName> = query.parse("cursor")?;
    let limit = query.parse("limit")?.unwrap_or(PAGE_DEFAULT);
    query.end()?;
    if !(1..=LIST_MAX).contains(&limit) {
        let detail = format!("limit: {limit} is out of range; use 1 to {LIST_MAX}");
        return Err(Refused::new(Code::Invalid, detail));
    }
    let found = app.broker.schedules(after.as_ref(), limit).await?;
    let next = found.last().filter(|_| found.len() >= limit).map(|last| last.name.to_string());
    let schedules: Vec<ScheduleShown> = found
        .into_iter()
        .filter(|schedule| caller.may(&schedule.spec.queue, Right::Read))
        .map(ScheduleShown::from)
        .collect();
    let count = schedules.len();
    reply.with_long(&SchedulePage { schedules, next }, count)
}

/// Makes a schedule, or changes it to this; the answer says which fields are different now. Its rhythm goes on as it was
/// unless its times change.
#[utoipa::path(put, path = "/v1/schedules/{schedule}", operation_id = "put_schedule", tag = "schedules", security(("token" = ["queue:{queue of the schedule}:submit"])), params(("schedule" = String, Path)), request_body = PutSchedule,
    responses(
        (status = 200, description = "The schedule.", body = ScheduleAnswer),
        (status = 400, description = "Refused: the times, the item or a number is wrong.", body = Problem, content_type = "application/problem+json"),
        (status = 507, description = "There are as many as there may be.", body = Problem, content_type = "application/problem+json"),
    ))]
pub(super) async fn put(
    State(app): State<App>,
    _: NoQuery,
    reply: Reply,
    caller: Caller,
    SchedulePath(name): SchedulePath,
    Wire(body): Wire<PutSchedule>,
) -> Result<Response, Refused> {
    let (spec, paused) = body.into_domain()?;
    caller.check_target(Some(&spec.queue))?;
    let put = app.broker.put_schedule(&name, spec, paused).await??;
    reply.with(&ScheduleAnswer {
        created: put.created,
        changed: put.changed.into_iter().map(str::to_owned).collect(),
        schedule: put.schedule.into(),
    })
}

/// A schedule, what it submits, and how far it has come.
#[utoipa::path(get, path = "/v1/schedules/{schedule}", operation_id = "show_schedule", tag = "schedules", security(("token" = ["queue:{queue of the schedule}:read"])), params(("schedule" = String, Path)), responses(
    (status = 200, description = "The schedule.", body = ScheduleShown),
    (status = 404, description = "There is no such schedule.", body = Problem, content_type = "application/problem+json"),
))]
pub(super) async fn show(
    State(app): State<App>,
    _: NoQuery,
    reply: Reply,
    SchedulePath(name): SchedulePath,
) -> Result<Response, Refused> {
    reply.with(&ScheduleShown::from(find(&app, &name).await?))
}

/// Deletes a schedule. The items it submitted stay.
#[utoipa::path(delete, path = "/v1/schedules/{schedule}", operation_id = "delete_schedule", tag = "schedules", security(("token" = ["queue:{queue of the schedule}:submit"])), params(("schedule" = String, Path)), responses(
    (status = 204, description = "It is gone."),
    (status = 404, description = "There is no such schedule.", body = Problem, content_type = "application/problem+json"),
))]
pub(super) async fn delete(
    State(app): State<App>,
    _: NoQuery,
    SchedulePath(name): SchedulePath,
) -> Result<Response, Refused> {
    app.broker.delete_schedule(&name).await??;
    Ok(StatusCode::NO_CONTENT.into_response())
}

/// Submits nothing until resumed.
#[utoipa::path(post, path = "/v1/schedules/{schedule}/pause", operation_id = "pause_schedule", tag = "schedules", security(("token" = ["queue:{queue of the schedule}:submit"])), params(("schedule" = String, Path)), responses(
    (status = 200, description = "The schedule after.", body = ScheduleShown),
    (status = 404, description = "There is no such schedule.", body = Problem, content_type = "application/problem+json"),
))]
pub(super) async fn pause(
    State(app): State<App>,
    _: NoQuery,
    reply: Reply,
    SchedulePath(name): SchedulePath,
) -> Result<Response, Refused> {
    reply.with(&ScheduleShown::from(app.broker.pause_schedule(&name, true).await??))
}

/// Goes on with what comes from now on; what came meanwhile is not caught up with.
#[utoipa::path(post, path = "/v1/schedules/{schedule}/resume", operation_id = "resume_schedule", tag = "schedules", security(("token" = ["queue:{queue of the schedule}:submit"])), params(("schedule" = String, Path)), responses(
    (status = 200, description = "The schedule after.", body = ScheduleShown),
    (status = 404, description = "There is no such schedule.", body = Problem, content_type = "application/problem+json"),
))]
pub(super) async fn resume(
    State(app): State<App>,
    _: NoQuery,
    reply: Reply,
    SchedulePath(name): SchedulePath,
) -> Result<Response, Refused> {
    reply.with(&ScheduleShown::from(app.broker.pause_schedule(&name, false).await??))
}

/// Submits an item now, also of a schedule that is paused or over. Its rhythm stays as it is.
#[utoipa::path(post, path = "/v1/schedules/{schedule}/run", operation_id = "run_schedule", tag = "schedules", security(("token" = ["queue:{queue of the schedule}:submit"])), params(("schedule" = String, Path)), responses(
    (status = 200, description = "The item.", body = ScheduleRun),
    (status = 404, description = "There is no such schedule, or no such queue.", body = Problem, content_type = "application/problem+json"),
    (status = 409, description = "The queue does not take it.", body = Problem, content_type = "application/problem+json"),
))]
pub(super) async fn run(
    State(app): State<App>,
    _: NoQuery,
    reply: Reply,
    SchedulePath(name): SchedulePath,
) -> Result<Response, Refused> {
    let id = app.broker.run_schedule(&name).await??;
    reply.with(&ScheduleRun { id: id.into() })
}

/// The occurrences that come next, as things stand; of a paused schedule, those that would.
#[utoipa::path(get, path = "/v1/schedules/{schedule}/next", operation_id = "next_times", tag = "schedules", security(("token" = ["queue:{queue of the schedule}:read"])),
    params(
        ("schedule" = String, Path),
        ("count" = Option<usize>, Query, description = "At most so many: 5, up to 100", minimum = 1, maximum = 100),
    ),
    responses(
        (status = 200, description = "The times.", body = NextTimes),
        (status = 404, description = "There is no such schedule.", body = Problem, content_type = "application/problem+json"),
    ))]
pub(super) async fn next(
    State(app): State<App>,
    reply: Reply,
    SchedulePath(name): SchedulePath,
    mut query: Query,
) -> Result<Response, Refused> {
    let count = query.parse("count")?.unwrap_or(NEXT_DEFAULT);
    query.end()?;
    if !(1..=limits::NEXT_TIMES_MAX).contains(&count) {
        let detail = format!("count: {count} is out of range; use 1 to {}", limits::NEXT_TIMES_MAX);
        return Err(Refused::new(Code::Invalid, detail));
    }
    let schedule = find(&app, &name).await?;
    reply.with(&NextTimes::from(app.broker.next_times(&schedule, count)?))
}
