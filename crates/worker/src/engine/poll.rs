//! Takes from every queue in turn, as much as there is room for.

use super::Shared;
use crate::doer::Doer;
use crate::event::Event;
use crate::ports::{PortError, Pulled};

use futures::future::BoxFuture;
use futures::stream::{FuturesUnordered, StreamExt};
use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;
use tokio::sync::watch;

/// The most that is taken at a time.
const TAKEN_MAX: usize = 512;
/// Where something is always found, a look comes so much sooner.
const OFTEN: u32 = 16;
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
        let (mut lead, mut troubles, mut looks) = (0, 0, Looks::new(self.config.poll_interval));
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
            lead = round.next;
            troubles = if round.trouble { troubles + 1 } else { 0 };
            looks.found(round.pulled);
            if round.more && round.started > 0 {
                // Other tasks have their turn even if the queues never say "not yet".
                tokio::task::yield_now().await;
                continue;
            }
            // What was put back is for others: who did so does not stand in their way.
            let stands_back = round.trouble || (round.pulled && round.started == 0);
            let mut pause = looks.pause;
            if stands_back {
                pause = (self.config.poll_interval)
                    .saturating_mul(2u32.saturating_pow(troubles))
                    .mul_f64(1.0 + self.entropy.fraction() / 2.0);
            }
            let everywhere = stands_back || waits.begin(self, lead);
            let come = tokio::select! {
                () = self.sleep(pause.min(PAUSE_MAX.max(self.config.poll_interval))) => None,
                come = waits.next(self) => Some(come),
                // There was none to wait with at every queue.
                () = room, if !everywhere => None,
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

    /// How many more are taken now, besides what is promised to who waits at the queues.
    pub(super) fn budget(&self) -> usize {
        let available = self.doers.iter().fold(0usize, |sum, doer| sum.saturating_add(doer.available()));
        let left = available.saturating_sub(self.promised.now.load(Ordering::SeqCst));
        if left < self.promised.few { 0 } else { left.min(TAKEN_MAX) }
    }

    /// Every queue has its share, and what others leave of theirs; each is the first in turn. Together they never take more than
    /// there is room for: those for which nothing was left come first the next time.
    async fn round(self: &Arc<Shared>, budget: usize, lead: usize) -> Round {
        let queues = self.queues.len();
        let (mut round, mut left) = (Round { next: (lead + 1) % queues, ..Round::default() }, budget);
        for asked in 0..queues {
            let (at, share) = ((lead + asked) % queues, left.div_ceil(queues - asked));
            if share == 0 {
                round.next = at;
                break;
            }
            let queue = &self.queues[at];
            match queue.pop(share, self.config.visibility).await {
                Ok(pulled) => {
                    round.more |= pulled.len() == share;
                    round.pulled |= !pulled.is_empty();
                    for pulled in pulled {
                        round.started += usize::from(self.take(queue, pulled).await);
                    }
                    left = budget.saturating_sub(round.started);
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

/// How long it is until the next look: queues that are looked at in vain are looked at seldom, those at which something is found often,
/// so that a queue that cannot be waited for costs little while nothing comes and is quick while something does.
struct Looks {
    pause: Duration,
    interval: Duration,
}

impl Looks {
    fn new(interval: Duration) -> Looks {
        Looks { pause: interval, interval }
    }

    fn found(&mut self, something: bool) {
        self.pause = if something {
            (self.pause / 2).max(self.interval / OFTEN)
        } else {
            (self.pause * 2).min(self.interval)
        };
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

/// Room for what is waited for. It may come at any time, or never, so nobody else may have it, and it is never all there is: while a
/// slot is free, something is left for polls.
pub(super) struct Promised {
    now: AtomicUsize,
    /// To each who waits.
    share: usize,
    /// What is left beside it is not worth a poll.
    few: usize,
}

impl Promised {
    pub(super) fn new(doers: &[Doer], queues: usize) -> Promised {
        doers.iter().for_each(|doer| doer.serve(queues));
        let all = doers.iter().map(Doer::promised_max).min().unwrap_or_default();
        Promised {
            now: AtomicUsize::new(0),
            share: (all.min(TAKEN_MAX) / queues).max(1),
            few: doers.iter().map(Doer::few).min().unwrap_or_default(),
        }
    }
}

/// Somebody waits at every queue, at most once. A wait goes on while the queues are polled beside it: what is on its way
/// when a wait is dropped costs an attempt, so none is dropped until the engine stops.
struct Waits {
    under_way: FuturesUnordered<Wait>,
    /// By queue: what was asked for, and promised. None: nobody waits there.
    asked: Vec<usize>,
}

impl Waits {
    fn new(queues: usize) -> Waits {
        Waits { under_way: FuturesUnordered::new(), asked: vec![0; queues] }
    }

    /// Where nobody waits yet; `false`: there is not room for it everywhere.
    fn begin(&mut self, shared: &Shared, lead: usize) -> bool {
        let queues = shared.queues.len();
        for at in (0..queues).map(|at| (lead + at) % queues) {
            if self.asked[at] > 0 {
                continue;
            }
            // As it is now: the round has taken some of what there was before it.
            let share = shared.promised.share.min(shared.budget());
            if share == 0 {
                return false;
            }
            self.asked[at] = share;
            shared.promised.now.fetch_add(share, Ordering::SeqCst);
            let (queue, visibility) = (Arc::clone(&shared.queues[at]), shared.config.visibility);
            self.under_way.push(Box::pin(async move { (at, queue.wait(share, visibility).await) }));
        }
        true
    }

    /// Never ends if nobody waits. A wait that brings nothing is begun anew with the next poll.
    async fn next(&mut self, shared: &Shared) -> Come {
        while let Some((at, come)) = self.under_way.next().await {
            let share = std::mem::take(&mut self.asked[at]);
            shared.promised.now.fetch_sub(share, Ordering::SeqCst);
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
    /// Which queue is the first in the next.
    next: usize,
    /// A queue had its whole share.
    more: bool,
    pulled: bool,
    started: usize,
    trouble: bool,
}
