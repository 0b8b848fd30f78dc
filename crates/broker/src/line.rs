//! Receivers in line, a line a queue.
//!
//! A waiter is in its line only while no attempt of its own is under way. An attempt that comes back empty joins the
//! line, unless something may have become ready meanwhile: the line's epoch tells.
//!
//! A queue that is at a limit holds its line: what is submitted wakes nobody, until a lease ends or the time comes that
//! the store named. One of which some keys are at their limit wakes by both: what is submitted, but of those keys, and
//! the end of a lease. Whether a lease of the queue ended is looked up only for lines that wait for that, so an attempt
//! that is the first to find its queue full, or a key of it, looks again before it joins: ends up to then were not looked
//! at. So do all that were under way by then.
//!
//! **Invariant:** while somebody is in line and something can be given out, somebody looks, or is about to: who is woken
//! and goes before it has looked lets the next one look.

use crate::broker::Shared;
use std::collections::{HashMap, VecDeque};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;
use tokio::sync::oneshot;
use tokio::task::AbortHandle;
use towline_domain::command::When;
use towline_domain::{FullKeys, Item, KeyTag, Millis, QueueName, QueueState, Throttle};
use towline_store::{ReceiveCall, Received};

/// Items on their way to a receiver. **Invariant:** dropped without being accepted, they go back to their queue.
pub(crate) struct Handed {
    received: Option<Received>,
    state: QueueState,
    throttle: Option<Throttle>,
    broker: Arc<Shared>,
}

impl Handed {
    pub(crate) fn new(broker: &Arc<Shared>, received: Received) -> Handed {
        let (state, throttle) = (received.queue, received.throttle.clone());
        Handed { state, throttle, received: Some(received), broker: Arc::clone(broker) }
    }

    pub(crate) fn accept(mut self) -> Received {
        self.received.take().unwrap_or_else(|| Received::nothing(self.state))
    }

    pub(crate) fn items_mut(&mut self) -> &mut Vec<Item> {
        &mut self.received.get_or_insert_with(|| Received::nothing(self.state)).items
    }

    pub(crate) fn state(&self) -> QueueState {
        self.state
    }

    pub(crate) fn throttle(&self) -> Option<&Throttle> {
        self.throttle.as_ref()
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

/// Other numbers each time something comes, each time it may be given out, and each time a lease may have ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Epoch {
    came: u64,
    ready: u64,
    freed: u64,
}

impl Epoch {
    fn all(number: u64) -> Epoch {
        Epoch { came: number, ready: number, freed: number }
    }
}

/// Items that may have become ready in a queue.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(crate) struct Came {
    pub(crate) count: usize,
    /// Whose they are, as far as that is told.
    pub(crate) of: Vec<KeyTag>,
}

/// Why nobody in a line is given anything.
enum Hold {
    Full,
    For {
        _until: Timer,
    },
    /// Of these keys, that is.
    Of(FullKeys),
}

/// Goes off, unless it is dropped before.
struct Timer(AbortHandle);

impl Drop for Timer {
    fn drop(&mut self) {
        self.0.abort();
    }
}

/// A store that says later is asked again after this time at the latest: its policy may have changed.
const HELD_MAX: Duration = Duration::from_secs(1);

impl Timer {
    fn set(broker: &Arc<Shared>, queue: &QueueName, span: Duration) -> Timer {
        let (broker, queue) = (Arc::downgrade(broker), queue.clone());
        let task = tokio::spawn(async move {
            tokio::time::sleep(span.clamp(Duration::from_millis(1), HELD_MAX)).await;
            if let Some(broker) = broker.upgrade() {
                broker.lines.release(&queue);
                broker.pass_on(&queue);
            }
        });
        Timer(task.abort_handle())
    }
}

struct Line {
    /// In order of their tickets.
    waiters: VecDeque<(Ticket, Waiter)>,
    epoch: Epoch,
    throttle: Option<Hold>,
    /// It was full, or a key of it was: ends of leases are looked up.
    watched: bool,
    /// As last seen: a closed queue may complete at any settle.
    closed: bool,
    /// Receivers in line or about to be.
    visits: usize,
}

impl Line {
    /// Whether it is so, and will be noticed when it ends. `number`: a new one.
    fn hold(
        &mut self,
        throttle: &Throttle,
        epoch: Epoch,
        number: u64,
        broker: &Arc<Shared>,
        queue: &QueueName,
    ) -> bool {
        match throttle {
            Throttle::Rate(span) => {
                self.throttle =
                    Some(Hold::For { _until: Timer::set(broker, queue, Duration::from_millis(span.0)) });
                true
            }
            Throttle::Concurrency => {
                let is_so = self.watch(epoch, number);
                if is_so {
                    self.throttle = Some(Hold::Full);
                }
                is_so
            }
            // What comes of other keys may be given out, and so may what is there when a lease ends.
            Throttle::Keys(full) => {
                let is_so = self.watch(epoch, number);
                // Also if it has to look again: what comes of these keys is not to make it do so for ever. A time that somebody else
                // heard of meanwhile stays: nothing else would end it.
                if is_so && !matches!(self.throttle, Some(Hold::For { .. })) {
                    self.throttle = (!full.is_empty()).then(|| Hold::Of(full.clone()));
                }
                is_so && self.epoch.ready == epoch.ready
            }
        }
    }

    /// Whether ends of leases have been looked up since that epoch, and there was none. They are from now on.
    fn watch(&mut self, epoch: Epoch, number: u64) -> bool {
        if !std::mem::replace(&mut self.watched, true) {
            // Nobody under way has been told of an end up to now.
            self.epoch.freed = number;
        }
        self.epoch.freed == epoch.freed
    }

    /// How many of these may be given out, as far as is known.
    fn open_to(&self, came: &Came) -> usize {
        match &self.throttle {
            Some(Hold::Of(full)) => {
                came.count.saturating_sub(came.of.iter().filter(|&&key| full.has(key)).count())
            }
            _ => came.count,
        }
    }

    /// The first who still listens.
    fn next(&mut self) -> Option<Waiter> {
        while let Some((_, waiter)) = self.waiters.pop_front() {
            if !waiter.hand_over.is_closed() {
                return Some(waiter);
            }
        }
        None
    }
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
    /// It has been in line, and nothing has come of that yet: should it be woken and go, another has to look.
    is_counted_on: bool,
}

impl Visit<'_> {
    /// To be read before an attempt, and given to [`Visit::join`] after it.
    pub(crate) fn epoch(&self) -> Epoch {
        let all = self.lines.lock();
        all.lines.get(self.queue).map_or(Epoch::all(0), |line| line.epoch)
    }

    /// Joins the line; the waiter comes back if an attempt might succeed now.
    pub(crate) fn join(
        &mut self,
        waiter: Waiter,
        epoch: Epoch,
        handed: &Handed,
        broker: &Arc<Shared>,
    ) -> Result<(), Waiter> {
        let mut all = self.lines.lock();
        let (ticket, number) = (Ticket(all.number()), all.number());
        let Some(line) = all.lines.get_mut(self.queue) else { return Err(waiter) };
        line.closed = handed.state() != QueueState::Open;
        let stays = match handed.throttle() {
            None => {
                // Also what comes of keys that were at their limit: they are not.
                let is_so = line.epoch.came == epoch.came;
                if is_so {
                    // Neither full nor throttle: who finds it full the next time says so again.
                    (line.throttle, line.watched) = (None, false);
                }
                is_so
            }
            Some(throttle) => line.hold(throttle, epoch, number, broker, self.queue),
        };
        if !stays {
            return Err(waiter);
        }
        line.waiters.push_back((ticket, waiter));
        self.ticket = Some(ticket);
        self.is_counted_on = true;
        Ok(())
    }

    /// Leaves the line. `false`: somebody has taken the waiter out already.
    pub(crate) fn leave(&mut self) -> bool {
        let Some(ticket) = self.ticket.take() else { return false };
        let mut all = self.lines.lock();
        let Some(line) = all.lines.get_mut(self.queue) else { return false };
        let at = line.waiters.binary_search_by_key(&ticket, |(ticket, _)| *ticket);
        let was_in_line = at.is_ok_and(|at| line.waiters.remove(at).is_some());
        self.is_counted_on &= !was_in_line;
        was_in_line
    }

    /// The others have heard of what it was woken for. Whether it was counted on until now.
    pub(crate) fn is_relieved(&mut self) -> bool {
        std::mem::replace(&mut self.is_counted_on, false)
    }
}

impl Drop for Visit<'_> {
    fn drop(&mut self) {
        self.leave();
        let mut all = self.lines.lock();
        let Some(line) = all.lines.get_mut(self.queue) else { return };
        line.visits = line.visits.saturating_sub(1);
        if line.visits == 0 {
            all.lines.remove(self.queue);
        } else if self.is_counted_on
            && let Some(next) = line.next()
        {
            next.try_again();
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
                let number = all.number();
                let line = Line {
                    waiters: VecDeque::new(),
                    epoch: Epoch::all(number),
                    throttle: None,
                    watched: false,
                    closed: false,
                    visits: 1,
                };
                all.lines.insert(queue.clone(), line);
            }
        }
        Visit { lines: self, queue, ticket: None, is_counted_on: false }
    }

    /// The first in line who still listens, if a submit may bring something.
    pub(crate) fn take_for_submit(&self, queue: &QueueName) -> Option<(Waiter, Epoch)> {
        self.take_if(queue, |throttle| matches!(throttle, None | Some(Hold::Of(_))))
    }

    /// The first in line who still listens, unless nothing but time can help.
    pub(crate) fn take_for_free(&self, queue: &QueueName) -> Option<(Waiter, Epoch)> {
        self.take_if(queue, |throttle| !matches!(throttle, Some(Hold::For { .. })))
    }

    /// The first in line who still listens.
    pub(crate) fn take(&self, queue: &QueueName) -> Option<Waiter> {
        self.take_if(queue, |_| true).map(|(waiter, _)| waiter)
    }

    fn take_if(&self, queue: &QueueName, may: impl Fn(Option<&Hold>) -> bool) -> Option<(Waiter, Epoch)> {
        let mut all = self.lock();
        let line = all.lines.get_mut(queue).filter(|line| may(line.throttle.as_ref()))?;
        line.next().map(|waiter| (waiter, line.epoch))
    }

    /// Whether it matters whose the items are that come.
    pub(crate) fn asks_for_keys(&self, queue: &QueueName) -> bool {
        let all = self.lock();
        all.lines.get(queue).is_some_and(|line| matches!(line.throttle, Some(Hold::Of(_))))
    }

    /// How many items of those that come may be given out, as far as is known.
    pub(crate) fn open_to(&self, queue: &QueueName, came: &Came) -> usize {
        self.lock().lines.get(queue).map_or(0, |line| line.open_to(came))
    }

    /// These may have become ready: attempts under way will look again if any may be given out. How many may.
    pub(crate) fn came(&self, queue: &QueueName, came: &Came) -> usize {
        let mut all = self.lock();
        let number = all.number();
        let Some(line) = all.lines.get_mut(queue) else { return 0 };
        let open = line.open_to(came);
        line.epoch.came = number;
        if open > 0 {
            line.epoch.ready = number;
        }
        open
    }

    /// Something may be known to whoever looks: attempts under way will look again.
    pub(crate) fn ready(&self, queue: &QueueName) {
        self.came(queue, &Came { count: 1, of: Vec::new() });
    }

    /// A lease may have ended.
    pub(crate) fn freed(&self, queue: &QueueName) {
        let mut all = self.lock();
        let epoch = all.number();
        if let Some(line) = all.lines.get_mut(queue) {
            line.epoch = Epoch::all(epoch);
            line.throttle.take_if(|throttle| matches!(throttle, Hold::Full | Hold::Of(_)));
        }
    }

    /// Nothing is throttle back any more, as far as is known.
    pub(crate) fn release(&self, queue: &QueueName) {
        self.freed(queue);
        if let Some(line) = self.lock().lines.get_mut(queue) {
            (line.throttle, line.watched) = (None, false);
        }
    }

    /// Nothing is given out for so long, whoever it was that heard so.
    pub(crate) fn hold_for(&self, queue: &QueueName, span: Millis, broker: &Arc<Shared>) {
        let mut all = self.lock();
        let number = all.number();
        if let Some(line) = all.lines.get_mut(queue).filter(|line| !line.waiters.is_empty()) {
            line.hold(&Throttle::Rate(span), line.epoch, number, broker, queue);
        }
    }

    /// A receive that was given something was told that the next one will not be. `false`: somebody should look.
    pub(crate) fn hold(
        &self,
        queue: &QueueName,
        throttle: &Throttle,
        epoch: Epoch,
        broker: &Arc<Shared>,
    ) -> bool {
        let mut all = self.lock();
        let number = all.number();
        match all.lines.get_mut(queue) {
            Some(line) if !line.waiters.is_empty() => line.hold(throttle, epoch, number, broker, queue),
            _ => true,
        }
    }

    /// Queues that were full, or had a key that was, while somebody waited.
    pub(crate) fn watched(&self) -> Vec<QueueName> {
        let all = self.lock();
        let watched = all.lines.iter().filter(|(_, line)| line.watched);
        watched.map(|(queue, _)| queue.clone()).collect()
    }

    /// Queues that somebody visits, in line or about to be.
    pub(crate) fn all(&self) -> Vec<QueueName> {
        self.lock().lines.keys().cloned().collect()
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
