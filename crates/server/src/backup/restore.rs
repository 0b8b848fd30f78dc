//! Restores a backup into a data directory.

use super::directory::{Directory, ListLine, checked};
use super::{BackupError, BackupHeader, BackupSummary, LIST_FILE, VERSION};
use std::fs::File;
use std::io::{BufRead, BufReader, ErrorKind, Read, Seek, SeekFrom};
use std::path::Path;
use towline_embedded::META_FILE;

/// A path of a file of a backup is far shorter.
const LINE_BYTES_MAX: u64 = 64 << 10;

/// Copies a backup into a directory that is empty or does not exist, and compares every byte with the list of the backup.
pub fn restore(
    backup: &Path,
    target: &Path,
    copied: &mut dyn FnMut(u64),
) -> Result<BackupSummary, BackupError> {
    let damaged = |problem: String| BackupError::Damaged { directory: backup.display().to_string(), problem };
    let (header, mut lines) = List::begin(backup)?;
    if !backup.join(META_FILE).exists() {
        return Err(damaged(format!("it has no {META_FILE}, so the backup did not finish")));
    }
    let mut directory = Directory::begin(target, None, copied)?;
    loop {
        match lines.next()? {
            Some(ListLine::File { path, bytes, hash }) => {
                let known = checked(&path)
                    .ok_or_else(|| damaged(format!("{path:?} is not the name of a file of a backup")))?;
                let from = backup.join(known);
                let mut file = match File::open(&from) {
                    Err(error) if error.kind() == ErrorKind::NotFound => {
                        return Err(damaged(format!("{path} is missing")));
                    }
                    opened => opened.map_err(|error| BackupError::file("read", &from, error))?,
                };
                let size = file.metadata().map_err(|error| BackupError::file("read", &from, error))?.len();
                let copied = directory.copy(&path, bytes.min(size), &mut file)?;
                if size != bytes || copied.to_hex().as_str() != hash {
                    return Err(damaged(format!("{path} is not the file that was backed up")));
                }
            }
            Some(ListLine::End(totals)) if totals == directory.totals() => {
                directory.finish()?;
                return Ok(BackupSummary { header, totals });
            }
            Some(ListLine::End(_)) => return Err(damaged(format!("{LIST_FILE} lacks lines"))),
            Some(ListLine::Backup(_)) => return Err(damaged(format!("{LIST_FILE} has two headers"))),
            None => return Err(damaged(format!("{LIST_FILE} is cut short"))),
        }
    }
}

/// How many bytes a restore of this backup copies. `None` if the list of the backup does not say so; then the restore says why.
#[must_use]
pub fn bytes_to_restore(backup: &Path) -> Option<u64> {
    let mut list = File::open(backup.join(LIST_FILE)).ok()?;
    let end = list.seek(SeekFrom::End(0)).ok()?;
    list.seek(SeekFrom::Start(end.saturating_sub(LINE_BYTES_MAX))).ok()?;
    let mut tail = Vec::new();
    list.take(LINE_BYTES_MAX).read_to_end(&mut tail).ok()?;
    let last = tail.trim_ascii_end().rsplit(|byte| *byte == b'\n').next()?;
    match serde_json::from_slice(last).ok()? {
        ListLine::End(totals) => Some(totals.bytes),
        _ => None,
    }
}

/// Reads the list of a backup line by line.
pub(super) struct List<'a> {
    backup: &'a Path,
    lines: BufReader<File>,
}

impl List<'_> {
    fn open(backup: &Path) -> Result<List<'_>, BackupError> {
        let file = File::open(backup.join(LIST_FILE))
            .map_err(|_| BackupError::NotABackup(backup.display().to_string()))?;
        Ok(List { backup, lines: BufReader::new(file) })
    }

    /// Opens the list and reads its header.
    pub(super) fn begin(backup: &Path) -> Result<(BackupHeader, List<'_>), BackupError> {
        let mut lines = List::open(backup)?;
        match lines.next()? {
            Some(ListLine::Backup(header)) if header.version <= VERSION => Ok((header, lines)),
            Some(ListLine::Backup(BackupHeader { version: found, .. })) => {
                Err(BackupError::Newer { directory: backup.display().to_string(), found })
            }
            _ => Err(BackupError::Damaged {
                directory: backup.display().to_string(),
                problem: format!("{LIST_FILE} has no header"),
            }),
        }
    }

    pub(super) fn next(&mut self) -> Result<Option<ListLine>, BackupError> {
        let mut line = Vec::new();
        let read = (&mut self.lines).take(LINE_BYTES_MAX).read_until(b'\n', &mut line);
        read.map_err(|error| BackupError::file("read", &self.backup.join(LIST_FILE), error))?;
        if line.is_empty() {
            return Ok(None);
        }
        serde_json::from_slice(&line).map(Some).map_err(|error| BackupError::Damaged {
            directory: self.backup.display().to_string(),
            problem: format!("a line of {LIST_FILE} does not read: {error}"),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::backup::BackupTotals;

    #[test]
    fn the_list_of_a_backup_says_how_much_there_is_to_restore() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join(LIST_FILE);
        assert_eq!(bytes_to_restore(directory.path()), None);
        let line = |line: &ListLine| serde_json::to_string(line).unwrap() + "\n";
        let header = line(&ListLine::Backup(BackupHeader { version: VERSION, buffers_elsewhere: None }));
        let file = line(&ListLine::File { path: "a".to_owned(), bytes: 5, hash: "0".repeat(64) });
        let end = line(&ListLine::End(BackupTotals { files: 3000, bytes: 15_000, hash: "0".repeat(64) }));
        for (files, end, bytes) in
            [(0, "", None), (3000, "", None), (0, &*end, Some(15_000)), (3000, &*end, Some(15_000))]
        {
            std::fs::write(&path, format!("{header}{}{end}", file.repeat(files))).unwrap();
            assert_eq!(bytes_to_restore(directory.path()), bytes);
        }
    }
}
