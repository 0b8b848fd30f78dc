//! The contract of the ports as a test suite, for programs that implement their own.
//!
//! Each function takes an empty port and a function that lets time pass. It panics if the port breaks the contract.
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

use crate::ports::{
    DeadLetter, Delivery, Increment, Lease, PortError, PubSub, Queue, Redelivery, Store, SubmitRequest,
};
use futures::StreamExt;
use std::time::Duration;

const VISIBILITY: Duration = Duration::from_secs(2);
const HOUR: Duration = Duration::from_secs(3600);

fn item(payload: &str) -> SubmitRequest {
    SubmitRequest { payload: payload.to_owned(), ..SubmitRequest::default() }
}

async fn receive(queue: &dyn Queue, max: usize) -> Vec<Delivery> {
    queue.receive(max, VISIBILITY).await.unwrap()
}

async fn receive_one(queue: &dyn Queue) -> Delivery {
    let mut all = receive(queue, 10).await;
    assert_eq!(all.len(), 1, "one item is ready: {all:?}");
    all.remove(0)
}

async fn receive_none(queue: &dyn Queue) {
    let all = receive(queue, 10).await;
    assert!(all.is_empty(), "no item is ready: {all:?}");
}

async fn commit_all(queue: &dyn Queue, deliveries: &[Delivery]) {
    for delivery in deliveries {
        queue.commit(&delivery.lease).await.unwrap();
    }
}

fn payloads(deliveries: &[Delivery]) -> Vec<&str> {
    deliveries.iter().map(|delivery| delivery.payload.as_str()).collect()
}

#[track_caller]
fn assert_delivery(delivery: &Delivery, payload: &str, attempt: u32, deliveries: u32) {
    let found = (delivery.payload.as_str(), delivery.attempt, delivery.deliveries);
    assert_eq!(found, (payload, attempt, deliveries), "payload, attempt, deliveries");
}

pub async fn queue(queue: &dyn Queue, pass: &impl AsyncFn(Duration)) {
    items_come_by_priority_and_then_in_order(queue).await;
    a_batch_is_submitted_like_single_items(queue).await;
    depth_and_size_are_exact(queue).await;
    only_a_valid_lease_settles(queue, pass).await;
    a_defer_is_no_attempt_and_a_retry_is_one(queue, pass).await;
    an_item_given_back_without_a_delay_keeps_its_place(queue, pass).await;
    dead_letters_wait_for_a_redrive(queue, pass).await;
    a_long_poll_receives_what_is_submitted(queue).await;
    an_idempotency_key_is_submitted_once(queue).await;
}

async fn items_come_by_priority_and_then_in_order(queue: &dyn Queue) {
    receive_none(queue).await;
    for (payload, priority) in [("a", 0), ("b", -5), ("c", 0), ("d", 1), ("e", -5)] {
        assert!(queue.submit(SubmitRequest { priority, ..item(payload) }).await.unwrap());
    }
    let mut received = receive(queue, 2).await;
    assert!(received.len() <= 2, "at most `max` items: {received:?}");
    received.extend(receive(queue, 10).await);
    assert_eq!(payloads(&received), ["b", "e", "a", "c", "d"]);
    receive_none(queue).await;
    for Delivery { lease, attempt, deliveries, .. } in &received {
        assert_eq!((*attempt, *deliveries), (1, 1));
        queue.commit(lease).await.unwrap();
        let again = queue.commit(lease).await;
        assert!(matches!(again, Ok(()) | Err(PortError::LeaseLost)), "a commit ends the lease: {again:?}");
        let after = queue.defer(lease, Redelivery::default()).await;
        assert_eq!(after, Err(PortError::LeaseLost), "a commit ends the lease");
    }
}

/// Leaves one item with a long delay in the queue.
async fn a_batch_is_submitted_like_single_items(queue: &dyn Queue) {
    assert_eq!(queue.submit_all(Vec::new()).await.unwrap(), Vec::<bool>::new());
    let keyed = |payload, key: &str| SubmitRequest {
        idempotency_key: Some(format!("together: {key}")),
        ..item(payload)
    };
    let delayed = SubmitRequest { delay: HOUR, ..keyed("later", "later") };
    let urgent = SubmitRequest { priority: -1, ..item("c") };
    let all = vec![item("a"), keyed("b", "b"), keyed("b, again", "b"), urgent, delayed];
    assert_eq!(queue.submit_all(all).await.unwrap(), [true, true, false, true, true]);
    assert_eq!(queue.submit_all(vec![keyed("b", "b"), keyed("d", "d")]).await.unwrap(), [false, true]);
    let received = receive(queue, 10).await;
    assert_eq!(payloads(&received), ["c", "a", "b", "d"]);
    commit_all(queue, &received).await;
}

/// A queue need not count its items. If it does, the counts must be right.
async fn depth_and_size_are_exact(queue: &dyn Queue) {
    // The delayed item of the case before is in both.
    let assert_counts = async |waiting: u64, all: u64| {
        let (depth, size) = (queue.depth().await.unwrap(), queue.size().await.unwrap());
        assert!(depth.is_none_or(|depth| depth == waiting + 1), "{waiting} items wait: {depth:?}");
        assert!(size.is_none_or(|size| size == all + 1), "{all} items wait or are leased: {size:?}");
    };
    assert_counts(0, 0).await;
    queue.submit_all(vec![item("a"), item("b")]).await.unwrap();
    assert_counts(2, 2).await;
    let received = receive(queue, 10).await;
    assert_counts(0, 2).await;
    queue.commit(&received[0].lease).await.unwrap();
    assert_counts(0, 1).await;
    queue.fail(&received[1].lease, None, "failed").await.unwrap();
    assert_counts(0, 0).await;
    assert_eq!(queue.redrive(1).await.unwrap(), 1);
    queue.commit(&receive_one(queue).await.lease).await.unwrap();
}

async fn only_a_valid_lease_settles(queue: &dyn Queue, pass: &impl AsyncFn(Duration)) {
    queue.submit(item("leased")).await.unwrap();
    let lapsed = receive_one(queue).await.lease;
    for _ in 0..3 {
        pass(VISIBILITY * 2 / 3).await;
        queue.heartbeat(&lapsed, VISIBILITY).await.unwrap();
        receive_none(queue).await;
    }
    pass(VISIBILITY * 3 / 2).await;
    let next = receive_one(queue).await;
    // The lapsed lease counts as an attempt.
    assert_delivery(&next, "leased", 2, 2);
    assert_eq!(queue.heartbeat(&lapsed, VISIBILITY).await, Err(PortError::LeaseLost));
    assert_eq!(queue.commit(&lapsed).await, Err(PortError::LeaseLost));
    assert_eq!(queue.defer(&lapsed, Redelivery::default()).await, Err(PortError::LeaseLost));
    assert_eq!(queue.retry(&lapsed, Redelivery::default(), "late").await, Err(PortError::LeaseLost));
    assert_eq!(queue.fail(&lapsed, None, "late").await, Err(PortError::LeaseLost));
    assert_eq!(queue.commit(&Lease("not a lease".to_owned())).await, Err(PortError::LeaseLost));
    // A lapsed lease is refused even if no other worker has received the item.
    pass(VISIBILITY * 3 / 2).await;
    assert_eq!(queue.commit(&next.lease).await, Err(PortError::LeaseLost));
    // An item whose lease lapsed keeps its place.
    for (payload, priority) in [("new", 0), ("urgent", -9)] {
        queue.submit(SubmitRequest { priority, ..item(payload) }).await.unwrap();
    }
    let received = receive(queue, 10).await;
    let order: Vec<(&str, u32)> =
        received.iter().map(|delivery| (delivery.payload.as_str(), delivery.attempt)).collect();
    assert_eq!(order, [("urgent", 1), ("leased", 3), ("new", 1)]);
    commit_all(queue, &received).await;
}

async fn a_defer_is_no_attempt_and_a_retry_is_one(queue: &dyn Queue, pass: &impl AsyncFn(Duration)) {
    let delay = Duration::from_secs(5);
    queue.submit(SubmitRequest { delay, ..item("later") }).await.unwrap();
    receive_none(queue).await;
    pass(delay * 2).await;
    let delivery = receive_one(queue).await;
    assert_delivery(&delivery, "later", 1, 1);
    let payload = Some("changed".to_owned());
    queue.defer(&delivery.lease, Redelivery { delay, payload }).await.unwrap();
    receive_none(queue).await;
    pass(delay * 2).await;
    let delivery = receive_one(queue).await;
    assert_delivery(&delivery, "changed", 1, 2);
    queue.retry(&delivery.lease, Redelivery { delay, payload: None }, "an error").await.unwrap();
    receive_none(queue).await;
    pass(delay * 2).await;
    let delivery = receive_one(queue).await;
    assert_delivery(&delivery, "changed", 2, 3);
    queue.defer(&delivery.lease, Redelivery::default()).await.unwrap();
    let delivery = receive_one(queue).await;
    assert_eq!(delivery.attempt, 2);
    queue.commit(&delivery.lease).await.unwrap();
}

async fn an_item_given_back_without_a_delay_keeps_its_place(
    queue: &dyn Queue,
    pass: &impl AsyncFn(Duration),
) {
    for payload in ["a", "b", "c"] {
        queue.submit(item(payload)).await.unwrap();
        pass(Duration::from_millis(5)).await;
    }
    for _ in 0..2 {
        let received = receive(queue, 2).await;
        assert_eq!(payloads(&received), ["a", "b"]);
        for delivery in received.iter().rev() {
            queue.defer(&delivery.lease, Redelivery::default()).await.unwrap();
        }
    }
    assert_eq!(payloads(&receive(queue, 2).await), ["a", "b"]);
    pass(VISIBILITY * 3 / 2).await;
    let received = receive(queue, 3).await;
    assert_eq!(payloads(&received), ["a", "b", "c"], "a lapse keeps the place, too");
    // A retry goes behind.
    queue.retry(&received[0].lease, Redelivery::default(), "an error").await.unwrap();
    pass(Duration::from_millis(5)).await;
    queue.submit(item("d")).await.unwrap();
    let again = receive(queue, 2).await;
    assert_eq!(payloads(&again), ["a", "d"]);
    commit_all(queue, &again).await;
    commit_all(queue, &received[1..]).await;
}

async fn dead_letters_wait_for_a_redrive(queue: &dyn Queue, pass: &impl AsyncFn(Duration)) {
    queue.submit(item("bad")).await.unwrap();
    let lease = receive_one(queue).await.lease;
    queue.retry(&lease, Redelivery::default(), "an error").await.unwrap();
    let lease = receive_one(queue).await.lease;
    queue.fail(&lease, Some("replaced".to_owned()), "the last error").await.unwrap();
    pass(VISIBILITY * 3).await;
    receive_none(queue).await;
    let dead_letter = DeadLetter { payload: "replaced".to_owned(), error: "the last error".to_owned() };
    assert_eq!(queue.dead_letters(10).await.unwrap(), [dead_letter]);
    assert_eq!(queue.dead_letters(0).await.unwrap(), []);
    assert_eq!(queue.redrive(10).await.unwrap(), 1);
    assert_eq!(queue.dead_letters(10).await.unwrap(), []);
    assert_eq!(queue.redrive(10).await.unwrap(), 0);
    let delivery = receive_one(queue).await;
    assert_eq!((delivery.payload.as_str(), delivery.attempt), ("replaced", 1));
    queue.commit(&delivery.lease).await.unwrap();
}

async fn a_long_poll_receives_what_is_submitted(queue: &dyn Queue) {
    receive_none(queue).await;
    // A long poll that is dropped receives nothing.
    tokio::select! {
        received = queue.long_poll(10, VISIBILITY) => panic!("no item is ready: {received:?}"),
        () = tokio::time::sleep(Duration::from_millis(20)) => {}
    }
    let long_poll = async {
        // A queue without long polls never returns. It is polled instead.
        tokio::select! {
            received = queue.long_poll(10, VISIBILITY) => received.unwrap(),
            () = tokio::time::sleep(Duration::from_secs(1)) => receive(queue, 10).await,
        }
    };
    let (received, submitted) = futures::future::join(long_poll, queue.submit(item("new"))).await;
    assert!(submitted.unwrap());
    assert_eq!(received.len(), 1);
    assert_eq!((received[0].payload.as_str(), received[0].attempt), ("new", 1));
    commit_all(queue, &received).await;
}

async fn an_idempotency_key_is_submitted_once(queue: &dyn Queue) {
    let keyed = |payload| SubmitRequest { idempotency_key: Some("the key".to_owned()), ..item(payload) };
    assert!(queue.submit(keyed("first")).await.unwrap());
    assert!(!queue.submit(keyed("second")).await.unwrap());
    let delivery = receive_one(queue).await;
    assert_eq!(delivery.payload, "first");
    queue.commit(&delivery.lease).await.unwrap();
    assert!(!queue.submit(keyed("third")).await.unwrap(), "the key outlives the item");
    receive_none(queue).await;
}

pub async fn store(store: &dyn Store, pass: &impl AsyncFn(Duration)) {
    records_are_set_read_and_deleted(store).await;
    set_if_absent_has_one_winner_until_the_record_expires(store, pass).await;
    an_increment_counts_each_thing_once(store).await;
    if store.is_shared() {
        concurrent_calls_lose_nothing(store).await;
    }
}

async fn get(store: &dyn Store, key: &str) -> Option<String> {
    store.get(key).await.unwrap()
}

async fn records_are_set_read_and_deleted(store: &dyn Store) {
    assert_eq!(get(store, "a").await, None);
    store.set("a", "1".to_owned(), HOUR).await.unwrap();
    store.set("a", "two words, \u{1f409}".to_owned(), HOUR).await.unwrap();
    assert_eq!(get(store, "a").await.as_deref(), Some("two words, \u{1f409}"));
    store.delete("a").await.unwrap();
    store.delete("a").await.unwrap();
    assert_eq!(get(store, "a").await, None);
}

async fn set_if_absent_has_one_winner_until_the_record_expires(
    store: &dyn Store,
    pass: &impl AsyncFn(Duration),
) {
    let ttl = Duration::from_secs(2);
    assert!(store.set_if_absent("slot", "first".to_owned(), ttl).await.unwrap());
    assert!(!store.set_if_absent("slot", "second".to_owned(), ttl).await.unwrap());
    assert_eq!(get(store, "slot").await.as_deref(), Some("first"));
    pass(ttl * 2).await;
    assert_eq!(get(store, "slot").await, None);
    assert!(store.set_if_absent("slot", "second".to_owned(), ttl).await.unwrap());
}

async fn an_increment_counts_each_thing_once(store: &dyn Store) {
    let add = async |by, once| store.increment("n", Increment { by, once }, HOUR).await.unwrap();
    assert_eq!(add(5, None).await, 5);
    assert_eq!(add(-7, None).await, -2);
    assert_eq!(add(1, Some("x")).await, -1);
    assert_eq!(add(10, None).await, 9);
    assert_eq!(add(1, Some("x")).await, -1, "the result of the first increment");
    assert_eq!(add(1, Some("y")).await, 10, "x was counted once");
    assert_eq!(get(store, "n").await.as_deref(), Some("10"), "a counter can be read");
    store.set("text", "abc".to_owned(), HOUR).await.unwrap();
    let refused = store.increment("text", Increment { by: 1, once: None }, HOUR).await;
    assert!(matches!(refused, Err(PortError::Refused(_))), "{refused:?}");
    assert_eq!(get(store, "text").await.as_deref(), Some("abc"));
}

async fn concurrent_calls_lose_nothing(store: &dyn Store) {
    let all = (0..50).map(|_| store.increment("race", Increment { by: 1, once: None }, HOUR));
    let mut seen: Vec<i64> = futures::future::join_all(all).await.into_iter().map(Result::unwrap).collect();
    seen.sort_unstable();
    assert_eq!(seen, (1..=50).collect::<Vec<i64>>());
    let all = (0..50).map(|n| store.set_if_absent("one", format!("{n}"), HOUR));
    let won = futures::future::join_all(all).await.into_iter().filter(|won| *won == Ok(true)).count();
    assert_eq!(won, 1);
}

pub async fn pubsub(pubsub: &dyn PubSub) {
    pubsub.publish("without a subscriber".to_owned()).await.unwrap();
    let (mut one, mut two) = (pubsub.subscribe(), pubsub.subscribe());
    // A subscription may take a moment to begin, so the message is published until both have it.
    let both_received = async {
        let both = futures::future::join(one.next(), two.next());
        assert_eq!(both.await, (Some("hello".to_owned()), Some("hello".to_owned())));
    };
    let mut both_received = std::pin::pin!(both_received);
    loop {
        pubsub.publish("hello".to_owned()).await.unwrap();
        tokio::select! {
            () = &mut both_received => return,
            () = tokio::time::sleep(Duration::from_millis(50)) => {}
        }
    }
}
