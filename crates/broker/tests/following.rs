//! Followers miss nothing, whenever they come and however much goes on.
#![allow(clippy::unwrap_used, clippy::expect_used, reason = "tests")]

use std::collections::BTreeSet;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;
use towline_broker::{Broker, Followed, Follower, Sharing, SteadyClock};
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
    begin(Broker::start(Arc::new(ReferenceStore::new(clock.clone(), SALT)), clock, None, sharing)).await
}

/// On a store that is not what it should be.
async fn guarded<G: Interceptor + 'static>(guard: G) -> (Broker, Arc<InterceptedStore<G>>) {
    let clock = Arc::new(SteadyClock::new());
    let store = Arc::new(InterceptedStore { store: ReferenceStore::new(clock.clone(), SALT), guard });
    (begin(Broker::start(store.clone(), clock, None, Sharing::Alone)).await, store)
}

async fn begin(broker: Broker) -> Broker {
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

/// The items it is told of, until there are so many.
async fn follow(broker: &Broker, from: EventsFrom, count: usize) -> Vec<ItemId> {
    see(&mut broker.follow(from).await.unwrap().unwrap().unwrap(), count).await
}

async fn see(follower: &mut Follower, count: usize) -> Vec<ItemId> {
    let mut items = Vec::new();
    while items.len() < count {
        match tokio::time::timeout(NEVER, follower.next()).await.expect("it is told").unwrap() {
            Followed::Events(events) => {
                let told = events.iter().filter(|event| event.kind == EventKind::Submitted);
                items.extend(told.map(|event| event.item.as_ref().unwrap().id));
            }
            other => panic!("{other:?}"),
        }
    }
    items
}

async fn everybody_sees_everything(sharing: Sharing) {
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
    // They come while it goes on.
    let mut followers = Vec::new();
    for _ in 0..8 {
        let broker = broker.clone();
        followers.push(tokio::spawn(async move { follow(&broker, EventsFrom::Oldest, ALL).await }));
        broker_is_busy().await;
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
    // Nobody reads any more; who comes now is told from now on.
    let mut late = broker.follow(EventsFrom::Now).await.unwrap().unwrap().unwrap();
    let mut made = BTreeSet::new();
    for _ in 0..20 {
        made.extend(ids(&broker.update(submits(1)).await.unwrap()));
    }
    let seen = see(&mut late, 20).await;
    assert_eq!(seen.into_iter().collect::<BTreeSet<_>>(), made, "what was told before is not");
}

fn ids(answers: &[Answered]) -> Vec<ItemId> {
    let id = |answer: &Answered| match answer {
        Ok(Reply::Answer(Answer::Submitted { id, .. })) => *id,
        other => panic!("a submit was answered with {other:?}"),
    };
    answers.iter().map(id).collect()
}

async fn broker_is_busy() {
    for _ in 0..100 {
        tokio::task::yield_now().await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn everybody_sees_everything_once() {
    everybody_sees_everything(Sharing::Alone).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn where_others_write_too() {
    everybody_sees_everything(Sharing::Shared { poll_every: Duration::from_millis(50) }).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_broker_that_stops_tells_its_followers() {
    let broker = broker(Sharing::Alone).await;
    let mut follower = broker.follow(EventsFrom::Now).await.unwrap().unwrap().unwrap();
    let told = tokio::spawn(async move { follower.next().await.unwrap() });
    broker.stop();
    let told = tokio::time::timeout(NEVER, told).await.expect("it is told").unwrap();
    assert!(matches!(told, Followed::Stopping), "{told:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn there_are_never_more_than_may_be() {
    let broker = broker(Sharing::Alone).await;
    let mut followers = Vec::new();
    while let Some(follower) = broker.follow(EventsFrom::Now).await.unwrap() {
        followers.push(follower.unwrap());
    }
    assert_eq!(followers.len(), towline_domain::limits::FOLLOWERS_MAX);
    followers.pop();
    assert!(broker.follow(EventsFrom::Now).await.unwrap().is_some());
}

/// Between what it tells there are long stretches that tell nothing, as in a log that holds other things, too.
struct Barren;

/// The number of pages without an event behind each that has one.
const BARREN: u64 = 1000;
/// Beside the place in the store: how many of these were read.
const PAGES: u32 = 0xdead;

impl Interceptor for Barren {
    fn events<'a>(
        &'a self,
        store: &'a ReferenceStore,
        from: EventsFrom,
        _: usize,
    ) -> BoxFuture<'a, Result<Events>> {
        Box::pin(async move {
            let read = match &from {
                EventsFrom::After(cursor) => cursor.in_store(PAGES).map_or(0, |at| at.group),
                EventsFrom::Oldest | EventsFrom::Now => BARREN,
            };
            let place = |read| EventId { store: PAGES, group: read, nth: 0 };
            if let (EventsFrom::After(cursor), true) = (&from, read % BARREN > 0) {
                let mut next = cursor.clone();
                next.pass(place(read + 1));
                return Ok(Events::Page(EventPage { events: Vec::new(), next, more: true }));
            }
            let Events::Page(mut page) = store.events(from, 1).await? else { panic!("it has all") };
            page.next.pass(place(if page.events.is_empty() { read } else { read + 1 }));
            page.more |= !page.events.is_empty();
            Ok(Events::Page(page))
        })
    }
}

#[tokio::test(start_paused = true)]
async fn what_tells_nothing_is_passed_without_a_pause() {
    let (broker, _) = guarded(Barren).await;
    let mut follower = broker.follow(EventsFrom::Now).await.unwrap().unwrap().unwrap();
    // The clock of this test goes on only while everybody waits.
    let few = LOOK * BARREN as u32;
    let told = async {
        for _ in 0..3 {
            broker.update(submits(1)).await.unwrap();
            see(&mut follower, 1).await;
        }
    };
    tokio::time::timeout(few, told).await.expect("there is no pause between two pages");
    let caught_up = follow(&broker, EventsFrom::Oldest, 3);
    tokio::time::timeout(few, caught_up).await.expect("nor for who comes later");
}

/// The shortest pause between two looks.
const LOOK: Duration = Duration::from_millis(5);

/// What it told before some event cannot be read any more; or nothing can.
#[derive(Default)]
struct Failing {
    damaged_before: AtomicU64,
    gone: AtomicBool,
}

impl Interceptor for Failing {
    fn events<'a>(
        &'a self,
        store: &'a ReferenceStore,
        from: EventsFrom,
        limit: usize,
    ) -> BoxFuture<'a, Result<Events>> {
        if self.gone.load(Ordering::SeqCst) {
            return Box::pin(async { Err(StoreError::Unavailable { cause: "it is not there".to_owned() }) });
        }
        let at = match &from {
            EventsFrom::After(cursor) => cursor.in_store(EventId::store_of(SALT)).map(|at| at.group),
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
async fn what_cannot_be_read_ends_those_who_follow_and_nobody_else() {
    let (broker, store) = guarded(Failing::default()).await;
    let mut follower = broker.follow(EventsFrom::Now).await.unwrap().unwrap().unwrap();
    broker.update(submits(1)).await.unwrap();
    see(&mut follower, 1).await;
    // The reader waits at the end of what there is: this is where the damage is.
    let seen = follower.cursor().in_store(EventId::store_of(SALT)).unwrap().group;
    store.guard.damaged_before.store(seen + 1, Ordering::SeqCst);
    broker.update(submits(1)).await.unwrap();
    let told = tokio::time::timeout(NEVER, follower.next()).await.expect("it is told");
    assert!(matches!(told, Err(StoreError::Corrupt { .. })), "{told:?}");
    // Who comes back for it hears the same; what happens from now on is told.
    let cursor: EventCursor = follower.cursor().clone();
    let told = broker.follow(EventsFrom::After(cursor)).await;
    assert!(matches!(told, Err(StoreError::Corrupt { .. })), "{told:?}");
    let mut later = broker.follow(EventsFrom::Now).await.unwrap().unwrap().unwrap();
    broker.update(submits(1)).await.unwrap();
    see(&mut later, 1).await;
}

#[tokio::test(start_paused = true)]
async fn a_store_that_stays_away_is_not_waited_for_in_silence() {
    let (broker, store) = guarded(Failing::default()).await;
    let mut follower = broker.follow(EventsFrom::Now).await.unwrap().unwrap().unwrap();
    broker.update(submits(1)).await.unwrap();
    see(&mut follower, 1).await;
    store.guard.gone.store(true, Ordering::SeqCst);
    broker.update(submits(1)).await.unwrap();
    let told = tokio::time::timeout(NEVER, follower.next()).await.expect("it is told");
    assert!(matches!(told, Err(StoreError::Unavailable { .. })), "{told:?}");
    store.guard.gone.store(false, Ordering::SeqCst);
    let mut back =
        broker.follow(EventsFrom::After(follower.cursor().clone())).await.unwrap().unwrap().unwrap();
    assert_eq!(see(&mut back, 1).await.len(), 1, "and nothing is missed");
}
