//! Slows down long work, such as a bulk action, while clients use the store.

use crate::broker::Broker;
use crate::clock::Stopwatch;
use std::time::Duration;

/// Operations of clients that a rest allows for each item of the work.
const CLIENT_OPERATIONS_PER_ITEM: u64 = 6;
/// The work gets at least one part in this many of the time, also if clients are slow or few.
const TIME_SHARE: u32 = 20;
/// Maximum rest. A part that took long has itself waited for the store, and its caller waits for an answer.
const REST_MAX: Duration = Duration::from_millis(500);
/// How often a rest checks what clients have done.
const CHECK_EVERY: Duration = Duration::from_millis(1);

/// The pace of one long work in many parts. While clients are idle, part follows part. Otherwise the work rests between
/// parts until clients have had their turn.
#[derive(Debug)]
pub struct Pace {
    /// Operations of clients at the end of the last rest.
    seen: u64,
    /// The next rest ends after this many operations of clients, or after `rest`.
    operations: u64,
    rest: Duration,
}

impl Broker {
    #[must_use]
    pub fn pace(&self) -> Pace {
        Pace { seen: self.operation_counts().by_clients(), operations: 0, rest: Duration::ZERO }
    }

    /// Does a part of the work, with this number of items.
    pub async fn part<T>(&self, pace: &mut Pace, items: usize, part: impl Future<Output = T>) -> T {
        let watch = Stopwatch::start();
        let done = part.await;
        pace.rest = (pace.rest + watch.elapsed() * (TIME_SHARE - 1)).min(REST_MAX);
        pace.operations += items as u64 * CLIENT_OPERATIONS_PER_ITEM;
        done
    }

    /// Rests for the parts since the last rest, if clients are busy. Call it before the next part.
    pub async fn rest(&self, pace: &mut Pace) {
        let seen = self.operation_counts().by_clients();
        if seen != pace.seen {
            let mut rested = Duration::ZERO;
            // No rest while the broker stops: that would delay the stop.
            while rested < pace.rest
                && self.operation_counts().by_clients() - seen < pace.operations
                && !self.0.is_stopping()
            {
                tokio::time::sleep(CHECK_EVERY).await;
                rested += CHECK_EVERY;
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

    /// How long ten parts rest if a client does this meanwhile.
    #[expect(
        clippy::disallowed_methods,
        reason = "the runtime's clock is paused: it advances while all tasks wait"
    )]
    async fn rests(broker: &Broker, by_clients: impl Fn() -> Option<Operation>) -> Duration {
        let (mut pace, begun) = (broker.pace(), Instant::now());
        for _ in 0..10 {
            let part = async {
                if let Some(operation) = by_clients() {
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
    async fn work_rests_while_clients_are_busy() {
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
        // No rest for operations before the start.
        let submit =
            || Operation::Submit { queue: queue.clone(), submission: Box::new(Submission::default()) };
        broker.update(vec![submit()]).await.unwrap().remove(0).unwrap();
        assert_eq!(rests(&broker, || None).await, Duration::ZERO);
        // After each part but the last, nineteen times its duration.
        let slow = rests(&broker, || Some(submit())).await;
        assert!(slow >= Duration::from_millis(9 * 19), "{slow:?}");
        // Fast clients make the rest short.
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
        // No rest while the broker stops.
        broker.stop();
        assert_eq!(rests(&broker, || Some(submit())).await, Duration::ZERO);
    }
}
