//! Copies of a store: taken while it runs, and put back.
//!
//! A copy is itself a store. Its segments are cut to what they hold, and `towline.meta` is written last, so that a
//! copy that was not finished is not taken for one.
//!
//! **Invariant:** every frame and every record is checked on its way; a damaged store makes no copy.

use crate::error::OpenError;
use crate::log::disk::{Disk, RealDisk, write_full};
use crate::log::meta::{META_FILE, Meta};
use crate::log::scan::{Checks, SegmentBytes};
use crate::log::segment::{self, HEADER_BYTES, SegmentHeader};
use crate::repair::integrity_scan::{Finding, IntegrityScan, read_record};
use crate::store::Embedded;
use crate::writer::{PinnedSegment, Request};
use futures::channel::oneshot;
use futures::executor::block_on;
use std::path::Path;
use towline_store::StoreError;

/// What was copied.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct BackupReport {
    pub segments: u64,
    pub frames: u64,
    pub records: u64,
    pub bytes: u64,
}

#[derive(Debug, thiserror::Error)]
pub enum BackupError {
    #[error("{target} is not empty; give a directory that is, or that does not exist")]
    NotEmpty { target: String },
    #[error("{place}/{file} is damaged at byte {byte}: {what}; run `towline doctor` on {place}")]
    Damaged { place: String, file: String, byte: u64, what: String },
    #[error(transparent)]
    Store(#[from] StoreError),
    #[error(transparent)]
    Open(#[from] OpenError),
}

impl Embedded {
    /// Copies the store as it is now into a directory that is empty or does not exist, while clients go on.
    ///
    /// Blocks until the copy is whole and durable.
    pub fn backup(&self, target: &Path) -> Result<BackupReport, BackupError> {
        let disk = empty(target)?;
        let (reply, answer) = oneshot::channel();
        self.send(Request::Hold { reply })?;
        let held = block_on(answer).unwrap_or(Err(StoreError::Closed))?;
        copy(self.disk(), self.meta(), &held, &disk)
    }
}

/// Puts a copy back, or any store that is not in use, into a directory that is empty or does not exist.
///
/// The whole copy is read and checked first; if anything is wrong with it, the target is not touched.
pub fn restore(backup: &Path, target: &Path) -> Result<BackupReport, BackupError> {
    let source = open_source(backup)?;
    let _lock = lock(&source)?;
    let survey = IntegrityScan::of(&source)?;
    if let Some(Finding { file, byte, what, .. }) = survey.findings.iter().find(|finding| !finding.harmless) {
        let (file, byte, what) = (file.clone(), *byte, what.clone());
        return Err(BackupError::Damaged { place: source.place(), file, byte, what });
    }
    let disk = empty(target)?;
    let held = survey.log.into_iter().map(|file| PinnedSegment {
        segment: file.segment,
        header: file.header,
        end: file.end,
    });
    let held: Vec<PinnedSegment> = held.collect();
    copy(&source, survey.meta, &held, &disk)
}

fn empty(target: &Path) -> Result<RealDisk, BackupError> {
    let place = target.display().to_string();
    match RealDisk::empty(target) {
        Ok(Some(disk)) => Ok(disk),
        Ok(None) => Err(BackupError::NotEmpty { target: place }),
        Err(source) => {
            let remedy = "choose a directory that can be made and written";
            Err(OpenError::Io { place, file: String::new(), source, remedy }.into())
        }
    }
}

/// A directory that must exist and is only read.
pub(crate) fn open_source(path: &Path) -> Result<RealDisk, OpenError> {
    RealDisk::read_only(path).map_err(|source| OpenError::Io {
        place: path.display().to_string(),
        file: String::new(),
        source,
        remedy: "give a directory that exists and can be read",
    })
}

pub(crate) fn lock(disk: &dyn Disk) -> Result<Box<dyn std::any::Any + Send + Sync>, OpenError> {
    let lock = disk.lock().map_err(|error| OpenError::io(disk, "LOCK", error))?;
    lock.ok_or_else(|| OpenError::InUse { place: disk.place() })
}

fn copy(
    source: &dyn Disk,
    meta: Meta,
    held: &[PinnedSegment],
    target: &dyn Disk,
) -> Result<BackupReport, BackupError> {
    let mut report = BackupReport::default();
    let result = copy_all(source, meta, held, target, &mut report);
    if result.is_err() {
        // Half a copy is of no use to anybody, and would be in the way of the next try.
        for name in target.list().unwrap_or_default() {
            let _ = target.remove(&name);
        }
    }
    result.map(|()| report)
}

fn copy_all(
    source: &dyn Disk,
    meta: Meta,
    held: &[PinnedSegment],
    target: &dyn Disk,
    report: &mut BackupReport,
) -> Result<(), BackupError> {
    let tail = held.first().map_or(0, |first| first.header.generation);
    for (nth, one) in held.iter().enumerate() {
        let mut header = SegmentHeader { size: one.end, ..one.header };
        if nth + 1 == held.len() {
            // The log of the copy begins with its first segment, whatever the frames could tell when they were written.
            header.tail = tail;
        }
        copy_segment(source, meta, one, header, target, report)?;
    }
    target.sync_directory().map_err(|error| OpenError::io(target, "", error))?;
    meta.write(target).map_err(|error| OpenError::io(target, META_FILE, error))?;
    Ok(())
}

/// Copies what a segment holds, with the header given.
fn copy_segment(
    source: &dyn Disk,
    meta: Meta,
    held: &PinnedSegment,
    header: SegmentHeader,
    target: &dyn Disk,
    report: &mut BackupReport,
) -> Result<(), BackupError> {
    let (from, to) = (segment::file_name(held.segment.number), segment::file_name(header.number));
    let damaged =
        |byte, what: String| BackupError::Damaged { place: source.place(), file: from.clone(), byte, what };
    let bytes = SegmentBytes::read(&held.segment, held.end, Vec::new())
        .map_err(|error| OpenError::io(source, &from, error))?;
    let checks = Checks { salt: meta.salt, no_generation: false, no_frame: false };
    let end = bytes.frames(&held.header, checks, |_, offset, records| {
        let mut at = 0;
        while at < records.len() {
            let record = read_record(&records[at..], meta.salt)
                .map_err(|error| damaged(offset + at as u64, error.to_string()))?;
            at += record.bytes.len();
            report.records += 1;
        }
        report.frames += 1;
        Ok::<_, BackupError>(())
    })?;
    if end.offset != held.end {
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
    report.bytes += held.end;
    Ok(())
}
