//! File access, behind two small traits. [`RealDisk`] uses the operating system; the simulation has a faulty disk.
//!
//! **Invariant:** no other module of this crate touches a file.

use std::fs::{File, OpenOptions, TryLockError};
use std::io;
use std::os::unix::fs::{DirBuilderExt, FileExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// One directory of files, without sub-directories.
pub trait Disk: Send + Sync + std::fmt::Debug {
    /// The name of the directory, for messages.
    fn directory(&self) -> String;
    /// Locks the directory for this process until the guard is dropped. `None`: another process holds the lock.
    fn lock(&self) -> io::Result<Option<Box<dyn std::any::Any + Send + Sync>>>;
    fn list(&self) -> io::Result<Vec<String>>;
    fn open(&self, name: &str) -> io::Result<Arc<dyn DiskFile>>;
    /// Creates an empty file. Truncates a file that has this name.
    fn create(&self, name: &str) -> io::Result<Arc<dyn DiskFile>>;
    fn rename(&self, from: &str, to: &str) -> io::Result<()>;
    fn remove(&self, name: &str) -> io::Result<()>;
    /// Makes creations, renames and removals durable.
    fn sync_directory(&self) -> io::Result<()>;
}

pub trait DiskFile: Send + Sync + std::fmt::Debug {
    /// Reads at most `buffer.len()` bytes. Returns 0 at the end of the file.
    fn read_at(&self, buffer: &mut [u8], offset: u64) -> io::Result<usize>;
    /// Writes at least one byte. Returns how many.
    fn write_at(&self, buffer: &[u8], offset: u64) -> io::Result<usize>;
    /// Makes all bytes written so far durable.
    fn sync(&self) -> io::Result<()>;
    fn size(&self) -> io::Result<u64>;
    /// Grows the file to `size` and reserves its blocks, so that later writes cannot run out of space.
    fn reserve(&self, size: u64) -> io::Result<()>;
}

/// Reads until `buffer` is full or the file ends. Returns the number of bytes read.
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
    /// Creates the directory, with mode 0700, if it does not exist.
    pub fn new(path: impl Into<PathBuf>) -> io::Result<RealDisk> {
        let path = path.into();
        make_directory(&path)?;
        Ok(RealDisk { path, read_only: false })
    }

    /// Opens an existing directory for reading only.
    pub fn read_only(path: impl Into<PathBuf>) -> io::Result<RealDisk> {
        let path = path.into();
        std::fs::read_dir(&path)?;
        Ok(RealDisk { path, read_only: true })
    }

    /// Like [`RealDisk::new`]. `None`: the directory is not empty.
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

/// Creates a directory and its parents, and makes them durable. Files in a directory that a crash removes are lost with it.
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
    fn directory(&self) -> String {
        self.path.display().to_string()
    }

    fn lock(&self) -> io::Result<Option<Box<dyn std::any::Any + Send + Sync>>> {
        // The lock file can be removed while a process holds it, and a second process would lock a new file. So lock the
        // directory as well.
        let directory = File::open(&self.path)?;
        match directory.try_lock() {
            // Some file systems lock files only.
            Ok(()) | Err(TryLockError::Error(_)) => {}
            Err(TryLockError::WouldBlock) => return Ok(None),
        }
        let path = self.path.join(LOCK_FILE);
        let mut options = OpenOptions::new();
        if self.read_only {
            options.read(true);
        } else {
            options.create(true).truncate(false).write(true).mode(0o600);
        }
        let file = match options.open(path) {
            // The lock of the directory is enough for a reader.
            Err(error) if self.read_only && error.kind() == io::ErrorKind::NotFound => {
                return Ok(Some(Box::new(directory)));
            }
            file => file?,
        };
        match file.try_lock() {
            Ok(()) => Ok(Some(Box::new((directory, file)))),
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
            // Some file systems cannot reserve blocks. There, a write can find the disk full, which poisons the store.
            Err(rustix::io::Errno::OPNOTSUPP) => self.0.set_len(size),
            Err(error) => Err(error.into()),
        }
    }
}
