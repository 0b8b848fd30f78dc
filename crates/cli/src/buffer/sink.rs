//! Where the bytes of a buffer go: a file or standard output, written by a thread of its own.

use crate::exit::Failure;
use bytes::Bytes;
use rustix::pipe::fcntl_setpipe_size;
use std::fs::File;
use std::io::{self, IoSlice, Write};
use std::os::fd::AsFd;
use std::thread::JoinHandle;
use tokio::sync::mpsc;

/// Chunks that wait to be written.
const WAITING: usize = 1;
/// A larger pipe: fewer turns between the two programs.
const PIPE_BYTES: usize = 1 << 20;
/// As many as one call takes.
const SLICES: usize = 1024;

#[derive(Debug)]
pub struct Sink {
    pieces: Option<mpsc::Sender<Vec<Bytes>>>,
    thread: Option<JoinHandle<io::Result<()>>>,
}

impl Sink {
    /// Standard output, past Rust's own buffer.
    pub fn stdout() -> io::Result<Sink> {
        let out = File::from(io::stdout().as_fd().try_clone_to_owned()?);
        // Refused for what is not a pipe, and no harm then.
        let _ = fcntl_setpipe_size(&out, PIPE_BYTES);
        Sink::to(out)
    }

    pub fn to(mut out: File) -> io::Result<Sink> {
        let (sender, mut receiver) = mpsc::channel::<Vec<Bytes>>(WAITING);
        let thread = std::thread::Builder::new().name("output".to_owned()).spawn(move || {
            while let Some(pieces) = receiver.blocking_recv() {
                write_all(&mut out, &pieces)?;
            }
            out.flush()
        })?;
        Ok(Sink { pieces: Some(sender), thread: Some(thread) })
    }

    pub async fn write(&mut self, pieces: Vec<Bytes>) -> Result<(), Failure> {
        match &self.pieces {
            Some(sender) if sender.send(pieces).await.is_ok() => Ok(()),
            // The thread ends early only if it cannot write.
            _ => self.end().await,
        }
    }

    /// Returns when everything is written.
    pub async fn end(&mut self) -> Result<(), Failure> {
        drop(self.pieces.take());
        let Some(thread) = self.thread.take() else { return Err(Failure::refused("the output is closed")) };
        let ended = tokio::task::spawn_blocking(move || thread.join()).await;
        match ended {
            Ok(Ok(written)) => written.map_err(|error| match error.kind() {
                io::ErrorKind::BrokenPipe => Failure::ReaderGone,
                _ => Failure::Refused(format!("cannot write the output: {error}")),
            }),
            _ => Err(Failure::refused("writing the output failed")),
        }
    }
}

fn write_all(out: &mut File, pieces: &[Bytes]) -> io::Result<()> {
    for some in pieces.chunks(SLICES) {
        let mut slices: Vec<IoSlice<'_>> = some.iter().map(|piece| IoSlice::new(piece)).collect();
        let mut left = &mut slices[..];
        while left.iter().any(|slice| !slice.is_empty()) {
            match out.write_vectored(left) {
                Ok(0) => return Err(io::ErrorKind::WriteZero.into()),
                Ok(count) => IoSlice::advance_slices(&mut left, count),
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
    }
    Ok(())
}
