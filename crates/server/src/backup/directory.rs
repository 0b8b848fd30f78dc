//! The directory that a backup or a restore fills.
//!
//! **Invariant:** deletes nothing but what an earlier, unfinished backup or restore wrote, as `towline.meta.incomplete` shows.

use super::{BUFFERS, BackupError, BackupHeader, BackupTotals, Hashing, LIST_FILE, Sink, Tally, cut_short};
use serde::{Deserialize, Serialize};
use std::fs::{self, DirBuilder, File, OpenOptions, TryLockError};
use std::io::{self, BufWriter, Read, Write};
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::path::{Component, Path, PathBuf};
use towline_embedded::{META_FILE, META_INCOMPLETE};

const PIECE_BYTES: usize = 256 << 10;
/// A new file system has it.
const LOST_AND_FOUND: &str = "lost+found";

/// A line of the list of files.
#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum ListLine {
    Backup(BackupHeader),
    File { path: String, bytes: u64, hash: String },
    End(BackupTotals),
}

/// A directory that is being filled. Dropping it before [`Directory::finish`] removes everything again.
pub(super) struct Directory<'a> {
    root: PathBuf,
    created: bool,
    finished: bool,
    /// Locked, so that two commands do not fill one directory.
    meta: File,
    /// `None`: a restore writes no list.
    list: Option<BufWriter<File>>,
    /// The directory of the last file. It exists.
    parent: PathBuf,
    tally: Tally,
    piece: Vec<u8>,
    copied: &'a mut dyn FnMut(u64),
}

impl<'a> Directory<'a> {
    /// Creates the directory, or takes one that is empty or that an unfinished backup or restore left. With a header it also
    /// writes a list of the files.
    pub(super) fn begin(
        root: &Path,
        header: Option<BackupHeader>,
        copied: &'a mut dyn FnMut(u64),
    ) -> Result<Directory<'a>, BackupError> {
        let write = |path: &Path, error| BackupError::file("write", path, error);
        let created = !root.exists();
        DirBuilder::new().recursive(true).mode(0o700).create(root).map_err(|error| write(root, error))?;
        let meta_path = root.join(META_INCOMPLETE);
        let was_unfinished = meta_path.exists();
        if !was_unfinished && !is_empty(root)? || root.join(META_FILE).exists() {
            return Err(BackupError::NotEmpty(root.display().to_string()));
        }
        let mut options = OpenOptions::new();
        options.write(true).create(true).truncate(false).mode(0o600);
        let meta = options.open(&meta_path).map_err(|error| write(&meta_path, error))?;
        match meta.try_lock() {
            Ok(()) => {}
            Err(TryLockError::WouldBlock) => return Err(BackupError::InUse(root.display().to_string())),
            Err(TryLockError::Error(error)) => return Err(write(&meta_path, error)),
        }
        if was_unfinished {
            remove_contents(root).map_err(|error| write(root, error))?;
        }
        let mut directory = Directory {
            root: root.to_owned(),
            created,
            finished: false,
            meta,
            list: None,
            parent: root.to_owned(),
            tally: Tally::default(),
            piece: vec![0; PIECE_BYTES],
            copied,
        };
        if let Some(header) = header {
            directory.list = Some(BufWriter::new(directory.create(&root.join(LIST_FILE))?));
            directory.write_line(&ListLine::Backup(header))?;
        }
        Ok(directory)
    }

    fn create(&self, path: &Path) -> Result<File, BackupError> {
        let mut options = OpenOptions::new();
        options.write(true).create_new(true).mode(0o600);
        options.open(path).map_err(|error| BackupError::file("write", path, error))
    }

    fn write_line(&mut self, line: &ListLine) -> Result<(), BackupError> {
        let Some(list) = &mut self.list else { return Ok(()) };
        let written = serde_json::to_writer(&mut *list, line).map_err(io::Error::from);
        let written = written.and_then(|()| list.write_all(b"\n"));
        written.map_err(|error| BackupError::file("write", &self.root.join(LIST_FILE), error))
    }

    /// Copies a file and returns its hash.
    pub(super) fn copy(
        &mut self,
        path: &str,
        bytes: u64,
        content: &mut dyn Read,
    ) -> Result<blake3::Hash, BackupError> {
        let to = self.root.join(checked(path).ok_or_else(|| {
            BackupError::Archive(format!("{path:?} is not the name of a file of a backup"))
        })?);
        let write = |error| BackupError::file("write", &to, error);
        let mut file = if path == META_FILE {
            self.meta.try_clone().map_err(write)?
        } else {
            if let Some(parent) = to.parent().filter(|parent| *parent != self.parent) {
                DirBuilder::new().recursive(true).mode(0o700).create(parent).map_err(write)?;
                self.parent = parent.to_owned();
            }
            self.create(&to)?
        };
        let mut content = Hashing::new(content.take(bytes));
        loop {
            let count = match content.read(&mut self.piece) {
                Ok(0) => break,
                Ok(count) => count,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
                Err(error) => return Err(BackupError::file("read", Path::new(path), error)),
            };
            file.write_all(&self.piece[..count]).map_err(write)?;
            (self.copied)(count as u64);
        }
        if content.bytes != bytes {
            return Err(cut_short(path, content.bytes, bytes));
        }
        let hash = content.hasher.finalize();
        self.tally.add(path, bytes, &hash);
        self.write_line(&ListLine::File { path: path.to_owned(), bytes, hash: hash.to_hex().to_string() })?;
        Ok(hash)
    }

    pub(super) fn totals(&self) -> BackupTotals {
        self.tally.totals()
    }

    /// Makes everything durable, and then the directory a store.
    pub(super) fn finish(mut self) -> Result<BackupTotals, BackupError> {
        let totals = self.totals();
        self.write_line(&ListLine::End(totals.clone()))?;
        self.publish().map_err(|error| BackupError::file("write", &self.root, error))?;
        self.finished = true;
        Ok(totals)
    }

    fn publish(&mut self) -> io::Result<()> {
        if let Some(list) = &mut self.list {
            list.flush()?;
        }
        let root = File::open(&self.root)?;
        // One sync of the file system, because a sync of each of millions of small files takes hours.
        rustix::fs::syncfs(&root)?;
        fs::rename(self.root.join(META_INCOMPLETE), self.root.join(META_FILE))?;
        root.sync_all()?;
        let parent = self.root.parent().filter(|parent| !parent.as_os_str().is_empty());
        File::open(parent.unwrap_or(Path::new(".")))?.sync_all()
    }
}

impl Sink for Directory<'_> {
    fn file(&mut self, path: &str, bytes: u64, content: &mut dyn Read) -> Result<(), BackupError> {
        self.copy(path, bytes, content).map(drop)
    }
}

impl Drop for Directory<'_> {
    fn drop(&mut self) {
        if self.finished {
            return;
        }
        let emptied = remove_contents(&self.root);
        // Last: what is left without it would not be known to be a backup's.
        if emptied.is_ok() {
            let _ = fs::remove_file(self.root.join(META_INCOMPLETE));
        }
        if self.created {
            let _ = fs::remove_dir(&self.root);
        }
    }
}

fn is_empty(root: &Path) -> Result<bool, BackupError> {
    let read = |error| BackupError::file("read", root, error);
    for entry in fs::read_dir(root).map_err(read)? {
        if entry.map_err(read)?.file_name() != LOST_AND_FOUND {
            return Ok(false);
        }
    }
    Ok(true)
}

/// Removes the files of an unfinished backup or restore, except [`META_INCOMPLETE`].
fn remove_contents(root: &Path) -> io::Result<()> {
    for entry in fs::read_dir(root)? {
        let entry = entry?;
        let name = entry.file_name();
        let Some(name) = name.to_str() else { continue };
        if name == BUFFERS && entry.file_type()?.is_dir() {
            fs::remove_dir_all(entry.path())?;
        } else if name == LIST_FILE || is_segment(name) {
            fs::remove_file(entry.path())?;
        }
    }
    Ok(())
}

fn is_segment(name: &str) -> bool {
    name.starts_with("segment-") && Path::new(name).extension().is_some_and(|kind| kind == "log")
}

/// A path of a file of a backup. An archive or a list could name any other.
pub(super) fn checked(path: &str) -> Option<&Path> {
    let is_known = path == META_FILE
        || is_segment(path) && !path.contains('/')
        || path.strip_prefix(BUFFERS).is_some_and(|rest| rest.starts_with('/'));
    let path = Path::new(path);
    (is_known && path.components().all(|part| matches!(part, Component::Normal(_)))).then_some(path)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_files_of_a_backup_are_written() {
        for good in
            ["towline.meta", "segment-00000001.log", "buffers/owner", "buffers/buffers/a.b/c/00000001"]
        {
            assert!(checked(good).is_some(), "{good}");
        }
        for bad in [
            "",
            "/etc/passwd",
            "../towline.meta",
            "towline.meta.incomplete",
            "towline.backup",
            "segment-../../x.log",
            "buffers",
            "buffers/../../x",
            "buffers//../x",
            "other/file",
        ] {
            assert!(checked(bad).is_none(), "{bad}");
        }
    }

    fn begin<'a>(root: &Path, copied: &'a mut dyn FnMut(u64)) -> Result<Directory<'a>, BackupError> {
        Directory::begin(root, Some(BackupHeader { version: 1, buffers_elsewhere: None }), copied)
    }

    #[test]
    fn an_unfinished_directory_is_filled_again_and_a_strange_file_in_it_stays() {
        let parent = tempfile::tempdir().unwrap();
        let root = parent.path().join("new/backup");
        let mut ignore = |_| {};
        let mut directory = begin(&root, &mut ignore).unwrap();
        directory.copy(META_FILE, 4, &mut &b"meta"[..]).unwrap();
        directory.copy("buffers/meta/one", 3, &mut &b"one"[..]).unwrap();
        assert!(matches!(begin(&root, &mut |_| {}), Err(BackupError::InUse(_))));
        // As after kill -9: nothing is cleaned up.
        directory.finished = true;
        drop(directory);
        fs::write(root.join("strange"), "").unwrap();
        let mut ignore = |_| {};
        let mut directory = begin(&root, &mut ignore).unwrap();
        assert!(!root.join("buffers").exists() && root.join("strange").exists());
        directory.copy(META_FILE, 4, &mut &b"meta"[..]).unwrap();
        let cut = directory.copy("buffers/meta/one", 3, &mut &b"on"[..]).unwrap_err().to_string();
        assert!(cut.contains("2 of 3 bytes"), "{cut}");
        drop(directory);
        assert_eq!(fs::read_dir(&root).unwrap().count(), 1, "only the strange file is left");
        let refused = begin(&root, &mut |_| {}).map(drop).unwrap_err().to_string();
        assert!(refused.contains("is not empty"), "{refused}");
    }
}
