//! All file access of the store, behind one small trait: the real disk here, a faulty one in the simulation.
//!
//! **Invariant:** nothing else in this crate touches a file.

use std::fs::{File, OpenOptions, TryLockError};
use std::io;
use std::os::unix::fs::{DirBuilderExt, FileExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// One directory of files without sub-directories.
pub trait Disk: Send + Sync + std::fmt::Debug {
    /// Where this is, for messages.
    fn place(&self) -> String;
    /// Takes the directory for this process alone, until the guard is dropped.
    fn lock(&self) -> io::Result<Option<Box<dyn std::any::Any + Send + Sync>>>;
    fn list(&self) -> io::Result<Vec<String>>;
    fn open(&self, name: &str) -> io::Result<Arc<dyn DiskFile>>;
    /// Makes an empty file; an existing one of that name is emptied.
    fn create(&self, name: &str) -> io::Result<Arc<dyn DiskFile>>;
    fn rename(&self, from: &str, to: &str) -> io::Result<()>;
    fn remove(&self, name: &str) -> io::Result<()>;
    /// Makes creations, renames and removals durable.
    fn sync_directory(&self) -> io::Result<()>;
}

pub trait DiskFile: Send + Sync + std::fmt::Debug {
    /// Reads some bytes; 0 means the end of the file.
    fn read_at(&self, buffer: &mut [u8], offset: u64) -> io::Result<usize>;
    /// Writes some bytes, at least one.
    fn write_at(&self, buffer: &[u8], offset: u64) -> io::Result<usize>;
    /// Makes every byte written so far durable.
    fn sync(&self) -> io::Result<()>;
    fn size(&self) -> io::Result<u64>;
    /// Grows the file to `size` and reserves room for it, so that later writes cannot run out of space.
    fn reserve(&self, size: u64) -> io::Result<()>;
}

/// Reads until `buffer` is full or the file ends; the number of bytes read.
pub fn read_full(file: &dyn DiskFile, buffer: &mut [u8], offset: u64) -> io::Result<usize> {
    let mut done = 0;
    while done < buffer.len() {
        match file.read_at(&mut buffer[done..], offset + done as u64) {
            Ok(0) => break,
            Ok(count) => done += count,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
    Ok(done)
}

pub fn write_full(file: &dyn DiskFile, buffer: &[u8], offset: u64) -> io::Result<()> {
    let mut done = 0;
    while done < buffer.len() {
        match file.write_at(&buffer[done..], offset + done as u64) {
            Ok(0) => return Err(io::ErrorKind::WriteZero.into()),
            Ok(count) => done += count,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
    Ok(())
}

/// A directory of the operating system.
#[derive(Debug, Clone)]
pub struct RealDisk {
    path: PathBuf,
    read_only: bool,
}

impl RealDisk {
    /// Makes the directory (for its owner alone) if it does not exist.
    pub fn new(path: impl Into<PathBuf>) -> io::Result<RealDisk> {
        let path = path.into();
        make_directory(&path)?;
        Ok(RealDisk { path, read_only: false })
    }

    /// A directory that must exist, to be read and not written.
    pub fn read_only(path: impl Into<PathBuf>) -> io::Result<RealDisk> {
        let path = path.into();
        std::fs::read_dir(&path)?;
        Ok(RealDisk { path, read_only: true })
    }

    /// As [`RealDisk::new`], for a directory that must be empty; `None` if it holds anything.
    pub fn empty(path: impl Into<PathBuf>) -> io::Result<Option<RealDisk>> {
        let disk = RealDisk::new(path)?;
        let empty = std::fs::read_dir(&disk.path)?.next().is_none();
        Ok(empty.then_some(disk))
    }

    #[must_use]
    pub fn path(&self) -> &Path {
        &self.path
    }
}

/// Makes a directory and those above it. Durable: files in a directory that vanishes would vanish with it.
fn make_directory(path: &Path) -> io::Result<()> {
    if path.is_dir() {
        return Ok(());
    }
    let parent = path.parent().filter(|parent| !parent.as_os_str().is_empty()).unwrap_or(Path::new("."));
    make_directory(parent)?;
    match std::fs::DirBuilder::new().mode(0o700).create(path) {
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists && path.is_dir() => Ok(()),
        Err(error) => Err(error),
        Ok(()) => File::open(parent)?.sync_all(),
    }
}

const LOCK_FILE: &str = "LOCK";

impl Disk for RealDisk {
    fn place(&self) -> String {
        self.path.display().to_string()
    }

    fn lock(&self) -> io::Result<Option<Box<dyn std::any::Any + Send + Sync>>> {
        let path = self.path.join(LOCK_FILE);
        let mut options = OpenOptions::new();
        if self.read_only {
            options.read(true);
        } else {
            options.create(true).truncate(false).write(true).mode(0o600);
        }
        let file = match options.open(path) {
            // Whoever has a store open has made this file.
            Err(error) if self.read_only && error.kind() == io::ErrorKind::NotFound => {
                return Ok(Some(Box::new(())));
            }
            file => file?,
        };
        match file.try_lock() {
            Ok(()) => Ok(Some(Box::new(file))),
            Err(TryLockError::WouldBlock) => Ok(None),
            Err(TryLockError::Error(error)) => Err(error),
        }
    }

    fn list(&self) -> io::Result<Vec<String>> {
        let mut names = Vec::new();
        for entry in std::fs::read_dir(&self.path)? {
            let entry = entry?;
            if let Ok(name) = entry.file_name().into_string()
                && name != LOCK_FILE
                && entry.file_type()?.is_file()
            {
                names.push(name);
            }
        }
        Ok(names)
    }

    fn open(&self, name: &str) -> io::Result<Arc<dyn DiskFile>> {
        let file = OpenOptions::new().read(true).write(!self.read_only).open(self.path.join(name))?;
        Ok(Arc::new(RealFile(file)))
    }

    fn create(&self, name: &str) -> io::Result<Arc<dyn DiskFile>> {
        let mut options = OpenOptions::new();
        options.read(true).write(true).create(true).truncate(true).mode(0o600);
        Ok(Arc::new(RealFile(options.open(self.path.join(name))?)))
    }

    fn rename(&self, from: &str, to: &str) -> io::Result<()> {
        std::fs::rename(self.path.join(from), self.path.join(to))
    }

    fn remove(&self, name: &str) -> io::Result<()> {
        std::fs::remove_file(self.path.join(name))
    }

    fn sync_directory(&self) -> io::Result<()> {
        File::open(&self.path)?.sync_all()
    }
}

#[derive(Debug)]
struct RealFile(File);

impl DiskFile for RealFile {
    fn read_at(&self, buffer: &mut [u8], offset: u64) -> io::Result<usize> {
        FileExt::read_at(&self.0, buffer, offset)
    }

    fn write_at(&self, buffer: &[u8], offset: u64) -> io::Result<usize> {
        FileExt::write_at(&self.0, buffer, offset)
    }

    fn sync(&self) -> io::Result<()> {
        self.0.sync_data()
    }

    fn size(&self) -> io::Result<u64> {
        Ok(self.0.metadata()?.len())
    }

    fn reserve(&self, size: u64) -> io::Result<()> {
        match rustix::fs::fallocate(&self.0, rustix::fs::FallocateFlags::empty(), 0, size) {
            Ok(()) => Ok(()),
            // Not every file system can reserve; there a write may find the disk full, which poisons the store.
            Err(rustix::io::Errno::OPNOTSUPP) => self.0.set_len(size),
            Err(error) => Err(error.into()),
        }
    }
}
