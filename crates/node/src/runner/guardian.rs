//! The guardian: a small process that outlives its node and cleans up after it.
//!
//! Its standard input is a pipe that only the node has open to write. The end of the pipe is the end of the node, also after
//! `kill -9`. Then the guardian kills every process with the node's cookie and removes the node's directory.

use super::instance::{InstanceDirectory, InstanceError, clean};
use parking_lot::Mutex;
use rustix::process::setsid;
use std::ffi::OsString;
use std::io::{self, PipeWriter};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::thread;
use std::time::Duration;

/// Between the death of a guardian and the start of the next.
const RESTART_PAUSE: Duration = Duration::from_millis(100);

#[derive(Debug, thiserror::Error)]
pub enum GuardianError {
    #[error("this command is for a node's own use: it needs a directory and an instance")]
    Misused,
    #[error("cannot watch the node: {0}")]
    Watch(io::Error),
    #[error("cannot remove the node's directory: {0}")]
    Remove(io::Error),
    #[error("{0} processes of the node do not die")]
    Left(usize),
}

/// Waits for the end of the node, then cleans up. The main function of the guardian.
///
/// `args` are the arguments after the hidden name: the directory of the instance and its name.
pub fn guard(args: impl IntoIterator<Item = OsString>) -> Result<(), GuardianError> {
    let mut args = args.into_iter();
    let (Some(path), Some(name), None) =
        (args.next(), args.next().and_then(|name| name.into_string().ok()), args.next())
    else {
        return Err(GuardianError::Misused);
    };
    // A session of its own: a signal from the node's terminal does not end the guardian.
    setsid().map_err(|error| GuardianError::Watch(error.into()))?;
    // The node writes nothing. Whatever comes is as good as nothing.
    io::copy(&mut io::stdin().lock(), &mut io::sink()).map_err(GuardianError::Watch)?;
    match clean(Path::new(&path), &name).map_err(GuardianError::Remove)? {
        0 => Ok(()),
        left => Err(GuardianError::Left(left)),
    }
}

/// Keeps a guardian for a runner: starts another when one dies. Dropping it makes the guardian clean up and end.
#[derive(Debug)]
pub(super) struct GuardianKeeper {
    /// The node's end of the guardian's pipe. `None` when the runner is closing.
    lifeline: Arc<Mutex<Option<PipeWriter>>>,
}

impl GuardianKeeper {
    /// The runner's directory stays locked until its last guardian has cleaned up.
    pub(super) fn start(
        program: Vec<OsString>,
        instance: Arc<InstanceDirectory>,
    ) -> Result<GuardianKeeper, InstanceError> {
        let fault = |source| InstanceError::Start { what: "the node's guardian", source };
        let (guardian, writer) = spawn(&program, &instance.path, &instance.name).map_err(fault)?;
        let lifeline = Arc::new(Mutex::new(Some(writer)));
        let kept = Arc::clone(&lifeline);
        thread::Builder::new()
            .name("node-guardian".to_owned())
            .spawn(move || keep(guardian, &program, &instance, &kept))
            .map_err(fault)?;
        Ok(GuardianKeeper { lifeline })
    }
}

impl Drop for GuardianKeeper {
    fn drop(&mut self) {
        *self.lifeline.lock() = None;
    }
}

fn keep(
    mut guardian: Child,
    program: &[OsString],
    instance: &InstanceDirectory,
    lifeline: &Mutex<Option<PipeWriter>>,
) {
    loop {
        let ended = guardian.wait();
        if lifeline.lock().is_none() {
            return;
        }
        tracing::warn!(?ended, "the node's guardian ended; starting another");
        guardian = loop {
            thread::sleep(RESTART_PAUSE);
            match spawn(program, &instance.path, &instance.name) {
                Ok((next, writer)) => {
                    let mut lifeline = lifeline.lock();
                    if lifeline.is_some() {
                        *lifeline = Some(writer);
                    }
                    break next;
                }
                Err(error) => tracing::warn!(%error, "cannot start the node's guardian; trying again"),
            }
            if lifeline.lock().is_none() {
                return;
            }
        };
    }
}

fn spawn(program: &[OsString], path: &Path, name: &str) -> io::Result<(Child, PipeWriter)> {
    let Some((executable, args)) = program.split_first() else {
        return Err(io::Error::new(io::ErrorKind::InvalidInput, "no program is named for the guardian"));
    };
    let (reader, writer) = io::pipe()?;
    let child = Command::new(executable)
        .args(args)
        .arg(path)
        .arg(name)
        .env_clear()
        .current_dir("/")
        .stdin(reader)
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn()?;
    Ok((child, writer))
}
