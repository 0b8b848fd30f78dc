//! Takes from every queue in turn, as much as there is room for.

use super::Shared;
use crate::doer::Doer;
use crate::event::Event;
use crate::ports::{Pulled, Queue};

use futures::future::select_all;
use std::sync::Arc;
use std::time::Duration;

/// The most that is taken at a time.
const TAKEN_MAX: usize = 512;
/// A backend in trouble is not asked more often than this in the end.
const PAUSE_MAX: Duration = Duration::from_secs(30);

impl Shared {
    /// Ends when the engine is stopped.
    pub(crate) async fn poll(self: Arc<Shared>) {
        let mut stopping = self.stopping.subscribe();
        let (mut lead, mut troubles) = (0, 0);
        while !self.is_stopping() {
            let room = self.room.notified();
            let budget = self.budget();
            if budget == 0 {
                tokio::select! {
                    () = room => {}
                    _ = stopping.wait_for(|stopping| *stopping) => {}
                }
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
            let come = tokio::select! {
                () = self.sleep(pause.min(PAUSE_MAX.max(self.config.poll_interval))) => None,
                come = self.anything(budget), if !stands_back => Some(come),
                _ = stopping.wait_for(|stopping| *stopping) => None,
            };
            if let Some((queue, pulled)) = come {
                for pulled in pulled {
                    self.take(queue, pulled).await;
                }
            }
        }
    }

    fn budget(&self) -> usize {
        let mut doers: Vec<&Doer> = Vec::new();
        for kind in self.kinds.values() {
            let doer = self.doer_of(kind);
            if !doers.iter().any(|known| known.is_same(doer)) {
                doers.push(doer);
            }
        }
        let available = doers.iter().fold(0usize, |sum, doer| sum.saturating_add(doer.available()));
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

    /// Waits until one of the queues has something.
    async fn anything(&self, budget: usize) -> (&Arc<dyn Queue>, Vec<Pulled>) {
        let share = budget.div_ceil(self.queues.len());
        let waits = self.queues.iter().map(|queue| {
            let wait = async move {
                match queue.wait(share, self.config.visibility).await {
                    Ok(pulled) if !pulled.is_empty() => return (queue, pulled),
                    Ok(_) => {}
                    Err(error) => self.trouble("waiting for a queue", &error),
                }
                // It is asked again when its turn comes.
                std::future::pending().await
            };
            Box::pin(wait)
        });
        select_all(waits).await.0
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
