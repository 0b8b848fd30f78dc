//! The attempts that run in this process.

use super::Engine;
use crate::clock::Time;
use crate::envelope::Envelope;
use crate::ports::{Lease, Queue};
use crate::work::Kind;
use parking_lot::{Mutex, MutexGuard};
use rustc_hash::FxHashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use tokio::sync::Notify;

/// One attempt at a piece of work.
#[derive(Clone)]
pub(crate) struct Attempt {
    pub(crate) envelope: Arc<Envelope>,
    pub(crate) kind: Arc<Kind>,
    /// Starts at 1.
    pub(crate) number: u32,
    pub(crate) source: Source,
}

/// Where the work of an attempt came from.
#[derive(Clone)]
pub(crate) enum Source {
    Queue(Arc<dyn Queue>, Lease),
    /// This process submitted it without a queue ([`crate::Options::skip_queue`]).
    Local,
}

/// An attempt, and whether it is over: it ended, was cancelled, or lost its lease.
pub(crate) struct RunningAttempt {
    pub(crate) attempt: Attempt,
    is_over: AtomicBool,
    over: Notify,
    lease_lost: AtomicBool,
}

impl RunningAttempt {
    fn new(attempt: Attempt) -> Arc<RunningAttempt> {
        Arc::new(RunningAttempt {
            attempt,
            is_over: AtomicBool::new(false),
            over: Notify::new(),
            lease_lost: AtomicBool::new(false),
        })
    }

    pub(crate) fn is_over(&self) -> bool {
        self.is_over.load(Ordering::SeqCst)
    }

    /// Returns when the attempt is over.
    pub(crate) async fn over(&self) {
        let over = self.over.notified();
        if !self.is_over() {
            over.await;
        }
    }

    fn end(&self) {
        self.is_over.store(true, Ordering::SeqCst);
        self.over.notify_waiters();
    }

    pub(super) fn lose_lease(&self) {
        self.lease_lost.store(true, Ordering::SeqCst);
        self.end();
    }

    pub(super) fn is_lease_lost(&self) -> bool {
        self.lease_lost.load(Ordering::SeqCst)
    }
}

/// All attempts that run in this process.
#[derive(Default)]
pub(super) struct RunningAttempts(Mutex<Table>);

#[derive(Default)]
struct Table {
    serial: u64,
    entries: FxHashMap<u64, TableEntry>,
    /// A heartbeat task runs. It ends when the table is empty.
    has_heartbeat: bool,
    /// The engine has stopped: running and new attempts are over.
    cancelled: bool,
}

struct TableEntry {
    running: Arc<RunningAttempt>,
    /// When the lease began or was last renewed.
    renewed_at: Time,
}

impl RunningAttempts {
    fn lock(&self) -> MutexGuard<'_, Table> {
        self.0.lock()
    }

    pub(super) fn cancel_all(&self) {
        let mut table = self.lock();
        table.cancelled = true;
        table.entries.values().for_each(|entry| entry.running.end());
    }

    pub(super) fn contains(&self, number: u64) -> bool {
        self.lock().entries.contains_key(&number)
    }

    /// The attempts that were last renewed at or before `renewed_before`. Marks them as renewed now.
    pub(super) fn take_due(&self, renewed_before: Time, now: Time) -> Vec<(u64, Arc<RunningAttempt>)> {
        let mut table = self.lock();
        let due = table.entries.iter_mut().filter(|(_, entry)| entry.renewed_at <= renewed_before);
        due.map(|(number, entry)| {
            entry.renewed_at = now;
            (*number, Arc::clone(&entry.running))
        })
        .collect()
    }

    /// Returns `true` if no attempt runs. The heartbeat task then ends, and the next attempt starts a new one.
    pub(super) fn ends_heartbeat(&self) -> bool {
        let mut table = self.lock();
        table.has_heartbeat = !table.entries.is_empty();
        !table.has_heartbeat
    }
}

/// Keeps an attempt in the table. Dropping it ends the attempt.
pub(super) struct RunningGuard {
    pub(super) engine: Arc<Engine>,
    pub(super) running: Arc<RunningAttempt>,
    number: u64,
}

impl Drop for RunningGuard {
    fn drop(&mut self) {
        let mut table = self.engine.running.lock();
        table.entries.remove(&self.number);
        let is_last = table.entries.is_empty();
        drop(table);
        self.running.end();
        // The poll loop receives several items at a time: a wake-up is useless until there is room for several.
        if is_last || self.engine.receive_budget() > 0 {
            self.engine.attempt_ended.notify_one();
            self.engine.attempt_ended.notify_waiters();
        }
    }
}

impl Engine {
    /// Adds an attempt to the table. Must not be called within a handler: a handler may block its thread, and the
    /// heartbeat task that is started here must not run on that thread.
    pub(super) fn add_running(self: &Arc<Engine>, attempt: Attempt) -> RunningGuard {
        let (running, renewed_at) = (RunningAttempt::new(attempt), self.clock.now());
        let mut table = self.running.lock();
        table.serial += 1;
        let number = table.serial;
        table.entries.insert(number, TableEntry { running: Arc::clone(&running), renewed_at });
        if table.cancelled {
            running.end();
        }
        let starts_heartbeat = !std::mem::replace(&mut table.has_heartbeat, true);
        drop(table);
        if starts_heartbeat {
            tokio::spawn(Arc::clone(self).send_heartbeats());
        }
        RunningGuard { engine: Arc::clone(self), running, number }
    }

    pub(crate) fn running_count(&self) -> u64 {
        self.running.lock().entries.len() as u64
    }
}
