//! The three ports that everything stands on. Anyone can implement them; [`crate::conformance`] is their contract as a
//! test suite.
//!
//! They are few and small on purpose. What must hold when a process dies between two calls is in one call: a retry is
//! not an ack and a push, and a counter that must not count one thing twice is told what it counts.

use futures::future::BoxFuture;
use futures::stream::BoxStream;
use std::sync::Arc;
use std::time::Duration;

/// For so long, at least, a queue knows a key that was pushed with.
pub const KEY_KEPT: Duration = Duration::from_secs(24 * 3600);

pub type Answer<'a, T> = BoxFuture<'a, Result<T, PortError>>;

/// Why a port could not do what it was asked.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum PortError {
    /// The lease lapsed, or the item was settled: it is somebody else's, or nobody's.
    #[error("the lease is lost: it lapsed, or the item was settled")]
    LeaseLost,
    /// Another time it may work; whether this time it did is not known.
    #[error("the backend cannot be reached: {0}")]
    Unavailable(String),
    /// It will not work another time either.
    #[error("the backend refuses: {0}")]
    Refused(String),
}

/// Something to be queued.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Push {
    pub body: String,
    /// Not to be seen before this has passed.
    pub delay: Duration,
    /// Higher comes first.
    pub priority: i32,
    /// A second push with the same key, within [`KEY_KEPT`] at least, does nothing.
    pub dedupe_key: Option<String>,
}

/// What whoever popped an item shows to speak for it.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Lease(pub String);

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Pulled {
    pub body: String,
    pub lease: Lease,
    /// From 1. Retries and leases that lapsed count, [`Queue::put_back`] does not.
    pub attempt: u32,
    /// From 1, however the last one ended.
    pub delivery: u32,
}

/// Back into the queue.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Again {
    pub delay: Duration,
    /// In place of the one it had.
    pub body: Option<String>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DeadLetter {
    pub body: String,
    pub error: String,
}

/// A queue with leases: what is popped is nobody else's until its lease lapses.
///
/// **Contract.** An item that was pushed is delivered until it is acked or dead-lettered, at least once. A lease that
/// lapsed or was used up is refused with [`PortError::LeaseLost`], whoever holds the item now; only the call that used it
/// up may be told again that it did. `pop` gives what is ready by priority, and then in the order in which it became so:
/// by a push, when its delay was over, when its lease lapsed. Each call is one step: whatever dies in its middle, it
/// happened or it did not. A backend with a longest delay of its own may give an item out early.
pub trait Queue: Send + Sync {
    /// `false`: the key was known.
    fn push(&self, push: Push) -> Answer<'_, bool>;

    /// Several together, in this order: for each, whether it is new. If it fails, some may have been pushed. The engine gives no more
    /// than 500 at a time, and no more than 1 MiB of bodies unless one alone is larger.
    fn push_all(&self, pushes: Vec<Push>) -> Answer<'_, Vec<bool>> {
        Box::pin(async move {
            let mut new = Vec::with_capacity(pushes.len());
            for push in pushes {
                new.push(self.push(push).await?);
            }
            Ok(new)
        })
    }

    /// Up to `max` items, each hidden for `visibility`.
    fn pop(&self, max: usize, visibility: Duration) -> Answer<'_, Vec<Pulled>>;

    /// Hides it for `visibility` from now.
    fn heartbeat<'a>(&'a self, lease: &'a Lease, visibility: Duration) -> Answer<'a, ()>;

    /// It is done with.
    fn ack<'a>(&'a self, lease: &'a Lease) -> Answer<'a, ()>;

    /// It was not tried: the attempt does not count.
    fn put_back<'a>(&'a self, lease: &'a Lease, again: Again) -> Answer<'a, ()>;

    /// It was tried: the next time it is one attempt on.
    fn retry<'a>(&'a self, lease: &'a Lease, again: Again, error: &'a str) -> Answer<'a, ()>;

    /// Out of the queue, to where it can be looked at; `body` in place of the one it had.
    fn dead_letter<'a>(&'a self, lease: &'a Lease, body: Option<String>, error: &'a str) -> Answer<'a, ()>;

    /// Up to `max` dead letters back into the queue with all attempts before them; how many.
    fn redrive(&self, max: usize) -> Answer<'_, usize>;

    /// Up to `max` dead letters, oldest first.
    fn letters(&self, max: usize) -> Answer<'_, Vec<DeadLetter>>;

    /// How many wait, if it is known.
    fn depth(&self) -> Answer<'_, Option<u64>> {
        Box::pin(async { Ok(None) })
    }

    /// How many are in it, waiting or held, if it is known; dead letters are not.
    fn size(&self) -> Answer<'_, Option<u64>> {
        Box::pin(async { Ok(None) })
    }

    /// As [`Queue::pop`], but waits until there is something. Dropped before it ends, it gives back what it has taken, if
    /// it can; the engine drops it only when it stops. By default it never ends, and what comes is found by whoever asks
    /// next.
    fn wait(&self, _max: usize, _visibility: Duration) -> Answer<'_, Vec<Pulled>> {
        Box::pin(std::future::pending())
    }
}

/// Tells everybody who listens now. Best effort: nothing depends on it but how soon a waiter wakes.
pub trait PubSub: Send + Sync {
    fn publish(&self, message: String) -> Answer<'_, ()>;

    /// What is published from now on.
    fn subscribe(&self) -> BoxStream<'static, String>;
}

/// An amount to add to a counter.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Count<'a> {
    pub by: i64,
    /// What is counted: told a second time it changes nothing, and the answer is that of the first time.
    pub once: Option<&'a str>,
}

/// Keys and values that are forgotten after a time.
///
/// **Contract.** `set_if_absent` has one winner; `increment` loses nothing, and counts each `once` of a key once for the
/// `ttl` of that call, at least.
pub trait Store: Send + Sync {
    fn get<'a>(&'a self, key: &'a str) -> Answer<'a, Option<String>>;

    fn set<'a>(&'a self, key: &'a str, value: String, ttl: Duration) -> Answer<'a, ()>;

    fn delete<'a>(&'a self, key: &'a str) -> Answer<'a, ()>;

    /// `true`: it was absent, and is this caller's.
    fn set_if_absent<'a>(&'a self, key: &'a str, value: String, ttl: Duration) -> Answer<'a, bool>;

    /// The counter afterwards.
    fn increment<'a>(&'a self, key: &'a str, count: Count<'a>, ttl: Duration) -> Answer<'a, i64>;

    /// Whether `increment` holds against other processes. Without that only one process may work on it.
    fn is_shared(&self) -> bool {
        true
    }
}

/// The beginning of a text that is no longer than so many bytes.
#[cfg(any(feature = "broker", feature = "server"))]
pub(crate) fn cut(text: &str, bytes_max: usize) -> &str {
    let mut end = bytes_max.min(text.len());
    while !text.is_char_boundary(end) {
        end -= 1;
    }
    &text[..end]
}

/// The three together.
#[derive(Clone)]
pub struct Backend {
    pub queue: Arc<dyn Queue>,
    pub pubsub: Arc<dyn PubSub>,
    pub store: Arc<dyn Store>,
}

impl std::fmt::Debug for Backend {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Backend").finish_non_exhaustive()
    }
}
