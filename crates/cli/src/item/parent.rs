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

    /// Nobody's heartbeat is started by init, so a child of init was adopted before it could look. But the first
    /// process of a container may be the worker itself; then both are in one session.
    fn was_gone_at_start(self) -> bool {
        let sessions = (self.session(), getsid(None).ok());
        self.adopts() && matches!(sessions, (Some(theirs), Some(ours)) if theirs != ours)
    }

    fn adopts(self) -> bool {
        let name = || std::fs::read_to_string(format!("/proc/{}/comm", self.pid)).unwrap_or_default();
        self.pid == 1 || name().trim_end() == "systemd"
    }

    fn session(self) -> Option<Pid> {
        getsid(Some(Pid::from_raw(i32::try_from(self.pid).ok()?)?)).ok()
    }

    /// Waits until it is gone.
    pub async fn gone(self) {
        if self.was_gone_at_start() {
            return;
        }
        while parent_id() == self.pid {
            tokio::time::sleep(POLL).await;
        }
    }
}
