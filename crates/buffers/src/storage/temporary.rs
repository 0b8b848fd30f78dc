//! Deletes files that a crash left half written.
//!
//! A file is written as `<name>#<number>` and renamed when it is complete and synced. A file with such a name that has
//! been unchanged for long has no writer any more.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::time::UNIX_EPOCH;

use super::{Backend, ErrorContext, Storage, blocking};
use crate::Result;

impl Storage {
    /// Deletes temporary files written before `before_ms`: those of the given buffers, or with `None` those of
    /// descriptions and blobs. Returns how many.
    pub async fn remove_temporary(
        &self,
        of: Option<&[String]>,
        before_ms: u64,
        context: ErrorContext<'_>,
    ) -> Result<u64> {
        let Backend::Directory(root) = &self.backend else { return Ok(0) };
        let file = |path: object_store::path::Path| root.join(path.as_ref());
        let directories: Vec<PathBuf> = match of {
            None => vec![file(self.metas()), file(self.blobs())],
            Some(ids) => ids.iter().flat_map(|id| [file(self.data(id)), file(self.chunks(id))]).collect(),
        };
        let removed = blocking(move || {
            directories
                .iter()
                .try_fold(0, |sum, directory| Ok(sum + remove_temporary_in(directory, before_ms)?))
        });
        removed.await.map_err(|error| context.io(&error))
    }

    pub fn has_temporary(&self) -> bool {
        matches!(self.backend, Backend::Directory(_))
    }
}

fn remove_temporary_in(directory: &Path, before_ms: u64) -> io::Result<u64> {
    let entries = match fs::read_dir(directory) {
        Ok(entries) => entries,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(0),
        Err(error) => return Err(error),
    };
    let mut removed = 0;
    for entry in entries {
        let entry = entry?;
        if !entry.file_name().to_str().is_some_and(is_temporary) {
            continue;
        }
        let result = match entry.metadata().and_then(|meta| meta.modified()) {
            Ok(written) => {
                let written_ms =
                    written.duration_since(UNIX_EPOCH).map_or(0, |since| since.as_millis() as u64);
                if written_ms >= before_ms {
                    continue;
                }
                fs::remove_file(entry.path())
            }
            Err(error) => Err(error),
        };
        match result {
            Ok(()) => removed += 1,
            // The writer renamed or removed it first.
            Err(error) if error.kind() == io::ErrorKind::NotFound => {}
            Err(error) => return Err(error),
        }
    }
    Ok(removed)
}

pub(crate) fn is_temporary(name: &str) -> bool {
    name.rsplit_once('#')
        .is_some_and(|(_, number)| !number.is_empty() && number.bytes().all(|b| b.is_ascii_digit()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_names_with_a_number_suffix_are_temporary() {
        for name in ["00000001#1", "writer#12", "end#3"] {
            assert!(is_temporary(name), "{name}");
        }
        for name in ["00000001", "writer", "a#", "a#b", "#b1", "1"] {
            assert!(!is_temporary(name), "{name}");
        }
    }
}
