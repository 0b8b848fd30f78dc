//! Receivers that wait at a limit of their queue are woken when an item can be delivered, and not before.
#![allow(clippy::unwrap_used, reason = "tests")]

mod receivers;

use receivers::{
    commit, create, ends, hold, limit_by_key, ok, queue, receive, run_until_idle, submit_with_key,
};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Duration;
use tokio::sync::Notify;
use tokio::task::JoinHandle;
use towline_broker::{Broker, Sharing, SteadyClock};
use towline_conformance::{InterceptedStore, Interceptor, ReferenceStore};
use towline_domain::{Backoff, Body, Flow, Item, Millis, Policy, PolicyPatch, Submission, Timestamp};
use towline_store::{BoxFuture, Clock, ManualClock, Operation, Result, Store, Updated};

/// Counts the receives that reach the store.
#[derive(Default)]
struct CountedReceives(AtomicUsize);

impl Interceptor for CountedReceives {
    fn update<'a>(
        &'a self,
        store: &'a ReferenceStore,
        batch: Vec<Operation>,
    ) -> BoxFuture<'a, Result<Updated>> {
        let receives = batch.iter().filter(|operation| matches!(operation, Operation::Receive(_))).count();
        self.0.fetch_add(receives, Ordering::SeqCst);
        store.update(batch)
    }
}

async fn start(flow: Flow) -> (Broker, Arc<InterceptedStore<CountedReceives>>) {
    let clock = Arc::new(SteadyClock::new());
    let store = Arc::new(InterceptedStore {
        store: ReferenceStore::new(clock.clone(), 1),
        guard: CountedReceives::default(),
    });
    let broker = Broker::start(store.clone(), clock, None, Sharing::Alone);
    ok(&broker, create("jobs", Policy { flow, backoff: Backoff::NONE, ..Policy::default() })).await;
    ok(&broker, create("other", Policy::default())).await;
    (broker, store)
}

fn limit(concurrency: u32) -> Flow {
    Flow { concurrency: Some(concurrency), ..Flow::default() }
}

async fn submit(broker: &Broker, count: usize) {
    for _ in 0..count {
        ok(broker, Operation::Submit { queue: queue(), submission: Box::new(Submission::default()) }).await;
    }
}

/// Waits until this number of receives has reached the store.
async fn receives_reach(store: &InterceptedStore<CountedReceives>, receives: usize) {
    while store.guard.0.load(Ordering::SeqCst) < receives {
        tokio::task::yield_now().await;
    }
}

// On one thread, with a clock that advances only while every task waits: a receiver that is not woken reaches its
// timeout at once.
#[tokio::test(start_paused = true)]
async fn any_end_of_a_lease_wakes_a_receiver_at_the_limit() {
    // Items without a key count as one key.
    for (end, flow) in ends().iter().flat_map(|end| [(end, limit(1)), (end, limit_by_key(1))]) {
        let (broker, store) = start(flow).await;
        submit(&broker, 2).await;
        let held = hold(&broker).await;
        let before = store.guard.0.load(Ordering::SeqCst);
        let waiting = receive(&broker);
        receives_reach(&store, before + 1).await;
        run_until_idle().await;
        assert_eq!(store.guard.0.load(Ordering::SeqCst), before + 1, "the receiver waits");
        ok(&broker, end(&held)).await;
        assert_eq!(waiting.await.unwrap().len(), 1, "after {:?}", end(&held));
        broker.stop();
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_lapsed_lease_wakes_a_receiver_at_the_limit() {
    for flow in [limit(1), limit_by_key(1)] {
        let (broker, _) = start(flow).await;
        let short = PolicyPatch { visibility_timeout: Some(Millis(100)), ..PolicyPatch::default() };
        ok(&broker, Operation::ChangePolicy { queue: queue(), patch: Box::new(short) }).await;
        submit(&broker, 2).await;
        let held = hold(&broker).await;
        // The item keeps its place, so it comes first again.
        let again = hold(&broker).await.head;
        assert_eq!((again.id, again.deliveries), (held.head.id, 2));
        broker.stop();
    }
}

#[tokio::test(start_paused = true)]
async fn a_key_at_its_limit_holds_back_its_own_items_only() {
    let (broker, store) = start(limit_by_key(1)).await;
    submit_with_key(&broker, "a").await;
    let held = hold(&broker).await;
    let key = |items: Vec<Item>| items[0].body.fairness_key.clone().unwrap();
    // No receiver gets a new item of the key at its limit.
    let mut waiting = vec![receive(&broker), receive(&broker)];
    run_until_idle().await;
    submit_with_key(&broker, "a").await;
    run_until_idle().await;
    assert!(!waiting.iter().any(JoinHandle::is_finished));
    submit_with_key(&broker, "b").await;
    run_until_idle().await;
    let served = waiting.iter().position(JoinHandle::is_finished).unwrap();
    assert_eq!(key(waiting.remove(served).await.unwrap()), "b");
    let before = store.guard.0.load(Ordering::SeqCst);
    run_until_idle().await;
    assert_eq!(store.guard.0.load(Ordering::SeqCst), before, "the other receiver waits");
    ok(&broker, commit(&held)).await;
    assert_eq!(key(waiting.remove(0).await.unwrap()), "a");
}

#[tokio::test(start_paused = true)]
async fn the_end_of_a_lease_of_a_key_wakes_one_receiver() {
    let (broker, store) = start(Flow { concurrency: Some(100), ..limit_by_key(1) }).await;
    for _ in 0..50 {
        submit_with_key(&broker, "a").await;
    }
    let mut held = hold(&broker).await;
    let mut waiting: Vec<_> = (0..20).map(|_| receive(&broker)).collect();
    run_until_idle().await;
    for _ in 0..10 {
        let before = store.guard.0.load(Ordering::SeqCst);
        ok(&broker, commit(&held)).await;
        run_until_idle().await;
        let asked = store.guard.0.load(Ordering::SeqCst) - before;
        // One receiver gets the next item, and another one looks for more.
        assert!(asked <= 3, "{asked} receives for one item");
        let at = waiting.iter().position(JoinHandle::is_finished).unwrap();
        held = waiting.remove(at).await.unwrap().pop().unwrap();
    }
}

/// Can hold back the answers to receives. A sweep lets them go, and continues when every task waits.
#[derive(Default)]
struct Slow {
    held_back: AtomicBool,
    receives: AtomicUsize,
    go: Notify,
}

impl Interceptor for Slow {
    fn update<'a>(
        &'a self,
        store: &'a ReferenceStore,
        batch: Vec<Operation>,
    ) -> BoxFuture<'a, Result<Updated>> {
        let is = |what: fn(&Operation) -> bool| batch.iter().any(what);
        if is(|operation| matches!(operation, Operation::Sweep))
            && self.held_back.swap(false, Ordering::SeqCst)
        {
            return Box::pin(async move {
                self.go.notify_one();
                run_until_idle().await;
                store.update(batch).await
            });
        }
        let receives = is(|operation| matches!(operation, Operation::Receive(_)));
        let answers = store.update(batch);
        Box::pin(async move {
            // The first receive takes the item that fills the queue.
            let nth = if receives { self.receives.fetch_add(1, Ordering::SeqCst) } else { 0 };
            if receives && nth > 0 && self.held_back.load(Ordering::SeqCst) {
                self.go.notified().await;
            }
            answers.await
        })
    }
}

#[tokio::test(start_paused = true)]
async fn a_receiver_that_joins_during_a_sweep_is_woken() {
    let clock = Arc::new(ManualClock::new(Timestamp(1_800_000_000_000)));
    let store =
        Arc::new(InterceptedStore { store: ReferenceStore::new(clock.clone(), 1), guard: Slow::default() });
    let broker = Broker::start(store.clone(), clock.clone(), None, Sharing::Alone);
    let policy = Policy {
        flow: limit(1),
        visibility_timeout: Millis::seconds(1),
        backoff: Backoff::NONE,
        ..Policy::default()
    };
    ok(&broker, create("jobs", policy)).await;
    submit(&broker, 2).await;
    let held = hold(&broker).await;
    store.guard.held_back.store(true, Ordering::SeqCst);
    let waiting = receive(&broker);
    run_until_idle().await;
    assert_eq!(store.guard.receives.load(Ordering::SeqCst), 2, "its receive is under way");
    // The lease lapses. The sweep begins before the receive is answered, and ends after it.
    clock.advance(1000);
    ok(&broker, Operation::Sweep).await;
    let got = waiting.await.unwrap();
    assert_eq!(got.len(), 1, "{held:?} has lapsed");
}

/// Holds back answers to receives while it is shut.
#[derive(Default)]
struct Gate {
    shut: AtomicBool,
    asked: AtomicUsize,
    go: Notify,
}

impl Interceptor for Gate {
    fn update<'a>(
        &'a self,
        store: &'a ReferenceStore,
        batch: Vec<Operation>,
    ) -> BoxFuture<'a, Result<Updated>> {
        let receives = batch.iter().any(|operation| matches!(operation, Operation::Receive(_)));
        let answers = store.update(batch);
        Box::pin(async move {
            self.asked.fetch_add(usize::from(receives), Ordering::SeqCst);
            if receives && self.shut.load(Ordering::SeqCst) {
                self.go.notified().await;
            }
            answers.await
        })
    }
}

#[tokio::test(start_paused = true)]
async fn a_woken_receiver_that_disconnects_leaves_the_rate_to_the_next() {
    let clock = Arc::new(ManualClock::new(Timestamp(1_800_000_000_000)));
    let store =
        Arc::new(InterceptedStore { store: ReferenceStore::new(clock.clone(), 1), guard: Gate::default() });
    let broker = Broker::start(store.clone(), clock.clone(), None, Sharing::Alone);
    let rate = "1/500ms,burst=1".parse().ok();
    let policy = Policy { flow: Flow { rate, ..Flow::default() }, ..Policy::default() };
    ok(&broker, create("jobs", policy)).await;
    submit(&broker, 3).await;
    hold(&broker).await;
    let (first, second) = (receive(&broker), receive(&broker));
    run_until_idle().await;
    // The first receiver is woken when the rate allows an item, and disconnects before it is answered.
    store.guard.shut.store(true, Ordering::SeqCst);
    let before = store.guard.asked.load(Ordering::SeqCst);
    while store.guard.asked.load(Ordering::SeqCst) == before {
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
    first.abort();
    run_until_idle().await;
    store.guard.shut.store(false, Ordering::SeqCst);
    store.guard.go.notify_waiters();
    run_until_idle().await;
    clock.advance(500);
    assert_eq!(second.await.unwrap().len(), 1, "the rate allows an item");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn submits_to_a_queue_at_its_limit_wake_no_receiver() {
    let (broker, store) = start(limit(1)).await;
    submit(&broker, 1).await;
    let held = hold(&broker).await;
    let before = store.guard.0.load(Ordering::SeqCst);
    // A receiver that commits its item lets the next one be delivered.
    let work = |broker: Broker| async move {
        let item = hold(&broker).await;
        ok(&broker, commit(&item)).await;
    };
    let waiting: Vec<_> = (0..4).map(|_| tokio::spawn(work(broker.clone()))).collect();
    receives_reach(&store, before + 4).await;
    submit(&broker, 300).await;
    // Each of the four looks a few times before it waits. Then submits cause no receive.
    let asked = store.guard.0.load(Ordering::SeqCst) - before;
    assert!(asked < 100, "{asked} receives for 300 submits");
    ok(&broker, commit(&held)).await;
    for waiting in waiting {
        waiting.await.unwrap();
    }
}

#[tokio::test(start_paused = true)]
async fn submits_of_a_key_at_its_limit_wake_no_receiver() {
    let (broker, store) = start(limit_by_key(1)).await;
    submit_with_key(&broker, "a").await;
    let held = hold(&broker).await;
    let mut waiting: Vec<_> = (0..4).map(|_| receive(&broker)).collect();
    run_until_idle().await;
    let before = store.guard.0.load(Ordering::SeqCst);
    for _ in 0..1000 {
        submit_with_key(&broker, "a").await;
    }
    let asked = store.guard.0.load(Ordering::SeqCst) - before;
    assert_eq!(asked, 0, "receives for 1,000 submits");
    // An item of another key in the same batch is delivered with its submit.
    for with in 1..=2 {
        let of = |key: &str| {
            let body = Body { fairness_key: Some(key.to_owned()), ..Body::default() };
            let submission = Box::new(Submission { body, ..Submission::default() });
            Operation::Submit { queue: queue(), submission }
        };
        let batch = vec![of("a"), of(&format!("other-{with}")), of("a")];
        broker.update(batch).await.unwrap();
        run_until_idle().await;
        let at = waiting.iter().position(JoinHandle::is_finished).unwrap();
        let got = waiting.remove(at).await.unwrap().pop().unwrap();
        assert_eq!(got.body.fairness_key, Some(format!("other-{with}")));
    }
    ok(&broker, commit(&held)).await;
    run_until_idle().await;
    let at = waiting.iter().position(JoinHandle::is_finished).unwrap();
    assert_eq!(waiting.remove(at).await.unwrap()[0].body.fairness_key.as_deref(), Some("a"));
}

// With constant submits, every receive sees a changed wake generation.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_receiver_waits_after_a_few_looks_despite_constant_submits_of_a_key_at_its_limit() {
    let (broker, store) = start(limit_by_key(1)).await;
    submit_with_key(&broker, "a").await;
    let held = hold(&broker).await;
    let submitting: Vec<_> = (0..4)
        .map(|_| {
            let broker = broker.clone();
            tokio::spawn(async move {
                for _ in 0..250 {
                    submit_with_key(&broker, "a").await;
                }
            })
        })
        .collect();
    let before = store.guard.0.load(Ordering::SeqCst);
    let waiting: Vec<_> = (0..4).map(|_| receive(&broker)).collect();
    for submitting in submitting {
        submitting.await.unwrap();
    }
    let asked = store.guard.0.load(Ordering::SeqCst) - before;
    assert!(asked < 100, "{asked} receives for 1,000 submits");
    ok(&broker, commit(&held)).await;
    while !waiting.iter().any(JoinHandle::is_finished) {
        tokio::task::yield_now().await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_removed_limit_wakes_receivers() {
    let (broker, store) = start(limit(1)).await;
    submit(&broker, 5).await;
    let _held = hold(&broker).await;
    let before = store.guard.0.load(Ordering::SeqCst);
    let waiting: Vec<_> = (0..4).map(|_| receive(&broker)).collect();
    receives_reach(&store, before + 4).await;
    let none = PolicyPatch { concurrency: Some(None), ..PolicyPatch::default() };
    ok(&broker, Operation::ChangePolicy { queue: queue(), patch: Box::new(none) }).await;
    for waiting in waiting {
        assert_eq!(waiting.await.unwrap().len(), 1);
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn receivers_at_a_rate_are_woken_when_it_allows_an_item() {
    let rate = "200/s,burst=1".parse().ok();
    let (broker, store) = start(Flow { rate, ..Flow::default() }).await;
    submit(&broker, 40).await;
    let before = store.guard.0.load(Ordering::SeqCst);
    let waiting: Vec<_> = (0..40).map(|_| receive(&broker)).collect();
    for waiting in waiting {
        assert_eq!(waiting.await.unwrap().len(), 1);
    }
    // One look at the start, one when the rate allows an item, and few without an item.
    let asked = store.guard.0.load(Ordering::SeqCst) - before;
    assert!(asked < 40 * 6, "{asked} receives for 40 items");
}

/// The runtime's paused clock in steps, as on a busy machine where tasks run late and then all at once.
struct Steps {
    begin: tokio::time::Instant,
    millis: u64,
}

impl Clock for Steps {
    #[expect(clippy::disallowed_methods, reason = "the runtime's clock is paused: the test controls it")]
    fn now(&self) -> Timestamp {
        let passed = u64::try_from(self.begin.elapsed().as_millis()).unwrap();
        Timestamp(1_800_000_000_000 + passed / self.millis * self.millis)
    }
}

/// Delays every answer, as a disk or a database does.
struct SlowStore(Duration);

impl Interceptor for SlowStore {
    fn update<'a>(
        &'a self,
        store: &'a ReferenceStore,
        batch: Vec<Operation>,
    ) -> BoxFuture<'a, Result<Updated>> {
        Box::pin(async move {
            let answers = store.update(batch).await;
            tokio::time::sleep(self.0).await;
            answers
        })
    }
}

// Time advances only while every task waits, so the result is the same on every machine.
#[tokio::test(start_paused = true)]
#[expect(clippy::disallowed_methods, reason = "the runtime's clock is paused: the test controls it")]
async fn waiting_receivers_use_a_rate_within_two_percent() {
    // The items of a step must be received before the next step. Receivers woken one after the other would get less
    // than half of them.
    let clock = Arc::new(Steps { begin: tokio::time::Instant::now(), millis: 20 });
    let guard = SlowStore(Duration::from_millis(4));
    let store = Arc::new(InterceptedStore { store: ReferenceStore::new(clock.clone(), 1), guard });
    let broker = Broker::start(store, clock.clone(), None, Sharing::Alone);
    let rate = "1000/s,burst=20".parse().ok();
    // The reference store scans all its items: keep few. Completed items are removed soon, and new ones come a second ahead.
    let completed_ttl = Some(Millis::ZERO);
    let visibility_timeout = Millis(200);
    let flow = Flow { rate, ..Flow::default() };
    let policy =
        Policy { flow, completed_ttl, visibility_timeout, backoff: Backoff::NONE, ..Policy::default() };
    ok(&broker, create("jobs", policy)).await;
    let more = |broker: Broker| async move {
        let submit = || Operation::Submit { queue: queue(), submission: Box::new(Submission::default()) };
        broker.update((0..1000).map(|_| submit()).collect()).await.unwrap();
    };
    more(broker.clone()).await;
    let received = Arc::new(AtomicUsize::new(0));
    let end = clock.now().after(Millis::seconds(10));
    let receivers: Vec<_> = (0..16)
        .map(|_| {
            let (broker, clock, received) = (broker.clone(), clock.clone(), received.clone());
            tokio::spawn(async move {
                loop {
                    let item = hold(&broker).await;
                    if clock.now() >= end {
                        break;
                    }
                    received.fetch_add(1, Ordering::SeqCst);
                    ok(&broker, commit(&item)).await;
                }
            })
        })
        .collect();
    for _ in 0..11 {
        more(broker.clone()).await;
        tokio::time::sleep(Duration::from_secs(1)).await;
    }
    for receiver in receivers {
        receiver.await.unwrap();
    }
    let received = received.load(Ordering::SeqCst);
    assert!((9_800..=10_200).contains(&received), "{received} of 10,000");
}
