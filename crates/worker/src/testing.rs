//! For tests of programs that use this library: time that passes when nothing else is to be done, and backends that
//! fail when they are told to.

use crate::clock::{Clock, Time, VirtualClock};
use crate::error::Error;
use crate::ports::{
    Again, Answer, Backend, Count, DeadLetter, Lease, PortError, PubSub, Pulled, Push, Queue, Store,
};
use crate::system::System;
use futures::stream::BoxStream;
use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::task::Poll;
use std::time::Duration;

/// How often the other tasks have their turn before the clock is moved.
const TURNS: usize = 50;
/// What has not ended after this never does.
const TIME_MAX: Duration = Duration::from_secs(400 * 24 * 3600);

/// Runs a future to its end, and moves the clock to the next sleeper whenever nobody has anything to do. For a runtime
/// with one thread.
///
/// # Panics
/// If it has not ended after more than a year of virtual time.
pub async fn drive<T>(clock: &VirtualClock, future: impl Future<Output = T>) -> T {
    let mut future = pin!(future);
    let end = clock.now().after(TIME_MAX);
    loop {
        for _ in 0..TURNS {
            let polled = std::future::poll_fn(|cx| Poll::Ready(future.as_mut().poll(cx))).await;
            if let Poll::Ready(ended) = polled {
                return ended;
            }
            tokio::task::yield_now().await;
        }
        match clock.next_wake() {
            Some(at) if at <= end => clock.advance_to(at),
            Some(_) => panic!("it did not end in {TIME_MAX:?} of virtual time"),
            // Nobody waits for time: for a file, or another process.
            None => tokio::time::sleep(Duration::from_millis(1)).await,
        }
    }
}

/// Runs what there is to do to its end, and moves the clock on to whatever is to be done later, until nothing is left. For a runtime with
/// one thread.
///
/// ```
/// use std::time::Duration;
/// use towline::{Clock, Memory, Options, Outcome, System, testing, work};
///
/// # tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap().block_on(async {
/// let clock = testing::clock();
/// let note = work("note", |(): (), _| async { Ok(Outcome::<()>::Void) });
/// let system = System::on(Memory::with_clock(clock.clone())).clock(clock.clone()).work(&note).start()?;
/// system.queue(note.of(()).options(Options::new().delay(Duration::from_secs(3600)))).await?;
/// testing::run_until_idle(&clock, &system).await?;
/// assert_eq!(system.stats().completed, 1);
/// # Ok::<(), towline::Error>(())
/// # }).unwrap();
/// ```
///
/// # Panics
/// As [`drive`].
pub async fn run_until_idle(clock: &VirtualClock, system: &System) -> Result<(), Error> {
    drive(clock, system.idle()).await
}

/// Lets time pass, and everybody who is woken do what they have to.
pub async fn pass(clock: &VirtualClock, span: Duration) {
    let end = clock.now().after(span);
    let sleep = clock.sleep_until(end);
    drive(clock, sleep).await;
    for _ in 0..TURNS {
        tokio::task::yield_now().await;
    }
}

/// Which call of a backend goes wrong, and how.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Fault {
    /// Nothing happens.
    Before,
    /// It happens, and the answer is lost.
    After,
}

/// A backend whose calls fail when it is their turn.
#[derive(Debug, Clone)]
pub struct Faulty {
    inner: Backend,
    plan: Arc<Plan>,
}

#[derive(Debug)]
struct Plan {
    calls: AtomicU64,
    at: AtomicU64,
    fault: Fault,
}

impl Faulty {
    /// The `nth` call (from 1) to the queue and the store goes wrong, all others do not.
    #[must_use]
    pub fn new(inner: impl Into<Backend>, nth: u64, fault: Fault) -> Faulty {
        let plan = Plan { calls: AtomicU64::new(0), at: AtomicU64::new(nth), fault };
        Faulty { inner: inner.into(), plan: Arc::new(plan) }
    }

    /// How many calls there were.
    #[must_use]
    pub fn calls(&self) -> u64 {
        self.plan.calls.load(Ordering::SeqCst)
    }
}

impl From<Faulty> for Backend {
    fn from(faulty: Faulty) -> Backend {
        let pubsub = Arc::clone(&faulty.inner.pubsub);
        let both = Arc::new(faulty);
        Backend { queue: Arc::clone(&both) as Arc<dyn Queue>, pubsub, store: both }
    }
}

impl Plan {
    async fn call<T>(&self, call: Answer<'_, T>) -> Result<T, PortError> {
        if !self.is_next() {
            return call.await;
        }
        if self.fault == Fault::After {
            call.await?;
        }
        Err(lost())
    }

    /// Counts a call, and whether it is the one.
    fn is_next(&self) -> bool {
        self.calls.fetch_add(1, Ordering::SeqCst) + 1 == self.at.load(Ordering::SeqCst)
    }
}

fn lost() -> PortError {
    PortError::Unavailable("as planned".to_owned())
}

impl Queue for Faulty {
    fn push(&self, push: Push) -> Answer<'_, bool> {
        Box::pin(self.plan.call(self.inner.queue.push(push)))
    }

    /// Each is a call of its own: those before the one that goes wrong are pushed.
    fn push_all(&self, mut pushes: Vec<Push>) -> Answer<'_, Vec<bool>> {
        Box::pin(async move {
            let Some(at) = (0..pushes.len()).find(|_| self.plan.is_next()) else {
                return self.inner.queue.push_all(pushes).await;
            };
            pushes.truncate(at + usize::from(self.plan.fault == Fault::After));
            self.inner.queue.push_all(pushes).await?;
            Err(lost())
        })
    }

    fn pop(&self, max: usize, visibility: Duration) -> Answer<'_, Vec<Pulled>> {
        Box::pin(self.plan.call(self.inner.queue.pop(max, visibility)))
    }

    fn heartbeat<'a>(&'a self, lease: &'a Lease, visibility: Duration) -> Answer<'a, ()> {
        Box::pin(self.plan.call(self.inner.queue.heartbeat(lease, visibility)))
    }

    fn ack<'a>(&'a self, lease: &'a Lease) -> Answer<'a, ()> {
        Box::pin(self.plan.call(self.inner.queue.ack(lease)))
    }

    fn put_back<'a>(&'a self, lease: &'a Lease, again: Again) -> Answer<'a, ()> {
        Box::pin(self.plan.call(self.inner.queue.put_back(lease, again)))
    }

    fn retry<'a>(&'a self, lease: &'a Lease, again: Again, error: &'a str) -> Answer<'a, ()> {
        Box::pin(self.plan.call(self.inner.queue.retry(lease, again, error)))
    }

    fn dead_letter<'a>(&'a self, lease: &'a Lease, body: Option<String>, error: &'a str) -> Answer<'a, ()> {
        Box::pin(self.plan.call(self.inner.queue.dead_letter(lease, body, error)))
    }

    fn redrive(&self, max: usize) -> Answer<'_, usize> {
        Box::pin(self.plan.call(self.inner.queue.redrive(max)))
    }

    fn letters(&self, max: usize) -> Answer<'_, Vec<DeadLetter>> {
        Box::pin(self.plan.call(self.inner.queue.letters(max)))
    }

    fn depth(&self) -> Answer<'_, Option<u64>> {
        Box::pin(self.plan.call(self.inner.queue.depth()))
    }

    fn size(&self) -> Answer<'_, Option<u64>> {
        Box::pin(self.plan.call(self.inner.queue.size()))
    }

    fn wait(&self, max: usize, visibility: Duration) -> Answer<'_, Vec<Pulled>> {
        Box::pin(async move {
            // Counted when it ends: most of them are given up.
            let pulled = self.inner.queue.wait(max, visibility).await?;
            if !self.plan.is_next() {
                return Ok(pulled);
            }
            if self.plan.fault == Fault::Before {
                for pulled in &pulled {
                    self.inner.queue.put_back(&pulled.lease, Again::default()).await?;
                }
            }
            Err(lost())
        })
    }
}

impl PubSub for Faulty {
    fn publish(&self, message: String) -> Answer<'_, ()> {
        self.inner.pubsub.publish(message)
    }

    fn subscribe(&self) -> BoxStream<'static, String> {
        self.inner.pubsub.subscribe()
    }
}

impl Store for Faulty {
    fn get<'a>(&'a self, key: &'a str) -> Answer<'a, Option<String>> {
        Box::pin(self.plan.call(self.inner.store.get(key)))
    }

    fn set<'a>(&'a self, key: &'a str, value: String, ttl: Duration) -> Answer<'a, ()> {
        Box::pin(self.plan.call(self.inner.store.set(key, value, ttl)))
    }

    fn delete<'a>(&'a self, key: &'a str) -> Answer<'a, ()> {
        Box::pin(self.plan.call(self.inner.store.delete(key)))
    }

    fn set_if_absent<'a>(&'a self, key: &'a str, value: String, ttl: Duration) -> Answer<'a, bool> {
        Box::pin(self.plan.call(self.inner.store.set_if_absent(key, value, ttl)))
    }

    fn increment<'a>(&'a self, key: &'a str, count: Count<'a>, ttl: Duration) -> Answer<'a, i64> {
        Box::pin(self.plan.call(self.inner.store.increment(key, count, ttl)))
    }

    fn is_shared(&self) -> bool {
        self.inner.store.is_shared()
    }
}

/// A clock for tests, at a date that is easy to read.
#[must_use]
pub fn clock() -> Arc<VirtualClock> {
    Arc::new(VirtualClock::new(Time(1_800_000_000_000)))
}
