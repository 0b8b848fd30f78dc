//! Receivers in line, a line a queue.
//!
//! A waiter is in its line only while no attempt of its own is under way. An attempt that comes back empty joins the
//! line, unless something may have become ready meanwhile: the line's epoch tells.

use crate::broker::Shared;
use std::collections::{HashMap, VecDeque};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use tokio::sync::oneshot;
use towline_domain::{QueueName, QueueState};
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
            Arc::clone(&self.broker).give_back(received.items);
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

#[derive(Default)]
struct Line {
    waiters: VecDeque<Waiter>,
    /// One more each time something may have become ready.
    epoch: u64,
    /// As last seen: a closed queue may complete at any settle.
    closed: bool,
}

#[derive(Default)]
pub(crate) struct Lines(Mutex<HashMap<QueueName, Line>>);

impl Lines {
    fn lock(&self) -> MutexGuard<'_, HashMap<QueueName, Line>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// To be read before an attempt, and given to [`Lines::join`] after it.
    pub(crate) fn epoch(&self, queue: &QueueName) -> u64 {
        self.lock().entry(queue.clone()).or_default().epoch
    }

    /// Joins the line; the waiter comes back if an attempt might succeed now.
    pub(crate) fn join(&self, waiter: Waiter, epoch: u64, state: QueueState) -> Result<(), Waiter> {
        let mut lines = self.lock();
        let line = lines.entry(waiter.call.queue.clone()).or_default();
        line.closed = state != QueueState::Open;
        if line.epoch != epoch {
            return Err(waiter);
        }
        line.waiters.retain(|waiter| !waiter.hand_over.is_closed());
        line.waiters.push_back(waiter);
        Ok(())
    }

    /// The first in line who still listens.
    pub(crate) fn take(&self, queue: &QueueName) -> Option<Waiter> {
        let mut lines = self.lock();
        let line = lines.get_mut(queue)?;
        while let Some(waiter) = line.waiters.pop_front() {
            if !waiter.hand_over.is_closed() {
                return Some(waiter);
            }
        }
        None
    }

    /// Something may have become ready: attempts under way will look again.
    pub(crate) fn ready(&self, queue: &QueueName) {
        if let Some(line) = self.lock().get_mut(queue) {
            line.epoch += 1;
        }
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.lock().is_empty()
    }

    /// Queues with somebody in line; only closed ones, if asked. Lines nobody uses are forgotten.
    pub(crate) fn waiting(&self, closed_only: bool) -> Vec<QueueName> {
        let lines = self.lock();
        let waiting =
            lines.iter().filter(|(_, line)| !line.waiters.is_empty() && (line.closed || !closed_only));
        waiting.map(|(queue, _)| queue.clone()).collect()
    }

    /// Everybody in one line looks for themselves.
    pub(crate) fn dismiss_queue(&self, queue: &QueueName) {
        let waiters = self.lock().get_mut(queue).map(|line| std::mem::take(&mut line.waiters));
        waiters.into_iter().flatten().for_each(Waiter::try_again);
    }

    /// Everybody goes, with nothing.
    pub(crate) fn dismiss(&self) {
        drop(std::mem::take(&mut *self.lock()));
    }
}
