//! The supervisor: the task that starts one container and watches it to its end.

use super::engine::{Engine, in_words};
use super::streams::{Streams, copy};
use crate::runner::directory::LaunchDirectory;
use crate::runner::running::{Control, Demand};
use crate::runner::{Exit, StartError};
use bollard::errors::Error;
use bollard::models::{ContainerCreateBody, ContainerState};
use bollard::query_parameters::{
    AttachContainerOptionsBuilder, CreateContainerOptionsBuilder, KillContainerOptionsBuilder,
    StartContainerOptions, WaitContainerOptions,
};
use futures::StreamExt;
use std::time::Duration;
use tokio::sync::oneshot;
use tokio::task::spawn_blocking;

/// Between two tries when the engine does not do what it is asked.
const RETRY_PAUSE: Duration = Duration::from_millis(500);

#[derive(Debug)]
pub(super) struct Supervisor {
    pub(super) engine: Engine,
    pub(super) name: String,
    pub(super) control: Control,
    pub(super) directory: LaunchDirectory,
    pub(super) stop_grace: Duration,
}

/// A container that does not exist yet.
#[derive(Debug)]
pub(super) struct Prepared {
    pub(super) blueprint: ContainerCreateBody,
    /// For the explanation of a command that is not found.
    pub(super) path: Option<String>,
    pub(super) reply: oneshot::Sender<Result<Streams, StartError>>,
}

impl Supervisor {
    pub(super) async fn run(mut self, prepared: Prepared) {
        let Prepared { blueprint, path, reply } = prepared;
        let command = blueprint.entrypoint.as_ref().and_then(|words| words.first()).cloned();
        let started = self.start(blueprint, command.as_deref(), path.as_deref()).await;
        let (streams, end) = match started {
            Ok(started) => started,
            Err(error) => {
                self.clean_up().await;
                let _ = reply.send(Err(error));
                return;
            }
        };
        // A caller that has gone has dropped the handle too, so the container is killed below.
        let _ = reply.send(Ok(streams));
        self.wait().await;
        let exit = self.exit().await;
        drop(end);
        let exited = self.control.exit.clone();
        self.clean_up().await;
        exited.send_replace(Some(exit));
    }

    async fn start(
        &self,
        blueprint: ContainerCreateBody,
        command: Option<&str>,
        path: Option<&str>,
    ) -> Result<(Streams, oneshot::Sender<()>), StartError> {
        let docker = &self.engine.docker;
        let image = blueprint.image.clone().unwrap_or_default();
        let options = CreateContainerOptionsBuilder::default().name(&self.name).build();
        docker.create_container(Some(options), blueprint).await.map_err(|error| match error {
            Error::DockerResponseServerError { status_code: 404, .. } => StartError::ImageAbsent { image },
            error => self.explain("create the container", &error, command, path),
        })?;
        // Before the start, so that the first line is not lost.
        let options = AttachContainerOptionsBuilder::default().stdout(true).stderr(true).stream(true).build();
        let attached = docker.attach_container(&self.name, Some(options)).await;
        // Podman looks for the command here already.
        let attached =
            attached.map_err(|error| self.explain("attach to the container", &error, command, path))?;
        let copied = copy(attached)
            .map_err(|error| StartError::Other(format!("cannot make the pipes of the container: {error}")))?;
        docker
            .start_container(&self.name, None::<StartContainerOptions>)
            .await
            .map_err(|error| self.explain("start the container", &error, command, path))?;
        Ok(copied)
    }

    /// Engines tell in words alone why a command did not start.
    fn explain(&self, doing: &str, error: &Error, command: Option<&str>, path: Option<&str>) -> StartError {
        let message = in_words(error).to_lowercase();
        let Some(command) = command.map(str::to_owned).filter(|_| !message.contains("no space left")) else {
            return self.engine.fault(doing, error);
        };
        let not_executable = ["permission denied", "exec format error", "is a directory"];
        if message.contains("executable file not found") || message.contains("command that was not found") {
            if command.contains('/') {
                return StartError::FileNotFound { command };
            }
            return StartError::CommandNotFound { command, path: path.unwrap_or("of the image").to_owned() };
        }
        if message.contains("no such file or directory") && message.contains(&command.to_lowercase()) {
            return StartError::FileNotFound { command };
        }
        if let Some(why) = not_executable.into_iter().find(|why| message.contains(why)) {
            return StartError::NotExecutable { command, why: format!("{why}; check the file in the image") };
        }
        self.engine.fault(doing, error)
    }

    /// Waits for the end of the container and sends the signals that the caller demands.
    async fn wait(&mut self) {
        let mut demanded = Demand::Run;
        let (engine, name) = (&self.engine, self.name.as_str());
        let ended = ended(engine, name);
        let timer = tokio::time::sleep(Duration::MAX);
        tokio::pin!(ended, timer);
        loop {
            tokio::select! {
                () = &mut ended => return,
                demand = self.control.next_demand(), if demanded != Demand::Kill => {
                    if demand == Demand::Stop {
                        signal(engine, name, "SIGTERM").await;
                        timer.set(tokio::time::sleep(self.stop_grace));
                    } else {
                        timer.set(tokio::time::sleep(Duration::ZERO));
                    }
                    demanded = demand;
                }
                // Again and again, because the engine may be away.
                () = &mut timer, if demanded != Demand::Run => {
                    signal(engine, name, "SIGKILL").await;
                    demanded = Demand::Kill;
                    timer.set(tokio::time::sleep(RETRY_PAUSE));
                }
            }
        }
    }

    async fn exit(&self) -> Exit {
        match state(&self.engine, &self.name).await {
            Ok(state) => {
                let code = state.exit_code.and_then(|code| i32::try_from(code).ok());
                Exit { code, signal: None, oom: state.oom_killed.unwrap_or_default() }
            }
            Err(error) => {
                tracing::warn!(container = self.name, %error, "the exit of a container is not known");
                Exit { signal: Some(9), ..Exit::default() }
            }
        }
    }

    async fn clean_up(self) {
        let Supervisor { engine, name, mut directory, .. } = self;
        if let Err(error) = engine.remove(&name).await {
            tracing::warn!(container = name, %error, "cannot remove a container; the next node will");
        }
        directory.end_pipes();
        let _ = spawn_blocking(move || drop(directory)).await;
    }
}

/// Waits until the container does not run any more, however often the connection breaks meanwhile.
async fn ended(engine: &Engine, name: &str) {
    loop {
        // The answer says no more than that it may have ended.
        let _ = engine.docker.wait_container(name, None::<WaitContainerOptions>).next().await;
        match state(engine, name).await {
            Ok(state) if state.running == Some(true) => {}
            Ok(_) | Err(Error::DockerResponseServerError { status_code: 404, .. }) => return,
            Err(error) => tracing::warn!(container = name, %error, "cannot watch a container; trying again"),
        }
        tokio::time::sleep(RETRY_PAUSE).await;
    }
}

async fn state(engine: &Engine, name: &str) -> Result<ContainerState, Error> {
    let container = engine.docker.inspect_container(name, None).await?;
    Ok(container.state.unwrap_or_default())
}

async fn signal(engine: &Engine, name: &str, signal: &str) {
    let options = KillContainerOptionsBuilder::default().signal(signal).build();
    match engine.docker.kill_container(name, Some(options)).await {
        // 404 and 409: it has ended.
        Ok(()) | Err(Error::DockerResponseServerError { status_code: 404 | 409, .. }) => {}
        Err(error) => tracing::warn!(container = name, signal, %error, "cannot signal a container"),
    }
}
