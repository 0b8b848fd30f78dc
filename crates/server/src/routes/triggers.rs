//! Triggers: create, list, show, scale, delete.

use crate::app::App;
use crate::request::{DecodedBody, NoQuery, Query, TriggerPath};
use crate::response::{ProblemResponse, Responder};
use axum::extract::State;
use axum::response::{IntoResponse, Response};
use http::StatusCode;
use towline_api::compute::{NewTrigger, ScaleTrigger, TriggerPage, TriggerShown};

/// List triggers in order of name.
#[utoipa::path(get, path = "/v1/triggers", operation_id = "list_triggers", tag = "compute", security(("token" = ["compute:read"])),
    params(
        ("cursor" = Option<String>, Query, description = "`next` of the previous page"),
        ("limit" = Option<usize>, Query, description = "Maximum number of entries, up to 1000. Default: 100", minimum = 1, maximum = 1000),
    ),
    responses(
        (status = 200, description = "A page.", body = TriggerPage),
    ))]
pub(super) async fn list(
    State(app): State<App>,
    respond: Responder,
    mut query: Query,
) -> Result<Response, ProblemResponse> {
    let (after, limit) = (query.one("cursor")?, query.limit()?);
    query.end()?;
    let (triggers, next) = app.compute.triggers(after.as_deref(), limit).await?;
    let count = triggers.len();
    respond.with_many(&TriggerPage { triggers, next }, count)
}

/// Create a trigger: it runs a job for each item of a queue. Repeating the same call changes nothing.
#[utoipa::path(put, path = "/v1/triggers/{trigger}", operation_id = "put_trigger", tag = "compute", security(("token" = ["compute:admin"])),
    params(("trigger" = String, Path)), request_body = NewTrigger,
    responses(
        (status = 200, description = "The trigger.", body = TriggerShown),
        (status = 404, description = "The codespec or a queue does not exist."),
        (status = 409, description = "The trigger exists and differs, or the queue has another trigger."),
        (status = 422, description = "The mappings do not match the queues and the codespec."),
    ))]
pub(super) async fn put(
    State(app): State<App>,
    _: NoQuery,
    respond: Responder,
    TriggerPath(name): TriggerPath,
    DecodedBody(body, ..): DecodedBody<NewTrigger>,
) -> Result<Response, ProblemResponse> {
    respond.with(&app.compute.create_trigger(&name, body).await?)
}

/// Show a trigger.
#[utoipa::path(get, path = "/v1/triggers/{trigger}", operation_id = "show_trigger", tag = "compute", security(("token" = ["compute:read"])),
    params(("trigger" = String, Path)),
    responses(
        (status = 200, description = "The trigger.", body = TriggerShown),
    ))]
pub(super) async fn show(
    State(app): State<App>,
    _: NoQuery,
    respond: Responder,
    TriggerPath(name): TriggerPath,
) -> Result<Response, ProblemResponse> {
    respond.with(&app.compute.trigger(&name).await?)
}

/// Change how many runs there are at once. With 0, no new run starts.
#[utoipa::path(post, path = "/v1/triggers/{trigger}/scale", operation_id = "scale_trigger", tag = "compute", security(("token" = ["compute:admin"])),
    params(("trigger" = String, Path)), request_body = ScaleTrigger,
    responses(
        (status = 200, description = "The trigger.", body = TriggerShown),
    ))]
pub(super) async fn scale(
    State(app): State<App>,
    _: NoQuery,
    respond: Responder,
    TriggerPath(name): TriggerPath,
    DecodedBody(body, ..): DecodedBody<ScaleTrigger>,
) -> Result<Response, ProblemResponse> {
    respond.with(&app.compute.scale_trigger(&name, body.concurrency).await?)
}

/// Delete a trigger. Runs under way are finished, and items that wait stay in the queue.
#[utoipa::path(delete, path = "/v1/triggers/{trigger}", operation_id = "delete_trigger", tag = "compute", security(("token" = ["compute:admin"])),
    params(("trigger" = String, Path)),
    responses(
        (status = 204, description = "Deleted."),
    ))]
pub(super) async fn delete(
    State(app): State<App>,
    _: NoQuery,
    TriggerPath(name): TriggerPath,
) -> Result<Response, ProblemResponse> {
    app.compute.delete_trigger(&name).await?;
    Ok(StatusCode::NO_CONTENT.into_response())
}
