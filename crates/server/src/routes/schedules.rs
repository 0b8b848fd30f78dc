//! Schedules: create, change, show, pause, resume, run, delete.

use super::notes;
use crate::app::App;
use crate::auth::{Caller, Right};
use crate::request::{DecodedBody, NoQuery, Query, SchedulePath};
use crate::response::{ProblemResponse, Responder};
use axum::extract::State;
use axum::response::{IntoResponse, Response};
use http::StatusCode;
use towline_api::{NextTimes, PutSchedule, ScheduleAnswer, SchedulePage, ScheduleRun, ScheduleShown};
use towline_broker::IfDifferent;
use towline_domain::{Refusal, Schedule, ScheduleName, limits};

/// Default number of next times.
const NEXT_DEFAULT: usize = 5;

async fn find(app: &App, name: &ScheduleName) -> Result<Schedule, ProblemResponse> {
    let found = app.broker.schedule(name).await?;
    found.ok_or_else(|| Refusal::ScheduleNotFound { name: name.to_string() }.into())
}

/// List schedules in order of name. The list contains the schedules whose queues the token may read.
#[utoipa::path(get, path = "/v1/schedules", operation_id = "list_schedules", tag = "schedules", security(("token" = ["any"])),
    params(
        ("cursor" = Option<String>, Query, description = "`next` of the previous page"),
        ("limit" = Option<usize>, Query, description = "Maximum number of entries, up to 1000. Default: 100", minimum = 1, maximum = 1000),
    ),
    responses(
        (status = 200, description = "A page.", body = SchedulePage),
    ))]
pub(super) async fn list(
    State(app): State<App>,
    respond: Responder,
    caller: Caller,
    mut query: Query,
) -> Result<Response, ProblemResponse> {
    let after: Option<ScheduleName> = query.parse("cursor")?;
    let limit = query.limit()?;
    query.end()?;
    let found = app.broker.schedules(after.as_ref(), limit).await?;
    let next = found.last().filter(|_| found.len() >= limit).map(|last| last.name.to_string());
    let schedules: Vec<ScheduleShown> = found
        .into_iter()
        .filter(|schedule| caller.may(&schedule.spec.queue, Right::Read))
        .map(ScheduleShown::from)
        .collect();
    let count = schedules.len();
    respond.with_many(&SchedulePage { schedules, next }, count)
}

/// Create a schedule.
///
/// Repeating the same call changes nothing. If the schedule exists and differs, the error says in what: apply it to change it.
#[utoipa::path(put, path = "/v1/schedules/{schedule}", operation_id = "put_schedule", tag = "schedules", security(("token" = ["queue:{queue of the schedule}:submit"])), params(("schedule" = String, Path)), request_body = PutSchedule,
    responses(
        (status = 200, description = "The schedule.", body = ScheduleAnswer),
        (status = 400, description = "The times, the item or a number is not valid."),
        (status = 409, description = "The schedule exists and differs."),
        (status = 507, description = "The maximum number of schedules is reached."),
    ))]
pub(super) async fn put(
    State(app): State<App>,
    _: NoQuery,
    respond: Responder,
    caller: Caller,
    SchedulePath(name): SchedulePath,
    DecodedBody(body, ..): DecodedBody<PutSchedule>,
) -> Result<Response, ProblemResponse> {
    put_schedule(&app, respond, &caller, (name, body), IfDifferent::Refuse).await
}

/// Create a schedule, or change it.
///
/// The response says which fields have changed. The sequence of occurrences continues unless the times change. A field that is
/// not given gets its default.
#[utoipa::path(post, path = "/v1/schedules/{schedule}/apply", operation_id = "apply_schedule", tag = "schedules", security(("token" = ["queue:{queue of the schedule}:submit"])),
    params(("schedule" = String, Path), ("dry_run" = Option<bool>, Query, description = "Change nothing: show what would change")),
    request_body = PutSchedule,
    responses(
        (status = 200, description = "The schedule.", body = ScheduleAnswer),
        (status = 400, description = "The times, the item or a number is not valid."),
        (status = 507, description = "The maximum number of schedules is reached."),
    ))]
pub(super) async fn apply(
    State(app): State<App>,
    respond: Responder,
    caller: Caller,
    SchedulePath(name): SchedulePath,
    mut query: Query,
    DecodedBody(body, ..): DecodedBody<PutSchedule>,
) -> Result<Response, ProblemResponse> {
    let if_different = if query.flag("dry_run")? { IfDifferent::OnlyShow } else { IfDifferent::Change };
    query.end()?;
    put_schedule(&app, respond, &caller, (name, body), if_different).await
}

async fn put_schedule(
    app: &App,
    respond: Responder,
    caller: &Caller,
    (name, body): (ScheduleName, PutSchedule),
    if_different: IfDifferent,
) -> Result<Response, ProblemResponse> {
    let (spec, paused) = body.into_domain()?;
    caller.check_target(Some(&spec.queue))?;
    caller.check_group(spec.item.body.group.as_deref())?;
    let queue = spec.queue.clone();
    let put = app.broker.put_schedule(&name, spec, paused, if_different).await?;
    let schedule = ScheduleShown::from(put.schedule);
    let before = put.before.map(|before| ScheduleShown::from(*before));
    respond.with(&ScheduleAnswer {
        created: put.created,
        changed: before.map_or_else(Vec::new, |before| schedule.changes_since(&before)),
        schedule,
        // The schedule is stored, so a note that cannot be made is left out.
        notes: notes::absent_queue(app, &queue).await.unwrap_or_default(),
    })
}

/// Show a schedule, the item it submits, and its progress.
#[utoipa::path(get, path = "/v1/schedules/{schedule}", operation_id = "show_schedule", tag = "schedules", security(("token" = ["queue:{queue of the schedule}:read"])), params(("schedule" = String, Path)), responses(
    (status = 200, description = "The schedule.", body = ScheduleShown),
))]
pub(super) async fn show(
    State(app): State<App>,
    _: NoQuery,
    respond: Responder,
    SchedulePath(name): SchedulePath,
) -> Result<Response, ProblemResponse> {
    respond.with(&ScheduleShown::from(find(&app, &name).await?))
}

/// Delete a schedule. Items that it submitted stay.
#[utoipa::path(delete, path = "/v1/schedules/{schedule}", operation_id = "delete_schedule", tag = "schedules", security(("token" = ["queue:{queue of the schedule}:submit"])), params(("schedule" = String, Path)), responses(
    (status = 204, description = "Deleted."),
))]
pub(super) async fn delete(
    State(app): State<App>,
    _: NoQuery,
    SchedulePath(name): SchedulePath,
) -> Result<Response, ProblemResponse> {
    app.broker.delete_schedule(&name).await?;
    Ok(StatusCode::NO_CONTENT.into_response())
}

/// Pause a schedule, so that it submits no items.
#[utoipa::path(post, path = "/v1/schedules/{schedule}/pause", operation_id = "pause_schedule", tag = "schedules", security(("token" = ["queue:{queue of the schedule}:submit"])), params(("schedule" = String, Path)), responses(
    (status = 200, description = "The changed schedule.", body = ScheduleShown),
))]
pub(super) async fn pause(
    State(app): State<App>,
    _: NoQuery,
    respond: Responder,
    SchedulePath(name): SchedulePath,
) -> Result<Response, ProblemResponse> {
    respond.with(&ScheduleShown::from(app.broker.pause_schedule(&name, true).await?))
}

/// Resume a paused schedule. It skips the occurrences during the pause.
#[utoipa::path(post, path = "/v1/schedules/{schedule}/resume", operation_id = "resume_schedule", tag = "schedules", security(("token" = ["queue:{queue of the schedule}:submit"])), params(("schedule" = String, Path)), responses(
    (status = 200, description = "The changed schedule.", body = ScheduleShown),
))]
pub(super) async fn resume(
    State(app): State<App>,
    _: NoQuery,
    respond: Responder,
    SchedulePath(name): SchedulePath,
) -> Result<Response, ProblemResponse> {
    respond.with(&ScheduleShown::from(app.broker.pause_schedule(&name, false).await?))
}

/// Submit an item of the schedule now, even if the schedule is paused or has ended. Its occurrences stay as they are.
#[utoipa::path(post, path = "/v1/schedules/{schedule}/run", operation_id = "run_schedule", tag = "schedules", security(("token" = ["queue:{queue of the schedule}:submit"])), params(("schedule" = String, Path)), responses(
    (status = 200, description = "The item.", body = ScheduleRun),
    (status = 404, description = "The schedule or its queue does not exist."),
    (status = 409, description = "The queue does not accept the item."),
    (status = 422, description = "The item does not match the schema of the queue."),
))]
pub(super) async fn run(
    State(app): State<App>,
    _: NoQuery,
    respond: Responder,
    SchedulePath(name): SchedulePath,
) -> Result<Response, ProblemResponse> {
    let id = app.broker.run_schedule(&name).await?;
    respond.with(&ScheduleRun { id: id.into() })
}

/// Show the next occurrences of a schedule. For a paused schedule, show the occurrences it would have.
#[utoipa::path(get, path = "/v1/schedules/{schedule}/next", operation_id = "next_times", tag = "schedules", security(("token" = ["queue:{queue of the schedule}:read"])),
    params(
        ("schedule" = String, Path),
        ("count" = Option<usize>, Query, description = "Maximum number of entries, up to 100. Default: 5", minimum = 1, maximum = 100),
    ),
    responses(
        (status = 200, description = "The times.", body = NextTimes),
    ))]
pub(super) async fn next(
    State(app): State<App>,
    respond: Responder,
    SchedulePath(name): SchedulePath,
    mut query: Query,
) -> Result<Response, ProblemResponse> {
    let count = query.number("count", NEXT_DEFAULT, limits::NEXT_TIMES_MAX)?;
    query.end()?;
    let schedule = find(&app, &name).await?;
    respond.with(&NextTimes::from(app.broker.next_times(&schedule, count)?))
}
