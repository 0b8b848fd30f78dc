//! The supervisor: the task that watches one process to its end.

use super::child::Child;
use super::{Control, Live};
use crate::runner::Exit;
use crate::runner::directory::LaunchDirectory;
use crate::runner::running::Demand;
use rustix::process::Signal;
use std::time::Duration;
use tokio::task::spawn_blocking;

// The order of the fields is that of the clean-up when the runtime drops the task.
#[derive(Debug)]
pub(super) struct Supervisor {
    pub(super) child: Child,
    pub(super) control: Control,
    pub(super) directory: LaunchDirectory,
    pub(super) live: Live,
    pub(super) stop_grace: Duration,
}

impl Supervisor {
    pub(super) async fn run(mut self) {
        let demanded = self.wait().await;
        let Supervisor { mut child, control, mut directory, live, .. } = self;
        child.signal(Signal::KILL);
        if demanded == Demand::Run {
            drop(live);
        } else {
            // Before the process is reaped: until then its session cannot be another's.
            let session = child.session();
            let _ = spawn_blocking(move || live.kill(session)).await;
        }
        let exit = child.reap().unwrap_or_else(|error| {
            tracing::error!(%error, "cannot take the exit of a process");
            Exit::default()
        });
        directory.end_pipes();
        spawn_blocking(move || {
            drop(directory);
            control.exit.send_replace(Some(exit));
        });
    }

    /// Waits for the end of the process and sends the signals that the caller demands. Returns the last demand.
    async fn wait(&mut self) -> Demand {
        let mut demanded = Demand::Run;
        let child = &self.child;
        let ended = child.ended();
        let grace = tokio::time::sleep(Duration::MAX);
        tokio::pin!(ended, grace);
        loop {
            tokio::select! {
                result = &mut ended => {
                    if let Err(error) = result {
                        tracing::error!(%error, "cannot watch a process; killing it");
                    }
                    return demanded;
                }
                demand = self.control.next_demand(), if demanded != Demand::Kill => {
                    if demand == Demand::Stop {
                        child.signal(Signal::TERM);
                        grace.set(tokio::time::sleep(self.stop_grace));
                    } else {
                        child.signal(Signal::KILL);
                    }
                    demanded = demand;
                }
                () = &mut grace, if demanded == Demand::Stop => {
                    child.signal(Signal::KILL);
                    demanded = Demand::Kill;
                }
            }
        }
    }
}
