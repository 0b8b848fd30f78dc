//! Standard output and standard error of a container.
//!
//! The engine sends both in one stream. They are copied into two pipes, so that a reader gets the same as from a process and a slow
//! reader slows the container down.

use crate::runner::OutputPipe;
use bollard::container::{AttachContainerResults, LogOutput};
use futures::StreamExt;
use rustix::io::ioctl_fionbio;
use std::io;
use std::os::fd::OwnedFd;
use std::time::Duration;
use tokio::io::AsyncWriteExt;
use tokio::net::unix::pipe::Sender;
use tokio::sync::oneshot;

/// How long the engine may be silent after the end of the container before its stream counts as ended.
const SILENCE_MAX: Duration = Duration::from_secs(2);

/// The node's ends of the pipes.
#[derive(Debug)]
pub(super) struct Streams {
    pub(super) stdout: OutputPipe,
    pub(super) stderr: OutputPipe,
}

/// Copies what the engine sends. Send on the answer's channel, or drop it, when the container has ended.
pub(super) fn copy(attached: AttachContainerResults) -> io::Result<(Streams, oneshot::Sender<()>)> {
    let (stdout, to_stdout) = pipe()?;
    let (stderr, to_stderr) = pipe()?;
    let (end, ended) = oneshot::channel();
    tokio::spawn(run(attached, to_stdout, to_stderr, ended));
    Ok((Streams { stdout, stderr }, end))
}

fn pipe() -> io::Result<(OutputPipe, Sender)> {
    let (reader, writer) = io::pipe()?;
    ioctl_fionbio(&writer, true)?;
    let writer = Sender::from_owned_fd(OwnedFd::from(writer))?;
    // These pipes end when the writer is closed.
    Ok((OutputPipe::until_closed(reader.into())?, writer))
}

async fn run(
    mut attached: AttachContainerResults,
    mut stdout: Sender,
    mut stderr: Sender,
    mut ended: oneshot::Receiver<()>,
) {
    let mut has_ended = false;
    loop {
        let frame = tokio::select! {
            frame = attached.output.next() => frame,
            _ = &mut ended, if !has_ended => {
                has_ended = true;
                continue;
            }
            () = tokio::time::sleep(SILENCE_MAX), if has_ended => return,
        };
        // A reader that has gone wants no more; the other one may.
        let _ = match frame {
            Some(Ok(LogOutput::StdErr { message })) => stderr.write_all(&message).await,
            Some(Ok(frame)) => stdout.write_all(&frame.into_bytes()).await,
            Some(Err(error)) => {
                tracing::warn!(%error, "the container engine broke off the output of a container");
                return;
            }
            None => return,
        };
    }
}
