//! The calls of the writer of a buffer, except for its chunks.

use super::{describe, writable, writer};
use crate::app::App;
use crate::request::{BufferPath, DecodedBody, NoQuery};
use crate::response::{ProblemResponse, Responder};
use axum::extract::State;
use axum::response::{IntoResponse, Response};
use http::StatusCode;
use towline_api::buffer::{BeginBuffer, BufferShown, FailBuffer, FinishBuffer, TouchBuffer, WriterPosition};
use towline_broker::entropy;
use towline_buffers::{Position, WriterId};

/// Begin to write a buffer, or continue.
///
/// A writer that calls again gets its position. A buffer has one writer.
#[utoipa::path(post, path = "/v1/buffers/{id}/writer", operation_id = "begin_buffer", tag = "buffers", security(("token" = ["buffer:write or the lease of an item"])), params(("id" = String, Path)), request_body = BeginBuffer,
    responses(
        (status = 200, description = "The position of the writer.", body = WriterPosition),
        (status = 409, description = "The buffer has another writer, or is complete or failed."),
    ))]
pub(crate) async fn begin(
    State(app): State<App>,
    _: NoQuery,
    respond: Responder,
    BufferPath(id): BufferPath,
    DecodedBody(body, ..): DecodedBody<BeginBuffer>,
) -> Result<Response, ProblemResponse> {
    let writer = match &body.writer {
        Some(text) => writer(text)?,
        None => WriterId::from_bytes(entropy::bytes()),
    };
    let at = writable(&app, &id).await?.begin(&id, writer, app.now().0).await?;
    let Position { chunks, bytes, chain } = at;
    respond.with(&WriterPosition { writer: writer.to_string(), chunks, bytes, chain: chain.into() })
}

/// Keep a buffer open while the writer has nothing to send.
#[utoipa::path(post, path = "/v1/buffers/{id}/touch", operation_id = "touch_buffer", tag = "buffers", security(("token" = ["buffer:write or the lease of an item"])), params(("id" = String, Path)), request_body = TouchBuffer,
    responses(
        (status = 204, description = "Done."),
        (status = 409, description = "The buffer has another writer, or is complete or failed."),
    ))]
pub(crate) async fn touch(
    State(app): State<App>,
    _: NoQuery,
    BufferPath(id): BufferPath,
    DecodedBody(body, ..): DecodedBody<TouchBuffer>,
) -> Result<Response, ProblemResponse> {
    let writer = writer(&body.writer)?;
    writable(&app, &id).await?.touch(&id, writer, app.now().0).await?;
    Ok(StatusCode::NO_CONTENT.into_response())
}

/// Complete a buffer.
///
/// All chunks must be stored and match the totals. Repeating the same call changes nothing.
#[utoipa::path(post, path = "/v1/buffers/{id}/finish", operation_id = "finish_buffer", tag = "buffers", security(("token" = ["buffer:write or the lease of an item"])), params(("id" = String, Path)), request_body = FinishBuffer,
    responses(
        (status = 200, description = "The buffer.", body = BufferShown),
        (status = 409, description = "Chunks are missing, or the totals differ; or the buffer has another writer, or is complete or failed."),
    ))]
pub(crate) async fn finish(
    State(app): State<App>,
    _: NoQuery,
    respond: Responder,
    BufferPath(id): BufferPath,
    DecodedBody(body, ..): DecodedBody<FinishBuffer>,
) -> Result<Response, ProblemResponse> {
    let writer = writer(&body.writer)?;
    let totals = Position { chunks: body.chunks, bytes: body.bytes, chain: body.chain.into_domain("chain")? };
    let (buffers, now_ms) = (writable(&app, &id).await?, app.now().0);
    buffers.finish(&id, writer, totals, now_ms).await?;
    respond.with(&describe(buffers.show(&id, now_ms).await?))
}

/// Mark a buffer as failed. Readers get the reason.
#[utoipa::path(post, path = "/v1/buffers/{id}/fail", operation_id = "fail_buffer", tag = "buffers", security(("token" = ["buffer:write or the lease of an item"])), params(("id" = String, Path)), request_body = FailBuffer,
    responses(
        (status = 200, description = "The buffer.", body = BufferShown),
        (status = 409, description = "The buffer has another writer, or is complete or failed."),
    ))]
pub(crate) async fn fail(
    State(app): State<App>,
    _: NoQuery,
    respond: Responder,
    BufferPath(id): BufferPath,
    DecodedBody(body, ..): DecodedBody<FailBuffer>,
) -> Result<Response, ProblemResponse> {
    let writer = writer(&body.writer)?;
    let (buffers, now_ms) = (writable(&app, &id).await?, app.now().0);
    let reason = body.reason.as_deref().unwrap_or("the writer gave up");
    buffers.fail(&id, writer, reason, now_ms).await?;
    respond.with(&describe(buffers.show(&id, now_ms).await?))
}
