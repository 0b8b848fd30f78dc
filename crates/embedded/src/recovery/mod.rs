//! Opening: finds the segments in use, replays them in order, and refuses to go on from a log that is not whole.

use crate::engine::{Engine, SPARES, SegmentInUse, UnwrittenTallies};
use crate::error::OpenError;
use crate::index::Index;
use crate::index::update::IndexUpdate;
use crate::log::disk::{Disk, read_full, write_full};
use crate::log::frame;
use crate::log::meta::{META_FILE, Meta};
use crate::log::record::{Record, RecordPlace};
use crate::log::scan::{Checks, End, SegmentBytes};
use crate::log::segment::{self, HEADER_BYTES, Segment, SegmentHeader};
use crate::log::sidecar::Sidecar;
use crate::options::Options;
use crate::outcome::Status;
use crate::plant::Bug;
use crossbeam_channel::{Receiver, Sender};
use std::collections::{BTreeMap, VecDeque};
use std::io;
use std::sync::Arc;
use std::sync::atomic::AtomicU64;
use towline_domain::Timestamp;
use towline_store::StoreMetrics;

/// A log read back, not yet being written.
pub(crate) struct Recovered {
    pub(crate) meta: Meta,
    pub(crate) index: Index,
    pub(crate) log: Vec<SegmentInUse>,
    /// Segment files the log does not need, and their sizes.
    pub(crate) unused: Vec<(Arc<Segment>, u64)>,
    /// Files that were being written aside.
    pub(crate) leftovers: Vec<String>,
    pub(crate) next_number: u32,
    pub(crate) next_generation: u64,
    pub(crate) next_frame: u64,
    pub(crate) next_item: u64,
    pub(crate) next_queue: u32,
    pub(crate) time: Timestamp,
    /// Frames of the newest segment that are not known to have been synced: where they begin, and their bytes.
    pub(crate) unsure: (u64, Vec<u8>),
}

impl Engine {
    /// Opens the store in a directory, or makes one there. The caller holds the directory's lock.
    pub fn open(disk: Arc<dyn Disk>, options: Options, clock: Timestamp) -> Result<Engine, OpenError> {
        options.check()?;
        let recovered = match Recovered::read(&*disk, &options)? {
            Some(recovered) => recovered,
            None => Recovered::make(&*disk, &options)?,
        };
        Engine::start(disk, options, recovered, clock)
    }

    /// Begins to write behind what was read.
    pub(crate) fn start(
        disk: Arc<dyn Disk>,
        options: Options,
        recovered: Recovered,
        clock: Timestamp,
    ) -> Result<Engine, OpenError> {
        let Recovered { meta, mut index, log, unused, leftovers, .. } = recovered;
        let now = if options.plant.has(Bug::TimeGoesBack) { clock } else { recovered.time.max(clock) };
        index.end_replay(now);
        if options.plant.has(Bug::CountNotRestored) {
            for queue in index.queues.values_mut() {
                queue.counts.completed = 0;
            }
        }
        // What was replayed may be in the page cache alone, and after a failed sync it may even be called clean there:
        // it is written again, so that syncing it means something. Nobody has seen it yet.
        if let Some(newest) = log.last() {
            let name = segment::file_name(newest.segment.number);
            let (from, bytes) = &recovered.unsure;
            let again = write_full(&*newest.segment.file, bytes, *from)
                .and_then(|()| newest.segment.write_header(&newest.header, meta.salt));
            again.map_err(|error| OpenError::io(&*disk, &name, error))?;
        }
        let next_item = if options.plant.has(Bug::SequenceReused) { 1 } else { recovered.next_item };
        let mut engine = Engine::assemble(disk, options, meta, index);
        engine.log = log.iter().map(|in_use| in_use.segment.number).collect::<VecDeque<_>>();
        engine.segments =
            log.into_iter().map(|in_use| (in_use.segment.number, in_use)).collect::<BTreeMap<_, _>>();
        engine.take_unused(unused, &leftovers);
        engine.next_number = recovered.next_number;
        engine.next_generation = recovered.next_generation;
        engine.next_frame = recovered.next_frame;
        engine.synced = recovered.next_frame - 1;
        engine.next_item = next_item;
        engine.next_queue = recovered.next_queue;
        // Bytes of a write that was cut short may lie behind the end: a new segment never meets them.
        engine.active_offset = engine.segment_bytes;
        engine.rotate().map_err(|error| {
            let full = engine.status.full.clone();
            match full {
                Some(detail) => OpenError::io(
                    &*engine.disk,
                    "a new segment",
                    io::Error::new(io::ErrorKind::StorageFull, detail),
                ),
                None => OpenError::corrupt(&*engine.disk, "the log", error.to_string()),
            }
        })?;
        Ok(engine)
    }
}

/// A segment file found in the directory.
struct Candidate {
    segment: Arc<Segment>,
    header: Option<SegmentHeader>,
    size: u64,
}

impl Recovered {
    fn make(disk: &dyn Disk, options: &Options) -> Result<Recovered, OpenError> {
        let meta = Meta { salt: options.salt, segment_bytes: options.segment_bytes };
        meta.write(disk).map_err(|error| OpenError::io(disk, META_FILE, error))?;
        Ok(Recovered::empty(meta))
    }

    /// A store in which nothing has happened yet.
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
            unsure: (HEADER_BYTES, Vec::new()),
        }
    }

    /// Reads the store in a directory; `None` if there is none yet.
    fn read(disk: &dyn Disk, options: &Options) -> Result<Option<Recovered>, OpenError> {
        let names = disk.list().map_err(|error| OpenError::io(disk, "", error))?;
        let Some(meta) = Meta::read(disk)? else {
            if let Some(file) = names.iter().find(|name| segment::parse_name(name).is_some()) {
                return Err(OpenError::NoMeta { place: disk.place(), file: file.clone() });
            }
            return Ok(None);
        };
        let checks = Checks {
            salt: meta.salt,
            no_generation: options.plant.has(Bug::NoGenerationCheck),
            no_frame: options.plant.has(Bug::NoFrameCheck),
        };
        let reading = Reading { disk, options, meta, checks };
        let mut candidates = reading.candidates(&names)?;
        candidates.sort_by_key(|candidate| candidate.header.map_or(0, |header| header.generation));
        reading.check_headers(&candidates)?;

        let next_number = candidates.iter().map(|candidate| candidate.segment.number + 1).max().unwrap_or(1);
        let newest = candidates.iter().rev().find_map(|candidate| Some((candidate, candidate.header?)));
        let (tail, newest) = match newest {
            // The last whole frame knows best where the log begins.
            Some((candidate, header)) => reading.tail(candidate, &header)?,
            None => (0, None),
        };
        let (used, unused): (Vec<_>, Vec<_>) = candidates
            .into_iter()
            .partition(|candidate| candidate.header.is_some_and(|header| header.generation >= tail));
        let mut recovered = Recovered { next_number, ..Recovered::empty(meta) };
        recovered.index.begin_replay();
        reading.replay(&mut recovered, used, tail, newest)?;
        recovered.unused = unused.into_iter().map(|candidate| (candidate.segment, candidate.size)).collect();
        recovered.leftovers = names.into_iter().filter(|name| name.ends_with(".new")).collect();
        Ok(Some(recovered))
    }
}

/// A segment in use, and what was read of it.
struct Loaded {
    candidate: Candidate,
    last: bool,
    content: Content,
}

enum Content {
    Sidecar(Sidecar),
    Frames(io::Result<SegmentBytes>),
}

impl Loaded {
    fn read(
        disk: &dyn Disk,
        salt: u64,
        candidate: Candidate,
        last: bool,
        buffers: &Receiver<Vec<u8>>,
    ) -> Loaded {
        // The newest segment has no sidecar that could be believed: it was being written.
        let header = candidate.header.filter(|_| !last);
        let content = match header.and_then(|header| Sidecar::read(disk, &header, salt)) {
            Some(sidecar) => Content::Sidecar(sidecar),
            None => {
                let buffer = buffers.try_recv().unwrap_or_default();
                Content::Frames(SegmentBytes::read(&candidate.segment, candidate.size, buffer))
            }
        };
        Loaded { candidate, last, content }
    }
}

struct Reading<'a> {
    disk: &'a dyn Disk,
    options: &'a Options,
    meta: Meta,
    checks: Checks,
}

impl Reading<'_> {
    fn damaged(&self, file: &str, what: String) -> OpenError {
        OpenError::corrupt(self.disk, file, what)
    }

    fn candidates(&self, names: &[String]) -> Result<Vec<Candidate>, OpenError> {
        let mut candidates = Vec::new();
        for (name, number) in names.iter().filter_map(|name| Some((name, segment::parse_name(name)?))) {
            let segment = Segment::open(self.disk, number)?;
            let error = |error| OpenError::io(self.disk, name, error);
            let header = SegmentHeader::read(&*segment.file, self.meta.salt).map_err(error)?;
            let size = segment.file.size().map_err(error)?;
            candidates.push(Candidate { segment: Arc::new(segment), header, size });
        }
        Ok(candidates)
    }

    /// A header that does not read is of no segment in use, unless a frame behind it says otherwise.
    fn check_headers(&self, candidates: &[Candidate]) -> Result<(), OpenError> {
        let newest =
            candidates.iter().filter_map(|candidate| candidate.header).map(|header| header.generation).max();
        for candidate in candidates {
            let name = segment::file_name(candidate.segment.number);
            match candidate.header {
                Some(header) if header.number != candidate.segment.number => {
                    let what = format!("it is segment {} under another name", header.number);
                    return Err(self.damaged(&name, what));
                }
                Some(_) => {}
                None => {
                    let error = |error| OpenError::io(self.disk, &name, error);
                    // Not ours to write over or to remove, and where it came from one of ours may be missing.
                    if SegmentHeader::read_any(&*candidate.segment.file).map_err(error)?.is_some() {
                        return Err(self.damaged(&name, "it belongs to another store".to_owned()));
                    }
                    // Most often it is a spare that was never used, and its first bytes say so.
                    let mut start = [0; frame::HEADER_BYTES];
                    read_full(&*candidate.segment.file, &mut start, HEADER_BYTES).map_err(error)?;
                    if frame::claimed_generation(&start).is_none() {
                        continue;
                    }
                    let bytes =
                        SegmentBytes::read(&candidate.segment, candidate.size, Vec::new()).map_err(error)?;
                    let in_use = bytes
                        .first_frame(self.checks)
                        .is_some_and(|found| newest.is_none_or(|newest| found.generation > newest));
                    if in_use {
                        return Err(self.damaged(&name, "both copies of its header are damaged".to_owned()));
                    }
                }
            }
        }
        Ok(())
    }

    fn read(&self, candidate: &Candidate, buffer: Vec<u8>) -> Result<SegmentBytes, OpenError> {
        let name = segment::file_name(candidate.segment.number);
        SegmentBytes::read(&candidate.segment, candidate.size, buffer)
            .map_err(|error| OpenError::io(self.disk, &name, error))
    }

    /// Where the log begins, and the newest segment's bytes: they are read once.
    fn tail(
        &self,
        newest: &Candidate,
        header: &SegmentHeader,
    ) -> Result<(u64, Option<SegmentBytes>), OpenError> {
        let bytes = self.read(newest, Vec::new())?;
        let end = bytes.frames(header, self.checks, |_, _, _| Ok::<_, OpenError>(()))?;
        Ok((end.last.map_or(header.tail, |last| last.tail.max(header.tail)), Some(bytes)))
    }

    /// Replays the segments in use. One thread reads ahead while this one replays.
    fn replay(
        &self,
        recovered: &mut Recovered,
        used: Vec<Candidate>,
        tail: u64,
        mut newest: Option<SegmentBytes>,
    ) -> Result<(), OpenError> {
        let (ahead, loaded) = crossbeam_channel::bounded(1);
        let (give_back, buffers) = crossbeam_channel::unbounded();
        let (disk, salt, count) = (self.disk, self.meta.salt, used.len());
        std::thread::scope(|scope| {
            scope.spawn(move || {
                for (nth, candidate) in used.into_iter().enumerate() {
                    let last = nth + 1 == count;
                    let loaded = match newest.take_if(|_| last) {
                        Some(bytes) => Loaded { candidate, last, content: Content::Frames(Ok(bytes)) },
                        None => Loaded::read(disk, salt, candidate, last, &buffers),
                    };
                    // Nobody waits for the rest once the replay has failed.
                    if ahead.send(loaded).is_err() {
                        break;
                    }
                }
            });
            // Moved in, so that the reading thread sees the end when this does.
            self.replay_loaded(recovered, loaded, &give_back, tail)
        })
    }

    fn replay_loaded(
        &self,
        recovered: &mut Recovered,
        loaded: Receiver<Loaded>,
        give_back: &Sender<Vec<u8>>,
        tail: u64,
    ) -> Result<(), OpenError> {
        let mut expected_generation = tail;
        for (nth, Loaded { candidate, last, content }) in loaded.iter().enumerate() {
            let Some(header) = candidate.header else { continue };
            let name = segment::file_name(candidate.segment.number);
            if header.generation != expected_generation {
                let what = format!(
                    "segment of generation {expected_generation} is missing, the next is {}",
                    header.generation
                );
                return Err(self.damaged(&name, what));
            }
            if candidate.size < header.size {
                let what = format!("it is cut short: {} bytes of {}", candidate.size, header.size);
                return Err(self.damaged(&name, what));
            }
            if nth > 0
                && header.first_frame != recovered.next_frame
                && !self.options.plant.has(Bug::CutAtDamage)
            {
                let at = recovered.log.last().map_or(0, |in_use: &SegmentInUse| in_use.end);
                let before = recovered.log.last().map_or(0, |in_use| in_use.segment.number);
                let what = format!(
                    "frame {} at byte {at} does not read, but the log goes on with frame {}",
                    recovered.next_frame, header.first_frame
                );
                return Err(self.damaged(&segment::file_name(before), what));
            }
            recovered.take_header(&header);
            let number = candidate.segment.number;
            let end = match content {
                Content::Sidecar(sidecar) => {
                    let salt = self.meta.salt;
                    let applied = sidecar.entries(number, salt, |entry| {
                        recovered.index.apply(entry).map_err(|_| crate::log::record::RecordError::Content)
                    });
                    if let Err(error) = applied {
                        let what = format!("{error}; remove this file, it can be made again");
                        return Err(OpenError::corrupt(self.disk, &segment::sidecar_name(number), what));
                    }
                    End { offset: sidecar.end, next_frame: sidecar.last_frame + 1, last: None }
                }
                Content::Frames(bytes) => {
                    let bytes = bytes.map_err(|error| OpenError::io(self.disk, &name, error))?;
                    let end = self.replay_frames(recovered, &bytes, &header, last)?;
                    if last {
                        recovered.unsure = bytes.unsure(&header, &end, self.checks);
                    }
                    // The reader may be done and gone.
                    let _ = give_back.send(bytes.into_buffer());
                    end
                }
            };
            recovered.next_frame = end.next_frame;
            recovered.next_generation = header.generation + 1;
            expected_generation = header.generation + 1;
            recovered.log.push(SegmentInUse {
                segment: candidate.segment,
                header,
                end: end.offset,
                last_frame: end.next_frame - 1,
                written_here: false,
            });
        }
        Ok(())
    }

    fn replay_frames(
        &self,
        recovered: &mut Recovered,
        bytes: &SegmentBytes,
        header: &SegmentHeader,
        last: bool,
    ) -> Result<End, OpenError> {
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
                "frame {} at byte {} does not read, but frame {} says it was whole",
                end.next_frame, end.offset, later.sequence
            );
            return Err(self.damaged(&name, what));
        }
        // A backup's segments are cut to what they hold: there is no write under way at their end.
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
    while at < records.len() {
        let place = offset + at as u64;
        let tell = |error: &dyn std::fmt::Display| format!("{error}, at byte {place}");
        let record = Record::peek(&records[at..]).map_err(|error| tell(&error))?;
        let place = RecordPlace {
            segment,
            offset: u32::try_from(place).map_err(|error| tell(&error))?,
            length: u32::try_from(record.bytes.len()).map_err(|error| tell(&error))?,
        };
        let entry = IndexUpdate::from_record(&record, place, salt).map_err(|error| tell(&error))?;
        // The table has room for every number up to the highest: one from nowhere would take all memory.
        if let IndexUpdate::Item(item) = &entry
            && item.sequence >= next_item
        {
            return Err(tell(&format!("item {} of {next_item} that were made", item.sequence)));
        }
        index.apply(entry).map_err(|error| tell(&error))?;
        at += record.bytes.len();
    }
    Ok(())
}

impl Engine {
    /// Keeps as many files that the log does not need as there are spares; the others go. Only now that the log is durable: what it
    /// says of where it begins may have been in the page cache alone.
    fn take_unused(&mut self, unused: Vec<(Arc<Segment>, u64)>, leftovers: &[String]) {
        for (segment, size) in unused {
            // What cannot be removed now can at the next opening.
            let _ = self.disk.remove(&segment::sidecar_name(segment.number));
            if self.free.len() < SPARES && size == self.segment_bytes {
                self.free.push(segment);
            } else {
                let _ = self.disk.remove(&segment::file_name(segment.number));
            }
        }
        for name in leftovers {
            let _ = self.disk.remove(name);
        }
    }

    /// An engine with an index and no log yet.
    pub(crate) fn assemble(disk: Arc<dyn Disk>, options: Options, meta: Meta, index: Index) -> Engine {
        let mut frame = Vec::new();
        frame::begin(&mut frame);
        Engine {
            disk,
            options,
            salt: meta.salt,
            segment_bytes: meta.segment_bytes,
            index,
            segments: BTreeMap::new(),
            log: VecDeque::new(),
            emptied: VecDeque::new(),
            retired: VecDeque::new(),
            events_read_at: AtomicU64::new(0),
            free: Vec::new(),
            next_number: 1,
            next_generation: 1,
            frame,
            unwritten_tallies: UnwrittenTallies::default(),
            active_offset: HEADER_BYTES,
            rotated_at: Timestamp::default(),
            next_frame: 1,
            synced: 0,
            next_item: 1,
            next_queue: 1,
            collection: None,
            sidecar: crate::log::sidecar::Builder::default(),
            read_budget: crate::engine::READ_BYTES_MAX,
            longest: 0,
            poisoned: None,
            status: Status::default(),
            metrics: StoreMetrics::default(),
            chores: Vec::new(),
            swept: 0,
            effects: Default::default(),
            up_to_date: false,
            stalled: false,
            keys_withheld: Vec::new(),
        }
    }
}
