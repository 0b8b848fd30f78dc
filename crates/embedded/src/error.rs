//! Why a directory could not be opened. Each names the file and the remedy.

use crate::log::disk::Disk;
use std::io;

#[derive(Debug, thiserror::Error)]
pub enum OpenError {
    #[error("{directory} is in use by another process; stop it, or use another directory")]
    InUse { directory: String },
    #[error(
        "{directory}/towline.meta is of format {found}, this version reads up to {supported}; use a newer towline"
    )]
    NewerFormat { directory: String, found: u32, supported: u32 },
    #[error(
        "{directory}/{file} is damaged: {what}; run `towline doctor` on the directory, or restore a backup"
    )]
    Corrupt { directory: String, file: String, what: String },
    #[error(
        "{directory} holds {file}, but no towline.meta: it is not a whole store; restore towline.meta or a backup"
    )]
    NoMeta { directory: String, file: String },
    #[error("{directory} holds no store; give the directory of one")]
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
                "let the user that runs towline read and write it, or use another directory"
            }
            io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded => {
                "free some space, or use a larger disk; nothing acknowledged is lost"
            }
            io::ErrorKind::ReadOnlyFilesystem => "mount the file system writable",
            io::ErrorKind::NotFound => "check that the directory is still there",
            _ => "check the disk; nothing was changed",
        };
        OpenError::Io { directory: disk.directory(), file: file.to_owned(), source, remedy }
    }

    pub(crate) fn corrupt(disk: &dyn Disk, file: &str, what: impl Into<String>) -> OpenError {
        OpenError::Corrupt { directory: disk.directory(), file: file.to_owned(), what: what.into() }
    }
}
