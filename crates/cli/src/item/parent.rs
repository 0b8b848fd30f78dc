//! The process that started this one, and whether it still lives.

use rustix::process::{Pid, getsid};
use std::os::unix::process::parent_id;
use std::time::Duration;

const POLL: Duration = Duration::from_millis(500);

/// An orphan gets another parent: init, or a process that asked to adopt. So the parent of the start is remembered.
#[derive(Debug, Clone, Copy)]
pub struct Parent {
    pid: u32,
}

impl Parent {
    /// To be asked first of all: what happened before cannot be seen.
    pub fn now() -> Parent {
        Parent { pid: parent_id() }
    }

    pub fn is_gone(self) -> bool {
        parent_id() != self.pid || self.was_gone_at_start()
    }

    /// Init starts nobody's heartbeat, so a child of init was adopted before it could look. But the first process of a
    /// container may be the worker itself; then both are in one session.
    fn was_gone_at_start(self) -> bool {
        self.pid == 1 && getsid(Some(Pid::INIT)).ok() != getsid(None).ok()
    }

    /// Waits until it is gone.
    pub async fn gone(self) {
        while !self.is_gone() {
            tokio::time::sleep(POLL).await;
        }
    }
}
