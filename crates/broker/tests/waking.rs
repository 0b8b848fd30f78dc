//! No receiver waits while an item can be delivered, in whatever order calls are carried out and answered.
//!
//! On one thread, with a clock that advances only while every task waits: a receiver that is not woken reaches its
//! timeout at once.
#![allow(clippy::unwrap_used, reason = "tests")]

mod receivers;

use proptest::prelude::*;
use receivers::{
    SOON, commit, create, ends, hold, limit_by_key, ok, queue, receive, request, run_until_idle,
    submit_with_key,
};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;
use tokio::sync::Semaphore;
use tokio::task::JoinHandle;
use towline_broker::{Broker, ReceiveRequest, Sharing};
use towline_conformance::{InterceptedStore, Interceptor, ReferenceStore};
use towline_domain::command::{Verb, When};
use towline_domain::{
    Adjust, Flow, Item, LeaseCall, Millis, Policy, PolicyPatch, Submission, Timestamp, TokenSeed,
};
use towline_store::{
    BoxFuture, ManualClock, Operation, PeerHints, ReceiveCall, Reply, Result, Store, StoreError, Updated,
};

/// Holds answers back while it is shut; lets them pass in order of arrival.
struct Gate {
    is_shut: AtomicBool,
    arrived: AtomicUsize,
    passes: Semaphore,
}

impl Default for Gate {
    fn default() -> Gate {
        Gate { is_shut: AtomicBool::new(false), arrived: AtomicUsize::new(0), passes: Semaphore::new(0) }
    }
}

impl Gate {
    async fn pass(&self) {
        if self.is_shut.load(Ordering::SeqCst) {
            self.arrived.fetch_add(1, Ordering::SeqCst);
            self.passes.acquire().await.unwrap().forget();
        }
    }

    fn shut(&self) {
        self.is_shut.store(true, Ordering::SeqCst);
    }

    /// For later answers.
    fn open(&self) {
        self.is_shut.store(false, Ordering::SeqCst);
    }
}

#[derive(Default)]
struct Gates {
    /// For batches with a receive.
    receives: Gate,
    /// For batches that settle.
    ends: Gate,
    /// The next receive meets a fault.
    fails: AtomicBool,
}

impl Interceptor for Gates {
    fn update<'a>(
        &'a self,
        store: &'a ReferenceStore,
        batch: Vec<Operation>,
    ) -> BoxFuture<'a, Result<Updated>> {
        let has = |what: fn(&Operation) -> bool| batch.iter().any(what);
        let receives = has(|operation| matches!(operation, Operation::Receive(_)));
        let ends = has(|operation| matches!(operation, Operation::Lease { .. }));
        if receives && self.fails.swap(false, Ordering::SeqCst) {
            let cause = "the connection is lost".to_owned();
            return Box::pin(async { Err(StoreError::Unavailable { cause }) });
        }
        // Carried out now, answered later.
        let answers = store.update(batch);
        Box::pin(async move {
            if receives {
                self.receives.pass().await;
            }
            if ends {
                self.ends.pass().await;
            }
            answers.await
        })
    }
}

async fn start<G: Interceptor + Default + 'static>(flow: Flow) -> (Broker, Arc<InterceptedStore<G>>) {
    let clock = Arc::new(ManualClock::new(Timestamp(1_800_000_000_000)));
    let store =
        Arc::new(InterceptedStore { store: ReferenceStore::new(clock.clone(), 1), guard: G::default() });
    let broker = Broker::start(store.clone(), clock, None, Sharing::Alone);
    // No lease lapses during a wait.
    let policy = Policy { flow, visibility_timeout: Millis::days(1), ..Policy::default() };
    ok(&broker, create("jobs", policy)).await;
    ok(&broker, create("other", Policy::default())).await;
    (broker, store)
}

fn set_limit_by_key(limit: u32) -> Operation {
    let patch = PolicyPatch { concurrency_per_key: Some(Some(limit)), ..PolicyPatch::default() };
    Operation::ChangePolicy { queue: queue(), patch: Box::new(patch) }
}

fn receive_many(broker: &Broker, max: u32) -> JoinHandle<Vec<Item>> {
    let broker = broker.clone();
    tokio::spawn(async move { broker.receive(ReceiveRequest { max, ..request(SOON) }).await.unwrap().items })
}

fn release(item: &Item) -> Operation {
    let verb = Verb::Release { delay: Millis::ZERO, counted: true };
    let call = LeaseCall { token: item.head.lease().unwrap().token, verb, adjust: Adjust::default() };
    Operation::Lease { id: item.head.id, call: Box::new(call) }
}

#[tokio::test(start_paused = true)]
async fn an_item_of_a_key_at_its_limit_is_delivered_after_any_end_of_a_lease() {
    for end in ends() {
        for ends_first in [true, false] {
            let (broker, _) = start::<Gates>(limit_by_key(1)).await;
            submit_with_key(&broker, "a").await;
            let held = hold(&broker).await;
            let waiting = receive(&broker);
            run_until_idle().await;
            if ends_first {
                ok(&broker, end(&held)).await;
            }
            submit_with_key(&broker, "a").await;
            if !ends_first {
                run_until_idle().await;
                ok(&broker, end(&held)).await;
            }
            assert_eq!(waiting.await.unwrap().len(), 1, "after {:?}", end(&held));
            broker.stop();
        }
    }
}

#[tokio::test(start_paused = true)]
async fn a_raised_limit_per_key_wakes_receivers() {
    let (broker, _) = start::<Gates>(limit_by_key(1)).await;
    submit_with_key(&broker, "a").await;
    let _held = hold(&broker).await;
    let waiting: Vec<_> = (0..4).map(|_| receive(&broker)).collect();
    run_until_idle().await;
    for _ in 0..4 {
        submit_with_key(&broker, "a").await;
    }
    run_until_idle().await;
    assert!(!waiting.iter().any(JoinHandle::is_finished));
    ok(&broker, set_limit_by_key(5)).await;
    for waiting in waiting {
        assert_eq!(waiting.await.unwrap().len(), 1);
    }
}

#[tokio::test(start_paused = true)]
async fn a_due_item_of_a_key_at_its_limit_waits_and_of_another_key_does_not() {
    let clock = Arc::new(ManualClock::new(Timestamp(1_800_000_000_000)));
    let store = Arc::new(ReferenceStore::new(clock.clone(), 1));
    let broker = Broker::start(store, clock.clone(), None, Sharing::Alone);
    let visibility_timeout = Millis::days(1);
    let policy = Policy { flow: limit_by_key(1), visibility_timeout, ..Policy::default() };
    ok(&broker, create("jobs", policy)).await;
    let later = |key: &str| {
        let mut submission = Submission { ready: When::After(Millis::seconds(1)), ..Submission::default() };
        submission.body.fairness_key = Some(key.to_owned());
        Operation::Submit { queue: queue(), submission: Box::new(submission) }
    };
    submit_with_key(&broker, "a").await;
    let held = hold(&broker).await;
    let first = receive(&broker);
    run_until_idle().await;
    let second = receive(&broker);
    run_until_idle().await;
    ok(&broker, later("a")).await;
    ok(&broker, later("b")).await;
    clock.advance(1000);
    assert_eq!(first.await.unwrap()[0].body.fairness_key.as_deref(), Some("b"));
    run_until_idle().await;
    ok(&broker, commit(&held)).await;
    assert_eq!(second.await.unwrap()[0].body.fairness_key.as_deref(), Some("a"));
}

fn one_is_ready() -> PeerHints {
    PeerHints { ready: [(queue(), 1)].into(), ..PeerHints::default() }
}

#[tokio::test(start_paused = true)]
async fn a_lease_that_ends_at_another_server_lets_an_item_be_delivered_here() {
    let clock = Arc::new(ManualClock::new(Timestamp(1_800_000_000_000)));
    let store = Arc::new(ReferenceStore::new(clock.clone(), 1));
    let sharing = Sharing::Shared { poll_every: Duration::from_secs(1) };
    let there = Broker::start(store.clone(), clock.clone(), None, sharing);
    let here = Broker::start(store, clock, None, sharing);
    ok(&there, create("jobs", Policy { flow: limit_by_key(1), ..Policy::default() })).await;
    for hinted in [true, false] {
        submit_with_key(&there, "a").await;
        let held = hold(&there).await;
        let waiting = receive(&here);
        run_until_idle().await;
        ok(&there, commit(&held)).await;
        submit_with_key(&here, "a").await;
        if hinted {
            here.peer_hints(&one_is_ready());
            run_until_idle().await;
            assert!(waiting.is_finished(), "the hint woke it");
        }
        // Without a hint, by polling.
        let got = waiting.await.unwrap();
        assert_eq!(got.len(), 1);
        ok(&here, commit(&got[0])).await;
    }
}

// A receiver that looked while the key was below its limit, and found no item, must not clear the limit that other
// receivers met.
#[tokio::test(start_paused = true)]
async fn an_item_submitted_before_the_end_of_a_lease_is_answered_is_delivered() {
    let (broker, store) = start::<Gates>(limit_by_key(1)).await;
    let Gates { receives, ends, .. } = &store.guard;
    submit_with_key(&broker, "a").await;
    let held = hold(&broker).await;
    let first = receive(&broker);
    run_until_idle().await;
    ends.shut();
    let end = tokio::spawn({
        let broker = broker.clone();
        async move { ok(&broker, commit(&held)).await }
    });
    run_until_idle().await;
    assert_eq!(ends.arrived.load(Ordering::SeqCst), 1, "the lease has ended, and the answer is held back");
    receives.shut();
    let second = receive(&broker);
    run_until_idle().await;
    let submit = tokio::spawn({
        let broker = broker.clone();
        async move { submit_with_key(&broker, "a").await }
    });
    run_until_idle().await;
    receives.open();
    receives.passes.add_permits(10);
    run_until_idle().await;
    ends.passes.add_permits(1);
    end.await.unwrap();
    submit.await.unwrap();
    run_until_idle().await;
    assert!(first.is_finished() || second.is_finished(), "the key is below its limit, and no receiver looks");
}

#[tokio::test(start_paused = true)]
async fn a_woken_receiver_that_disconnects_passes_the_wake_up_on() {
    let (broker, store) = start::<Gates>(limit_by_key(1)).await;
    let receives = &store.guard.receives;
    submit_with_key(&broker, "a").await;
    submit_with_key(&broker, "a").await;
    let held = hold(&broker).await;
    let first = receive(&broker);
    run_until_idle().await;
    let second = receive(&broker);
    run_until_idle().await;
    // A change of policy wakes the first receiver. Until it has looked, the queue's limits are unknown.
    receives.shut();
    let patch = Box::new(PolicyPatch { max_retries: Some(7), ..PolicyPatch::default() });
    ok(&broker, Operation::ChangePolicy { queue: queue(), patch }).await;
    run_until_idle().await;
    assert_eq!(receives.arrived.load(Ordering::SeqCst), 1, "the first receiver looks");
    first.abort();
    run_until_idle().await;
    receives.open();
    receives.passes.add_permits(10);
    run_until_idle().await;
    ok(&broker, commit(&held)).await;
    assert_eq!(second.await.unwrap().len(), 1, "the key is below its limit");
}

#[tokio::test(start_paused = true)]
async fn a_receiver_looks_again_if_a_lease_ended_during_its_look() {
    let (broker, store) = start::<Gates>(limit_by_key(2)).await;
    let receives = &store.guard.receives;
    for _ in 0..4 {
        submit_with_key(&broker, "a").await;
    }
    let held = [hold(&broker).await, hold(&broker).await];
    receives.shut();
    let (first, second) = (receive(&broker), receive(&broker));
    run_until_idle().await;
    assert_eq!(receives.arrived.load(Ordering::SeqCst), 2, "both have seen that the key is at its limit");
    broker.update(held.iter().map(commit).collect()).await.unwrap();
    receives.open();
    receives.passes.add_permits(1);
    assert_eq!(first.await.unwrap().len(), 1);
    receives.passes.add_permits(1);
    assert_eq!(second.await.unwrap().len(), 1, "two leases have ended");
}

#[tokio::test(start_paused = true)]
async fn a_woken_receiver_that_meets_a_fault_passes_the_wake_up_on() {
    let (broker, store) = start::<Gates>(Flow::default()).await;
    let first = tokio::spawn({
        let broker = broker.clone();
        async move { broker.receive(request(SOON)).await }
    });
    run_until_idle().await;
    let second = receive(&broker);
    run_until_idle().await;
    // Submitted at another server, which sends one hint.
    store.store.update(vec![submit_operation(&1)]).await.unwrap();
    store.guard.fails.store(true, Ordering::SeqCst);
    broker.peer_hints(&one_is_ready());
    assert!(first.await.unwrap().is_err(), "the first receiver met the fault");
    assert_eq!(second.await.unwrap().len(), 1);
}

/// The next receives lose this many items, as if their records were damaged.
#[derive(Default)]
struct Damaged(AtomicUsize);

impl Interceptor for Damaged {
    fn update<'a>(
        &'a self,
        store: &'a ReferenceStore,
        batch: Vec<Operation>,
    ) -> BoxFuture<'a, Result<Updated>> {
        Box::pin(async move {
            let mut updated = store.update(batch).await?;
            for answer in &mut updated.answers {
                if let Ok(Reply::Received(received)) = answer {
                    let lost = |_: &Item| {
                        self.0
                            .fetch_update(Ordering::SeqCst, Ordering::SeqCst, |left| left.checked_sub(1))
                            .is_ok()
                    };
                    received.items.retain(|item| !lost(item));
                }
            }
            Ok(updated)
        })
    }
}

#[tokio::test(start_paused = true)]
async fn a_receiver_finds_an_item_behind_many_damaged_ones() {
    for damaged in [1, 17, 100] {
        let (broker, store) = start::<Damaged>(Flow::default()).await;
        store.guard.0.store(damaged, Ordering::SeqCst);
        broker.update((0..=damaged).map(|_| submit_operation(&1)).collect()).await.unwrap();
        assert_eq!(receive(&broker).await.unwrap().len(), 1, "behind {damaged}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_receive_cut_short_by_damaged_items_leaves_no_other_receiver_asleep() {
    for (damaged, max) in [(1, 1), (1, 2), (17, 1), (17, 4), (40, 1)] {
        let (broker, store) = start::<Damaged>(Flow::default()).await;
        ok(&broker, Operation::PauseQueue { queue: queue() }).await;
        broker.update((0..damaged + 4 * max as usize).map(|_| submit_operation(&1)).collect()).await.unwrap();
        let waiting: Vec<_> = (0..4).map(|_| receive_many(&broker, max)).collect();
        run_until_idle().await;
        store.guard.0.store(damaged, Ordering::SeqCst);
        // Wakes one receiver. It meets the damaged items.
        ok(&broker, Operation::ResumeQueue { queue: queue() }).await;
        for waiting in waiting {
            assert_ne!(waiting.await.unwrap().len(), 0, "{damaged} damaged items, receives of {max}");
        }
    }
}

/// Delays calls before and after the store carries them out.
#[derive(Default)]
struct Uneven {
    delays: Mutex<Vec<(u8, u8)>>,
    calls: AtomicUsize,
}

impl Interceptor for Uneven {
    fn update<'a>(
        &'a self,
        store: &'a ReferenceStore,
        batch: Vec<Operation>,
    ) -> BoxFuture<'a, Result<Updated>> {
        let call = self.calls.fetch_add(1, Ordering::SeqCst);
        let delays = self.delays.lock().unwrap();
        let (before, after) = delays.get(call % delays.len().max(1)).copied().unwrap_or_default();
        Box::pin(async move {
            pause(before).await;
            let answers = store.update(batch).await;
            pause(after).await;
            answers
        })
    }
}

async fn pause(turns: u8) {
    for _ in 0..turns {
        tokio::task::yield_now().await;
    }
}

#[derive(Debug, Clone)]
enum Step {
    Submit {
        keys: Vec<u8>,
    },
    Receive {
        waits: bool,
    },
    /// A waiting receiver disconnects.
    Leave(usize),
    /// A received item is committed or released.
    End {
        at: usize,
        releases: bool,
    },
    Limit(u32),
    Pause(u8),
    /// Wait until all tasks are idle. Then no receiver may wait while an item can be delivered.
    Look,
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        3 => proptest::collection::vec(0..2_u8, 1..4).prop_map(|keys| Step::Submit { keys }),
        4 => Just(Step::Receive { waits: true }),
        1 => Just(Step::Receive { waits: false }),
        4 => (0..3_usize).prop_map(Step::Leave),
        5 => (0..8_usize, prop::bool::weighted(0.2)).prop_map(|(at, releases)| Step::End { at, releases }),
        3 => (1..3_u32).prop_map(Step::Limit),
        6 => (0..12_u8).prop_map(Step::Pause),
        2 => Just(Step::Look),
    ]
}

/// Receives, and adds the items to `held`.
async fn take(broker: Broker, wait: Duration, held: Arc<Mutex<Vec<Item>>>) {
    let items = broker.receive(request(wait)).await.unwrap().items;
    held.lock().unwrap().extend(items);
}

/// Whether a receiver waits while an item can be delivered.
async fn misses_wake_up(store: &ReferenceStore, waiting: &[JoinHandle<()>]) -> bool {
    for _ in 0..20 {
        run_until_idle().await;
    }
    if waiting.iter().all(JoinHandle::is_finished) {
        return false;
    }
    let call = ReceiveCall {
        queue: queue(),
        max: 1,
        visibility: None,
        assigned: false,
        seed: TokenSeed([7; 32]),
        fields: request(SOON).fields,
        make_buffers: false,
    };
    let mut answers = store.update(vec![Operation::Receive(Box::new(call))]).await.unwrap().answers;
    matches!(answers.pop(), Some(Ok(Reply::Received(received))) if !received.items.is_empty())
}

async fn run_steps(steps: &[Step], delays: Vec<(u8, u8)>) -> Option<usize> {
    let (broker, store) = start::<Uneven>(limit_by_key(1)).await;
    *store.guard.delays.lock().unwrap() = delays;
    let held: Arc<Mutex<Vec<Item>>> = Arc::default();
    let mut waiting: Vec<JoinHandle<()>> = Vec::new();
    for (at, step) in steps.iter().chain([&Step::Look]).enumerate() {
        let update = |batch: Vec<Operation>| {
            let broker = broker.clone();
            drop(tokio::spawn(async move { drop(broker.update(batch).await.unwrap()) }));
        };
        match step {
            Step::Submit { keys } => update(keys.iter().map(submit_operation).collect()),
            Step::Receive { waits } => {
                let wait = if *waits { SOON } else { Duration::ZERO };
                waiting.push(tokio::spawn(take(broker.clone(), wait, held.clone())));
            }
            Step::Leave(nth) => {
                waiting.retain(|waiting| !waiting.is_finished());
                if let Some(receiver) = waiting.get(nth % waiting.len().max(1)) {
                    receiver.abort();
                }
            }
            Step::End { at, releases } => {
                let mut held = held.lock().unwrap();
                if !held.is_empty() {
                    let at = at % held.len();
                    let item = held.swap_remove(at);
                    update(vec![if *releases { release(&item) } else { commit(&item) }]);
                }
            }
            Step::Limit(limit) => update(vec![set_limit_by_key(*limit)]),
            Step::Pause(turns) => pause(*turns).await,
            Step::Look => {
                if misses_wake_up(&store.store, &waiting).await {
                    return Some(at);
                }
            }
        }
    }
    broker.stop();
    None
}

fn submit_operation(key: &u8) -> Operation {
    let mut submission = Submission::default();
    submission.body.fairness_key = Some(key.to_string());
    Operation::Submit { queue: queue(), submission: Box::new(submission) }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 1000, ..ProptestConfig::default() })]

    /// Any mix of submits, receives, disconnects, settles and policy changes.
    #[test]
    fn no_receiver_waits_while_an_item_can_be_delivered(
        steps in proptest::collection::vec(step(), 1..100),
        delays in proptest::collection::vec((0..5_u8, 0..9_u8), 1..30),
    ) {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_time().start_paused(true).build().unwrap();
        let missed_at = runtime.block_on(run_steps(&steps, delays));
        prop_assert!(missed_at.is_none(), "after step {missed_at:?} a receiver waits, and an item can be delivered");
    }
}
