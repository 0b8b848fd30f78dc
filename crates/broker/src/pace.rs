//! Work in many parts that leaves the store to whoever else needs it.

use crate::broker::Broker;
use crate::clock::Stopwatch;
use std::time::Duration;

/// What others do for each item of the work, while they have something to do.
const OPERATIONS_AN_ITEM: u64 = 6;
/// Of the time, at least: others may be slow, or few.
const SHARE_MIN: u32 = 20;
/// A part that took long waited itself, and whoever asked for it waits for an answer.
const REST_MAX: Duration = Duration::from_millis(500);
/// How often it is looked at what others have done.
const LOOK: Duration = Duration::from_millis(1);

/// How one work of many parts gets along with producers and workers: while they have nothing to do, part follows part; else it rests
/// between them until they have had their turn.
#[derive(Debug)]
pub struct Pace {
    /// What others had done at the end of the last rest.
    seen: u64,
    /// What others are to do for the parts since then, and for how long at most.
    operations: u64,
    rest: Duration,
}

impl Broker {
    #[must_use]
    pub fn pace(&self) -> Pace {
        Pace { seen: self.done().by_clients(), operations: 0, rest: Duration::ZERO }
    }

    /// Does a part, of so many items.
    pub async fn part<T>(&self, pace: &mut Pace, items: usize, part: impl Future<Output = T>) -> T {
        let watch = Stopwatch::start();
        let done = part.await;
        pace.rest = (pace.rest + watch.elapsed() * (SHARE_MIN - 1)).min(REST_MAX);
        pace.operations += items as u64 * OPERATIONS_AN_ITEM;
        done
    }

    /// Rests for what was done since the last time, if others have work. To be called when there is more to do.
    pub async fn rest(&self, pace: &mut Pace) {
        let seen = self.done().by_clients();
        if seen != pace.seen {
            let mut rested = Duration::ZERO;
            // While everything stops, somebody waits for it to end.
            while rested < pace.rest
                && self.done().by_clients() - seen < pace.operations
                && !self.0.is_stopping()
            {
                tokio::time::sleep(LOOK).await;
                rested += LOOK;
            }
        }
        *pace = self.pace();
    }
}

#[cfg(test)]
mod tests {
    use crate::{Broker, Sharing, SteadyClock};
    use std::sync::Arc;
    use std::time::Duration;
    use tokio::time::Instant;
    use towline_conformance::ReferenceStore;
    use towline_domain::{Policy, QueueName, Schema, Submission};
    use towline_store::Operation;

    /// How long ten parts rest if somebody else does this meanwhile.
    #[expect(clippy::disallowed_methods, reason = "the runtime's clock is paused: it goes on while all rest")]
    async fn rests(broker: &Broker, by_others: impl Fn() -> Option<Operation>) -> Duration {
        let (mut pace, begun) = (broker.pace(), Instant::now());
        for _ in 0..10 {
            let part = async {
                if let Some(operation) = by_others() {
                    broker.update(vec![operation]).await.unwrap().remove(0).unwrap();
                }
                std::thread::sleep(Duration::from_millis(1));
            };
            broker.rest(&mut pace).await;
            broker.part(&mut pace, 100, part).await;
        }
        begun.elapsed()
    }

    #[tokio::test(start_paused = true)]
    async fn it_rests_while_others_work() {
        let clock = Arc::new(SteadyClock::new());
        let broker =
            Broker::start(Arc::new(ReferenceStore::new(clock.clone(), 1)), clock, None, Sharing::Alone);
        let queue: QueueName = "jobs".parse().unwrap();
        let create = |name: &QueueName| Operation::CreateQueue {
            queue: name.clone(),
            schema: Box::new(Schema::default()),
            policy: Box::new(Policy::default()),
        };
        broker.update(vec![create(&queue)]).await.unwrap().remove(0).unwrap();
        assert_eq!(rests(&broker, || None).await, Duration::ZERO);
        // Nor for what has ended before it began.
        let submit =
            || Operation::Submit { queue: queue.clone(), submission: Box::new(Submission::default()) };
        broker.update(vec![submit()]).await.unwrap().remove(0).unwrap();
        assert_eq!(rests(&broker, || None).await, Duration::ZERO);
        // After each but the last, for nineteen times what it took.
        let slow = rests(&broker, || Some(submit())).await;
        assert!(slow >= Duration::from_millis(9 * 19), "{slow:?}");
        // Others who are fast make it short.
        let busy = {
            let (broker, submit) = (broker.clone(), submit());
            tokio::spawn(async move {
                loop {
                    broker.update(vec![submit.clone(); 150]).await.unwrap();
                    tokio::time::sleep(Duration::from_millis(1)).await;
                }
            })
        };
        let fast = rests(&broker, || Some(submit())).await;
        busy.abort();
        assert!(Duration::ZERO < fast && fast <= Duration::from_millis(9 * 5), "{fast:?}");
        // Nobody waits for a broker that stops.
        broker.stop();
        assert_eq!(rests(&broker, || Some(submit())).await, Duration::ZERO);
    }
}
