//! Directories to read from and to write to, with error messages that name a remedy.

use super::backup::BackupError;
use crate::error::OpenError;
use crate::log::disk::{Disk, RealDisk};
use std::path::Path;

/// Opens a directory that must exist, for reading only.
pub(super) fn open_source(path: &Path) -> Result<RealDisk, OpenError> {
    RealDisk::read_only(path).map_err(|source| OpenError::Io {
        directory: path.display().to_string(),
        file: String::new(),
        source,
        remedy: "give a directory that exists and can be read",
    })
}

/// Opens a directory that must be empty, or creates it.
pub(super) fn empty_target(path: &Path) -> Result<RealDisk, BackupError> {
    let directory = path.display().to_string();
    match RealDisk::empty(path) {
        Ok(Some(disk)) => Ok(disk),
        Ok(None) => Err(BackupError::NotEmpty { target: directory }),
        Err(source) => {
            let remedy = "choose a directory that can be created and written";
            Err(OpenError::Io { directory, file: String::new(), source, remedy }.into())
        }
    }
}

/// Locks a directory until it is dropped.
pub(super) struct Lock(#[expect(dead_code, reason = "dropped")] Box<dyn std::any::Any + Send + Sync>);

impl std::fmt::Debug for Lock {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Lock")
    }
}

pub(super) fn lock(disk: &dyn Disk) -> Result<Lock, OpenError> {
    let lock = disk.lock().map_err(|error| OpenError::io(disk, "LOCK", error))?;
    lock.map(Lock).ok_or_else(|| OpenError::InUse { directory: disk.directory() })
}

/// Removes the files of a target that could not be completed. The next attempt needs an empty directory.
pub(super) fn clear(target: &dyn Disk) {
    for name in target.list().unwrap_or_default() {
        let _ = target.remove(&name);
    }
}
