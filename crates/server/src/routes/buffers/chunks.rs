//! Chunks: bytes as the body, what is known of them as headers.

use super::super::receive::check_wait;
use super::{to_read, to_write, writer};
use crate::app::App;
use crate::body::Pieces;
use crate::path::{BufferPath, ChunkPath};
use crate::query::{NoQuery, Query};
use crate::refuse::Refused;
use axum::body::Body;
use axum::extract::{Request, State};
use axum::response::{IntoResponse, Response};
use futures::stream;
use http::header::{CACHE_CONTROL, CONTENT_LENGTH, CONTENT_TYPE, X_CONTENT_TYPE_OPTIONS};
use http::{HeaderMap, StatusCode};
use std::convert::Infallible;
use std::str::FromStr;
use std::time::Duration;
use towline_api::{CHUNK_BYTES_MAX, Code, Problem, Span, buffer};
use towline_buffers::{Chunk, ChunkLookup, NewChunk, Position};

pub(super) const OCTETS: &str = "application/octet-stream";

fn header<T: FromStr>(headers: &HeaderMap, name: &str, what: &str) -> Result<T, Refused> {
    let text = headers.get(name).and_then(|value| value.to_str().ok()).unwrap_or_default();
    text.parse().map_err(|_| {
        let shown: String = text.chars().take(100).collect();
        Refused::new(Code::Invalid, format!("header {name}: {shown:?}; give {what}"))
    })
}

/// Stores a chunk; durable when answered. The same again is fine. Chunks may come out of order and at the same time, up
/// to 64 ahead of the first that is missing.
#[utoipa::path(put, path = "/v1/buffers/{id}/chunks/{n}", operation_id = "put_chunk", tag = "buffers", security(("token" = ["buffer:write"])),
    params(
        ("id" = String, Path), ("n" = u32, Path, description = "From 0"),
        ("towline-writer" = String, Header, description = "As begun: 32 hexadecimal digits"),
        ("towline-hash" = String, Header, description = "blake3 of the data: 64 hexadecimal digits"),
        ("towline-chain" = String, Header, description = "The chain after this chunk: 64 hexadecimal digits"),
    ),
    request_body(content = Vec<u8>, content_type = "application/octet-stream", description = "1 byte to 16 MiB"),
    responses(
        (status = 204, description = "It is stored."),
        (status = 404, description = "There is no such buffer.", body = Problem, content_type = "application/problem+json"),
        (status = 409, description = "The buffer is another's or has ended, or the chunk does not fit.", body = Problem, content_type = "application/problem+json"),
        (status = 422, description = "The data has another hash.", body = Problem, content_type = "application/problem+json"),
    ))]
pub(crate) async fn put(
    State(app): State<App>,
    _: NoQuery,
    BufferPath(id): BufferPath,
    ChunkPath(n): ChunkPath,
    request: Request,
) -> Result<Response, Refused> {
    let headers = request.headers();
    let writer = writer(&header::<String>(headers, buffer::WRITER, "the writer")?)?;
    let digits = "64 hexadecimal digits";
    let (hash, chain) = (header(headers, buffer::HASH, digits)?, header(headers, buffer::CHAIN, digits)?);
    let (data, _room) = Pieces::of(request, &app, CHUNK_BYTES_MAX)?.all(&app).await?;
    // After the body has come, which may take long.
    let buffers = to_write(&app, &id).await?;
    buffers.put_chunk(&id, writer, NewChunk { n, hash, chain, data }, app.now().0).await?;
    Ok(StatusCode::NO_CONTENT.into_response())
}

/// A chunk, its hash checked; with `wait`, waits for it while the buffer is being written or has no writer yet.
#[utoipa::path(get, path = "/v1/buffers/{id}/chunks/{n}", operation_id = "get_chunk", tag = "buffers", security(("token" = ["buffer:read"])),
    params(
        ("id" = String, Path), ("n" = u32, Path, description = "From 0"),
        ("wait" = Option<Span>, Query, description = "How long to wait for it: not at all, up to 5m"),
    ),
    responses(
        (status = 200, description = "Its data, with `towline-hash` and `towline-chain`.", body = Vec<u8>, content_type = "application/octet-stream"),
        (status = 204, description = "`towline-state: complete`: there are no more, and `towline-chunks`, `towline-bytes` and `towline-chain` are the totals. `towline-state: writing`: not yet."),
        (status = 404, description = "There is no such buffer.", body = Problem, content_type = "application/problem+json"),
        (status = 409, description = "The buffer failed.", body = Problem, content_type = "application/problem+json"),
    ))]
pub(crate) async fn get(
    State(app): State<App>,
    BufferPath(id): BufferPath,
    ChunkPath(n): ChunkPath,
    mut query: Query,
) -> Result<Response, Refused> {
    let wait = query.span("wait")?.map_or(Ok(Duration::ZERO), |wait| check_wait("wait", wait))?;
    query.end()?;
    let buffers = to_read(&app, &id).await?;
    let next = tokio::select! {
        biased;
        next = buffers.chunk(&id, n, wait, app.now().0) => next?,
        () = app.stopped() => return Err(Refused::new(Code::Stopping, "the server is stopping; ask again")),
    };
    Ok(match next {
        ChunkLookup::Chunk(Chunk { header, data }) => {
            let headers = [
                (CONTENT_TYPE.as_str(), OCTETS.to_owned()),
                (CONTENT_LENGTH.as_str(), header.length.to_string()),
                (X_CONTENT_TYPE_OPTIONS.as_str(), "nosniff".to_owned()),
                (CACHE_CONTROL.as_str(), "no-store".to_owned()),
                (buffer::HASH, header.hash.to_hex().to_string()),
                (buffer::CHAIN, header.chain.to_hex().to_string()),
            ];
            let pieces = stream::iter(data.into_iter().map(Ok::<_, Infallible>));
            (headers, Body::from_stream(pieces)).into_response()
        }
        ChunkLookup::End(Position { chunks, bytes, chain }) => {
            let headers = [
                (buffer::STATE, "complete".to_owned()),
                (buffer::CHUNKS, chunks.to_string()),
                (buffer::BYTES, bytes.to_string()),
                (buffer::CHAIN, chain.to_hex().to_string()),
            ];
            (StatusCode::NO_CONTENT, headers).into_response()
        }
        ChunkLookup::NotYet => (StatusCode::NO_CONTENT, [(buffer::STATE, "writing")]).into_response(),
    })
}
