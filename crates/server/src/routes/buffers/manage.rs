//! Buffers as a whole: made, listed, shown, copied, deleted.

use super::{shown, storage, time, to_read};
use crate::answer::Reply;
use crate::app::App;
use crate::body::Wire;
use crate::path::BufferPath;
use crate::query::{NoQuery, Query};
use crate::refuse::Refused;
use axum::extract::State;
use axum::response::{IntoResponse, Response};
use http::StatusCode;
use std::collections::BTreeMap;
use towline_api::buffer::{BufferListed, BufferPage, BufferShown, NewBuffer};
use towline_api::{Code, PAGE_DEFAULT, Problem};
use towline_broker::entropy;
use towline_domain::Timestamp;

/// Buffers looked at for one page.
const PAGE_MAX: usize = 1000;

fn new(body: NewBuffer, now: Timestamp) -> Result<towline_buffers::NewBuffer, Refused> {
    let ttl = body.ttl.map(|ttl| ttl.into_domain("ttl")).transpose()?;
    let expires_at_ms = ttl.map(|ttl| now.0.saturating_add(ttl.0));
    Ok(towline_buffers::NewBuffer { tags: body.tags, expires_at_ms })
}

/// Makes an empty buffer.
#[utoipa::path(post, path = "/v1/buffers", operation_id = "create_buffer", tag = "buffers", security(("token" = ["buffer:write"])), request_body = NewBuffer,
    responses(
        (status = 200, description = "The buffer, with its id.", body = BufferShown),
        (status = 400, description = "Refused.", body = Problem, content_type = "application/problem+json"),
    ))]
pub(crate) async fn create(
    State(app): State<App>,
    _: NoQuery,
    reply: Reply,
    Wire(body): Wire<NewBuffer>,
) -> Result<Response, Refused> {
    let (buffers, now) = (storage(&app)?, app.now());
    let id = entropy::uuid(now).to_string();
    buffers.create(&id, new(body, now)?, now.0).await?;
    reply.with(&shown(buffers.show(&id, now.0).await?))
}

/// Buffers in order of id.
#[utoipa::path(get, path = "/v1/buffers", operation_id = "list_buffers", tag = "buffers", security(("token" = ["buffer:read"])),
    params(
        ("tag" = Option<Vec<String>>, Query, description = "key=value; may be given several times, and then all must match"),
        ("limit" = Option<usize>, Query, description = "Look at no more than so many: 100, up to 1000", minimum = 1, maximum = 1000),
        ("cursor" = Option<String>, Query, description = "`next` of the page before"),
    ),
    responses(
        (status = 200, description = "A page of them; one with few, or none, may still go on.", body = BufferPage),
        (status = 400, description = "Refused.", body = Problem, content_type = "application/problem+json"),
    ))]
pub(crate) async fn list(
    State(app): State<App>,
    reply: Reply,
    mut query: Query,
) -> Result<Response, Refused> {
    let mut tags = BTreeMap::new();
    for text in query.all("tag") {
        let shown = || text.chars().take(100).collect::<String>();
        let Some((name, value)) = text.split_once('=') else {
            return Err(Refused::new(Code::Invalid, format!("tag: {:?}; use key=value", shown())));
        };
        if tags.insert(name.to_owned(), value.to_owned()).is_some_and(|other| other != value) {
            let detail = format!("tag: {:?} and another value; no buffer has both", shown());
            return Err(Refused::new(Code::Invalid, detail));
        }
    }
    let (after, limit) = (query.one("cursor")?, query.parse("limit")?.unwrap_or(PAGE_DEFAULT));
    query.end()?;
    if !(1..=PAGE_MAX).contains(&limit) {
        let detail = format!("limit: {limit} is out of range; use 1 to {PAGE_MAX}");
        return Err(Refused::new(Code::Invalid, detail));
    }
    let page = storage(&app)?.list(after.as_deref(), limit, &tags).await?;
    let listed = |one: towline_buffers::Listed| BufferListed {
        id: one.id,
        created_at: time(one.meta.created_at_ms),
        expires_at: one.meta.expires_at_ms.map(time),
        tags: one.meta.tags,
    };
    let buffers: Vec<BufferListed> = page.buffers.into_iter().map(listed).collect();
    let count = buffers.len();
    reply.with_long(&BufferPage { buffers, next: page.next }, count)
}

/// A buffer's state, size and tags.
#[utoipa::path(get, path = "/v1/buffers/{id}", operation_id = "show_buffer", tag = "buffers", security(("token" = ["buffer:read"])), params(("id" = String, Path)),
    responses(
        (status = 200, description = "The buffer.", body = BufferShown),
        (status = 404, description = "There is no such buffer.", body = Problem, content_type = "application/problem+json"),
    ))]
pub(crate) async fn show(
    State(app): State<App>,
    _: NoQuery,
    reply: Reply,
    BufferPath(id): BufferPath,
) -> Result<Response, Refused> {
    let buffers = to_read(&app, &id).await?;
    reply.with(&shown(buffers.show(&id, app.now().0).await?))
}

/// Deletes a buffer, also while it is written or read.
#[utoipa::path(delete, path = "/v1/buffers/{id}", operation_id = "delete_buffer", tag = "buffers", security(("token" = ["buffer:write"])), params(("id" = String, Path)),
    responses(
        (status = 204, description = "It is gone."),
        (status = 404, description = "There is no such buffer.", body = Problem, content_type = "application/problem+json"),
    ))]
pub(crate) async fn delete(
    State(app): State<App>,
    _: NoQuery,
    BufferPath(id): BufferPath,
) -> Result<Response, Refused> {
    let buffers = storage(&app)?;
    // The storage takes an absent one for deleted; somebody who mistyped an id wants to know.
    buffers.meta(&id).await?;
    buffers.delete(&id).await?;
    Ok(StatusCode::NO_CONTENT.into_response())
}

/// Copies a complete buffer within the storage. Tags and time to live are the copy's own.
#[utoipa::path(post, path = "/v1/buffers/{id}/copy", operation_id = "copy_buffer", tag = "buffers", security(("token" = ["buffer:*"])), params(("id" = String, Path)), request_body = NewBuffer,
    responses(
        (status = 200, description = "The copy, with an id of its own.", body = BufferShown),
        (status = 404, description = "There is no such buffer.", body = Problem, content_type = "application/problem+json"),
        (status = 409, description = "It is not complete.", body = Problem, content_type = "application/problem+json"),
    ))]
pub(crate) async fn copy(
    State(app): State<App>,
    _: NoQuery,
    reply: Reply,
    BufferPath(id): BufferPath,
    Wire(body): Wire<NewBuffer>,
) -> Result<Response, Refused> {
    let (buffers, now) = (to_read(&app, &id).await?, app.now());
    let copy = entropy::uuid(now).to_string();
    buffers.copy(&id, &copy, new(body, now)?, now.0).await?;
    reply.with(&shown(buffers.show(&copy, now.0).await?))
}
