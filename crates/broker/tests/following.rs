//! Followers miss nothing, whenever they come and however much goes on.
#![allow(clippy::unwrap_used, clippy::expect_used, reason = "tests")]

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;
use towline_broker::{Broker, Followed, Sharing, SteadyClock};
use towline_domain::{EventKind, ItemId, Policy, Schema, Submission};
use towline_store::{EventsFrom, Memory, Operation};

/// Far beyond every bound: a test that gets here hangs.
const NEVER: Duration = Duration::from_secs(60);

async fn broker(sharing: Sharing) -> Broker {
    let clock = Arc::new(SteadyClock::new());
    let broker = Broker::start(Arc::new(Memory::new(clock.clone(), 7)), clock, None, sharing);
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
    let mut follower = broker.follow(from).await.unwrap().unwrap().unwrap();
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
    let late = tokio::spawn({
        let broker = broker.clone();
        async move { follow(&broker, EventsFrom::Now, 20).await }
    });
    while broker.followers() == 0 {
        tokio::task::yield_now().await;
    }
    while !late.is_finished() {
        broker.update(submits(1)).await.unwrap();
    }
    // A batch may bring more than it waits for.
    assert!(late.await.unwrap().len() >= 20);
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
    everybody_sees_everything(Sharing::Shared { ask_every: Duration::from_millis(50) }).await;
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
