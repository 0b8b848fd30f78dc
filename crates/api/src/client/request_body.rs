//! The body of a request: whole, or in pieces from another thread.

use bytes::Bytes;
use http_body_util::Full;
use hyper::body::{Body, Frame, SizeHint};
use std::io;
use std::pin::Pin;
use std::task::{Context, Poll, ready};
use tokio::sync::mpsc;

#[derive(Debug)]
pub(super) enum RequestBody {
    Whole(Full<Bytes>),
    /// An error ends the request before its end, so that the server does not take it for whole.
    Pieces(mpsc::Receiver<io::Result<Bytes>>),
}

impl Body for RequestBody {
    type Data = Bytes;
    type Error = io::Error;

    fn poll_frame(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<io::Result<Frame<Bytes>>>> {
        match self.get_mut() {
            RequestBody::Whole(whole) => {
                let Some(Ok(frame)) = ready!(Pin::new(whole).poll_frame(context)) else {
                    return Poll::Ready(None);
                };
                Poll::Ready(Some(Ok(frame)))
            }
            RequestBody::Pieces(pieces) => {
                let piece = ready!(pieces.poll_recv(context));
                Poll::Ready(piece.map(|piece| piece.map(Frame::data)))
            }
        }
    }

    fn is_end_stream(&self) -> bool {
        match self {
            RequestBody::Whole(whole) => whole.is_end_stream(),
            RequestBody::Pieces(_) => false,
        }
    }

    fn size_hint(&self) -> SizeHint {
        match self {
            RequestBody::Whole(whole) => whole.size_hint(),
            RequestBody::Pieces(_) => SizeHint::default(),
        }
    }
}
