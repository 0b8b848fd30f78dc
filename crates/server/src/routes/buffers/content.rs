//! Reading a buffer as one stream of bytes, for programs that do not know chunks, like curl and browsers.

use super::chunks::OCTETS;
use super::range::ByteRange;
use super::readable;
use crate::app::App;
use crate::request::{BodyMemory, BufferPath, Query};
use crate::response::{ProblemResponse, streamed_within};
use axum::extract::State;
use axum::response::{IntoResponse, Response};
use bytes::Bytes;
use futures::stream::{self, BoxStream, Stream};
use futures::{FutureExt, StreamExt};
use http::header::{
    ACCEPT_RANGES, CACHE_CONTROL, CONTENT_DISPOSITION, CONTENT_LENGTH, CONTENT_RANGE,
    CONTENT_SECURITY_POLICY, CONTENT_TYPE, ETAG, IF_RANGE, RANGE, X_CONTENT_TYPE_OPTIONS,
};
use http::{HeaderMap, HeaderName, HeaderValue, StatusCode};
use std::time::Duration;
use towline_api::{Code, Span, WAIT_MAX};
use towline_buffers::{BufferError, CHUNK_BYTES_MAX};

/// Why a stream ended early.
type StreamError = Box<dyn std::error::Error + Send + Sync>;

/// Read a buffer, or a range of it.
///
/// While the buffer is being written, the response follows its writer. If the buffer fails, the response ends with an error.
#[utoipa::path(get, path = "/v1/buffers/{id}/content", operation_id = "read_buffer", tag = "buffers", security(("token" = ["buffer:read or the lease of an item"])),
    params(
        ("id" = String, Path),
        ("Range" = Option<String>, Header, description = "One range of bytes, like `bytes=0-99`"),
        ("wait" = Option<Span>, Query, description = "How long to wait for each part of a buffer that is being written, up to 5m. Default: 5m"),
    ),
    responses(
        (status = 200, description = "The whole buffer.", body = Vec<u8>, content_type = "application/octet-stream"),
        (status = 206, description = "The range.", body = Vec<u8>, content_type = "application/octet-stream"),
        (status = 409, description = "The buffer failed, or the range is not written yet."),
        (status = 416, description = "The range is beyond the end of the buffer."),
    ))]
pub(crate) async fn get(
    State(app): State<App>,
    BufferPath(id): BufferPath,
    headers: HeaderMap,
    mut query: Query,
) -> Result<Response, ProblemResponse> {
    let wait = query.wait("wait", Duration::from_millis(WAIT_MAX.0))?;
    query.end()?;
    let buffers = readable(&app, &id).await?;
    let buffer = buffers.show(&id, app.now().0).await?;
    let bytes = buffer.position.bytes;
    let complete = match buffer.state {
        towline_buffers::BufferState::Failed { reason, .. } => {
            return Err(BufferError::Failed { id, reason }.into());
        }
        towline_buffers::BufferState::Complete { .. } => true,
        _ => false,
    };
    let tag = complete.then(|| format!("\"{}\"", buffer.position.chain.to_hex()));
    let requested = requested_range(&headers, tag.as_deref());
    let range = match requested {
        None => 0..u64::MAX,
        Some(requested) if !complete => requested.of_unfinished(&id, bytes)?,
        Some(requested) => match requested.of_complete(bytes) {
            Some(range) => range,
            None => return Ok(range_not_satisfiable(&id, bytes)),
        },
    };
    let length = match requested {
        Some(_) => Some(range.end - range.start),
        None => complete.then_some(bytes),
    };
    let mut response_headers = HeaderMap::new();
    let mut set = |name: HeaderName, value: String| {
        // Cannot fail: ids, numbers and hexadecimal digits are valid header values.
        if let Ok(value) = HeaderValue::try_from(value) {
            response_headers.insert(name, value);
        }
    };
    set(CONTENT_TYPE, OCTETS.to_owned());
    // A client may have stored a page with scripts. Browsers must not run it as a page of this server.
    set(CONTENT_DISPOSITION, format!("attachment; filename=\"{id}\""));
    set(X_CONTENT_TYPE_OPTIONS, "nosniff".to_owned());
    set(CONTENT_SECURITY_POLICY, "default-src 'none'; sandbox".to_owned());
    set(CACHE_CONTROL, "no-store".to_owned());
    set(ACCEPT_RANGES, "bytes".to_owned());
    tag.into_iter().for_each(|tag| set(ETAG, tag));
    length.into_iter().for_each(|length| set(CONTENT_LENGTH, length.to_string()));
    let mut status = StatusCode::OK;
    if requested.is_some() {
        status = StatusCode::PARTIAL_CONTENT;
        let total = if complete { bytes.to_string() } else { "*".to_owned() };
        set(CONTENT_RANGE, format!("bytes {}-{}/{total}", range.start, range.end - 1));
    }
    let parts = buffers.read(&id, range, wait, app.now().0).await?;
    let chunk_max = usize::try_from(CHUNK_BYTES_MAX).unwrap_or(usize::MAX);
    let first = match complete {
        true => usize::try_from(bytes).unwrap_or(usize::MAX).min(chunk_max),
        // The writer may take its time, and a reader that waits for it holds nothing.
        false => 0,
    };
    let body = streamed_within(BodyMemory::new(&app.send_room), first, until_stopped(&app, parts));
    Ok((status, response_headers, body).into_response())
}

/// The requested range. With `If-Range` and another content, the response is the whole buffer.
fn requested_range(headers: &HeaderMap, tag: Option<&str>) -> Option<ByteRange> {
    let text = |name| headers.get(name).and_then(|value: &HeaderValue| value.to_str().ok());
    let range = ByteRange::parse(text(RANGE)?)?;
    (!headers.contains_key(IF_RANGE) || text(IF_RANGE) == tag).then_some(range)
}

fn range_not_satisfiable(id: &str, bytes: u64) -> Response {
    let detail = format!("buffer {id:?} has {bytes} bytes, and none of them is in this range");
    let mut response = ProblemResponse::new(Code::RangeNotSatisfiable, detail).into_response();
    if let Ok(value) = HeaderValue::try_from(format!("bytes */{bytes}")) {
        response.headers_mut().insert(CONTENT_RANGE, value);
    }
    response
}

/// Ends the stream with an error when the server stops, so that the client does not take it for complete.
fn until_stopped(
    app: &App,
    parts: BoxStream<'static, Result<Bytes, BufferError>>,
) -> impl Stream<Item = Result<Bytes, StreamError>> + Send + 'static {
    let stopped = app.stopped().map(|()| ()).boxed();
    stream::unfold(Some((parts, stopped)), |state| async move {
        let (mut parts, mut stopped) = state?;
        tokio::select! {
            biased;
            part = parts.next() => match part? {
                Ok(part) => Some((Ok(part), Some((parts, stopped)))),
                Err(error) => {
                    tracing::info!("ended the response to the reader of a buffer early: {error}");
                    Some((Err(error.into()), None))
                }
            },
            () = &mut stopped => Some((Err("the server is stopping".into()), None)),
        }
    })
}
