//! A backend whose calls are seen: time that the test moves stands still while one is under way, wherever it is carried out.

use futures::stream::BoxStream;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;
use tokio::sync::Notify;
use towline::ports::{
    Again, Answer, Count, DeadLetter, Lease, PortError, PubSub, Pulled, Push, Queue, Store,
};
use towline::{Backend, Clock, Time, VirtualClock};

/// How often whoever waits looks, in virtual time.
const LOOK_EVERY: Duration = Duration::from_secs(1);

/// After so many looks in vain only the engine's own polls look, until something happens: an hour has many seconds.
const LOOKS_MAX: u32 = 30;
/// Time was moved at once.
const JUMP: Duration = Duration::from_secs(10);

/// Calls under way, and who waits for a push.
#[derive(Default)]
pub struct Traffic {
    under_way: AtomicUsize,
    pushed: Notify,
    pushes: AtomicUsize,
}

impl Traffic {
    pub fn under_way(&self) -> usize {
        self.under_way.load(Ordering::SeqCst)
    }

    /// How many calls pushed something.
    pub fn pushes(&self) -> usize {
        self.pushes.load(Ordering::SeqCst)
    }

    async fn call<T>(&self, call: Answer<'_, T>) -> Result<T, PortError> {
        let _one = One::new(&self.under_way);
        call.await
    }
}

struct One<'a>(&'a AtomicUsize);

impl One<'_> {
    fn new(count: &AtomicUsize) -> One<'_> {
        count.fetch_add(1, Ordering::SeqCst);
        One(count)
    }
}

impl Drop for One<'_> {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::SeqCst);
    }
}

pub fn watched(backend: &Backend, traffic: &Arc<Traffic>, clock: &Arc<VirtualClock>) -> Backend {
    Backend {
        queue: queue(Arc::clone(&backend.queue), traffic, clock),
        pubsub: Arc::new(Watched { inner: Arc::clone(&backend.pubsub), traffic: Arc::clone(traffic) }),
        store: Arc::new(Watched { inner: Arc::clone(&backend.store), traffic: Arc::clone(traffic) }),
    }
}

pub fn queue(inner: Arc<dyn Queue>, traffic: &Arc<Traffic>, clock: &Arc<VirtualClock>) -> Arc<dyn Queue> {
    looked(inner, traffic, clock, Abilities::default())
}

/// As of a backend that has no such call: who waits there is never answered.
pub fn queue_without_wait(
    inner: Arc<dyn Queue>,
    traffic: &Arc<Traffic>,
    clock: &Arc<VirtualClock>,
) -> Arc<dyn Queue> {
    looked(inner, traffic, clock, Abilities { answers: false, ..Abilities::default() })
}

/// As of a backend that has a longest delay.
pub fn queue_that_delays(
    inner: Arc<dyn Queue>,
    traffic: &Arc<Traffic>,
    clock: &Arc<VirtualClock>,
    delay_max: Duration,
) -> Arc<dyn Queue> {
    looked(inner, traffic, clock, Abilities { delay_max, ..Abilities::default() })
}

/// What the backend can do.
#[derive(Clone, Copy)]
struct Abilities {
    /// Whether who waits is ever answered.
    answers: bool,
    delay_max: Duration,
}

impl Default for Abilities {
    fn default() -> Abilities {
        Abilities { answers: true, delay_max: Duration::MAX }
    }
}

fn looked(
    inner: Arc<dyn Queue>,
    traffic: &Arc<Traffic>,
    clock: &Arc<VirtualClock>,
    abilities: Abilities,
) -> Arc<dyn Queue> {
    let inner = Looked { inner, clock: Arc::clone(clock), looks: Mutex::default(), abilities };
    Arc::new(Watched { inner, traffic: Arc::clone(traffic) })
}

struct Watched<P> {
    inner: P,
    traffic: Arc<Traffic>,
}

/// A queue, and the time by which it is looked at.
struct Looked {
    inner: Arc<dyn Queue>,
    clock: Arc<VirtualClock>,
    /// How many in vain, and when the last was.
    looks: Mutex<(u32, Time)>,
    abilities: Abilities,
}

impl Looked {
    fn push(&self, push: Push) -> Push {
        Push { delay: push.delay.min(self.abilities.delay_max), ..push }
    }

    fn again(&self, again: Again) -> Again {
        Again { delay: again.delay.min(self.abilities.delay_max), ..again }
    }

    fn something_happened(&self) {
        self.looks.lock().unwrap().0 = 0;
    }

    /// Whether it is worth a look.
    fn looks(&self) -> bool {
        let mut looks = self.looks.lock().unwrap();
        let now = self.clock.now();
        let before = std::mem::replace(&mut looks.1, now);
        looks.0 = if now.since(before) > JUMP { 0 } else { looks.0 + 1 };
        looks.0 <= LOOKS_MAX
    }
}

impl Queue for Watched<Looked> {
    fn push(&self, push: Push) -> Answer<'_, bool> {
        Box::pin(async move {
            self.traffic.pushes.fetch_add(1, Ordering::SeqCst);
            let pushed = self.traffic.call(self.inner.inner.push(self.inner.push(push))).await;
            self.inner.something_happened();
            self.traffic.pushed.notify_waiters();
            pushed
        })
    }

    fn push_all(&self, pushes: Vec<Push>) -> Answer<'_, Vec<bool>> {
        Box::pin(async move {
            self.traffic.pushes.fetch_add(1, Ordering::SeqCst);
            let pushes = pushes.into_iter().map(|push| self.inner.push(push)).collect();
            let pushed = self.traffic.call(self.inner.inner.push_all(pushes)).await;
            self.inner.something_happened();
            self.traffic.pushed.notify_waiters();
            pushed
        })
    }

    fn pop(&self, max: usize, visibility: Duration) -> Answer<'_, Vec<Pulled>> {
        Box::pin(self.traffic.call(self.inner.inner.pop(max, visibility)))
    }

    /// By looking: whoever waits elsewhere for an answer does not see that time was moved.
    fn wait(&self, max: usize, visibility: Duration) -> Answer<'_, Vec<Pulled>> {
        if !self.inner.abilities.answers {
            return Box::pin(std::future::pending());
        }
        Box::pin(async move {
            loop {
                let pushed = self.traffic.pushed.notified();
                if self.inner.looks() {
                    let pulled = self.pop(max, visibility).await?;
                    if !pulled.is_empty() {
                        return Ok(pulled);
                    }
                }
                let clock = &self.inner.clock;
                tokio::select! {
                    () = pushed => {}
                    () = clock.sleep_until(clock.now().after(LOOK_EVERY)) => {}
                }
            }
        })
    }

    fn heartbeat<'a>(&'a self, lease: &'a Lease, visibility: Duration) -> Answer<'a, ()> {
        Box::pin(self.traffic.call(self.inner.inner.heartbeat(lease, visibility)))
    }

    fn ack<'a>(&'a self, lease: &'a Lease) -> Answer<'a, ()> {
        Box::pin(self.traffic.call(self.inner.inner.ack(lease)))
    }

    fn put_back<'a>(&'a self, lease: &'a Lease, again: Again) -> Answer<'a, ()> {
        self.inner.something_happened();
        Box::pin(self.traffic.call(self.inner.inner.put_back(lease, self.inner.again(again))))
    }

    fn retry<'a>(&'a self, lease: &'a Lease, again: Again, error: &'a str) -> Answer<'a, ()> {
        self.inner.something_happened();
        Box::pin(self.traffic.call(self.inner.inner.retry(lease, self.inner.again(again), error)))
    }

    fn dead_letter<'a>(&'a self, lease: &'a Lease, body: Option<String>, error: &'a str) -> Answer<'a, ()> {
        Box::pin(self.traffic.call(self.inner.inner.dead_letter(lease, body, error)))
    }

    fn redrive(&self, max: usize) -> Answer<'_, usize> {
        Box::pin(self.traffic.call(self.inner.inner.redrive(max)))
    }

    fn letters(&self, max: usize) -> Answer<'_, Vec<DeadLetter>> {
        Box::pin(self.traffic.call(self.inner.inner.letters(max)))
    }

    fn depth(&self) -> Answer<'_, Option<u64>> {
        Box::pin(self.traffic.call(self.inner.inner.depth()))
    }

    fn size(&self) -> Answer<'_, Option<u64>> {
        Box::pin(self.traffic.call(self.inner.inner.size()))
    }
}

impl PubSub for Watched<Arc<dyn PubSub>> {
    fn publish(&self, message: String) -> Answer<'_, ()> {
        Box::pin(self.traffic.call(self.inner.publish(message)))
    }

    fn subscribe(&self) -> BoxStream<'static, String> {
        self.inner.subscribe()
    }
}

impl Store for Watched<Arc<dyn Store>> {
    fn get<'a>(&'a self, key: &'a str) -> Answer<'a, Option<String>> {
        Box::pin(self.traffic.call(self.inner.get(key)))
    }

    fn set<'a>(&'a self, key: &'a str, value: String, ttl: Duration) -> Answer<'a, ()> {
        Box::pin(self.traffic.call(self.inner.set(key, value, ttl)))
    }

    fn delete<'a>(&'a self, key: &'a str) -> Answer<'a, ()> {
        Box::pin(self.traffic.call(self.inner.delete(key)))
    }

    fn set_if_absent<'a>(&'a self, key: &'a str, value: String, ttl: Duration) -> Answer<'a, bool> {
        Box::pin(self.traffic.call(self.inner.set_if_absent(key, value, ttl)))
    }

    fn increment<'a>(&'a self, key: &'a str, count: Count<'a>, ttl: Duration) -> Answer<'a, i64> {
        Box::pin(self.traffic.call(self.inner.increment(key, count, ttl)))
    }
}
