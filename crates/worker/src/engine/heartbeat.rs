//! Heartbeats: one task renews the leases of all running attempts.
//!
//! One task for all costs less than one for each, since most attempts end before their first heartbeat. It also renews
//! the lease of a handler that blocks its thread.

use super::Engine;
use super::running::{RunningAttempt, Source};
use crate::clock::Time;
use crate::ports::PortError;
use std::sync::Arc;
use std::time::Duration;

/// The task looks this often within a visibility timeout, and renews leases that were not renewed since the last look. A
/// lease is thus renewed within two such intervals.
const CHECKS_PER_TIMEOUT: u32 = 6;

impl Engine {
    pub(super) async fn send_heartbeats(self: Arc<Engine>) {
        let pause = self.config.visibility_timeout / CHECKS_PER_TIMEOUT;
        while !self.running.ends_heartbeat() {
            self.sleep(pause).await;
            let now = self.clock.now();
            for (number, running) in self.running.take_due(before(now, pause), now) {
                // In their own tasks: a slow call must not delay other heartbeats.
                tokio::spawn(Arc::clone(&self).send_heartbeat(number, running));
            }
        }
    }

    async fn send_heartbeat(self: Arc<Engine>, number: u64, running: Arc<RunningAttempt>) {
        let Source::Queue(queue, lease) = &running.attempt.source else { return };
        match queue.heartbeat(lease, self.config.visibility_timeout).await {
            Ok(()) => {}
            // An attempt that is no longer in the table was settled meanwhile.
            Err(PortError::LeaseLost) if self.running.contains(number) => running.lose_lease(),
            Err(PortError::LeaseLost) => {}
            Err(error) => self.report_error("send a heartbeat", &error),
        }
    }
}

fn before(now: Time, span: Duration) -> Time {
    Time(now.0.saturating_sub(u64::try_from(span.as_millis()).unwrap_or(u64::MAX)))
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "tests")]
mod tests {
    use crate::{Options, Outcome, Retry, System, work};
    use std::time::Duration;

    /// Uses the machine's clock: no other task runs on a blocked thread.
    #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
    async fn a_handler_that_blocks_its_thread_keeps_its_lease() {
        let slow = work("slow", |(): (), context: crate::Context| async move {
            std::thread::sleep(Duration::from_secs(4));
            Ok(Outcome::Result(context.attempt()))
        });
        let builder = System::in_memory().work(&slow).visibility_timeout(Duration::from_millis(1500));
        let system = builder.start().unwrap();
        let attempt = system.submit(slow.of(())).await.unwrap().result().await.unwrap();
        assert_eq!((attempt, system.stats().leases_lost, system.stats().started), (1, 0, 1));
        system.stop(Duration::from_secs(5)).await;
    }

    #[tokio::test]
    async fn a_handler_that_panics_before_it_returns_a_future_ends_only_its_own_work() {
        let bad = work("bad", |n: u32, _| {
            assert!(n == 0, "not {n}");
            async { Ok(Outcome::<()>::Void) }
        });
        let system = System::in_memory().work(&bad).start().unwrap();
        let once = Options::new().retry(Retry::never());
        let error = system.submit(bad.of(7).options(once)).await.unwrap().done().await.unwrap_err();
        assert!(error.to_string().contains("panicked: not 7"), "{error}");
        system.submit(bad.of(0)).await.unwrap().done().await.unwrap();
        assert!(system.stop(Duration::from_secs(5)).await);
    }
}
