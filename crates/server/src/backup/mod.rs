//! Backup and restore of an embedded store together with its buffers.
//!
//! A backup is a directory that is itself a data directory: the log, `buffers/`, and `towline.meta`. The file [`LIST_FILE`] lists
//! every other file with its size and hash. A running server sends the same files as a tar archive.
//!
//! **Invariant:** every object that an item in the log names is in the backup. Deletions pause, then the log is pinned, then the
//! objects are copied. An object that an item names when the log is pinned is complete at that moment, because it is written before
//! its item or its commit, and it is still there when it is copied. Objects written later are copied, too, and no item of the
//! backup names them: the restored store collects them after its grace time. If the objects were copied first, an item could
//! name an object that was written after they were listed. Only a client that deletes a buffer during the backup can remove an
//! object; the item then names a missing buffer, as it does in the store itself.
//!
//! **Invariant:** a directory is a store only when everything in it is durable. Until then its `towline.meta` has the name
//! `towline.meta.incomplete`, the server refuses it, and the next backup or restore into it starts again.

mod archive;
mod check;
mod copy;
mod directory;
mod restore;

pub use archive::unpack;
pub(crate) use archive::{Place, send};
pub use check::{BackupCheck, check_backup};
pub use copy::backup;
pub use restore::{bytes_to_restore, restore};

use serde::{Deserialize, Serialize};
use std::io;
use std::path::Path;
use towline_buffers::Location;
use towline_embedded::BackupError as LogError;

/// The list of the files of a backup, one line of JSON for each.
pub const LIST_FILE: &str = "towline.backup";
/// Where a backup keeps the objects of a place for buffers that is a directory.
const BUFFERS: &str = "buffers";
/// The format that a backup writes, and the latest that a restore reads.
const VERSION: u32 = 1;

/// The first line of the list.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct BackupHeader {
    pub version: u32,
    /// The place for buffers, if its objects are not part of the backup.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub buffers_elsewhere: Option<String>,
}

/// What was copied. Two copies of the same files in the same order have the same hash.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct BackupTotals {
    pub files: u64,
    pub bytes: u64,
    hash: String,
}

/// A finished backup or restore.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct BackupSummary {
    pub header: BackupHeader,
    pub totals: BackupTotals,
}

#[derive(Debug, thiserror::Error)]
pub enum BackupError {
    #[error(transparent)]
    Log(#[from] LogError),
    #[error("cannot {act} {path}: {error}; {remedy}")]
    File { act: &'static str, path: String, error: io::Error, remedy: &'static str },
    #[error("{0} is not empty; give a directory that is empty or does not exist")]
    NotEmpty(String),
    #[error("another backup or restore writes to {0}; wait until it ends, or give another directory")]
    InUse(String),
    #[error("{0} is not a backup: it has no {LIST_FILE}; give the directory that `towline backup` wrote")]
    NotABackup(String),
    #[error("the backup {directory} is damaged: {problem}; use another backup")]
    Damaged { directory: String, problem: String },
    #[error(
        "the backup {directory} has format {found}, but this version reads up to {VERSION}; use a newer towline"
    )]
    Newer { directory: String, found: u32 },
    #[error("the server did not send a whole backup: {0}; run the command again")]
    Archive(String),
    #[error(
        "the items are in PostgreSQL, which has its own tools: back up the database with `pg_dump --schema=towline`, and the place for \
         buffers with the tools of its storage (docs/postgres.md)"
    )]
    Postgres,
    #[error(
        "there is no store in {0}; give its directory with --data, or no --data to back up a running server"
    )]
    NoStore(String),
    #[error(
        "there are no buffers of a store in {0}; give the place that the server uses with --buffers. If no server has used the \
         store yet, start one once"
    )]
    NoBuffers(String),
}

impl BackupError {
    fn file(act: &'static str, path: &Path, error: io::Error) -> BackupError {
        let remedy = match error.kind() {
            io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded => {
                "free some space or give a directory on a larger disk, and run the command again"
            }
            io::ErrorKind::PermissionDenied => "give the user that runs towline access to it",
            io::ErrorKind::UnexpectedEof | io::ErrorKind::ConnectionAborted | io::ErrorKind::BrokenPipe => {
                "run the command again"
            }
            _ => "check the disk, and run the command again",
        };
        BackupError::File { act, path: path.display().to_string(), error, remedy }
    }
}

/// Where files are copied to: a directory, or an archive.
trait Sink {
    /// Copies a file from `content`, which has `bytes` bytes. `path` is relative, with slashes.
    fn file(&mut self, path: &str, bytes: u64, content: &mut dyn io::Read) -> Result<(), BackupError>;
}

/// Counts and hashes the files that were copied.
#[derive(Debug, Default)]
struct Tally {
    files: u64,
    bytes: u64,
    chain: blake3::Hasher,
}

impl Tally {
    fn add(&mut self, path: &str, bytes: u64, hash: &blake3::Hash) {
        self.files += 1;
        self.bytes += bytes;
        for part in
            [&(path.len() as u64).to_le_bytes(), path.as_bytes(), &bytes.to_le_bytes(), hash.as_bytes()]
        {
            self.chain.update(part);
        }
    }

    fn totals(&self) -> BackupTotals {
        let hash = self.chain.finalize().to_hex().to_string();
        BackupTotals { files: self.files, bytes: self.bytes, hash }
    }
}

/// Reads `from` and hashes what was read.
struct Hashing<R> {
    from: R,
    hasher: blake3::Hasher,
    bytes: u64,
}

impl<R: io::Read> Hashing<R> {
    fn new(from: R) -> Hashing<R> {
        Hashing { from, hasher: blake3::Hasher::new(), bytes: 0 }
    }
}

impl<R: io::Read> io::Read for Hashing<R> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let count = self.from.read(buffer)?;
        self.hasher.update(&buffer[..count]);
        self.bytes += count as u64;
        Ok(count)
    }
}

fn cut_short(path: &str, found: u64, expected: u64) -> BackupError {
    let error = io::Error::new(io::ErrorKind::UnexpectedEof, format!("it has {found} of {expected} bytes"));
    BackupError::file("read", Path::new(path), error)
}

impl BackupHeader {
    fn of(place: &Location) -> BackupHeader {
        let buffers_elsewhere = match place {
            Location::Directory(_) => None,
            Location::S3 { .. } => Some(place.to_string()),
        };
        BackupHeader { version: VERSION, buffers_elsewhere }
    }
}
