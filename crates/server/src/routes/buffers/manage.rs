//! Whole buffers: create, list, show, copy, delete.

use super::{describe, readable, storage, time};
use crate::app::App;
use crate::request::{BufferPath, DecodedBody, NoQuery, Query, excerpt};
use crate::response::{ProblemResponse, Responder};
use axum::extract::State;
use axum::response::{IntoResponse, Response};
use http::StatusCode;
use std::collections::BTreeMap;
use towline_api::Code;
use towline_api::buffer::{BufferListed, BufferPage, BufferShown, NewBuffer};
use towline_broker::entropy;
use towline_domain::Timestamp;

fn new(body: NewBuffer, now: Timestamp) -> Result<towline_buffers::NewBuffer, ProblemResponse> {
    let ttl = body.ttl.map(|ttl| ttl.into_domain("ttl")).transpose()?;
    let expires_at_ms = ttl.map(|ttl| now.0.saturating_add(ttl.0));
    Ok(towline_buffers::NewBuffer { tags: body.tags, expires_at_ms })
}

/// Create an empty buffer.
#[utoipa::path(post, path = "/v1/buffers", operation_id = "create_buffer", tag = "buffers", security(("token" = ["buffer:write"])), request_body = NewBuffer,
    responses(
        (status = 200, description = "The buffer, with its id.", body = BufferShown),
    ))]
pub(crate) async fn create(
    State(app): State<App>,
    _: NoQuery,
    respond: Responder,
    DecodedBody(body, ..): DecodedBody<NewBuffer>,
) -> Result<Response, ProblemResponse> {
    let (buffers, now) = (storage(&app)?, app.now());
    let id = entropy::uuid(now).to_string();
    buffers.create(&id, new(body, now)?, now.0).await?;
    respond.with(&describe(buffers.show(&id, now.0).await?))
}

/// List buffers in order of id.
#[utoipa::path(get, path = "/v1/buffers", operation_id = "list_buffers", tag = "buffers", security(("token" = ["buffer:read"])),
    params(
        ("tag" = Option<Vec<String>>, Query, description = "Only buffers with this tag, as key=value. Repeatable; then all tags must match"),
        ("limit" = Option<usize>, Query, description = "Maximum number of entries to look at, up to 1000. Default: 100", minimum = 1, maximum = 1000),
        ("cursor" = Option<String>, Query, description = "`next` of the previous page"),
    ),
    responses(
        (status = 200, description = "A page. A page with few or no entries may still have a `next` page.", body = BufferPage),
    ))]
pub(crate) async fn list(
    State(app): State<App>,
    respond: Responder,
    mut query: Query,
) -> Result<Response, ProblemResponse> {
    let mut tags = BTreeMap::new();
    for text in query.all("tag") {
        let Some((name, value)) = text.split_once('=') else {
            return Err(ProblemResponse::new(
                Code::Invalid,
                format!("tag: {:?}; use key=value", excerpt(&text)),
            ));
        };
        if tags.insert(name.to_owned(), value.to_owned()).is_some_and(|other| other != value) {
            let detail = format!("tag: {:?} and another value; no buffer has both", excerpt(&text));
            return Err(ProblemResponse::new(Code::Invalid, detail));
        }
    }
    let (after, limit) = (query.one("cursor")?, query.limit()?);
    query.end()?;
    let page = storage(&app)?.list(after.as_deref(), limit, &tags).await?;
    let listed = |buffer: towline_buffers::ListedBuffer| BufferListed {
        id: buffer.id,
        created_at: time(buffer.meta.created_at_ms),
        expires_at: buffer.meta.expires_at_ms.map(time),
        tags: buffer.meta.tags,
    };
    let buffers: Vec<BufferListed> = page.buffers.into_iter().map(listed).collect();
    let count = buffers.len();
    respond.with_many(&BufferPage { buffers, next: page.next }, count)
}

/// Show the state, size and tags of a buffer.
#[utoipa::path(get, path = "/v1/buffers/{id}", operation_id = "show_buffer", tag = "buffers", security(("token" = ["buffer:read or the lease of an item"])), params(("id" = String, Path)),
    responses(
        (status = 200, description = "The buffer.", body = BufferShown),
    ))]
pub(crate) async fn show(
    State(app): State<App>,
    _: NoQuery,
    respond: Responder,
    BufferPath(id): BufferPath,
) -> Result<Response, ProblemResponse> {
    let buffers = readable(&app, &id).await?;
    respond.with(&describe(buffers.show(&id, app.now().0).await?))
}

/// Delete a buffer, even if a client is writing or reading it.
#[utoipa::path(delete, path = "/v1/buffers/{id}", operation_id = "delete_buffer", tag = "buffers", security(("token" = ["buffer:delete"])), params(("id" = String, Path)),
    responses(
        (status = 204, description = "Deleted."),
    ))]
pub(crate) async fn delete(
    State(app): State<App>,
    _: NoQuery,
    BufferPath(id): BufferPath,
) -> Result<Response, ProblemResponse> {
    let buffers = storage(&app)?;
    // Deleting a missing buffer succeeds, so check first: the id may be a typing mistake.
    buffers.meta(&id).await?;
    buffers.delete(&id).await?;
    Ok(StatusCode::NO_CONTENT.into_response())
}

/// Copy a complete buffer within the buffer storage. Tags and time to live are not copied.
#[utoipa::path(post, path = "/v1/buffers/{id}/copy", operation_id = "copy_buffer", tag = "buffers", security(("token" = ["buffer:read and buffer:write"])), params(("id" = String, Path)), request_body = NewBuffer,
    responses(
        (status = 200, description = "The copy, with a new id.", body = BufferShown),
        (status = 409, description = "The buffer is not complete."),
    ))]
pub(crate) async fn copy(
    State(app): State<App>,
    _: NoQuery,
    respond: Responder,
    BufferPath(id): BufferPath,
    DecodedBody(body, ..): DecodedBody<NewBuffer>,
) -> Result<Response, ProblemResponse> {
    let (buffers, now) = (readable(&app, &id).await?, app.now());
    let copy = entropy::uuid(now).to_string();
    buffers.copy(&id, &copy, new(body, now)?, now.0).await?;
    respond.with(&describe(buffers.show(&copy, now.0).await?))
}
