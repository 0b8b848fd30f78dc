//! Why a store does not open. Every message names the file and a remedy.

use crate::log::disk::Disk;
use std::io;

#[derive(Debug, thiserror::Error)]
pub enum OpenError {
    #[error("{directory} is in use by another process; stop it, or use another directory")]
    InUse { directory: String },
    #[error(
        "{directory}/towline.meta has format {found}, but this version reads up to format {supported}; use a newer towline"
    )]
    NewerFormat { directory: String, found: u32, supported: u32 },
    #[error(
        "{directory}/{file} is damaged: {what}; run `towline doctor` on the directory, or restore a backup"
    )]
    Corrupt { directory: String, file: String, what: String },
    #[error(
        "{directory} has {file}, but no towline.meta, so it is not a complete store; restore towline.meta or a backup"
    )]
    NoMeta { directory: String, file: String },
    #[error("a backup or a restore into {directory} did not finish; run the command again")]
    Incomplete { directory: String },
    #[error(
        "{directory} has towline.meta, but no segment with a readable header: the log is missing or was emptied; \
         restore the segment files or a backup"
    )]
    NoLog { directory: String },
    #[error("{directory} is not a store; give the directory of a store")]
    NotAStore { directory: String },
    #[error("{directory}/{file}: {source}; {remedy}")]
    Io { directory: String, file: String, source: io::Error, remedy: &'static str },
    #[error("{0}")]
    Options(String),
}

impl OpenError {
    pub(crate) fn io(disk: &dyn Disk, file: &str, source: io::Error) -> OpenError {
        let remedy = match source.kind() {
            io::ErrorKind::PermissionDenied => {
                "give the user that runs towline read and write access, or use another directory"
            }
            io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded => {
                "free some space, or use a larger disk; nothing acknowledged is lost"
            }
            io::ErrorKind::ReadOnlyFilesystem => "mount the file system writable",
            io::ErrorKind::NotFound => "check that the directory exists",
            _ => "check the disk; nothing was changed",
        };
        OpenError::Io { directory: disk.directory(), file: file.to_owned(), source, remedy }
    }

    pub(crate) fn corrupt(disk: &dyn Disk, file: &str, what: impl Into<String>) -> OpenError {
        OpenError::Corrupt { directory: disk.directory(), file: file.to_owned(), what: what.into() }
    }
}
