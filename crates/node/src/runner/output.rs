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
/// The command waits while its output is not read. Read in pieces of 64 KiB or more.
#[derive(Debug)]
pub struct OutputPipe {
    receiver: Receiver,
    state: State,
}

#[derive(Debug)]
enum State {
    /// The end of the bytes is the only end.
    UntilClosed,
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

    /// The reading end of an unnamed pipe whose writer closes it.
    pub(super) fn until_closed(pipe: OwnedFd) -> io::Result<OutputPipe> {
        Ok(OutputPipe { receiver: Receiver::from_owned_fd(pipe)?, state: State::UntilClosed })
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
        loop {
            match &mut pipe.state {
                State::UntilClosed => return Pin::new(&mut pipe.receiver).poll_read(context, buffer),
                State::Live(ended) => {
                    let read = Pin::new(&mut pipe.receiver).poll_read(context, buffer);
                    if read.is_ready() || Pin::new(ended).poll(context).is_pending() {
                        return read;
                    }
                    pipe.state = State::Draining(fcntl_getpipe_size(&pipe.receiver)?);
                }
                State::Draining(left) => return Poll::Ready(drain(&pipe.receiver, left, buffer)),
            }
        }
    }
}

/// Reads what the pipe has at this moment, up to `left` bytes. The runtime may not have noticed the last bytes yet, so the pipe itself
/// is asked.
fn drain(pipe: &Receiver, left: &mut usize, buffer: &mut ReadBuf<'_>) -> io::Result<()> {
    let room = buffer.remaining().min(*left);
    if room == 0 {
        return Ok(());
    }
    let bytes = &mut buffer.initialize_unfilled()[..room];
    match rustix::io::retry_on_intr(|| rustix::io::read(pipe, &mut *bytes)) {
        Ok(count) => {
            *left -= count;
            buffer.advance(count);
            Ok(())
        }
        Err(rustix::io::Errno::AGAIN) => Ok(()),
        Err(error) => Err(error.into()),
    }
}

/// Makes the pipe larger if the system permits. Linux bounds the pipe memory of a user.
pub(super) fn raise_pipe_size(pipe: impl AsFd) {
    let _ = fcntl_setpipe_size(pipe, PIPE_BYTES);
}
