//! The process that started this one, and whether it still lives.

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
        let sessions = (session(self.pid), session(std::process::id()));
        self.adopts() && matches!(sessions, (Some(theirs), Some(ours)) if theirs != ours)
    }

    fn adopts(self) -> bool {
        let name = || std::fs::read_to_string(format!("/proc/{}/comm", self.pid)).unwrap_or_default();
        self.pid == 1 || name().trim_end() == "systemd"
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

/// 0 for a session whose leader is outside of this process's namespace, which `getsid` of rustix cannot say.
fn session(pid: u32) -> Option<u32> {
    session_in(&std::fs::read_to_string(format!("/proc/{pid}/stat")).ok()?)
}

/// The command's name may have spaces and brackets of its own; state, parent, process group and session follow it.
fn session_in(stat: &str) -> Option<u32> {
    let (_, after) = stat.rsplit_once(')')?;
    after.split_ascii_whitespace().nth(3)?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_session_is_found_whatever_the_name() {
        assert_eq!(session_in("2183 (bash) S 2182 2183 2170 34816 0 4194304"), Some(2170));
        assert_eq!(session_in("2183 (a) R 1 (b) S 2182 2183 2170 34816 0"), Some(2170));
        assert_eq!(session_in("2 (of a parent namespace) S 1 0 0 0 -1"), Some(0));
        assert_eq!(session_in("2183 (bash) S"), None);
    }

    #[test]
    fn this_process_is_not_an_orphan() {
        assert!(session(std::process::id()).is_some());
        assert!(!Parent::now().was_gone_at_start());
    }
}
