//! Why a command did not start.

use std::io;
use std::path::{Path, PathBuf};

#[derive(Debug, thiserror::Error)]
pub enum StartError {
    /// The launch itself is wrong.
    #[error("{0}")]
    Invalid(String),
    #[error("the command {command:?} was not found in PATH {path:?}; install it, or give its full path")]
    CommandNotFound { command: String, path: String },
    #[error("the file {command:?} does not exist; install it, or correct the path")]
    FileNotFound { command: String },
    #[error("{command:?} cannot be executed: {why}")]
    NotExecutable { command: String, why: String },
    #[error(
        "the node may not execute {command:?}: permission denied; check the owner and mode of the file and of its directories, \
         and whether its file system is mounted with noexec"
    )]
    PermissionDenied { command: String },
    #[error(
        "the image {image:?} is not on this node and the pull policy is `never`; pull it, or change the policy"
    )]
    ImageAbsent { image: String },
    #[error(
        "the image {image:?} cannot be pulled: {why}; check its name, the registry and the credentials of the engine"
    )]
    ImagePull { image: String, why: String },
    #[error(
        "the container engine at {address} does not answer: {why}; start it, or set DOCKER_HOST to its address"
    )]
    EngineUnreachable { address: String, why: String },
    #[error("no room on the disk of {}: {why}; free space or move the node's directory", .path.display())]
    NoRoom { path: PathBuf, why: String },
    /// A fault of the node.
    #[error("{0}")]
    Other(String),
}

impl StartError {
    /// Whether the launch is at fault and not the node. A second try on another node will very likely fail in the same way.
    #[must_use]
    pub fn is_permanent(&self) -> bool {
        match self {
            StartError::Invalid(_)
            | StartError::CommandNotFound { .. }
            | StartError::FileNotFound { .. }
            | StartError::NotExecutable { .. }
            | StartError::PermissionDenied { .. }
            | StartError::ImageAbsent { .. } => true,
            StartError::ImagePull { .. }
            | StartError::EngineUnreachable { .. }
            | StartError::NoRoom { .. }
            | StartError::Other(_) => false,
        }
    }

    pub(super) fn taken(launch: &str) -> StartError {
        StartError::Invalid(format!(
            "a launch with the id {launch:?} already runs on this node; choose another id"
        ))
    }

    /// An error of the file system while the launch was prepared. `doing` completes "cannot".
    pub(super) fn from_io(doing: &str, path: &Path, error: &io::Error) -> StartError {
        match error.kind() {
            io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded => {
                StartError::NoRoom { path: path.to_owned(), why: error.to_string() }
            }
            _ => StartError::Other(format!("cannot {doing} {}: {error}", path.display())),
        }
    }
}
