//! The step machine: takes operations, decides, appends, and says from when on each answer may be given.
//!
//! One thread owns it in the product; the simulation drives the same steps. The order of a group:
//! [`Engine::begin`], then [`Engine::run`] and [`Engine::query`] any number of times, then [`Engine::seal`]. What was
//! run may be answered once [`Engine::answerable`] has reached the frame that `seal` returned. The next group may
//! begin before that: preparing overlaps syncing.
//!
//! **Invariant:** a failed write or sync poisons it. The index is ahead of the disk then, so nothing is answered.

mod append;
mod chore;
pub(crate) mod collection;
mod operations;
mod query;
mod segments;
pub(crate) mod select;
mod tallies;

pub use chore::Chore;
pub(crate) use segments::{SPARES, operation_bytes};
pub(crate) use tallies::UnwrittenTallies;

use crate::engine::collection::Collection;
use crate::events::RetiredSegment;
use crate::index::Index;
use crate::index::update::IndexUpdate;
use crate::log::disk::Disk;
use crate::log::frame;
use crate::log::segment::{self, Segment, SegmentHeader};
use crate::log::sidecar::SidecarBuilder;
use crate::options::{Durability, Options};
use crate::outcome::{Status, Unread, UnreadItems};
use crate::plant::{Bug, Plant};
use crate::writer::PinnedSegment;
use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;
use std::sync::atomic::AtomicU64;
use towline_domain::{Refusal, Timestamp};
use towline_store::{StoreError, StoreMetrics};

/// A group is sealed when it has grown to this.
const GROUP_BYTES: usize = 512 << 10;
/// Timers carried out in one group, so that a million leases lapsing at once do not hold everybody up.
const SWEEP_MAX: u64 = 8192;
const REAP_SLOTS: usize = 8192;
/// Bytes of records that one call can ask for: a receive gives out no more, a page ends.
pub(crate) const READ_BYTES_MAX: u64 = 64 << 20;

pub struct Engine {
    pub(crate) disk: Arc<dyn Disk>,
    pub(crate) options: Options,
    pub(crate) salt: u64,
    pub(crate) segment_bytes: u64,
    pub(crate) index: Index,

    /// Segments in use by number, and their numbers in log order; the last is being written.
    pub(crate) segments: BTreeMap<u32, SegmentInUse>,
    pub(crate) log: VecDeque<u32>,
    /// Emptied segments, each to be free when that frame is durable.
    pub(crate) emptied: VecDeque<(Arc<Segment>, u64)>,
    /// Emptied lately, while somebody reads events: those who follow may not have come to the end of them.
    pub(crate) retired: VecDeque<RetiredSegment>,
    /// When somebody last asked for events.
    pub(crate) events_read_at: AtomicU64,
    pub(crate) free: Vec<Arc<Segment>>,
    pub(crate) next_number: u32,
    pub(crate) next_generation: u64,

    pub(crate) frame: Vec<u8>,
    /// What the frame still has to say of what finished in it.
    pub(crate) unwritten_tallies: UnwrittenTallies,
    pub(crate) active_offset: u64,
    /// When the log went on in the segment being written.
    pub(crate) rotated_at: Timestamp,
    pub(crate) next_frame: u64,
    pub(crate) synced: u64,
    pub(crate) next_item: u64,
    pub(crate) next_queue: u32,
    pub(crate) collection: Option<Collection>,
    /// Of the segment being written.
    pub(crate) sidecar: SidecarBuilder,

    /// Bytes of records that the call at hand may still have read for it.
    pub(crate) read_budget: u64,
    /// The longest record seen.
    pub(crate) longest: u64,
    pub(crate) poisoned: Option<String>,
    pub(crate) status: Status,
    pub(crate) metrics: StoreMetrics,
    pub(crate) chores: Vec<Chore>,
    /// Items that time changed in this group.
    pub(crate) swept: u64,
    /// Whether what was due at the present time has been carried out.
    pub(crate) up_to_date: bool,
    /// Collection cannot go on for now: the disk is full, or the segment is damaged.
    pub(crate) stalled: bool,
    /// For a planted bug: keys of this batch, not in the index yet.
    pub(crate) keys_withheld: Vec<IndexUpdate>,
}

pub(crate) struct SegmentInUse {
    pub(crate) segment: Arc<Segment>,
    pub(crate) header: SegmentHeader,
    /// Where its frames end.
    pub(crate) end: u64,
    pub(crate) last_frame: u64,
    /// Not read back at opening: its sidecar is complete.
    pub(crate) written_here: bool,
}

impl std::fmt::Debug for Engine {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Engine({}, {:?})", self.disk.directory(), self.status())
    }
}

impl Engine {
    /// Begins a group: time moves on.
    pub fn begin(&mut self, clock: Timestamp) -> Result<(), StoreError> {
        self.check_poison()?;
        if self.frame.is_empty() {
            frame::begin(&mut self.frame);
        }
        self.index.advance(clock.min(Timestamp::MAX));
        self.release_retired();
        self.reclaim();
        self.ensure_spare();
        (self.swept, self.up_to_date) = (0, false);
        self.stalled = self.status.damage.is_some();
        if self.index.reaping() {
            self.index.reap(REAP_SLOTS);
        }
        Ok(())
    }

    /// Begins a call: it is decided by the time of its own, and has its own bound on what it makes others read.
    pub fn begin_call(&mut self, clock: Timestamp) -> Result<(), StoreError> {
        self.read_budget = READ_BYTES_MAX;
        if clock > self.index.now {
            self.index.advance(clock.min(Timestamp::MAX));
            self.up_to_date = false;
        }
        self.sweep()
    }

    /// Carries out what is due, before the first operation at a time, within the group's bound.
    pub fn sweep(&mut self) -> Result<(), StoreError> {
        self.check_poison()?;
        if self.up_to_date {
            return Ok(());
        }
        self.up_to_date = true;
        while self.swept < SWEEP_MAX && !self.out_of_room() {
            let Some(sequence) = self.index.next_due(self.index.now) else {
                break;
            };
            match self.elapse(sequence)? {
                // An item of a deleted queue is forgotten, and the next one is due.
                Ok(_) | Err(Refusal::ItemNotFound { .. }) => self.swept += 1,
                Err(_) => break,
            }
        }
        Ok(())
    }

    /// Whether there is work of its own left to do: deleted queues, dead segments.
    pub fn has_work(&self) -> bool {
        self.poisoned.is_none()
            && (self.index.reaping() || !self.stalled && (self.collection.is_some() || self.should_collect()))
    }

    pub fn now(&self) -> Timestamp {
        self.index.now
    }

    pub fn next_wake(&self) -> Option<Timestamp> {
        self.index.next_wake()
    }

    /// Whether the group has grown so far that it should be sealed.
    pub fn group_is_full(&self) -> bool {
        self.frame.len() + self.unwritten_tallies.bytes >= GROUP_BYTES.min(self.segment_bytes as usize / 4)
    }

    /// Ends the group and writes it. Its answers may be given when [`Engine::answerable`] reaches the returned frame.
    pub fn seal(&mut self) -> Result<u64, StoreError> {
        self.check_poison()?;
        for entry in std::mem::take(&mut self.keys_withheld) {
            self.apply(entry)?;
        }
        // An emptied segment is free once a frame that says so is durable; without one, nobody gets it back.
        let frees = self.emptied.iter().any(|emptied| emptied.1 == self.next_frame);
        if self.frame.len() > frame::HEADER_BYTES || (frees && self.room_left() >= frame::HEADER_BYTES as u64)
        {
            self.write_frame()?;
        }
        Ok(self.next_frame - 1)
    }

    /// Writes an empty frame: it says that everything before it was durable, and where the log begins.
    ///
    /// Without it, damage to the very last frame could not be told from a write that was under way at a crash.
    pub fn mark(&mut self) -> Result<u64, StoreError> {
        self.check_poison()?;
        if self.frame.is_empty() {
            frame::begin(&mut self.frame);
        }
        if self.active_offset + frame::padded(0) as u64 <= self.segment_bytes {
            self.write_frame()?;
        }
        Ok(self.next_frame - 1)
    }

    /// The segment being written: what has to be synced.
    pub fn active(&self) -> Option<Arc<Segment>> {
        self.log.back().and_then(|number| self.segments.get(number)).map(|in_use| in_use.segment.clone())
    }

    pub fn written(&self) -> u64 {
        self.next_frame - 1
    }

    /// Takes note that every frame up to this one is durable.
    pub fn note_synced(&mut self, through: u64) {
        self.synced = self.synced.max(through);
        self.reclaim();
    }

    /// Syncs here and now.
    pub fn sync(&mut self) -> Result<(), StoreError> {
        self.check_poison()?;
        let through = self.written();
        if self.plant(Bug::NoSync) {
            self.note_synced(through);
            return Ok(());
        }
        if let Some(active) = self.active() {
            let mut result = active.sync();
            if result.is_err() && self.plant(Bug::RetryFailedSync) {
                result = active.file.sync();
            }
            if let Err(error) = result {
                return Err(self.poison(&format!("{}: sync: {error}", segment::file_name(active.number))));
            }
        }
        self.note_synced(through);
        Ok(())
    }

    /// Answers may be given for groups up to this frame.
    pub fn answerable(&self) -> u64 {
        match self.options.durability {
            Durability::Sync if !self.plant(Bug::AnswerBeforeSync) => self.synced,
            _ => self.written(),
        }
    }

    /// Bytes written and about to be.
    pub fn bytes_pending(&self) -> usize {
        self.status.bytes_written as usize + self.frame.len()
    }

    /// Seals the log so far and holds its segments, so that they can be copied.
    pub(crate) fn hold(&mut self) -> Result<Vec<PinnedSegment>, StoreError> {
        self.seal()?;
        self.make_spare();
        // The last spare is not for copies: the next opening may need it.
        if let Some(detail) = &self.status.full {
            return Err(StoreError::Full { detail: detail.clone() });
        }
        // Says where the log begins, for whoever opens the copy.
        if self.room_left() < frame::padded(0) as u64 {
            self.rotate()?;
        }
        self.mark()?;
        let sealed = self.log.clone();
        self.rotate()?;
        let held = sealed.iter().filter_map(|number| self.segments.get(number));
        Ok(held
            .map(|in_use| PinnedSegment {
                segment: in_use.segment.clone(),
                header: in_use.header,
                end: in_use.end,
            })
            .collect())
    }

    pub fn take_chores(&mut self) -> Vec<Chore> {
        std::mem::take(&mut self.chores)
    }

    pub fn poison(&mut self, cause: &str) -> StoreError {
        let cause = self.poisoned.get_or_insert_with(|| cause.to_owned());
        StoreError::Poisoned { cause: cause.clone() }
    }

    pub fn check_poison(&self) -> Result<(), StoreError> {
        match &self.poisoned {
            None => Ok(()),
            Some(cause) => Err(StoreError::Poisoned { cause: cause.clone() }),
        }
    }

    pub(crate) fn plant(&self, bug: Bug) -> bool {
        Plant::has(self.options.plant, bug)
    }

    /// Items by sequence number, with all it takes to read them.
    pub(crate) fn unread(&self, sequences: &[u64], with_queue: bool) -> UnreadItems {
        let mut unread = UnreadItems { items: Vec::with_capacity(sequences.len()), ..UnreadItems::default() };
        let mut last = None;
        for &sequence in sequences {
            let (Some(head), Some(places)) = (self.index.head(sequence), self.index.places(sequence)) else {
                continue;
            };
            for at in &places {
                let number = at.place.segment;
                if last != Some(number) && !unread.segments.iter().any(|segment| segment.number == number) {
                    unread.segments.extend(self.segments.get(&number).map(|in_use| in_use.segment.clone()));
                }
                last = Some(number);
            }
            let queue = self.index.queues.get(&head.queue).filter(|_| with_queue);
            let queue = queue.map(|queue| queue.queue.name.clone());
            unread.items.push(Unread { head, sequence, places, queue });
        }
        unread
    }

    pub(crate) fn status(&self) -> Status {
        Status {
            items: self.index.table.len(),
            queues: self.index.queues.len() as u64,
            live_bytes: self.index.live_bytes(),
            segments: self.segments.len() as u64,
            segments_free: (self.free.len() + self.emptied.len() + self.retired.len()) as u64,
            segment_bytes: self.segment_bytes,
            ..self.status.clone()
        }
    }
}
