//! Runners: start one command, carry its bytes, stop it, and leave nothing behind.
//!
//! **Invariant:** a command never outlives its node by more than two seconds, however the node ends, and nothing of the node's own
//! environment reaches the command.
//!
//! A runner must not know why a command runs: queues, leases and HTTP are the business of its caller.

mod container;
mod cookies;
mod directory;
mod environment;
mod explain;
mod guardian;
mod input;
mod instance;
mod launch;
mod logs;
mod output;
mod process;
mod removal;
mod running;
mod shim;
mod start_error;
mod sweeper;

pub use container::{ContainerConfig, ContainerRunner};
pub use guardian::{GuardianError, guard};
pub use input::InputPipe;
pub use instance::InstanceError;
pub use launch::{Launch, Limits, PrivateFile, PullPolicy};
pub use logs::{LogCap, Logs};
pub use output::OutputPipe;
pub use process::{ProcessConfig, ProcessRunner};
pub use running::{Exit, Handle, Running};
pub use shim::{ShimError, exec_shim};
pub use start_error::StartError;

use futures::future::BoxFuture;
use std::collections::BTreeMap;
use std::fmt::Debug;

/// Starts commands. [`ProcessRunner`] starts them as processes of this machine, [`ContainerRunner`] in containers.
pub trait Runner: Send + Sync + Debug {
    /// Starts a command and returns as soon as the command itself runs.
    ///
    /// Dropping the future, or every [`Handle`] of the answer, kills the command.
    fn start(&self, launch: Launch) -> BoxFuture<'_, Result<Running, StartError>>;

    /// The variables that the runner sets for a launch: pipes, files, and what every command has. The caller can refer to them
    /// in the command, or leave them out of the environment.
    fn variables(&self, launch: &Launch) -> BTreeMap<String, String>;
}
