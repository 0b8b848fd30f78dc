//! The poll loop: receives from all queues in turn, as much as there is room for.

use super::Engine;
use super::long_polls::{LongPolls, Received};
use crate::event::Event;
use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;
use tokio::sync::watch;

/// The most items of one receive.
pub(super) const RECEIVE_MAX: usize = 512;
/// While polls find items, the interval shrinks down to the maximum divided by this.
const SPEEDUP_MAX: u32 = 16;
/// The longest pause after backend errors.
const ERROR_PAUSE_MAX: Duration = Duration::from_secs(30);

impl Engine {
    /// Polls until the engine stops.
    pub(crate) fn poll(self: Arc<Engine>) -> impl Future<Output = ()> + Send {
        let guard = PollGuard::new(self);
        async move { guard.0.poll_until_stopped().await }
    }

    async fn poll_until_stopped(self: &Arc<Engine>) {
        let mut stopping = self.stopping.subscribe();
        let mut long_polls = LongPolls::new(self.queues.len());
        let (mut first, mut errors) = (0, 0);
        let mut interval = AdaptiveInterval::new(self.config.poll_interval);
        while !self.is_stopping() {
            let attempt_ended = self.attempt_ended.notified();
            let budget = self.receive_budget();
            if budget == 0 {
                let received = tokio::select! {
                    () = attempt_ended => None,
                    received = long_polls.next(self) => Some(received),
                    _ = stopping.wait_for(|stopping| *stopping) => None,
                };
                self.dispatch_all(received).await;
                continue;
            }
            let round = self.poll_round(budget, first).await;
            first = round.next_first;
            errors = if round.failed { errors + 1 } else { 0 };
            interval.adapt(round.received);
            if round.has_more && round.started > 0 {
                // A queue that always has items must not starve the other tasks of this thread.
                tokio::task::yield_now().await;
                continue;
            }
            // The items were declined: leave them to other workers for a while.
            let backs_off = round.failed || (round.received && round.started == 0);
            let mut pause = interval.current;
            if backs_off {
                pause = self.back_off_pause(errors);
            }
            let at_all_queues = backs_off || long_polls.start(self, first);
            let received = tokio::select! {
                () = self.sleep(pause.min(ERROR_PAUSE_MAX.max(self.config.poll_interval))) => None,
                received = long_polls.next(self) => Some(received),
                // Some queue has no long poll for lack of room.
                () = attempt_ended, if !at_all_queues => None,
                _ = stopping.wait_for(|stopping| *stopping) => None,
            };
            if !self.dispatch_all(received).await {
                self.back_off(&mut long_polls, &mut stopping).await;
            }
        }
    }

    fn back_off_pause(&self, errors: u32) -> Duration {
        (self.config.poll_interval)
            .saturating_mul(2u32.saturating_pow(errors))
            .mul_f64(1.0 + self.entropy.fraction() / 2.0)
    }

    /// Receives nothing for a poll interval, except by the long polls that are under way, so that other workers get the
    /// items that were declined here.
    async fn back_off(self: &Arc<Engine>, long_polls: &mut LongPolls, stopping: &mut watch::Receiver<bool>) {
        let mut over = pin!(self.sleep(self.back_off_pause(0)));
        loop {
            let received = tokio::select! {
                () = &mut over => return,
                _ = stopping.wait_for(|stopping| *stopping) => return,
                received = long_polls.next(self) => Some(received),
            };
            self.dispatch_all(received).await;
        }
    }

    /// Returns `false` if all received items were declined.
    async fn dispatch_all(self: &Arc<Engine>, received: Option<Received>) -> bool {
        let Some((at, deliveries)) = received else { return true };
        let mut started = false;
        for delivery in deliveries {
            started |= self.dispatch(&self.queues[at], delivery).await;
        }
        started
    }

    /// Receives from each queue an equal share of the budget, and what the queues before it left of theirs. Another queue
    /// is the first each time. If the budget ends early, the next round begins with the queues that got nothing.
    async fn poll_round(self: &Arc<Engine>, budget: usize, first: usize) -> PollRound {
        let queues = self.queues.len();
        let mut round = PollRound { next_first: (first + 1) % queues, ..PollRound::default() };
        let mut left = budget;
        for polled in 0..queues {
            let (at, share) = ((first + polled) % queues, left.div_ceil(queues - polled));
            if share == 0 {
                round.next_first = at;
                break;
            }
            let queue = &self.queues[at];
            match queue.receive(share, self.config.visibility_timeout).await {
                Ok(deliveries) => {
                    round.has_more |= deliveries.len() == share;
                    round.received |= !deliveries.is_empty();
                    for delivery in deliveries {
                        round.started += usize::from(self.dispatch(queue, delivery).await);
                    }
                    left = budget.saturating_sub(round.started);
                }
                Err(error) => {
                    round.failed = true;
                    self.report_error("receive from a queue", &error);
                }
            }
        }
        self.check_backlog().await;
        round
    }

    async fn check_backlog(&self) {
        let Some(alarm) = self.config.backlog_alarm else { return };
        for queue in &self.queues {
            if let Ok(Some(depth)) = queue.depth().await
                && depth > alarm
            {
                self.emit(&Event::Backlog { depth });
            }
        }
    }
}

#[derive(Default)]
struct PollRound {
    /// The queue that the next round begins with.
    next_first: usize,
    /// A queue gave its whole share, so it may have more.
    has_more: bool,
    received: bool,
    started: usize,
    failed: bool,
}

/// The poll interval. It halves when a poll finds items and doubles when it finds none: a queue without long polls costs
/// little while it is empty and is fast while it is not.
struct AdaptiveInterval {
    current: Duration,
    max: Duration,
}

impl AdaptiveInterval {
    fn new(max: Duration) -> AdaptiveInterval {
        AdaptiveInterval { current: max, max }
    }

    fn adapt(&mut self, received: bool) {
        self.current = if received {
            (self.current / 2).max(self.max / SPEEDUP_MAX)
        } else {
            (self.current * 2).min(self.max)
        };
    }
}

/// Counts a poll loop that may still receive items.
struct PollGuard(Arc<Engine>);

impl PollGuard {
    fn new(engine: Arc<Engine>) -> PollGuard {
        engine.poll_loops.fetch_add(1, Ordering::SeqCst);
        PollGuard(engine)
    }
}

impl Drop for PollGuard {
    fn drop(&mut self) {
        self.0.poll_loops.fetch_sub(1, Ordering::SeqCst);
        self.0.attempt_ended.notify_waiters();
    }
}
