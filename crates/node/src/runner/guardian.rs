//! The guardian: a small process that outlives its node and cleans up after it.
//!
//! Its standard input is a pipe that only the node has open to write. The node writes the session of each command before the command
//! runs, and its negative when the command has ended. The end of the pipe is the end of the node, also after `kill -9`. Then the
//! guardian kills the sessions that are left and every process with the node's cookie, and removes the node's directory.

use super::StartError;
use super::container::engine::Engine;
use super::instance::{InstanceDirectory, InstanceError, kill_processes};
use super::removal::remove_tree;
use parking_lot::Mutex;
use rustix::io::ioctl_fionbio;
use rustix::process::setsid;
use std::collections::BTreeSet;
use std::ffi::OsString;
use std::io::{self, PipeWriter, Read, Write};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::thread;
use std::time::Duration;

/// Between the death of a guardian and the start of the next.
const RESTART_PAUSE: Duration = Duration::from_millis(100);
/// Tries to reach the container engine, a tenth of a second apart.
const ENGINE_TRIES: u32 = 600;

#[derive(Debug, thiserror::Error)]
pub enum GuardianError {
    #[error("this command is for a node's own use: it needs a directory and an instance")]
    Misused,
    #[error("cannot watch the node: {0}")]
    Watch(io::Error),
    #[error("cannot remove the node's directory: {0}")]
    Remove(io::Error),
    #[error(transparent)]
    Engine(StartError),
    #[error("{0} processes of the node do not die")]
    Left(usize),
}

/// Waits for the end of the node, then cleans up. The main function of the guardian.
///
/// `args` are the arguments after the hidden name: the directory of the instance, its name and, for containers, the address of
/// the engine.
pub fn guard(args: impl IntoIterator<Item = OsString>) -> Result<(), GuardianError> {
    let mut args = args.into_iter();
    let mut next = || args.next().and_then(|arg| arg.into_string().ok());
    let (Some(path), Some(name), engine, None) = (next(), next(), next(), next()) else {
        return Err(GuardianError::Misused);
    };
    // A session of its own: a signal from the node's terminal does not end the guardian.
    setsid().map_err(|error| GuardianError::Watch(error.into()))?;
    let sessions = read_sessions(io::stdin().lock()).map_err(GuardianError::Watch)?;
    let left = kill_processes(&name, &sessions);
    let containers = engine.map(|address| remove_containers(&address, &name));
    remove_tree(Path::new(&path)).map_err(GuardianError::Remove)?;
    containers.transpose()?;
    if left == 0 { Ok(()) } else { Err(GuardianError::Left(left)) }
}

/// Removes the containers of the node. Tries again for a while: what has killed the node may have hit the engine too.
fn remove_containers(address: &str, name: &str) -> Result<(), GuardianError> {
    let runtime =
        tokio::runtime::Builder::new_current_thread().enable_all().build().map_err(GuardianError::Watch)?;
    runtime.block_on(async {
        let mut tries = ENGINE_TRIES;
        loop {
            let removed = match Engine::connect(Some(address)).await {
                Ok(engine) => engine.remove_instance(name).await,
                Err(error) => Err(error),
            };
            match removed {
                Ok(0) => return Ok(()),
                Err(error) if tries == 0 => return Err(GuardianError::Engine(error)),
                // One that was just being made appears in the next list.
                Ok(_) | Err(_) => tries = tries.saturating_sub(1),
            }
            tokio::time::sleep(RESTART_PAUSE).await;
        }
    })
}

/// Reads until the node's end. Returns the sessions whose commands have not ended.
fn read_sessions(mut node: impl Read) -> io::Result<BTreeSet<i32>> {
    let mut sessions = BTreeSet::new();
    let mut message = [0; 4];
    loop {
        match node.read_exact(&mut message) {
            Ok(()) => match i32::from_le_bytes(message) {
                session if session > 0 => sessions.insert(session),
                ended => sessions.remove(&ended.wrapping_neg()),
            },
            Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => return Ok(sessions),
            Err(error) => return Err(error),
        };
    }
}

/// Keeps a guardian for a runner: starts another when one dies. Dropping it makes the guardian clean up and end.
#[derive(Debug)]
pub(super) struct GuardianKeeper(Arc<Lifeline>);

/// The node's end of the guardian's pipe.
#[derive(Debug)]
pub(super) struct Lifeline(Mutex<State>);

#[derive(Debug)]
struct State {
    /// `None` when the runner is closing.
    pipe: Option<PipeWriter>,
    /// For the next guardian, if this one dies.
    sessions: BTreeSet<i32>,
}

impl Lifeline {
    /// Tells the guardian of a session that it has to kill if the node dies.
    pub(super) fn add(&self, session: i32) {
        let mut state = self.0.lock();
        state.sessions.insert(session);
        state.send(session);
    }

    /// The command of the session has ended, and its process group was killed.
    pub(super) fn remove(&self, session: i32) {
        let mut state = self.0.lock();
        state.sessions.remove(&session);
        state.send(-session);
    }

    fn is_closing(&self) -> bool {
        self.0.lock().pipe.is_none()
    }

    /// Starts another guardian, which knows all sessions from its first moment.
    fn replace(&self, program: &[OsString]) -> io::Result<Child> {
        let mut state = self.0.lock();
        let (guardian, pipe) = spawn(program, &state.sessions)?;
        if state.pipe.is_some() {
            state.pipe = Some(pipe);
        }
        Ok(guardian)
    }
}

impl State {
    fn send(&mut self, message: i32) {
        if let Some(pipe) = &mut self.pipe {
            // The pipe does not block, and a guardian that hangs must not stop the node. The cookies are left to it then.
            let _ = pipe.write_all(&message.to_le_bytes());
        }
    }
}

impl GuardianKeeper {
    /// The runner's directory stays locked until its last guardian has cleaned up.
    pub(super) fn start(
        mut program: Vec<OsString>,
        engine: Option<String>,
        instance: Arc<InstanceDirectory>,
    ) -> Result<GuardianKeeper, InstanceError> {
        let fault = |source| InstanceError::Start { what: "the node's guardian", source };
        program.extend([instance.path.clone().into(), instance.name.clone().into()]);
        program.extend(engine.map(OsString::from));
        let (guardian, pipe) = spawn(&program, &BTreeSet::new()).map_err(fault)?;
        let state = State { pipe: Some(pipe), sessions: BTreeSet::new() };
        let lifeline = Arc::new(Lifeline(Mutex::new(state)));
        let kept = Arc::clone(&lifeline);
        thread::Builder::new()
            .name("node-guardian".to_owned())
            .spawn(move || keep(guardian, &program, &kept, instance))
            .map_err(fault)?;
        Ok(GuardianKeeper(lifeline))
    }

    pub(super) fn lifeline(&self) -> Arc<Lifeline> {
        Arc::clone(&self.0)
    }
}

impl Drop for GuardianKeeper {
    fn drop(&mut self) {
        self.0.0.lock().pipe = None;
    }
}

/// Waits for the guardian's end, again and again, until the runner closes.
fn keep(mut guardian: Child, program: &[OsString], lifeline: &Lifeline, _locked: Arc<InstanceDirectory>) {
    loop {
        let ended = guardian.wait();
        if lifeline.is_closing() {
            return;
        }
        tracing::warn!(?ended, "the node's guardian ended; starting another");
        guardian = loop {
            thread::sleep(RESTART_PAUSE);
            match lifeline.replace(program) {
                Ok(next) => break next,
                Err(error) => tracing::warn!(%error, "cannot start the node's guardian; trying again"),
            }
            if lifeline.is_closing() {
                return;
            }
        };
    }
}

fn spawn(program: &[OsString], sessions: &BTreeSet<i32>) -> io::Result<(Child, PipeWriter)> {
    let Some((executable, args)) = program.split_first() else {
        return Err(io::Error::new(io::ErrorKind::InvalidInput, "no program is named for the guardian"));
    };
    let (reader, mut writer) = io::pipe()?;
    ioctl_fionbio(&writer, true)?;
    let known: Vec<u8> = sessions.iter().flat_map(|session| session.to_le_bytes()).collect();
    writer.write_all(&known)?;
    let child = Command::new(executable)
        .args(args)
        .env_clear()
        .current_dir("/")
        .stdin(reader)
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn()?;
    Ok((child, writer))
}
