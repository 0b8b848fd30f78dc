//! Whatever happens meanwhile: nobody stands in line while there is something to be had.
//!
//! On one thread, with a clock that goes on only while everybody waits: whoever is not woken waits in vain, at once.
#![allow(clippy::unwrap_used, reason = "tests")]

mod in_line;

use in_line::{
    SOON, commit, create, ends, everybody_waits, hold, limit_by_key, ok, queue, receive, request, submit_of,
};
use proptest::prelude::*;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;
use tokio::sync::Semaphore;
use tokio::task::JoinHandle;
use towline_broker::{Broker, Sharing};
use towline_conformance::{InterceptedStore, Interceptor, ReferenceStore};
use towline_domain::command::{Verb, When};
use towline_domain::{
    Adjust, Flow, Item, LeaseCall, Millis, Policy, PolicyPatch, Submission, Timestamp, TokenSeed,
};
use towline_store::{
    BoxFuture, ManualClock, Operation, ReceiveCall, Reply, Result, Store, StoreError, Updated,
};

/// Answers wait here while it is shut, first come, first served.
struct Gate {
    is_shut: AtomicBool,
    came: AtomicUsize,
    passes: Semaphore,
}

impl Default for Gate {
    fn default() -> Gate {
        Gate { is_shut: AtomicBool::new(false), came: AtomicUsize::new(0), passes: Semaphore::new(0) }
    }
}

impl Gate {
    async fn pass(&self) {
        if self.is_shut.load(Ordering::SeqCst) {
            self.came.fetch_add(1, Ordering::SeqCst);
            self.passes.acquire().await.unwrap().forget();
        }
    }

    fn shut(&self) {
        self.is_shut.store(true, Ordering::SeqCst);
    }

    /// For those who come from now on.
    fn open(&self) {
        self.is_shut.store(false, Ordering::SeqCst);
    }
}

#[derive(Default)]
struct Gates {
    /// Of batches with a receive.
    receives: Gate,
    /// Of batches that settle.
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
        // Done now, and answered later.
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

async fn with<G: Interceptor + Default + 'static>(flow: Flow) -> (Broker, Arc<InterceptedStore<G>>) {
    let clock = Arc::new(ManualClock::new(Timestamp(1_800_000_000_000)));
    let store =
        Arc::new(InterceptedStore { store: ReferenceStore::new(clock.clone(), 1), guard: G::default() });
    let broker = Broker::start(store.clone(), clock, None, Sharing::Alone);
    // No lease lapses while anybody waits.
    let policy = Policy { flow, visibility_timeout: Millis::days(1), ..Policy::default() };
    ok(&broker, create("jobs", policy)).await;
    ok(&broker, create("other", Policy::default())).await;
    (broker, store)
}

fn limits(limit: u32) -> Operation {
    let patch = PolicyPatch { concurrency_per_key: Some(Some(limit)), ..PolicyPatch::default() };
    Operation::ChangePolicy { queue: queue(), patch: Box::new(patch) }
}

fn release(item: &Item) -> Operation {
    let verb = Verb::Release { delay: Millis::ZERO };
    let call = LeaseCall { token: item.head.lease().unwrap().token, verb, adjust: Adjust::default() };
    Operation::Lease { id: item.head.id, call: Box::new(call) }
}

#[tokio::test(start_paused = true)]
async fn what_comes_of_a_full_key_is_given_out_when_it_has_room_however_it_came_to_that() {
    for end in ends() {
        for ends_first in [true, false] {
            let (broker, _) = with::<Gates>(limit_by_key(1)).await;
            submit_of(&broker, "a").await;
            let held = hold(&broker).await;
            let waiting = receive(&broker);
            everybody_waits().await;
            if ends_first {
                ok(&broker, end(&held)).await;
            }
            submit_of(&broker, "a").await;
            if !ends_first {
                everybody_waits().await;
                ok(&broker, end(&held)).await;
            }
            assert_eq!(waiting.await.unwrap().len(), 1, "after {:?}", end(&held));
            broker.stop();
        }
    }
}

#[tokio::test(start_paused = true)]
async fn a_limit_of_keys_that_is_raised_holds_nobody() {
    let (broker, _) = with::<Gates>(limit_by_key(1)).await;
    submit_of(&broker, "a").await;
    let _held = hold(&broker).await;
    let waiting: Vec<_> = (0..4).map(|_| receive(&broker)).collect();
    everybody_waits().await;
    for _ in 0..4 {
        submit_of(&broker, "a").await;
    }
    everybody_waits().await;
    assert!(!waiting.iter().any(JoinHandle::is_finished));
    ok(&broker, limits(5)).await;
    for waiting in waiting {
        assert_eq!(waiting.await.unwrap().len(), 1);
    }
}

#[tokio::test(start_paused = true)]
async fn what_becomes_due_of_a_full_key_waits_for_room_and_of_another_for_nothing() {
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
    submit_of(&broker, "a").await;
    let held = hold(&broker).await;
    let first = receive(&broker);
    everybody_waits().await;
    let second = receive(&broker);
    everybody_waits().await;
    ok(&broker, later("a")).await;
    ok(&broker, later("b")).await;
    clock.advance(1000);
    assert_eq!(first.await.unwrap()[0].body.fairness_key.as_deref(), Some("b"));
    everybody_waits().await;
    ok(&broker, commit(&held)).await;
    assert_eq!(second.await.unwrap()[0].body.fairness_key.as_deref(), Some("a"));
}

#[tokio::test(start_paused = true)]
async fn an_end_at_another_server_makes_room_for_what_comes_here() {
    let clock = Arc::new(ManualClock::new(Timestamp(1_800_000_000_000)));
    let store = Arc::new(ReferenceStore::new(clock.clone(), 1));
    let sharing = Sharing::Shared { poll_every: Duration::from_secs(1) };
    let there = Broker::start(store.clone(), clock.clone(), None, sharing);
    let here = Broker::start(store, clock, None, sharing);
    ok(&there, create("jobs", Policy { flow: limit_by_key(1), ..Policy::default() })).await;
    for is_public in [true, false] {
        submit_of(&there, "a").await;
        let held = hold(&there).await;
        let waiting = receive(&here);
        everybody_waits().await;
        ok(&there, commit(&held)).await;
        submit_of(&here, "a").await;
        if is_public {
            here.peer_hint(&queue(), 1);
            everybody_waits().await;
            assert!(waiting.is_finished(), "it was told");
        }
        // Or found by asking.
        let got = waiting.await.unwrap();
        assert_eq!(got.len(), 1);
        ok(&here, commit(&got[0])).await;
    }
}

// Who looked when the key had room, and nothing of it was there, is not to put the others off their guard.
#[tokio::test(start_paused = true)]
async fn what_comes_of_a_key_before_its_end_is_heard_of_is_given_out() {
    let (broker, store) = with::<Gates>(limit_by_key(1)).await;
    let Gates { receives, ends, .. } = &store.guard;
    submit_of(&broker, "a").await;
    let held = hold(&broker).await;
    let first = receive(&broker);
    everybody_waits().await;
    ends.shut();
    let end = tokio::spawn({
        let broker = broker.clone();
        async move { ok(&broker, commit(&held)).await }
    });
    everybody_waits().await;
    assert_eq!(ends.came.load(Ordering::SeqCst), 1, "it has ended, and nobody has heard of it");
    receives.shut();
    let second = receive(&broker);
    everybody_waits().await;
    let submit = tokio::spawn({
        let broker = broker.clone();
        async move { submit_of(&broker, "a").await }
    });
    everybody_waits().await;
    receives.open();
    receives.passes.add_permits(10);
    everybody_waits().await;
    ends.passes.add_permits(1);
    end.await.unwrap();
    submit.await.unwrap();
    everybody_waits().await;
    assert!(first.is_finished() || second.is_finished(), "the key has room, and nobody looks");
}

#[tokio::test(start_paused = true)]
async fn who_is_woken_and_goes_lets_the_next_one_look() {
    let (broker, store) = with::<Gates>(limit_by_key(1)).await;
    let receives = &store.guard.receives;
    submit_of(&broker, "a").await;
    submit_of(&broker, "a").await;
    let held = hold(&broker).await;
    let first = receive(&broker);
    everybody_waits().await;
    let second = receive(&broker);
    everybody_waits().await;
    // A policy that changes wakes the first, and nothing is known of the queue until it has looked.
    receives.shut();
    let patch = Box::new(PolicyPatch { max_retries: Some(7), ..PolicyPatch::default() });
    ok(&broker, Operation::ChangePolicy { queue: queue(), patch }).await;
    everybody_waits().await;
    assert_eq!(receives.came.load(Ordering::SeqCst), 1, "the first looks");
    first.abort();
    everybody_waits().await;
    receives.open();
    receives.passes.add_permits(10);
    everybody_waits().await;
    ok(&broker, commit(&held)).await;
    assert_eq!(second.await.unwrap().len(), 1, "there is room");
}

#[tokio::test(start_paused = true)]
async fn who_looked_before_anybody_looked_out_for_ends_looks_again() {
    let (broker, store) = with::<Gates>(limit_by_key(2)).await;
    let receives = &store.guard.receives;
    for _ in 0..4 {
        submit_of(&broker, "a").await;
    }
    let held = [hold(&broker).await, hold(&broker).await];
    receives.shut();
    let (first, second) = (receive(&broker), receive(&broker));
    everybody_waits().await;
    assert_eq!(receives.came.load(Ordering::SeqCst), 2, "both have seen that the key is full");
    broker.update(held.iter().map(commit).collect()).await.unwrap();
    receives.open();
    receives.passes.add_permits(1);
    assert_eq!(first.await.unwrap().len(), 1);
    receives.passes.add_permits(1);
    assert_eq!(second.await.unwrap().len(), 1, "there is room for two");
}

#[tokio::test(start_paused = true)]
async fn who_is_woken_and_meets_a_fault_lets_the_next_one_look() {
    let (broker, store) = with::<Gates>(Flow::default()).await;
    let first = tokio::spawn({
        let broker = broker.clone();
        async move { broker.receive(request(SOON)).await }
    });
    everybody_waits().await;
    let second = receive(&broker);
    everybody_waits().await;
    // Brought by another server, who says so once.
    store.store.update(vec![of(&1)]).await.unwrap();
    store.guard.fails.store(true, Ordering::SeqCst);
    broker.peer_hint(&queue(), 1);
    assert!(first.await.unwrap().is_err(), "it met the fault");
    assert_eq!(second.await.unwrap().len(), 1);
}

/// Calls take their time, before and after the store has done what they ask.
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
    /// One of those who wait goes.
    Leave(usize),
    /// One of what is in hand is done with, or given back.
    End {
        at: usize,
        is_back: bool,
    },
    Limit(u32),
    Pause(u8),
    /// Until nobody has anything to do; then whoever waits waits for a reason.
    Look,
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        3 => proptest::collection::vec(0..2_u8, 1..4).prop_map(|keys| Step::Submit { keys }),
        4 => Just(Step::Receive { waits: true }),
        1 => Just(Step::Receive { waits: false }),
        4 => (0..3_usize).prop_map(Step::Leave),
        5 => (0..8_usize, prop::bool::weighted(0.2)).prop_map(|(at, is_back)| Step::End { at, is_back }),
        3 => (1..3_u32).prop_map(Step::Limit),
        6 => (0..12_u8).prop_map(Step::Pause),
        2 => Just(Step::Look),
    ]
}

/// What a receiver gets is in hand.
async fn take(broker: Broker, wait: Duration, hands: Arc<Mutex<Vec<Item>>>) {
    let items = broker.receive(request(wait)).await.unwrap().items;
    hands.lock().unwrap().extend(items);
}

/// Whether somebody waits while there is something to be had.
async fn is_forgotten(store: &ReferenceStore, waiting: &[JoinHandle<()>]) -> bool {
    for _ in 0..20 {
        everybody_waits().await;
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

async fn walk(steps: &[Step], delays: Vec<(u8, u8)>) -> Option<usize> {
    let (broker, store) = with::<Uneven>(limit_by_key(1)).await;
    *store.guard.delays.lock().unwrap() = delays;
    let hands: Arc<Mutex<Vec<Item>>> = Arc::default();
    let mut waiting: Vec<JoinHandle<()>> = Vec::new();
    for (at, step) in steps.iter().chain([&Step::Look]).enumerate() {
        let update = |batch: Vec<Operation>| {
            let broker = broker.clone();
            drop(tokio::spawn(async move { drop(broker.update(batch).await.unwrap()) }));
        };
        match step {
            Step::Submit { keys } => update(keys.iter().map(of).collect()),
            Step::Receive { waits } => {
                let wait = if *waits { SOON } else { Duration::ZERO };
                waiting.push(tokio::spawn(take(broker.clone(), wait, hands.clone())));
            }
            Step::Leave(nth) => {
                waiting.retain(|waiting| !waiting.is_finished());
                if let Some(gone) = waiting.get(nth % waiting.len().max(1)) {
                    gone.abort();
                }
            }
            Step::End { at, is_back } => {
                let mut hands = hands.lock().unwrap();
                if !hands.is_empty() {
                    let at = at % hands.len();
                    let item = hands.swap_remove(at);
                    update(vec![if *is_back { release(&item) } else { commit(&item) }]);
                }
            }
            Step::Limit(limit) => update(vec![limits(*limit)]),
            Step::Pause(turns) => pause(*turns).await,
            Step::Look => {
                if is_forgotten(&store.store, &waiting).await {
                    return Some(at);
                }
            }
        }
    }
    broker.stop();
    None
}

fn of(key: &u8) -> Operation {
    let mut submission = Submission::default();
    submission.body.fairness_key = Some(key.to_string());
    Operation::Submit { queue: queue(), submission: Box::new(submission) }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 1000, ..ProptestConfig::default() })]

    /// Whoever submits, receives, leaves, ends and changes limits, in whatever order calls are carried out and answered.
    #[test]
    fn nobody_waits_for_what_can_be_given_out(
        steps in proptest::collection::vec(step(), 1..100),
        delays in proptest::collection::vec((0..5_u8, 0..9_u8), 1..30),
    ) {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_time().start_paused(true).build().unwrap();
        let forgotten = runtime.block_on(walk(&steps, delays));
        prop_assert!(forgotten.is_none(), "after step {forgotten:?} somebody waits, and there is something");
    }
}
