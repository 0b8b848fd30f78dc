//! Server-sent events: an answer that goes on, line by line, for as long as its reader keeps up.

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
/// Whoever is between the two keeps a connection open that says something now and then.
pub(crate) const SIGN_OF_LIFE: Duration = Duration::from_secs(15);
/// For what is said to get on its way: who takes nothing for so long is not there any more.
const SEND_LIMIT: Duration = Duration::from_secs(60);
/// Proxies that gather answers would hold events back.
const BUFFERING: HeaderName = HeaderName::from_static("x-accel-buffering");

/// Whether a caller wants events, or would take them: who names another format does not.
pub(crate) fn is_wanted(headers: &HeaderMap) -> bool {
    let accepted = headers.get(ACCEPT).and_then(|value| value.to_str().ok()).unwrap_or("*/*");
    let names = || accepted.split(',').map(|one| one.split(';').next().unwrap_or_default().trim());
    names().any(|name| name.eq_ignore_ascii_case(EVENT_STREAM))
        || !names().any(|name| towline_api::Format::of(name).is_some())
}

/// `unwelcome`: when its reader may not go on. Whether a reader takes anything or not, it ends then, or when it took nothing for
/// long: a body that nobody reads is asked for nothing, so somebody else must notice.
pub(crate) fn response(
    events: impl Stream<Item = Bytes> + Send + 'static,
    unwelcome: impl Future<Output = ()> + Send + 'static,
) -> Response {
    let (give, take) = mpsc::channel(1);
    tokio::spawn(async move {
        tokio::select! {
            () = say(events, &give) => {}
            () = unwelcome => {}
            () = give.closed() => {}
        }
    });
    let events = stream::unfold(take, |mut take| async move { Some((take.recv().await?, take)) });
    let headers = [
        (CONTENT_TYPE, HeaderValue::from_static(EVENT_STREAM)),
        (CACHE_CONTROL, HeaderValue::from_static("no-store")),
        (BUFFERING, HeaderValue::from_static("no")),
    ];
    (headers, Body::from_stream(events.map(Ok::<Bytes, Infallible>))).into_response()
}

async fn say(events: impl Stream<Item = Bytes>, give: &mpsc::Sender<Bytes>) {
    let mut events = pin!(events);
    while let Some(said) = events.next().await {
        if !matches!(tokio::time::timeout(SEND_LIMIT, give.send(said)).await, Ok(Ok(()))) {
            return;
        }
    }
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

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "tests")]
mod tests {
    use super::*;
    use http_body_util::BodyExt;
    use std::future::pending;
    use std::sync::Arc;

    /// A stream that goes on, and what lives as long as it does.
    fn endless() -> (impl Stream<Item = Bytes> + Send + 'static, Arc<()>) {
        let held = Arc::new(());
        let place = held.clone();
        let events = stream::repeat_with(move || {
            let _held = &place;
            Bytes::from_static(b"x")
        });
        (events, held)
    }

    async fn is_let_go(held: &Arc<()>) {
        let gone = async {
            while Arc::strong_count(held) > 1 {
                tokio::time::sleep(Duration::from_secs(1)).await;
            }
        };
        tokio::time::timeout(10 * SEND_LIMIT, gone).await.unwrap();
    }

    #[tokio::test(start_paused = true)]
    async fn who_takes_nothing_does_not_keep_its_place() {
        let (events, held) = endless();
        let response = response(events, pending());
        is_let_go(&held).await;
        // What was on its way is whole, and nothing follows.
        let mut body = response.into_body();
        while let Some(frame) = body.frame().await {
            assert_eq!(frame.unwrap().into_data().unwrap(), "x");
        }
    }

    #[tokio::test(start_paused = true)]
    async fn who_may_not_go_on_is_let_go_whether_it_reads_or_not() {
        let (events, held) = endless();
        let _unread = response(events, std::future::ready(()));
        tokio::time::timeout(SEND_LIMIT / 2, is_let_go(&held)).await.unwrap();
    }

    #[tokio::test(start_paused = true)]
    async fn who_goes_away_is_let_go() {
        let held = Arc::new(());
        let place = held.clone();
        let silent = stream::once(async move {
            let _place = place;
            pending::<Bytes>().await
        });
        drop(response(silent, pending()));
        tokio::time::timeout(SEND_LIMIT / 2, is_let_go(&held)).await.unwrap();
    }
}
