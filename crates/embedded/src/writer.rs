//! The threads that drive the engine: one decides and writes, one syncs and answers, one does the chores.
//!
//! While a group is being synced the next is decided and written, so a sync covers whatever gathered meanwhile: many
//! callers share one, and a lone caller waits for nobody. When nobody else asks, the writer syncs by itself.

use crate::engine::{Chore, Engine};
use crate::log::disk::Disk;
use crate::log::segment::{self, Segment, SegmentHeader};
use crate::options::Durability;
use crate::outcome::{CallOutcome, Found, Query};
use crossbeam_channel::{Receiver, RecvTimeoutError, Sender, TryRecvError};
use futures::channel::oneshot;
use std::sync::Arc;
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::time::Duration;
use towline_store::{Clock, Operation, StoreError};

pub(crate) type Answer<T> = Result<T, StoreError>;

pub(crate) enum Request {
    Update {
        batch: Vec<Operation>,
        bytes: usize,
        reply: oneshot::Sender<Answer<CallOutcome>>,
    },
    Query {
        query: Query,
        reply: oneshot::Sender<Answer<Found>>,
    },
    /// Seal what there is and hold it, for a backup.
    Hold {
        reply: oneshot::Sender<Answer<Vec<PinnedSegment>>>,
    },
    Stop,
}

/// A sealed segment that is held for somebody.
#[derive(Debug)]
pub(crate) struct PinnedSegment {
    pub(crate) segment: Arc<Segment>,
    pub(crate) header: SegmentHeader,
    pub(crate) end: u64,
}

/// What the threads and the handles share.
#[derive(Default)]
pub(crate) struct Shared {
    /// The last frame that is durable.
    synced: AtomicU64,
    pub(crate) syncs: AtomicU64,
    pub(crate) waiting_bytes: AtomicUsize,
    poisoned: Mutex<Option<String>>,
    damage: Mutex<Option<String>>,
    damages: AtomicU64,
}

impl Shared {
    fn poison(&self, cause: String) {
        if let Ok(mut poisoned) = self.poisoned.lock() {
            poisoned.get_or_insert(cause);
        }
    }

    /// Damage that a reader met.
    pub(crate) fn note_damage(&self, what: String) {
        self.damages.fetch_add(1, Ordering::Relaxed);
        if let Ok(mut damage) = self.damage.lock() {
            damage.get_or_insert(what);
        }
    }

    pub(crate) fn damage(&self) -> Option<String> {
        self.damage.lock().ok().and_then(|damage| damage.clone())
    }

    pub(crate) fn damages(&self) -> u64 {
        self.damages.load(Ordering::Relaxed)
    }

    fn poisoned(&self) -> Option<String> {
        self.poisoned.lock().ok().and_then(|poisoned| poisoned.clone())
    }
}

/// An answer that waits for its group to be durable.
enum Ready {
    Update(oneshot::Sender<Answer<CallOutcome>>, Answer<CallOutcome>),
    Query(oneshot::Sender<Answer<Found>>, Answer<Found>),
    Hold(oneshot::Sender<Answer<Vec<PinnedSegment>>>, Answer<Vec<PinnedSegment>>),
}

impl Ready {
    /// The receiver may be gone; then nobody wants to know.
    fn give(self, fault: Option<&StoreError>) {
        match (self, fault) {
            (Ready::Update(reply, answer), None) => drop(reply.send(answer)),
            (Ready::Query(reply, answer), None) => drop(reply.send(answer)),
            (Ready::Hold(reply, answer), None) => drop(reply.send(answer)),
            (Ready::Update(reply, _), Some(fault)) => drop(reply.send(Err(fault.clone()))),
            (Ready::Query(reply, _), Some(fault)) => drop(reply.send(Err(fault.clone()))),
            (Ready::Hold(reply, _), Some(fault)) => drop(reply.send(Err(fault.clone()))),
        }
    }
}

/// A written group on its way to be durable.
pub(crate) struct Written {
    segment: Option<Arc<Segment>>,
    through: u64,
    ready: Vec<Ready>,
}

/// Requests gathered into one group.
const GATHER_MAX: usize = 1024;
/// Collection done beside each group, besides twice what the group wrote.
const COLLECT_BYTES: usize = 64 << 10;
const COLLECT_IDLE_BYTES: usize = 512 << 10;
/// After this much quiet the end of the log is marked.
const QUIET: Duration = Duration::from_millis(10);

pub(crate) struct Writer {
    pub(crate) engine: Engine,
    pub(crate) clock: Arc<dyn Clock>,
    pub(crate) requests: Receiver<Request>,
    pub(crate) written: Sender<Written>,
    pub(crate) chores: Sender<Chore>,
    pub(crate) shared: Arc<Shared>,
    pub(crate) durability: Durability,
    pub(crate) alone_bytes: usize,
    /// The last frame that was left to the sync thread.
    pub(crate) handed: u64,
}

impl Writer {
    pub(crate) fn run(mut self) {
        // The last frame, if it is a mark.
        let mut marked = 0;
        loop {
            let next = if self.engine.has_work() {
                match self.requests.try_recv() {
                    Ok(request) => Some(request),
                    Err(TryRecvError::Empty) => None,
                    Err(TryRecvError::Disconnected) => Some(Request::Stop),
                }
            } else if self.engine.written() == marked && !self.engine.is_reclaiming() {
                // Nothing to do until somebody asks.
                Some(self.requests.recv().unwrap_or(Request::Stop))
            } else {
                match self.requests.recv_timeout(QUIET) {
                    Ok(request) => Some(request),
                    Err(RecvTimeoutError::Disconnected) => Some(Request::Stop),
                    Err(RecvTimeoutError::Timeout) => {
                        marked = self.quiet(marked);
                        continue;
                    }
                }
            };
            let go_on = !matches!(next, Some(Request::Stop)) && self.group(next);
            if !go_on {
                return self.stop();
            }
        }
    }

    /// Nobody has asked for a while: marks the end of the log, and gets emptied segments back.
    fn quiet(&mut self, marked: u64) -> u64 {
        self.take_progress();
        if self.engine.check_poison().is_err() {
            return self.engine.written();
        }
        // A failure poisons the engine; whoever asks next is told.
        let mark = if self.engine.written() == marked { Ok(marked) } else { self.engine.mark() };
        if let Ok(through) = mark
            && self.engine.is_reclaiming()
        {
            // Once this is durable they are free.
            self.handed = through;
            let written = Written { segment: self.engine.active(), through, ready: Vec::new() };
            let _ = self.written.send(written);
        }
        self.send_chores();
        mark.unwrap_or(marked)
    }

    /// Learns what the sync thread has done, also that it failed.
    fn take_progress(&mut self) {
        if let Some(cause) = self.shared.poisoned() {
            self.engine.poison(&cause);
        }
        self.engine.note_synced(self.shared.synced.load(Ordering::Acquire));
    }

    fn send_chores(&mut self) {
        for chore in self.engine.take_chores() {
            // Without the chore thread the chores are left to the next opening.
            let _ = self.chores.send(chore);
        }
    }

    /// One group: from its first request to being written. Whether to go on.
    fn group(&mut self, first: Option<Request>) -> bool {
        self.take_progress();
        let idle = first.is_none();
        let begun = self.engine.begin(self.clock.now());
        let before = self.engine.bytes_pending();
        let mut ready = Vec::new();
        let mut go_on = true;
        let mut next = first;
        while let Some(request) = next.take() {
            match request {
                Request::Stop => {
                    go_on = false;
                    break;
                }
                request => self.serve(request, &begun, &mut ready),
            }
            if ready.len() < GATHER_MAX && !self.engine.group_is_full() {
                next = self.requests.try_recv().ok();
            }
        }
        let grown = self.engine.bytes_pending().saturating_sub(before);
        let budget = if idle { COLLECT_IDLE_BYTES } else { COLLECT_BYTES + 2 * grown };
        let sealed = begun.and_then(|()| self.engine.collect(budget)).and_then(|_| self.engine.seal());
        self.send_chores();
        match sealed {
            Ok(through) => {
                let segment = self.engine.active();
                if grown <= self.alone_bytes && self.is_alone() {
                    // Waking another thread would take longer than what could be prepared meanwhile.
                    let fault = sync(&self.shared, segment.as_deref(), through);
                    ready.into_iter().for_each(|ready| ready.give(fault.as_ref()));
                    return go_on;
                }
                self.handed = through;
                if let Err(gone) = self.written.send(Written { segment, through, ready }) {
                    gone.0.ready.into_iter().for_each(|ready| ready.give(Some(&StoreError::Closed)));
                    return false;
                }
            }
            Err(fault) => {
                // Groups on their way are not answered either: what failed may be theirs.
                if let Err(StoreError::Poisoned { cause }) = self.engine.check_poison() {
                    self.shared.poison(cause);
                }
                ready.into_iter().for_each(|ready| ready.give(Some(&fault)));
            }
        }
        go_on
    }

    /// Nobody else asks for anything, and everything before is durable.
    fn is_alone(&self) -> bool {
        self.durability == Durability::Sync
            && self.requests.is_empty()
            && self.shared.synced.load(Ordering::Acquire) >= self.handed
    }

    fn serve(&mut self, request: Request, begun: &Result<(), StoreError>, ready: &mut Vec<Ready>) {
        match request {
            Request::Update { batch, bytes, reply } => {
                self.shared.waiting_bytes.fetch_sub(bytes, Ordering::AcqRel);
                let answer = begun.clone().and_then(|()| self.update(batch));
                ready.push(Ready::Update(reply, answer));
            }
            Request::Query { query, reply } => {
                let answer = begun.clone().map(|()| self.engine.query(query));
                ready.push(Ready::Query(reply, answer));
            }
            Request::Hold { reply } => {
                let answer = begun.clone().and_then(|()| self.engine.hold());
                ready.push(Ready::Hold(reply, answer));
            }
            Request::Stop => {}
        }
    }

    fn update(&mut self, batch: Vec<Operation>) -> Answer<CallOutcome> {
        // Not by the time at which its group began: a lease may have run out since.
        self.engine.begin_call(self.clock.now())?;
        let mut outcomes = Vec::with_capacity(batch.len());
        for operation in batch {
            outcomes.push(self.engine.run(operation)?);
            if self.engine.group_is_full() {
                self.engine.seal()?;
            }
        }
        Ok(CallOutcome { outcomes, effects: self.engine.take_effects() })
    }

    /// Leaves everything durable and marked.
    fn stop(mut self) {
        // A poisoned engine writes and syncs nothing more.
        self.take_progress();
        let _ = self.engine.begin(self.clock.now());
        let closed = self.engine.seal().and_then(|_| self.engine.sync());
        let _ = closed.and_then(|()| self.engine.mark()).and_then(|_| self.engine.sync());
        for request in self.requests.try_iter() {
            match request {
                Request::Update { reply, .. } => drop(reply.send(Err(StoreError::Closed))),
                Request::Query { reply, .. } => drop(reply.send(Err(StoreError::Closed))),
                Request::Hold { reply } => drop(reply.send(Err(StoreError::Closed))),
                Request::Stop => {}
            }
        }
    }
}

/// Syncs what is written and gives the answers that waited for it.
pub(crate) fn sync_loop(written: &Receiver<Written>, shared: &Shared, durability: Durability) {
    while let Ok(first) = written.recv() {
        let mut groups = vec![first];
        groups.extend(written.try_iter());
        if let Durability::Interval(interval) = durability {
            // In the operating system's hands is enough; the disk follows.
            let mut through = 0;
            let mut segment = None;
            let deadline = crossbeam_channel::after(interval);
            loop {
                for group in groups.drain(..) {
                    (through, segment) = (group.through, group.segment);
                    group.ready.into_iter().for_each(|ready| ready.give(None));
                }
                crossbeam_channel::select! {
                    recv(deadline) -> _ => break,
                    recv(written) -> group => match group {
                        Ok(group) => groups.push(group),
                        Err(_) => break,
                    },
                }
            }
            sync(shared, segment.as_deref(), through);
            continue;
        }
        let through = groups.last().map_or(0, |group| group.through);
        // Before the log goes on in another segment the writer syncs the one before, so the last is enough.
        let segment = groups.last().and_then(|group| group.segment.clone());
        let fault = sync(shared, segment.as_deref(), through);
        drop(segment);
        for group in groups {
            drop(group.segment);
            group.ready.into_iter().for_each(|ready| ready.give(fault.as_ref()));
        }
    }
}

fn sync(shared: &Shared, segment: Option<&Segment>, through: u64) -> Option<StoreError> {
    if let Some(cause) = shared.poisoned() {
        return Some(StoreError::Poisoned { cause });
    }
    if through <= shared.synced.load(Ordering::Acquire) {
        return None;
    }
    let segment = segment?;
    shared.syncs.fetch_add(1, Ordering::Relaxed);
    match segment.sync() {
        Ok(()) => {
            shared.synced.fetch_max(through, Ordering::AcqRel);
            None
        }
        Err(error) => {
            // What a failed sync left on disk nobody knows; trying again would only hide it.
            let cause = format!("{}: sync: {error}", segment::file_name(segment.number));
            shared.poison(cause.clone());
            Some(StoreError::Poisoned { cause })
        }
    }
}

pub(crate) fn chore_loop(chores: &Receiver<Chore>, disk: &dyn Disk) {
    for chore in chores {
        // A cache not written or a file not removed is made good at the next opening.
        let _ = chore.run(disk);
    }
}
