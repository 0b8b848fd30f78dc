//! The directory of one runner, and the clean-up after runners that died.
//!
//! A runner holds a lock on its directory for as long as it lives. The lock of a dead runner is free.

use super::StartError;
use super::cookies::{INSTANCE_COOKIE, Process, kill_all};
use super::removal::remove_tree;
use rustix::fs::{FlockOperation, flock};
use std::collections::BTreeSet;
use std::fs::{self, DirBuilder, File};
use std::io;
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};

/// Looks at `/proc` before the clean-up of a dead instance gives up.
const KILL_ROUNDS: u32 = 1000;
const LOCK_FILE: &str = "node.lock";
/// In the root: held by a node that starts.
const ROOT_LOCK_FILE: &str = ".start.lock";

#[derive(Debug, thiserror::Error)]
pub enum InstanceError {
    #[error("{0:?} is not a valid name of a node's instance; use letters, digits, `.`, `_` and `-`")]
    Name(String),
    #[error("the instance {0:?} was used before; give each start of a node a fresh name")]
    Used(String),
    #[error("cannot use the node's directory {}: {source}; choose another or correct its permissions", .path.display())]
    Directory { path: PathBuf, source: io::Error },
    #[error(transparent)]
    Engine(StartError),
    #[error("cannot start {what}: {source}")]
    Start { what: &'static str, source: io::Error },
}

/// The directory of a live runner.
#[derive(Debug)]
pub(super) struct InstanceDirectory {
    pub(super) root: PathBuf,
    pub(super) path: PathBuf,
    pub(super) name: String,
    /// Locked until dropped.
    _lock: File,
}

impl InstanceDirectory {
    /// Cleans up after dead instances, then makes the directory `<root>/<name>` and locks it.
    pub(super) fn create(root: &Path, name: &str) -> Result<InstanceDirectory, InstanceError> {
        let known = |c: char| c.is_ascii_alphanumeric() || matches!(c, '.' | '_' | '-');
        if name.is_empty() || name.starts_with('.') || !name.chars().all(known) {
            return Err(InstanceError::Name(name.to_owned()));
        }
        let fault = |source| InstanceError::Directory { path: root.to_owned(), source };
        DirBuilder::new().recursive(true).mode(0o700).create(root).map_err(fault)?;
        let root = fs::canonicalize(root).map_err(fault)?;
        let path = root.join(name);
        // Held to the end of this call. Without it, another node would take this one for dead before its lock is held.
        let starting = File::create(root.join(ROOT_LOCK_FILE)).map_err(fault)?;
        flock(&starting, FlockOperation::LockExclusive).map_err(|error| fault(error.into()))?;
        let private = DirBuilder::new().mode(0o700).create(&path);
        if let Err(error) = private {
            return Err(match error.kind() {
                io::ErrorKind::AlreadyExists => InstanceError::Used(name.to_owned()),
                _ => fault(error),
            });
        }
        let lock = File::create_new(path.join(LOCK_FILE)).map_err(fault)?;
        flock(&lock, FlockOperation::NonBlockingLockExclusive).map_err(|error| fault(error.into()))?;
        clean_dead(&root, name).map_err(fault)?;
        Ok(InstanceDirectory { root, path, name: name.to_owned(), _lock: lock })
    }

    /// Whether the instance of this name, in the same root, does not live.
    pub(super) fn is_dead(&self, name: &str) -> bool {
        match File::open(self.root.join(name).join(LOCK_FILE)) {
            Ok(lock) => flock(&lock, FlockOperation::NonBlockingLockExclusive).is_ok(),
            Err(error) => error.kind() == io::ErrorKind::NotFound,
        }
    }
}

/// Kills the processes of an instance and of the sessions of its commands, as far as they are known. Returns how many processes did
/// not die.
pub(super) fn kill_processes(name: &str, sessions: &BTreeSet<i32>) -> usize {
    let is_of_instance =
        |process: &Process| process.has_cookie(INSTANCE_COOKIE, name) || sessions.contains(&process.session);
    kill_all(is_of_instance, KILL_ROUNDS)
}

fn clean_dead(root: &Path, own: &str) -> io::Result<()> {
    for entry in fs::read_dir(root)? {
        let entry = entry?;
        let name = entry.file_name();
        let Some(name) = name.to_str().filter(|&name| name != own) else { continue };
        // Only what has a free lock is known to be of a dead node. A directory without one is not ours.
        let Ok(lock) = File::open(entry.path().join(LOCK_FILE)) else { continue };
        if flock(&lock, FlockOperation::NonBlockingLockExclusive).is_err() {
            continue;
        }
        tracing::info!(instance = name, "cleaning up after a node that died");
        let left = kill_processes(name, &BTreeSet::new());
        if left > 0 {
            tracing::warn!(instance = name, left, "processes of a dead node do not die");
        }
        // The guardian of the dead node may be removing the same files.
        if let Err(error) = remove_tree(&entry.path()) {
            tracing::warn!(instance = name, %error, "cannot remove the directory of a dead node");
        }
    }
    Ok(())
}
