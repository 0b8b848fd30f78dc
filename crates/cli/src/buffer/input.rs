//! The input of `buffer write`: a file or standard input, read and hashed by a separate thread.

use crate::exit::Failure;
use bytes::Bytes;
use rustix::buffer::spare_capacity;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::{Errno, read, retry_on_intr};
use rustix::pipe::fcntl_setpipe_size;
use std::fs::File;
use std::io;
use std::os::fd::{AsFd, BorrowedFd};
use std::path::Path;
use tokio::sync::mpsc;
use towline_api::CHUNK_BYTES;
use towline_api::client::chunker::{CHUNKS_AHEAD, Chunk, INPUT_PAUSE_MAX, InputEvent};

/// A larger pipe means fewer switches between the two programs.
const PIPE_BYTES: usize = 1 << 20;

#[derive(Debug)]
pub struct Input {
    file: File,
    /// Known only for a regular file.
    length: Option<u64>,
}

impl Input {
    /// `None` or `-`: standard input.
    pub fn open(path: Option<&Path>) -> Result<Input, Failure> {
        let refused = |error: io::Error| {
            let name = path.map_or("standard input".to_owned(), |path| path.display().to_string());
            Failure::Refused(format!("cannot read {name}: {error}"))
        };
        let file = match path.filter(|path| *path != Path::new("-")) {
            Some(path) => File::open(path).map_err(refused)?,
            None => File::from(io::stdin().as_fd().try_clone_to_owned().map_err(refused)?),
        };
        let about = file.metadata().map_err(refused)?;
        if about.is_dir() {
            return Err(refused(io::ErrorKind::IsADirectory.into()));
        }
        // Fails if the input is not a pipe, which is fine.
        let _ = fcntl_setpipe_size(&file, PIPE_BYTES);
        Ok(Input { file, length: about.is_file().then_some(about.len()) })
    }

    pub fn length(&self) -> Option<u64> {
        self.length
    }

    pub fn file(&mut self) -> &mut File {
        &mut self.file
    }

    /// Reads until the input ends or the receiver is dropped.
    pub fn chunks(self) -> io::Result<mpsc::Receiver<InputEvent>> {
        let (sender, receiver) = mpsc::channel(CHUNKS_AHEAD);
        std::thread::Builder::new().name("input".to_owned()).spawn(move || {
            loop {
                let (data, end) = fill(self.file.as_fd(), self.length.is_some());
                if let Some(chunk) = Chunk::new(data)
                    && sender.blocking_send(InputEvent::Chunk(chunk)).is_err()
                {
                    return;
                }
                if let Some(end) = end {
                    let _ = sender.blocking_send(end);
                    return;
                }
            }
        })?;
        Ok(receiver)
    }
}

/// Reads until a chunk is full, or until the input pauses or ends.
fn fill(input: BorrowedFd<'_>, is_file: bool) -> (Bytes, Option<InputEvent>) {
    let mut data = Vec::with_capacity(CHUNK_BYTES);
    let end = loop {
        if data.len() == data.capacity() || (!data.is_empty() && !is_file && pauses(input)) {
            break None;
        }
        match retry_on_intr(|| read(input, spare_capacity(&mut data))) {
            Ok(0) => break Some(InputEvent::End),
            Ok(_) => {}
            // Another process made the descriptor non-blocking. This thread may wait.
            Err(Errno::AGAIN) => wait(input),
            Err(error) => break Some(InputEvent::Failed(error.into())),
        }
    };
    (data.into(), end)
}

fn pauses(input: BorrowedFd<'_>) -> bool {
    let mut fds = [PollFd::from_borrowed_fd(input, PollFlags::IN)];
    let pause = Timespec {
        tv_sec: INPUT_PAUSE_MAX.as_secs().cast_signed(),
        tv_nsec: INPUT_PAUSE_MAX.subsec_nanos().into(),
    };
    matches!(poll(&mut fds, Some(&pause)), Ok(0))
}

fn wait(input: BorrowedFd<'_>) {
    let mut fds = [PollFd::from_borrowed_fd(input, PollFlags::IN)];
    let _ = poll(&mut fds, None);
}
