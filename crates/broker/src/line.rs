//! Receivers in line, a line a queue.
//!
//! A waiter is in its line only while no attempt of its own is under way. An attempt that comes back empty joins the
//! line, unless something may have become ready meanwhile: the line's epoch tells.

use crate::broker::Shared;
use std::collections::{HashMap, VecDeque};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use tokio::sync::oneshot;
use towline_domain::command::When;
use towline_domain::{Item, QueueName, QueueState};
use towline_store::{ReceiveCall, Received};

/// Items on their way to a receiver. **Invariant:** dropped without being accepted, they go back to their queue.
pub(crate) struct Handed {
    received: Option<Received>,
    state: QueueState,
    broker: Arc<Shared>,
}

impl Handed {
    pub(crate) fn new(broker: &Arc<Shared>, received: Received) -> Handed {
        Handed { state: received.queue, received: Some(received), broker: Arc::clone(broker) }
    }

    pub(crate) fn accept(mut self) -> Received {
        self.received.take().unwrap_or(Received { queue: self.state, items: Vec::new() })
    }

    pub(crate) fn items_mut(&mut self) -> &mut Vec<Item> {
        &mut self.received.get_or_insert_with(|| Received { queue: self.state, items: Vec::new() }).items
    }

    pub(crate) fn state(&self) -> QueueState {
        self.state
    }

    pub(crate) fn is_completed(&self) -> bool {
        matches!(self.state, QueueState::Completed { .. })
    }

    /// Worth handing over: items, or the news that there will be none.
    pub(crate) fn is_useful(&self) -> bool {
        self.is_completed() || self.received.as_ref().is_some_and(|received| !received.items.is_empty())
    }
}

impl Drop for Handed {
    fn drop(&mut self) {
        if let Some(received) = self.received.take().filter(|received| !received.items.is_empty()) {
            Arc::clone(&self.broker).give_back(received.items, When::NOW);
        }
    }
}

/// What an attempt on a waiter's behalf brought.
pub(crate) enum Attempt {
    Received(Handed),
    /// Worth a new attempt of its own.
    TryAgain,
}

/// A receiver that found nothing and waits.
pub(crate) struct Waiter {
    pub(crate) call: Box<ReceiveCall>,
    pub(crate) hand_over: oneshot::Sender<Attempt>,
}

impl Waiter {
    /// A waiter that is gone drops what it is given, and it goes back.
    pub(crate) fn give(self, attempt: Attempt) {
        let _ = self.hand_over.send(attempt);
    }

    pub(crate) fn try_again(self) {
        self.give(Attempt::TryAgain);
    }
}

/// A place in a line.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
struct Ticket(u64);

struct Line {
    /// In order of their tickets.
    waiters: VecDeque<(Ticket, Waiter)>,
    /// Another number each time something may have become ready.
    epoch: u64,
    /// As last seen: a closed queue may complete at any settle.
    closed: bool,
    /// Receivers in line or about to be.
    visits: usize,
}

#[derive(Default)]
struct All {
    lines: HashMap<QueueName, Line>,
    /// For epochs and tickets: no number is used twice, also not by a line that was forgotten and begun again.
    numbers: u64,
}

impl All {
    fn number(&mut self) -> u64 {
        self.numbers += 1;
        self.numbers
    }
}

#[derive(Default)]
pub(crate) struct Lines(Mutex<All>);

/// A receiver's dealings with one line. Dropped, it leaves; a line that nobody visits is forgotten.
pub(crate) struct Visit<'a> {
    lines: &'a Lines,
    queue: &'a QueueName,
    ticket: Option<Ticket>,
}

impl Visit<'_> {
    /// To be read before an attempt, and given to [`Visit::join`] after it.
    pub(crate) fn epoch(&self) -> u64 {
        self.lines.lock().lines.get(self.queue).map_or(0, |line| line.epoch)
    }

    /// Joins the line; the waiter comes back if an attempt might succeed now.
    pub(crate) fn join(&mut self, waiter: Waiter, epoch: u64, state: QueueState) -> Result<(), Waiter> {
        let mut all = self.lines.lock();
        let ticket = Ticket(all.number());
        let Some(line) = all.lines.get_mut(self.queue) else { return Err(waiter) };
        line.closed = state != QueueState::Open;
        if line.epoch != epoch {
            return Err(waiter);
        }
        line.waiters.push_back((ticket, waiter));
        self.ticket = Some(ticket);
        Ok(())
    }

    /// Leaves the line. `false`: somebody has taken the waiter out already.
    pub(crate) fn leave(&mut self) -> bool {
        let Some(ticket) = self.ticket.take() else { return false };
        let mut all = self.lines.lock();
        let Some(line) = all.lines.get_mut(self.queue) else { return false };
        match line.waiters.binary_search_by_key(&ticket, |(ticket, _)| *ticket) {
            Ok(at) => line.waiters.remove(at).is_some(),
            Err(_) => false,
        }
    }
}

impl Drop for Visit<'_> {
    fn drop(&mut self) {
        self.leave();
        let mut all = self.lines.lock();
        if let Some(line) = all.lines.get_mut(self.queue) {
            line.visits = line.visits.saturating_sub(1);
            if line.visits == 0 {
                all.lines.remove(self.queue);
            }
        }
    }
}

impl Lines {
    fn lock(&self) -> MutexGuard<'_, All> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn visit<'a>(&'a self, queue: &'a QueueName) -> Visit<'a> {
        let mut all = self.lock();
        match all.lines.get_mut(queue) {
            Some(line) => line.visits += 1,
            None => {
                let line = Line { waiters: VecDeque::new(), epoch: all.number(), closed: false, visits: 1 };
                all.lines.insert(queue.clone(), line);
            }
        }
        Visit { lines: self, queue, ticket: None }
    }

    /// The first in line who still listens.
    pub(crate) fn take(&self, queue: &QueueName) -> Option<Waiter> {
        let mut all = self.lock();
        let line = all.lines.get_mut(queue)?;
        while let Some((_, waiter)) = line.waiters.pop_front() {
            if !waiter.hand_over.is_closed() {
                return Some(waiter);
            }
        }
        None
    }

    /// Something may have become ready: attempts under way will look again.
    pub(crate) fn ready(&self, queue: &QueueName) {
        let mut all = self.lock();
        let epoch = all.number();
        if let Some(line) = all.lines.get_mut(queue) {
            line.epoch = epoch;
        }
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.lock().lines.is_empty()
    }

    /// Queues with somebody in line; only closed ones, if asked.
    pub(crate) fn waiting(&self, closed_only: bool) -> Vec<QueueName> {
        let all = self.lock();
        let waiting =
            all.lines.iter().filter(|(_, line)| !line.waiters.is_empty() && (line.closed || !closed_only));
        waiting.map(|(queue, _)| queue.clone()).collect()
    }

    /// Everybody in one line looks for themselves.
    pub(crate) fn dismiss_queue(&self, queue: &QueueName) {
        let waiters = self.lock().lines.get_mut(queue).map(|line| std::mem::take(&mut line.waiters));
        waiters.into_iter().flatten().for_each(|(_, waiter)| waiter.try_again());
    }

    /// Everybody goes, with nothing.
    pub(crate) fn dismiss(&self) {
        let lines = std::mem::take(&mut self.lock().lines);
        drop(lines);
    }
}
