//! The tasks of HTTP/2 requests.
//!
//! For HTTP/2 the library takes a part of a response, and then waits without a limit until the client makes room for it. A client that
//! makes no room for too long loses the response: its task ends, and the library resets the stream. The other requests of the connection
//! continue.

use super::guarded_stream::{STALL_BYTES, STALL_TIMEOUT};
use super::listen::SEND_BYTES_MAX;
use hyper::rt::Executor;
use std::cell::Cell;
use std::pin::{Pin, pin};
use std::task::Poll;
use std::time::Duration;
use tokio::time::{Sleep, sleep};

tokio::task_local! {
    static PROGRESS: Cell<Progress>;
}

/// How the response to the request of a task proceeds.
#[derive(Debug, Clone, Copy, Default)]
struct Progress {
    /// Parts that the library has taken.
    parts: u64,
    /// The size of the last part, and of the one before, which the client may still have to read too.
    last: usize,
    before: usize,
    /// Whether the library has asked for a part that the server does not have yet.
    waits_for_server: bool,
}

/// The library took a part of the response.
pub(super) fn part_taken(bytes: usize) {
    change(|Progress { parts, last, .. }| Progress {
        parts: parts + 1,
        last: bytes,
        before: last,
        waits_for_server: false,
    });
}

/// The library waits for the next part of the response.
pub(super) fn part_awaited() {
    change(|progress| Progress { waits_for_server: true, ..progress });
}

fn change(change: impl FnOnce(Progress) -> Progress) {
    // HTTP/1 has no such task. There the library waits in a write, which has a limit.
    let _ = PROGRESS.try_with(|progress| progress.set(change(progress.get())));
}

/// Runs each request of an HTTP/2 connection as a task.
#[derive(Debug, Clone, Copy)]
pub(super) struct RequestTasks;

impl<F: Future<Output: Send> + Send + 'static> Executor<F> for RequestTasks {
    fn execute(&self, request: F) {
        tokio::spawn(PROGRESS.scope(Cell::default(), until_stalled(request)));
    }
}

/// Ends early if the client does not read the response.
async fn until_stalled(request: impl Future) {
    let mut request = pin!(request);
    let mut limit: Option<(u64, Pin<Box<Sleep>>)> = None;
    std::future::poll_fn(|context| {
        if request.as_mut().poll(context).is_ready() {
            return Poll::Ready(());
        }
        let progress = PROGRESS.with(Cell::get);
        if progress.parts == 0 || progress.waits_for_server {
            limit = None;
            return Poll::Pending;
        }
        if limit.as_ref().is_none_or(|(parts, _)| *parts != progress.parts) {
            limit = Some((progress.parts, Box::pin(sleep(time_to_read(progress)))));
        }
        match &mut limit {
            Some((_, limit)) => limit.as_mut().poll(context),
            None => Poll::Pending,
        }
    })
    .await;
}

fn time_to_read(progress: Progress) -> Duration {
    // The library holds no more than this that the client has not read.
    let bytes = (progress.last + progress.before).min(SEND_BYTES_MAX);
    STALL_TIMEOUT * u32::try_from(bytes.div_ceil(STALL_BYTES).max(1)).unwrap_or(u32::MAX)
}
