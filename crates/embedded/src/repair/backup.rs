//! Backup and restore: copies a store while it runs, and copies a backup back.
//!
//! A backup is itself a store. Its segments are cut to their content, and `towline.meta` is written last, so that an
//! unfinished backup is not a store.
//!
//! **Invariant:** every frame and every record is verified while it is copied; there is no backup of a damaged store.

use super::directories::{clear, empty_target, lock, open_source};
use super::integrity_scan::{Finding, IntegrityScan};
use crate::error::OpenError;
use crate::log::disk::{Disk, write_full};
use crate::log::meta::{META_FILE, Meta};
use crate::log::record::Record;
use crate::log::scan::{Checks, SegmentBytes};
use crate::log::segment::{self, HEADER_BYTES, SegmentHeader};
use crate::store::Embedded;
use crate::writer::{PinnedSegment, Request};
use futures::channel::oneshot;
use futures::executor::block_on;
use std::path::Path;
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

impl Embedded {
    /// Copies the store in its present state into a directory that is empty or does not exist. Clients continue meanwhile.
    ///
    /// Blocks until the backup is complete and durable.
    pub fn backup(&self, target: &Path) -> Result<BackupReport, BackupError> {
        let disk = empty_target(target)?;
        let (reply, answer) = oneshot::channel();
        self.send(Request::Hold { reply })?;
        let pinned = block_on(answer).unwrap_or(Err(StoreError::Closed))?;
        copy(self.disk(), self.meta(), &pinned, &disk)
    }
}

/// Copies a backup, or any store that is not in use, into a directory that is empty or does not exist.
///
/// Reads and verifies the whole source first. If it is damaged, the target is not touched.
pub fn restore(backup: &Path, target: &Path) -> Result<BackupReport, BackupError> {
    let source = open_source(backup)?;
    let _lock = lock(&source)?;
    let scan = IntegrityScan::of(&source)?;
    if let Some(Finding { file, byte, what, .. }) = scan.findings.iter().find(|finding| !finding.harmless) {
        let (file, byte, what) = (file.clone(), *byte, what.clone());
        return Err(BackupError::Damaged { directory: source.directory(), file, byte, what });
    }
    let disk = empty_target(target)?;
    let pinned = scan.log.into_iter().map(|file| PinnedSegment {
        segment: file.segment,
        header: file.header,
        end: file.end,
    });
    let pinned: Vec<PinnedSegment> = pinned.collect();
    copy(&source, scan.meta, &pinned, &disk)
}

fn copy(
    source: &dyn Disk,
    meta: Meta,
    pinned: &[PinnedSegment],
    target: &dyn Disk,
) -> Result<BackupReport, BackupError> {
    let mut report = BackupReport::default();
    let result = copy_all(source, meta, pinned, target, &mut report);
    if result.is_err() {
        clear(target);
    }
    result.map(|()| report)
}

fn copy_all(
    source: &dyn Disk,
    meta: Meta,
    pinned: &[PinnedSegment],
    target: &dyn Disk,
    report: &mut BackupReport,
) -> Result<(), BackupError> {
    let tail = pinned.first().map_or(0, |first| first.header.generation);
    for (nth, segment) in pinned.iter().enumerate() {
        let mut header = SegmentHeader { size: segment.end, ..segment.header };
        if nth + 1 == pinned.len() {
            // The frames may name an older tail. The log of the backup starts with its first segment.
            header.tail = tail;
        }
        copy_segment(source, meta, segment, header, target, report)?;
    }
    target.sync_directory().map_err(|error| OpenError::io(target, "", error))?;
    meta.write(target).map_err(|error| OpenError::io(target, META_FILE, error))?;
    Ok(())
}

/// Copies the frames of a segment, behind a new header.
fn copy_segment(
    source: &dyn Disk,
    meta: Meta,
    pinned: &PinnedSegment,
    header: SegmentHeader,
    target: &dyn Disk,
    report: &mut BackupReport,
) -> Result<(), BackupError> {
    let (from, to) = (segment::file_name(pinned.segment.number), segment::file_name(header.number));
    let damaged = |byte, what: String| BackupError::Damaged {
        directory: source.directory(),
        file: from.clone(),
        byte,
        what,
    };
    let bytes = SegmentBytes::read(&pinned.segment, pinned.end, Vec::new())
        .map_err(|error| OpenError::io(source, &from, error))?;
    let end = bytes.frames(&pinned.header, Checks::all(meta.salt), |_, offset, records| {
        let mut at = 0;
        while at < records.len() {
            let record = Record::read_valid(&records[at..], meta.salt)
                .map_err(|error| damaged(offset + at as u64, error.to_string()))?;
            at += record.bytes.len();
            report.records += 1;
        }
        report.frames += 1;
        Ok::<_, BackupError>(())
    })?;
    if end.offset != pinned.end {
        return Err(damaged(end.offset, format!("frame {} does not read", end.next_frame)));
    }
    let bytes = bytes.into_buffer();
    let write = || {
        let file = target.create(&to)?;
        write_full(&*file, &header.encode(meta.salt), 0)?;
        write_full(&*file, &bytes[HEADER_BYTES as usize..], HEADER_BYTES)?;
        file.sync()
    };
    write().map_err(|error| OpenError::io(target, &to, error))?;
    report.segments += 1;
    report.bytes += pinned.end;
    Ok(())
}
