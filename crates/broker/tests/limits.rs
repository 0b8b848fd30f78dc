//! Receivers that wait at a limit of their queue: woken when it lets something through, and not before.
#![allow(clippy::unwrap_used, reason = "tests")]

mod in_line;

use in_line::{commit, create, ends, everybody_waits, hold, limit_by_key, ok, queue, receive, submit_of};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Duration;
use tokio::sync::Notify;
use tokio::task::JoinHandle;
use towline_broker::{Broker, Sharing, SteadyClock};
use towline_conformance::{InterceptedStore, Interceptor, ReferenceStore};
use towline_domain::{Body, Flow, Item, Millis, Policy, PolicyPatch, Submission, Timestamp};
use towline_store::{BoxFuture, Clock, ManualClock, Operation, Result, Store, Updated};

/// Counts the receives that reach the store.
#[derive(Default)]
struct Counting(AtomicUsize);

impl Interceptor for Counting {
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

async fn with(flow: Flow) -> (Broker, Arc<InterceptedStore<Counting>>) {
    let clock = Arc::new(SteadyClock::new());
    let store = Arc::new(InterceptedStore {
        store: ReferenceStore::new(clock.clone(), 1),
        guard: Counting::default(),
    });
    let broker = Broker::start(store.clone(), clock, None, Sharing::Alone);
    ok(&broker, create("jobs", Policy { flow, ..Policy::default() })).await;
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

/// Until the receivers have come to the store so often.
async fn waits(store: &InterceptedStore<Counting>, receives: usize) {
    while store.guard.0.load(Ordering::SeqCst) < receives {
        tokio::task::yield_now().await;
    }
}

// On one thread, with a clock that goes on only while everybody waits: whoever is not woken waits in vain, at once.
#[tokio::test(start_paused = true)]
async fn whoever_waits_gets_what_any_end_of_a_lease_makes_room_for() {
    // Items without a key are of one key.
    for (end, flow) in ends().iter().flat_map(|end| [(end, limit(1)), (end, limit_by_key(1))]) {
        let (broker, store) = with(flow).await;
        submit(&broker, 2).await;
        let held = hold(&broker).await;
        let before = store.guard.0.load(Ordering::SeqCst);
        let waiting = receive(&broker);
        waits(&store, before + 1).await;
        everybody_waits().await;
        assert_eq!(store.guard.0.load(Ordering::SeqCst), before + 1, "it waits");
        ok(&broker, end(&held)).await;
        assert_eq!(waiting.await.unwrap().len(), 1, "after {:?}", end(&held));
        broker.stop();
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_lease_that_lapses_makes_room() {
    for flow in [limit(1), limit_by_key(1)] {
        let (broker, _) = with(flow).await;
        let short = PolicyPatch { visibility_timeout: Some(Millis(100)), ..PolicyPatch::default() };
        ok(&broker, Operation::ChangePolicy { queue: queue(), patch: Box::new(short) }).await;
        submit(&broker, 2).await;
        let held = hold(&broker).await;
        assert_ne!(hold(&broker).await.head.id, held.head.id);
        broker.stop();
    }
}

#[tokio::test(start_paused = true)]
async fn whoever_waits_at_a_full_key_gets_what_comes_of_another_and_what_an_end_makes_room_for() {
    let (broker, store) = with(limit_by_key(1)).await;
    submit_of(&broker, "a").await;
    let held = hold(&broker).await;
    let key = |items: Vec<Item>| items[0].body.fairness_key.clone().unwrap();
    // What comes of the full key is for nobody yet, also if somebody waits already.
    let mut waiting = vec![receive(&broker), receive(&broker)];
    everybody_waits().await;
    submit_of(&broker, "a").await;
    everybody_waits().await;
    assert!(!waiting.iter().any(JoinHandle::is_finished));
    submit_of(&broker, "b").await;
    everybody_waits().await;
    let served = waiting.iter().position(JoinHandle::is_finished).unwrap();
    assert_eq!(key(waiting.remove(served).await.unwrap()), "b");
    let before = store.guard.0.load(Ordering::SeqCst);
    everybody_waits().await;
    assert_eq!(store.guard.0.load(Ordering::SeqCst), before, "the other stands in line");
    ok(&broker, commit(&held)).await;
    assert_eq!(key(waiting.remove(0).await.unwrap()), "a");
}

#[tokio::test(start_paused = true)]
async fn the_end_of_a_lease_of_one_key_wakes_one_of_those_who_wait() {
    let (broker, store) = with(Flow { concurrency: Some(100), ..limit_by_key(1) }).await;
    for _ in 0..50 {
        submit_of(&broker, "a").await;
    }
    let mut held = hold(&broker).await;
    let mut waiting: Vec<_> = (0..20).map(|_| receive(&broker)).collect();
    everybody_waits().await;
    for _ in 0..10 {
        let before = store.guard.0.load(Ordering::SeqCst);
        ok(&broker, commit(&held)).await;
        everybody_waits().await;
        let asked = store.guard.0.load(Ordering::SeqCst) - before;
        // It gets the next, and one more looks whether there is anything else.
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
                everybody_waits().await;
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
async fn who_comes_to_the_line_while_it_is_swept_is_woken() {
    let clock = Arc::new(ManualClock::new(Timestamp(1_800_000_000_000)));
    let store =
        Arc::new(InterceptedStore { store: ReferenceStore::new(clock.clone(), 1), guard: Slow::default() });
    let broker = Broker::start(store.clone(), clock.clone(), None, Sharing::Alone);
    let policy = Policy { flow: limit(1), visibility_timeout: Millis::seconds(1), ..Policy::default() };
    ok(&broker, create("jobs", policy)).await;
    submit(&broker, 2).await;
    let held = hold(&broker).await;
    store.guard.held_back.store(true, Ordering::SeqCst);
    let waiting = receive(&broker);
    everybody_waits().await;
    assert_eq!(store.guard.receives.load(Ordering::SeqCst), 2, "its look is under way");
    // The holder is dead. The sweep begins before the look is answered, and ends after it.
    clock.advance(1000);
    ok(&broker, Operation::Sweep).await;
    let got = waiting.await.unwrap();
    assert_eq!(got.len(), 1, "{held:?} has lapsed");
}

/// Answers to receives wait while it is shut.
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
async fn who_is_woken_and_goes_leaves_the_others_their_time() {
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
    everybody_waits().await;
    // The first in line is woken when it is time to look, and goes before it is answered.
    store.guard.shut.store(true, Ordering::SeqCst);
    let before = store.guard.asked.load(Ordering::SeqCst);
    while store.guard.asked.load(Ordering::SeqCst) == before {
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
    first.abort();
    everybody_waits().await;
    store.guard.shut.store(false, Ordering::SeqCst);
    store.guard.go.notify_waiters();
    everybody_waits().await;
    clock.advance(500);
    assert_eq!(second.await.unwrap().len(), 1, "its time has come");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_is_submitted_to_a_full_queue_wakes_nobody() {
    let (broker, store) = with(limit(1)).await;
    submit(&broker, 1).await;
    let held = hold(&broker).await;
    let before = store.guard.0.load(Ordering::SeqCst);
    // Whoever gets an item makes room for the next.
    let work = |broker: Broker| async move {
        let item = hold(&broker).await;
        ok(&broker, commit(&item)).await;
    };
    let waiting: Vec<_> = (0..4).map(|_| tokio::spawn(work(broker.clone()))).collect();
    waits(&store, before + 4).await;
    submit(&broker, 300).await;
    // Each of the four looks a few times before it stands in line; then nobody asks, whatever is submitted.
    let asked = store.guard.0.load(Ordering::SeqCst) - before;
    assert!(asked < 100, "{asked} receives for 300 submits");
    ok(&broker, commit(&held)).await;
    for waiting in waiting {
        waiting.await.unwrap();
    }
}

#[tokio::test(start_paused = true)]
async fn what_is_submitted_of_a_full_key_wakes_nobody() {
    let (broker, store) = with(limit_by_key(1)).await;
    submit_of(&broker, "a").await;
    let held = hold(&broker).await;
    let mut waiting: Vec<_> = (0..4).map(|_| receive(&broker)).collect();
    everybody_waits().await;
    let before = store.guard.0.load(Ordering::SeqCst);
    for _ in 0..1000 {
        submit_of(&broker, "a").await;
    }
    let asked = store.guard.0.load(Ordering::SeqCst) - before;
    assert_eq!(asked, 0, "receives for 1,000 submits");
    // What comes of another key beside them is given out with its submit.
    for with in 1..=2 {
        let of = |key: &str| {
            let body = Body { fairness_key: Some(key.to_owned()), ..Body::default() };
            let submission = Box::new(Submission { body, ..Submission::default() });
            Operation::Submit { queue: queue(), submission }
        };
        let batch = vec![of("a"), of(&format!("other-{with}")), of("a")];
        broker.update(batch).await.unwrap();
        everybody_waits().await;
        let at = waiting.iter().position(JoinHandle::is_finished).unwrap();
        let got = waiting.remove(at).await.unwrap().pop().unwrap();
        assert_eq!(got.body.fairness_key, Some(format!("other-{with}")));
    }
    ok(&broker, commit(&held)).await;
    everybody_waits().await;
    let at = waiting.iter().position(JoinHandle::is_finished).unwrap();
    assert_eq!(waiting.remove(at).await.unwrap()[0].body.fairness_key.as_deref(), Some("a"));
}

// While submits come all the time, nobody who looks finds that nothing has come meanwhile.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn who_comes_while_a_full_key_is_submitted_to_stands_in_line_after_a_few_looks() {
    let (broker, store) = with(limit_by_key(1)).await;
    submit_of(&broker, "a").await;
    let held = hold(&broker).await;
    let submitting: Vec<_> = (0..4)
        .map(|_| {
            let broker = broker.clone();
            tokio::spawn(async move {
                for _ in 0..250 {
                    submit_of(&broker, "a").await;
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
async fn a_limit_that_is_taken_away_holds_nobody() {
    let (broker, store) = with(limit(1)).await;
    submit(&broker, 5).await;
    let _held = hold(&broker).await;
    let before = store.guard.0.load(Ordering::SeqCst);
    let waiting: Vec<_> = (0..4).map(|_| receive(&broker)).collect();
    waits(&store, before + 4).await;
    let none = PolicyPatch { concurrency: Some(None), ..PolicyPatch::default() };
    ok(&broker, Operation::ChangePolicy { queue: queue(), patch: Box::new(none) }).await;
    for waiting in waiting {
        assert_eq!(waiting.await.unwrap().len(), 1);
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn who_waits_for_a_rate_is_woken_when_its_time_comes() {
    let rate = "200/s,burst=1".parse().ok();
    let (broker, store) = with(Flow { rate, ..Flow::default() }).await;
    submit(&broker, 40).await;
    let before = store.guard.0.load(Ordering::SeqCst);
    let waiting: Vec<_> = (0..40).map(|_| receive(&broker)).collect();
    for waiting in waiting {
        assert_eq!(waiting.await.unwrap().len(), 1);
    }
    // One look when they came, one when the time had come, and few in vain.
    let asked = store.guard.0.load(Ordering::SeqCst) - before;
    assert!(asked < 40 * 6, "{asked} receives for 40 items");
}

/// The time of the runtime, which stands still while anybody has something to do, in steps: as on a busy machine, where everybody
/// is late, and then at once.
struct Steps {
    begin: tokio::time::Instant,
    millis: u64,
}

impl Clock for Steps {
    #[expect(
        clippy::disallowed_methods,
        reason = "the runtime's clock is paused: it says what the test says"
    )]
    fn now(&self) -> Timestamp {
        let passed = u64::try_from(self.begin.elapsed().as_millis()).unwrap();
        Timestamp(1_800_000_000_000 + passed / self.millis * self.millis)
    }
}

/// Every call is answered after a while, as by a disk or a database.
struct Distant(Duration);

impl Interceptor for Distant {
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

// Time goes on only while everybody waits, so this is the same on every machine.
#[tokio::test(start_paused = true)]
#[expect(clippy::disallowed_methods, reason = "the runtime's clock is paused: it says what the test says")]
async fn a_rate_is_used_up_within_two_percent_by_receivers_that_wait() {
    // What comes with a step has to be used up before the next. Woken one after the other, they would get not half of it.
    let clock = Arc::new(Steps { begin: tokio::time::Instant::now(), millis: 20 });
    let guard = Distant(Duration::from_millis(4));
    let store = Arc::new(InterceptedStore { store: ReferenceStore::new(clock.clone(), 1), guard });
    let broker = Broker::start(store, clock.clone(), None, Sharing::Alone);
    let rate = "1000/s,burst=20".parse().ok();
    // The store looks through all it has: what is done goes soon, and what is to do comes a second ahead.
    let completed_ttl = Some(Millis::ZERO);
    let visibility_timeout = Millis(200);
    let flow = Flow { rate, ..Flow::default() };
    let policy = Policy { flow, completed_ttl, visibility_timeout, ..Policy::default() };
    ok(&broker, create("jobs", policy)).await;
    let more = |broker: Broker| async move {
        let submit = || Operation::Submit { queue: queue(), submission: Box::new(Submission::default()) };
        broker.update((0..1000).map(|_| submit()).collect()).await.unwrap();
    };
    more(broker.clone()).await;
    let given = Arc::new(AtomicUsize::new(0));
    let end = clock.now().after(Millis::seconds(10));
    let receivers: Vec<_> = (0..16)
        .map(|_| {
            let (broker, clock, given) = (broker.clone(), clock.clone(), given.clone());
            tokio::spawn(async move {
                loop {
                    let item = hold(&broker).await;
                    if clock.now() >= end {
                        break;
                    }
                    given.fetch_add(1, Ordering::SeqCst);
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
    let given = given.load(Ordering::SeqCst);
    assert!((9_800..=10_200).contains(&given), "{given} of 10,000");
}
