//! The process runner: commands as processes of this machine.
//!
//! A command has a session and a process group of its own, and Linux kills it when the node dies. The guardian kills what the
//! command itself has started. Nothing of the node's environment reaches the command; its files, its user and its network are
//! those of the node.

mod child;
mod spawner;
mod supervisor;

use super::cookies::LAUNCH_COOKIE;
use super::directory::{LaunchDirectory, Modes, Pipes};
use super::environment::Places;
use super::explain::explain_exec;
use super::guardian::GuardianKeeper;
use super::instance::InstanceDirectory;
use super::running::Control;
use super::shim::{Failure, Order, READY};
use super::sweeper::{Live, Sweeper};
use super::{Handle, InstanceError, Launch, OutputPipe, Runner, Running, StartError};
use futures::future::BoxFuture;
use spawner::{Spawned, Spawner};
use std::collections::BTreeMap;
use std::ffi::OsString;
use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream as BlockingStream;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::time::Duration;
use supervisor::Supervisor;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::UnixStream;
use tokio::task::{JoinError, spawn_blocking};

/// How a process runner starts processes, and where.
#[derive(Debug, Clone)]
pub struct ProcessConfig {
    /// Private directory of all nodes of this machine and user. Made if it does not exist.
    pub root: PathBuf,
    /// A name that no node ever had before in this root.
    pub instance: String,
    /// A program, with arguments, that calls [`exec_shim`](super::exec_shim). Use `/proc/self/exe`: it stays the node's own
    /// program also while the file is replaced.
    pub shim: Vec<OsString>,
    /// A program, with arguments, that calls [`guard`](super::guard) with two more arguments.
    pub guardian: Vec<OsString>,
}

/// Runs commands as processes. Dropping it kills them.
#[derive(Debug)]
pub struct ProcessRunner {
    shim: Vec<OsString>,
    // In this order: the spawner's end kills the commands, and the guardian cleans up.
    spawner: Spawner,
    sweeper: Sweeper,
    _guardian: GuardianKeeper,
    instance: Arc<InstanceDirectory>,
}

impl ProcessRunner {
    /// Cleans up after dead nodes in the same root, then starts the guardian. Blocks meanwhile.
    pub fn new(config: ProcessConfig) -> Result<ProcessRunner, InstanceError> {
        let instance = Arc::new(InstanceDirectory::create(&config.root, &config.instance)?);
        let guardian = GuardianKeeper::start(config.guardian, None, Arc::clone(&instance))?;
        let fault = |what| move |source| InstanceError::Start { what, source };
        let sweeper = Sweeper::start(&instance.name).map_err(fault("the node's sweeper thread"))?;
        let spawner = Spawner::start(guardian.lifeline()).map_err(fault("the node's spawner thread"))?;
        Ok(ProcessRunner { shim: config.shim, spawner, sweeper, _guardian: guardian, instance })
    }

    async fn start_process(&self, launch: Launch) -> Result<Running, StartError> {
        launch.check()?;
        let words: Vec<String> = launch.command.iter().chain(&launch.args).cloned().collect();
        if words.is_empty() {
            return Err(StartError::Invalid("the command is empty; name a program to run".to_owned()));
        }
        let live = self.sweeper.enter(&launch.id).ok_or_else(|| StartError::taken(&launch.id))?;
        let shim = self.shim_command(&launch.id)?;
        let (instance, name) = (Arc::clone(&self.instance), self.instance.name.clone());
        let spawner = self.spawner.clone();
        let prepared =
            spawn_blocking(move || Prepared::new(&instance.path, &name, launch, words, shim, &spawner));
        prepared.await.map_err(broken)??.start(live).await
    }

    /// The shim gets only the cookies as its environment. What the command gets could disturb it, `LD_LIBRARY_PATH` for instance.
    fn shim_command(&self, launch: &str) -> Result<Command, StartError> {
        let Some((program, args)) = self.shim.split_first() else {
            return Err(StartError::Other("no program is named for the shim".to_owned()));
        };
        let mut command = Command::new(program);
        command.args(args).env_clear();
        command.env(super::cookies::INSTANCE_COOKIE, &self.instance.name).env(LAUNCH_COOKIE, launch);
        Ok(command)
    }
}

impl Runner for ProcessRunner {
    fn start(&self, launch: Launch) -> BoxFuture<'_, Result<Running, StartError>> {
        Box::pin(self.start_process(launch))
    }

    fn variables(&self, launch: &Launch) -> BTreeMap<String, String> {
        let directory = self.instance.path.join(&launch.id);
        let work = directory.join("work");
        let (directory, work) = (directory.to_string_lossy(), work.to_string_lossy());
        let bare = Launch { environment: BTreeMap::new(), ..launch.clone() };
        Places { directory: &directory, work: Some(&work) }.environment(&bare, &self.instance.name)
    }
}

/// A launch whose directory and pipes exist, and whose shim is being started.
struct Prepared {
    directory: LaunchDirectory,
    pipes: Pipes,
    stdout: OutputPipe,
    stderr: OutputPipe,
    order: Vec<u8>,
    spawned: Spawned,
    shim: UnixStream,
    stop_grace: Duration,
    /// For the explanation of a failed execution.
    program: String,
    path: String,
}

impl Prepared {
    fn new(
        instance: &Path,
        name: &str,
        launch: Launch,
        words: Vec<String>,
        mut command: Command,
        spawner: &Spawner,
    ) -> Result<Prepared, StartError> {
        let (mut directory, pipes) = LaunchDirectory::create(instance, &launch, Modes::PRIVATE)?;
        let work = directory.work();
        let environment = environment(&directory, &work, &launch, name)?;
        let path = environment.get("PATH").cloned().unwrap_or_default();
        let program = words.first().cloned().unwrap_or_default();
        let order = Order::new(work, words, environment, launch.limits);
        let order = serde_json::to_vec(&order)
            .map_err(|error| StartError::Other(format!("cannot write the order for the shim: {error}")))?;
        let mut ends = || -> io::Result<_> {
            let (stdout, writer) = io::pipe()?;
            command.stdout(writer);
            let stdout = OutputPipe::from_descriptor(stdout.into(), directory.ended())?;
            let (stderr, writer) = io::pipe()?;
            command.stderr(writer);
            let stderr = OutputPipe::from_descriptor(stderr.into(), directory.ended())?;
            let (node, shim) = BlockingStream::pair()?;
            command.stdin(Stdio::from(OwnedFd::from(shim)));
            node.set_nonblocking(true)?;
            Ok((stdout, stderr, UnixStream::from_std(node)?))
        };
        let (stdout, stderr, shim) = ends()
            .map_err(|error| StartError::Other(format!("cannot make the pipes of the command: {error}")))?;
        let stop_grace = launch.stop_grace;
        let spawned = spawner.spawn(command);
        Ok(Prepared { directory, pipes, stdout, stderr, order, spawned, shim, stop_grace, program, path })
    }

    async fn start(self, live: Live) -> Result<Running, StartError> {
        let Prepared { directory, pipes, stdout, stderr, order, spawned, shim, stop_grace, program, path } =
            self;
        let work = directory.work();
        let child = match spawned.child().await {
            Ok(child) => child,
            Err(error) => {
                // If the runtime is shutting down, no task waits.
                let _ = spawn_blocking(move || drop(directory)).await;
                return Err(StartError::Other(format!("cannot start the node's shim: {error}")));
            }
        };
        let (handle, control) = Handle::new();
        tokio::spawn(Supervisor { child, control, directory, live, stop_grace }.run());
        // From here on the supervisor cleans up, also when this future is dropped: that drops the handle.
        match shake_hands(shim, &order).await {
            Ok(()) => Ok(Running { inputs: pipes.inputs, outputs: pipes.outputs, stdout, stderr, handle }),
            Err(failure) => {
                handle.kill();
                let exit = handle.wait().await;
                Err(match failure {
                    Some(Failure::Exec { errno, message }) => {
                        explain_exec(&program, &path, &work, errno, &message)
                    }
                    Some(Failure::Other(message)) => StartError::Other(message),
                    None => StartError::Other(format!(
                        "the node's shim ended before it executed {program:?} ({exit:?}); the machine may be out of memory"
                    )),
                })
            }
        }
    }
}

fn environment(
    directory: &LaunchDirectory,
    work: &Path,
    launch: &Launch,
    instance: &str,
) -> Result<BTreeMap<String, String>, StartError> {
    let text = |path: &Path| match path.to_str() {
        Some(path) => Ok(path.to_owned()),
        None => Err(StartError::Other(format!("the node's directory {path:?} is not UTF-8; choose another"))),
    };
    let (directory, work) = (text(directory.path())?, text(work)?);
    Ok(Places { directory: &directory, work: Some(&work) }.environment(launch, instance))
}

/// Hands the order to the shim and waits for the execution. `None` is a shim that ended without a reason.
async fn shake_hands(mut shim: UnixStream, order: &[u8]) -> Result<(), Option<Failure>> {
    // A shim that ended early gives the reason in its answer, if at all.
    let _ = shim.write_all(order).await;
    let _ = shim.shutdown().await;
    let mut answer = Vec::new();
    let _ = shim.read_to_end(&mut answer).await;
    let reason = match answer.split_first() {
        Some((&READY, [])) => return Ok(()),
        Some((&READY, reason)) => reason,
        _ => &answer,
    };
    Err(serde_json::from_slice(reason).ok())
}

fn broken(error: JoinError) -> StartError {
    StartError::Other(format!("the preparation of the launch broke off: {error}"))
}
