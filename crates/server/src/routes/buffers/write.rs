//! What the one writer of a buffer says, but for the chunks themselves.

use super::{shown, to_write, writer};
use crate::answer::Reply;
use crate::app::App;
use crate::body::Wire;
use crate::path::BufferPath;
use crate::query::NoQuery;
use crate::refuse::Refused;
use axum::extract::State;
use axum::response::{IntoResponse, Response};
use http::StatusCode;
use towline_api::Problem;
use towline_api::buffer::{BeginBuffer, BufferShown, FailBuffer, FinishBuffer, TouchBuffer, WriterPosition};
use towline_broker::entropy;
use towline_buffers::{Position, WriterId};

/// Begins to write, or goes on where it was: the same writer again is told how far the buffer is.
#[utoipa::path(post, path = "/v1/buffers/{id}/writer", operation_id = "begin_buffer", tag = "buffers", security(("token" = ["buffer:write"])), params(("id" = String, Path)), request_body = BeginBuffer,
    responses(
        (status = 200, description = "Where to go on.", body = WriterPosition),
        (status = 404, description = "There is no such buffer.", body = Problem, content_type = "application/problem+json"),
        (status = 409, description = "It has another writer, was written already, or failed.", body = Problem, content_type = "application/problem+json"),
    ))]
pub(crate) async fn begin(
    State(app): State<App>,
    _: NoQuery,
    reply: Reply,
    BufferPath(id): BufferPath,
    Wire(body): Wire<BeginBuffer>,
) -> Result<Response, Refused> {
    let writer = match &body.writer {
        Some(text) => writer(text)?,
        None => WriterId::from_bytes(entropy::bytes()),
    };
    let at = to_write(&app, &id).await?.begin(&id, writer, app.now().0).await?;
    let Position { chunks, bytes, chain } = at;
    reply.with(&WriterPosition { writer: writer.to_string(), chunks, bytes, chain: chain.into() })
}

/// A sign of life of a writer that has nothing to send.
#[utoipa::path(post, path = "/v1/buffers/{id}/touch", operation_id = "touch_buffer", tag = "buffers", security(("token" = ["buffer:write"])), params(("id" = String, Path)), request_body = TouchBuffer,
    responses(
        (status = 204, description = "It was heard."),
        (status = 404, description = "There is no such buffer.", body = Problem, content_type = "application/problem+json"),
        (status = 409, description = "It has another writer, or has ended.", body = Problem, content_type = "application/problem+json"),
    ))]
pub(crate) async fn touch(
    State(app): State<App>,
    _: NoQuery,
    BufferPath(id): BufferPath,
    Wire(body): Wire<TouchBuffer>,
) -> Result<Response, Refused> {
    let writer = writer(&body.writer)?;
    to_write(&app, &id).await?.touch(&id, writer, app.now().0).await?;
    Ok(StatusCode::NO_CONTENT.into_response())
}

/// Ends a buffer as complete, if all its chunks are there and add up. The same again is fine.
#[utoipa::path(post, path = "/v1/buffers/{id}/finish", operation_id = "finish_buffer", tag = "buffers", security(("token" = ["buffer:write"])), params(("id" = String, Path)), request_body = FinishBuffer,
    responses(
        (status = 200, description = "The buffer.", body = BufferShown),
        (status = 404, description = "There is no such buffer.", body = Problem, content_type = "application/problem+json"),
        (status = 409, description = "Something is missing, or it is another's or has ended.", body = Problem, content_type = "application/problem+json"),
    ))]
pub(crate) async fn finish(
    State(app): State<App>,
    _: NoQuery,
    reply: Reply,
    BufferPath(id): BufferPath,
    Wire(body): Wire<FinishBuffer>,
) -> Result<Response, Refused> {
    let writer = writer(&body.writer)?;
    let totals = Position { chunks: body.chunks, bytes: body.bytes, chain: body.chain.into_domain("chain")? };
    let (buffers, now_ms) = (to_write(&app, &id).await?, app.now().0);
    buffers.finish(&id, writer, totals, now_ms).await?;
    reply.with(&shown(buffers.show(&id, now_ms).await?))
}

/// Ends a buffer as failed: its readers are told.
#[utoipa::path(post, path = "/v1/buffers/{id}/fail", operation_id = "fail_buffer", tag = "buffers", security(("token" = ["buffer:write"])), params(("id" = String, Path)), request_body = FailBuffer,
    responses(
        (status = 200, description = "The buffer.", body = BufferShown),
        (status = 404, description = "There is no such buffer.", body = Problem, content_type = "application/problem+json"),
        (status = 409, description = "It has another writer, or has ended.", body = Problem, content_type = "application/problem+json"),
    ))]
pub(crate) async fn fail(
    State(app): State<App>,
    _: NoQuery,
    reply: Reply,
    BufferPath(id): BufferPath,
    Wire(body): Wire<FailBuffer>,
) -> Result<Response, Refused> {
    let writer = writer(&body.writer)?;
    let (buffers, now_ms) = (to_write(&app, &id).await?, app.now().0);
    let reason = body.reason.as_deref().unwrap_or("its writer gave up");
    buffers.fail(&id, writer, reason, now_ms).await?;
    reply.with(&shown(buffers.show(&id, now_ms).await?))
}
