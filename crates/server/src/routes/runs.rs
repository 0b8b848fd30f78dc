//! Runs: create, list, show, wait, cancel.

use super::bulk::check_no_lease;
use super::filter::{cursor, next};
use crate::app::App;
use crate::request::{DecodedBody, ItemPath, NoQuery, Query, excerpt, invalid};
use crate::response::{ProblemResponse, Responder};
use axum::extract::State;
use axum::response::Response;
use http::header::LOCATION;
use http::{HeaderValue, StatusCode};
use std::time::Duration;
use towline_api::compute::{LogRequest, NewRun, RunLog, RunPage, RunShown, RunState};
use towline_api::{CancelRequest, Span};
use towline_compute::RunQuery;

/// List runs in order of creation.
///
/// Without `trigger`, the list has the runs that no trigger started.
#[utoipa::path(get, path = "/v1/runs", operation_id = "list_runs", tag = "compute", security(("token" = ["compute:read"])),
    params(
        ("state" = Option<RunState>, Query, description = "Only runs in this state"),
        ("codespec" = Option<String>, Query, description = "Only runs of this codespec: `NAME` or `NAME@VERSION`"),
        ("pool" = Option<String>, Query, description = "Only runs of this pool"),
        ("trigger" = Option<String>, Query, description = "The runs of this trigger"),
        ("tag" = Option<Vec<String>>, Query, description = "Only runs with this tag, as key=value. Repeatable; then all tags must match"),
        ("cursor" = Option<String>, Query, description = "`next` of the previous page"),
        ("limit" = Option<usize>, Query, description = "Maximum number of entries, up to 1000. Default: 100", minimum = 1, maximum = 1000),
    ),
    responses(
        (status = 200, description = "A page. A page with few or no entries may still have a `next` page.", body = RunPage),
        (status = 404, description = "The trigger does not exist."),
    ))]
pub(super) async fn list(
    State(app): State<App>,
    respond: Responder,
    mut query: Query,
) -> Result<Response, ProblemResponse> {
    let mut asked = RunQuery {
        state: query.parse("state")?,
        codespec: query.one("codespec")?,
        pool: query.one("pool")?,
        trigger: query.one("trigger")?,
        tags: Vec::new(),
    };
    for text in query.all("tag") {
        let Some((name, value)) = text.split_once('=') else {
            return Err(invalid("tag", format!("{:?}; use key=value", excerpt(&text))));
        };
        asked.tags.push((name.to_owned(), value.to_owned()));
    }
    let (after, limit) = (cursor(&mut query)?, query.limit()?);
    query.end()?;
    let (runs, after) = app.compute.runs(&asked, after, limit).await?;
    let count = runs.len();
    respond.with_many(&RunPage { runs, next: next(after) }, count)
}

/// Create a run. A node of its pool starts it.
///
/// With an `idempotency_key`, repeating the same call returns the first run.
#[utoipa::path(post, path = "/v1/runs", operation_id = "create_run", tag = "compute", security(("token" = ["compute:admin"])), request_body = NewRun,
    responses(
        (status = 200, description = "The run exists already: it has the same idempotency key.", body = RunShown),
        (status = 201, description = "The run.", body = RunShown, headers(("location" = String, description = "The path of the run"))),
        (status = 400, description = "The run is not valid."),
        (status = 404, description = "The codespec or a buffer does not exist."),
        (status = 422, description = "The buffers do not match the codespec."),
    ))]
pub(super) async fn create(
    State(app): State<App>,
    _: NoQuery,
    respond: Responder,
    DecodedBody(body, ..): DecodedBody<NewRun>,
) -> Result<Response, ProblemResponse> {
    let (run, created) = app.compute.create_run(body).await?;
    let mut response = respond.with(&run)?;
    if created {
        *response.status_mut() = StatusCode::CREATED;
    }
    if let Ok(path) = HeaderValue::try_from(format!("/v1/runs/{}", run.id)) {
        response.headers_mut().insert(LOCATION, path);
    }
    Ok(response)
}

/// Show a run. The id of an item of a trigger's queue shows the run of that item.
#[utoipa::path(get, path = "/v1/runs/{id}", operation_id = "show_run", tag = "compute", security(("token" = ["compute:read"])),
    params(("id" = String, Path, format = Uuid)),
    responses(
        (status = 200, description = "The run.", body = RunShown),
    ))]
pub(super) async fn show(
    State(app): State<App>,
    _: NoQuery,
    respond: Responder,
    ItemPath(id): ItemPath,
) -> Result<Response, ProblemResponse> {
    respond.with(&app.compute.run(id).await?)
}

/// Wait until a run has ended, or until the timeout, and show it.
#[utoipa::path(get, path = "/v1/runs/{id}/wait", operation_id = "wait_for_run", tag = "compute", security(("token" = ["compute:read"])),
    params(
        ("id" = String, Path, format = Uuid),
        ("timeout" = Option<Span>, Query, description = "How long to wait, up to 5m. Default: 30s"),
    ),
    responses(
        (status = 200, description = "The run. Its `state` says whether it has ended.", body = RunShown),
    ))]
pub(super) async fn wait(
    State(app): State<App>,
    respond: Responder,
    ItemPath(id): ItemPath,
    mut query: Query,
) -> Result<Response, ProblemResponse> {
    let timeout = query.wait("timeout", Duration::from_secs(30))?;
    query.end()?;
    respond.with(&app.compute.wait_for_run(id, timeout).await?)
}

/// Cancel a run. A run that a node has is `canceling` until its process has ended.
#[utoipa::path(post, path = "/v1/runs/{id}/cancel", operation_id = "cancel_run", tag = "compute", security(("token" = ["compute:admin"])),
    params(("id" = String, Path, format = Uuid)), request_body = CancelRequest,
    responses(
        (status = 200, description = "The run.", body = RunShown),
        (status = 409, description = "The run has ended."),
    ))]
pub(super) async fn cancel(
    State(app): State<App>,
    _: NoQuery,
    respond: Responder,
    ItemPath(id): ItemPath,
    DecodedBody(body, ..): DecodedBody<CancelRequest>,
) -> Result<Response, ProblemResponse> {
    check_no_lease(&body)?;
    respond.with(&app.compute.cancel_run(id, &body.reason.unwrap_or_default()).await?)
}

/// Create the buffer for the log of a run, a replica or a run of a trigger. For nodes.
#[utoipa::path(post, path = "/v1/runs/{id}/log", operation_id = "create_run_log", tag = "compute", security(("token" = ["compute:node"])),
    params(("id" = String, Path, format = Uuid)), request_body = LogRequest,
    responses(
        (status = 200, description = "The buffer.", body = RunLog),
        (status = 409, description = "The lease is not valid."),
    ))]
pub(super) async fn log(
    State(app): State<App>,
    _: NoQuery,
    respond: Responder,
    ItemPath(id): ItemPath,
    DecodedBody(body, ..): DecodedBody<LogRequest>,
) -> Result<Response, ProblemResponse> {
    respond.with(&RunLog { buffer: app.compute.create_log(id, body.lease).await? })
}
