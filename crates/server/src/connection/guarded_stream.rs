//! Limits of a connection that the HTTP library does not have.
//!
//! A client must show which HTTP version it speaks within [`VERSION_TIMEOUT`]: until then the library waits without a limit. A
//! client that reads nothing of a response for [`STALL_TIMEOUT`] is cut. So is a client that floods an HTTP/2 connection with
//! PING and SETTINGS frames, each of which the server must answer. An HTTP/2 connection without a request for [`IDLE_TIMEOUT`] ends,
//! even if the client answers the server's PING frames; for HTTP/1 the library has such a limit. An HTTP/2 client may read the connection
//! and still not take a response: [`super::request_tasks`] ends such requests.
//!
//! The stream holds the seat of its connection. A WebSocket takes the stream over, and so the seat too.

use super::open_requests::OpenRequests;
use std::any::Any;
use std::io::{self, IoSlice};
use std::pin::Pin;
use std::task::{Context, Poll, ready};
use std::time::Duration;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::time::{Sleep, sleep};

/// Limit for the first bytes of a connection, until they tell the HTTP version.
const VERSION_TIMEOUT: Duration = Duration::from_secs(30);
/// Limit for [`STALL_BYTES`] of a response, while the client makes the server wait.
pub(super) const STALL_TIMEOUT: Duration = Duration::from_secs(60);
pub(super) const STALL_BYTES: usize = 16 << 10;
/// PING and SETTINGS frames of a client in [`CONTROL_PERIOD`].
const CONTROL_FRAMES_MAX: u32 = 1000;
const CONTROL_PERIOD: Duration = Duration::from_secs(10);

/// How every HTTP/2 connection begins.
const PREFACE: &[u8] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";
const FRAME_HEADER: usize = 9;
const SETTINGS: u8 = 4;
const PING: u8 = 6;

/// Limit for an HTTP/2 connection without a request in progress. Client libraries close idle connections earlier.
const IDLE_TIMEOUT: Duration = Duration::from_secs(180);

pub(super) struct GuardedStream<T> {
    stream: T,
    /// What the connection occupies as long as it exists.
    _seat: Box<dyn Any + Send>,
    requests: OpenRequests,
    /// Elapses if no request is in progress. `None` while one is.
    idle: Option<Pin<Box<Sleep>>>,
    incoming: Incoming,
    /// Elapses if the client reads too little. `None` while it reads.
    stalled: Option<Pin<Box<Sleep>>>,
    /// Bytes written since `stalled` was set.
    written: usize,
}

/// What the client has sent.
enum Incoming {
    /// So many bytes of the preface of HTTP/2.
    Unknown(usize, Pin<Box<Sleep>>),
    Http1,
    Http2(ControlFrames),
}

/// Counts the frames of a client that the server must answer.
struct ControlFrames {
    header: [u8; FRAME_HEADER],
    header_len: usize,
    /// Bytes of the current frame that have not arrived.
    payload: usize,
    count: u32,
    period: Pin<Box<Sleep>>,
}

impl<T> GuardedStream<T> {
    pub(super) fn new(stream: T, requests: OpenRequests, seat: impl Any + Send) -> GuardedStream<T> {
        let incoming = Incoming::Unknown(0, Box::pin(sleep(VERSION_TIMEOUT)));
        GuardedStream {
            stream,
            _seat: Box::new(seat),
            requests,
            idle: None,
            incoming,
            stalled: None,
            written: 0,
        }
    }

    /// Whether the connection was without a request for too long.
    fn poll_idle(&mut self, context: &mut Context<'_>) -> Poll<()> {
        if self.requests.any() {
            self.idle = None;
            return Poll::Pending;
        }
        self.idle.get_or_insert_with(|| Box::pin(sleep(IDLE_TIMEOUT))).as_mut().poll(context)
    }

    /// The client does not read. Ends the connection if this lasts.
    fn poll_stalled(&mut self, context: &mut Context<'_>) -> Poll<io::Error> {
        if self.stalled.is_none() {
            self.written = 0;
        }
        let stalled = self.stalled.get_or_insert_with(|| Box::pin(sleep(STALL_TIMEOUT)));
        ready!(stalled.as_mut().poll(context));
        Poll::Ready(io::ErrorKind::TimedOut.into())
    }

    fn wrote(
        &mut self,
        context: &mut Context<'_>,
        polled: Poll<io::Result<usize>>,
    ) -> Poll<io::Result<usize>> {
        match polled {
            Poll::Pending => return self.poll_stalled(context).map(Err),
            Poll::Ready(Ok(bytes)) => {
                self.written = self.written.saturating_add(bytes);
                if self.written >= STALL_BYTES {
                    self.stalled = None;
                }
            }
            Poll::Ready(Err(_)) => {}
        }
        polled
    }
}

impl Incoming {
    /// Looks at bytes that have just arrived.
    fn arrived(&mut self, mut bytes: &[u8], context: &mut Context<'_>) -> io::Result<()> {
        if let Incoming::Unknown(seen, _) = self {
            let new = bytes.len().min(PREFACE.len() - *seen);
            if bytes[..new] != PREFACE[*seen..*seen + new] || bytes.is_empty() {
                *self = Incoming::Http1;
                return Ok(());
            }
            *seen += new;
            if *seen == PREFACE.len() {
                *self = Incoming::Http2(ControlFrames::new());
            }
            bytes = &bytes[new..];
        }
        match self {
            Incoming::Http2(frames) => frames.arrived(bytes, context),
            _ => Ok(()),
        }
    }
}

impl ControlFrames {
    fn new() -> ControlFrames {
        let period = Box::pin(sleep(CONTROL_PERIOD));
        ControlFrames { header: [0; FRAME_HEADER], header_len: 0, payload: 0, count: 0, period }
    }

    fn arrived(&mut self, mut bytes: &[u8], context: &mut Context<'_>) -> io::Result<()> {
        while !bytes.is_empty() {
            if self.payload > 0 {
                let skipped = self.payload.min(bytes.len());
                self.payload -= skipped;
                bytes = &bytes[skipped..];
                continue;
            }
            let new = bytes.len().min(FRAME_HEADER - self.header_len);
            self.header[self.header_len..self.header_len + new].copy_from_slice(&bytes[..new]);
            self.header_len += new;
            bytes = &bytes[new..];
            if self.header_len == FRAME_HEADER {
                self.header_len = 0;
                let [high, middle, low, kind, ..] = self.header;
                self.payload = usize::from(high) << 16 | usize::from(middle) << 8 | usize::from(low);
                if matches!(kind, SETTINGS | PING) {
                    self.count(context)?;
                }
            }
        }
        Ok(())
    }

    fn count(&mut self, context: &mut Context<'_>) -> io::Result<()> {
        if self.period.as_mut().poll(context).is_ready() {
            self.period.set(sleep(CONTROL_PERIOD));
            self.count = 0;
        }
        self.count += 1;
        if self.count <= CONTROL_FRAMES_MAX {
            return Ok(());
        }
        let flood = format!("more than {CONTROL_FRAMES_MAX} PING and SETTINGS frames in {CONTROL_PERIOD:?}");
        Err(io::Error::new(io::ErrorKind::InvalidData, flood))
    }
}

impl<T: AsyncRead + Unpin> AsyncRead for GuardedStream<T> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let before = buffer.filled().len();
        match Pin::new(&mut self.stream).poll_read(context, buffer) {
            Poll::Ready(Ok(())) => {
                let checked = self.incoming.arrived(&buffer.filled()[before..], context);
                if checked.is_err() {
                    // A failed read returns no data.
                    buffer.set_filled(before);
                }
                Poll::Ready(checked)
            }
            Poll::Pending => match &mut self.incoming {
                Incoming::Unknown(_, deadline) => {
                    ready!(deadline.as_mut().poll(context));
                    Poll::Ready(Err(io::ErrorKind::TimedOut.into()))
                }
                Incoming::Http1 => Poll::Pending,
                // As if the client had closed the connection.
                Incoming::Http2(_) => self.poll_idle(context).map(Ok),
            },
            failed => failed,
        }
    }
}

impl<T: AsyncWrite + Unpin> AsyncWrite for GuardedStream<T> {
    fn poll_write(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        let polled = Pin::new(&mut self.stream).poll_write(context, bytes);
        self.wrote(context, polled)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        slices: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let polled = Pin::new(&mut self.stream).poll_write_vectored(context, slices);
        self.wrote(context, polled)
    }

    fn is_write_vectored(&self) -> bool {
        self.stream.is_write_vectored()
    }

    /// The HTTP library flushes when it has written everything.
    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        match Pin::new(&mut self.stream).poll_flush(context) {
            Poll::Pending => self.poll_stalled(context).map(Err),
            flushed => {
                self.stalled = None;
                flushed
            }
        }
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        match Pin::new(&mut self.stream).poll_shutdown(context) {
            Poll::Pending => self.poll_stalled(context).map(Err),
            shut => shut,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use tokio::io::DuplexStream;
    use tokio::io::{AsyncReadExt, AsyncWriteExt};

    fn frame(kind: u8, payload: usize) -> Vec<u8> {
        let mut frame = vec![0, 0, u8::try_from(payload).unwrap(), kind, 0, 0, 0, 0, 0];
        frame.resize(FRAME_HEADER + payload, PING);
        frame
    }

    fn guard(stream: DuplexStream) -> GuardedStream<DuplexStream> {
        GuardedStream::new(stream, OpenRequests::default(), ())
    }

    #[tokio::test(start_paused = true)]
    async fn a_connection_ends_unless_its_first_bytes_tell_the_version() {
        for start in ["", "P", "PRI * HTTP/2.0\r\n"] {
            let (near, mut far) = tokio::io::duplex(1000);
            let mut guarded = guard(near);
            far.write_all(start.as_bytes()).await.unwrap();
            let mut read = Vec::new();
            let ended = guarded.read_to_end(&mut read).await.unwrap_err();
            assert_eq!((ended.kind(), read), (io::ErrorKind::TimedOut, start.as_bytes().to_vec()));
        }
        for start in ["G", "POST", "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"] {
            let (near, mut far) = tokio::io::duplex(1000);
            let mut guarded = guard(near);
            far.write_all(start.as_bytes()).await.unwrap();
            let mut read = vec![0; start.len()];
            guarded.read_exact(&mut read).await.unwrap();
            let silent = tokio::time::timeout(2 * VERSION_TIMEOUT, guarded.read_u8()).await;
            assert!(silent.is_err(), "{start}");
        }
    }

    #[tokio::test(start_paused = true)]
    async fn a_client_that_does_not_read_is_cut() {
        let (near, mut far) = tokio::io::duplex(1000);
        let mut guarded = guard(near);
        guarded.write_all(&[0; 1000]).await.unwrap();
        let ended = guarded.write_all(&[0; 1000]).await.unwrap_err();
        assert_eq!(ended.kind(), io::ErrorKind::TimedOut);
        // A client that reads too little is cut too.
        let (near, mut dribbling) = tokio::io::duplex(1000);
        let mut guarded = guard(near);
        let reader = tokio::spawn(async move {
            while dribbling.read_u8().await.is_ok() {
                sleep(Duration::from_secs(1)).await;
            }
        });
        let ended = guarded.write_all(&[0; 1 << 20]).await.unwrap_err();
        assert_eq!(ended.kind(), io::ErrorKind::TimedOut);
        drop(guarded);
        reader.await.unwrap();
        far.shutdown().await.unwrap();
    }

    #[tokio::test(start_paused = true)]
    async fn a_client_that_reads_slowly_is_served() {
        let (near, mut far) = tokio::io::duplex(1000);
        let mut guarded = guard(near);
        let reader = tokio::spawn(async move {
            let mut piece = [0; 1000];
            while far.read(&mut piece).await.unwrap() > 0 {
                sleep(Duration::from_secs(1)).await;
            }
        });
        guarded.write_all(&[0; 200_000]).await.unwrap();
        drop(guarded);
        reader.await.unwrap();
    }

    #[tokio::test(start_paused = true)]
    async fn a_flood_of_pings_or_settings_ends_the_connection() {
        for kind in [PING, SETTINGS] {
            let mut sent = PREFACE.to_vec();
            (0..CONTROL_FRAMES_MAX).for_each(|_| sent.extend(frame(kind, 8)));
            // Frames with other types and their content do not count.
            (0..CONTROL_FRAMES_MAX).for_each(|_| sent.extend(frame(0, 100)));
            let harmless = sent.len();
            sent.extend(frame(kind, 8));
            // In pieces of any size.
            let (near, mut far) = tokio::io::duplex(7);
            let mut guarded = guard(near);
            let writer = tokio::spawn(async move { drop(far.write_all(&sent).await) });
            let mut read = vec![0; harmless];
            guarded.read_exact(&mut read).await.unwrap();
            let mut rest = Vec::new();
            let ended = guarded.read_to_end(&mut rest).await.unwrap_err();
            assert_eq!(ended.kind(), io::ErrorKind::InvalidData);
            drop(guarded);
            writer.await.unwrap();
        }
    }
}
