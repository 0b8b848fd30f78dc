//! Signed requests, with which clients transfer chunks directly to and from S3.

use super::{readable, storage, writable, writer};
use crate::app::App;
use crate::request::{BufferPath, ChunkPath, DecodedBody, NoQuery};
use crate::response::{ProblemResponse, Responder};
use axum::extract::State;
use axum::response::{IntoResponse, Response};
use http::StatusCode;
use std::time::Duration;
use towline_api::buffer::{AdoptChunk, SignGet, SignPut, SignedRequest};
use towline_api::{CHUNK_BYTES_MAX, Span};
use towline_buffers::{CHUNK_HEADER_LEN, ChunkHeader, PresignedRequest};
use towline_domain::{Millis, Refusal};

const EXPIRES_DEFAULT: Millis = Millis::minutes(15);
const EXPIRES_MAX: Millis = Millis::minutes(60);

fn expires_in(requested: Option<Span>) -> Result<Duration, ProblemResponse> {
    let span = requested.map_or(Ok(EXPIRES_DEFAULT), |span| span.into_domain("expires_in"))?;
    if !(Millis::seconds(1)..=EXPIRES_MAX).contains(&span) {
        let message = format!("{span} is out of range; use 1s to {EXPIRES_MAX}");
        return Err(Refusal::Invalid { what: "expires_in", message }.into());
    }
    Ok(Duration::from_millis(span.0))
}

fn request(signed: PresignedRequest) -> SignedRequest {
    let PresignedRequest { method, url, headers } = signed;
    let headers = headers.into_iter().collect();
    SignedRequest { method: method.to_string(), url, headers, head: None, head_bytes: None }
}

/// Sign a request to upload a chunk directly to S3.
///
/// The client sends `head` and then the data as one body, and then adopts the chunk.
#[utoipa::path(post, path = "/v1/buffers/{id}/chunks/{n}/sign_put", operation_id = "sign_put_chunk", tag = "buffers", security(("token" = ["buffer:write or the lease of an item"])),
    params(("id" = String, Path), ("n" = u32, Path)), request_body = SignPut,
    responses(
        (status = 200, description = "The signed request.", body = SignedRequest),
        (status = 409, description = "The buffer has another writer, or is complete or failed."),
        (status = 422, description = "Buffers are stored in a directory, not in S3."),
    ))]
pub(crate) async fn put(
    State(app): State<App>,
    _: NoQuery,
    respond: Responder,
    BufferPath(id): BufferPath,
    ChunkPath(n): ChunkPath,
    DecodedBody(body, ..): DecodedBody<SignPut>,
) -> Result<Response, ProblemResponse> {
    let (writer, expires_in) = (writer(&body.writer)?, expires_in(body.expires_in)?);
    let (hash, chain) = (body.hash.into_domain("hash")?, body.chain.into_domain("chain")?);
    if !(1..=CHUNK_BYTES_MAX as u64).contains(&body.length) {
        let message = format!("{} is out of range; use 1 to {CHUNK_BYTES_MAX}", body.length);
        return Err(Refusal::Invalid { what: "length", message }.into());
    }
    let signed = writable(&app, &id).await?.sign_chunk_put(&id, writer, n, body.length, expires_in).await?;
    let header =
        ChunkHeader { n, length: body.length, put_at_ms: app.now().0, writer: writer.mark(), hash, chain };
    respond.with(&SignedRequest { head: Some(header.encode().to_vec().into()), ..request(signed) })
}

/// Sign a request to download a chunk directly from S3.
///
/// The body starts with `head_bytes` bytes of header. The data follows.
#[utoipa::path(post, path = "/v1/buffers/{id}/chunks/{n}/sign_get", operation_id = "sign_get_chunk", tag = "buffers", security(("token" = ["buffer:read or the lease of an item"])),
    params(("id" = String, Path), ("n" = u32, Path)), request_body = SignGet,
    responses(
        (status = 200, description = "The signed request.", body = SignedRequest),
        (status = 422, description = "Buffers are stored in a directory, not in S3."),
    ))]
pub(crate) async fn get(
    State(app): State<App>,
    _: NoQuery,
    respond: Responder,
    BufferPath(id): BufferPath,
    ChunkPath(n): ChunkPath,
    DecodedBody(body, ..): DecodedBody<SignGet>,
) -> Result<Response, ProblemResponse> {
    let expires_in = expires_in(body.expires_in)?;
    let signed = readable(&app, &id).await?.sign_chunk_get(&id, n, expires_in).await?;
    respond.with(&SignedRequest { head_bytes: Some(CHUNK_HEADER_LEN as u32), ..request(signed) })
}

/// Adopt a chunk that was uploaded directly to S3. From then on readers see it.
#[utoipa::path(post, path = "/v1/buffers/{id}/chunks/{n}/adopt", operation_id = "adopt_chunk", tag = "buffers", security(("token" = ["buffer:write or the lease of an item"])),
    params(("id" = String, Path), ("n" = u32, Path)), request_body = AdoptChunk,
    responses(
        (status = 204, description = "Adopted."),
        (status = 409, description = "The chunk is missing or does not continue the hash chain; or the buffer has another writer, or is complete or failed."),
        (status = 422, description = "The data does not match the hash, or buffers are stored in a directory."),
    ))]
pub(crate) async fn adopt(
    State(app): State<App>,
    _: NoQuery,
    BufferPath(id): BufferPath,
    ChunkPath(n): ChunkPath,
    DecodedBody(body, ..): DecodedBody<AdoptChunk>,
) -> Result<Response, ProblemResponse> {
    let (writer, check_data) = (writer(&body.writer)?, body.check_data.unwrap_or(true));
    writable(&app, &id).await?;
    storage(&app)?.adopt_chunk(&id, writer, n, check_data, app.now().0).await?;
    Ok(StatusCode::NO_CONTENT.into_response())
}
