//! A buffer as one stream of bytes, for programs that know nothing of chunks: curl, browsers.

use super::super::receive::check_wait;
use super::chunks::OCTETS;
use super::range::Asked;
use super::to_read;
use crate::app::App;
use crate::path::BufferPath;
use crate::query::Query;
use crate::refuse::Refused;
use axum::body::Body;
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
use towline_api::{Code, Problem, Span, WAIT_MAX};
use towline_buffers::BufferError;

/// Why a stream was cut short.
type Broken = Box<dyn std::error::Error + Send + Sync>;

/// The bytes of a buffer, or with `Range` some of them. While it is being written they come as they are written; a
/// stream that breaks off was not whole.
#[utoipa::path(get, path = "/v1/buffers/{id}/content", operation_id = "read_buffer", tag = "buffers", security(("token" = ["buffer:read"])),
    params(
        ("id" = String, Path),
        ("Range" = Option<String>, Header, description = "`bytes=` and one range"),
        ("wait" = Option<Span>, Query, description = "How long to wait for each piece of a buffer that is being written: 5m, and no longer"),
    ),
    responses(
        (status = 200, description = "All of it.", body = Vec<u8>, content_type = "application/octet-stream"),
        (status = 206, description = "The range.", body = Vec<u8>, content_type = "application/octet-stream"),
        (status = 404, description = "There is no such buffer.", body = Problem, content_type = "application/problem+json"),
        (status = 409, description = "It failed, or the range is not there yet.", body = Problem, content_type = "application/problem+json"),
        (status = 416, description = "The buffer is complete and has nothing in the range.", body = Problem, content_type = "application/problem+json"),
    ))]
pub(crate) async fn get(
    State(app): State<App>,
    BufferPath(id): BufferPath,
    headers: HeaderMap,
    mut query: Query,
) -> Result<Response, Refused> {
    let wait =
        query.span("wait")?.map_or(Ok(Duration::from_millis(WAIT_MAX.0)), |wait| check_wait("wait", wait))?;
    query.end()?;
    let buffers = to_read(&app, &id).await?;
    let shown = buffers.show(&id, app.now().0).await?;
    let bytes = shown.position.bytes;
    let complete = match shown.state {
        towline_buffers::BufferState::Failed { reason, .. } => {
            return Err(BufferError::Failed { id, reason }.into());
        }
        towline_buffers::BufferState::Complete { .. } => true,
        _ => false,
    };
    let tag = complete.then(|| format!("\"{}\"", shown.position.chain.to_hex()));
    let asked = asked(&headers, tag.as_deref());
    let range = match asked {
        None => 0..u64::MAX,
        Some(asked) if !complete => asked.of_unfinished(&id, bytes)?,
        Some(asked) => match asked.of_complete(bytes) {
            Some(range) => range,
            None => return Ok(nothing_there(&id, bytes)),
        },
    };
    let length = match asked {
        Some(_) => Some(range.end - range.start),
        None => complete.then_some(bytes),
    };
    let mut answer = HeaderMap::new();
    let mut set = |name: HeaderName, value: String| {
        // Ids, numbers and hexadecimal digits can always be written.
        if let Ok(value) = HeaderValue::try_from(value) {
            answer.insert(name, value);
        }
    };
    set(CONTENT_TYPE, OCTETS.to_owned());
    // Whatever somebody stored here: no browser shall run it as a page of this server.
    set(CONTENT_DISPOSITION, format!("attachment; filename=\"{id}\""));
    set(X_CONTENT_TYPE_OPTIONS, "nosniff".to_owned());
    set(CONTENT_SECURITY_POLICY, "default-src 'none'; sandbox".to_owned());
    set(CACHE_CONTROL, "no-store".to_owned());
    set(ACCEPT_RANGES, "bytes".to_owned());
    tag.into_iter().for_each(|tag| set(ETAG, tag));
    length.into_iter().for_each(|length| set(CONTENT_LENGTH, length.to_string()));
    let mut status = StatusCode::OK;
    if asked.is_some() {
        status = StatusCode::PARTIAL_CONTENT;
        let total = if complete { bytes.to_string() } else { "*".to_owned() };
        set(CONTENT_RANGE, format!("bytes {}-{}/{total}", range.start, range.end - 1));
    }
    let pieces = buffers.read(&id, range, wait, app.now().0).await?;
    Ok((status, answer, Body::from_stream(until_stopped(&app, pieces))).into_response())
}

/// A range of another content than is there is answered with everything.
fn asked(headers: &HeaderMap, tag: Option<&str>) -> Option<Asked> {
    let text = |name| headers.get(name).and_then(|value: &HeaderValue| value.to_str().ok());
    let asked = Asked::parse(text(RANGE)?)?;
    (!headers.contains_key(IF_RANGE) || text(IF_RANGE) == tag).then_some(asked)
}

fn nothing_there(id: &str, bytes: u64) -> Response {
    let detail = format!("buffer {id:?} has {bytes} bytes, none of them in this range");
    let mut response = Refused::new(Code::RangeNotSatisfiable, detail).into_response();
    if let Ok(value) = HeaderValue::try_from(format!("bytes */{bytes}")) {
        response.headers_mut().insert(CONTENT_RANGE, value);
    }
    response
}

/// Cut, not ended, when the server stops: what is not whole must not look so.
fn until_stopped(
    app: &App,
    pieces: BoxStream<'static, Result<Bytes, BufferError>>,
) -> impl Stream<Item = Result<Bytes, Broken>> + Send + 'static {
    let stopped = app.stopped().map(|()| ()).boxed();
    stream::unfold(Some((pieces, stopped)), |state| async move {
        let (mut pieces, mut stopped) = state?;
        tokio::select! {
            biased;
            piece = pieces.next() => match piece? {
                Ok(piece) => Some((Ok(piece), Some((pieces, stopped)))),
                Err(error) => {
                    tracing::info!("a reader was cut off: {error}");
                    Some((Err(error.into()), None))
                }
            },
            () = &mut stopped => Some((Err("the server is stopping".into()), None)),
        }
    })
}
