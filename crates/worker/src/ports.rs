//! The three ports that the library runs on: [`Queue`], [`PubSub`] and [`Store`]. A program can have its own
//! implementations; [`crate::conformance`] is their contract as a test suite.
//!
//! A worker may die between two calls. Steps that belong together are therefore one call: a retry is not a commit and a
//! submit, and an increment names what it counts, so that each thing counts once.

use futures::future::BoxFuture;
use futures::stream::BoxStream;
use std::sync::Arc;
use std::time::Duration;

/// The least time for which a queue remembers an idempotency key after the submit.
pub const IDEMPOTENCY_KEY_TTL: Duration = Duration::from_secs(24 * 3600);

/// The future that a call of a port returns.
pub type PortFuture<'a, T> = BoxFuture<'a, Result<T, PortError>>;

/// Why a port did not carry out a call.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum PortError {
    /// The lease lapsed, or it was used to settle the item.
    #[error("the lease is lost: it lapsed, or the item was settled")]
    LeaseLost,
    /// The call may succeed later. It is unknown whether this one was carried out.
    #[error("the backend is unavailable: {0}")]
    Unavailable(String),
    /// The same call would be refused again.
    #[error("the backend refused the call: {0}")]
    Refused(String),
}

/// An item to submit.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct SubmitRequest {
    pub payload: String,
    /// The queue does not deliver the item before this delay has passed.
    pub delay: Duration,
    /// The queue delivers lower numbers first.
    pub priority: i16,
    /// A second submit with the same key does nothing while the queue remembers the key ([`IDEMPOTENCY_KEY_TTL`]).
    pub idempotency_key: Option<String>,
}

/// The token that the lease holder shows to settle an item or to send a heartbeat.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Lease(pub String);

/// An item that a worker received, with its lease.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Delivery {
    pub payload: String,
    pub lease: Lease,
    /// Starts at 1. Retries and lapsed leases count; [`Queue::defer`] does not.
    pub attempt: u32,
    /// Starts at 1. Every delivery counts.
    pub deliveries: u32,
}

/// How an item returns to the queue.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Redelivery {
    pub delay: Duration,
    /// Replaces the payload of the item.
    pub payload: Option<String>,
}

/// A failed item that the queue keeps for inspection and redrive.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DeadLetter {
    pub payload: String,
    pub error: String,
}

/// A queue with leases: it delivers an item to one worker at a time, until the lease lapses.
///
/// **Contract.** The queue delivers a submitted item at least once, and again until it is committed or failed. It
/// refuses a lease that lapsed or was used with [`PortError::LeaseLost`], even if no other worker holds the item now;
/// only the same call may be answered twice. [`Queue::receive`] delivers ready items by priority, then in the order in
/// which they became ready: by a submit, by a retry, or when a delay ended. An item whose lease lapsed, or that was
/// deferred without a delay, keeps its place. Each call is one step: if a process dies in the middle, the call happened
/// in full or not at all. A backend that limits the delay may deliver an item early.
pub trait Queue: Send + Sync {
    /// Returns `false` if the queue knows the idempotency key already.
    fn submit(&self, request: SubmitRequest) -> PortFuture<'_, bool>;

    /// Submits several items in order, and returns for each what [`Queue::submit`] returns. After an error some of them
    /// may be in the queue. The engine passes at most 500 items and 1 MiB of payloads; a single payload may be larger.
    fn submit_all(&self, requests: Vec<SubmitRequest>) -> PortFuture<'_, Vec<bool>> {
        Box::pin(async move {
            let mut new = Vec::with_capacity(requests.len());
            for request in requests {
                new.push(self.submit(request).await?);
            }
            Ok(new)
        })
    }

    /// Leases up to `max` ready items, each for the visibility timeout.
    fn receive(&self, max: usize, visibility: Duration) -> PortFuture<'_, Vec<Delivery>>;

    /// Like [`Queue::receive`], but waits until at least one item is ready. A caller that drops the future gives back
    /// the items it would have received, where the backend can do that. The engine drops it only when it stops. The
    /// default never returns; the engine then finds new items with its next poll.
    fn long_poll(&self, _max: usize, _visibility: Duration) -> PortFuture<'_, Vec<Delivery>> {
        Box::pin(std::future::pending())
    }

    /// Extends the lease: it now lasts for the visibility timeout from this call on.
    fn heartbeat<'a>(&'a self, lease: &'a Lease, visibility: Duration) -> PortFuture<'a, ()>;

    /// Completes the item.
    fn commit<'a>(&'a self, lease: &'a Lease) -> PortFuture<'a, ()>;

    /// Returns the item to the queue. The attempt does not count. Without a delay, the item keeps its place.
    fn defer<'a>(&'a self, lease: &'a Lease, redelivery: Redelivery) -> PortFuture<'a, ()>;

    /// Returns the item to the queue for its next attempt.
    fn retry<'a>(&'a self, lease: &'a Lease, redelivery: Redelivery, error: &'a str) -> PortFuture<'a, ()>;

    /// Fails the item: it becomes a dead letter. `payload` replaces its payload.
    fn fail<'a>(&'a self, lease: &'a Lease, payload: Option<String>, error: &'a str) -> PortFuture<'a, ()>;

    /// Makes up to `max` dead letters ready again, with all attempts before them. Returns how many.
    fn redrive(&self, max: usize) -> PortFuture<'_, usize>;

    /// Returns up to `max` dead letters, oldest first.
    fn dead_letters(&self, max: usize) -> PortFuture<'_, Vec<DeadLetter>>;

    /// Returns how many items wait to be delivered, due or not; `None` if the backend cannot count.
    fn depth(&self) -> PortFuture<'_, Option<u64>> {
        Box::pin(async { Ok(None) })
    }

    /// Returns how many items wait or are leased, without dead letters; `None` if the backend cannot count.
    fn size(&self) -> PortFuture<'_, Option<u64>> {
        Box::pin(async { Ok(None) })
    }
}

/// Sends messages to the current subscribers. Messages are not stored and may be lost: they only shorten the time until a
/// waiter looks into the store.
pub trait PubSub: Send + Sync {
    fn publish(&self, message: String) -> PortFuture<'_, ()>;

    /// Yields the messages that are published from now on.
    fn subscribe(&self) -> BoxStream<'static, String>;
}

/// An amount to add to a counter.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Increment<'a> {
    pub by: i64,
    /// Names the thing that is counted. A second increment with the same name changes nothing and returns the first
    /// result.
    pub once: Option<&'a str>,
}

/// Records and counters with a time to live.
///
/// **Contract.** Of several [`Store::set_if_absent`] calls for one key, one wins. [`Store::increment`] loses no
/// increment, and counts each `once` of a key once, for at least the `ttl` of that call.
pub trait Store: Send + Sync {
    fn get<'a>(&'a self, key: &'a str) -> PortFuture<'a, Option<String>>;

    fn set<'a>(&'a self, key: &'a str, value: String, ttl: Duration) -> PortFuture<'a, ()>;

    fn delete<'a>(&'a self, key: &'a str) -> PortFuture<'a, ()>;

    /// Returns `true` if the key was absent and now holds `value`.
    fn set_if_absent<'a>(&'a self, key: &'a str, value: String, ttl: Duration) -> PortFuture<'a, bool>;

    /// Returns the counter after the increment.
    fn increment<'a>(&'a self, key: &'a str, increment: Increment<'a>, ttl: Duration) -> PortFuture<'a, i64>;

    /// Whether increments are atomic across processes. If not, only one process may use the store.
    fn is_shared(&self) -> bool {
        true
    }
}

/// Truncates an error message to what a backend accepts, at a character boundary.
#[cfg(any(feature = "broker", feature = "server"))]
pub(crate) fn truncated(text: &str, bytes_max: usize) -> &str {
    let mut end = bytes_max.min(text.len());
    while !text.is_char_boundary(end) {
        end -= 1;
    }
    &text[..end]
}

/// The ports of one backend.
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
