//! The container engine, through Docker's API.

use super::blueprint::{INSTANCE_LABEL, ROOT_LABEL};
use crate::runner::instance::InstanceDirectory;
use crate::runner::{PullPolicy, StartError};
use bollard::errors::Error;
use bollard::query_parameters::{
    CreateImageOptionsBuilder, ListContainersOptionsBuilder, RemoveContainerOptionsBuilder,
};
use bollard::{API_DEFAULT_VERSION, Docker};
use futures::StreamExt;
use std::collections::HashMap;
use std::path::Path;

/// For the beginning of an answer.
const TIMEOUT_SECONDS: u64 = 120;
const NOT_FOUND: u16 = 404;

/// A connection. Clones share it.
#[derive(Debug, Clone)]
pub(crate) struct Engine {
    pub(super) docker: Docker,
    address: String,
}

impl Engine {
    /// Connects to this address, or to the one that the environment and the machine suggest.
    pub(crate) async fn connect(address: Option<&str>) -> Result<Engine, StartError> {
        let address = match address {
            Some(address) => address.to_owned(),
            None => default_address(|name| std::env::var(name).ok(), Path::exists).ok_or_else(|| {
                StartError::EngineUnreachable {
                    address: "its usual sockets".to_owned(),
                    why: "DOCKER_HOST is not set and no socket of Docker or Podman exists".to_owned(),
                }
            })?,
        };
        let unreachable =
            |error: Error| StartError::EngineUnreachable { address: address.clone(), why: in_words(&error) };
        let docker = match address.split_once("://") {
            Some(("http" | "tcp", _)) => {
                Docker::connect_with_http(&address, TIMEOUT_SECONDS, API_DEFAULT_VERSION)
            }
            Some(("unix", path)) => Docker::connect_with_unix(path, TIMEOUT_SECONDS, API_DEFAULT_VERSION),
            None => Docker::connect_with_unix(&address, TIMEOUT_SECONDS, API_DEFAULT_VERSION),
            Some((scheme, _)) => {
                return Err(StartError::EngineUnreachable {
                    why: format!("the scheme {scheme:?} is not supported; use `unix://` or `http://`"),
                    address,
                });
            }
        };
        let docker = docker.map_err(unreachable)?.negotiate_version().await.map_err(unreachable)?;
        Ok(Engine { docker, address })
    }

    pub(super) fn address(&self) -> String {
        self.address.clone()
    }

    /// Sees to it that the engine has the image.
    pub(super) async fn provide_image(&self, image: &str, policy: PullPolicy) -> Result<(), StartError> {
        if policy != PullPolicy::Always {
            match self.docker.inspect_image(image).await {
                Ok(_) => return Ok(()),
                Err(Error::DockerResponseServerError { status_code: NOT_FOUND, .. }) => {}
                Err(error) => return Err(self.fault("look for the image", &error)),
            }
        }
        if policy == PullPolicy::Never {
            return Err(StartError::ImageAbsent { image: image.to_owned() });
        }
        let options = CreateImageOptionsBuilder::default().from_image(&with_tag(image)).build();
        let mut progress = self.docker.create_image(Some(options), None, None);
        while let Some(step) = progress.next().await {
            step.map_err(|error| match self.fault("pull the image", &error) {
                StartError::Other(_) => {
                    StartError::ImagePull { image: image.to_owned(), why: in_words(&error) }
                }
                fault => fault,
            })?;
        }
        Ok(())
    }

    /// Removes a container, also one that runs. One that does not exist is fine.
    pub(super) async fn remove(&self, name: &str) -> Result<(), Error> {
        let options = RemoveContainerOptionsBuilder::default().force(true).v(true).build();
        match self.docker.remove_container(name, Some(options)).await {
            // 409: it is being removed already.
            Err(Error::DockerResponseServerError { status_code: NOT_FOUND | 409, .. }) => Ok(()),
            other => other,
        }
    }

    /// Removes the containers of an instance. Returns how many there were.
    pub(crate) async fn remove_instance(&self, instance: &str) -> Result<usize, StartError> {
        self.remove_labelled(INSTANCE_LABEL, instance, |_| true).await
    }

    /// Removes the containers of dead instances with the same root.
    pub(super) async fn remove_dead(&self, own: &InstanceDirectory) -> Result<(), StartError> {
        let Some(root) = own.root.to_str() else { return Ok(()) };
        let is_dead = |instance: &str| instance != own.name && own.is_dead(instance);
        let removed = self.remove_labelled(ROOT_LABEL, root, is_dead).await?;
        if removed > 0 {
            tracing::info!(removed, "removed the containers of a node that died");
        }
        Ok(())
    }

    async fn remove_labelled(
        &self,
        label: &str,
        value: &str,
        chosen: impl Fn(&str) -> bool,
    ) -> Result<usize, StartError> {
        let filters = HashMap::from([("label", vec![format!("{label}={value}")])]);
        let options = ListContainersOptionsBuilder::default().all(true).filters(&filters).build();
        let listed = self.docker.list_containers(Some(options)).await;
        let listed = listed.map_err(|error| self.fault("list the containers", &error))?;
        let mut removed = 0;
        for container in listed {
            let instance = container.labels.as_ref().and_then(|labels| labels.get(INSTANCE_LABEL));
            let (Some(id), Some(instance)) = (&container.id, instance) else { continue };
            if chosen(instance) {
                self.remove(id).await.map_err(|error| self.fault("remove a container", &error))?;
                removed += 1;
            }
        }
        Ok(removed)
    }

    /// A fault of the engine in words. `doing` completes "cannot".
    pub(super) fn fault(&self, doing: &str, error: &Error) -> StartError {
        let why = in_words(error);
        match error {
            Error::DockerResponseServerError { .. } | Error::DockerStreamError { .. }
                if why.contains("no space left on device") =>
            {
                StartError::NoRoom { path: format!("the engine at {}", self.address).into(), why }
            }
            Error::DockerResponseServerError { .. }
            | Error::DockerStreamError { .. }
            | Error::JsonDataError { .. } => {
                StartError::Other(format!("the container engine cannot {doing}: {why}"))
            }
            _ => StartError::EngineUnreachable { address: self.address.clone(), why },
        }
    }
}

/// The message of the engine, or the innermost cause.
pub(super) fn in_words(error: &Error) -> String {
    if let Error::DockerResponseServerError { message, .. } = error {
        return message.trim().to_owned();
    }
    let mut cause: &dyn std::error::Error = error;
    while let Some(inner) = cause.source() {
        cause = inner;
    }
    cause.to_string()
}

/// An image name without a tag means `latest`. Without it, some engines pull every tag.
fn with_tag(image: &str) -> String {
    let last = image.rsplit('/').next().unwrap_or(image);
    if last.contains([':', '@']) { image.to_owned() } else { format!("{image}:latest") }
}

fn default_address(
    variable: impl Fn(&str) -> Option<String>,
    exists: impl Fn(&Path) -> bool,
) -> Option<String> {
    if let Some(address) = variable("DOCKER_HOST").filter(|address| !address.is_empty()) {
        return Some(address);
    }
    let users = variable("XDG_RUNTIME_DIR").map(|directory| format!("{directory}/podman/podman.sock"));
    let sockets = ["/run/docker.sock".to_owned(), "/run/podman/podman.sock".to_owned()];
    let mut sockets = sockets.into_iter().chain(users);
    sockets.find(|socket| exists(Path::new(socket))).map(|socket| format!("unix://{socket}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_environment_comes_before_the_sockets() {
        let set = |name: &str| (name == "DOCKER_HOST").then(|| "http://127.0.0.1:2375".to_owned());
        assert_eq!(default_address(set, |_| true).unwrap(), "http://127.0.0.1:2375");
        assert_eq!(default_address(|_| None, |_| true).unwrap(), "unix:///run/docker.sock");
        let user = |name: &str| (name == "XDG_RUNTIME_DIR").then(|| "/run/user/7".to_owned());
        let only_users = |path: &Path| path.starts_with("/run/user");
        assert_eq!(default_address(user, only_users).unwrap(), "unix:///run/user/7/podman/podman.sock");
        assert_eq!(default_address(|_| None, |_| false), None);
    }

    #[test]
    fn an_image_without_a_tag_is_the_latest() {
        assert_eq!(with_tag("host:5000/tool"), "host:5000/tool:latest");
        assert_eq!(with_tag("tool:3"), "tool:3");
        assert_eq!(with_tag("tool@sha256:00"), "tool@sha256:00");
    }
}
