//! A streamed response body that ends with an error when the token of its request ends.

use super::token_cache::ActiveToken;
use axum::body::Body;
use bytes::Bytes;
use http_body::{Frame, SizeHint};
use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

pub(super) struct RevocableBody {
    body: Body,
    ended: Pin<Box<dyn Future<Output = ()> + Send>>,
    /// Keeps the token in the cache, where it is refreshed.
    _token: Arc<ActiveToken>,
}

impl RevocableBody {
    pub(super) fn new(body: Body, token: Arc<ActiveToken>) -> RevocableBody {
        RevocableBody { body, ended: Box::pin(token.ended()), _token: token }
    }
}

impl http_body::Body for RevocableBody {
    type Data = Bytes;
    type Error = axum::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, axum::Error>>> {
        if self.ended.as_mut().poll(context).is_ready() {
            // An error, so that the client does not take the body for complete.
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
