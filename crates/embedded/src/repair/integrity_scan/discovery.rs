//! Finds `towline.meta` and the segments in use, also where headers are damaged.

use super::{IntegrityScan, ScannedSegment, Totals};
use crate::error::OpenError;
use crate::log::disk::Disk;
use crate::log::frame::FrameHeader;
use crate::log::meta::{COPIED, META_FILE, Meta};
use crate::log::segment::{self, HEADER_BYTES, Segment, SegmentHeader};
use std::collections::BTreeMap;
use std::sync::Arc;

type ByGeneration = BTreeMap<u64, ScannedSegment>;

impl<'a> IntegrityScan<'a> {
    pub(super) fn discover(
        disk: &'a dyn Disk,
        read: &'a mut dyn FnMut(u64),
    ) -> Result<IntegrityScan<'a>, OpenError> {
        let names = disk.list().map_err(|error| OpenError::io(disk, "", error))?;
        let numbers = names.iter().filter_map(|name| segment::parse_name(name));
        let mut files = numbers.map(|number| Segment::open(disk, number)).collect::<Result<Vec<_>, _>>()?;
        files.sort_by_key(|file| file.number);
        let (meta, damage) = match Meta::read(disk) {
            Ok(Some(meta)) => (meta, None),
            Ok(None) if files.is_empty() => {
                return Err(OpenError::NotAStore { directory: disk.directory() });
            }
            Ok(None) => {
                let file = segment::file_name(files[0].number);
                let meta = guess_meta(disk, &files)?;
                let missing = OpenError::NoMeta { directory: disk.directory(), file };
                (meta.ok_or(missing)?, Some("the file is missing".to_owned()))
            }
            Err(OpenError::Corrupt { directory, file, what }) => {
                let meta = guess_meta(disk, &files)?;
                (meta.ok_or_else(|| OpenError::Corrupt { directory, file, what: what.clone() })?, Some(what))
            }
            Err(error) => return Err(error),
        };
        let (log, findings, totals) = (Vec::new(), Vec::new(), Totals::default());
        let mut scan = IntegrityScan { disk, meta, log, findings, totals, read };
        if let Some(what) = damage {
            scan.damaged(META_FILE, 0, what);
        }
        scan.find_log(files)?;
        Ok(scan)
    }

    fn find_log(&mut self, files: Vec<Segment>) -> Result<(), OpenError> {
        let (mut segments, headless) = self.read_headers(files)?;
        let tail = self.tail(&segments)?;
        // A file without a header may be a spare. It counts only if it fills a gap in the log.
        for file in headless {
            let generation = file.header.generation;
            if generation >= tail && !segments.contains_key(&generation) {
                self.damaged(&file.name(), 0, segment::HEADLESS);
                segments.insert(generation, file);
            } else {
                self.damaged(&file.name(), 0, segment::HEADLESS_OLD);
            }
        }
        let tail = self.tail(&segments)?.max(tail);
        self.log = segments.into_values().filter(|file| file.header.generation >= tail).collect();
        self.find_missing(tail)?;
        if self.log.is_empty() {
            self.damaged(META_FILE, 0, "no segment has a readable header: the log is missing or was emptied");
        }
        Ok(())
    }

    /// The segments with a header, and the files with frames but without a header.
    fn read_headers(
        &mut self,
        files: Vec<Segment>,
    ) -> Result<(ByGeneration, Vec<ScannedSegment>), OpenError> {
        let mut segments = ByGeneration::new();
        let mut headless = Vec::new();
        for file in files {
            let number = file.number;
            let name = segment::file_name(number);
            let error = |error| OpenError::io(self.disk, &name, error);
            let size = file.file.size().map_err(error)?;
            let header = SegmentHeader::read(&*file.file, self.meta.salt).map_err(error)?;
            let foreign = SegmentHeader::read_any(&*file.file).map_err(error)?;
            let scanned =
                |header| ScannedSegment { segment: Arc::new(file), header, size, end: HEADER_BYTES };
            match (header, foreign) {
                (None, Some(_)) => self.damaged(&name, 0, "it belongs to another store"),
                (None, None) => {
                    let file = scanned(SegmentHeader::default());
                    let Some(byte) = file.segment.first_byte_in_use().map_err(error)? else { continue };
                    let bytes = self.read(&file)?;
                    match bytes.newest_frame(self.checks()) {
                        Some(found) => {
                            let header = header_from_frame(&found, number, bytes.len());
                            headless.push(ScannedSegment { header, ..file });
                        }
                        None => self.damaged(&name, byte, segment::UNREADABLE),
                    }
                }
                (Some(header), _) => {
                    let renamed = header.number != number;
                    if renamed {
                        let what = format!("it is segment {} under another name", header.number);
                        self.damaged(&name, 16, what);
                    }
                    if !renamed || !segments.contains_key(&header.generation) {
                        segments.insert(header.generation, scanned(header));
                    }
                }
            }
        }
        Ok((segments, headless))
    }

    /// The generation of the oldest segment in use. Each frame of the newest segment stores it.
    fn tail(&self, segments: &ByGeneration) -> Result<u64, OpenError> {
        let Some((_, newest)) = segments.last_key_value() else { return Ok(0) };
        let bytes = self.read(newest)?;
        let frames = bytes.later_frames(HEADER_BYTES, newest.header.generation, self.checks());
        Ok(frames.map(|(_, found)| found.tail).fold(newest.header.tail, u64::max))
    }

    fn find_missing(&mut self, tail: u64) -> Result<(), OpenError> {
        let mut expected = tail;
        let mut missing = Vec::new();
        for file in &self.log {
            let generation = file.header.generation;
            if generation != expected {
                let what = match generation - expected {
                    1 => format!("the segment of generation {expected} is missing before it"),
                    _ => format!(
                        "the segments of generation {expected} to {} are missing before it",
                        generation - 1
                    ),
                };
                missing.push((file.name(), what));
            }
            expected = generation + 1;
        }
        for (name, what) in missing {
            self.damaged(&name, 24, what);
        }
        if let Some(newest) = self.log.last() {
            let (name, header) = (newest.name(), newest.header);
            let linked = newest.segment.is_linked(&header, self.meta.salt);
            if linked.map_err(|error| OpenError::io(self.disk, &name, error))? {
                self.damaged(&name, 1024, segment::missing_behind(&header));
            }
        }
        Ok(())
    }
}

/// Rebuilds a header from a frame of the segment's latest use.
fn header_from_frame(found: &FrameHeader, number: u32, size: u64) -> SegmentHeader {
    SegmentHeader {
        number,
        next_queue: found.next_queue,
        generation: found.generation,
        first_frame: found.sequence,
        time: found.time,
        next_item: found.next_item,
        tail: found.tail,
        size,
    }
}

/// Rebuilds the meta from the segment headers, which also contain the salt and the segment size.
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
    Ok(most.map(|(salt, (_, segment_bytes))| Meta { salt, segment_bytes, history: COPIED }))
}
