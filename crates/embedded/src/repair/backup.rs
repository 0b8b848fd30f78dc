//! Backup and restore: copies a store while it runs, and copies a backup back.
//!
//! A backup is itself a store. Its segments are cut to their content, and `towline.meta` is written last, so that an
//! unfinished backup is not a store.
//!
//! **Invariant:** every frame and every record is verified while it is copied; there is no backup of a damaged store.

use super::directories::{Lock, clear, empty_target, lock, open_source};
use super::integrity_scan::{Finding, IntegrityScan};
use crate::error::OpenError;
use crate::log::disk::{Disk, write_full};
use crate::log::meta::{COPIED, META_FILE, Meta};
use crate::log::record::Record;
use crate::log::scan::{Checks, SegmentBytes};
use crate::log::segment::{self, HEADER_BYTES, SegmentHeader};
use crate::store::Embedded;
use crate::writer::{PinnedSegment, Request};
use futures::channel::oneshot;
use futures::executor::block_on;
use std::path::Path;
use std::sync::Arc;
use towline_store::StoreError;

#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct BackupReport {
    pub segments: u64,
    pub frames: u64,
    pub records: u64,
    pub bytes: u64,
}

#[derive(Debug, thiserror::Error)]
pub enum BackupError {
    #[error("{target} is not empty; give a directory that is empty or does not exist")]
    NotEmpty { target: String },
    #[error("{directory}/{file} is damaged at byte {byte}: {what}; run `towline doctor` on {directory}")]
    Damaged { directory: String, file: String, byte: u64, what: String },
    #[error(transparent)]
    Store(#[from] StoreError),
    #[error(transparent)]
    Open(#[from] OpenError),
}

/// The log of a store at one moment. While this exists, the store continues in other segments and overwrites none of these.
#[derive(Debug)]
pub struct Snapshot {
    disk: Arc<dyn Disk>,
    meta: Meta,
    pinned: Vec<PinnedSegment>,
    /// Keeps a directory that no server uses locked.
    _lock: Option<Lock>,
}

/// A file of a backup.
#[derive(Debug)]
pub struct SnapshotFile {
    pub name: String,
    pub bytes: Vec<u8>,
    frames: u64,
    records: u64,
}

impl Embedded {
    /// Pins the present state of the store, to copy it while clients continue. Blocks until the state is durable.
    pub fn snapshot(&self) -> Result<Snapshot, BackupError> {
        let (reply, answer) = oneshot::channel();
        self.send(Request::Hold { reply })?;
        let pinned = block_on(answer).unwrap_or(Err(StoreError::Closed))?;
        Ok(Snapshot { disk: self.disk(), meta: self.meta(), pinned, _lock: None })
    }

    /// Copies the store in its present state into a directory that is empty or does not exist. Clients continue meanwhile.
    ///
    /// Blocks until the backup is complete and durable.
    pub fn backup(&self, target: &Path) -> Result<BackupReport, BackupError> {
        let disk = empty_target(target)?;
        self.snapshot()?.copy(&disk)
    }
}

impl Snapshot {
    /// The state of a store that is not in use. Reads and verifies all of it first.
    pub fn of_directory(path: &Path) -> Result<Snapshot, BackupError> {
        let disk = open_source(path)?;
        let lock = lock(&disk)?;
        let mut ignore = |_| {};
        let IntegrityScan { meta, log, findings, .. } = IntegrityScan::of(&disk, &mut ignore)?;
        if let Some(Finding { file, byte, what, .. }) = findings.into_iter().find(|finding| !finding.harmless)
        {
            return Err(BackupError::Damaged { directory: disk.directory(), file, byte, what });
        }
        let pinned = log.into_iter().map(|file| PinnedSegment {
            segment: file.segment,
            header: file.header,
            end: file.end,
        });
        let pinned = pinned.collect();
        Ok(Snapshot { disk: Arc::new(disk), meta, pinned, _lock: Some(lock) })
    }

    /// The number of segments.
    #[must_use]
    pub fn segments(&self) -> usize {
        self.pinned.len()
    }

    /// The bytes of all segments.
    #[must_use]
    pub fn bytes(&self) -> u64 {
        self.pinned.iter().map(|pinned| pinned.end).sum()
    }

    /// The file that makes a directory a store. Its final name must be the last change to a directory.
    #[must_use]
    pub fn meta_file(&self) -> SnapshotFile {
        SnapshotFile { name: META_FILE.to_owned(), bytes: self.copied_meta().encode(), frames: 0, records: 0 }
    }

    /// The copy gets another history: from now on, its events differ from those of the original.
    fn copied_meta(&self) -> Meta {
        Meta { history: COPIED, ..self.meta }
    }

    /// Reads and verifies a segment, and cuts it to its content.
    pub fn segment_file(&self, nth: usize) -> Result<SnapshotFile, BackupError> {
        let (Some(pinned), Some(first)) = (self.pinned.get(nth), self.pinned.first()) else {
            return Err(StoreError::Closed.into());
        };
        let mut header = SegmentHeader { size: pinned.end, ..pinned.header };
        if nth + 1 == self.pinned.len() {
            // The frames may name an older tail. The log of the backup starts with its first segment.
            header.tail = first.header.generation;
        }
        let block = match nth + 1 == self.pinned.len() {
            true => header.encode(self.meta.salt),
            false => header.encode_linked(self.meta.salt),
        };
        read_segment(&*self.disk, self.meta, pinned, &block)
    }

    fn copy(&self, target: &dyn Disk) -> Result<BackupReport, BackupError> {
        let copied = self.copy_all(target);
        if copied.is_err() {
            clear(target);
        }
        copied
    }

    fn copy_all(&self, target: &dyn Disk) -> Result<BackupReport, BackupError> {
        let mut report = BackupReport::default();
        for nth in 0..self.segments() {
            let SnapshotFile { name, bytes, frames, records } = self.segment_file(nth)?;
            let write = || {
                let file = target.create(&name)?;
                write_full(&*file, &bytes, 0)?;
                file.sync()
            };
            write().map_err(|error| OpenError::io(target, &name, error))?;
            report.segments += 1;
            report.frames += frames;
            report.records += records;
            report.bytes += bytes.len() as u64;
        }
        target.sync_directory().map_err(|error| OpenError::io(target, "", error))?;
        self.copied_meta().write(target).map_err(|error| OpenError::io(target, META_FILE, error))?;
        Ok(report)
    }
}

/// Copies a backup, or any store that is not in use, into a directory that is empty or does not exist.
///
/// Reads and verifies the whole source first. If it is damaged, the target is not touched.
pub fn restore(backup: &Path, target: &Path) -> Result<BackupReport, BackupError> {
    let snapshot = Snapshot::of_directory(backup)?;
    snapshot.copy(&empty_target(target)?)
}

/// Reads and verifies the frames of a segment, and puts them behind a new header.
fn read_segment(
    source: &dyn Disk,
    meta: Meta,
    pinned: &PinnedSegment,
    header: &[u8],
) -> Result<SnapshotFile, BackupError> {
    let from = segment::file_name(pinned.segment.number);
    let damaged = |byte, what: String| BackupError::Damaged {
        directory: source.directory(),
        file: from.clone(),
        byte,
        what,
    };
    let (mut frames, mut records_read) = (0, 0);
    let bytes = SegmentBytes::read(&pinned.segment, pinned.end, Vec::new())
        .map_err(|error| OpenError::io(source, &from, error))?;
    let end = bytes.frames(&pinned.header, Checks::all(meta.salt), |_, offset, records| {
        let mut at = 0;
        while at < records.len() {
            let record = Record::read_valid(&records[at..], meta.salt)
                .map_err(|error| damaged(offset + at as u64, error.to_string()))?;
            at += record.bytes.len();
            records_read += 1;
        }
        frames += 1;
        Ok::<_, BackupError>(())
    })?;
    if end.offset != pinned.end {
        return Err(damaged(end.offset, format!("frame {} does not read", end.next_frame)));
    }
    let mut bytes = bytes.into_buffer();
    bytes[..HEADER_BYTES as usize].copy_from_slice(header);
    Ok(SnapshotFile { name: segment::file_name(pinned.segment.number), bytes, frames, records: records_read })
}
