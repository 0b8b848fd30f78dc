//! Server-sent events: an answer that goes on, line by line, for as long as its reader keeps up.

use axum::body::Body;
use axum::response::{IntoResponse, Response};
use bytes::Bytes;
use futures::{Stream, StreamExt};
use http::header::{ACCEPT, CACHE_CONTROL, CONTENT_TYPE};
use http::{HeaderMap, HeaderName, HeaderValue};
use serde::Serialize;
use std::convert::Infallible;
use std::time::Duration;

pub(crate) const EVENT_STREAM: &str = "text/event-stream";
/// Whoever is between the two keeps a connection open that says something now and then.
pub(crate) const SIGN_OF_LIFE: Duration = Duration::from_secs(15);
/// Proxies that gather answers would hold events back.
const BUFFERING: HeaderName = HeaderName::from_static("x-accel-buffering");

/// Whether a caller wants events, or would take them: who names another format does not.
pub(crate) fn is_wanted(headers: &HeaderMap) -> bool {
    let accepted = headers.get(ACCEPT).and_then(|value| value.to_str().ok()).unwrap_or("*/*");
    let names = || accepted.split(',').map(|one| one.split(';').next().unwrap_or_default().trim());
    names().any(|name| name.eq_ignore_ascii_case(EVENT_STREAM))
        || !names().any(|name| towline_api::Format::of(name).is_some())
}

pub(crate) fn response(events: impl Stream<Item = Bytes> + Send + 'static) -> Response {
    let headers = [
        (CONTENT_TYPE, HeaderValue::from_static(EVENT_STREAM)),
        (CACHE_CONTROL, HeaderValue::from_static("no-store")),
        (BUFFERING, HeaderValue::from_static("no")),
    ];
    (headers, Body::from_stream(events.map(Ok::<Bytes, Infallible>))).into_response()
}

/// As JSON, in which no line ends. Appended, so that many are sent as one.
pub(crate) fn event(out: &mut Vec<u8>, id: Option<&str>, name: &str, data: &impl Serialize) {
    if let Some(id) = id {
        line(out, "id", id.as_bytes());
    }
    line(out, "event", name.as_bytes());
    // Our own words always have a JSON form.
    line(out, "data", &serde_json::to_vec(data).unwrap_or_default());
    out.push(b'\n');
}

/// Nothing happened. With an id: a reader that comes back goes on from there.
pub(crate) fn sign_of_life(out: &mut Vec<u8>, id: Option<&str>) {
    out.extend_from_slice(b": still here\n");
    if let Some(id) = id {
        line(out, "id", id.as_bytes());
    }
    out.push(b'\n');
}

fn line(out: &mut Vec<u8>, field: &str, value: &[u8]) {
    out.extend_from_slice(field.as_bytes());
    out.extend_from_slice(b": ");
    out.extend_from_slice(value);
    out.push(b'\n');
}
