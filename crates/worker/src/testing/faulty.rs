//! A backend of which one planned call fails.

use crate::ports::{
    Backend, DeadLetter, Delivery, Increment, Lease, PortError, PortFuture, Queue, Redelivery, Store,
    SubmitRequest,
};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

/// When the planned fault happens.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum FaultTiming {
    /// The call fails and is not carried out.
    BeforeCall,
    /// The call is carried out, and its result is lost.
    AfterCall,
}

/// A backend of which one planned call fails with [`PortError::Unavailable`].
#[derive(Debug, Clone)]
pub struct FaultyBackend {
    inner: Backend,
    plan: Arc<FaultPlan>,
}

#[derive(Debug)]
struct FaultPlan {
    calls: AtomicU64,
    nth: u64,
    timing: FaultTiming,
}

impl FaultyBackend {
    /// The `nth` call of the queue and the store fails. The first call is 1.
    #[must_use]
    pub fn new(inner: impl Into<Backend>, nth: u64, timing: FaultTiming) -> FaultyBackend {
        let plan = FaultPlan { calls: AtomicU64::new(0), nth, timing };
        FaultyBackend { inner: inner.into(), plan: Arc::new(plan) }
    }

    /// The number of calls so far.
    #[must_use]
    pub fn calls(&self) -> u64 {
        self.plan.calls.load(Ordering::SeqCst)
    }
}

impl From<FaultyBackend> for Backend {
    fn from(faulty: FaultyBackend) -> Backend {
        let pubsub = Arc::clone(&faulty.inner.pubsub);
        let faulty = Arc::new(faulty);
        Backend { queue: Arc::clone(&faulty) as Arc<dyn Queue>, pubsub, store: faulty }
    }
}

impl FaultPlan {
    async fn call<T>(&self, call: PortFuture<'_, T>) -> Result<T, PortError> {
        if !self.is_next() {
            return call.await;
        }
        if self.timing == FaultTiming::AfterCall {
            call.await?;
        }
        Err(planned_error())
    }

    /// Counts a call. Returns whether it is the planned one.
    fn is_next(&self) -> bool {
        self.calls.fetch_add(1, Ordering::SeqCst) + 1 == self.nth
    }
}

fn planned_error() -> PortError {
    PortError::Unavailable("a planned fault".to_owned())
}

impl Queue for FaultyBackend {
    fn submit(&self, request: SubmitRequest) -> PortFuture<'_, bool> {
        Box::pin(self.plan.call(self.inner.queue.submit(request)))
    }

    /// Counts each item as a call. The items before the planned one are submitted.
    fn submit_all(&self, mut requests: Vec<SubmitRequest>) -> PortFuture<'_, Vec<bool>> {
        Box::pin(async move {
            let Some(at) = (0..requests.len()).find(|_| self.plan.is_next()) else {
                return self.inner.queue.submit_all(requests).await;
            };
            requests.truncate(at + usize::from(self.plan.timing == FaultTiming::AfterCall));
            self.inner.queue.submit_all(requests).await?;
            Err(planned_error())
        })
    }

    fn receive(&self, max: usize, visibility: Duration) -> PortFuture<'_, Vec<Delivery>> {
        Box::pin(self.plan.call(self.inner.queue.receive(max, visibility)))
    }

    fn heartbeat<'a>(&'a self, lease: &'a Lease, visibility: Duration) -> PortFuture<'a, ()> {
        Box::pin(self.plan.call(self.inner.queue.heartbeat(lease, visibility)))
    }

    fn commit<'a>(&'a self, lease: &'a Lease) -> PortFuture<'a, ()> {
        Box::pin(self.plan.call(self.inner.queue.commit(lease)))
    }

    fn defer<'a>(&'a self, lease: &'a Lease, redelivery: Redelivery) -> PortFuture<'a, ()> {
        Box::pin(self.plan.call(self.inner.queue.defer(lease, redelivery)))
    }

    fn retry<'a>(&'a self, lease: &'a Lease, redelivery: Redelivery, error: &'a str) -> PortFuture<'a, ()> {
        Box::pin(self.plan.call(self.inner.queue.retry(lease, redelivery, error)))
    }

    fn fail<'a>(&'a self, lease: &'a Lease, payload: Option<String>, error: &'a str) -> PortFuture<'a, ()> {
        Box::pin(self.plan.call(self.inner.queue.fail(lease, payload, error)))
    }

    fn redrive(&self, max: usize) -> PortFuture<'_, usize> {
        Box::pin(self.plan.call(self.inner.queue.redrive(max)))
    }

    fn dead_letters(&self, max: usize) -> PortFuture<'_, Vec<DeadLetter>> {
        Box::pin(self.plan.call(self.inner.queue.dead_letters(max)))
    }

    fn depth(&self) -> PortFuture<'_, Option<u64>> {
        Box::pin(self.plan.call(self.inner.queue.depth()))
    }

    fn size(&self) -> PortFuture<'_, Option<u64>> {
        Box::pin(self.plan.call(self.inner.queue.size()))
    }

    fn long_poll(&self, max: usize, visibility: Duration) -> PortFuture<'_, Vec<Delivery>> {
        Box::pin(async move {
            // Counted when it returns: the engine drops most long polls.
            let deliveries = self.inner.queue.long_poll(max, visibility).await?;
            if !self.plan.is_next() {
                return Ok(deliveries);
            }
            if self.plan.timing == FaultTiming::BeforeCall {
                for delivery in &deliveries {
                    self.inner.queue.defer(&delivery.lease, Redelivery::default()).await?;
                }
            }
            Err(planned_error())
        })
    }
}

impl Store for FaultyBackend {
    fn get<'a>(&'a self, key: &'a str) -> PortFuture<'a, Option<String>> {
        Box::pin(self.plan.call(self.inner.store.get(key)))
    }

    fn set<'a>(&'a self, key: &'a str, value: String, ttl: Duration) -> PortFuture<'a, ()> {
        Box::pin(self.plan.call(self.inner.store.set(key, value, ttl)))
    }

    fn delete<'a>(&'a self, key: &'a str) -> PortFuture<'a, ()> {
        Box::pin(self.plan.call(self.inner.store.delete(key)))
    }

    fn set_if_absent<'a>(&'a self, key: &'a str, value: String, ttl: Duration) -> PortFuture<'a, bool> {
        Box::pin(self.plan.call(self.inner.store.set_if_absent(key, value, ttl)))
    }

    fn increment<'a>(&'a self, key: &'a str, increment: Increment<'a>, ttl: Duration) -> PortFuture<'a, i64> {
        Box::pin(self.plan.call(self.inner.store.increment(key, increment, ttl)))
    }

    fn is_shared(&self) -> bool {
        self.inner.store.is_shared()
    }
}
