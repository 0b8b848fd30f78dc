//! What is held here: leases are kept alive together, and whoever holds one learns when that is over.
//!
//! One task beats for all of them, not each for itself: most are over before their first beat, and a handler that never
//! lets go of its thread keeps its lease, too.

use super::Shared;
use super::settle::{From, Held};
use crate::clock::Time;
use crate::ports::PortError;
use rustc_hash::FxHashMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;
use tokio::sync::Notify;

/// Looks so often in the time of a lease. What was held or kept this long ago is kept, so that no lease is older than two
/// such times.
const LOOKS: u32 = 6;

#[derive(Default)]
pub(super) struct Keeper(Mutex<Kept>);

#[derive(Default)]
struct Kept {
    serial: u64,
    held: FxHashMap<u64, Keep>,
    /// Somebody beats, and ends when nothing is held.
    beating: bool,
    /// What still runs is dropped, and so is what comes.
    cut: bool,
}

struct Keep {
    holding: Arc<Holding>,
    /// It was taken, or kept, then.
    since: Time,
}

/// A piece of work in the hands of this process, and whether it still is.
pub(crate) struct Holding {
    pub(crate) held: Held,
    is_over: AtomicBool,
    over: Notify,
    lost: AtomicBool,
}

impl Holding {
    fn new(held: Held) -> Arc<Holding> {
        let (is_over, lost) = (AtomicBool::new(false), AtomicBool::new(false));
        Arc::new(Holding { held, is_over, over: Notify::new(), lost })
    }

    /// Its answer will not be taken any more, or has been.
    pub(crate) fn is_over(&self) -> bool {
        self.is_over.load(Ordering::SeqCst)
    }

    /// Ends when it is over.
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

    fn lose(&self) {
        self.lost.store(true, Ordering::SeqCst);
        self.end();
    }

    pub(super) fn is_lost(&self) -> bool {
        self.lost.load(Ordering::SeqCst)
    }
}

/// It is held while this exists.
pub(super) struct Hold {
    pub(super) shared: Arc<Shared>,
    pub(super) holding: Arc<Holding>,
    number: u64,
}

impl Drop for Hold {
    fn drop(&mut self) {
        let mut kept = self.shared.keeper.lock();
        kept.held.remove(&self.number);
        let is_last = kept.held.is_empty();
        drop(kept);
        self.holding.end();
        // Who polls takes several at a time: there is no use in telling of each.
        if is_last || self.shared.budget() > 0 {
            self.shared.room.notify_one();
            self.shared.room.notify_waiters();
        }
    }
}

impl Keeper {
    fn lock(&self) -> MutexGuard<'_, Kept> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Everything that is held is over.
    pub(super) fn cut(&self) {
        let mut kept = self.lock();
        kept.cut = true;
        kept.held.values().for_each(|keep| keep.holding.end());
    }

    /// What was not kept since; from now on it was.
    fn due(&self, before: Time, now: Time) -> Vec<(u64, Arc<Holding>)> {
        let mut kept = self.lock();
        let due = kept.held.iter_mut().filter(|(_, keep)| keep.since <= before);
        due.map(|(number, keep)| {
            keep.since = now;
            (*number, Arc::clone(&keep.holding))
        })
        .collect()
    }

    /// Whether nothing is held. Then somebody else begins to beat when something is.
    fn rests(&self) -> bool {
        let mut kept = self.lock();
        kept.beating = !kept.held.is_empty();
        !kept.beating
    }
}

impl Shared {
    /// Not from within a piece of work: what beats is not begun on a thread that a handler may not let go of.
    pub(super) fn hold(self: &Arc<Shared>, held: Held) -> Hold {
        let (holding, since) = (Holding::new(held), self.clock.now());
        let mut kept = self.keeper.lock();
        kept.serial += 1;
        let number = kept.serial;
        kept.held.insert(number, Keep { holding: Arc::clone(&holding), since });
        if kept.cut {
            holding.end();
        }
        let begins = !std::mem::replace(&mut kept.beating, true);
        drop(kept);
        if begins {
            tokio::spawn(Arc::clone(self).beat());
        }
        Hold { shared: Arc::clone(self), holding, number }
    }

    /// How many pieces of work are held.
    pub(crate) fn running(&self) -> u64 {
        self.keeper.lock().held.len() as u64
    }

    async fn beat(self: Arc<Shared>) {
        let pause = self.config.visibility / LOOKS;
        while !self.keeper.rests() {
            self.sleep(pause).await;
            let now = self.clock.now();
            for (number, holding) in self.keeper.due(before(now, pause), now) {
                // Each for itself: one that takes its time does not hold up the others.
                tokio::spawn(Arc::clone(&self).keep(number, holding));
            }
        }
    }

    async fn keep(self: Arc<Shared>, number: u64, holding: Arc<Holding>) {
        let From::Queue(queue, lease) = &holding.held.from else { return };
        match queue.heartbeat(lease, self.config.visibility).await {
            Ok(()) => {}
            // It may have been settled meanwhile: then it is not held any more.
            Err(PortError::LeaseLost) => {
                if self.keeper.lock().held.contains_key(&number) {
                    holding.lose();
                }
            }
            Err(error) => self.trouble("keeping a lease", &error),
        }
    }
}

fn before(now: Time, span: Duration) -> Time {
    Time(now.0.saturating_sub(u64::try_from(span.as_millis()).unwrap_or(u64::MAX)))
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "tests")]
mod tests {
    use crate::{Outcome, System, work};
    use std::time::Duration;

    /// By the machine's clock: nothing else runs on a thread that is not let go of.
    #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
    async fn who_does_not_let_go_of_its_thread_keeps_its_lease() {
        let slow = work("slow", |(): (), context: crate::Context| async move {
            std::thread::sleep(Duration::from_secs(4));
            Ok(Outcome::Result(context.attempt()))
        });
        let system = System::in_memory().work(&slow).visibility(Duration::from_millis(1500)).start().unwrap();
        let attempt = system.queue(slow.of(())).await.unwrap().result().await.unwrap();
        assert_eq!((attempt, system.stats().lost, system.stats().started), (1, 0, 1));
        system.stop(Duration::from_secs(5)).await;
    }

    #[tokio::test]
    async fn a_handler_that_panics_before_it_waits_ends_its_work_alone() {
        let bad = work("bad", |n: u32, _| {
            assert!(n == 0, "not {n}");
            async { Ok(Outcome::<()>::Void) }
        });
        let once = crate::Options::new().retry(crate::Retry { attempts: 1, ..crate::Retry::default() });
        let system = System::in_memory().work(&bad).start().unwrap();
        let error = system.queue(bad.of(7).options(once)).await.unwrap().done().await.unwrap_err();
        assert!(error.to_string().contains("panicked: not 7"), "{error}");
        system.queue(bad.of(0)).await.unwrap().done().await.unwrap();
        assert!(system.stop(Duration::from_secs(5)).await);
    }
}
