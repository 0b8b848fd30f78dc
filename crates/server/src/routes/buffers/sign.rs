//! Chunks that clients move to and from the storage themselves, past this server.

use super::{storage, to_read, to_write, writer};
use crate::answer::Reply;
use crate::app::App;
use crate::body::Wire;
use crate::path::{BufferPath, ChunkPath};
use crate::query::NoQuery;
use crate::refuse::Refused;
use axum::extract::State;
use axum::response::{IntoResponse, Response};
use http::StatusCode;
use std::time::Duration;
use towline_api::buffer::{AdoptChunk, SignGet, SignPut, SignedRequest};
use towline_api::{CHUNK_BYTES_MAX, Problem, Span};
use towline_buffers::{HEADER_LEN, Header, Signed};
use towline_domain::{Millis, Refusal};

const EXPIRES_DEFAULT: Millis = Millis::minutes(15);
const EXPIRES_MAX: Millis = Millis::minutes(60);

fn expires_in(asked: Option<Span>) -> Result<Duration, Refused> {
    let span = asked.map_or(Ok(EXPIRES_DEFAULT), |span| span.into_domain("expires_in"))?;
    if !(Millis::seconds(1)..=EXPIRES_MAX).contains(&span) {
        let message = format!("{span} is out of range; use 1s to {EXPIRES_MAX}");
        return Err(Refusal::Invalid { what: "expires_in", message }.into());
    }
    Ok(Duration::from_millis(span.0))
}

fn request(signed: Signed) -> SignedRequest {
    let Signed { method, url, headers } = signed;
    let headers = headers.into_iter().collect();
    SignedRequest { method: method.to_string(), url, headers, head: None, head_bytes: None }
}

/// A request with which a chunk is put into the storage itself: `head`, then the data. Then it must be adopted.
#[utoipa::path(post, path = "/v1/buffers/{id}/chunks/{n}/sign_put", operation_id = "sign_put_chunk", tag = "buffers", security(("token" = ["buffer:write"])),
    params(("id" = String, Path), ("n" = u32, Path)), request_body = SignPut,
    responses(
        (status = 200, description = "The request.", body = SignedRequest),
        (status = 404, description = "There is no such buffer.", body = Problem, content_type = "application/problem+json"),
        (status = 409, description = "The buffer is another's or has ended.", body = Problem, content_type = "application/problem+json"),
        (status = 422, description = "Buffers are in a directory.", body = Problem, content_type = "application/problem+json"),
    ))]
pub(crate) async fn put(
    State(app): State<App>,
    _: NoQuery,
    reply: Reply,
    BufferPath(id): BufferPath,
    ChunkPath(n): ChunkPath,
    Wire(body): Wire<SignPut>,
) -> Result<Response, Refused> {
    let (writer, expires_in) = (writer(&body.writer)?, expires_in(body.expires_in)?);
    let (hash, chain) = (body.hash.into_domain("hash")?, body.chain.into_domain("chain")?);
    if !(1..=CHUNK_BYTES_MAX as u64).contains(&body.length) {
        let message = format!("{} is out of range; use 1 to {CHUNK_BYTES_MAX}", body.length);
        return Err(Refusal::Invalid { what: "length", message }.into());
    }
    let signed = to_write(&app, &id).await?.sign_chunk_put(&id, writer, n, expires_in).await?;
    let header =
        Header { n, length: body.length, put_at_ms: app.now().0, writer: writer.mark(), hash, chain };
    reply.with(&SignedRequest { head: Some(header.encode().to_vec().into()), ..request(signed) })
}

/// A request with which a chunk is got from the storage itself: `head_bytes`, then the data.
#[utoipa::path(post, path = "/v1/buffers/{id}/chunks/{n}/sign_get", operation_id = "sign_get_chunk", tag = "buffers", security(("token" = ["buffer:read"])),
    params(("id" = String, Path), ("n" = u32, Path)), request_body = SignGet,
    responses(
        (status = 200, description = "The request.", body = SignedRequest),
        (status = 404, description = "There is no such buffer.", body = Problem, content_type = "application/problem+json"),
        (status = 422, description = "Buffers are in a directory.", body = Problem, content_type = "application/problem+json"),
    ))]
pub(crate) async fn get(
    State(app): State<App>,
    _: NoQuery,
    reply: Reply,
    BufferPath(id): BufferPath,
    ChunkPath(n): ChunkPath,
    Wire(body): Wire<SignGet>,
) -> Result<Response, Refused> {
    let expires_in = expires_in(body.expires_in)?;
    let signed = to_read(&app, &id).await?.sign_chunk_get(&id, n, expires_in).await?;
    reply.with(&SignedRequest { head_bytes: Some(HEADER_LEN as u32), ..request(signed) })
}

/// Takes in a chunk that was put into the storage itself; from then on it is read.
#[utoipa::path(post, path = "/v1/buffers/{id}/chunks/{n}/adopt", operation_id = "adopt_chunk", tag = "buffers", security(("token" = ["buffer:write"])),
    params(("id" = String, Path), ("n" = u32, Path)), request_body = AdoptChunk,
    responses(
        (status = 204, description = "It is taken in."),
        (status = 404, description = "There is no such buffer.", body = Problem, content_type = "application/problem+json"),
        (status = 409, description = "It is not there or does not fit, or the buffer is another's or has ended.", body = Problem, content_type = "application/problem+json"),
        (status = 422, description = "Its data has another hash, or buffers are in a directory.", body = Problem, content_type = "application/problem+json"),
    ))]
pub(crate) async fn adopt(
    State(app): State<App>,
    _: NoQuery,
    BufferPath(id): BufferPath,
    ChunkPath(n): ChunkPath,
    Wire(body): Wire<AdoptChunk>,
) -> Result<Response, Refused> {
    let (writer, check_data) = (writer(&body.writer)?, body.check_data.unwrap_or(true));
    to_write(&app, &id).await?;
    storage(&app)?.adopt_chunk(&id, writer, n, check_data, app.now().0).await?;
    Ok(StatusCode::NO_CONTENT.into_response())
}
