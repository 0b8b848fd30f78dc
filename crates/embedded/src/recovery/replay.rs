//! Replays the segments in use into the index, and refuses a log with a gap.

use super::segment_files::SegmentFile;
use super::{LogReader, Recovered};
use crate::engine::SegmentInUse;
use crate::error::OpenError;
use crate::index::Index;
use crate::index::update::IndexUpdate;
use crate::log::disk::Disk;
use crate::log::record::{Record, RecordError, RecordPlace};
use crate::log::scan::{FramesEnd, SegmentBytes};
use crate::log::segment::{self, SegmentHeader};
use crate::log::sidecar::Sidecar;
use crate::plant::Bug;
use crossbeam_channel::{Receiver, Sender};
use std::io;
use towline_domain::Timestamp;

/// A segment in use, and its content.
struct LoadedSegment {
    file: SegmentFile,
    last: bool,
    content: Content,
}

enum Content {
    Sidecar(Sidecar),
    Frames(io::Result<SegmentBytes>),
}

impl LoadedSegment {
    fn read(
        disk: &dyn Disk,
        salt: u64,
        file: SegmentFile,
        last: bool,
        buffers: &Receiver<Vec<u8>>,
    ) -> LoadedSegment {
        // The newest segment was being written, so it has no valid sidecar.
        let header = file.header.filter(|_| !last);
        let content = match header.and_then(|header| Sidecar::read(disk, &header, salt)) {
            Some(sidecar) => Content::Sidecar(sidecar),
            None => {
                let buffer = buffers.try_recv().unwrap_or_default();
                Content::Frames(SegmentBytes::read(&file.segment, file.size, buffer))
            }
        };
        LoadedSegment { file, last, content }
    }
}

impl LogReader<'_> {
    /// Replays the segments in use. A second thread reads ahead.
    pub(super) fn replay(
        &self,
        recovered: &mut Recovered,
        used: Vec<SegmentFile>,
        tail: u64,
        mut newest: Option<SegmentBytes>,
    ) -> Result<(), OpenError> {
        let (ahead, loaded) = crossbeam_channel::bounded(1);
        let (give_back, buffers) = crossbeam_channel::unbounded();
        let (disk, salt, count) = (self.disk, self.meta.salt, used.len());
        std::thread::scope(|scope| {
            scope.spawn(move || {
                for (nth, file) in used.into_iter().enumerate() {
                    let last = nth + 1 == count;
                    let loaded = match newest.take_if(|_| last) {
                        Some(bytes) => LoadedSegment { file, last, content: Content::Frames(Ok(bytes)) },
                        None => LoadedSegment::read(disk, salt, file, last, &buffers),
                    };
                    // The replay failed and does not read the rest.
                    if ahead.send(loaded).is_err() {
                        break;
                    }
                }
            });
            // Moves the receiver in, so that the reading thread stops when the replay fails.
            self.replay_loaded(recovered, loaded, &give_back, tail)
        })
    }

    fn replay_loaded(
        &self,
        recovered: &mut Recovered,
        loaded: Receiver<LoadedSegment>,
        give_back: &Sender<Vec<u8>>,
        tail: u64,
    ) -> Result<(), OpenError> {
        let mut expected_generation = tail;
        for LoadedSegment { file, last, content } in loaded.iter() {
            let Some(header) = file.header else { continue };
            self.check_continuity(recovered, &file, &header, expected_generation)?;
            recovered.take_header(&header);
            let end = match content {
                Content::Sidecar(sidecar) => self.replay_sidecar(recovered, &sidecar, &header)?,
                Content::Frames(bytes) => {
                    let name = segment::file_name(header.number);
                    let bytes = bytes.map_err(|error| OpenError::io(self.disk, &name, error))?;
                    let end = self.replay_frames(recovered, &bytes, &header, last)?;
                    if last {
                        recovered.unsynced = bytes.unsynced(&header, &end, self.checks);
                    }
                    // The reading thread may have finished.
                    let _ = give_back.send(bytes.into_buffer());
                    end
                }
            };
            recovered.next_frame = end.next_frame;
            recovered.next_generation = header.generation + 1;
            expected_generation = header.generation + 1;
            recovered.log.push(SegmentInUse {
                segment: file.segment,
                header,
                end: end.offset,
                last_frame: end.next_frame - 1,
                written_here: false,
            });
        }
        Ok(())
    }

    /// Refuses a log in which a segment, the end of a segment or a frame is missing.
    fn check_continuity(
        &self,
        recovered: &Recovered,
        file: &SegmentFile,
        header: &SegmentHeader,
        expected_generation: u64,
    ) -> Result<(), OpenError> {
        let name = segment::file_name(file.segment.number);
        if header.generation != expected_generation {
            let what = format!(
                "the segment of generation {expected_generation} is missing; the next has generation {}",
                header.generation
            );
            return Err(self.damaged(&name, what));
        }
        if file.size < header.size {
            let what = format!("it is cut short: {} bytes of {}", file.size, header.size);
            return Err(self.damaged(&name, what));
        }
        if let Some(before) = recovered.log.last()
            && header.first_frame != recovered.next_frame
            && !self.options.plant.has(Bug::CutAtDamage)
        {
            let what = format!(
                "frame {} at byte {} does not read, but the log continues with frame {}",
                recovered.next_frame, before.end, header.first_frame
            );
            return Err(self.damaged(&segment::file_name(before.segment.number), what));
        }
        Ok(())
    }

    fn replay_sidecar(
        &self,
        recovered: &mut Recovered,
        sidecar: &Sidecar,
        header: &SegmentHeader,
    ) -> Result<FramesEnd, OpenError> {
        let applied = sidecar.updates(header.number, self.meta.salt, |update| {
            recovered.index.apply(update).map_err(|_| RecordError::Content)
        });
        if let Err(error) = applied {
            let what = format!("{error}; remove this file, the store does not need it");
            return Err(self.damaged(&segment::sidecar_name(header.number), what));
        }
        Ok(FramesEnd { offset: sidecar.end, next_frame: sidecar.last_frame + 1, last: None })
    }

    fn replay_frames(
        &self,
        recovered: &mut Recovered,
        bytes: &SegmentBytes,
        header: &SegmentHeader,
        last: bool,
    ) -> Result<FramesEnd, OpenError> {
        let name = segment::file_name(header.number);
        let (disk, salt) = (self.disk, self.meta.salt);
        let end = bytes.frames(header, self.checks, |found, offset, records| {
            recovered.time = recovered.time.max(Timestamp(found.time));
            recovered.next_item = recovered.next_item.max(found.next_item);
            recovered.next_queue = recovered.next_queue.max(found.next_queue);
            replay_records(&mut recovered.index, recovered.next_item, header.number, offset, records, salt)
                .map_err(|what| OpenError::corrupt(disk, &name, what))
        })?;
        if last
            && !self.options.plant.has(Bug::CutAtDamage)
            && let Some(later) = bytes.proof_of_damage(header, &end, self.checks)
        {
            let what = format!(
                "frame {} at byte {} does not read, but frame {} says it was durable",
                end.next_frame, end.offset, later.sequence
            );
            return Err(self.damaged(&name, what));
        }
        // The segments of a backup are cut to their content, so they have no torn tail.
        if header.size < self.meta.segment_bytes && end.offset != header.size {
            let what = format!("frame {} at byte {} does not read", end.next_frame, end.offset);
            return Err(self.damaged(&name, what));
        }
        Ok(end)
    }
}

impl Recovered {
    fn take_header(&mut self, header: &SegmentHeader) {
        self.time = self.time.max(Timestamp(header.time));
        self.next_item = self.next_item.max(header.next_item);
        self.next_queue = self.next_queue.max(header.next_queue);
    }
}

fn replay_records(
    index: &mut Index,
    next_item: u64,
    segment: u32,
    offset: u64,
    records: &[u8],
    salt: u64,
) -> Result<(), String> {
    let mut at = 0;
    for record in Record::all_in(records) {
        let byte = offset + at as u64;
        let failed = |error: &dyn std::fmt::Display| format!("{error}, at byte {byte}");
        let (_, record) = record.map_err(|error| failed(&error))?;
        let place = RecordPlace {
            segment,
            offset: u32::try_from(byte).map_err(|error| failed(&error))?,
            length: u32::try_from(record.bytes.len()).map_err(|error| failed(&error))?,
        };
        let update = IndexUpdate::from_record(&record, place, salt).map_err(|error| failed(&error))?;
        // The table has a slot for every number up to the highest: a wrong number could use up the memory.
        if let IndexUpdate::Item(item) = &update
            && item.sequence >= next_item
        {
            return Err(failed(&format!(
                "the record is of item {}, but the numbers end at {next_item}",
                item.sequence
            )));
        }
        index.apply(update).map_err(|error| failed(&error))?;
        at += record.bytes.len();
    }
    Ok(())
}
