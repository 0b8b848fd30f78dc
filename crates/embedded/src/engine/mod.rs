//! The engine: runs operations, appends their changes to the log, and says when each answer may be given.
//!
//! The writer thread owns it; the simulation drives the same steps. A group of requests takes these steps: [`Engine::begin`], then
//! [`Engine::run`] and [`Engine::query`] any number of times, then [`Engine::seal`]. The answers of the group may be given when
//! [`Engine::answerable`] reaches the frame that `seal` returned. The next group may begin before that, so that preparing a group
//! overlaps syncing the previous one.
//!
//! **Invariant:** a failed write or sync poisons the engine. The index is then ahead of the disk, so the engine answers nothing.

mod append;
mod capacity;
mod chore;
pub(crate) mod collection;
mod operations;
mod query;
mod segments;
pub(crate) mod select;
mod tallies;
#[cfg(test)]
#[allow(clippy::unwrap_used, clippy::expect_used, reason = "tests")]
mod tests;

pub(crate) use capacity::operation_bytes;
pub use chore::Chore;
pub(crate) use segments::SPARES;
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
use towline_domain::{Effects, EffectsRecorder, Refusal, Timestamp};
use towline_store::transaction;
use towline_store::{QueueLookup, StoreError, StoreMetrics};

/// A group of this size is sealed.
const GROUP_BYTES: usize = 512 << 10;
/// Maximum number of due items that one group sweeps, so that a million leases that lapse together do not delay other requests.
const SWEEP_MAX: u64 = 8192;
/// Slots that one group searches for items of deleted queues.
const REAP_SLOTS: usize = 8192;
/// Maximum bytes of records that one call reads. A receive stops there, and a page ends there.
pub(crate) use towline_domain::select::READ_BYTES_MAX;

pub struct Engine {
    pub(crate) disk: Arc<dyn Disk>,
    pub(crate) options: Options,
    pub(crate) salt: u64,
    pub(crate) history: u32,
    pub(crate) segment_bytes: u64,
    pub(crate) index: Index,

    /// Segments in use by number, and their numbers in log order. The last one is the active segment, which is being written.
    pub(crate) segments: BTreeMap<u32, SegmentInUse>,
    pub(crate) log: VecDeque<u32>,
    /// Emptied segments. Each can be reused when its frame here is durable.
    pub(crate) emptied: VecDeque<(Arc<Segment>, u64)>,
    /// Emptied segments that followers may not have read to their end.
    pub(crate) retired: VecDeque<RetiredSegment>,
    /// When a client last asked for events.
    pub(crate) events_read_at: AtomicU64,
    pub(crate) free: Vec<Arc<Segment>>,
    pub(crate) next_number: u32,
    pub(crate) next_generation: u64,

    pub(crate) frame: Vec<u8>,
    /// Tallies to write at the end of the frame.
    pub(crate) unwritten_tallies: UnwrittenTallies,
    pub(crate) active_offset: u64,
    /// When the active segment was started.
    pub(crate) rotated_at: Timestamp,
    pub(crate) next_frame: u64,
    pub(crate) synced: u64,
    pub(crate) next_item: u64,
    pub(crate) next_queue: u32,
    pub(crate) collection: Option<Collection>,
    /// The sidecar of the active segment.
    pub(crate) sidecar: SidecarBuilder,

    /// Bytes of records that the present call may still read.
    pub(crate) read_budget: u64,
    /// The length of the longest record so far.
    pub(crate) longest: u64,
    pub(crate) poisoned: Option<String>,
    pub(crate) status: Status,
    pub(crate) metrics: StoreMetrics,
    pub(crate) chores: Vec<Chore>,
    /// How many due items were changed in this group.
    pub(crate) swept: u64,
    /// Effects that no update has reported. Items also become ready during queries; the next update reports them.
    pub(crate) effects: EffectsRecorder,
    /// Whether all items that are due now have been swept.
    pub(crate) up_to_date: bool,
    /// Collection cannot continue: the disk is full, or the segment is damaged.
    pub(crate) stalled: bool,
    /// For a planted bug: updates with keys that the index gets after the batch.
    pub(crate) keys_withheld: Vec<IndexUpdate>,
}

pub(crate) struct SegmentInUse {
    pub(crate) segment: Arc<Segment>,
    pub(crate) header: SegmentHeader,
    /// The offset where its frames end.
    pub(crate) end: u64,
    pub(crate) last_frame: u64,
    /// Written by this engine, and not read back at opening. So its sidecar is complete.
    pub(crate) written_here: bool,
}

impl std::fmt::Debug for Engine {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Engine({}, {:?})", self.disk.directory(), self.status())
    }
}

impl Engine {
    /// Begins a group. Advances the time.
    pub fn begin(&mut self, clock: Timestamp) -> Result<(), StoreError> {
        self.check_poison()?;
        if self.frame.is_empty() {
            frame::begin(&mut self.frame);
        }
        self.index.advance(clock.min(Timestamp::MAX), &mut self.effects);
        self.release_retired();
        self.reclaim();
        self.ensure_spare();
        self.leave_dead_segment()?;
        (self.swept, self.up_to_date) = (0, false);
        self.stalled = self.status.damage.is_some();
        if self.index.reaping() {
            self.index.reap(REAP_SLOTS);
        }
        Ok(())
    }

    /// Begins a call. Each call has its own time and its own read budget.
    pub fn begin_call(&mut self, clock: Timestamp) -> Result<(), StoreError> {
        self.read_budget = READ_BYTES_MAX;
        if clock > self.index.now {
            self.index.advance(clock.min(Timestamp::MAX), &mut self.effects);
            self.up_to_date = false;
        }
        self.sweep()
    }

    /// Sweeps due items before the first operation at a new time, up to the limit of the group.
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
            match transaction::elapse(self, sequence)? {
                // The item belonged to a deleted queue and is removed now. The next item may be due.
                Ok(_) | Err(Refusal::ItemNotFound { .. }) => self.swept += 1,
                Err(_) => break,
            }
        }
        Ok(())
    }

    /// Whether there is background work: items of deleted queues to reap, segments to collect.
    pub fn has_work(&self) -> bool {
        self.poisoned.is_none()
            && (self.index.reaping() || !self.stalled && (self.collection.is_some() || self.should_collect()))
    }

    pub fn now(&self) -> Timestamp {
        self.index.now
    }

    /// When the next update is needed: something is due, or items became ready and no update has reported them.
    pub fn next_wake(&self) -> Option<Timestamp> {
        if self.effects.is_empty() { self.index.next_wake() } else { Some(self.index.now) }
    }

    /// Returns the effects since the last call.
    pub fn take_effects(&mut self) -> Effects {
        let Engine { effects, index, .. } = self;
        effects.take(|id| index.by_id(id).map(|(queue, _)| queue.name.clone()))
    }

    /// Whether the group should be sealed because of its size.
    pub fn group_is_full(&self) -> bool {
        self.frame.len() + self.unwritten_tallies.bytes >= GROUP_BYTES.min(self.segment_bytes as usize / 4)
    }

    /// Ends the group and writes its frame. The answers may be given when [`Engine::answerable`] reaches the returned frame.
    pub fn seal(&mut self) -> Result<u64, StoreError> {
        self.check_poison()?;
        for update in std::mem::take(&mut self.keys_withheld) {
            self.apply(update)?;
        }
        // An emptied segment is free when a frame with a later tail is durable. So write a frame, even an empty one.
        let frees = self.emptied.iter().any(|emptied| emptied.1 == self.next_frame);
        if self.frame.len() > frame::HEADER_BYTES || (frees && self.room_left() >= frame::HEADER_BYTES as u64)
        {
            self.write_frame()?;
        }
        Ok(self.next_frame - 1)
    }

    /// Writes a mark: an empty frame that says that all frames before it are durable, and where the log starts.
    ///
    /// Without a mark, damage to the last frame looks like a torn tail.
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

    /// The active segment, which has to be synced.
    pub fn active(&self) -> Option<Arc<Segment>> {
        self.log.back().and_then(|number| self.segments.get(number)).map(|in_use| in_use.segment.clone())
    }

    /// The last frame that was written.
    pub fn written(&self) -> u64 {
        self.next_frame - 1
    }

    /// All frames up to `through` are durable.
    pub fn note_synced(&mut self, through: u64) {
        self.synced = self.synced.max(through);
        self.reclaim();
    }

    /// Syncs on this thread.
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

    /// The last frame whose answers may be given.
    pub fn answerable(&self) -> u64 {
        match self.options.durability {
            Durability::Sync if !self.plant(Bug::AnswerBeforeSync) => self.synced,
            _ => self.written(),
        }
    }

    /// Bytes of the frames written so far and of the present frame.
    pub fn bytes_pending(&self) -> usize {
        self.status.bytes_written as usize + self.frame.len()
    }

    /// Seals the log and pins its segments for a backup. The store does not overwrite a pinned segment.
    pub(crate) fn hold(&mut self) -> Result<Vec<PinnedSegment>, StoreError> {
        self.seal()?;
        self.make_spare();
        // The next opening may need the last spare, so a backup must not use it.
        if let Some(detail) = &self.status.full {
            return Err(StoreError::Full { detail: detail.clone() });
        }
        // The mark names the tail of the log in the backup.
        if self.room_left() < frame::padded(0) as u64 {
            self.rotate()?;
        }
        self.mark()?;
        let sealed = self.log.clone();
        self.rotate()?;
        let pinned = sealed.iter().filter_map(|number| self.segments.get(number));
        Ok(pinned
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
        if self.poisoned.is_none() {
            tracing::error!(directory = self.disk.directory(), "the store takes no more writes: {cause}");
        }
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

    /// Items by sequence number, with the places and segments of their records.
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
            kv_bytes: self.index.kv_bytes as u64,
            kv_bytes_max: self.options.kv_bytes_max as u64,
            item_numbers: self.next_item.saturating_sub(1),
            ..self.status.clone()
        }
    }
}
