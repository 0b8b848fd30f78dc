//! Codespecs: create, list, show, delete.

use crate::app::App;
use crate::request::{CodespecPath, DecodedBody, NoQuery, Query};
use crate::response::{ProblemResponse, Responder};
use axum::extract::State;
use axum::response::{IntoResponse, Response};
use http::StatusCode;
use towline_api::compute::{CodespecApplied, CodespecPage, CodespecShown, NewCodespec};

/// List the newest versions of codespecs in order of name.
#[utoipa::path(get, path = "/v1/codespecs", operation_id = "list_codespecs", tag = "compute", security(("token" = ["compute:read"])),
    params(
        ("cursor" = Option<String>, Query, description = "`next` of the previous page"),
        ("limit" = Option<usize>, Query, description = "Maximum number of entries, up to 1000. Default: 100", minimum = 1, maximum = 1000),
    ),
    responses(
        (status = 200, description = "A page.", body = CodespecPage),
    ))]
pub(super) async fn list(
    State(app): State<App>,
    respond: Responder,
    mut query: Query,
) -> Result<Response, ProblemResponse> {
    let (after, limit) = (query.one("cursor")?, query.limit()?);
    query.end()?;
    let (codespecs, next) = app.compute.codespecs(after.as_deref(), limit).await?;
    let count = codespecs.len();
    respond.with_many(&CodespecPage { codespecs, next }, count)
}

/// Create a codespec, or a new version of it.
///
/// A codespec never changes. If the newest version is the same as the given one, nothing is created.
#[utoipa::path(put, path = "/v1/codespecs/{codespec}", operation_id = "put_codespec", tag = "compute", security(("token" = ["compute:admin"])),
    params(("codespec" = String, Path)), request_body = NewCodespec,
    responses(
        (status = 200, description = "The newest version.", body = CodespecApplied),
        (status = 400, description = "The codespec is not valid."),
    ))]
pub(super) async fn put(
    State(app): State<App>,
    _: NoQuery,
    respond: Responder,
    CodespecPath(name): CodespecPath,
    DecodedBody(body, ..): DecodedBody<NewCodespec>,
) -> Result<Response, ProblemResponse> {
    respond.with(&app.compute.create_codespec(&name, body.codespec).await?)
}

/// Show a codespec: the newest version, or with `NAME@VERSION` that version.
#[utoipa::path(get, path = "/v1/codespecs/{codespec}", operation_id = "show_codespec", tag = "compute", security(("token" = ["compute:read"])),
    params(("codespec" = String, Path)),
    responses(
        (status = 200, description = "The codespec.", body = CodespecShown),
    ))]
pub(super) async fn show(
    State(app): State<App>,
    _: NoQuery,
    respond: Responder,
    CodespecPath(name): CodespecPath,
) -> Result<Response, ProblemResponse> {
    respond.with(&app.compute.codespec(&name).await?)
}

/// Delete all versions of a codespec. Runs keep what they took from it.
#[utoipa::path(delete, path = "/v1/codespecs/{codespec}", operation_id = "delete_codespec", tag = "compute", security(("token" = ["compute:admin"])),
    params(("codespec" = String, Path)),
    responses(
        (status = 204, description = "Deleted."),
        (status = 409, description = "A service or a trigger uses it."),
    ))]
pub(super) async fn delete(
    State(app): State<App>,
    _: NoQuery,
    CodespecPath(name): CodespecPath,
) -> Result<Response, ProblemResponse> {
    app.compute.delete_codespec(&name).await?;
    Ok(StatusCode::NO_CONTENT.into_response())
}
