//! Copies a store and its buffers to a sink.

use super::directory::Directory;
use super::{BUFFERS, BackupError, BackupHeader, BackupSummary, Sink};
use crate::config::{Settings, StoreChoice};
use std::fs::File;
use std::io;
use std::path::Path;
use towline_buffers::{Location, visit_files};
use towline_embedded::{Snapshot, SnapshotFile};

/// Backs up a store that no server uses. `copied` is called with the number of bytes after each piece.
pub fn backup(
    settings: &Settings,
    target: &Path,
    copied: &mut dyn FnMut(u64),
) -> Result<BackupSummary, BackupError> {
    if settings.store != StoreChoice::Embedded {
        return Err(BackupError::Postgres);
    }
    if !settings.data.is_dir() {
        return Err(BackupError::NoStore(settings.data.display().to_string()));
    }
    let place = settings.buffers.location(&settings.data);
    // A server writes the owner at its first start. Without it the place is a wrong one, and items would lose their objects.
    if matches!(&place, Location::Directory(directory) if !directory.join("owner").is_file()) {
        return Err(BackupError::NoBuffers(place.to_string()));
    }
    let snapshot = Snapshot::of_directory(&settings.data)?;
    let mut directory = Directory::begin(target, Some(BackupHeader::of(&place)), copied)?;
    copy_to(&mut directory, &snapshot, &place)?;
    let totals = directory.finish()?;
    Ok(BackupSummary { header: BackupHeader::of(&place), totals })
}

/// Copies the log, then the objects, then the file that makes a directory a store.
pub(super) fn copy_to(sink: &mut dyn Sink, snapshot: &Snapshot, place: &Location) -> Result<(), BackupError> {
    for nth in 0..snapshot.segments() {
        let SnapshotFile { name, bytes, .. } = snapshot.segment_file(nth)?;
        sink.file(&name, bytes.len() as u64, &mut &bytes[..])?;
    }
    if let Location::Directory(directory) = place {
        copy_objects(sink, directory)?;
    }
    // Last: without it, an archive that was cut and unpacked by another program is not a store.
    let SnapshotFile { name, bytes, .. } = snapshot.meta_file();
    sink.file(&name, bytes.len() as u64, &mut &bytes[..])
}

fn copy_objects(sink: &mut dyn Sink, directory: &Path) -> Result<(), BackupError> {
    let visited = visit_files(directory, &mut |path: &str, file: File| {
        let from = directory.join(path);
        let bytes = file.metadata().map_err(|error| BackupError::file("read", &from, error))?.len();
        sink.file(&format!("{BUFFERS}/{path}"), bytes, &mut &file).map_err(Visited::Copy)
    });
    visited.map_err(|error| match error {
        Visited::Copy(error) => error,
        Visited::List(error) => BackupError::file("read", directory, error),
    })
}

/// Why not everything was visited.
enum Visited {
    List(io::Error),
    Copy(BackupError),
}

impl From<io::Error> for Visited {
    fn from(error: io::Error) -> Visited {
        Visited::List(error)
    }
}

impl From<BackupError> for Visited {
    fn from(error: BackupError) -> Visited {
        Visited::Copy(error)
    }
}
