//! A command that runs.

use super::{InputPipe, OutputPipe};
use std::collections::BTreeMap;
use tokio::sync::watch;

/// A command that runs, with its pipes. Move the pipes out to the tasks that copy them.
///
/// Read `stdout`, `stderr` and every output until their ends, also if the bytes are not needed: the command waits while a pipe is
/// full.
#[derive(Debug)]
pub struct Running {
    pub inputs: BTreeMap<String, InputPipe>,
    pub outputs: BTreeMap<String, OutputPipe>,
    pub stdout: OutputPipe,
    pub stderr: OutputPipe,
    pub handle: Handle,
}

/// Stops a command and waits for its end. Clones are of the same command; dropping the last one kills it.
#[derive(Debug, Clone)]
pub struct Handle {
    demands: watch::Sender<Demand>,
    exit: watch::Receiver<Option<Exit>>,
}

/// How a command ended. A container has no signal: its code is then 128 and the number of the signal.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Exit {
    pub code: Option<i32>,
    pub signal: Option<i32>,
    /// The system ended it because it used more memory than its limit. Only containers tell, and not those of every engine.
    pub oom: bool,
}

impl Exit {
    #[must_use]
    pub fn is_success(&self) -> bool {
        self.code == Some(0)
    }
}

/// What the caller wants of a command.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Demand {
    Run,
    Stop,
    Kill,
}

/// The runner's ends of a handle's channels.
#[derive(Debug)]
pub(super) struct Control {
    pub(super) demands: watch::Receiver<Demand>,
    pub(super) exit: watch::Sender<Option<Exit>>,
}

impl Handle {
    pub(super) fn new() -> (Handle, Control) {
        let (demands, demanded) = watch::channel(Demand::Run);
        let (ended, exit) = watch::channel(None);
        (Handle { demands, exit }, Control { demands: demanded, exit: ended })
    }

    /// Waits until the command has ended, its processes are gone and its directory is removed.
    pub async fn wait(&self) -> Exit {
        let mut exit = self.exit.clone();
        let ended = exit.wait_for(Option::is_some).await;
        // The runtime is shutting down, and the command was killed with it.
        ended.ok().and_then(|exit| *exit).unwrap_or(Exit { signal: Some(9), ..Exit::default() })
    }

    /// Sends SIGTERM to the command, and SIGKILL after the grace time of its launch. Returns at once.
    pub fn stop(&self) {
        self.demand(Demand::Stop);
    }

    /// Sends SIGKILL to the command. Returns at once.
    pub fn kill(&self) {
        self.demand(Demand::Kill);
    }

    fn demand(&self, demand: Demand) {
        self.demands.send_if_modified(|current| {
            let more = *current < demand;
            *current = demand.max(*current);
            more
        });
    }
}

impl Control {
    /// Waits for another demand. A command without a handle is to be killed.
    pub(super) async fn next_demand(&mut self) -> Demand {
        match self.demands.changed().await {
            Ok(()) => *self.demands.borrow_and_update(),
            Err(_) => Demand::Kill,
        }
    }
}
