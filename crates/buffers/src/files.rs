//! The files of a place that is a directory, for a backup.
//!
//! **Invariant:** every file is whole. A file gets its name when it is complete, and never changes under that name: a file that is
//! replaced is a new file.

use std::fs::{self, File};
use std::io;
use std::path::Path;

use crate::storage::is_temporary;

/// Entries of a place. Other entries of the directory are not visited.
const ENTRIES: [&str; 4] = ["owner", "meta", "buffers", "fields"];
/// `buffers/ID/c/NUMBER`.
const DEPTH_MAX: usize = 4;

/// Visits every stored object: its path relative to the directory, and its open file. Objects that are deleted meanwhile may be
/// left out.
pub fn visit_files<E: From<io::Error>>(
    directory: &Path,
    visit: &mut dyn FnMut(&str, File) -> Result<(), E>,
) -> Result<(), E> {
    for name in ENTRIES {
        visit_entry(&directory.join(name), name, DEPTH_MAX, visit)?;
    }
    Ok(())
}

fn visit_entry<E: From<io::Error>>(
    at: &Path,
    relative: &str,
    depth: usize,
    visit: &mut dyn FnMut(&str, File) -> Result<(), E>,
) -> Result<(), E> {
    let gone = |error: &io::Error| error.kind() == io::ErrorKind::NotFound;
    let kind = match fs::symlink_metadata(at) {
        Err(error) if gone(&error) => return Ok(()),
        found => found?.file_type(),
    };
    if kind.is_file() {
        return match File::open(at) {
            Err(error) if gone(&error) => Ok(()),
            opened => visit(relative, opened?),
        };
    }
    if !kind.is_dir() || depth == 0 {
        return Ok(());
    }
    let entries = match fs::read_dir(at) {
        Err(error) if gone(&error) => return Ok(()),
        entries => entries?,
    };
    for entry in entries {
        let entry = entry?;
        let name = entry.file_name();
        let Some(name) = name.to_str().filter(|name| !is_temporary(name)) else { continue };
        visit_entry(&entry.path(), &format!("{relative}/{name}"), depth - 1, visit)?;
    }
    Ok(())
}
