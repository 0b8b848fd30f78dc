//! Starts an engine behind a recovered log.

use super::Recovered;
use crate::engine::{Engine, READ_BYTES_MAX, SPARES, UnwrittenTallies};
use crate::error::OpenError;
use crate::index::Index;
use crate::log::disk::{Disk, write_full};
use crate::log::frame;
use crate::log::meta::{COPIED, META_FILE, Meta};
use crate::log::segment::{self, HEADER_BYTES, Segment};
use crate::log::sidecar::SidecarBuilder;
use crate::options::Options;
use crate::outcome::Status;
use crate::plant::Bug;
use std::collections::{BTreeMap, VecDeque};
use std::io;
use std::sync::Arc;
use std::sync::atomic::AtomicU64;
use towline_domain::{Timestamp, digest};
use towline_store::{Clock, StoreMetrics};

/// Cleared at a time behind the end of the log.
const CLEAR_BYTES: u64 = 1 << 20;

impl Engine {
    /// Opens the store in a directory, or creates one. The caller holds the directory's lock.
    pub fn open(disk: Arc<dyn Disk>, options: Options, clock: &dyn Clock) -> Result<Engine, OpenError> {
        options.check()?;
        if let Some(mut recovered) = Recovered::read(&*disk, &options)? {
            if !options.plant.has(Bug::TimeGoesBack) && !options.plant.has(Bug::TimeStandsStill) {
                clock.resume(recovered.time);
            }
            if recovered.meta.history == COPIED {
                let history = digest::tag("history", &format!("{} {}", options.salt, clock.now().0));
                recovered.meta.history = history as u32 % COPIED;
                recovered.meta.write(&*disk).map_err(|error| OpenError::io(&*disk, META_FILE, error))?;
            }
            return Engine::start(disk, options, recovered, clock.now());
        }
        let recovered = Recovered::create(&*disk, &options)?;
        let engine = Engine::start(disk, options, recovered, clock.now())?;
        let disk = &*engine.disk;
        Meta::publish(disk).map_err(|error| OpenError::io(disk, META_FILE, error))?;
        Ok(engine)
    }

    /// Starts an engine that writes behind the recovered log.
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
        // The replayed frames may be in the page cache only. After a failed sync the cache may even call them clean, and a
        // second sync would not write them. Write them again, so that the next sync makes them durable.
        if let Some(newest) = log.last() {
            let name = segment::file_name(newest.segment.number);
            let (from, bytes) = &recovered.unsynced;
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
        // A torn tail may follow the end. A new segment avoids it.
        engine.active_offset = engine.segment_bytes;
        engine.make_spare();
        if engine.status.full.is_some() && engine.continue_newest()? {
            return Ok(engine);
        }
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

impl Engine {
    /// Continues the log in its newest segment, if that has room enough: on a full disk, opening must not use up the last spare.
    /// Returns whether it did.
    ///
    /// Clears the rest of the segment first, so that nothing of a torn tail can follow a new frame.
    fn continue_newest(&mut self) -> Result<bool, OpenError> {
        let Some(newest) = self.log.back().and_then(|number| self.segments.get(number)) else {
            return Ok(false);
        };
        let (segment, end) = (newest.segment.clone(), newest.end);
        // The segments of a backup are cut to their content.
        let is_whole = newest.header.size == self.segment_bytes && segment.has_room(self.segment_bytes);
        // Without a spare segment, continue even if no operation fits into the rest. Otherwise the store could not be opened.
        // It then serves reads.
        let least = if self.free.is_empty() { 0 } else { self.segment_bytes / 8 };
        if !is_whole || self.segment_bytes - end < least {
            return Ok(false);
        }
        let zeros = vec![0; CLEAR_BYTES.min(self.segment_bytes - end) as usize];
        let mut at = end;
        let mut clear = || {
            while at < self.segment_bytes {
                let piece = &zeros[..CLEAR_BYTES.min(self.segment_bytes - at) as usize];
                write_full(&*segment.file, piece, at)?;
                at += piece.len() as u64;
            }
            segment.sync()
        };
        clear().map_err(|error| OpenError::io(&*self.disk, &segment::file_name(segment.number), error))?;
        self.active_offset = end;
        self.rotated_at = self.index.now;
        Ok(true)
    }

    /// Keeps files that the log does not need as spares, and removes the rest. The log is durable at this point: before
    /// that, its tail could be in the page cache only, and a crash could make these files part of the log again.
    fn take_unused(&mut self, unused: Vec<(Arc<Segment>, u64)>, leftovers: &[String]) {
        for (segment, size) in unused {
            // If a removal fails, the next opening repeats it.
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

    /// An engine with an index and without a log.
    pub(crate) fn assemble(disk: Arc<dyn Disk>, options: Options, meta: Meta, index: Index) -> Engine {
        let mut frame = Vec::new();
        frame::begin(&mut frame);
        Engine {
            disk,
            options,
            salt: meta.salt,
            history: meta.history,
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
            sidecar: SidecarBuilder::default(),
            read_budget: READ_BYTES_MAX,
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
