//! Chunks: the data as the body, its hash and chain as headers.

use super::{readable, writable, writer};
use crate::app::App;
use crate::request::{BodyMemory, BodyStream, BufferPath, ChunkPath, NoQuery, Query, excerpt};
use crate::response::{ProblemResponse, streamed_within};
use axum::extract::{Request, State};
use axum::response::{IntoResponse, Response};
use futures::stream;
use http::header::{CACHE_CONTROL, CONTENT_LENGTH, CONTENT_TYPE, X_CONTENT_TYPE_OPTIONS};
use http::{HeaderMap, StatusCode};
use std::convert::Infallible;
use std::str::FromStr;
use std::time::Duration;
use towline_api::{BufferStateKind, CHUNK_BYTES_MAX, Code, Span, buffer};
use towline_buffers::{Chunk, ChunkLookup, NewChunk, Position};

pub(super) const OCTETS: &str = "application/octet-stream";

fn header<T: FromStr>(headers: &HeaderMap, name: &str, what: &str) -> Result<T, ProblemResponse> {
    let text = headers.get(name).and_then(|value| value.to_str().ok()).unwrap_or_default();
    text.parse().map_err(|_| {
        ProblemResponse::new(Code::Invalid, format!("header {name}: {:?}; use {what}", excerpt(text)))
    })
}

/// Store a chunk.
///
/// The chunk is durable when the server responds. Repeating the same call changes nothing. Chunks may arrive out of order and in
/// parallel, up to 64 ahead of the first missing chunk.
#[utoipa::path(put, path = "/v1/buffers/{id}/chunks/{n}", operation_id = "put_chunk", tag = "buffers", security(("token" = ["buffer:write or the lease of an item"])),
    params(
        ("id" = String, Path), ("n" = u32, Path, description = "Counts from 0"),
        ("towline-writer" = String, Header, description = "The writer that began the buffer: 32 hexadecimal digits"),
        ("towline-hash" = String, Header, description = "BLAKE3 hash of the data: 64 hexadecimal digits"),
        ("towline-chain" = String, Header, description = "The hash chain after this chunk: 64 hexadecimal digits"),
    ),
    request_body(content = Vec<u8>, content_type = "application/octet-stream", description = "1 byte to 16 MiB"),
    responses(
        (status = 204, description = "Stored."),
        (status = 409, description = "The buffer has another writer, or is complete or failed; or the chunk does not continue the hash chain."),
        (status = 422, description = "The data does not match the hash."),
    ))]
pub(crate) async fn put(
    State(app): State<App>,
    _: NoQuery,
    BufferPath(id): BufferPath,
    ChunkPath(n): ChunkPath,
    request: Request,
) -> Result<Response, ProblemResponse> {
    let headers = request.headers();
    let writer = writer(&header::<String>(headers, buffer::WRITER, "the id of the writer")?)?;
    let digits = "64 hexadecimal digits";
    let (hash, chain) = (header(headers, buffer::HASH, digits)?, header(headers, buffer::CHAIN, digits)?);
    let (data, _memory) = BodyStream::new(request, &app, CHUNK_BYTES_MAX)?.all().await?;
    // After reading the body, which may take long.
    let buffers = writable(&app, &id).await?;
    buffers.put_chunk(&id, writer, NewChunk { n, hash, chain, data }, app.now().0).await?;
    Ok(StatusCode::NO_CONTENT.into_response())
}

/// Read a chunk. The server checks its hash.
///
/// With `wait`, wait for the chunk while the buffer has no writer yet or is being written.
#[utoipa::path(get, path = "/v1/buffers/{id}/chunks/{n}", operation_id = "get_chunk", tag = "buffers", security(("token" = ["buffer:read or the lease of an item"])),
    params(
        ("id" = String, Path), ("n" = u32, Path, description = "Counts from 0"),
        ("wait" = Option<Span>, Query, description = "How long to wait for the chunk, up to 5m. Default: 0"),
    ),
    responses(
        (status = 200, description = "The data. `towline-hash` and `towline-chain` are headers.", body = Vec<u8>, content_type = "application/octet-stream"),
        (status = 204, description = "No data. With `towline-state: complete` the buffer has no more chunks, and `towline-chunks`, `towline-bytes` and `towline-chain` are its totals. With `towline-state: writing` the chunk is not written yet."),
        (status = 409, description = "The buffer failed."),
    ))]
pub(crate) async fn get(
    State(app): State<App>,
    BufferPath(id): BufferPath,
    ChunkPath(n): ChunkPath,
    mut query: Query,
) -> Result<Response, ProblemResponse> {
    let wait = query.wait("wait", Duration::ZERO)?;
    query.end()?;
    let buffers = readable(&app, &id).await?;
    let next = tokio::select! {
        biased;
        next = buffers.chunk(&id, n, wait, app.now().0) => next?,
        () = app.stopped() => return Err(ProblemResponse::new(Code::Stopping, "the server is stopping; try again")),
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
            let bytes = data.iter().map(bytes::Bytes::len).sum();
            let mut memory = BodyMemory::new(&app.send_room);
            memory.grow(bytes, 0).await?;
            let parts = stream::iter(data.into_iter().map(Ok::<_, Infallible>));
            (headers, streamed_within(memory, bytes, parts)).into_response()
        }
        ChunkLookup::End(Position { chunks, bytes, chain }) => {
            let headers = [
                (buffer::STATE, BufferStateKind::Complete.name().to_owned()),
                (buffer::CHUNKS, chunks.to_string()),
                (buffer::BYTES, bytes.to_string()),
                (buffer::CHAIN, chain.to_hex().to_string()),
            ];
            (StatusCode::NO_CONTENT, headers).into_response()
        }
        ChunkLookup::NotYet => {
            (StatusCode::NO_CONTENT, [(buffer::STATE, BufferStateKind::Writing.name())]).into_response()
        }
    })
}
