//! Whoever reads what is printed, if it is at the other end of a pipe.

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use std::fs::File;
use std::io;
use std::os::fd::AsFd;
use std::os::unix::fs::FileTypeExt;
use std::time::Duration;

const TAKEN_POLL: Duration = Duration::from_millis(20);
const GONE_POLL: Duration = Duration::from_millis(250);

#[derive(Debug, Clone, Copy)]
pub struct Reader {
    is_pipe: bool,
}

impl Reader {
    pub fn of_stdout() -> Reader {
        let kind = io::stdout().as_fd().try_clone_to_owned().and_then(|fd| File::from(fd).metadata());
        Reader { is_pipe: kind.is_ok_and(|about| about.file_type().is_fifo()) }
    }

    /// Waits until a pipe is empty. What is not a pipe is taken when it is written.
    pub async fn taken(self) {
        while self.is_pipe
            && !is_gone()
            && rustix::io::ioctl_fionread(io::stdout()).is_ok_and(|unread| unread > 0)
        {
            tokio::time::sleep(TAKEN_POLL).await;
        }
    }

    /// Waits until nobody reads any more.
    pub async fn gone(self) {
        while !self.is_pipe || !is_gone() {
            tokio::time::sleep(GONE_POLL).await;
        }
    }
}

/// The end that is written to is told of an error when the other one is closed.
fn is_gone() -> bool {
    let out = io::stdout();
    let mut fds = [PollFd::new(&out, PollFlags::empty())];
    let at_once = Timespec { tv_sec: 0, tv_nsec: 0 };
    poll(&mut fds, Some(&at_once)).is_ok() && fds[0].revents().intersects(PollFlags::ERR | PollFlags::HUP)
}
