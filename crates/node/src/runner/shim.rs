//! The shim: the node's own program, started again, which turns itself into the command.
//!
//! Between the start of a process and its command there is work to do: a session, limits, a signal for the death of the parent.
//! Doing it in a program of its own lets the node start processes with `vfork`, whose time does not grow with the node's memory.
//!
//! The shim takes its order from a socket on its standard input. It answers one byte just before it executes the command. The socket
//! closes with the execution; if the execution fails, the reason follows. So no exit code of a command can be taken for a failed
//! start.

use super::Limits;
use rustix::process::{
    Pid, Resource, Rlimit, Signal, getpid, getppid, getrlimit, set_parent_process_death_signal, setrlimit,
    setsid,
};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::convert::Infallible;
use std::ffi::OsString;
use std::io::{self, Read, Write};
use std::net::Shutdown;
use std::os::fd::AsFd;
use std::os::unix::net::UnixStream;
use std::os::unix::process::CommandExt;
use std::path::PathBuf;
use std::process::{Command, Stdio};

/// Changes with the form of the order: a node may run while its program is replaced.
const VERSION: u32 = 1;
/// Most orders are smaller, and are read at once.
const ORDER_BYTES: usize = 8 << 10;
/// The answer just before the execution.
pub(super) const READY: u8 = b'R';

/// What the shim is to do.
#[derive(Debug, Serialize, Deserialize)]
pub(super) struct Order {
    version: u32,
    parent: i32,
    directory: PathBuf,
    words: Vec<String>,
    environment: BTreeMap<String, String>,
    limits: Limits,
}

impl Order {
    pub(super) fn new(
        directory: PathBuf,
        words: Vec<String>,
        environment: BTreeMap<String, String>,
        limits: Limits,
    ) -> Order {
        Order { version: VERSION, parent: raw(getpid()), directory, words, environment, limits }
    }
}

/// Why the shim did not execute the command.
#[derive(Debug, Serialize, Deserialize)]
pub(super) enum Failure {
    Exec { errno: Option<i32>, message: String },
    Other(String),
}

/// Why a shim ended without executing its command. The node has the reason too, if it still lives.
#[derive(Debug, thiserror::Error)]
pub enum ShimError {
    #[error("this command is for a node's own use: {0}")]
    Misused(String),
    #[error("{0}")]
    Failed(String),
}

/// Becomes the command that the node orders. Returns only if that fails; the program should then end with a non-zero code.
///
/// Call it at the start of `main`, before other threads run. `args` are the arguments after the hidden name: none.
pub fn exec_shim(args: impl IntoIterator<Item = OsString>) -> Result<Infallible, ShimError> {
    if let Some(argument) = args.into_iter().next() {
        return Err(ShimError::Misused(format!("unexpected argument {argument:?}")));
    }
    let misused =
        |error: io::Error| ShimError::Misused(format!("standard input is not a node's socket: {error}"));
    // A copy that closes with the execution: the command gets another standard input.
    let mut node = UnixStream::from(io::stdin().as_fd().try_clone_to_owned().map_err(misused)?);
    let mut order = Vec::with_capacity(ORDER_BYTES);
    node.read_to_end(&mut order).map_err(misused)?;
    let failure = match serde_json::from_slice(&order) {
        Ok(order) => execute(order, &mut node),
        Err(error) => Failure::Other(format!("the node's order cannot be read: {error}")),
    };
    let answer = serde_json::to_vec(&failure).unwrap_or_default();
    // A node that has gone needs no answer.
    let _ = node.write_all(&answer).and_then(|()| node.shutdown(Shutdown::Write));
    Err(ShimError::Failed(match failure {
        Failure::Exec { message, .. } | Failure::Other(message) => message,
    }))
}

fn execute(order: Order, node: &mut UnixStream) -> Failure {
    if let Err(message) = prepare(&order) {
        return Failure::Other(message);
    }
    let Some((program, args)) = order.words.split_first() else {
        return Failure::Other("the command is empty".to_owned());
    };
    let mut command = Command::new(program);
    command.args(args).env_clear().envs(&order.environment).stdin(Stdio::null());
    if let Err(message) = set_limits(order.limits) {
        return Failure::Other(message);
    }
    if let Err(error) = node.write_all(&[READY]) {
        return Failure::Other(format!("cannot reach the node: {error}"));
    }
    let error = command.exec();
    Failure::Exec { errno: error.raw_os_error(), message: error.to_string() }
}

/// Ties the process to the node, gives it a session of its own and moves it to its working directory.
fn prepare(order: &Order) -> Result<(), String> {
    if order.version != VERSION {
        return Err(format!(
            "the node's program was replaced by an incompatible version (order {}, program {VERSION}); restart the node",
            order.version
        ));
    }
    set_parent_process_death_signal(Some(Signal::KILL))
        .map_err(|error| format!("cannot ask for a signal at the node's death: {error}"))?;
    // The node may have died before the line above; then another process is the parent.
    if getppid().map(raw) != Some(order.parent) {
        return Err("the node has died".to_owned());
    }
    setsid().map_err(|error| format!("cannot start a session: {error}"))?;
    std::env::set_current_dir(&order.directory)
        .map_err(|error| format!("cannot enter the working directory {}: {error}", order.directory.display()))
}

fn set_limits(limits: Limits) -> Result<(), String> {
    let asked = [
        (Resource::Core, "core", Some(0)),
        (Resource::Nofile, "open_files", limits.open_files),
        (Resource::Nproc, "processes", limits.processes),
        (Resource::Data, "memory_bytes", limits.memory_bytes),
    ];
    for (resource, name, value) in asked {
        let Some(value) = value else { continue };
        // Only root may raise a hard limit, and a limit that is lower already holds.
        let value = getrlimit(resource).maximum.map_or(value, |hard| hard.min(value));
        setrlimit(resource, Rlimit { current: Some(value), maximum: Some(value) })
            .map_err(|error| format!("cannot set the limit {name} to {value}: {error}"))?;
    }
    Ok(())
}

fn raw(pid: Pid) -> i32 {
    pid.as_raw_nonzero().get()
}
