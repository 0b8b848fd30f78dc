//! The integrity scan: reads a store's directory from end to end and lists all damage. Opening stops at the first damage; the
//! scan continues after it.
//!
//! **Invariant:** the scan writes nothing, and passes a record on only if the record's check matches.

mod discovery;
mod sidecars;
mod walk;

use crate::error::OpenError;
use crate::log::disk::Disk;
use crate::log::meta::Meta;
use crate::log::record::{Record, RecordPlace};
use crate::log::scan::{Checks, SegmentBytes};
use crate::log::segment::{self, Segment, SegmentHeader};
use std::fmt;
use std::ops::Range;
use std::sync::Arc;

/// A deviation from a correct store.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Finding {
    pub file: String,
    pub byte: u64,
    pub what: String,
    /// The store opens in spite of it, and all acknowledged content is there.
    pub harmless: bool,
}

impl fmt::Display for Finding {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let note = if self.harmless { " (harmless)" } else { "" };
        write!(f, "{} at byte {}: {}{note}", self.file, self.byte, self.what)
    }
}

/// The segments in use, in log order, and the findings.
pub(crate) struct IntegrityScan<'a> {
    disk: &'a dyn Disk,
    pub(crate) meta: Meta,
    pub(crate) log: Vec<ScannedSegment>,
    pub(crate) findings: Vec<Finding>,
    pub(crate) totals: Totals,
    /// Called with the number of bytes after each segment is read.
    read: &'a mut dyn FnMut(u64),
}

#[derive(Debug)]
pub(crate) struct ScannedSegment {
    pub(crate) segment: Arc<Segment>,
    pub(crate) header: SegmentHeader,
    size: u64,
    /// Where its frames end. Known after the walk.
    pub(crate) end: u64,
}

impl ScannedSegment {
    fn name(&self) -> String {
        segment::file_name(self.segment.number)
    }
}

#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct Totals {
    pub(crate) frames: u64,
    pub(crate) records: u64,
    pub(crate) bytes: u64,
    pub(crate) next_item: u64,
    pub(crate) next_queue: u32,
    pub(crate) time: u64,
}

impl Totals {
    fn take(&mut self, next_item: u64, next_queue: u32, time: u64) {
        self.next_item = self.next_item.max(next_item);
        self.next_queue = self.next_queue.max(next_queue);
        self.time = self.time.max(time);
    }
}

/// One step of a walk, in log order.
pub(crate) enum ScanStep<'a> {
    Record(Record<'a>, RecordPlace),
    /// Part of the log does not read. The items with these sequence numbers were submitted there.
    Gap(Range<u64>),
    /// A record of the item with this sequence number does not read.
    LostRecord(u64),
}

type Visit<'v> = &'v mut dyn FnMut(ScanStep<'_>);

impl<'a> IntegrityScan<'a> {
    /// Finds the segments in use and scans them. Calls `read` with the number of bytes after each segment is read.
    pub(crate) fn of(
        disk: &'a dyn Disk,
        read: &'a mut dyn FnMut(u64),
    ) -> Result<IntegrityScan<'a>, OpenError> {
        let mut scan = IntegrityScan::discover(disk, read)?;
        scan.walk(&mut |_| {})?;
        scan.check_sidecars()?;
        Ok(scan)
    }

    pub(crate) fn is_whole(&self) -> bool {
        self.findings.iter().all(|finding| finding.harmless)
    }

    /// Visits every intact record again, in log order.
    pub(crate) fn visit_again(&mut self, visit: Visit<'_>) -> Result<(), OpenError> {
        let (findings, totals) = (self.findings.clone(), self.totals);
        let walked = self.walk(visit);
        (self.findings, self.totals) = (findings, totals);
        walked
    }

    fn damaged(&mut self, file: &str, byte: u64, what: impl Into<String>) {
        self.findings.push(Finding { file: file.to_owned(), byte, what: what.into(), harmless: false });
    }

    fn harmless(&mut self, file: &str, byte: u64, what: &str) {
        self.findings.push(Finding { file: file.to_owned(), byte, what: what.to_owned(), harmless: true });
    }

    fn checks(&self) -> Checks {
        Checks::all(self.meta.salt)
    }

    fn read(&self, file: &ScannedSegment) -> Result<SegmentBytes, OpenError> {
        SegmentBytes::read(&file.segment, file.size, Vec::new())
            .map_err(|error| OpenError::io(self.disk, &file.name(), error))
    }
}

fn place(segment: u32, offset: u64, length: usize) -> RecordPlace {
    let narrow = |value: u64| u32::try_from(value).unwrap_or(u32::MAX);
    RecordPlace { segment, offset: narrow(offset), length: narrow(length as u64) }
}
