//! Streamed response bodies. The HTTP library does not poll a body that the client does not read, so a separate task produces it.
//! If the client reads nothing for [`SEND_LIMIT`], the task ends and releases what it holds. Large bodies that are in memory already
//! are sent in pieces by such a task, too.

use axum::body::Body;
use bytes::Bytes;
use futures::{Stream, StreamExt, stream};
use http_body::Body as _;
use http_body_util::BodyExt;
use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;
use tokio::sync::mpsc;

/// The body ends with an error if the client reads nothing for this long.
const SEND_LIMIT: Duration = Duration::from_secs(30);

/// A body that is not larger is given to the HTTP library as a whole.
const PIECE_BYTES: usize = 64 << 10;

type PartError = Box<dyn std::error::Error + Send + Sync>;
type Part = Result<Bytes, PartError>;

pub(crate) fn streamed<E: Into<PartError> + Send + 'static>(
    parts: impl Stream<Item = Result<Bytes, E>> + Send + 'static,
) -> Body {
    let (sender, receiver) = mpsc::channel(1);
    let stalled = Arc::new(AtomicBool::new(false));
    let set_stalled = Arc::clone(&stalled);
    tokio::spawn(async move {
        tokio::select! {
            is_stalled = forward(parts, &sender) => set_stalled.store(is_stalled, Ordering::Release),
            () = sender.closed() => {}
        }
    });
    Body::from_stream(stream::unfold(Some((receiver, stalled)), |state| async move {
        let (mut receiver, stalled) = state?;
        match receiver.recv().await {
            Some(part) => Some((part, Some((receiver, stalled)))),
            // An error, so that the client does not take the body for complete.
            None if stalled.load(Ordering::Acquire) => {
                Some((Err("the client read nothing for too long".into()), None))
            }
            None => None,
        }
    }))
}

/// Sends a large body in pieces, so that a client that does not read makes the server hold one piece of it at most. Headers with the
/// length stay as they are.
pub(crate) fn in_pieces(body: Body) -> Body {
    let is_large = body.size_hint().exact().is_some_and(|bytes| bytes > PIECE_BYTES as u64);
    if !is_large {
        return body;
    }
    streamed(stream::unfold((body, Bytes::new()), |(mut body, mut rest)| async move {
        while rest.is_empty() {
            match body.frame().await? {
                // A body that is in memory has no other frames.
                Ok(frame) => rest = frame.into_data().unwrap_or_default(),
                Err(error) => return Some((Err(error), (body, rest))),
            }
        }
        let piece = rest.split_to(rest.len().min(PIECE_BYTES));
        // A copy: the piece would keep the whole body in memory.
        Some((Ok(Bytes::copy_from_slice(&piece)), (body, rest)))
    }))
}

/// Returns whether the client stopped reading.
async fn forward<E: Into<PartError>>(
    parts: impl Stream<Item = Result<Bytes, E>>,
    sender: &mpsc::Sender<Part>,
) -> bool {
    let mut parts = pin!(parts);
    loop {
        // Before the next part is read, so that one part is held at most.
        let place = match tokio::time::timeout(SEND_LIMIT, sender.reserve()).await {
            Ok(Ok(place)) => place,
            // The client disconnected.
            Ok(Err(_)) => return false,
            Err(_) => return true,
        };
        match parts.next().await {
            Some(part) => place.send(part.map_err(Into::into)),
            None => return false,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::convert::Infallible;

    /// Parts that know whether they are still held.
    fn parts(count: usize) -> (Arc<()>, impl Stream<Item = Result<Bytes, Infallible>> + Send + 'static) {
        let held = Arc::new(());
        let copy = Arc::clone(&held);
        let parts = stream::iter(0..count).map(move |_| {
            let _held = &copy;
            Ok(Bytes::from_static(b"part"))
        });
        (held, parts)
    }

    #[tokio::test(start_paused = true)]
    async fn a_body_that_is_not_read_releases_its_source_and_ends_with_an_error() {
        let (held, parts) = parts(10);
        let mut body = streamed(parts);
        assert_eq!(body.frame().await.unwrap().unwrap().into_data().unwrap(), "part");
        tokio::time::sleep(2 * SEND_LIMIT).await;
        assert_eq!(Arc::strong_count(&held), 1);
        assert!(body.collect().await.is_err());
    }

    #[tokio::test(start_paused = true)]
    async fn a_body_that_is_read_slowly_is_complete() {
        let (held, parts) = parts(10);
        let mut body = streamed(parts);
        let mut bytes = 0;
        while let Some(frame) = body.frame().await {
            bytes += frame.unwrap().into_data().unwrap().len();
            tokio::time::sleep(SEND_LIMIT / 2).await;
        }
        assert_eq!((bytes, Arc::strong_count(&held)), (40, 1));
    }

    #[tokio::test(start_paused = true)]
    async fn a_client_that_disconnects_releases_the_source() {
        let (held, waiting) = parts(1);
        let body = streamed(waiting.chain(stream::pending()));
        drop(body);
        tokio::time::sleep(Duration::from_millis(1)).await;
        assert_eq!(Arc::strong_count(&held), 1);
    }

    #[tokio::test(start_paused = true)]
    async fn a_large_body_that_is_not_read_is_released() {
        /// Memory that knows whether it is still held.
        struct Held {
            _memory: Arc<()>,
            content: Vec<u8>,
        }
        impl AsRef<[u8]> for Held {
            fn as_ref(&self) -> &[u8] {
                &self.content
            }
        }
        let content: Vec<u8> = (0..5 * PIECE_BYTES + 7).map(|n| (n / 1000) as u8).collect();
        let held = Arc::new(());
        let body =
            || Body::from(Bytes::from_owner(Held { _memory: Arc::clone(&held), content: content.clone() }));
        let read = in_pieces(body()).collect().await.unwrap().to_bytes();
        assert!(read == content && Arc::strong_count(&held) == 1);

        let mut unread = in_pieces(body());
        let first = unread.frame().await.unwrap().unwrap().into_data().unwrap();
        assert_eq!(first.len(), PIECE_BYTES);
        tokio::time::sleep(2 * SEND_LIMIT).await;
        assert_eq!(Arc::strong_count(&held), 1, "the server holds no more than pieces");
        assert!(unread.collect().await.is_err());
        assert_eq!(in_pieces(Body::from("small")).size_hint().exact(), Some(5));
    }
}
