//! Running an attempt: waits for a slot, calls the handler within its time limit, and settles.

use super::Engine;
use super::running::{Attempt, RunningAttempt, Source};
use crate::context::Context;
use crate::envelope::Envelope;
use crate::event::Event;
use crate::handler::{Codecs, Handler, HandlerInput, HandlerResult};
use crate::limiter::{Admission, Permit, SlotRequest};
use crate::outcome::Failure;
use crate::ports::PortError;
use crate::work::Kind;
use futures::FutureExt;
use std::any::Any;
use std::panic::AssertUnwindSafe;
use std::sync::Arc;
use std::time::Duration;
use tokio::task::{JoinError, JoinHandle};

/// How often the engine tries to settle before it leaves the item to its lease.
const SETTLE_TRIES_MAX: u32 = 5;
/// The pause after the first failed try. It doubles each time.
const SETTLE_PAUSE: Duration = Duration::from_millis(50);

impl Engine {
    /// Runs work in this process without the queue, even if the limiter is full.
    pub(super) fn run_locally(self: &Arc<Engine>, envelope: Envelope, kind: Arc<Kind>) {
        let admission = match self.limiter_of(&kind).admit(slot_request(&kind, &envelope)) {
            Admission::Full => None,
            admission => Some(admission),
        };
        let attempt = Attempt { envelope: Arc::new(envelope), kind, number: 1, source: Source::Local };
        self.spawn_attempt(attempt, admission);
    }

    pub(super) fn spawn_attempt(self: &Arc<Engine>, attempt: Attempt, admission: Option<Admission>) {
        let guard = self.add_running(attempt);
        tokio::spawn(async move {
            let (engine, running) = (&guard.engine, &guard.running);
            let ended = tokio::select! {
                // A handler that needs no time ends before the other branch is polled at all.
                biased;
                ended = engine.run_attempt(running, admission) => ended,
                () = running.over() => if running.is_lease_lost() { Err(PortError::LeaseLost) } else { Ok(()) },
            };
            match ended {
                Ok(()) => {}
                Err(PortError::LeaseLost) => {
                    let envelope = &running.attempt.envelope;
                    let (id, kind) = (envelope.id.clone(), envelope.kind.clone());
                    engine.emit(&Event::LeaseLost { id, kind });
                }
                // The item is delivered again when its lease lapses.
                Err(error) => engine.report_error("settle an item", &error),
            }
        });
    }

    async fn run_attempt(
        self: &Arc<Engine>,
        running: &Arc<RunningAttempt>,
        admission: Option<Admission>,
    ) -> Result<(), PortError> {
        let slot: Option<Permit> = match admission {
            Some(Admission::Granted(slot)) => Some(slot),
            Some(Admission::Waiting(waiter)) => waiter.slot().await,
            Some(Admission::Full) | None => None,
        };
        let attempt = &running.attempt;
        self.mark_processing(&attempt.envelope, attempt.number).await;
        self.emit_with(Some(&self.counters.started), || Event::Started {
            id: attempt.envelope.id.clone(),
            kind: attempt.envelope.kind.clone(),
            attempt: attempt.number,
        });
        let context = Context { engine: Arc::clone(self), running: Arc::clone(running) };
        let kind_codec = attempt.kind.codec.as_ref().unwrap_or(&self.codec);
        let codecs = Codecs { kind: Arc::clone(kind_codec), group: Arc::clone(&self.codec) };
        let input = HandlerInput { codecs, context };
        let result = match self.time_limit(attempt) {
            None => self.call_handler(&attempt.kind, input).await,
            Some(limit) => Box::pin(self.call_handler_within(&attempt.kind, input, limit)).await,
        };
        drop(slot);
        self.settle_with_retries(attempt, result).await
    }

    /// The timeout of the attempt, or the time until the deadline of the work, whichever is shorter.
    fn time_limit(&self, attempt: &Attempt) -> Option<Duration> {
        let left = attempt.envelope.deadline.map(|deadline| deadline.since(self.clock.now()));
        attempt.envelope.timeout.into_iter().chain(left).min()
    }

    /// A handler that panics ends only its own work.
    async fn call_handler(self: &Arc<Engine>, kind: &Arc<Kind>, input: HandlerInput) -> HandlerResult {
        match &kind.handler {
            Handler::Single(run) => {
                let running = AssertUnwindSafe(async { run(input).await }).catch_unwind();
                running.await.unwrap_or_else(|panic| Err(panic_failure(panic)))
            }
            Handler::Batch { .. } => Box::pin(self.batches.run(self, kind, input)).await,
            Handler::Remote => Err(Failure::fail("this process has no handler for this kind of work")),
        }
    }

    /// Runs the handler in its own task, so that the time limit also ends a handler that blocks its thread.
    async fn call_handler_within(
        self: &Arc<Engine>,
        kind: &Arc<Kind>,
        input: HandlerInput,
        limit: Duration,
    ) -> HandlerResult {
        let (engine, kind) = (Arc::clone(self), Arc::clone(kind));
        let mut task = AbortOnDrop(tokio::spawn(async move { engine.call_handler(&kind, input).await }));
        tokio::select! {
            result = &mut task.0 => result.unwrap_or_else(|error| Err(task_failure(error))),
            () = self.sleep(limit) => Err(Failure::retry(format!("the attempt took longer than {limit:?}"))),
        }
    }

    /// Repeats the settle if the backend is unavailable, so that the outcome is not lost. A repeated settle changes
    /// nothing.
    async fn settle_with_retries(
        self: &Arc<Engine>,
        attempt: &Attempt,
        result: HandlerResult,
    ) -> Result<(), PortError> {
        let mut pause = SETTLE_PAUSE;
        let mut tries_left = SETTLE_TRIES_MAX;
        loop {
            tries_left -= 1;
            match self.settle(attempt, &result).await {
                Err(error @ PortError::Unavailable(_)) if tries_left > 0 => {
                    self.report_error("settle an item", &error);
                }
                settled => return settled,
            }
            self.sleep(pause).await;
            pause *= 2;
        }
    }
}

pub(super) fn slot_request(kind: &Kind, envelope: &Envelope) -> SlotRequest {
    SlotRequest {
        kind: Arc::clone(&kind.name),
        priority: envelope.priority,
        submitted_at: envelope.submitted_at,
    }
}

pub(super) fn task_failure(error: JoinError) -> Failure {
    match error.try_into_panic() {
        Ok(panic) => panic_failure(panic),
        Err(error) => Failure::retry(format!("the handler was stopped: {error}")),
    }
}

fn panic_failure(panic: Box<dyn Any + Send>) -> Failure {
    let text = panic.downcast_ref::<&str>().map(|text| (*text).to_owned());
    let message = text.or_else(|| panic.downcast_ref::<String>().cloned()).unwrap_or_default();
    Failure::retry(format!("the handler panicked: {message}"))
}

/// A task that is aborted when its handle is dropped.
struct AbortOnDrop<T>(JoinHandle<T>);

impl<T> Drop for AbortOnDrop<T> {
    fn drop(&mut self) {
        self.0.abort();
    }
}
