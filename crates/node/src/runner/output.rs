//! The output of a command: a pipe that the node reads.

use rustix::pipe::{fcntl_getpipe_size, fcntl_setpipe_size};
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::path::Path;
use std::pin::Pin;
use std::task::{Context, Poll};
use tokio::io::{AsyncRead, ReadBuf};
use tokio::net::unix::pipe::{OpenOptions, Receiver};
use tokio::sync::oneshot;

/// Fewer and larger reads. The system's own size is 64 KiB.
const PIPE_BYTES: usize = 1 << 20;

/// Reads what the command writes, until the command has ended and the pipe is empty.
///
/// The command waits while nobody reads. Read in pieces of 64 KiB or more.
#[derive(Debug)]
pub struct OutputPipe {
    receiver: Receiver,
    state: State,
}

#[derive(Debug)]
enum State {
    /// The command runs.
    Live(oneshot::Receiver<()>),
    /// The command has ended. A process that escaped from the launch could write for ever, so only as much is read as the pipe
    /// can have held then.
    Draining(usize),
}

impl OutputPipe {
    /// Opens a named pipe to read and to write: then writers may come one after the other, and a pipe that the command never
    /// opens is empty.
    pub(super) fn open(path: &Path, ended: oneshot::Receiver<()>) -> io::Result<OutputPipe> {
        let receiver = OpenOptions::new().read_write(true).open_receiver(path)?;
        raise_pipe_size(&receiver);
        Ok(OutputPipe { receiver, state: State::Live(ended) })
    }

    /// The reading end of an unnamed pipe.
    pub(super) fn from_descriptor(pipe: OwnedFd, ended: oneshot::Receiver<()>) -> io::Result<OutputPipe> {
        Ok(OutputPipe { receiver: Receiver::from_owned_fd(pipe)?, state: State::Live(ended) })
    }
}

impl AsyncRead for OutputPipe {
    fn poll_read(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let pipe = self.get_mut();
        if let State::Live(ended) = &mut pipe.state {
            let read = Pin::new(&mut pipe.receiver).poll_read(context, buffer);
            if read.is_ready() || Pin::new(ended).poll(context).is_pending() {
                return read;
            }
            pipe.state = State::Draining(fcntl_getpipe_size(&pipe.receiver)?);
        }
        let State::Draining(left) = &mut pipe.state else { return Poll::Pending };
        // The runtime may not have noticed the last bytes yet, so the pipe itself is asked.
        let room = buffer.remaining().min(*left);
        if room == 0 {
            return Poll::Ready(Ok(()));
        }
        match rustix::io::read(&pipe.receiver, &mut buffer.initialize_unfilled()[..room]) {
            Ok(count) => {
                *left -= count;
                buffer.advance(count);
                Poll::Ready(Ok(()))
            }
            Err(rustix::io::Errno::AGAIN) => Poll::Ready(Ok(())),
            Err(rustix::io::Errno::INTR) => {
                context.waker().wake_by_ref();
                Poll::Pending
            }
            Err(error) => Poll::Ready(Err(error.into())),
        }
    }
}

/// Makes the pipe larger if the system permits. Linux bounds the pipe memory of a user.
pub(super) fn raise_pipe_size(pipe: impl AsFd) {
    let _ = fcntl_setpipe_size(pipe, PIPE_BYTES);
}
