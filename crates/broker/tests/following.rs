//! Followers get every event once and in order, whenever they start.
#![allow(clippy::unwrap_used, clippy::expect_used, reason = "tests")]

use std::collections::BTreeSet;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;
use towline_broker::{Broker, FollowError, Follower, Sharing, SteadyClock};
use towline_conformance::{InterceptedStore, Interceptor, ReferenceStore};
use towline_domain::change::Answer;
use towline_domain::{EventKind, ItemId, Policy, Schema, Submission};
use towline_store::{
    Answered, BoxFuture, EventCursor, EventId, EventPage, Events, EventsFrom, Operation, Reply, Result,
    Store, StoreError,
};

/// Far beyond every bound: a test that gets here hangs.
const NEVER: Duration = Duration::from_secs(60);

const SALT: u64 = 7;

async fn broker(sharing: Sharing) -> Broker {
    let clock = Arc::new(SteadyClock::new());
    create_queue(Broker::start(Arc::new(ReferenceStore::new(clock.clone(), SALT)), clock, None, sharing))
        .await
}

/// A broker on a store whose calls are intercepted.
async fn intercepted_broker<G: Interceptor + 'static>(guard: G) -> (Broker, Arc<InterceptedStore<G>>) {
    let clock = Arc::new(SteadyClock::new());
    let store = Arc::new(InterceptedStore { store: ReferenceStore::new(clock.clone(), SALT), guard });
    (create_queue(Broker::start(store.clone(), clock, None, Sharing::Alone)).await, store)
}

async fn create_queue(broker: Broker) -> Broker {
    let create = Operation::CreateQueue {
        queue: "jobs".parse().unwrap(),
        schema: Box::new(Schema::default()),
        policy: Box::new(Policy::default()),
    };
    broker.update(vec![create]).await.unwrap();
    broker
}

fn submits(count: usize) -> Vec<Operation> {
    let submit =
        || Operation::Submit { queue: "jobs".parse().unwrap(), submission: Box::new(Submission::default()) };
    (0..count).map(|_| submit()).collect()
}

/// Follows until this number of items was submitted.
async fn follow(broker: &Broker, from: EventsFrom, count: usize) -> Vec<ItemId> {
    next_submitted(&mut broker.follow(from).await.unwrap(), count).await
}

/// The next `count` submitted items.
async fn next_submitted(follower: &mut Follower, count: usize) -> Vec<ItemId> {
    let mut items = Vec::new();
    while items.len() < count {
        let next = tokio::time::timeout(NEVER, follower.next()).await;
        let events = next.expect("the follower gets an answer").unwrap();
        let submitted = events.iter().filter(|event| event.kind == EventKind::Submitted);
        items.extend(submitted.map(|event| event.item.as_ref().unwrap().id));
    }
    items
}

async fn all_followers_see_all_events(sharing: Sharing) {
    let broker = broker(sharing).await;
    const ALL: usize = 4000;
    let writing = tokio::spawn({
        let broker = broker.clone();
        async move {
            for _ in 0..ALL / 20 {
                broker.update(submits(20)).await.unwrap();
            }
        }
    });
    // Followers start while items are submitted.
    let mut followers = Vec::new();
    for _ in 0..8 {
        let broker = broker.clone();
        followers.push(tokio::spawn(async move { follow(&broker, EventsFrom::Oldest, ALL).await }));
        yield_to_tasks().await;
    }
    writing.await.unwrap();
    let mut same = BTreeSet::new();
    for follower in followers {
        let seen = follower.await.unwrap();
        assert_eq!(seen.iter().collect::<BTreeSet<_>>().len(), ALL, "each once");
        same.insert(seen);
    }
    assert_eq!(same.len(), 1, "in the same order");
    assert_eq!(broker.followers(), 0);
    // The reader has stopped. A new follower gets later events only.
    let mut late = broker.follow(EventsFrom::Now).await.unwrap();
    let mut submitted = BTreeSet::new();
    for _ in 0..20 {
        submitted.extend(ids(&broker.update(submits(1)).await.unwrap()));
    }
    let seen = next_submitted(&mut late, 20).await;
    assert_eq!(seen.into_iter().collect::<BTreeSet<_>>(), submitted, "no earlier events");
}

fn ids(answers: &[Answered]) -> Vec<ItemId> {
    let id = |answer: &Answered| match answer {
        Ok(Reply::Answer(Answer::Submitted { id, .. })) => *id,
        other => panic!("a submit was answered with {other:?}"),
    };
    answers.iter().map(id).collect()
}

async fn yield_to_tasks() {
    for _ in 0..100 {
        tokio::task::yield_now().await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn followers_of_one_broker_get_every_event_once() {
    all_followers_see_all_events(Sharing::Alone).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn followers_of_a_shared_store_get_every_event_once() {
    all_followers_see_all_events(Sharing::Shared { poll_every: Duration::from_millis(50) }).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_stopping_broker_ends_its_followers() {
    let broker = broker(Sharing::Alone).await;
    let mut follower = broker.follow(EventsFrom::Now).await.unwrap();
    let ended = tokio::spawn(async move { follower.next().await });
    broker.stop();
    let ended = tokio::time::timeout(NEVER, ended).await.expect("the follower gets an answer").unwrap();
    assert_eq!(ended, Err(FollowError::Stopping));
}

#[tokio::test(flavor = "multi_thread")]
async fn the_number_of_followers_is_limited() {
    let broker = broker(Sharing::Alone).await;
    let mut followers = Vec::new();
    let max = towline_domain::limits::FOLLOWERS_MAX;
    let refused = loop {
        match broker.follow(EventsFrom::Now).await {
            Ok(follower) => followers.push(follower),
            Err(error) => break error,
        }
    };
    assert_eq!((followers.len(), refused), (max, FollowError::TooMany(max)));
    followers.pop();
    assert!(broker.follow(EventsFrom::Now).await.is_ok());
}

/// A store with many pages without events, as in a log that holds other records.
struct SparsePages;

/// The number of pages without an event after each page with one.
const EMPTY_PAGES: u64 = 1000;
/// A second position in the cursor: the number of pages read.
const PAGES: u32 = 0xdead;

impl Interceptor for SparsePages {
    fn events<'a>(
        &'a self,
        store: &'a ReferenceStore,
        from: EventsFrom,
        _: usize,
    ) -> BoxFuture<'a, Result<Events>> {
        Box::pin(async move {
            let read = match &from {
                EventsFrom::After(cursor) => cursor.in_store(PAGES).map_or(0, |at| at.group),
                EventsFrom::Oldest | EventsFrom::Now => EMPTY_PAGES,
            };
            let place = |read| EventId { store: PAGES, group: read, nth: 0 };
            if let (EventsFrom::After(cursor), true) = (&from, read % EMPTY_PAGES > 0) {
                let mut next = cursor.clone();
                next.pass(place(read + 1));
                return Ok(Events::Page(EventPage { events: Vec::new(), next, more: true }));
            }
            let Events::Page(mut page) = store.events(from, 1).await? else { panic!("no event was deleted") };
            page.next.pass(place(if page.events.is_empty() { read } else { read + 1 }));
            page.more |= !page.events.is_empty();
            Ok(Events::Page(page))
        })
    }
}

#[tokio::test(start_paused = true)]
async fn pages_without_events_are_read_without_a_pause() {
    let (broker, _) = intercepted_broker(SparsePages).await;
    let mut follower = broker.follow(EventsFrom::Now).await.unwrap();
    // The clock of this test advances only while every task waits.
    let limit = POLL_MIN * EMPTY_PAGES as u32;
    let followed = async {
        for _ in 0..3 {
            broker.update(submits(1)).await.unwrap();
            next_submitted(&mut follower, 1).await;
        }
    };
    tokio::time::timeout(limit, followed).await.expect("the reader does not pause between pages");
    let caught_up = follow(&broker, EventsFrom::Oldest, 3);
    tokio::time::timeout(limit, caught_up).await.expect("nor does a follower that catches up");
}

/// The minimum poll interval.
const POLL_MIN: Duration = Duration::from_millis(5);

/// A store whose events before a position are damaged, or that cannot be reached.
#[derive(Default)]
struct Failing {
    damaged_before: AtomicU64,
    unreachable: AtomicBool,
}

impl Interceptor for Failing {
    fn events<'a>(
        &'a self,
        store: &'a ReferenceStore,
        from: EventsFrom,
        limit: usize,
    ) -> BoxFuture<'a, Result<Events>> {
        if self.unreachable.load(Ordering::SeqCst) {
            return Box::pin(async { Err(StoreError::Unavailable { cause: "unreachable".to_owned() }) });
        }
        let at = match &from {
            EventsFrom::After(cursor) => cursor.in_store(EventId::store_of(SALT, 0)).map(|at| at.group),
            EventsFrom::Oldest | EventsFrom::Now => None,
        };
        if at.is_some_and(|at| at < self.damaged_before.load(Ordering::SeqCst)) {
            let (file, what) = ("events".to_owned(), "a test".to_owned());
            return Box::pin(async { Err(StoreError::Corrupt { file, what }) });
        }
        store.events(from, limit)
    }
}

#[tokio::test(start_paused = true)]
async fn damaged_events_end_current_followers_but_not_new_ones() {
    let (broker, store) = intercepted_broker(Failing::default()).await;
    let mut follower = broker.follow(EventsFrom::Now).await.unwrap();
    broker.update(submits(1)).await.unwrap();
    next_submitted(&mut follower, 1).await;
    // Damage the position at which the reader waits.
    let seen = follower.cursor().in_store(EventId::store_of(SALT, 0)).unwrap().group;
    store.guard.damaged_before.store(seen + 1, Ordering::SeqCst);
    broker.update(submits(1)).await.unwrap();
    let answer = tokio::time::timeout(NEVER, follower.next()).await.expect("the follower gets an answer");
    assert!(matches!(answer, Err(FollowError::Store(StoreError::Corrupt { .. }))), "{answer:?}");
    // A follower from the damaged position gets the same error. A new follower gets later events.
    let cursor: EventCursor = follower.cursor().clone();
    let answer = broker.follow(EventsFrom::After(cursor)).await;
    assert!(matches!(answer, Err(FollowError::Store(StoreError::Corrupt { .. }))), "{answer:?}");
    let mut later = broker.follow(EventsFrom::Now).await.unwrap();
    broker.update(submits(1)).await.unwrap();
    next_submitted(&mut later, 1).await;
}

#[tokio::test(start_paused = true)]
async fn followers_get_an_error_if_the_store_stays_unreachable() {
    let (broker, store) = intercepted_broker(Failing::default()).await;
    let mut follower = broker.follow(EventsFrom::Now).await.unwrap();
    broker.update(submits(1)).await.unwrap();
    next_submitted(&mut follower, 1).await;
    store.guard.unreachable.store(true, Ordering::SeqCst);
    broker.update(submits(1)).await.unwrap();
    let answer = tokio::time::timeout(NEVER, follower.next()).await.expect("the follower gets an answer");
    assert!(matches!(answer, Err(FollowError::Store(StoreError::Unavailable { .. }))), "{answer:?}");
    store.guard.unreachable.store(false, Ordering::SeqCst);
    let mut back = broker.follow(EventsFrom::After(follower.cursor().clone())).await.unwrap();
    assert_eq!(next_submitted(&mut back, 1).await.len(), 1, "no event is missed");
}
