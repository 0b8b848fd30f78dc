//! Takes from every queue in turn, as much as there is room for.

use super::Shared;
use crate::event::Event;
use crate::ports::{PortError, Pulled};

use futures::future::BoxFuture;
use futures::stream::{FuturesUnordered, StreamExt};
use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;
use tokio::sync::watch;

/// The most that is taken at a time.
const TAKEN_MAX: usize = 512;
/// A backend in trouble is not asked more often than this in the end.
const PAUSE_MAX: Duration = Duration::from_secs(30);

impl Shared {
    /// Ends when the engine is stopped.
    pub(crate) fn poll(self: Arc<Shared>) -> impl Future<Output = ()> + Send {
        let polling = Polling::new(self);
        async move { polling.0.poll_until_stopped().await }
    }

    async fn poll_until_stopped(self: &Arc<Shared>) {
        let mut stopping = self.stopping.subscribe();
        let mut waits = Waits::new(self.queues.len());
        let (mut lead, mut troubles) = (0, 0);
        while !self.is_stopping() {
            let room = self.room.notified();
            let budget = self.budget();
            if budget == 0 {
                let come = tokio::select! {
                    () = room => None,
                    come = waits.next(self) => Some(come),
                    _ = stopping.wait_for(|stopping| *stopping) => None,
                };
                self.take_all(come).await;
                continue;
            }
            let round = self.round(budget, lead).await;
            lead = (lead + 1) % self.queues.len();
            troubles = if round.trouble { troubles + 1 } else { 0 };
            if round.more && round.started {
                // Other tasks have their turn even if the queues never say "not yet".
                tokio::task::yield_now().await;
                continue;
            }
            // What was put back is for others: who did so does not stand in their way.
            let stands_back = round.trouble || (round.pulled && !round.started);
            let mut pause = self.config.poll_interval;
            if stands_back {
                pause = pause
                    .saturating_mul(2u32.saturating_pow(troubles))
                    .mul_f64(1.0 + self.entropy.fraction() / 2.0);
            }
            if !stands_back {
                waits.begin(self, budget);
            }
            let come = tokio::select! {
                () = self.sleep(pause.min(PAUSE_MAX.max(self.config.poll_interval))) => None,
                come = waits.next(self) => Some(come),
                _ = stopping.wait_for(|stopping| *stopping) => None,
            };
            if !self.take_all(come).await {
                self.stand_back(&mut waits, &mut stopping).await;
            }
        }
    }

    /// What was put back is for others: a poll long nobody waits here for more of it.
    async fn stand_back(self: &Arc<Shared>, waits: &mut Waits, stopping: &mut watch::Receiver<bool>) {
        let pause = self.config.poll_interval.mul_f64(1.0 + self.entropy.fraction() / 2.0);
        let mut over = pin!(self.sleep(pause));
        loop {
            let come = tokio::select! {
                () = &mut over => return,
                _ = stopping.wait_for(|stopping| *stopping) => return,
                come = waits.next(self) => Some(come),
            };
            self.take_all(come).await;
        }
    }

    /// `false`: something came, and all of it was put back.
    async fn take_all(self: &Arc<Shared>, come: Option<Come>) -> bool {
        let Some((at, pulled)) = come else { return true };
        let mut started = false;
        for pulled in pulled {
            started |= self.take(&self.queues[at], pulled).await;
        }
        started
    }

    /// How many more are taken now.
    pub(super) fn budget(&self) -> usize {
        let available = self.doers.iter().fold(0usize, |sum, doer| sum.saturating_add(doer.available()));
        available.min(TAKEN_MAX)
    }

    /// Every queue has its share, and each is the first in turn.
    async fn round(self: &Arc<Shared>, budget: usize, lead: usize) -> Round {
        let share = budget.div_ceil(self.queues.len());
        let mut round = Round::default();
        for at in 0..self.queues.len() {
            let queue = &self.queues[(lead + at) % self.queues.len()];
            match queue.pop(share, self.config.visibility).await {
                Ok(pulled) => {
                    round.more |= pulled.len() == share;
                    round.pulled |= !pulled.is_empty();
                    for pulled in pulled {
                        round.started |= self.take(queue, pulled).await;
                    }
                }
                Err(error) => {
                    round.trouble = true;
                    self.trouble("taking from a queue", &error);
                }
            }
        }
        self.look_at_backlog().await;
        round
    }

    async fn look_at_backlog(&self) {
        let Some(alarm) = self.config.backlog_alarm else { return };
        for queue in &self.queues {
            if let Ok(Some(depth)) = queue.depth().await
                && depth > alarm
            {
                self.tell(&Event::Backlog { depth });
            }
        }
    }
}

/// While it exists something may be taken.
struct Polling(Arc<Shared>);

impl Polling {
    fn new(shared: Arc<Shared>) -> Polling {
        shared.polling.fetch_add(1, Ordering::SeqCst);
        Polling(shared)
    }
}

impl Drop for Polling {
    fn drop(&mut self) {
        self.0.polling.fetch_sub(1, Ordering::SeqCst);
        self.0.room.notify_waiters();
    }
}

/// From which queue, and what.
type Come = (usize, Vec<Pulled>);

type Wait = BoxFuture<'static, (usize, Result<Vec<Pulled>, PortError>)>;

/// Somebody waits at every queue, at most once. A wait goes on while the queues are polled beside it: what is on its way
/// when a wait is dropped costs an attempt, so none is dropped until the engine stops.
struct Waits {
    under_way: FuturesUnordered<Wait>,
    /// By queue.
    waited_for: Vec<bool>,
}

impl Waits {
    fn new(queues: usize) -> Waits {
        Waits { under_way: FuturesUnordered::new(), waited_for: vec![false; queues] }
    }

    /// Where nobody waits yet.
    fn begin(&mut self, shared: &Shared, budget: usize) {
        let (share, visibility) = (budget.div_ceil(shared.queues.len()), shared.config.visibility);
        for (at, queue) in shared.queues.iter().enumerate() {
            if !std::mem::replace(&mut self.waited_for[at], true) {
                let queue = Arc::clone(queue);
                self.under_way.push(Box::pin(async move { (at, queue.wait(share, visibility).await) }));
            }
        }
    }

    /// Never ends if nobody waits. A wait that brings nothing is begun anew with the next poll.
    async fn next(&mut self, shared: &Shared) -> Come {
        while let Some((at, come)) = self.under_way.next().await {
            self.waited_for[at] = false;
            match come {
                Ok(pulled) if !pulled.is_empty() => return (at, pulled),
                Ok(_) => {}
                Err(error) => shared.trouble("waiting for a queue", &error),
            }
        }
        std::future::pending().await
    }
}

#[derive(Default)]
struct Round {
    /// A queue had its whole share.
    more: bool,
    pulled: bool,
    started: bool,
    trouble: bool,
}
