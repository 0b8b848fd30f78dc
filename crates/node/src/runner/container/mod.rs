//! The container runner: commands in containers of any engine with Docker's API, such as Docker and Podman.
//!
//! The launch directory, with the pipes and the private files, is mounted at `/towline`, so the engine must be on the node's own
//! machine. A container has no privileges: no capabilities, and no way to gain any. The guardian and the next node remove containers
//! of a dead node by their labels.

mod blueprint;
pub(super) mod engine;
mod streams;
mod supervisor;

use super::directory::{LaunchDirectory, Modes, Pipes};
use super::environment::Places;
use super::guardian::GuardianKeeper;
use super::instance::InstanceDirectory;
use super::{Handle, InstanceError, Launch, Runner, Running, StartError};
use engine::Engine;
use futures::future::BoxFuture;
use std::collections::BTreeMap;
use std::ffi::OsString;
use std::path::PathBuf;
use std::sync::Arc;
use supervisor::{Prepared, Supervisor};
use tokio::sync::oneshot;
use tokio::task::spawn_blocking;

/// How a container runner starts containers.
#[derive(Debug, Clone)]
pub struct ContainerConfig {
    /// Private directory of all nodes of this machine and user. Made if it does not exist.
    pub root: PathBuf,
    /// A name that no node ever had before in this root.
    pub instance: String,
    /// The address of the engine, `unix:///path` or `http://host:port`. By default that in `DOCKER_HOST`, or the first socket that
    /// exists of `/run/docker.sock`, `/run/podman/podman.sock` and `$XDG_RUNTIME_DIR/podman/podman.sock`.
    pub engine: Option<String>,
    /// A program, with arguments, that calls [`guard`](super::guard) with three more arguments.
    pub guardian: Vec<OsString>,
    /// The engine's network mode, `host` or `none` for instance. By default the engine's own.
    pub network: Option<String>,
    /// Whether the file system of the image is read-only. `/tmp` is then in memory.
    pub is_read_only: bool,
    /// Linux capabilities that a container keeps, for instance `NET_BIND_SERVICE`.
    pub capabilities: Vec<String>,
    /// The Towline program for the containers. It must be linked statically.
    pub cli: Option<PathBuf>,
}

/// Runs commands in containers. Dropping it removes them.
#[derive(Debug)]
pub struct ContainerRunner {
    shared: Arc<Shared>,
    _guardian: GuardianKeeper,
}

#[derive(Debug)]
struct Shared {
    engine: Engine,
    instance: Arc<InstanceDirectory>,
    config: ContainerConfig,
}

impl ContainerRunner {
    /// Connects to the engine, cleans up after dead nodes in the same root, then starts the guardian.
    pub async fn connect(config: ContainerConfig) -> Result<ContainerRunner, InstanceError> {
        let engine = Engine::connect(config.engine.as_deref()).await.map_err(InstanceError::Engine)?;
        let (root, name) = (config.root.clone(), config.instance.clone());
        let created = spawn_blocking(move || InstanceDirectory::create(&root, &name)).await;
        let instance = Arc::new(
            created.map_err(|error| InstanceError::Start { what: "the node", source: error.into() })??,
        );
        engine.remove_dead(&instance).await.map_err(InstanceError::Engine)?;
        let guardian =
            GuardianKeeper::start(config.guardian.clone(), Some(engine.address()), Arc::clone(&instance))?;
        let shared = Arc::new(Shared { engine, instance, config });
        Ok(ContainerRunner { shared, _guardian: guardian })
    }

    async fn start_container(&self, launch: Launch) -> Result<Running, StartError> {
        launch.check()?;
        let Some(image) = launch.image.clone() else {
            return Err(StartError::Invalid(
                "the launch names no image; name one, or use the process runner".to_owned(),
            ));
        };
        self.shared.engine.provide_image(&image, launch.pull).await?;
        let shared = Arc::clone(&self.shared);
        let prepared = spawn_blocking(move || {
            let (directory, pipes) = LaunchDirectory::create(&shared.instance.path, &launch, Modes::SHARED)?;
            Ok((launch, directory, pipes))
        });
        let (launch, directory, Pipes { inputs, outputs }) = prepared.await.map_err(|error| {
            StartError::Other(format!("the preparation of the launch broke off: {error}"))
        })??;
        let blueprint =
            blueprint::blueprint(&launch, &directory, &self.shared.instance, &self.shared.config)?;
        let (handle, control) = Handle::new();
        let (reply, started) = oneshot::channel();
        let prepared = Prepared { blueprint, path: launch.environment.get("PATH").cloned(), reply };
        let supervisor = Supervisor {
            engine: self.shared.engine.clone(),
            name: blueprint::container_name(&self.shared.instance.name, &launch.id),
            control,
            directory,
            stop_grace: launch.stop_grace,
        };
        tokio::spawn(supervisor.run(prepared));
        // The supervisor cleans up, also when this future is dropped: that drops the handle.
        let gone = |_| StartError::Other("the runtime is shutting down".to_owned());
        let streams = started.await.map_err(gone)??;
        Ok(Running { inputs, outputs, stdout: streams.stdout, stderr: streams.stderr, handle })
    }
}

impl Runner for ContainerRunner {
    fn start(&self, launch: Launch) -> BoxFuture<'_, Result<Running, StartError>> {
        Box::pin(self.start_container(launch))
    }

    fn variables(&self, launch: &Launch) -> BTreeMap<String, String> {
        let bare = Launch { environment: BTreeMap::new(), ..launch.clone() };
        Places { directory: blueprint::MOUNT, work: None }.environment(&bare, &self.shared.instance.name)
    }
}
