//! Submitters that wait for room in a full queue, queue by queue, first come, first served.
//!
//! A submitter waits only while no attempt of its own is under way. If it is refused again, it keeps its place. A
//! submitter that leaves passes its wake-up on. The wake generation of a queue shows whether there was new room since
//! the refusal.

use parking_lot::{Mutex, MutexGuard};
use std::collections::{BTreeMap, HashMap};
use tokio::sync::oneshot;
use towline_domain::{QueueEffects, QueueName};

#[derive(Default)]
pub(crate) struct SubmitWaiters(Mutex<Queues>);

#[derive(Default)]
struct Queues {
    queues: HashMap<QueueName, QueueWaiters>,
    /// For generations and tickets: no number is used twice.
    numbers: u64,
}

struct QueueWaiters {
    waiters: BTreeMap<u64, oneshot::Sender<()>>,
    generation: u64,
    guards: usize,
}

/// A submitter's stay at a queue. When it is dropped, the submitter leaves and the next one is woken.
pub(crate) struct SubmitterGuard<'a> {
    submitters: &'a SubmitWaiters,
    queue: &'a QueueName,
    ticket: u64,
}

impl SubmitWaiters {
    fn lock(&self) -> MutexGuard<'_, Queues> {
        self.0.lock()
    }

    pub(crate) fn enter<'a>(&'a self, queue: &'a QueueName) -> SubmitterGuard<'a> {
        let mut all = self.lock();
        all.numbers += 1;
        let ticket = all.numbers;
        let new = || QueueWaiters { waiters: BTreeMap::new(), generation: ticket, guards: 0 };
        all.queues.entry(queue.clone()).or_insert_with(new).guards += 1;
        SubmitterGuard { submitters: self, queue, ticket }
    }

    #[cfg(test)]
    fn is_empty(&self) -> bool {
        self.lock().queues.is_empty()
    }

    /// Wakes submitters for what a batch did to their queue.
    pub(crate) fn apply(&self, queue: &QueueName, effects: &QueueEffects) {
        let ended = effects.completed || effects.deleted;
        let room = if ended { u64::MAX } else { effects.depth_freed.max(u64::from(effects.reconfigured)) };
        if room > 0 {
            self.wake(queue, usize::try_from(room).unwrap_or(usize::MAX));
        }
    }

    /// Wakes submitters of a queue that may have room for this number of items.
    fn wake(&self, queue: &QueueName, count: usize) {
        let mut all = self.lock();
        if all.queues.is_empty() {
            return;
        }
        all.numbers += 1;
        let generation = all.numbers;
        if let Some(waiting) = all.queues.get_mut(queue) {
            waiting.wake(generation, count);
        }
    }

    /// Wakes all submitters for a last attempt: the broker stops.
    pub(crate) fn dismiss(&self) {
        let mut all = self.lock();
        all.numbers += 1;
        let generation = all.numbers;
        all.queues.values_mut().for_each(|waiting| waiting.wake(generation, usize::MAX));
    }
}

impl QueueWaiters {
    fn wake(&mut self, generation: u64, count: usize) {
        self.generation = generation;
        let mut woken = 0;
        while woken < count
            && let Some((_, waiter)) = self.waiters.pop_first()
        {
            // Skip submitters that have disconnected.
            woken += usize::from(waiter.send(()).is_ok());
        }
    }
}

impl SubmitterGuard<'_> {
    /// Read this before an attempt, and pass it to [`SubmitterGuard::join`] after it.
    pub(crate) fn generation(&self) -> u64 {
        self.submitters.lock().queues.get(self.queue).map_or(0, |waiting| waiting.generation)
    }

    /// Waits; `None`: an attempt might succeed now.
    pub(crate) fn join(&self, seen: u64) -> Option<oneshot::Receiver<()>> {
        let mut all = self.submitters.lock();
        let waiting = all.queues.get_mut(self.queue).filter(|waiting| waiting.generation == seen)?;
        let (wake, woken) = oneshot::channel();
        waiting.waiters.insert(self.ticket, wake);
        Some(woken)
    }

    pub(crate) fn is_first(&self) -> bool {
        let all = self.submitters.lock();
        let first = all.queues.get(self.queue).and_then(|waiting| waiting.waiters.first_key_value());
        first.is_some_and(|(ticket, _)| *ticket == self.ticket)
    }
}

impl Drop for SubmitterGuard<'_> {
    fn drop(&mut self) {
        let mut all = self.submitters.lock();
        all.numbers += 1;
        let generation = all.numbers;
        let Some(waiting) = all.queues.get_mut(self.queue) else { return };
        waiting.waiters.remove(&self.ticket);
        waiting.guards = waiting.guards.saturating_sub(1);
        if waiting.guards == 0 {
            all.queues.remove(self.queue);
        } else {
            // Pass on a wake-up that it may not have used.
            waiting.wake(generation, 1);
        }
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "tests")]
mod tests {
    use super::*;

    fn queue() -> QueueName {
        "jobs".parse().unwrap()
    }

    #[test]
    fn room_wakes_as_many_submitters_in_their_order() {
        let (waiters, queue) = (SubmitWaiters::default(), queue());
        let guards = [waiters.enter(&queue), waiters.enter(&queue), waiters.enter(&queue)];
        let mut woken: Vec<_> = guards.iter().map(|guard| guard.join(guard.generation()).unwrap()).collect();
        waiters.wake(&queue, 2);
        let is_woken: Vec<bool> = woken.iter_mut().map(|woken| woken.try_recv().is_ok()).collect();
        assert_eq!(is_woken, [true, true, false]);
    }

    #[test]
    fn room_made_between_a_refusal_and_joining_is_not_missed() {
        let (waiters, queue) = (SubmitWaiters::default(), queue());
        let guard = waiters.enter(&queue);
        let before = guard.generation();
        waiters.wake(&queue, 1);
        assert!(guard.join(before).is_none());
        assert!(guard.join(guard.generation()).is_some());
    }

    #[test]
    fn a_submitter_that_is_refused_again_keeps_its_place() {
        let (waiters, queue) = (SubmitWaiters::default(), queue());
        let (first, second) = (waiters.enter(&queue), waiters.enter(&queue));
        let mut later = second.join(second.generation()).unwrap();
        let mut again = first.join(first.generation()).unwrap();
        waiters.wake(&queue, 1);
        assert!(again.try_recv().is_ok() && later.try_recv().is_err());
    }

    #[test]
    fn a_submitter_that_leaves_passes_its_wake_up_on() {
        let (waiters, queue) = (SubmitWaiters::default(), queue());
        let (first, second) = (waiters.enter(&queue), waiters.enter(&queue));
        let woken = first.join(first.generation()).unwrap();
        let mut next = second.join(second.generation()).unwrap();
        waiters.wake(&queue, 1);
        drop((woken, first));
        assert!(next.try_recv().is_ok());
        drop(second);
        assert!(waiters.is_empty());
    }
}
