//! Carries out what is due. Asks the store when that is, sleeps until then, and never scans.

use crate::broker::Shared;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Weak};
use std::time::Duration;
use tokio::sync::Notify;
use towline_domain::Timestamp;
use towline_store::Operation;

/// Minimum time between two questions to the store after updates: a lease may lapse this much late.
const ASK_EVERY: Duration = Duration::from_millis(25);
/// The longest sleep. The store's clock may be ahead of this server's, and would be waited for too long.
const SLEEP_MAX: Duration = Duration::from_secs(5);
/// How long to wait after a fault of the store.
const AFTER_FAULT: Duration = Duration::from_secs(1);

/// Wakes the sweeper before its time.
pub(crate) struct SweepTimer {
    /// When the sweeper will wake.
    set_for: AtomicU64,
    /// The earliest time at which an update since then makes an item ready. The store's `next_wake` does not return
    /// times that have passed.
    due: AtomicU64,
    updated: AtomicBool,
    wake: Notify,
}

impl Default for SweepTimer {
    fn default() -> SweepTimer {
        SweepTimer {
            set_for: AtomicU64::new(u64::MAX),
            due: AtomicU64::new(u64::MAX),
            updated: AtomicBool::new(false),
            wake: Notify::new(),
        }
    }
}

impl SweepTimer {
    /// Records an update that may make an item ready at a known time.
    pub(crate) fn updated(&self, due: Option<Timestamp>) {
        let due = due.map_or(u64::MAX, |due| due.0);
        self.due.fetch_min(due, Ordering::AcqRel);
        // Wake it for the first update since it last asked the store, and for an earlier time than it knows.
        let first = !self.updated.swap(true, Ordering::AcqRel);
        if first || due < self.set_for.load(Ordering::Acquire) {
            self.wake.notify_one();
        }
    }

    pub(crate) fn wake(&self) {
        self.wake.notify_one();
    }
}

pub(crate) async fn run(shared: Weak<Shared>) {
    // The time of the last sweep.
    let mut swept = 0;
    loop {
        let Some(broker) = shared.upgrade() else { return };
        if broker.is_stopping() {
            return;
        }
        let timer = &broker.sweep_timer;
        timer.updated.store(false, Ordering::Release);
        let due = timer.due.swap(u64::MAX, Ordering::AcqRel);
        let at = match broker.store.next_wake().await {
            Ok(at) => at.map_or(due, |at| at.0.min(due)),
            Err(_) => {
                timer.due.fetch_min(due, Ordering::AcqRel);
                tokio::time::sleep(AFTER_FAULT).await;
                continue;
            }
        };
        timer.set_for.store(at, Ordering::Release);
        let woken = if at == u64::MAX {
            timer.wake.notified().await;
            true
        } else {
            let sleep = Duration::from_millis(Timestamp(at).since(broker.clock.now()).0).min(SLEEP_MAX);
            !sleep.is_zero() && tokio::time::timeout(sleep, timer.wake.notified()).await.is_ok()
        };
        if broker.is_stopping() {
            return;
        }
        if woken {
            timer.due.fetch_min(at, Ordering::AcqRel);
            tokio::time::sleep(ASK_EVERY).await;
        } else if Arc::clone(&broker).update(vec![Operation::Sweep]).await.is_err() {
            timer.due.fetch_min(at, Ordering::AcqRel);
            tokio::time::sleep(AFTER_FAULT).await;
        } else if std::mem::replace(&mut swept, at) == at {
            // By the store's own clock it is too early.
            tokio::time::sleep(ASK_EVERY).await;
        }
    }
}
