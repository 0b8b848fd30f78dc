//! Finds the segment files of a directory, and checks their headers.

use super::LogReader;
use crate::error::OpenError;
use crate::log::scan::SegmentBytes;
use crate::log::segment::{self, Segment, SegmentHeader};
use std::sync::Arc;

/// A segment file in the directory.
pub(super) struct SegmentFile {
    pub(super) segment: Arc<Segment>,
    /// `None`: no copy of the header reads.
    pub(super) header: Option<SegmentHeader>,
    pub(super) size: u64,
}

impl LogReader<'_> {
    pub(super) fn segment_files(&self, names: &[String]) -> Result<Vec<SegmentFile>, OpenError> {
        let mut files = Vec::new();
        for (name, number) in names.iter().filter_map(|name| Some((name, segment::parse_name(name)?))) {
            let segment = Segment::open(self.disk, number)?;
            let error = |error| OpenError::io(self.disk, name, error);
            let header = SegmentHeader::read(&*segment.file, self.meta.salt).map_err(error)?;
            let size = segment.file.size().map_err(error)?;
            files.push(SegmentFile { segment: Arc::new(segment), header, size });
        }
        Ok(files)
    }

    /// Refuses files of another store, renamed files, and files with data and without a valid header.
    ///
    /// A file without a valid header is a spare that was never used, if it is blank. Any other is not overwritten or removed.
    pub(super) fn check_headers(&self, files: &[SegmentFile]) -> Result<(), OpenError> {
        let newest = files.iter().filter_map(|file| file.header).map(|header| header.generation).max();
        for file in files {
            let name = segment::file_name(file.segment.number);
            match file.header {
                Some(header) if header.number != file.segment.number => {
                    let what = format!("it is segment {} under another name", header.number);
                    return Err(self.damaged(&name, what));
                }
                Some(_) => {}
                None => {
                    let error = |error| OpenError::io(self.disk, &name, error);
                    // The store must not overwrite or remove a foreign file, and its own file may be missing.
                    if SegmentHeader::read_any(&*file.segment.file).map_err(error)?.is_some() {
                        return Err(self.damaged(&name, "it belongs to another store".to_owned()));
                    }
                    if file.segment.first_byte_in_use().map_err(error)?.is_none() {
                        continue;
                    }
                    let bytes = SegmentBytes::read(&file.segment, file.size, Vec::new()).map_err(error)?;
                    let what = match bytes.newest_frame(self.checks) {
                        None => segment::UNREADABLE,
                        Some(found) if newest.is_some_and(|newest| found.generation <= newest) => {
                            segment::HEADLESS_OLD
                        }
                        Some(_) => segment::HEADLESS,
                    };
                    return Err(self.damaged(&name, what.to_owned()));
                }
            }
        }
        Ok(())
    }

    /// Refuses a log whose newest segment is missing.
    pub(super) fn check_newest(&self, file: &SegmentFile, header: &SegmentHeader) -> Result<(), OpenError> {
        let name = segment::file_name(header.number);
        let linked = file.segment.is_linked(header, self.meta.salt);
        match linked.map_err(|error| OpenError::io(self.disk, &name, error))? {
            true => Err(self.damaged(&name, segment::missing_behind(header))),
            false => Ok(()),
        }
    }
}
