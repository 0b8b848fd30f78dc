//! Ends connections on which the client never sends a byte. The HTTP header timeout cannot: it starts with the first byte, when
//! the server knows which HTTP version the client speaks.

use hyper::rt::{Read, ReadBufCursor, Write};
use std::io::{self, IoSlice};
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;
use tokio::time::Sleep;

pub(crate) struct FirstByteTimeout<T> {
    stream: T,
    /// `None` after the first byte.
    deadline: Option<Pin<Box<Sleep>>>,
}

impl<T> FirstByteTimeout<T> {
    pub(crate) fn new(stream: T, timeout: Duration) -> FirstByteTimeout<T> {
        FirstByteTimeout { stream, deadline: Some(Box::pin(tokio::time::sleep(timeout))) }
    }
}

impl<T: Read + Unpin> Read for FirstByteTimeout<T> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: ReadBufCursor<'_>,
    ) -> Poll<io::Result<()>> {
        let read = Pin::new(&mut self.stream).poll_read(context, buffer);
        if let Some(deadline) = &mut self.deadline {
            if read.is_ready() {
                self.deadline = None;
            } else if deadline.as_mut().poll(context).is_ready() {
                return Poll::Ready(Err(io::ErrorKind::TimedOut.into()));
            }
        }
        read
    }
}

impl<T: Write + Unpin> Write for FirstByteTimeout<T> {
    fn poll_write(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.stream).poll_write(context, bytes)
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_flush(context)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(context)
    }

    fn is_write_vectored(&self) -> bool {
        self.stream.is_write_vectored()
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        slices: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.stream).poll_write_vectored(context, slices)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use hyper_util::rt::TokioIo;
    use tokio::io::{AsyncReadExt, AsyncWriteExt};

    #[tokio::test]
    async fn a_silent_connection_ends_and_the_first_byte_lifts_the_limit() {
        let timeout = Duration::from_millis(1);
        let (near, far) = tokio::io::duplex(10);
        let mut silent = TokioIo::new(FirstByteTimeout::new(TokioIo::new(near), timeout));
        assert_eq!(silent.read_u8().await.unwrap_err().kind(), io::ErrorKind::TimedOut);
        drop(far);
        let (near, mut far) = tokio::io::duplex(10);
        let mut active = TokioIo::new(FirstByteTimeout::new(TokioIo::new(near), timeout));
        far.write_u8(7).await.unwrap();
        assert_eq!(active.read_u8().await.unwrap(), 7);
        let (second, ()) = tokio::join!(active.read_u8(), async {
            tokio::time::sleep(timeout * 5).await;
            far.write_u8(8).await.unwrap();
        });
        assert_eq!(second.unwrap(), 8);
    }
}
