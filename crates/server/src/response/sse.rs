//! Server-sent events.

use axum::body::Body;
use axum::response::{IntoResponse, Response};
use bytes::Bytes;
use futures::{Stream, StreamExt, stream};
use http::header::{ACCEPT, CACHE_CONTROL, CONTENT_TYPE};
use http::{HeaderMap, HeaderName, HeaderValue};
use serde::Serialize;
use std::convert::Infallible;
use std::pin::pin;
use std::time::Duration;
use tokio::sync::mpsc;

pub(crate) const EVENT_STREAM: &str = "text/event-stream";
/// Proxies close a connection that is silent for too long, so an idle stream sends a comment this often.
pub(crate) const KEEP_ALIVE: Duration = Duration::from_secs(15);
/// The stream ends if the client reads nothing for this long.
const SEND_LIMIT: Duration = Duration::from_secs(60);
/// Tells proxies not to buffer the response, which would delay events.
const BUFFERING: HeaderName = HeaderName::from_static("x-accel-buffering");

/// Whether the client accepts server-sent events. It does not if it only names other formats.
pub(crate) fn is_accepted(headers: &HeaderMap) -> bool {
    let accepted = headers.get(ACCEPT).and_then(|value| value.to_str().ok()).unwrap_or("*/*");
    let names = || accepted.split(',').map(|one| one.split(';').next().unwrap_or_default().trim());
    names().any(|name| name.eq_ignore_ascii_case(EVENT_STREAM))
        || !names().any(|name| towline_api::Format::of(name).is_some())
}

/// Streams events until `revoked` completes. A separate task watches for it, because hyper does not poll a body that the client
/// does not read.
pub(crate) fn response(
    events: impl Stream<Item = Bytes> + Send + 'static,
    revoked: impl Future<Output = ()> + Send + 'static,
) -> Response {
    let (sender, receiver) = mpsc::channel(1);
    tokio::spawn(async move {
        tokio::select! {
            () = forward(events, &sender) => {}
            () = revoked => {}
            () = sender.closed() => {}
        }
    });
    let events =
        stream::unfold(receiver, |mut receiver| async move { Some((receiver.recv().await?, receiver)) });
    let headers = [
        (CONTENT_TYPE, HeaderValue::from_static(EVENT_STREAM)),
        (CACHE_CONTROL, HeaderValue::from_static("no-store")),
        (BUFFERING, HeaderValue::from_static("no")),
    ];
    (headers, Body::from_stream(events.map(Ok::<Bytes, Infallible>))).into_response()
}

async fn forward(events: impl Stream<Item = Bytes>, sender: &mpsc::Sender<Bytes>) {
    let mut events = pin!(events);
    while let Some(bytes) = events.next().await {
        if !matches!(tokio::time::timeout(SEND_LIMIT, sender.send(bytes)).await, Ok(Ok(()))) {
            return;
        }
    }
}

/// Appends an event with JSON data, which contains no line breaks.
pub(crate) fn event(out: &mut Vec<u8>, id: Option<&str>, name: &str, data: &impl Serialize) {
    if let Some(id) = id {
        line(out, "id", id.as_bytes());
    }
    line(out, "event", name.as_bytes());
    // Cannot fail: wire types always have a JSON form.
    line(out, "data", &serde_json::to_vec(data).unwrap_or_default());
    out.push(b'\n');
}

/// Appends a comment. With an id, a client that reconnects resumes after it.
pub(crate) fn keep_alive(out: &mut Vec<u8>, id: Option<&str>) {
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

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "tests")]
mod tests {
    use super::*;
    use http_body_util::BodyExt;
    use std::future::pending;
    use std::sync::Arc;

    /// An endless stream, and a value that lives as long as the stream.
    fn endless() -> (impl Stream<Item = Bytes> + Send + 'static, Arc<()>) {
        let alive = Arc::new(());
        let inner = alive.clone();
        let events = stream::repeat_with(move || {
            let _inner = &inner;
            Bytes::from_static(b"x")
        });
        (events, alive)
    }

    async fn wait_until_dropped(alive: &Arc<()>) {
        let dropped = async {
            while Arc::strong_count(alive) > 1 {
                tokio::time::sleep(Duration::from_secs(1)).await;
            }
        };
        tokio::time::timeout(10 * SEND_LIMIT, dropped).await.unwrap();
    }

    #[tokio::test(start_paused = true)]
    async fn a_client_that_reads_nothing_loses_its_stream() {
        let (events, alive) = endless();
        let response = response(events, pending());
        wait_until_dropped(&alive).await;
        // The client still gets what was sent before, and nothing after it.
        let mut body = response.into_body();
        while let Some(frame) = body.frame().await {
            assert_eq!(frame.unwrap().into_data().unwrap(), "x");
        }
    }

    #[tokio::test(start_paused = true)]
    async fn a_revoked_stream_ends_even_if_the_client_does_not_read() {
        let (events, alive) = endless();
        let _unread = response(events, std::future::ready(()));
        tokio::time::timeout(SEND_LIMIT / 2, wait_until_dropped(&alive)).await.unwrap();
    }

    #[tokio::test(start_paused = true)]
    async fn a_stream_ends_when_the_client_disconnects() {
        let alive = Arc::new(());
        let inner = alive.clone();
        let silent = stream::once(async move {
            let _inner = inner;
            pending::<Bytes>().await
        });
        drop(response(silent, pending()));
        tokio::time::timeout(SEND_LIMIT / 2, wait_until_dropped(&alive)).await.unwrap();
    }
}
