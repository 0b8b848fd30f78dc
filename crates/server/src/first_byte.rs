//! A connection on which nothing is ever said ends. HTTP's own time limit begins with its first byte: until then it is
//! not known which HTTP it will be.

use hyper::rt::{Read, ReadBufCursor, Write};
use std::io::{self, IoSlice};
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;
use tokio::time::Sleep;

pub(crate) struct FirstByte<T> {
    stream: T,
    /// `None`: it has come.
    deadline: Option<Pin<Box<Sleep>>>,
}

impl<T> FirstByte<T> {
    pub(crate) fn within(stream: T, time: Duration) -> FirstByte<T> {
        FirstByte { stream, deadline: Some(Box::pin(tokio::time::sleep(time))) }
    }
}

impl<T: Read + Unpin> Read for FirstByte<T> {
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

impl<T: Write + Unpin> Write for FirstByte<T> {
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
        pieces: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.stream).poll_write_vectored(context, pieces)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use hyper_util::rt::TokioIo;
    use tokio::io::{AsyncReadExt, AsyncWriteExt};

    #[tokio::test]
    async fn silence_ends_and_a_byte_lifts_the_limit() {
        let over = Duration::from_millis(1);
        let (near, far) = tokio::io::duplex(10);
        let mut silent = TokioIo::new(FirstByte::within(TokioIo::new(near), over));
        assert_eq!(silent.read_u8().await.unwrap_err().kind(), io::ErrorKind::TimedOut);
        drop(far);
        let (near, mut far) = tokio::io::duplex(10);
        let mut heard = TokioIo::new(FirstByte::within(TokioIo::new(near), over));
        far.write_u8(7).await.unwrap();
        assert_eq!(heard.read_u8().await.unwrap(), 7);
        let (second, ()) = tokio::join!(heard.read_u8(), async {
            tokio::time::sleep(over * 5).await;
            far.write_u8(8).await.unwrap();
        });
        assert_eq!(second.unwrap(), 8);
    }
}
