//! Submitters that wait for room in a full queue, a line a queue.
//!
//! A submitter stands in line only while no attempt of its own is under way; it keeps its place when it is refused again. Who
//! is woken looks; who leaves, however, lets the next one look. A line's epoch tells whether room was made between a refusal and
//! joining.

use std::collections::{BTreeMap, HashMap};
use std::sync::{Mutex, MutexGuard, PoisonError};
use tokio::sync::oneshot;
use towline_domain::QueueName;

#[derive(Default)]
pub(crate) struct Room(Mutex<All>);

#[derive(Default)]
struct All {
    lines: HashMap<QueueName, Line>,
    /// For epochs and tickets: no number is used twice.
    numbers: u64,
}

struct Line {
    waiters: BTreeMap<u64, oneshot::Sender<()>>,
    epoch: u64,
    visits: usize,
}

/// A submitter's dealings with one line. Dropped, it leaves, and the next in line looks.
pub(crate) struct Visit<'a> {
    room: &'a Room,
    queue: &'a QueueName,
    ticket: u64,
}

impl Room {
    fn lock(&self) -> MutexGuard<'_, All> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn visit<'a>(&'a self, queue: &'a QueueName) -> Visit<'a> {
        let mut all = self.lock();
        all.numbers += 1;
        let ticket = all.numbers;
        let new = || Line { waiters: BTreeMap::new(), epoch: ticket, visits: 0 };
        all.lines.entry(queue.clone()).or_insert_with(new).visits += 1;
        Visit { room: self, queue, ticket }
    }

    #[cfg(test)]
    fn is_empty(&self) -> bool {
        self.lock().lines.is_empty()
    }

    /// There may be room for so many items in a queue.
    pub(crate) fn made(&self, queue: &QueueName, count: usize) {
        let mut all = self.lock();
        if all.lines.is_empty() {
            return;
        }
        all.numbers += 1;
        let epoch = all.numbers;
        if let Some(line) = all.lines.get_mut(queue) {
            line.made(epoch, count);
        }
    }

    /// There may be room anywhere.
    pub(crate) fn made_anywhere(&self) {
        let mut all = self.lock();
        all.numbers += 1;
        let epoch = all.numbers;
        all.lines.values_mut().for_each(|line| line.made(epoch, 1));
    }

    /// Everybody looks once more.
    pub(crate) fn dismiss(&self) {
        let mut all = self.lock();
        all.numbers += 1;
        let epoch = all.numbers;
        all.lines.values_mut().for_each(|line| line.made(epoch, usize::MAX));
    }
}

impl Line {
    fn made(&mut self, epoch: u64, count: usize) {
        self.epoch = epoch;
        let mut woken = 0;
        while woken < count
            && let Some((_, waiter)) = self.waiters.pop_first()
        {
            // Who does not listen any more made room for the next.
            woken += usize::from(waiter.send(()).is_ok());
        }
    }
}

impl Visit<'_> {
    /// To be read before an attempt, and given to [`Visit::join`] after it.
    pub(crate) fn epoch(&self) -> u64 {
        self.room.lock().lines.get(self.queue).map_or(0, |line| line.epoch)
    }

    /// Stands in line; `None`: an attempt might succeed now.
    pub(crate) fn join(&self, epoch: u64) -> Option<oneshot::Receiver<()>> {
        let mut all = self.room.lock();
        let line = all.lines.get_mut(self.queue).filter(|line| line.epoch == epoch)?;
        let (wake, woken) = oneshot::channel();
        line.waiters.insert(self.ticket, wake);
        Some(woken)
    }
}

impl Visit<'_> {
    pub(crate) fn is_first(&self) -> bool {
        let all = self.room.lock();
        let first = all.lines.get(self.queue).and_then(|line| line.waiters.first_key_value());
        first.is_some_and(|(ticket, _)| *ticket == self.ticket)
    }
}

impl Drop for Visit<'_> {
    fn drop(&mut self) {
        let mut all = self.room.lock();
        all.numbers += 1;
        let epoch = all.numbers;
        let Some(line) = all.lines.get_mut(self.queue) else { return };
        line.waiters.remove(&self.ticket);
        line.visits = line.visits.saturating_sub(1);
        if line.visits == 0 {
            all.lines.remove(self.queue);
        } else {
            // It may have been woken for room that it did not need.
            line.made(epoch, 1);
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
    fn as_many_are_woken_as_there_is_room_for_first_come_first_served() {
        let (room, queue) = (Room::default(), queue());
        let visits = [room.visit(&queue), room.visit(&queue), room.visit(&queue)];
        let mut woken: Vec<_> = visits.iter().map(|visit| visit.join(visit.epoch()).unwrap()).collect();
        room.made(&queue, 2);
        let heard: Vec<bool> = woken.iter_mut().map(|woken| woken.try_recv().is_ok()).collect();
        assert_eq!(heard, [true, true, false]);
    }

    #[test]
    fn room_made_between_a_refusal_and_joining_is_not_missed() {
        let (room, queue) = (Room::default(), queue());
        let visit = room.visit(&queue);
        let before = visit.epoch();
        room.made(&queue, 1);
        assert!(visit.join(before).is_none());
        assert!(visit.join(visit.epoch()).is_some());
    }

    #[test]
    fn who_is_refused_again_keeps_its_place() {
        let (room, queue) = (Room::default(), queue());
        let (first, second) = (room.visit(&queue), room.visit(&queue));
        let mut later = second.join(second.epoch()).unwrap();
        let mut again = first.join(first.epoch()).unwrap();
        room.made(&queue, 1);
        assert!(again.try_recv().is_ok() && later.try_recv().is_err());
    }

    #[test]
    fn who_leaves_lets_the_next_look_and_the_last_leaves_nothing() {
        let (room, queue) = (Room::default(), queue());
        let (first, second) = (room.visit(&queue), room.visit(&queue));
        let woken = first.join(first.epoch()).unwrap();
        let mut next = second.join(second.epoch()).unwrap();
        room.made(&queue, 1);
        drop((woken, first));
        assert!(next.try_recv().is_ok());
        drop(second);
        assert!(room.is_empty());
    }
}
