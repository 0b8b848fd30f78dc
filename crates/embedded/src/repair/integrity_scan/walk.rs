//! Walks all frames and records of the log, and continues after damage.

use super::{IntegrityScan, ScanStep, ScannedSegment, Visit, place};
use crate::error::OpenError;
use crate::log::frame;
use crate::log::record::{Record, RecordKind};
use crate::log::scan::SegmentBytes;
use crate::log::segment::{HEADER_BYTES, SegmentHeader};
use std::ops::Range;

/// Where a walk of a segment has arrived.
struct Position {
    offset: u64,
    next_frame: u64,
    /// Item sequence numbers below this were used before this position.
    next_item: u64,
}

impl IntegrityScan<'_> {
    pub(super) fn walk(&mut self, visit: Visit<'_>) -> Result<(), OpenError> {
        let mut log = std::mem::take(&mut self.log);
        let headers: Vec<SegmentHeader> = log.iter().map(|file| file.header).collect();
        let mut next_item: Option<u64> = None;
        for (nth, file) in log.iter_mut().enumerate() {
            let header = file.header;
            if let Some(next_item) = next_item.filter(|&next_item| next_item < header.next_item) {
                // A segment before this one is missing, or the end of the previous segment.
                visit(ScanStep::Gap(next_item..header.next_item));
            }
            self.totals.take(header.next_item, header.next_queue, header.time);
            let bytes = self.read(file)?;
            (self.read)(bytes.len());
            if file.size < header.size {
                let what = format!("it is cut short: {} bytes of {}", file.size, header.size);
                self.damaged(&file.name(), file.size, what);
            }
            let next_first = headers.get(nth + 1).map(|next| next.first_frame);
            next_item = Some(self.walk_segment(file, &bytes, next_first, visit));
        }
        self.log = log;
        Ok(())
    }

    /// Returns the first item sequence number that is unused at the end of the segment.
    fn walk_segment(
        &mut self,
        file: &mut ScannedSegment,
        bytes: &SegmentBytes,
        next_first: Option<u64>,
        visit: Visit<'_>,
    ) -> u64 {
        let (name, header, checks) = (file.name(), file.header, self.checks());
        let mut at =
            Position { offset: HEADER_BYTES, next_frame: header.first_frame, next_item: header.next_item };
        loop {
            self.walk_frames(file, bytes, &mut at, visit);
            let next = at.next_frame;
            let mut later = bytes
                .later_frames(at.offset + 8, header.generation, checks)
                .filter(|(_, found)| found.sequence > next);
            let Some((offset, found)) = later.next() else {
                break;
            };
            // In the newest segment, a frame that no other frame calls durable may be a torn tail.
            let proven =
                next_first.is_some() || found.synced >= next || later.any(|(_, found)| found.synced >= next);
            if !proven {
                let what = "a crash cut the last write short; it was never acknowledged";
                self.harmless(&name, at.offset, what);
                break;
            }
            let after = (next, Some(found.sequence));
            let rescued = self.rescue_records(file, bytes, at.offset..offset, after, visit);
            let frames = name_frames(next, found.sequence);
            let what = format!("{} bytes with {frames} do not read{rescued}", offset - at.offset);
            self.damaged(&name, at.offset, what);
            visit(ScanStep::Gap(at.next_item..at.next_item.max(found.next_item)));
            at = Position { offset, next_frame: found.sequence, next_item: found.next_item };
        }
        let rest = at.offset..bytes.len();
        if let Some(first) = next_first.filter(|&first| first > at.next_frame) {
            // If the next segment is missing, these frames include its frames. Discovery reports that.
            let rescued = self.rescue_records(file, bytes, rest, (at.next_frame, None), visit);
            let frames = name_frames(at.next_frame, first);
            self.damaged(&name, at.offset, format!("{frames} do not read, but the log continues{rescued}"));
        } else if header.size < self.meta.segment_bytes && at.offset != header.size {
            let rescued = self.rescue_records(file, bytes, rest, (at.next_frame, None), visit);
            let what =
                format!("a frame does not read{rescued}; the frames should reach byte {}", header.size);
            self.damaged(&name, at.offset, what);
            visit(ScanStep::Gap(at.next_item..at.next_item));
        }
        self.totals.bytes += at.offset;
        file.end = at.offset;
        at.next_item
    }

    /// Walks consecutive intact frames.
    fn walk_frames(
        &mut self,
        file: &ScannedSegment,
        bytes: &SegmentBytes,
        at: &mut Position,
        visit: Visit<'_>,
    ) {
        let (name, header, salt) = (file.name(), file.header, self.meta.salt);
        while let Some((found, records)) =
            bytes.from(at.offset).and_then(|bytes| frame::read(bytes, header.generation, salt))
            && found.sequence == at.next_frame
        {
            self.totals.take(found.next_item, found.next_queue, found.time);
            self.totals.frames += 1;
            let from = at.offset + frame::HEADER_BYTES as u64;
            self.walk_records(&name, header.number, records, from, visit);
            *at = Position {
                offset: at.offset + frame::padded(found.length as usize) as u64,
                next_frame: at.next_frame + 1,
                next_item: found.next_item,
            };
        }
    }

    fn walk_records(&mut self, name: &str, segment: u32, records: &[u8], from: u64, visit: Visit<'_>) {
        let mut at = 0;
        while at < records.len() {
            match Record::read_valid(&records[at..], self.meta.salt) {
                Ok(record) => {
                    self.totals.records += 1;
                    visit(ScanStep::Record(record, place(segment, from + at as u64, record.bytes.len())));
                    at += record.bytes.len();
                }
                Err(error) => {
                    self.damaged(name, from + at as u64, format!("{error}, though its frame is intact"));
                    visit(ScanStep::Gap(0..0));
                    return;
                }
            }
        }
    }

    /// Visits the intact records of a damaged frame: each record has its own check. Returns a note for the finding.
    fn rescue_records(
        &mut self,
        file: &ScannedSegment,
        bytes: &SegmentBytes,
        gap: Range<u64>,
        (frame, after): (u64, Option<u64>),
        visit: Visit<'_>,
    ) -> String {
        let Some(records) = records_in_gap(file, bytes, &gap, frame, after) else {
            return String::new();
        };
        let from = gap.start + frame::HEADER_BYTES as u64;
        let (mut at, mut intact, mut suspect) = (0, 0, None);
        while at < records.len() {
            if let Ok(record) = Record::read_valid(&records[at..], self.meta.salt) {
                // The damaged record ends where this one starts, so the item number in its header is right.
                if let Some((subject, end)) = suspect.take()
                    && end == at
                {
                    visit(ScanStep::LostRecord(subject));
                }
                let place = place(file.segment.number, from + at as u64, record.bytes.len());
                visit(ScanStep::Record(record, place));
                intact += 1;
                at += record.bytes.len();
                continue;
            }
            if suspect.is_none() {
                let claimed = Record::peek(&records[at..]).ok();
                let claimed = claimed.filter(|record| record.kind == RecordKind::Item);
                suspect = claimed.map(|record| (record.subject, at + record.bytes.len()));
            }
            at += 1;
        }
        if let Some((subject, end)) = suspect
            && end == records.len()
        {
            visit(ScanStep::LostRecord(subject));
        }
        format!(" ({intact} records in them do)")
    }
}

/// The records of the damaged frame at the start of a gap. `after` is the sequence number of the frame behind the gap.
///
/// `None`: these bytes may belong to an earlier use of the file.
fn records_in_gap<'b>(
    file: &ScannedSegment,
    bytes: &'b SegmentBytes,
    gap: &Range<u64>,
    frame: u64,
    after: Option<u64>,
) -> Option<&'b [u8]> {
    let rest = bytes.from(gap.start)?;
    let records = rest.get(frame::HEADER_BYTES..)?;
    let generation = file.header.generation;
    let claimed = frame::peek(rest, generation).filter(|claimed| claimed.sequence == frame);
    let room = usize::try_from(gap.end - gap.start).ok()?.checked_sub(frame::HEADER_BYTES)?;
    if let Some(claimed) = claimed.filter(|claimed| claimed.length as usize <= room) {
        return records.get(..claimed.length as usize);
    }
    let is_one_frame = after == Some(frame + 1);
    let is_stale = frame::claimed_generation(rest).is_some_and(|claimed| claimed != generation);
    records.get(..room).filter(|_| is_one_frame && !is_stale)
}

fn name_frames(from: u64, to: u64) -> String {
    match to - from {
        1 => format!("frame {from}"),
        _ => format!("frames {from} to {}", to - 1),
    }
}
