//! The process that reads our output, if stdout is a pipe.

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use std::fs::File;
use std::io;
use std::os::fd::AsFd;
use std::os::unix::fs::FileTypeExt;
use std::time::Duration;

const DRAINED_POLL: Duration = Duration::from_millis(20);
const CLOSED_POLL: Duration = Duration::from_millis(250);

#[derive(Debug, Clone, Copy)]
pub struct StdoutReader {
    is_pipe: bool,
}

impl StdoutReader {
    pub fn new() -> StdoutReader {
        let kind = io::stdout().as_fd().try_clone_to_owned().and_then(|fd| File::from(fd).metadata());
        StdoutReader { is_pipe: kind.is_ok_and(|about| about.file_type().is_fifo()) }
    }

    /// Waits until the reader has emptied the pipe. Returns at once if stdout is not a pipe.
    pub async fn drained(self) {
        while self.is_pipe
            && !is_closed()
            && rustix::io::ioctl_fionread(io::stdout()).is_ok_and(|unread| unread > 0)
        {
            tokio::time::sleep(DRAINED_POLL).await;
        }
    }

    /// Waits until the reader has closed the pipe.
    pub async fn closed(self) {
        while !self.is_pipe || !is_closed() {
            tokio::time::sleep(CLOSED_POLL).await;
        }
    }
}

/// When the reader closes its end, polling our end reports an error.
fn is_closed() -> bool {
    let out = io::stdout();
    let mut fds = [PollFd::new(&out, PollFlags::empty())];
    let at_once = Timespec { tv_sec: 0, tv_nsec: 0 };
    poll(&mut fds, Some(&at_once)).is_ok() && fds[0].revents().intersects(PollFlags::ERR | PollFlags::HUP)
}
