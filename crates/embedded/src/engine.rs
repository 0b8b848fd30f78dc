//! The step machine: takes operations, decides, appends, and says from when on each answer may be given.
//!
//! One thread owns it in the product; the simulation drives the same steps. The order of a group:
//! [`Engine::begin`], then [`Engine::run`] and [`Engine::query`] any number of times, then [`Engine::seal`]. What was
//! run may be answered once [`Engine::answerable`] has reached the frame that `seal` returned. The next group may
//! begin before that: preparing overlaps syncing.
//!
//! **Invariant:** a failed write or sync poisons it. The index is ahead of the disk then, so nothing is answered.

use crate::collect::Collection;
use crate::disk::{Disk, write_full};
use crate::entry::{Entry, ItemEntry, Place};
use crate::frame::{self, FrameHeader};
use crate::index::Index;
use crate::options::{Durability, Options};
use crate::outcome::{Outcome, Status, Unread, UnreadItems};
use crate::plant::{Bug, Plant};
use crate::record::{self, Indexed};
use crate::segment::{self, HEADER_BYTES, Segment, SegmentHeader};
use crate::sidecar;
use crate::writer::Held;
use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;
use towline_domain::change::{Answer, QueueChange};
use towline_domain::command::{NewQueue, Receive};
use towline_domain::kv::{self, KvCommand};
use towline_domain::{
    Change, Command, Context, EventKind, ItemId, QueueId, QueueName, Refusal, Submission, Timestamp, decide,
    digest, limits,
};
use towline_store::{Answered, Operation, QueueLookup, ReceiveCall, Reply, StoreError, item_context};

/// A group is sealed when it has grown to this.
const GROUP_BYTES: usize = 2 << 20;
/// Timers carried out in one group, so that a million leases lapsing at once do not hold everybody up.
const SWEEP_MAX: u64 = 8192;
const REAP_SLOTS: usize = 8192;
/// Segments kept for reuse when nothing needs them.
const FREE_MAX: usize = 1;

pub struct Engine {
    pub(crate) disk: Arc<dyn Disk>,
    pub(crate) options: Options,
    pub(crate) salt: u64,
    pub(crate) segment_bytes: u64,
    pub(crate) index: Index,

    /// Segments in use by number, and their numbers in log order; the last is being written.
    pub(crate) segments: BTreeMap<u32, InUse>,
    pub(crate) log: VecDeque<u32>,
    /// Emptied segments, each to be free when that frame is durable.
    pub(crate) emptied: VecDeque<(Arc<Segment>, u64)>,
    pub(crate) free: Vec<Arc<Segment>>,
    pub(crate) next_number: u32,
    pub(crate) next_generation: u64,

    pub(crate) frame: Vec<u8>,
    pub(crate) active_offset: u64,
    pub(crate) next_frame: u64,
    pub(crate) synced: u64,
    pub(crate) next_item: u64,
    pub(crate) next_queue: u32,
    pub(crate) collection: Option<Collection>,
    /// Of the segment being written.
    pub(crate) sidecar: sidecar::Builder,

    pub(crate) poisoned: Option<String>,
    pub(crate) status: Status,
    pub(crate) chores: Vec<Chore>,
    /// Items that time changed in this group, once that is done.
    pub(crate) swept: Option<u64>,
    /// Collection cannot go on for now: the disk is full, or the segment is damaged.
    pub(crate) stalled: bool,
    /// For a planted bug: keys of this batch, not in the index yet.
    pub(crate) keys_withheld: Vec<Entry>,
}

pub(crate) struct InUse {
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
        write!(f, "Engine({}, {:?})", self.disk.place(), self.status())
    }
}

/// Work that need not be done by the writer.
#[derive(Debug)]
pub enum Chore {
    /// Write the index of a sealed segment beside it, so that opening need not read it.
    Sidecar { number: u32, bytes: Vec<u8> },
    /// Remove a segment's files.
    Remove { segment: Arc<Segment> },
}

impl Engine {
    // ---- the group

    /// Begins a group: time moves on.
    pub fn begin(&mut self, clock: Timestamp) -> Result<(), StoreError> {
        self.check_poison()?;
        if self.frame.is_empty() {
            frame::begin(&mut self.frame);
        }
        self.index.advance(clock);
        self.reclaim();
        self.ensure_spare();
        self.swept = None;
        self.stalled = self.status.damage.is_some();
        if self.index.reaping() {
            self.index.reap(REAP_SLOTS);
        }
        Ok(())
    }

    /// Carries out what is due, once a group, before its first operation.
    pub fn sweep(&mut self) -> Result<(), StoreError> {
        self.check_poison()?;
        if self.swept.is_some() {
            return Ok(());
        }
        let mut swept = 0;
        self.swept = Some(0);
        while swept < SWEEP_MAX && !self.out_of_room() {
            let Some(sequence) = self.index.next_due(self.index.now) else {
                break;
            };
            if self.elapse(sequence)?.is_err() {
                break;
            }
            swept += 1;
        }
        self.swept = Some(swept);
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
        self.frame.len() >= GROUP_BYTES.min(self.segment_bytes as usize / 4)
    }

    /// Ends the group and writes it. Its answers may be given when [`Engine::answerable`] reaches the returned frame.
    pub fn seal(&mut self) -> Result<u64, StoreError> {
        self.check_poison()?;
        for entry in std::mem::take(&mut self.keys_withheld) {
            self.apply(entry)?;
        }
        if self.frame.len() > frame::HEADER_BYTES {
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
            let mut result = active.file.sync();
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
    pub(crate) fn hold(&mut self) -> Result<Vec<Held>, StoreError> {
        self.seal()?;
        self.make_spare();
        if let (true, Some(detail)) = (self.free.is_empty(), &self.status.full) {
            return Err(StoreError::Full { detail: detail.clone() });
        }
        // Says where the log begins, for whoever opens the copy.
        self.mark()?;
        let sealed = self.log.clone();
        self.rotate()?;
        let held = sealed.iter().filter_map(|number| self.segments.get(number));
        Ok(held
            .map(|in_use| Held { segment: in_use.segment.clone(), header: in_use.header, end: in_use.end })
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

    // ---- operations

    /// Carries out one operation. An error poisons the store, unless it is [`StoreError::Full`].
    pub fn run(&mut self, operation: Operation) -> Result<Outcome, StoreError> {
        self.check_poison()?;
        self.sweep()?;
        if let Some(refusal) = self.check_room(&operation)? {
            return Ok(Outcome::Answered(Err(refusal)));
        }
        let answered = match operation {
            Operation::Receive(call) => return self.receive(&call),
            Operation::Submit { queue, submission } => self.submit(&queue, submission)?,
            Operation::Lease { id, mut call } => {
                if self.plant(Bug::NoLeaseCheck)
                    && let Some(lease) = self.index.find(id).and_then(|sequence| self.index.head(sequence))
                    && let Some(lease) = lease.lease()
                {
                    call.token = lease.token;
                }
                self.on_item(id, Command::Lease(call))?
            }
            Operation::Cancel { id, reason } => self.on_item(id, Command::Cancel { reason })?,
            Operation::Pause { id } => self.on_item(id, Command::Pause)?,
            Operation::Resume { id } => self.on_item(id, Command::Resume)?,
            Operation::Redrive { id } => self.on_item(id, Command::Redrive)?,
            Operation::Delete { id, force, only } => self.on_item(id, Command::Delete { force, only })?,
            Operation::CreateQueue { queue, schema, policy } => {
                let new = NewQueue {
                    id: QueueId(self.next_queue),
                    name: queue.clone(),
                    schema: *schema,
                    policy: *policy,
                };
                self.create_queue(&queue, new)?
            }
            Operation::ChangePolicy { queue, patch } => {
                self.on_queue(&queue, Command::ChangePolicy(patch))?
            }
            Operation::CloseQueue { queue } => self.on_queue(&queue, Command::CloseQueue)?,
            Operation::PauseQueue { queue } => self.on_queue(&queue, Command::PauseQueue)?,
            Operation::ResumeQueue { queue } => self.on_queue(&queue, Command::ResumeQueue)?,
            Operation::DeleteQueue { queue, force } => {
                self.on_queue(&queue, Command::DeleteQueue { force })?
            }
            Operation::Sweep => Ok(Reply::Swept { changed: self.swept.unwrap_or(0) }),
            Operation::Kv { key, command } => self.kv(key, command)?,
        };
        Ok(Outcome::Answered(answered))
    }

    fn submit(&mut self, name: &QueueName, submission: Box<Submission>) -> Result<Answered, StoreError> {
        let Some(queue) = self.index.queue_named(name) else {
            return Ok(Err(Refusal::QueueNotFound { name: name.to_string() }));
        };
        if self.index.table.len() >= self.options.items_max {
            return Ok(Err(Refusal::StoreFull { what: "items", held: self.index.table.len() }));
        }
        let chosen_id = submission.id;
        let key = submission.body.idempotency_key.as_deref().map(digest::key);
        let owner = key.and_then(|key| self.index.key_owner(queue.queue.id, key));
        let taken =
            chosen_id.and_then(|id| self.index.find(id)).and_then(|sequence| self.index.head(sequence));
        let sequence = self.next_item;
        let context = Context {
            queue: Some(&queue.queue),
            counts: queue.counts,
            item: taken.as_ref(),
            key_owner: owner,
            new_id: Some(ItemId::derive(self.salt, self.index.now, sequence)),
            ..Context::default()
        };
        match decide(&context, Command::Submit(submission), self.index.now) {
            Err(refusal) => Ok(Err(refusal)),
            Ok(change) => {
                if !change.is_empty() {
                    self.next_item += 1;
                    let indexed = change.submitted().and_then(|(body, _)| Indexed::of(body, chosen_id));
                    return self
                        .append_item(sequence, change, indexed)
                        .map(|answer| Ok(Reply::Answer(answer)));
                }
                Ok(Ok(Reply::Answer(change.answer().clone())))
            }
        }
    }

    fn receive(&mut self, call: &ReceiveCall) -> Result<Outcome, StoreError> {
        let refuse = |refusal| Ok(Outcome::Answered(Err(refusal)));
        let Some(queue) = self.index.queue_named(&call.queue) else {
            return refuse(Refusal::QueueNotFound { name: call.queue.to_string() });
        };
        if let Err(refusal) = call.check() {
            return refuse(refusal);
        }
        let (id, paused) = (queue.queue.id, queue.queue.paused);
        let mut given = Vec::new();
        while !paused && given.len() < call.max as usize {
            let Some(sequence) = self.index.first_ready(id) else {
                break;
            };
            let command = Command::Receive(Receive {
                token: call.seed.token(u32::try_from(given.len()).unwrap_or(u32::MAX)),
                visibility: call.visibility,
                assigned: call.assigned,
                buffers: None,
            });
            match self.change_item(sequence, command)? {
                Ok(_) => given.push(sequence),
                // Its expiry is due, and the sweep of this group has not come to it.
                Err(Refusal::NotDue { .. }) => {
                    if let Err(refusal) = self.elapse(sequence)? {
                        return refuse(refusal);
                    }
                }
                Err(refusal) => return refuse(refusal),
            }
        }
        let items = self.unread(&given, false);
        let state = self.index.by_name(&call.queue).map(|queue| queue.state);
        match state {
            Some(queue) => Ok(Outcome::Received { queue, items, fields: call.fields }),
            None => refuse(Refusal::QueueNotFound { name: call.queue.to_string() }),
        }
    }

    fn elapse(&mut self, sequence: u64) -> Result<Answered, StoreError> {
        let counted = self.index.head(sequence).map(|head| head.retries);
        let answered = self.change_item(sequence, Command::Elapse)?;
        if self.plant(Bug::LapseNotCounted)
            && let Some(extra) = self.index.table.extra_mut(sequence)
        {
            extra.head.retries = counted.unwrap_or(0);
        }
        Ok(answered)
    }

    fn on_item(&mut self, id: ItemId, command: Command) -> Result<Answered, StoreError> {
        match self.index.find(id) {
            Some(sequence) => self.change_item(sequence, command),
            None => Ok(Err(Refusal::ItemNotFound { id })),
        }
    }

    fn change_item(&mut self, sequence: u64, command: Command) -> Result<Answered, StoreError> {
        let Some(head) = self.index.head(sequence) else {
            return Err(self.poison("the index names an item it does not hold"));
        };
        let mut now = self.index.now;
        if self.plant(Bug::DeadlineOffByOne) && matches!(command, Command::Lease(_)) {
            now = Timestamp(now.0.saturating_sub(1));
        }
        let context = item_context(&self.index, &head, &command);
        if context.queue.is_none() {
            // Of a deleted queue, and not reaped yet.
            self.index.apply(Entry::ItemRemoved { sequence }).map_err(|error| self.poison(error.0))?;
            return Ok(Err(Refusal::ItemNotFound { id: head.id }));
        }
        match decide(&context, command, now) {
            Err(refusal) => Ok(Err(refusal)),
            Ok(change) if change.is_empty() => Ok(Ok(Reply::Answer(change.answer().clone()))),
            Ok(change) => self.append_item(sequence, change, None).map(|answer| Ok(Reply::Answer(answer))),
        }
    }

    fn create_queue(&mut self, name: &QueueName, new: NewQueue) -> Result<Answered, StoreError> {
        let queue = self.index.by_name(name);
        if queue.is_none() && self.index.queues.len() >= limits::QUEUES_MAX {
            let held = self.index.queues.len() as u64;
            return Ok(Err(Refusal::StoreFull { what: "queues", held }));
        }
        let context = Context { queue, ..Context::default() };
        match decide(&context, Command::CreateQueue(Box::new(new)), self.index.now) {
            Err(refusal) => Ok(Err(refusal)),
            Ok(change) => {
                self.next_queue += u32::from(!change.is_empty());
                self.append_queue(None, &change)?;
                Ok(Ok(Reply::Answer(change.answer().clone())))
            }
        }
    }

    fn on_queue(&mut self, name: &QueueName, command: Command) -> Result<Answered, StoreError> {
        let Some(queue) = self.index.queue_named(name) else {
            return Ok(Err(Refusal::QueueNotFound { name: name.to_string() }));
        };
        let id = queue.queue.id;
        let context = Context { queue: Some(&queue.queue), counts: queue.counts, ..Context::default() };
        match decide(&context, command, self.index.now) {
            Err(refusal) => Ok(Err(refusal)),
            Ok(change) => {
                self.append_queue(Some(id), &change)?;
                Ok(Ok(Reply::Answer(change.answer().clone())))
            }
        }
    }

    fn kv(&mut self, key: String, command: KvCommand) -> Result<Answered, StoreError> {
        let before = self.index.kv.get(&key).map(|slot| &slot.record);
        let (after, answer) = match kv::decide(&key, before, command, self.index.now) {
            Err(refusal) => return Ok(Err(refusal)),
            Ok(decision) => decision,
        };
        let Some(after) = after else {
            return Ok(Ok(Reply::Kv(answer)));
        };
        match after {
            Some(record) => {
                let (held, more) = (self.index.kv_bytes, key.len() + record.value.len());
                if held + more > self.options.kv_bytes_max {
                    return Ok(Err(Refusal::StoreFull {
                        what: "bytes of key-value records",
                        held: held as u64,
                    }));
                }
                let start = self.frame.len();
                let length = record::encode_kv(&mut self.frame, &key, &record, self.salt);
                let start = self.fit(start)?;
                let place = self.place(start, length);
                self.apply(Entry::Kv { key, record, place })?;
            }
            None => {
                let start = self.frame.len();
                record::encode_kv_deleted(&mut self.frame, &key, self.salt);
                self.fit(start)?;
                self.apply(Entry::KvDeleted { key })?;
            }
        }
        Ok(Ok(Reply::Kv(answer)))
    }

    // ---- appending

    fn append_item(
        &mut self,
        sequence: u64,
        change: Change,
        indexed: Option<Indexed>,
    ) -> Result<Answer, StoreError> {
        // A queue that its last item completes is completed in the same frame as that item.
        let start = self.frame.len();
        let queue_length = match change.queue() {
            Some(QueueChange::Put(queue)) => {
                record::encode_queue(&mut self.frame, queue, Some(EventKind::QueueCompleted), self.salt)
            }
            _ => 0,
        };
        let (length, mut parts) =
            record::encode_change(&mut self.frame, &change, sequence, indexed.as_ref(), self.salt);
        let start = self.fit(start)?;
        let place = self.place(start + queue_length as usize, length);
        if let Some(QueueChange::Put(queue)) = change.queue() {
            let place = self.place(start, queue_length);
            self.apply(Entry::Queue { queue: queue.clone(), place })?;
        }
        if self.plant(Bug::EditOverwritesAll) && parts & record::FIELDS != 0 {
            parts |= record::FIELDS;
        }
        let (head, answer) = change.into_head_and_answer();
        let entry = match head {
            None => Entry::ItemRemoved { sequence },
            Some(head) => {
                let error_ordinal = head.revision;
                let indexed = indexed.map(Box::new);
                Entry::Item(ItemEntry { sequence, place, parts, head: Some(head), indexed, error_ordinal })
            }
        };
        if self.plant(Bug::KeyOutsideBatch)
            && let Entry::Item(item) = &entry
            && item.indexed.is_some()
        {
            self.keys_withheld.push(entry);
            return Ok(answer);
        }
        self.apply(entry)?;
        Ok(answer)
    }

    fn append_queue(&mut self, id: Option<QueueId>, change: &Change) -> Result<(), StoreError> {
        let start = self.frame.len();
        match (change.queue(), id) {
            (Some(QueueChange::Put(queue)), _) => {
                let length = record::encode_queue(&mut self.frame, queue, change.event(), self.salt);
                let start = self.fit(start)?;
                let place = self.place(start, length);
                self.apply(Entry::Queue { queue: queue.clone(), place })
            }
            (Some(QueueChange::Deleted), Some(id)) => {
                record::encode_queue_deleted(&mut self.frame, id, self.salt);
                self.fit(start)?;
                self.apply(Entry::QueueDeleted { id })
            }
            _ => Ok(()),
        }
    }

    pub(crate) fn apply(&mut self, entry: Entry) -> Result<(), StoreError> {
        self.index.apply(entry).map_err(|error| self.poison(error.0))
    }

    /// Sees to it that what was just encoded from `start` on lies in one frame of one segment: moves it to the next
    /// segment if this one is full. Returns where in the frame it begins.
    pub(crate) fn fit(&mut self, start: usize) -> Result<usize, StoreError> {
        let mut start = start;
        if self.active_offset + frame::padded(self.frame.len() - frame::HEADER_BYTES) as u64
            > self.segment_bytes
        {
            let moved = self.frame.split_off(start);
            if self.frame.len() > frame::HEADER_BYTES {
                self.write_frame()?;
            }
            self.rotate()?;
            frame::begin(&mut self.frame);
            start = self.frame.len();
            self.frame.extend_from_slice(&moved);
        }
        self.sidecar.add(&self.frame[start..], self.active_offset + start as u64);
        Ok(start)
    }

    /// Where a record of the frame being filled will lie.
    pub(crate) fn place(&self, start: usize, length: u32) -> Place {
        Place {
            segment: self.log.back().copied().unwrap_or(u32::MAX),
            offset: u32::try_from(self.active_offset + start as u64).unwrap_or(u32::MAX),
            length,
        }
    }

    fn write_frame(&mut self) -> Result<(), StoreError> {
        let Some(&number) = self.log.back() else {
            return Err(self.poison("no segment is being written"));
        };
        let tail = self.tail();
        let Some(in_use) = self.segments.get_mut(&number) else {
            return Err(self.poison("the segment being written is not known"));
        };
        let header = FrameHeader {
            length: 0,
            sequence: self.next_frame,
            generation: in_use.header.generation,
            synced: self.synced,
            time: self.index.now.0,
            next_item: self.next_item,
            tail,
            next_queue: self.next_queue,
        };
        frame::finish(&mut self.frame, header, self.salt);
        let result = write_full(&*in_use.segment.file, &self.frame, self.active_offset);
        in_use.last_frame = self.next_frame;
        self.active_offset += self.frame.len() as u64;
        in_use.end = self.active_offset;
        self.sidecar.frame_written();
        self.next_frame += 1;
        self.status.frames += 1;
        self.status.bytes_written += self.frame.len() as u64;
        frame::begin(&mut self.frame);
        match result {
            Err(error) if !Plant::has(self.options.plant, Bug::IgnoreWriteError) => {
                Err(self.poison(&format!("{}: write: {error}", segment::file_name(number))))
            }
            _ => Ok(()),
        }
    }

    // ---- segments

    /// Generation of the oldest segment in use.
    pub(crate) fn tail(&self) -> u64 {
        self.log
            .front()
            .and_then(|number| self.segments.get(number))
            .map_or(self.next_generation, |in_use| in_use.header.generation)
    }

    /// Goes on in another segment. Everything before it is durable first, so the log has one end at most.
    pub(crate) fn rotate(&mut self) -> Result<(), StoreError> {
        if !self.log.is_empty() && !self.plant(Bug::RecycledTooEarly) {
            self.sync()?;
        }
        self.make_spare();
        let Some(segment) = self.free.pop() else {
            let detail = self.status.full.clone().unwrap_or_default();
            return Err(self.poison(&format!("no segment to go on in: {detail}")));
        };
        let generation = self.next_generation;
        let header = SegmentHeader {
            number: segment.number,
            next_queue: self.next_queue,
            generation,
            first_frame: self.next_frame,
            time: self.index.now.0,
            next_item: self.next_item,
            tail: if self.log.is_empty() { generation } else { self.tail() },
            size: self.segment_bytes,
        };
        if let Err(error) = segment.write_header(&header, self.salt) {
            return Err(self.poison(&format!("{}: {error}", segment::file_name(segment.number))));
        }
        let sidecar = std::mem::take(&mut self.sidecar);
        if let Some(sealed) = self.log.back().and_then(|number| self.segments.get(number))
            && sealed.written_here
        {
            let plant = self.options.plant;
            let bytes = sidecar.finish(&sealed.header, sealed.end, sealed.last_frame, self.salt, plant);
            self.chores.extend(bytes.map(|bytes| Chore::Sidecar { number: sealed.header.number, bytes }));
        }
        self.next_generation += 1;
        self.status.rotations += 1;
        self.active_offset = HEADER_BYTES;
        self.log.push_back(segment.number);
        let last_frame = self.next_frame - 1;
        let in_use = InUse { header, end: HEADER_BYTES, last_frame, written_here: true, segment };
        self.segments.insert(in_use.segment.number, in_use);
        Ok(())
    }

    /// Keeps a segment in reserve once the one being written is half full.
    fn ensure_spare(&mut self) {
        if self.active_offset >= self.segment_bytes / 2 || !self.free.is_empty() {
            self.make_spare();
        }
    }

    pub(crate) fn make_spare(&mut self) {
        if !self.free.is_empty() {
            self.status.full = None;
            return;
        }
        match Segment::create(&*self.disk, self.next_number, self.segment_bytes) {
            Ok(segment) => {
                self.next_number += 1;
                self.status.full = None;
                self.free.push(Arc::new(segment));
            }
            Err(error) => self.status.full = Some(format!("{}: {error}", self.disk.place())),
        }
    }

    /// Takes back emptied segments that nobody reads any more and that the durable log no longer needs.
    fn reclaim(&mut self) {
        let early = self.plant(Bug::RecycledTooEarly);
        let mut kept = VecDeque::new();
        for (segment, frame) in std::mem::take(&mut self.emptied) {
            if (frame > self.synced && !early) || Arc::strong_count(&segment) > 1 {
                kept.push_back((segment, frame));
            } else if self.free.len() < FREE_MAX && segment.has_room(self.segment_bytes) {
                self.free.push(segment);
            } else {
                self.chores.push(Chore::Remove { segment });
            }
        }
        self.emptied = kept;
    }

    /// No spare segment, and the one being written is nearly full: nothing more can be taken.
    fn out_of_room(&self) -> bool {
        self.free.is_empty() && self.room_left() < self.segment_bytes / 8
    }

    /// Bytes that still fit into the segment being written.
    pub(crate) fn room_left(&self) -> u64 {
        self.segment_bytes.saturating_sub(self.active_offset + self.frame.len() as u64)
    }

    /// Refuses what is too large for a segment, and submits while there is no spare one.
    fn check_room(&mut self, operation: &Operation) -> Result<Option<Refusal>, StoreError> {
        let bytes = operation_bytes(operation);
        let max = (self.segment_bytes - 4 * HEADER_BYTES) as usize;
        if bytes > max {
            return Ok(Some(Refusal::TooLarge { what: "the item", bytes: bytes as u64, max: max as u64 }));
        }
        let left = (self.room_left() as usize).saturating_sub(bytes);
        if left == 0 && self.free.is_empty() {
            self.make_spare();
        }
        let Some(detail) = &self.status.full else {
            return Ok(None);
        };
        // What ends items must go on as long as it can: it is what frees space. Submits stop early.
        let needed = if matches!(operation, Operation::Submit { .. }) {
            self.segment_bytes as usize / 4
        } else {
            self.segment_bytes as usize / 8
        };
        if left < needed && !matches!(operation, Operation::Sweep) {
            return Err(StoreError::Full { detail: detail.clone() });
        }
        Ok(None)
    }

    // ---- reading

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
            segments_free: (self.free.len() + self.emptied.len()) as u64,
            segment_bytes: self.segment_bytes,
            ..self.status.clone()
        }
    }
}

/// An upper bound on what an operation adds to the log, payload aside from a small constant.
pub(crate) fn operation_bytes(operation: &Operation) -> usize {
    const OVERHEAD: usize = 1024;
    let variable = match operation {
        Operation::Submit { submission, .. } => {
            let body = &submission.body;
            let params: usize =
                body.params.iter().map(|(name, value)| name.len() + value.as_str().len() + 8).sum();
            let tags: usize = body.tags.iter().map(|(name, value)| name.len() + value.len() + 24).sum();
            let inputs: usize = body
                .inputs
                .iter()
                .map(|(slot, buffer)| slot.as_str().len() + buffer.as_str().len() + 8)
                .sum();
            submission.fields.bytes() + params + tags + inputs + 4 * limits::LABEL_BYTES_MAX
        }
        Operation::Lease { call, .. } => {
            let edits = &call.adjust.edits;
            let fields =
                towline_domain::Field::ALL.into_iter().filter_map(|field| edits.get(field)?.as_ref());
            let outcome = match &call.verb {
                towline_domain::command::Verb::Commit(outcome) => {
                    let params = outcome.output_params.iter();
                    params.map(|(name, value)| name.len() + value.as_str().len() + 8).sum::<usize>()
                        + outcome.outputs.len() * 400
                }
                _ => limits::REASON_BYTES_MAX,
            };
            fields.map(bytes::Bytes::len).sum::<usize>() + outcome
        }
        Operation::Kv { key, command } => {
            key.len()
                + match command {
                    KvCommand::Set { value, .. } | KvCommand::SetIfAbsent { value, .. } => value.len(),
                    _ => 0,
                }
        }
        _ => 0,
    };
    OVERHEAD + variable
}
