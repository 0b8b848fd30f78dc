//! The requests in progress on one connection, until the end of their responses.

use super::request_tasks::{part_awaited, part_taken};
use axum::body::Body;
use bytes::Bytes;
use http_body::{Frame, SizeHint};
use std::any::Any;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::task::{Context, Poll};

#[derive(Debug, Clone, Default)]
pub(super) struct OpenRequests(Arc<AtomicUsize>);

/// A request in progress.
#[derive(Debug)]
pub(super) struct OpenRequest(Arc<AtomicUsize>);

impl OpenRequests {
    pub(super) fn begin(&self) -> OpenRequest {
        self.0.fetch_add(1, Ordering::Relaxed);
        OpenRequest(Arc::clone(&self.0))
    }

    pub(super) fn any(&self) -> bool {
        self.0.load(Ordering::Relaxed) > 0
    }
}

impl Drop for OpenRequest {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }
}

/// What a response holds until it was sent, as one of its extensions.
#[derive(Clone)]
pub(crate) struct Held {
    _what: Arc<dyn Any + Send + Sync>,
}

impl Held {
    pub(crate) fn new(what: Arc<impl Any + Send + Sync>) -> Held {
        Held { _what: what }
    }
}

/// A response body that keeps its request in progress.
pub(super) struct OpenBody {
    pub(super) body: Body,
    pub(super) _request: OpenRequest,
    pub(super) _held: Option<Held>,
}

impl http_body::Body for OpenBody {
    type Data = Bytes;
    type Error = axum::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, axum::Error>>> {
        let polled = Pin::new(&mut self.body).poll_frame(context);
        match &polled {
            Poll::Ready(Some(Ok(frame))) => part_taken(frame.data_ref().map_or(0, Bytes::len)),
            Poll::Ready(_) => {}
            Poll::Pending => part_awaited(),
        }
        polled
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}
