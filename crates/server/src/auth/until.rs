//! A stream that ends with the token it was asked for with.

use super::registry::Holder;
use axum::body::Body;
use bytes::Bytes;
use http_body::{Frame, SizeHint};
use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

pub(super) struct Until {
    body: Body,
    ended: Pin<Box<dyn Future<Output = ()> + Send>>,
    /// As long as somebody holds it, the token is asked about.
    _holder: Arc<Holder>,
}

impl Until {
    pub(super) fn new(body: Body, holder: Arc<Holder>) -> Until {
        Until { body, ended: Box::pin(holder.ended()), _holder: holder }
    }
}

impl http_body::Body for Until {
    type Data = Bytes;
    type Error = axum::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, axum::Error>>> {
        if self.ended.as_mut().poll(context).is_ready() {
            // Cut off, so that it is not taken for whole.
            let error = io::Error::new(io::ErrorKind::PermissionDenied, "the token ended");
            return Poll::Ready(Some(Err(axum::Error::new(error))));
        }
        Pin::new(&mut self.body).poll_frame(context)
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}
