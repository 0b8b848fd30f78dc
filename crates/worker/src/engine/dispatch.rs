//! Dispatch: decides what happens to a received item. It runs, it is declined, or it is settled without running.

use super::Engine;
use super::run::slot_request;
use super::running::{Attempt, Source};
use crate::envelope::Envelope;
use crate::event::Event;
use crate::limiter::Admission;
use crate::ports::{Delivery, Lease, PortError, Queue, Redelivery};
use std::sync::Arc;
use std::time::Duration;

/// How long an item of an unknown kind, or of another system, is deferred: another process may know it.
const UNKNOWN_DELAY: Duration = Duration::from_secs(5);
/// A backend that limits delays delivers early. An item that comes earlier than this is deferred.
const EARLY_MAX: Duration = Duration::from_secs(1);

impl Engine {
    /// Returns `true` if the work runs now or has ended, `false` if the item was declined.
    pub(super) async fn dispatch(self: &Arc<Engine>, queue: &Arc<dyn Queue>, delivery: Delivery) -> bool {
        match self.try_dispatch(queue, delivery).await {
            Ok(started) => started,
            Err(error) => {
                // The item is delivered again when its lease lapses.
                self.report_error("dispatch a received item", &error);
                false
            }
        }
    }

    async fn try_dispatch(
        self: &Arc<Engine>,
        queue: &Arc<dyn Queue>,
        delivery: Delivery,
    ) -> Result<bool, PortError> {
        let Delivery { payload, lease, attempt: number, deliveries } = delivery;
        let envelope = match Envelope::read(&payload) {
            Ok(envelope) => envelope,
            Err(error) => {
                queue.fail(&lease, None, &error).await?;
                let (id, kind) = (String::new(), String::new());
                self.emit(&Event::Failed { id, kind, error });
                return Ok(true);
            }
        };
        let now = self.clock.now();
        let decline = |reason, delay| self.decline(queue, &lease, &envelope, reason, delay);
        if self.is_stopping() {
            return decline("stopping", Duration::ZERO).await;
        }
        if let Some(start_at) = envelope.start_at.filter(|start_at| start_at.since(now) > EARLY_MAX) {
            return decline("not due", start_at.since(now)).await;
        }
        if envelope.prefix != self.keys.0 {
            return decline("of another system", UNKNOWN_DELAY).await;
        }
        let Some(kind) = self.kinds.get(envelope.kind.as_str()) else {
            return decline("unknown kind", UNKNOWN_DELAY).await;
        };
        if self.callbacks.accept.as_ref().is_some_and(|accept| !accept(&envelope.kind)) {
            return decline("not accepted", self.config.poll_interval).await;
        }
        let source = Source::Queue(Arc::clone(queue), lease);
        let attempt = Attempt { envelope: Arc::new(envelope), kind: Arc::clone(kind), number, source };
        let is_settled = self.settle_unrun(&attempt, deliveries).await?;
        if is_settled {
            return Ok(true);
        }
        let envelope = &attempt.envelope;
        match (self.limiter_of(kind).admit(slot_request(kind, envelope)), &attempt.source) {
            (Admission::Full, Source::Queue(queue, lease)) => {
                self.decline(queue, lease, envelope, "no free slot", self.config.poll_interval).await
            }
            (admission, _) => {
                self.spawn_attempt(attempt, Some(admission));
                Ok(true)
            }
        }
    }

    /// Settles work that must not run again: it has ended before, its deadline has passed, or no attempt is left. Returns
    /// `false` if the work is to run.
    async fn settle_unrun(self: &Arc<Engine>, attempt: &Attempt, deliveries: u32) -> Result<bool, PortError> {
        let envelope = &attempt.envelope;
        if deliveries > 1
            && let Some(record) = self.earlier_result(envelope).await?
        {
            self.propagate_result(envelope, &record).await?;
            self.settle_item(attempt, &record).await?;
            return Ok(true);
        }
        if envelope.deadline.is_some_and(|deadline| deadline <= self.clock.now()) {
            self.fail(attempt, "the deadline passed before the work ran".to_owned()).await?;
            return Ok(true);
        }
        if attempt.number > envelope.retry.attempts {
            let count = attempt.number - 1;
            let error =
                format!("all {count} attempts ended without an outcome: their workers may have crashed");
            self.fail(attempt, error).await?;
            return Ok(true);
        }
        Ok(false)
    }

    async fn decline(
        &self,
        queue: &Arc<dyn Queue>,
        lease: &Lease,
        envelope: &Envelope,
        reason: &'static str,
        delay: Duration,
    ) -> Result<bool, PortError> {
        match queue.defer(lease, Redelivery { delay, payload: None }).await {
            Ok(()) => self.emit(&Event::Declined { kind: envelope.kind.clone(), reason }),
            Err(error) => self.report_error("defer a declined item", &error),
        }
        Ok(false)
    }
}
