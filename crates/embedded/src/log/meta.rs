//! `towline.meta`: marks a directory as a store, and holds its format number. Written when the store is created, and at the
//! first opening of a copy.
//!
//! **Invariant:** opening compares the format number with [`FORMAT`] before it reads any other file. A directory with this file
//! has a segment: the file gets its name after the first segment is durable.
//!
//! ```text
//!  0 magic     8 bytes "TOWLINE\0"
//!  8 format    u32
//! 12 history   u32   0 for an original; tells a copy from it, so that event cursors of one are not valid in the other
//! 16 salt      u64   identifies the store; seeds all checks and all item ids
//! 24 segment   u64   size of a segment in bytes
//! 32 check     u32   CRC32C of the bytes before
//! ```

use crate::error::OpenError;
use crate::log::disk::{Disk, read_full, write_full};
use std::io;

pub const META_FILE: &str = "towline.meta";
pub const TEMPORARY: &str = "towline.meta.new";
/// The name of the file while a backup or a restore fills the directory.
pub const INCOMPLETE: &str = "towline.meta.incomplete";
const MAGIC: [u8; 8] = *b"TOWLINE\0";
const BYTES: usize = 36;

/// The on-disk format that this version writes, and the newest that it reads.
pub const FORMAT: u32 = 1;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Meta {
    pub salt: u64,
    pub segment_bytes: u64,
    pub history: u32,
}

/// The history of a copy that was not opened yet.
pub const COPIED: u32 = u32::MAX;

impl Meta {
    pub(crate) fn encode(&self) -> Vec<u8> {
        let mut bytes = Vec::with_capacity(BYTES);
        bytes.extend_from_slice(&MAGIC);
        bytes.extend_from_slice(&FORMAT.to_le_bytes());
        bytes.extend_from_slice(&self.history.to_le_bytes());
        bytes.extend_from_slice(&self.salt.to_le_bytes());
        bytes.extend_from_slice(&self.segment_bytes.to_le_bytes());
        bytes.extend_from_slice(&crc32c::crc32c(&bytes).to_le_bytes());
        bytes
    }

    /// Writes the file atomically: to a temporary name, then renamed.
    pub fn write(&self, disk: &dyn Disk) -> io::Result<()> {
        self.prepare(disk)?;
        Meta::publish(disk)
    }

    /// Writes the file to its temporary name. A directory that has only this one is not a store yet.
    pub fn prepare(&self, disk: &dyn Disk) -> io::Result<()> {
        let file = disk.create(TEMPORARY)?;
        write_full(&*file, &self.encode(), 0)?;
        file.sync()?;
        disk.sync_directory()
    }

    /// Renames the prepared file: the directory is a store from now on.
    pub fn publish(disk: &dyn Disk) -> io::Result<()> {
        disk.rename(TEMPORARY, META_FILE)?;
        disk.sync_directory()
    }

    /// `None`: the directory has no such file.
    pub fn read(disk: &dyn Disk) -> Result<Option<Meta>, OpenError> {
        let io_error = |error| OpenError::io(disk, META_FILE, error);
        let file = match disk.open(META_FILE) {
            Ok(file) => file,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
            Err(error) => return Err(io_error(error)),
        };
        let mut bytes = vec![0; BYTES];
        let length = read_full(&*file, &mut bytes, 0).map_err(io_error)?;
        let long = |at: usize| bytes[at..at + 8].try_into().map_or(0, u64::from_le_bytes);
        let word = |at: usize| bytes[at..at + 4].try_into().map_or(0, u32::from_le_bytes);
        if length < 12 || bytes[..8] != MAGIC {
            return Err(OpenError::corrupt(
                disk,
                META_FILE,
                "it does not start with the magic bytes of a towline.meta",
            ));
        }
        // Check the format first: a newer format may have another layout. A number above 16 bits is damage.
        if word(8) > FORMAT && word(8) < 1 << 16 {
            return Err(OpenError::NewerFormat {
                directory: disk.directory(),
                found: word(8),
                supported: FORMAT,
            });
        }
        if length < BYTES || word(32) != crc32c::crc32c(&bytes[..32]) || word(8) != FORMAT {
            return Err(OpenError::corrupt(disk, META_FILE, "its checksum does not match"));
        }
        Ok(Some(Meta { salt: long(16), segment_bytes: long(24), history: word(12) }))
    }
}
