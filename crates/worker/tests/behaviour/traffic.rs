//! A backend that counts its calls, so that virtual time stands still while a call is under way.

use futures::stream::BoxStream;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;
use tokio::sync::Notify;
use towline::ports::{
    DeadLetter, Delivery, Increment, Lease, PortError, PortFuture, PubSub, Queue, Redelivery, Store,
    SubmitRequest,
};
use towline::{Backend, Clock, Time, VirtualClock};

/// How often a long poll polls the queue, in virtual time.
const POLL_EVERY: Duration = Duration::from_secs(1);
/// After this many empty polls a long poll stops polling until something changes. A test may pass hours of virtual time.
const EMPTY_POLLS_MAX: u32 = 30;
/// If the clock advances by more than this at once, long polls poll again.
const JUMP: Duration = Duration::from_secs(10);

/// The calls that are under way, and the submits so far.
#[derive(Default)]
pub struct Traffic {
    under_way: AtomicUsize,
    submitted: Notify,
    submits: AtomicUsize,
}

impl Traffic {
    pub fn under_way(&self) -> usize {
        self.under_way.load(Ordering::SeqCst)
    }

    /// The number of submit calls.
    pub fn submits(&self) -> usize {
        self.submits.load(Ordering::SeqCst)
    }

    async fn call<T>(&self, call: PortFuture<'_, T>) -> Result<T, PortError> {
        let _guard = CallGuard::new(&self.under_way);
        call.await
    }

    async fn submit<T>(&self, call: PortFuture<'_, T>) -> Result<T, PortError> {
        self.submits.fetch_add(1, Ordering::SeqCst);
        self.call(call).await
    }
}

struct CallGuard<'a>(&'a AtomicUsize);

impl CallGuard<'_> {
    fn new(count: &AtomicUsize) -> CallGuard<'_> {
        count.fetch_add(1, Ordering::SeqCst);
        CallGuard(count)
    }
}

impl Drop for CallGuard<'_> {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::SeqCst);
    }
}

pub fn counted(backend: &Backend, traffic: &Arc<Traffic>, clock: &Arc<VirtualClock>) -> Backend {
    Backend {
        queue: queue(Arc::clone(&backend.queue), traffic, clock, Abilities::default()),
        pubsub: Arc::new(Counted { inner: Arc::clone(&backend.pubsub), traffic: Arc::clone(traffic) }),
        store: Arc::new(Counted { inner: Arc::clone(&backend.store), traffic: Arc::clone(traffic) }),
    }
}

pub fn queue(
    inner: Arc<dyn Queue>,
    traffic: &Arc<Traffic>,
    clock: &Arc<VirtualClock>,
    abilities: Abilities,
) -> Arc<dyn Queue> {
    let inner = PolledQueue { inner, clock: Arc::clone(clock), empty_polls: Mutex::default(), abilities };
    Arc::new(Counted { inner, traffic: Arc::clone(traffic) })
}

/// What a queue can do.
#[derive(Clone, Copy)]
pub struct Abilities {
    pub long_polls: bool,
    pub delay_max: Duration,
}

impl Default for Abilities {
    fn default() -> Abilities {
        Abilities { long_polls: true, delay_max: Duration::MAX }
    }
}

struct Counted<P> {
    inner: P,
    traffic: Arc<Traffic>,
}

/// A queue whose long polls poll it in virtual time.
struct PolledQueue {
    inner: Arc<dyn Queue>,
    clock: Arc<VirtualClock>,
    /// How many polls in a row found nothing, and the time of the last one.
    empty_polls: Mutex<(u32, Time)>,
    abilities: Abilities,
}

impl PolledQueue {
    fn capped_submit(&self, request: SubmitRequest) -> SubmitRequest {
        SubmitRequest { delay: request.delay.min(self.abilities.delay_max), ..request }
    }

    fn capped_redelivery(&self, redelivery: Redelivery) -> Redelivery {
        Redelivery { delay: redelivery.delay.min(self.abilities.delay_max), ..redelivery }
    }

    fn changed(&self) {
        self.empty_polls.lock().unwrap().0 = 0;
    }

    /// Whether a poll may find something.
    fn is_worth_a_poll(&self) -> bool {
        let mut empty_polls = self.empty_polls.lock().unwrap();
        let now = self.clock.now();
        let before = std::mem::replace(&mut empty_polls.1, now);
        empty_polls.0 = if now.since(before) > JUMP { 0 } else { empty_polls.0 + 1 };
        empty_polls.0 <= EMPTY_POLLS_MAX
    }
}

impl Queue for Counted<PolledQueue> {
    fn submit(&self, request: SubmitRequest) -> PortFuture<'_, bool> {
        Box::pin(async move {
            let request = self.inner.capped_submit(request);
            let is_new = self.traffic.submit(self.inner.inner.submit(request)).await;
            self.inner.changed();
            self.traffic.submitted.notify_waiters();
            is_new
        })
    }

    fn submit_all(&self, requests: Vec<SubmitRequest>) -> PortFuture<'_, Vec<bool>> {
        Box::pin(async move {
            let requests = requests.into_iter().map(|request| self.inner.capped_submit(request)).collect();
            let new = self.traffic.submit(self.inner.inner.submit_all(requests)).await;
            self.inner.changed();
            self.traffic.submitted.notify_waiters();
            new
        })
    }

    fn receive(&self, max: usize, visibility: Duration) -> PortFuture<'_, Vec<Delivery>> {
        Box::pin(self.traffic.call(self.inner.inner.receive(max, visibility)))
    }

    /// Polls: a long poll of the backend itself does not notice that the virtual clock advanced.
    fn long_poll(&self, max: usize, visibility: Duration) -> PortFuture<'_, Vec<Delivery>> {
        if !self.inner.abilities.long_polls {
            return Box::pin(std::future::pending());
        }
        Box::pin(async move {
            loop {
                let submitted = self.traffic.submitted.notified();
                if self.inner.is_worth_a_poll() {
                    let deliveries = self.receive(max, visibility).await?;
                    if !deliveries.is_empty() {
                        return Ok(deliveries);
                    }
                }
                let clock = &self.inner.clock;
                tokio::select! {
                    () = submitted => {}
                    () = clock.sleep_until(clock.now().after(POLL_EVERY)) => {}
                }
            }
        })
    }

    fn heartbeat<'a>(&'a self, lease: &'a Lease, visibility: Duration) -> PortFuture<'a, ()> {
        Box::pin(self.traffic.call(self.inner.inner.heartbeat(lease, visibility)))
    }

    fn commit<'a>(&'a self, lease: &'a Lease) -> PortFuture<'a, ()> {
        Box::pin(self.traffic.call(self.inner.inner.commit(lease)))
    }

    fn defer<'a>(&'a self, lease: &'a Lease, redelivery: Redelivery) -> PortFuture<'a, ()> {
        self.inner.changed();
        let redelivery = self.inner.capped_redelivery(redelivery);
        Box::pin(self.traffic.call(self.inner.inner.defer(lease, redelivery)))
    }

    fn retry<'a>(&'a self, lease: &'a Lease, redelivery: Redelivery, error: &'a str) -> PortFuture<'a, ()> {
        self.inner.changed();
        let redelivery = self.inner.capped_redelivery(redelivery);
        Box::pin(self.traffic.call(self.inner.inner.retry(lease, redelivery, error)))
    }

    fn fail<'a>(&'a self, lease: &'a Lease, payload: Option<String>, error: &'a str) -> PortFuture<'a, ()> {
        Box::pin(self.traffic.call(self.inner.inner.fail(lease, payload, error)))
    }

    fn redrive(&self, max: usize) -> PortFuture<'_, usize> {
        Box::pin(self.traffic.call(self.inner.inner.redrive(max)))
    }

    fn dead_letters(&self, max: usize) -> PortFuture<'_, Vec<DeadLetter>> {
        Box::pin(self.traffic.call(self.inner.inner.dead_letters(max)))
    }

    fn depth(&self) -> PortFuture<'_, Option<u64>> {
        Box::pin(self.traffic.call(self.inner.inner.depth()))
    }

    fn size(&self) -> PortFuture<'_, Option<u64>> {
        Box::pin(self.traffic.call(self.inner.inner.size()))
    }
}

impl PubSub for Counted<Arc<dyn PubSub>> {
    fn publish(&self, message: String) -> PortFuture<'_, ()> {
        Box::pin(self.traffic.call(self.inner.publish(message)))
    }

    fn subscribe(&self) -> BoxStream<'static, String> {
        self.inner.subscribe()
    }
}

impl Store for Counted<Arc<dyn Store>> {
    fn get<'a>(&'a self, key: &'a str) -> PortFuture<'a, Option<String>> {
        Box::pin(self.traffic.call(self.inner.get(key)))
    }

    fn set<'a>(&'a self, key: &'a str, value: String, ttl: Duration) -> PortFuture<'a, ()> {
        Box::pin(self.traffic.call(self.inner.set(key, value, ttl)))
    }

    fn delete<'a>(&'a self, key: &'a str) -> PortFuture<'a, ()> {
        Box::pin(self.traffic.call(self.inner.delete(key)))
    }

    fn set_if_absent<'a>(&'a self, key: &'a str, value: String, ttl: Duration) -> PortFuture<'a, bool> {
        Box::pin(self.traffic.call(self.inner.set_if_absent(key, value, ttl)))
    }

    fn increment<'a>(&'a self, key: &'a str, increment: Increment<'a>, ttl: Duration) -> PortFuture<'a, i64> {
        Box::pin(self.traffic.call(self.inner.increment(key, increment, ttl)))
    }
}
