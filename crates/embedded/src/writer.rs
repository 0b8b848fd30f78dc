//! The threads that drive the engine: the writer thread decides and writes, the sync thread syncs and answers, the chore
//! thread does the chores.
//!
//! While the sync thread syncs a group, the writer thread prepares the next one. So many callers share a sync under load. If
//! no other request waits, the writer thread syncs by itself.

use crate::engine::{Chore, Engine};
use crate::log::disk::Disk;
use crate::log::segment::{self, Segment, SegmentHeader};
use crate::met_damage::MetDamage;
use crate::options::Durability;
use crate::outcome::{CallOutcome, Found, Query};
use crossbeam_channel::{Receiver, RecvTimeoutError, Sender, TryRecvError};
use futures::channel::oneshot;
use parking_lot::Mutex;
use std::sync::Arc;
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
    /// Seal the log and pin its segments, for a backup.
    Hold {
        reply: oneshot::Sender<Answer<Vec<PinnedSegment>>>,
    },
    Stop,
}

/// A sealed segment that the store does not overwrite while a backup copies it.
#[derive(Debug)]
pub(crate) struct PinnedSegment {
    pub(crate) segment: Arc<Segment>,
    pub(crate) header: SegmentHeader,
    pub(crate) end: u64,
}

/// State shared by the threads and the handle.
#[derive(Default)]
pub(crate) struct Shared {
    /// The last frame that is durable.
    synced: AtomicU64,
    pub(crate) syncs: AtomicU64,
    pub(crate) waiting_bytes: AtomicUsize,
    poisoned: Mutex<Option<String>>,
    pub(crate) damage: MetDamage,
}

impl Shared {
    fn poison(&self, cause: String) {
        self.poisoned.lock().get_or_insert(cause);
    }

    fn poisoned(&self) -> Option<String> {
        self.poisoned.lock().clone()
    }
}

/// An answer that waits for its group to be durable.
enum Ready {
    Update(oneshot::Sender<Answer<CallOutcome>>, Answer<CallOutcome>),
    Query(oneshot::Sender<Answer<Found>>, Answer<Found>),
    Hold(oneshot::Sender<Answer<Vec<PinnedSegment>>>, Answer<Vec<PinnedSegment>>),
}

impl Ready {
    /// Sends the answer, or the fault. A caller that has gone away is ignored.
    fn send(self, fault: Option<&StoreError>) {
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

/// A group that is written and not synced yet.
pub(crate) struct Written {
    segment: Option<Arc<Segment>>,
    through: u64,
    ready: Vec<Ready>,
}

/// Maximum number of requests in a group.
const GATHER_MAX: usize = 1024;
/// Bytes that collection carries forward with each group, in addition to twice the bytes of the group.
const COLLECT_BYTES: usize = 64 << 10;
const COLLECT_IDLE_BYTES: usize = 512 << 10;
/// The writer thread marks the end of the log after this long without requests.
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
    /// The last frame that was handed to the sync thread.
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
                // Nothing to do until the next request.
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
            let running = !matches!(next, Some(Request::Stop)) && self.group(next);
            if !running {
                return self.stop();
            }
        }
    }

    /// Marks the end of the log after a while without requests, and reclaims emptied segments.
    fn quiet(&mut self, marked: u64) -> u64 {
        self.take_progress();
        if self.engine.check_poison().is_err() {
            return self.engine.written();
        }
        // A failure poisons the engine, and the next request gets the error.
        let mark = if self.engine.written() == marked { Ok(marked) } else { self.engine.mark() };
        if let Ok(through) = mark
            && self.engine.is_reclaiming()
        {
            // Emptied segments are free once this frame is durable.
            self.handed = through;
            let written = Written { segment: self.engine.active(), through, ready: Vec::new() };
            let _ = self.written.send(written);
        }
        self.send_chores();
        mark.unwrap_or(marked)
    }

    /// Takes over the progress or the failure of the sync thread.
    fn take_progress(&mut self) {
        if let Some(cause) = self.shared.poisoned() {
            self.engine.poison(&cause);
        }
        self.engine.note_synced(self.shared.synced.load(Ordering::Acquire));
    }

    fn send_chores(&mut self) {
        for chore in self.engine.take_chores() {
            // If the chore thread has ended, the next opening makes up for the chores.
            let _ = self.chores.send(chore);
        }
    }

    /// Runs and writes one group. Returns whether to continue.
    fn group(&mut self, first: Option<Request>) -> bool {
        self.take_progress();
        let idle = first.is_none();
        let begun = self.engine.begin(self.clock.now());
        let before = self.engine.bytes_pending();
        let mut ready = Vec::new();
        let mut running = true;
        let mut next = first;
        while let Some(request) = next.take() {
            match request {
                Request::Stop => {
                    running = false;
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
                    // Waking the sync thread would take longer than preparing the next group saves.
                    let fault = sync(&self.shared, segment.as_deref(), through);
                    ready.into_iter().for_each(|ready| ready.send(fault.as_ref()));
                    return running;
                }
                self.handed = through;
                if let Err(unsent) = self.written.send(Written { segment, through, ready }) {
                    unsent.0.ready.into_iter().for_each(|ready| ready.send(Some(&StoreError::Closed)));
                    return false;
                }
            }
            Err(fault) => {
                // Groups that are not synced yet fail, too: the failure may concern their bytes.
                if let Err(StoreError::Poisoned { cause }) = self.engine.check_poison() {
                    self.shared.poison(cause);
                }
                ready.into_iter().for_each(|ready| ready.send(Some(&fault)));
            }
        }
        running
    }

    /// Whether no other request waits and all earlier groups are durable.
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
        // A call has its own time, not that of its group: a lease may have lapsed since the group began.
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

    /// Makes the log durable and marks its end.
    fn stop(mut self) {
        // After this, a poisoned engine writes and syncs nothing.
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

/// Syncs written groups and sends their answers.
pub(crate) fn sync_loop(written: &Receiver<Written>, shared: &Shared, durability: Durability) {
    while let Ok(first) = written.recv() {
        let mut groups = vec![first];
        groups.extend(written.try_iter());
        if let Durability::Interval(interval) = durability {
            // The bytes are in the operating system's cache, which is enough for an answer. The sync follows.
            let mut through = 0;
            let mut segment = None;
            let deadline = crossbeam_channel::after(interval);
            loop {
                for group in groups.drain(..) {
                    (through, segment) = (group.through, group.segment);
                    group.ready.into_iter().for_each(|ready| ready.send(None));
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
        // The writer thread syncs a segment before it rotates, so a sync of the last segment is enough.
        let segment = groups.last().and_then(|group| group.segment.clone());
        let fault = sync(shared, segment.as_deref(), through);
        drop(segment);
        for group in groups {
            drop(group.segment);
            group.ready.into_iter().for_each(|ready| ready.send(fault.as_ref()));
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
            // After a failed sync the content of the disk is unknown. Another sync would succeed and hide the failure.
            let cause = format!("{}: sync: {error}", segment::file_name(segment.number));
            shared.poison(cause.clone());
            Some(StoreError::Poisoned { cause })
        }
    }
}

pub(crate) fn chore_loop(chores: &Receiver<Chore>, disk: &dyn Disk) {
    for chore in chores {
        // The next opening makes up for a missing sidecar or a file that was not removed.
        let _ = chore.run(disk);
    }
}
