//! Compares a backup with its list, where it is.

use super::directory::{ListLine, checked};
use super::restore::List;
use super::{BackupError, LIST_FILE, Tally};
use std::fs::File;
use std::io::{self, Read};
use std::path::Path;

const PIECE_BYTES: usize = 256 << 10;

/// What the list of a backup says, and which files differ from it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct BackupCheck {
    pub files: u64,
    pub bytes: u64,
    /// The path of a file, and what is wrong with it.
    pub findings: Vec<(String, String)>,
}

/// Reads every file that the list of a backup names. `None`: the directory has no list, so it is not a backup.
pub fn check_backup(directory: &Path, read: &mut dyn FnMut(u64)) -> Result<Option<BackupCheck>, BackupError> {
    if !directory.join(LIST_FILE).exists() {
        return Ok(None);
    }
    let mut check = BackupCheck { files: 0, bytes: 0, findings: Vec::new() };
    match check_list(directory, &mut check, read) {
        Err(BackupError::Damaged { problem, .. }) => {
            check.findings.push((LIST_FILE.to_owned(), problem));
            Ok(Some(check))
        }
        checked => checked.map(|()| Some(check)),
    }
}

fn check_list(
    directory: &Path,
    check: &mut BackupCheck,
    read: &mut dyn FnMut(u64),
) -> Result<(), BackupError> {
    let damaged =
        |problem: String| BackupError::Damaged { directory: directory.display().to_string(), problem };
    let (_, mut lines) = List::begin(directory)?;
    // Of what the list says, so that a differing file does not hide a missing line.
    let mut tally = Tally::default();
    loop {
        match lines.next()? {
            Some(ListLine::File { path, bytes, hash }) => {
                let unknown = || damaged(format!("{path:?} is not the name of a file of a backup"));
                let known = checked(&path).ok_or_else(unknown)?;
                let listed = blake3::Hash::from_hex(&hash);
                let listed = listed.map_err(|_| damaged(format!("{hash:?} is not a hash")))?;
                tally.add(&path, bytes, &listed);
                check.files += 1;
                check.bytes += bytes;
                match hash_file(&directory.join(known), read) {
                    Ok((size, found)) if size == bytes && found == listed => {}
                    Ok(_) => {
                        let what = "it is not the file that was backed up. If a server has used this directory, it is no \
                                    backup any more: remove towline.backup";
                        check.findings.push((path, what.to_owned()));
                    }
                    Err(error) => check.findings.push((path, error.to_string())),
                }
            }
            Some(ListLine::End(totals)) if totals == tally.totals() => return Ok(()),
            Some(ListLine::End(_)) => return Err(damaged(format!("{LIST_FILE} lacks lines"))),
            Some(ListLine::Backup(_)) => return Err(damaged(format!("{LIST_FILE} has two headers"))),
            None => return Err(damaged(format!("{LIST_FILE} is cut short"))),
        }
    }
}

fn hash_file(path: &Path, read: &mut dyn FnMut(u64)) -> io::Result<(u64, blake3::Hash)> {
    let mut file = File::open(path)?;
    let (mut hasher, mut piece, mut bytes) = (blake3::Hasher::new(), vec![0; PIECE_BYTES], 0);
    loop {
        match file.read(&mut piece) {
            Ok(0) => return Ok((bytes, hasher.finalize())),
            Ok(count) => {
                hasher.update(&piece[..count]);
                bytes += count as u64;
                read(count as u64);
            }
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
}
