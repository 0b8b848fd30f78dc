//! Recovery: reads a log back when a store is opened, and refuses a log that is damaged.
//!
//! [`segment_files`] finds the segments in use, [`replay`] builds the index from them, [`open`] starts an engine behind them.

mod open;
mod replay;
mod segment_files;

use crate::engine::SegmentInUse;
use crate::error::OpenError;
use crate::index::Index;
use crate::log::disk::Disk;
use crate::log::meta::{self, META_FILE, Meta};
use crate::log::scan::{Checks, SegmentBytes};
use crate::log::segment::{self, HEADER_BYTES, Segment, SegmentHeader};
use crate::options::Options;
use crate::plant::Bug;
use segment_files::SegmentFile;
use std::sync::Arc;
use towline_domain::Timestamp;

/// A log that was read back, before anything is written to it.
pub(crate) struct Recovered {
    pub(crate) meta: Meta,
    pub(crate) index: Index,
    pub(crate) log: Vec<SegmentInUse>,
    /// Segment files that the log does not need, and their sizes.
    pub(crate) unused: Vec<(Arc<Segment>, u64)>,
    /// Temporary files whose writing a crash interrupted.
    pub(crate) leftovers: Vec<String>,
    pub(crate) next_number: u32,
    pub(crate) next_generation: u64,
    pub(crate) next_frame: u64,
    pub(crate) next_item: u64,
    pub(crate) next_queue: u32,
    pub(crate) time: Timestamp,
    /// Frames of the newest segment that may not have been synced: their offset, and their bytes.
    pub(crate) unsynced: (u64, Vec<u8>),
}

impl Recovered {
    /// Begins a store in a directory without one. It is a store when [`Meta::publish`] has named its `towline.meta`, after
    /// the first segment.
    fn create(disk: &dyn Disk, options: &Options) -> Result<Recovered, OpenError> {
        let names = disk.list().map_err(|error| OpenError::io(disk, "", error))?;
        // Blank segments of a creation that a crash interrupted. They may have another salt.
        for name in names.iter().filter(|name| segment::parse_name(name).is_some()) {
            disk.remove(name).map_err(|error| OpenError::io(disk, name, error))?;
        }
        let meta = Meta { salt: options.salt, segment_bytes: options.segment_bytes, history: 0 };
        meta.prepare(disk).map_err(|error| OpenError::io(disk, META_FILE, error))?;
        Ok(Recovered::empty(meta))
    }

    /// An empty store.
    pub(crate) fn empty(meta: Meta) -> Recovered {
        Recovered {
            meta,
            index: Index::new(meta.salt),
            log: Vec::new(),
            unused: Vec::new(),
            leftovers: Vec::new(),
            next_number: 1,
            next_generation: 1,
            next_frame: 1,
            next_item: 1,
            next_queue: 1,
            time: Timestamp(0),
            unsynced: (HEADER_BYTES, Vec::new()),
        }
    }

    /// Reads the store in a directory. `None`: the directory has no store.
    fn read(disk: &dyn Disk, options: &Options) -> Result<Option<Recovered>, OpenError> {
        let names = disk.list().map_err(|error| OpenError::io(disk, "", error))?;
        let Some(meta) = Meta::read(disk)? else {
            if names.iter().any(|name| name == meta::INCOMPLETE) {
                return Err(OpenError::Incomplete { directory: disk.directory() });
            }
            return match names.iter().find(|name| segment::parse_name(name).is_some()) {
                Some(file) if !is_unfinished(disk, &names)? => {
                    Err(OpenError::NoMeta { directory: disk.directory(), file: file.clone() })
                }
                _ => Ok(None),
            };
        };
        let checks = Checks {
            salt: meta.salt,
            no_generation: options.plant.has(Bug::NoGenerationCheck),
            no_frame: options.plant.has(Bug::NoFrameCheck),
        };
        let reader = LogReader { disk, options, meta, checks };
        let mut files = reader.segment_files(&names)?;
        files.sort_by_key(|file| file.header.map_or(0, |header| header.generation));
        reader.check_headers(&files)?;

        let next_number = files.iter().map(|file| file.segment.number + 1).max().unwrap_or(1);
        let newest = files.iter().rev().find_map(|file| Some((file, file.header?)));
        let Some((file, header)) = newest else {
            return Err(OpenError::NoLog { directory: disk.directory() });
        };
        reader.check_newest(file, &header)?;
        // Later frames have a newer tail than the segment header.
        let (tail, newest) = reader.tail(file, &header)?;
        let (used, unused): (Vec<_>, Vec<_>) =
            files.into_iter().partition(|file| file.header.is_some_and(|header| header.generation >= tail));
        let mut recovered = Recovered { next_number, ..Recovered::empty(meta) };
        recovered.index.begin_replay();
        reader.replay(&mut recovered, used, tail, newest)?;
        recovered.unused = unused.into_iter().map(|file| (file.segment, file.size)).collect();
        recovered.leftovers = names.into_iter().filter(|name| name.ends_with(".new")).collect();
        Ok(Some(recovered))
    }
}

/// Whether a crash interrupted the creation of the store: `towline.meta` has its temporary name, and no frame was written.
fn is_unfinished(disk: &dyn Disk, names: &[String]) -> Result<bool, OpenError> {
    if !names.iter().any(|name| name == meta::TEMPORARY) {
        return Ok(false);
    }
    for number in names.iter().filter_map(|name| segment::parse_name(name)) {
        let segment = Segment::open(disk, number)?;
        let in_use = segment.first_byte_in_use();
        if in_use.map_err(|error| OpenError::io(disk, &segment::file_name(number), error))?.is_some() {
            return Ok(false);
        }
    }
    Ok(true)
}

struct LogReader<'a> {
    disk: &'a dyn Disk,
    options: &'a Options,
    meta: Meta,
    checks: Checks,
}

impl LogReader<'_> {
    fn damaged(&self, file: &str, what: String) -> OpenError {
        OpenError::corrupt(self.disk, file, what)
    }

    fn read(&self, file: &SegmentFile, buffer: Vec<u8>) -> Result<SegmentBytes, OpenError> {
        let name = segment::file_name(file.segment.number);
        SegmentBytes::read(&file.segment, file.size, buffer)
            .map_err(|error| OpenError::io(self.disk, &name, error))
    }

    /// The tail of the log, and the bytes of the newest segment, so that they are read only once.
    fn tail(
        &self,
        newest: &SegmentFile,
        header: &SegmentHeader,
    ) -> Result<(u64, Option<SegmentBytes>), OpenError> {
        let bytes = self.read(newest, Vec::new())?;
        let end = bytes.frames(header, self.checks, |_, _, _| Ok::<_, OpenError>(()))?;
        Ok((end.last.map_or(header.tail, |last| last.tail.max(header.tail)), Some(bytes)))
    }
}
