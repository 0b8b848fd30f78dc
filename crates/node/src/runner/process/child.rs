//! A child process that is killed and reaped when dropped.

use crate::runner::Exit;
use crate::runner::guardian::Lifeline;
use rustix::process::{Pid, PidfdFlags, Signal, kill_process_group, pidfd_open, pidfd_send_signal};
use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::process::ExitStatusExt;
use std::sync::Arc;
use tokio::io::unix::AsyncFd;

#[derive(Debug)]
pub(super) struct Child {
    process: std::process::Child,
    pid: Pid,
    descriptor: OwnedFd,
    lifeline: Arc<Lifeline>,
    reaped: bool,
}

impl Child {
    /// Takes a shim that waits for its order: the guardian hears of it before it can run a command.
    pub(super) fn new(mut process: std::process::Child, lifeline: Arc<Lifeline>) -> io::Result<Child> {
        let pid = i32::try_from(process.id()).ok().and_then(Pid::from_raw);
        let opened = match pid {
            Some(pid) => pidfd_open(pid, PidfdFlags::empty()).map(|descriptor| (pid, descriptor)),
            None => Err(rustix::io::Errno::SRCH),
        };
        match opened {
            Ok((pid, descriptor)) => {
                lifeline.add(pid.as_raw_nonzero().get());
                Ok(Child { process, pid, descriptor, lifeline, reaped: false })
            }
            Err(error) => {
                let _ = process.kill();
                let _ = process.wait();
                Err(error.into())
            }
        }
    }

    /// Waits until the process has ended. It stays a zombie, so its group cannot get another meaning.
    #[expect(
        deprecated,
        reason = "its replacement is `unsafe`; an `OwnedFd` keeps its descriptor open, which is all that needs"
    )]
    pub(super) async fn ended(&self) -> io::Result<()> {
        let descriptor = AsyncFd::with_interest(self.descriptor.try_clone()?, tokio::io::Interest::READABLE)?;
        descriptor.readable().await.map(drop)
    }

    /// The session of the command, which has the number of its first process.
    pub(super) fn session(&self) -> i32 {
        self.pid.as_raw_nonzero().get()
    }

    /// Sends a signal to the process and to its group.
    pub(super) fn signal(&self, signal: Signal) {
        if self.reaped {
            return;
        }
        // Before the shim has made its session there is no group. What has ended needs no signal.
        if kill_process_group(self.pid, signal).is_err() {
            let _ = pidfd_send_signal(&self.descriptor, signal);
        }
    }

    /// Kills the rest of the group and takes the exit of a process that has ended. Waits if it has not.
    pub(super) fn reap(&mut self) -> io::Result<Exit> {
        self.signal(Signal::KILL);
        self.lifeline.remove(self.session());
        let status = self.process.wait()?;
        self.reaped = true;
        Ok(Exit { code: status.code(), signal: status.signal(), oom: false })
    }
}

impl Drop for Child {
    fn drop(&mut self) {
        if !self.reaped {
            let _ = self.reap();
        }
    }
}
