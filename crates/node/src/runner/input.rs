//! The input of a command: a named pipe that the node writes.

use rustix::fs::{Mode, OFlags, open};
use std::fmt;
use std::fs::OpenOptions;
use std::io;
use std::os::fd::{AsRawFd, OwnedFd};
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Context, Poll, ready};
use std::thread::{self, JoinHandle};
use tokio::io::AsyncWrite;
use tokio::net::unix::pipe::Sender;
use tokio::sync::oneshot;

/// The thread only opens a file.
const STACK_BYTES: usize = 64 << 10;

/// Writes to the command. The first write waits until the command opens its pipe.
///
/// A write fails with [`io::ErrorKind::BrokenPipe`] when the command has closed its pipe, or has ended and never opened it. Both
/// are normal: a command need not read all of its input. Shut down or drop the pipe to end the input.
pub struct InputPipe {
    state: State,
    ended: oneshot::Receiver<()>,
}

#[derive(Debug)]
enum State {
    Opening(oneshot::Receiver<io::Result<OwnedFd>>),
    Open(Sender),
    Closed,
}

/// A thread that waits for the command to open its pipe.
///
/// Opening a pipe to write waits for a reader and cannot be polled. Dropping the opener ends the thread: it opens the pipe to read.
#[derive(Debug)]
pub(super) struct Opener {
    /// The pipe itself and not its path: a command may rename the path, or put a symbolic link there.
    pipe: Arc<OwnedFd>,
    released: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

impl Opener {
    pub(super) fn start(path: &Path, ended: oneshot::Receiver<()>) -> io::Result<(Opener, InputPipe)> {
        let pipe = Arc::new(open(path, OFlags::PATH | OFlags::NOFOLLOW | OFlags::CLOEXEC, Mode::empty())?);
        let released = Arc::new(AtomicBool::new(false));
        let (sender, receiver) = oneshot::channel();
        let thread = {
            let (pipe, released) = (Arc::clone(&pipe), Arc::clone(&released));
            thread::Builder::new().name("node-input".to_owned()).stack_size(STACK_BYTES).spawn(move || {
                let opened = OpenOptions::new().write(true).open(path_of(&pipe));
                let opened = match opened {
                    Ok(_) if released.load(Ordering::SeqCst) => Err(io::ErrorKind::BrokenPipe.into()),
                    other => other.map(OwnedFd::from),
                };
                // The node may have dropped its end: closing the pipe here ends the command's input.
                let _ = sender.send(opened);
            })?
        };
        let opener = Opener { pipe, released, thread: Some(thread) };
        Ok((opener, InputPipe { state: State::Opening(receiver), ended }))
    }
}

impl Drop for Opener {
    fn drop(&mut self) {
        let Some(thread) = self.thread.take() else { return };
        self.released.store(true, Ordering::SeqCst);
        let reader = OpenOptions::new()
            .read(true)
            .custom_flags(OFlags::NONBLOCK.bits().cast_signed())
            .open(path_of(&self.pipe));
        match reader {
            // The reader stays open until the thread has opened its end.
            Ok(_reader) => {
                let _ = thread.join();
            }
            Err(error) => tracing::warn!(%error, "cannot end the thread that waits to open an input"),
        }
    }
}

fn path_of(pipe: &OwnedFd) -> String {
    format!("/proc/self/fd/{}", pipe.as_raw_fd())
}

impl InputPipe {
    fn poll_open(&mut self, context: &mut Context<'_>) -> Poll<io::Result<&mut Sender>> {
        if let State::Opening(receiver) = &mut self.state {
            self.state = match ready!(Pin::new(receiver).poll(context)) {
                Ok(Ok(pipe)) => {
                    super::output::raise_pipe_size(&pipe);
                    State::Open(Sender::from_owned_fd(pipe)?)
                }
                Ok(Err(error)) => {
                    self.state = State::Closed;
                    return Poll::Ready(Err(error));
                }
                Err(_) => State::Closed,
            };
        }
        Poll::Ready(match &mut self.state {
            State::Open(sender) => Ok(sender),
            State::Opening(_) | State::Closed => Err(io::ErrorKind::BrokenPipe.into()),
        })
    }
}

impl AsyncWrite for InputPipe {
    fn poll_write(self: Pin<&mut Self>, context: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        let pipe = self.get_mut();
        let written = match pipe.poll_open(context) {
            Poll::Ready(Ok(sender)) => Pin::new(sender).poll_write(context, bytes),
            Poll::Ready(Err(error)) => Poll::Ready(Err(error)),
            Poll::Pending => Poll::Pending,
        };
        // A process that escaped the launch may hold the pipe open without reading it.
        if written.is_pending() && Pin::new(&mut pipe.ended).poll(context).is_ready() {
            pipe.state = State::Closed;
            return Poll::Ready(Err(io::ErrorKind::BrokenPipe.into()));
        }
        written
    }

    fn poll_flush(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        // Bytes are not kept here.
        Poll::Ready(Ok(()))
    }

    fn poll_shutdown(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.get_mut().state = State::Closed;
        Poll::Ready(Ok(()))
    }
}

impl fmt::Debug for InputPipe {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("InputPipe").field(&self.state).finish()
    }
}
