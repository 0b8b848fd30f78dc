//! Reads a store's directory from end to end and finds what is damaged. Opening stops at the first damage; this goes on.
//!
//! **Invariant:** nothing is written; what does not prove itself by its checksum is never passed on.

use crate::error::OpenError;
use crate::index::update::IndexUpdate;
use crate::log::disk::{Disk, read_full};
use crate::log::frame::{self, FrameHeader};
use crate::log::meta::{META_FILE, Meta};
use crate::log::record::{self, Record, RecordError, RecordKind, RecordPlace};
use crate::log::segment::{self, HEADER_BYTES, Segment, SegmentHeader};
use crate::log::sidecar::Sidecar;
use std::collections::BTreeMap;
use std::fmt;
use std::ops::Range;
use std::sync::Arc;
use towline_domain::Field;

/// Something that is not as it should be.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Finding {
    pub file: String,
    pub byte: u64,
    pub what: String,
    /// The store opens all the same, and nothing acknowledged is missing.
    pub harmless: bool,
}

impl fmt::Display for Finding {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let note = if self.harmless { " (harmless)" } else { "" };
        write!(f, "{} at byte {}: {}{note}", self.file, self.byte, self.what)
    }
}

/// The segments in use, in log order, and what was found.
pub(crate) struct IntegrityScan<'a> {
    disk: &'a dyn Disk,
    pub(crate) meta: Meta,
    pub(crate) log: Vec<ScannedSegment>,
    pub(crate) findings: Vec<Finding>,
    pub(crate) totals: Totals,
}

#[derive(Debug)]
pub(crate) struct ScannedSegment {
    pub(crate) segment: Arc<Segment>,
    pub(crate) header: SegmentHeader,
    size: u64,
    /// Where its frames end, once walked.
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

/// What a walk comes by, in log order.
pub(crate) enum Seen<'a> {
    Record(Record<'a>, RecordPlace),
    /// Part of the log does not read; items with these numbers were submitted there.
    Gap(Range<u64>),
    /// A record of this item does not read.
    Lost(u64),
}

type Visit<'v> = &'v mut dyn FnMut(Seen<'_>);

impl<'a> IntegrityScan<'a> {
    /// Finds the segments in use and walks them.
    pub(crate) fn of(disk: &'a dyn Disk) -> Result<IntegrityScan<'a>, OpenError> {
        let names = disk.list().map_err(|error| OpenError::io(disk, "", error))?;
        let mut files = Vec::new();
        for number in names.iter().filter_map(|name| segment::parse_name(name)) {
            files.push(Segment::open(disk, number)?);
        }
        files.sort_by_key(|file| file.number);
        let mut findings = Vec::new();
        let meta = match Meta::read(disk) {
            Ok(Some(meta)) => meta,
            Ok(None) if files.is_empty() => return Err(OpenError::NotAStore { place: disk.place() }),
            Ok(None) => {
                let what = "it is missing".to_owned();
                findings.push(Finding { file: META_FILE.to_owned(), byte: 0, what, harmless: false });
                let file = segment::file_name(files[0].number);
                guess_meta(disk, &files)?.ok_or(OpenError::NoMeta { place: disk.place(), file })?
            }
            Err(OpenError::Corrupt { place, file, what }) => {
                findings.push(Finding {
                    file: META_FILE.to_owned(),
                    byte: 0,
                    what: what.clone(),
                    harmless: false,
                });
                guess_meta(disk, &files)?.ok_or(OpenError::Corrupt { place, file, what })?
            }
            Err(error) => return Err(error),
        };
        let mut survey = IntegrityScan { disk, meta, log: Vec::new(), findings, totals: Totals::default() };
        survey.find_log(files)?;
        survey.walk(&mut |_| {})?;
        survey.check_sidecars()?;
        Ok(survey)
    }

    pub(crate) fn is_whole(&self) -> bool {
        self.findings.iter().all(|finding| finding.harmless)
    }

    fn damaged(&mut self, file: &str, byte: u64, what: String) {
        self.findings.push(Finding { file: file.to_owned(), byte, what, harmless: false });
    }

    fn note(&mut self, file: &str, byte: u64, what: &str) {
        self.findings.push(Finding { file: file.to_owned(), byte, what: what.to_owned(), harmless: true });
    }

    fn find_log(&mut self, files: Vec<Segment>) -> Result<(), OpenError> {
        let mut by_generation: BTreeMap<u64, ScannedSegment> = BTreeMap::new();
        let mut headless = Vec::new();
        for file in files {
            let number = file.number;
            let name = segment::file_name(number);
            let error = |error| OpenError::io(self.disk, &name, error);
            let size = file.file.size().map_err(error)?;
            let header = SegmentHeader::read(&*file.file, self.meta.salt).map_err(error)?;
            let foreign = SegmentHeader::read_any(&*file.file).map_err(error)?;
            let surveyed =
                |header| ScannedSegment { segment: Arc::new(file), header, size, end: HEADER_BYTES };
            match (header, foreign) {
                (None, Some(_)) => self.damaged(&name, 0, "it belongs to another store".to_owned()),
                (None, None) => {
                    let file = surveyed(SegmentHeader::default());
                    let bytes = self.read(&file)?;
                    if let Some(header) = header_from_frames(&bytes, number, self.meta) {
                        headless.push(ScannedSegment { header, ..file });
                    }
                }
                (Some(header), _) => {
                    let renamed = header.number != number;
                    if renamed {
                        let what = format!("it is segment {} under another name", header.number);
                        self.damaged(&name, 16, what);
                    }
                    if !renamed || !by_generation.contains_key(&header.generation) {
                        by_generation.insert(header.generation, surveyed(header));
                    }
                }
            }
        }
        // Without a header a file may be one that was never taken into use again; only one that fills a place counts.
        let tail = match by_generation.last_key_value() {
            Some((_, newest)) => self.tail(newest)?,
            None => 0,
        };
        for file in headless {
            let generation = file.header.generation;
            if generation >= tail && !by_generation.contains_key(&generation) {
                self.damaged(&file.name(), 0, "both copies of its header are damaged".to_owned());
                by_generation.insert(generation, file);
            }
        }
        let tail = match by_generation.last_key_value() {
            Some((_, newest)) => self.tail(newest)?.max(tail),
            None => 0,
        };
        self.log = by_generation.into_values().filter(|file| file.header.generation >= tail).collect();
        let mut expected = tail;
        let mut missing = Vec::new();
        for file in &self.log {
            let generation = file.header.generation;
            if generation != expected {
                let which = match generation - expected {
                    1 => format!("the segment of generation {expected} is missing before it"),
                    _ => format!(
                        "the segments of generation {expected} to {} are missing before it",
                        generation - 1
                    ),
                };
                missing.push((file.name(), which));
            }
            expected = generation + 1;
        }
        for (name, what) in missing {
            self.damaged(&name, 24, what);
        }
        Ok(())
    }

    /// Where the log begins: the last frame knows best.
    fn tail(&self, newest: &ScannedSegment) -> Result<u64, OpenError> {
        let bytes = self.read(newest)?;
        let frames = frames_behind(&bytes, HEADER_BYTES, newest.header.generation, self.meta.salt);
        Ok(frames.map(|(_, found)| found.tail).fold(newest.header.tail, u64::max))
    }

    fn read(&self, file: &ScannedSegment) -> Result<Vec<u8>, OpenError> {
        let mut bytes = vec![0; usize::try_from(file.size).unwrap_or(usize::MAX)];
        let length = read_full(&*file.segment.file, &mut bytes, 0)
            .map_err(|error| OpenError::io(self.disk, &file.name(), error))?;
        bytes.truncate(length);
        Ok(bytes)
    }

    /// Shows every record that is whole, in log order, once more.
    pub(crate) fn walk_again(&mut self, visit: Visit<'_>) -> Result<(), OpenError> {
        let (findings, totals) = (self.findings.clone(), self.totals);
        let walked = self.walk(visit);
        (self.findings, self.totals) = (findings, totals);
        walked
    }

    fn walk(&mut self, visit: Visit<'_>) -> Result<(), OpenError> {
        let mut log = std::mem::take(&mut self.log);
        let firsts: Vec<SegmentHeader> = log.iter().map(|file| file.header).collect();
        let mut known_items: Option<u64> = None;
        for (nth, file) in log.iter_mut().enumerate() {
            let header = file.header;
            if let Some(known) = known_items.filter(|&known| known < header.next_item) {
                // A segment between is missing, or the end of the one before.
                visit(Seen::Gap(known..header.next_item));
            }
            self.totals.take(header.next_item, header.next_queue, header.time);
            let bytes = self.read(file)?;
            if file.size < header.size {
                let what = format!("it is cut short: {} bytes of {}", file.size, header.size);
                self.damaged(&file.name(), file.size, what);
            }
            let next_first = firsts.get(nth + 1).map(|next| next.first_frame);
            known_items = Some(self.walk_segment(file, &bytes, next_first, visit));
        }
        self.log = log;
        Ok(())
    }

    /// Returns the first item number not used up at the segment's end.
    fn walk_segment(
        &mut self,
        file: &mut ScannedSegment,
        bytes: &[u8],
        next_first: Option<u64>,
        visit: Visit<'_>,
    ) -> u64 {
        let (name, header, salt) = (file.name(), file.header, self.meta.salt);
        let number = file.segment.number;
        let (mut at, mut next, mut items) = (HEADER_BYTES, header.first_frame, header.next_item);
        loop {
            let whole = slice(bytes, at).and_then(|bytes| frame::read(bytes, header.generation, salt));
            if let Some((found, records)) = whole.filter(|(found, _)| found.sequence == next) {
                self.totals.take(found.next_item, found.next_queue, found.time);
                self.totals.frames += 1;
                items = found.next_item;
                self.walk_records(&name, number, records, at + frame::HEADER_BYTES as u64, visit);
                at += frame::padded(found.length as usize) as u64;
                next += 1;
                continue;
            }
            let mut later = frames_behind(bytes, at + 8, header.generation, salt)
                .filter(|(_, found)| found.sequence > next);
            let Some((offset, found)) = later.next() else {
                break;
            };
            // In the newest segment a frame that nobody knew to be durable may be a write cut short by a crash.
            let proven =
                next_first.is_some() || found.synced >= next || later.any(|(_, found)| found.synced >= next);
            if !proven {
                self.note(&name, at, "the last write was cut short by a crash; it was never acknowledged");
                break;
            }
            let rescued = self.rescue(file, bytes, at..offset, (next, Some(found.sequence)), visit);
            let frames = tell_frames(next, found.sequence);
            let what = format!("{} bytes with {frames} do not read{rescued}", offset - at);
            self.damaged(&name, at, what);
            visit(Seen::Gap(items..items.max(found.next_item)));
            (at, next) = (offset, found.sequence);
            items = found.next_item;
        }
        if let Some(first) = next_first.filter(|&first| first > next) {
            // With the next segment missing its frames are among these; that is told elsewhere.
            let rescued = self.rescue(file, bytes, at..bytes.len() as u64, (next, None), visit);
            let frames = tell_frames(next, first);
            self.damaged(&name, at, format!("{frames} do not read, but the log goes on behind{rescued}"));
        } else if header.size < self.meta.segment_bytes && at != header.size {
            let what = format!("the copy should hold frames up to byte {}", header.size);
            let rescued = self.rescue(file, bytes, at..bytes.len() as u64, (next, None), visit);
            self.damaged(&name, at, format!("a frame does not read{rescued}; {what}"));
            visit(Seen::Gap(items..items));
        }
        self.totals.bytes += at;
        file.end = at;
        items
    }

    fn walk_records(&mut self, name: &str, segment: u32, records: &[u8], from: u64, visit: Visit<'_>) {
        let mut at = 0;
        while at < records.len() {
            match read_record(&records[at..], self.meta.salt) {
                Ok(record) => {
                    self.totals.records += 1;
                    visit(Seen::Record(record, place(segment, from + at as u64, record.bytes.len())));
                    at += record.bytes.len();
                }
                Err(error) => {
                    self.damaged(name, from + at as u64, format!("{error}, though its frame is whole"));
                    visit(Seen::Gap(0..0));
                    return;
                }
            }
        }
    }

    /// Each record has a checksum of its own: shows those of a damaged frame that are whole.
    ///
    fn rescue(
        &mut self,
        file: &ScannedSegment,
        bytes: &[u8],
        gap: Range<u64>,
        (frame, after): (u64, Option<u64>),
        visit: Visit<'_>,
    ) -> String {
        let Some(records) = self.records_in(file, bytes, &gap, frame, after) else {
            return String::new();
        };
        let from = gap.start + frame::HEADER_BYTES as u64;
        let (mut at, mut whole, mut suspect) = (0, 0, None);
        while at < records.len() {
            if let Ok(record) = read_record(&records[at..], self.meta.salt) {
                // The damaged record before it ends where this one begins: so far its header was right.
                if let Some((subject, end)) = suspect.take()
                    && end == at
                {
                    visit(Seen::Lost(subject));
                }
                visit(Seen::Record(record, place(file.segment.number, from + at as u64, record.bytes.len())));
                whole += 1;
                at += record.bytes.len();
                continue;
            }
            if suspect.is_none() {
                let claimed =
                    Record::peek(&records[at..]).ok().filter(|record| record.kind == RecordKind::Item);
                suspect = claimed.map(|record| (record.subject, at + record.bytes.len()));
            }
            at += 1;
        }
        if let Some((subject, end)) = suspect
            && end == records.len()
        {
            visit(Seen::Lost(subject));
        }
        format!(" ({whole} records in there do)")
    }

    /// The records of the damaged frame at the beginning of a gap; `after` is the frame behind it, if there is one.
    ///
    /// `None` if there is no telling them from what is left of an earlier use of the file.
    fn records_in<'b>(
        &self,
        file: &ScannedSegment,
        bytes: &'b [u8],
        gap: &Range<u64>,
        frame: u64,
        after: Option<u64>,
    ) -> Option<&'b [u8]> {
        let rest = slice(bytes, gap.start)?;
        let records = rest.get(frame::HEADER_BYTES..)?;
        let generation = file.header.generation;
        let claimed = frame::peek(rest, generation).filter(|claimed| claimed.sequence == frame);
        let room = usize::try_from(gap.end - gap.start).ok()?.checked_sub(frame::HEADER_BYTES)?;
        if let Some(claimed) = claimed.filter(|claimed| claimed.length as usize <= room) {
            return records.get(..claimed.length as usize);
        }
        let alone = after == Some(frame + 1);
        let stale = frame::claimed_generation(rest).is_some_and(|claimed| claimed != generation);
        records.get(..room).filter(|_| alone && !stale)
    }

    fn tells_the_same(&self, sidecar: &Sidecar, file: &ScannedSegment) -> Result<bool, OpenError> {
        let (bytes, salt, number) = (self.read(file)?, self.meta.salt, file.segment.number);
        let mut told = Vec::new();
        let read = sidecar.entries(number, salt, |entry| {
            told.push(entry);
            Ok(())
        });
        let mut told = told.into_iter();
        let (mut at, mut same) = (HEADER_BYTES, read.is_ok() && sidecar.end == file.end);
        while let Some((found, records)) = slice(&bytes, at)
            .filter(|_| at < file.end)
            .and_then(|b| frame::read(b, file.header.generation, salt))
        {
            let mut done = 0;
            while let Some(Ok(record)) = records.get(done..).map(Record::peek) {
                let place = place(number, at + (frame::HEADER_BYTES + done) as u64, record.bytes.len());
                let entry = IndexUpdate::from_record(&record, place, salt).ok();
                same &= format!("{entry:?}") == format!("{:?}", told.next());
                done += record.bytes.len();
            }
            at += frame::padded(found.length as usize) as u64;
        }
        Ok(same && told.next().is_none())
    }

    fn check_sidecars(&mut self) -> Result<(), OpenError> {
        let names = self.disk.list().map_err(|error| OpenError::io(self.disk, "", error))?;
        let log = std::mem::take(&mut self.log);
        // The newest segment has none; one left from an earlier use of the file is not looked at.
        for file in log.iter().rev().skip(1).rev() {
            let name = segment::sidecar_name(file.header.number);
            if !names.contains(&name) {
                continue;
            }
            let Some(sidecar) = Sidecar::read(self.disk, &file.header, self.meta.salt) else {
                self.note(
                    &name,
                    0,
                    "this index does not fit its segment; the segment itself is read instead",
                );
                continue;
            };
            if !self.is_whole() {
                continue;
            }
            if !self.tells_the_same(&sidecar, file)? {
                let what = "this index tells otherwise than its segment; remove it, it can be made again";
                self.damaged(&name, 0, what.to_owned());
            }
        }
        self.log = log;
        Ok(())
    }
}

impl Totals {
    fn take(&mut self, next_item: u64, next_queue: u32, time: u64) {
        self.next_item = self.next_item.max(next_item);
        self.next_queue = self.next_queue.max(next_queue);
        self.time = self.time.max(time);
    }
}

fn tell_frames(from: u64, to: u64) -> String {
    match to - from {
        1 => format!("frame {from}"),
        _ => format!("frames {from} to {}", to - 1),
    }
}

fn place(segment: u32, offset: u64, length: usize) -> RecordPlace {
    let narrow = |value: u64| u32::try_from(value).unwrap_or(u32::MAX);
    RecordPlace { segment, offset: narrow(offset), length: narrow(length as u64) }
}

fn slice(bytes: &[u8], from: u64) -> Option<&[u8]> {
    bytes.get(usize::try_from(from).ok()?..)
}

/// Whole frames of this generation from `offset` on, wherever they are.
fn frames_behind(
    bytes: &[u8],
    offset: u64,
    generation: u64,
    salt: u64,
) -> impl Iterator<Item = (u64, FrameHeader)> + '_ {
    let mut at = offset.next_multiple_of(8);
    std::iter::from_fn(move || {
        while let Some(rest) = slice(bytes, at).filter(|rest| rest.len() >= frame::HEADER_BYTES) {
            let here = at;
            at += 8;
            if let Some((found, _)) = frame::read(rest, generation, salt) {
                at = here + frame::padded(found.length as usize) as u64;
                return Some((here, found));
            }
        }
        None
    })
}

/// What the header must have said, from the newest frames in a file.
fn header_from_frames(bytes: &[u8], number: u32, meta: Meta) -> Option<SegmentHeader> {
    let mut newest: Option<FrameHeader> = None;
    let mut at = HEADER_BYTES;
    while let Some(rest) = slice(bytes, at).filter(|rest| rest.len() >= frame::HEADER_BYTES) {
        let found = frame::claimed_generation(rest)
            .filter(|&generation| newest.is_none_or(|newest| generation > newest.generation))
            .and_then(|generation| frame::read(rest, generation, meta.salt));
        newest = found.map(|(found, _)| found).or(newest);
        at += 8;
    }
    newest.map(|found| SegmentHeader {
        number,
        next_queue: found.next_queue,
        generation: found.generation,
        first_frame: found.sequence,
        time: found.time,
        next_item: found.next_item,
        tail: found.tail,
        size: bytes.len() as u64,
    })
}

/// The segments know their store's salt and size too.
fn guess_meta(disk: &dyn Disk, files: &[Segment]) -> Result<Option<Meta>, OpenError> {
    let mut found: BTreeMap<u64, (usize, u64)> = BTreeMap::new();
    for file in files {
        let name = segment::file_name(file.number);
        let header =
            SegmentHeader::read_any(&*file.file).map_err(|error| OpenError::io(disk, &name, error))?;
        if let Some((salt, header)) = header {
            let known = found.entry(salt).or_default();
            *known = (known.0 + 1, known.1.max(header.size));
        }
    }
    let most = found.into_iter().max_by_key(|(_, (count, _))| *count);
    Ok(most.map(|(salt, (_, segment_bytes))| Meta { salt, segment_bytes }))
}

/// A record whose check holds and whose every part decodes.
pub(crate) fn read_record(bytes: &[u8], salt: u64) -> Result<Record<'_>, RecordError> {
    let record = Record::read(bytes, salt)?;
    match record.kind {
        RecordKind::Item => {
            for part in record.parts() {
                match part? {
                    (record::HEAD, Some(bytes)) => {
                        drop(record::decode_head(bytes, record.subject, None, salt)?)
                    }
                    (record::BODY, Some(bytes)) => drop(record::decode_body(bytes)?),
                    (record::OUTCOME, Some(bytes)) => drop(record::decode_outcome(bytes)?),
                    (record::ERROR, Some(bytes)) => drop(record::decode_error(bytes)?),
                    (record::INDEXED, Some(bytes)) => drop(record::decode_indexed(bytes)?),
                    (record::CHOSEN_ID, Some(bytes)) => drop(record::decode_chosen_id(bytes)?),
                    (part, _) if Field::ALL.iter().any(|&field| record::field_part(field) == part) => {}
                    _ => return Err(RecordError::Content),
                }
            }
        }
        RecordKind::Queue => drop(record::decode_queue(record.need(record::HEAD)?)?),
        RecordKind::Kv => drop(record::decode_kv(record.need(record::HEAD)?)?),
        RecordKind::KvDeleted => drop(record::decode_kv_key(record.need(record::HEAD)?)?),
        RecordKind::Tally => drop(record::decode_tally(record.need(record::HEAD)?)?),
        RecordKind::ItemRemoved => {
            if let Some(bytes) = record.part(record::HEAD)? {
                record::decode_removal(bytes, record.subject, salt)?;
            }
        }
        RecordKind::QueueDeleted => {
            record.part(record::HEAD)?.map(record::decode_queue_name).transpose()?;
        }
    }
    Ok(record)
}
