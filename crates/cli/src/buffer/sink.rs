//! The output of `buffer read`: a file or standard output, written by a separate thread.

use crate::exit::Failure;
use bytes::Bytes;
use rustix::pipe::fcntl_setpipe_size;
use std::fs::File;
use std::io::{self, Write};
use std::os::fd::AsFd;
use std::thread::JoinHandle;
use tokio::sync::mpsc;

/// How many chunks may wait to be written.
const WAITING: usize = 1;
/// A larger pipe means fewer switches between the two programs.
const PIPE_BYTES: usize = 1 << 20;
const PAGE_BYTES: usize = 4096;
/// Bytes per write: few enough to stay in the processor's cache.
const GATHERED: usize = 256 << 10;

#[derive(Debug)]
pub struct Sink {
    pieces: Option<mpsc::Sender<Vec<Bytes>>>,
    thread: Option<JoinHandle<io::Result<()>>>,
}

impl Sink {
    /// Standard output, without Rust's own buffer.
    pub fn stdout() -> io::Result<Sink> {
        let out = File::from(io::stdout().as_fd().try_clone_to_owned()?);
        // Fails if stdout is not a pipe, which is fine.
        let _ = fcntl_setpipe_size(&out, PIPE_BYTES);
        Sink::to(out)
    }

    pub fn to(mut out: File) -> io::Result<Sink> {
        let (sender, mut receiver) = mpsc::channel::<Vec<Bytes>>(WAITING);
        let thread = std::thread::Builder::new().name("output".to_owned()).spawn(move || {
            let mut buffer = AlignedBuffer::new();
            while let Some(pieces) = receiver.blocking_recv() {
                buffer.write(&mut out, &pieces)?;
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

    /// Waits until everything is written.
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

/// A buffer that starts at a page boundary.
///
/// Kernels copy with `rep movsb`, which is several times slower on some processors if source and target
/// differ by a few bytes within their pages.
struct AlignedBuffer {
    bytes: Vec<u8>,
    start: usize,
}

impl AlignedBuffer {
    fn new() -> AlignedBuffer {
        let bytes = vec![0; GATHERED + PAGE_BYTES];
        let start = bytes.as_ptr().align_offset(PAGE_BYTES).min(PAGE_BYTES);
        AlignedBuffer { bytes, start }
    }

    fn write(&mut self, out: &mut File, pieces: &[Bytes]) -> io::Result<()> {
        let room = &mut self.bytes[self.start..self.start + GATHERED];
        let mut used = 0;
        for mut piece in pieces.iter().map(|piece| &piece[..]) {
            while !piece.is_empty() {
                let count = piece.len().min(GATHERED - used);
                let (now, later) = piece.split_at(count);
                room[used..used + count].copy_from_slice(now);
                (used, piece) = (used + count, later);
                if used == GATHERED {
                    out.write_all(room)?;
                    used = 0;
                }
            }
        }
        out.write_all(&room[..used])
    }
}
