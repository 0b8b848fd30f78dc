//! The contract of the ports as a test suite, for whoever writes their own.
//!
//! Each function takes ports that hold nothing yet and a way to let time pass, and panics with what does not hold.
//!
//! ```
//! use std::time::Duration;
//! use towline::{Memory, conformance, testing};
//!
//! # tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap().block_on(async {
//! let clock = testing::clock();
//! let pass = |span: Duration| clock.advance(span);
//! let memory = Memory::with_clock(clock.clone());
//! conformance::queue(&*memory.queue, &async |span| pass(span)).await;
//! conformance::store(&*memory.store, &async |span| pass(span)).await;
//! conformance::pubsub(&*memory.pubsub).await;
//! # });
//! ```

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::missing_panics_doc, reason = "a test suite")]

use crate::ports::{Again, Count, DeadLetter, Lease, PortError, PubSub, Push, Queue, Store};
use futures::StreamExt;
use std::time::Duration;

const VISIBLE: Duration = Duration::from_secs(2);
const LONG: Duration = Duration::from_secs(3600);

fn push(body: &str) -> Push {
    Push { body: body.to_owned(), ..Push::default() }
}

async fn bodies(queue: &dyn Queue, max: usize) -> Vec<(String, Lease, u32, u32)> {
    let pulled = queue.pop(max, VISIBLE).await.unwrap();
    pulled.into_iter().map(|pulled| (pulled.body, pulled.lease, pulled.attempt, pulled.delivery)).collect()
}

async fn one(queue: &dyn Queue) -> (String, Lease, u32, u32) {
    let mut all = bodies(queue, 10).await;
    assert_eq!(all.len(), 1, "one is ready: {all:?}");
    all.remove(0)
}

async fn none(queue: &dyn Queue) {
    let all = bodies(queue, 10).await;
    assert!(all.is_empty(), "nothing is ready: {all:?}");
}

pub async fn queue(queue: &dyn Queue, pass: &impl AsyncFn(Duration)) {
    arrival(queue).await;
    together(queue).await;
    sizes(queue).await;
    leases(queue, pass).await;
    again(queue, pass).await;
    letters(queue, pass).await;
    waiting(queue).await;
    keys(queue).await;
}

/// By priority, then in order of arrival; no more than asked for.
async fn arrival(queue: &dyn Queue) {
    none(queue).await;
    for (body, priority) in [("a", 0), ("b", 5), ("c", 0), ("d", -1), ("e", 5)] {
        assert!(queue.push(Push { priority, ..push(body) }).await.unwrap());
    }
    let mut came = bodies(queue, 2).await;
    came.extend(bodies(queue, 10).await);
    let order: Vec<&str> = came.iter().map(|(body, ..)| body.as_str()).collect();
    assert_eq!(order, ["b", "e", "a", "c", "d"]);
    none(queue).await;
    for (_, lease, attempt, delivery) in &came {
        assert_eq!((*attempt, *delivery), (1, 1));
        queue.ack(lease).await.unwrap();
        let again = queue.ack(lease).await;
        assert!(matches!(again, Ok(()) | Err(PortError::LeaseLost)), "an ack uses the lease up: {again:?}");
        let after = queue.put_back(lease, Again::default()).await;
        assert_eq!(after, Err(PortError::LeaseLost), "an ack uses the lease up");
    }
}

/// As if they were pushed one after the other.
async fn together(queue: &dyn Queue) {
    assert_eq!(queue.push_all(Vec::new()).await.unwrap(), Vec::<bool>::new());
    let keyed = |body, key: &str| Push { dedupe_key: Some(format!("together: {key}")), ..push(body) };
    let delayed = Push { delay: LONG, ..keyed("later", "later") };
    let all =
        vec![push("a"), keyed("b", "b"), keyed("b, again", "b"), Push { priority: 1, ..push("c") }, delayed];
    assert_eq!(queue.push_all(all).await.unwrap(), [true, true, false, true, true]);
    assert_eq!(queue.push_all(vec![keyed("b", "b"), keyed("d", "d")]).await.unwrap(), [false, true]);
    let came = bodies(queue, 10).await;
    let order: Vec<&str> = came.iter().map(|(body, ..)| body.as_str()).collect();
    assert_eq!(order, ["c", "a", "b", "d"]);
    for (_, lease, ..) in &came {
        queue.ack(lease).await.unwrap();
    }
}

/// What waits, and what is in it: whether it tells is its own affair, but not what.
async fn sizes(queue: &dyn Queue) {
    // Besides one that is not due.
    let sizes = async |waiting: u64, all: u64| {
        let told = (queue.depth().await.unwrap(), queue.size().await.unwrap());
        assert!(told.0.is_none_or(|depth| depth == waiting + 1), "{waiting} wait: {told:?}");
        assert!(told.1.is_none_or(|size| size == all + 1), "{all} are in it: {told:?}");
    };
    sizes(0, 0).await;
    queue.push_all(vec![push("a"), push("b")]).await.unwrap();
    sizes(2, 2).await;
    let came = bodies(queue, 10).await;
    sizes(0, 2).await;
    queue.ack(&came[0].1).await.unwrap();
    sizes(0, 1).await;
    queue.dead_letter(&came[1].1, None, "done with").await.unwrap();
    sizes(0, 0).await;
    assert_eq!(queue.redrive(1).await.unwrap(), 1);
    let (_, lease, ..) = one(queue).await;
    queue.ack(&lease).await.unwrap();
}

/// Who holds a lease holds the item; who lost it can do nothing.
async fn leases(queue: &dyn Queue, pass: &impl AsyncFn(Duration)) {
    queue.push(push("kept")).await.unwrap();
    let (_, lease, ..) = one(queue).await;
    for _ in 0..3 {
        pass(VISIBLE * 2 / 3).await;
        queue.heartbeat(&lease, VISIBLE).await.unwrap();
        none(queue).await;
    }
    pass(VISIBLE * 3 / 2).await;
    let (body, next, attempt, delivery) = one(queue).await;
    assert_eq!((body.as_str(), attempt, delivery), ("kept", 2, 2), "a lease that lapsed was an attempt");
    assert_eq!(queue.heartbeat(&lease, VISIBLE).await, Err(PortError::LeaseLost));
    assert_eq!(queue.ack(&lease).await, Err(PortError::LeaseLost));
    assert_eq!(queue.put_back(&lease, Again::default()).await, Err(PortError::LeaseLost));
    assert_eq!(queue.retry(&lease, Again::default(), "late").await, Err(PortError::LeaseLost));
    assert_eq!(queue.dead_letter(&lease, None, "late").await, Err(PortError::LeaseLost));
    assert_eq!(queue.ack(&Lease("nobody's".to_owned())).await, Err(PortError::LeaseLost));
    // Lapsed, though nobody took it.
    pass(VISIBLE * 3 / 2).await;
    assert_eq!(queue.ack(&next).await, Err(PortError::LeaseLost));
    // What lapsed waits like all else, from that moment on.
    for (body, priority) in [("new", 0), ("urgent", 9)] {
        queue.push(Push { priority, ..push(body) }).await.unwrap();
    }
    let came = bodies(queue, 10).await;
    let order: Vec<(&str, u32)> =
        came.iter().map(|(body, _, attempt, _)| (body.as_str(), *attempt)).collect();
    assert_eq!(order, [("urgent", 1), ("kept", 3), ("new", 1)]);
    for (_, lease, ..) in &came {
        queue.ack(lease).await.unwrap();
    }
}

/// Put back or retried: with a delay, with another body, counted or not.
async fn again(queue: &dyn Queue, pass: &impl AsyncFn(Duration)) {
    let delay = Duration::from_secs(5);
    queue.push(Push { delay, ..push("later") }).await.unwrap();
    none(queue).await;
    pass(delay * 2).await;
    let (_, lease, attempt, _) = one(queue).await;
    assert_eq!(attempt, 1, "a delay is no attempt");
    queue.put_back(&lease, Again { delay, body: Some("changed".to_owned()) }).await.unwrap();
    none(queue).await;
    pass(delay * 2).await;
    let (body, lease, attempt, delivery) = one(queue).await;
    assert_eq!((body.as_str(), attempt, delivery), ("changed", 1, 2), "what is put back was not tried");
    queue.retry(&lease, Again { delay, body: None }, "no luck").await.unwrap();
    none(queue).await;
    pass(delay * 2).await;
    let (body, lease, attempt, delivery) = one(queue).await;
    assert_eq!((body.as_str(), attempt, delivery), ("changed", 2, 3), "a retry was an attempt");
    queue.put_back(&lease, Again::default()).await.unwrap();
    let (_, lease, attempt, _) = one(queue).await;
    assert_eq!(attempt, 2);
    queue.ack(&lease).await.unwrap();
}

/// Dead letters are not given out, and begin anew when they are redriven.
async fn letters(queue: &dyn Queue, pass: &impl AsyncFn(Duration)) {
    queue.push(push("bad")).await.unwrap();
    let (_, lease, ..) = one(queue).await;
    queue.retry(&lease, Again::default(), "no luck").await.unwrap();
    let (_, lease, ..) = one(queue).await;
    queue.dead_letter(&lease, Some("kept".to_owned()), "hopeless").await.unwrap();
    pass(VISIBLE * 3).await;
    none(queue).await;
    let letter = DeadLetter { body: "kept".to_owned(), error: "hopeless".to_owned() };
    assert_eq!(queue.letters(10).await.unwrap(), [letter]);
    assert_eq!(queue.letters(0).await.unwrap(), []);
    assert_eq!(queue.redrive(10).await.unwrap(), 1);
    assert_eq!(queue.letters(10).await.unwrap(), []);
    assert_eq!(queue.redrive(10).await.unwrap(), 0);
    let (body, lease, attempt, _) = one(queue).await;
    assert_eq!((body.as_str(), attempt), ("kept", 1));
    queue.ack(&lease).await.unwrap();
}

/// Whoever waits is given what comes; whoever gave up waiting has taken nothing.
async fn waiting(queue: &dyn Queue) {
    none(queue).await;
    tokio::select! {
        came = queue.wait(10, VISIBLE) => panic!("nothing is ready: {came:?}"),
        () = tokio::time::sleep(Duration::from_millis(20)) => {}
    }
    let waits = async {
        // A queue that cannot be waited for is asked.
        tokio::select! {
            came = queue.wait(10, VISIBLE) => came.unwrap(),
            () = tokio::time::sleep(Duration::from_secs(1)) => queue.pop(10, VISIBLE).await.unwrap(),
        }
    };
    let (came, pushed) = futures::future::join(waits, queue.push(push("come"))).await;
    assert!(pushed.unwrap());
    assert_eq!(came.len(), 1);
    assert_eq!((came[0].body.as_str(), came[0].attempt), ("come", 1), "who gave up took nothing");
    queue.ack(&came[0].lease).await.unwrap();
}

/// A key is queued once, also after it was done.
async fn keys(queue: &dyn Queue) {
    let keyed = |body| Push { dedupe_key: Some("the key".to_owned()), ..push(body) };
    assert!(queue.push(keyed("first")).await.unwrap());
    assert!(!queue.push(keyed("second")).await.unwrap());
    let (body, lease, ..) = one(queue).await;
    assert_eq!(body, "first");
    queue.ack(&lease).await.unwrap();
    assert!(!queue.push(keyed("third")).await.unwrap());
    none(queue).await;
}

pub async fn store(store: &dyn Store, pass: &impl AsyncFn(Duration)) {
    let get = async |key| store.get(key).await.unwrap();
    assert_eq!(get("a").await, None);
    store.set("a", "1".to_owned(), LONG).await.unwrap();
    store.set("a", "two words, \u{1f409}".to_owned(), LONG).await.unwrap();
    assert_eq!(get("a").await.as_deref(), Some("two words, \u{1f409}"));
    store.delete("a").await.unwrap();
    store.delete("a").await.unwrap();
    assert_eq!(get("a").await, None);
    // One winner, until its time is over.
    let short = Duration::from_secs(2);
    assert!(store.set_if_absent("slot", "me".to_owned(), short).await.unwrap());
    assert!(!store.set_if_absent("slot", "you".to_owned(), short).await.unwrap());
    assert_eq!(get("slot").await.as_deref(), Some("me"));
    pass(short * 2).await;
    assert_eq!(get("slot").await, None);
    assert!(store.set_if_absent("slot", "you".to_owned(), short).await.unwrap());
    // Counters.
    let add = async |by, once| store.increment("n", Count { by, once }, LONG).await.unwrap();
    assert_eq!(add(5, None).await, 5);
    assert_eq!(add(-7, None).await, -2);
    assert_eq!(add(1, Some("x")).await, -1);
    assert_eq!(add(10, None).await, 9);
    assert_eq!(add(1, Some("x")).await, -1, "the answer of the first time");
    assert_eq!(add(1, Some("y")).await, 10, "x was counted once");
    assert_eq!(get("n").await.as_deref(), Some("10"), "a counter can be read");
    store.set("text", "abc".to_owned(), LONG).await.unwrap();
    let refused = store.increment("text", Count { by: 1, once: None }, LONG).await;
    assert!(matches!(refused, Err(PortError::Refused(_))), "{refused:?}");
    assert_eq!(get("text").await.as_deref(), Some("abc"));
    if store.is_shared() {
        let all = (0..50).map(|_| store.increment("race", Count { by: 1, once: None }, LONG));
        let mut seen: Vec<i64> =
            futures::future::join_all(all).await.into_iter().map(Result::unwrap).collect();
        seen.sort_unstable();
        assert_eq!(seen, (1..=50).collect::<Vec<i64>>());
        let all = (0..50).map(|n| store.set_if_absent("one", format!("{n}"), LONG));
        let won = futures::future::join_all(all).await.into_iter().filter(|won| *won == Ok(true)).count();
        assert_eq!(won, 1);
    }
}

pub async fn pubsub(pubsub: &dyn PubSub) {
    pubsub.publish("to nobody".to_owned()).await.unwrap();
    let (mut one, mut two) = (pubsub.subscribe(), pubsub.subscribe());
    // A subscription may take a moment: it is best effort. What is said often enough is heard.
    let heard = async {
        let both = futures::future::join(one.next(), two.next());
        assert_eq!(both.await, (Some("hello".to_owned()), Some("hello".to_owned())));
    };
    let mut heard = std::pin::pin!(heard);
    loop {
        pubsub.publish("hello".to_owned()).await.unwrap();
        let soon = tokio::time::sleep(Duration::from_millis(50));
        tokio::select! {
            () = &mut heard => return,
            () = soon => {}
        }
    }
}
