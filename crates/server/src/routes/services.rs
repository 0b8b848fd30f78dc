//! Services: create, list, show, scale, restart, delete.

use crate::app::App;
use crate::request::{DecodedBody, NoQuery, Query, ServicePath};
use crate::response::{ProblemResponse, Responder};
use axum::extract::State;
use axum::response::{IntoResponse, Response};
use http::StatusCode;
use towline_api::compute::{NewService, ScaleService, ServicePage, ServiceShown, ServiceState};

/// List services in order of name, without their replicas.
#[utoipa::path(get, path = "/v1/services", operation_id = "list_services", tag = "compute", security(("token" = ["compute:read"])),
    params(
        ("state" = Option<ServiceState>, Query, description = "Only services in this state"),
        ("cursor" = Option<String>, Query, description = "`next` of the previous page"),
        ("limit" = Option<usize>, Query, description = "Maximum number of entries, up to 1000. Default: 100", minimum = 1, maximum = 1000),
    ),
    responses(
        (status = 200, description = "A page. A page with few or no entries may still have a `next` page.", body = ServicePage),
    ))]
pub(super) async fn list(
    State(app): State<App>,
    respond: Responder,
    mut query: Query,
) -> Result<Response, ProblemResponse> {
    let state = query.parse("state")?;
    let (after, limit) = (query.one("cursor")?, query.limit()?);
    query.end()?;
    let (services, next) = app.compute.services(state, after.as_deref(), limit).await?;
    let count = services.len();
    respond.with_many(&ServicePage { services, next }, count)
}

/// Create a service and start its replicas. Repeating the same call changes nothing.
#[utoipa::path(put, path = "/v1/services/{service}", operation_id = "put_service", tag = "compute", security(("token" = ["compute:admin"])),
    params(("service" = String, Path)), request_body = NewService,
    responses(
        (status = 200, description = "The service.", body = ServiceShown),
        (status = 404, description = "The codespec does not exist."),
        (status = 409, description = "The service exists and differs."),
        (status = 422, description = "The queues do not match the codespec."),
    ))]
pub(super) async fn put(
    State(app): State<App>,
    _: NoQuery,
    respond: Responder,
    ServicePath(name): ServicePath,
    DecodedBody(body, ..): DecodedBody<NewService>,
) -> Result<Response, ProblemResponse> {
    respond.with(&app.compute.create_service(&name, body).await?)
}

/// Show a service with its replicas.
#[utoipa::path(get, path = "/v1/services/{service}", operation_id = "show_service", tag = "compute", security(("token" = ["compute:read"])),
    params(("service" = String, Path)),
    responses(
        (status = 200, description = "The service.", body = ServiceShown),
    ))]
pub(super) async fn show(
    State(app): State<App>,
    _: NoQuery,
    respond: Responder,
    ServicePath(name): ServicePath,
) -> Result<Response, ProblemResponse> {
    respond.with(&app.compute.service(&name).await?)
}

/// Change the number of replicas. With 0 replicas the service is stopped.
#[utoipa::path(post, path = "/v1/services/{service}/scale", operation_id = "scale_service", tag = "compute", security(("token" = ["compute:admin"])),
    params(("service" = String, Path)), request_body = ScaleService,
    responses(
        (status = 200, description = "The service.", body = ServiceShown),
    ))]
pub(super) async fn scale(
    State(app): State<App>,
    _: NoQuery,
    respond: Responder,
    ServicePath(name): ServicePath,
    DecodedBody(body, ..): DecodedBody<ScaleService>,
) -> Result<Response, ProblemResponse> {
    respond.with(&app.compute.scale_service(&name, body.replicas).await?)
}

/// Replace all replicas, with the newest version of the codespec.
///
/// At least half of the replicas run all the time. A failed service is started again.
#[utoipa::path(post, path = "/v1/services/{service}/restart", operation_id = "restart_service", tag = "compute", security(("token" = ["compute:admin"])),
    params(("service" = String, Path)),
    responses(
        (status = 200, description = "The service.", body = ServiceShown),
    ))]
pub(super) async fn restart(
    State(app): State<App>,
    _: NoQuery,
    respond: Responder,
    ServicePath(name): ServicePath,
) -> Result<Response, ProblemResponse> {
    respond.with(&app.compute.restart_service(&name).await?)
}

/// Delete a service and stop its replicas.
#[utoipa::path(delete, path = "/v1/services/{service}", operation_id = "delete_service", tag = "compute", security(("token" = ["compute:admin"])),
    params(("service" = String, Path)),
    responses(
        (status = 204, description = "Deleted."),
    ))]
pub(super) async fn delete(
    State(app): State<App>,
    _: NoQuery,
    ServicePath(name): ServicePath,
) -> Result<Response, ProblemResponse> {
    app.compute.delete_service(&name).await?;
    Ok(StatusCode::NO_CONTENT.into_response())
}
