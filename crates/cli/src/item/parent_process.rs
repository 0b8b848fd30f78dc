//! The process that started this one, and whether it is still alive.

use procfs::process::{Process, Stat};
use std::os::unix::process::parent_id;
use std::time::Duration;

const POLL: Duration = Duration::from_millis(500);

/// When a parent exits, another process adopts its children: init, or a process that asked for it. So this
/// remembers the parent at the start.
#[derive(Debug, Clone, Copy)]
pub struct ParentProcess {
    pid: u32,
}

impl ParentProcess {
    /// Call this first: it cannot see an adoption that happened before.
    pub fn now() -> ParentProcess {
        ParentProcess { pid: parent_id() }
    }

    /// Init starts no heartbeats, so a child of init was adopted before it could look. But the first process
    /// of a container may be the worker itself. Its children are in its session and, unless they lead a group
    /// of their own, in its process group.
    fn was_gone_at_start(self) -> bool {
        let own = std::process::id();
        self.adopts()
            && matches!((ProcessIds::of(self.pid), ProcessIds::of(own)), (Some(theirs), Some(ours)) if ours.is_foreign_to(theirs, own.cast_signed()))
    }

    fn adopts(self) -> bool {
        self.pid == 1 || stat(self.pid).is_some_and(|parent| parent.comm == "systemd")
    }

    /// Waits until the parent is gone.
    pub async fn gone(self) {
        if self.was_gone_at_start() {
            return;
        }
        while parent_id() == self.pid {
            tokio::time::sleep(POLL).await;
        }
    }
}

fn stat(pid: u32) -> Option<Stat> {
    Process::new(pid.cast_signed()).and_then(|process| process.stat()).ok()
}

/// Process group and session. 0 is a leader outside of this process's namespace, which `getsid` of rustix
/// cannot return.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct ProcessIds {
    group: i32,
    session: i32,
}

impl ProcessIds {
    fn of(pid: u32) -> Option<ProcessIds> {
        let Stat { pgrp, session, .. } = stat(pid)?;
        Some(ProcessIds { group: pgrp, session })
    }

    fn is_foreign_to(self, parent: ProcessIds, own: i32) -> bool {
        self.session != parent.session || (self.group != parent.group && self.group != own)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_child_of_process_one_is_not_an_orphan() {
        let init = ProcessIds { group: 1, session: 1 };
        let foreign = |group, session| ProcessIds { group, session }.is_foreign_to(init, 99);
        assert!(!foreign(1, 1), "started by it");
        assert!(!foreign(99, 1), "started by it as a job");
        assert!(foreign(50, 1), "started by a process that led a group");
        assert!(foreign(99, 50), "started by a process of another session");
    }

    #[test]
    fn this_process_is_no_orphan() {
        assert!(ProcessIds::of(std::process::id()).is_some());
        assert!(!ParentProcess::now().was_gone_at_start());
    }
}
