//! Waiting receivers and result waiters.
#![allow(clippy::unwrap_used, reason = "tests")]

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;
use towline_broker::{Broker, ReceiveRequest, Sharing, SteadyClock, Waited};
use towline_conformance::{InterceptedStore, Interceptor, ReferenceStore};
use towline_domain::change::Answer;
use towline_domain::command::{Verb, When};
use towline_domain::{
    Adjust, Backoff, Body, FieldSet, Item, ItemId, ItemState, LeaseCall, Millis, Outcome, Policy, QueueName,
    QueueState, Refusal, Schema, Submission,
};
use towline_store::{
    BoxFuture, Operation, OperationError, PeerHints, Received, Reply, Result, Store, StoreError, Updated,
};

/// Counts the calls that reach the store, and can delay them.
#[derive(Default)]
struct CallCounter {
    updates: AtomicU64,
    delay_ms: AtomicU64,
    /// How many attempts to give items back meet a busy store.
    busy: AtomicU64,
}

impl Interceptor for CallCounter {
    fn update<'a>(
        &'a self,
        store: &'a ReferenceStore,
        batch: Vec<Operation>,
    ) -> BoxFuture<'a, Result<Updated>> {
        self.updates.fetch_add(1, Ordering::SeqCst);
        let gives_back = |operation: &Operation| match operation {
            Operation::Lease { call, .. } => matches!(call.verb, Verb::Defer { .. }),
            _ => false,
        };
        let left = |left: u64| left.checked_sub(1);
        if batch.iter().any(gives_back)
            && self.busy.fetch_update(Ordering::SeqCst, Ordering::SeqCst, left).is_ok()
        {
            return Box::pin(async { Err(StoreError::Busy { waiting: 7 }) });
        }
        let delay = Duration::from_millis(self.delay_ms.load(Ordering::SeqCst));
        Box::pin(async move {
            if !delay.is_zero() {
                tokio::time::sleep(delay).await;
            }
            store.update(batch).await
        })
    }
}

struct Scene {
    broker: Broker,
    store: Arc<InterceptedStore<CallCounter>>,
}

const SOON: Duration = Duration::from_secs(20);

impl Scene {
    async fn new(policy: Policy) -> Scene {
        let clock = Arc::new(SteadyClock::new());
        let store = Arc::new(InterceptedStore {
            store: ReferenceStore::new(clock.clone(), 1),
            guard: CallCounter::default(),
        });
        let broker = Broker::start(store.clone(), clock, None, Sharing::Alone);
        let scene = Scene { broker, store };
        let create = Operation::CreateQueue {
            queue: queue(),
            schema: Box::new(Schema::default()),
            policy: Box::new(policy),
        };
        scene.ok(create).await;
        scene
    }

    async fn ok(&self, operation: Operation) -> Answer {
        match self.broker.update(vec![operation]).await.unwrap().pop().unwrap().unwrap() {
            Reply::Answer(answer) => answer,
            other => panic!("{other:?}"),
        }
    }

    async fn submit(&self, ready: When) -> ItemId {
        let submission = Box::new(Submission { ready, ..Submission::default() });
        match self.ok(Operation::Submit { queue: queue(), submission }).await {
            Answer::Submitted { id, .. } => id,
            other => panic!("{other:?}"),
        }
    }

    fn waiting(&self, wait: Duration) -> tokio::task::JoinHandle<Received> {
        let broker = self.broker.clone();
        tokio::spawn(async move { broker.receive(request(wait)).await.unwrap() })
    }

    /// Waits until this number of calls has reached the store.
    async fn updates_reach(&self, count: u64) {
        while self.store.guard.updates.load(Ordering::SeqCst) < count {
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
    }

    fn updates(&self) -> u64 {
        self.store.guard.updates.load(Ordering::SeqCst)
    }

    async fn settle(&self, item: &Item, verb: Verb) {
        let call = LeaseCall { token: item.head.lease().unwrap().token, verb, adjust: Adjust::default() };
        self.ok(Operation::Lease { id: item.head.id, call: Box::new(call) }).await;
    }
}

fn queue() -> QueueName {
    "jobs".parse().unwrap()
}

fn request(wait: Duration) -> ReceiveRequest {
    ReceiveRequest {
        queue: queue(),
        max: 1,
        wait,
        visibility: None,
        fields: FieldSet::ALL,
        make_buffers: false,
    }
}

/// Waits long enough for tasks that can run.
async fn let_tasks_run() {
    tokio::time::sleep(Duration::from_millis(60)).await;
}

#[tokio::test]
async fn a_waiting_receiver_is_served_in_the_batch_of_the_submit() {
    let scene = Scene::new(Policy::default()).await;
    let before = scene.updates();
    let waiter = scene.waiting(SOON);
    scene.updates_reach(before + 1).await;
    let_tasks_run().await;
    let before = scene.updates();
    let id = scene.submit(When::NOW).await;
    let received = waiter.await.unwrap();
    assert_eq!(received.items[0].head.id, id);
    assert_eq!(scene.updates(), before + 1, "submit and lease are one call to the store");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn one_item_wakes_one_of_a_thousand_receivers() {
    let scene = Scene::new(Policy::default()).await;
    let before = scene.updates();
    let waiters: Vec<_> = (0..1000).map(|_| scene.waiting(SOON)).collect();
    scene.updates_reach(before + 1000).await;
    let_tasks_run().await;
    let before = scene.updates();
    scene.submit(When::NOW).await;
    let_tasks_run().await;
    // The submit with its piggybacked receive. Then the next receiver looks, because a full receive may leave items.
    assert!(scene.updates() - before <= 4, "{} calls for one item", scene.updates() - before);
    let done = waiters.iter().filter(|waiter| waiter.is_finished()).count();
    assert_eq!(done, 1);
    scene.broker.stop();
    for waiter in waiters {
        let received = waiter.await.unwrap();
        assert!(received.items.len() <= 1);
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn every_item_goes_to_one_of_many_receivers() {
    let scene = Scene::new(Policy::default()).await;
    let waiters: Vec<_> = (0..100).map(|_| scene.waiting(SOON)).collect();
    let mut submitted = Vec::new();
    for _ in 0..50 {
        submitted.push(scene.submit(When::NOW).await);
    }
    let batch: Vec<Operation> = (0..50)
        .map(|_| Operation::Submit { queue: queue(), submission: Box::new(Submission::default()) })
        .collect();
    scene.broker.update(batch).await.unwrap();
    let mut received = Vec::new();
    for waiter in waiters {
        received.extend(waiter.await.unwrap().items.into_iter().map(|item| item.head.id));
    }
    received.sort_unstable();
    received.dedup();
    assert_eq!(received.len(), 100);
    assert!(submitted.iter().all(|id| received.contains(id)));
}

#[tokio::test]
async fn a_wait_without_items_returns_the_queue_state() {
    let scene = Scene::new(Policy::default()).await;
    let received = scene.waiting(Duration::from_millis(20)).await.unwrap();
    assert_eq!(received, Received::nothing(QueueState::Open));
    let mut unknown = request(SOON);
    unknown.queue = "unknown".parse().unwrap();
    let refusal = scene.broker.receive(unknown).await.unwrap_err();
    assert!(matches!(refusal, OperationError::Refused(Refusal::QueueNotFound { .. })));
}

#[tokio::test]
async fn a_scheduled_item_is_delivered_at_its_time() {
    let scene = Scene::new(Policy::default()).await;
    let id = scene.submit(When::After(Millis(150))).await;
    let received = scene.waiting(SOON).await.unwrap();
    let head = &received.items[0].head;
    assert_eq!(head.id, id);
    assert_eq!(head.ready_at, head.created_at.after(Millis(150)));
}

#[tokio::test]
async fn an_item_with_a_lapsed_lease_goes_to_a_waiting_receiver() {
    let scene =
        Scene::new(Policy { visibility_timeout: Millis(120), backoff: Backoff::NONE, ..Policy::default() })
            .await;
    let id = scene.submit(When::NOW).await;
    let first = scene.waiting(SOON).await.unwrap();
    let second = scene.waiting(SOON).await.unwrap();
    assert_eq!((first.items[0].head.id, second.items[0].head.id), (id, id));
    assert_eq!(second.items[0].head.retries, 1);
}

#[tokio::test]
async fn a_released_item_goes_to_a_waiting_receiver() {
    let scene = Scene::new(Policy::default()).await;
    let id = scene.submit(When::NOW).await;
    let first = scene.waiting(SOON).await.unwrap();
    let waiter = scene.waiting(SOON);
    let_tasks_run().await;
    scene.settle(&first.items[0], Verb::Release { delay: Millis::ZERO, counted: true }).await;
    assert_eq!(waiter.await.unwrap().items[0].head.id, id);
}

#[tokio::test]
async fn the_item_of_a_disconnected_receiver_goes_back() {
    let scene = Scene::new(Policy::default()).await;
    for _ in 0..20 {
        let waiter = scene.waiting(SOON);
        let_tasks_run().await;
        let id = scene.submit(When::NOW).await;
        // The receiver may or may not have the item already.
        waiter.abort();
        match waiter.await {
            Ok(received) => scene.settle(&received.items[0], Verb::Commit(Outcome::default())).await,
            Err(_) => {
                let next = scene.waiting(SOON).await.unwrap();
                assert_eq!(next.items[0].head.id, id);
                assert_eq!(next.items[0].head.retries, 0, "a disconnect is no failed attempt");
                scene.settle(&next.items[0], Verb::Commit(Outcome::default())).await;
            }
        }
    }
}

#[tokio::test]
async fn the_item_of_a_disconnected_receiver_goes_back_when_the_store_is_busy() {
    let scene = Scene::new(Policy::default()).await;
    let id = scene.submit(When::NOW).await;
    scene.store.guard.busy.store(4, Ordering::SeqCst);
    scene.store.guard.delay_ms.store(100, Ordering::SeqCst);
    let receiver = scene.waiting(SOON);
    let_tasks_run().await;
    receiver.abort();
    assert!(receiver.await.is_err());
    scene.store.guard.delay_ms.store(0, Ordering::SeqCst);
    while scene.store.guard.busy.load(Ordering::SeqCst) == 4 {
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    let next = scene.waiting(SOON).await.unwrap();
    assert_eq!((next.items[0].head.id, next.items[0].head.retries), (id, 0));
    assert_eq!(scene.store.guard.busy.load(Ordering::SeqCst), 0);
}

#[tokio::test]
async fn a_completed_queue_ends_all_its_waiting_receivers() {
    let scene = Scene::new(Policy::default()).await;
    scene.submit(When::NOW).await;
    let held = scene.waiting(SOON).await.unwrap();
    let waiters: Vec<_> = (0..5).map(|_| scene.waiting(SOON)).collect();
    let_tasks_run().await;
    scene.ok(Operation::CloseQueue { queue: queue() }).await;
    let_tasks_run().await;
    assert!(waiters.iter().all(|waiter| !waiter.is_finished()), "closed, but one item is still leased");
    scene.settle(&held.items[0], Verb::Commit(Outcome::default())).await;
    for waiter in waiters {
        let received = waiter.await.unwrap();
        assert!(matches!(received.queue, QueueState::Completed { .. }) && received.items.is_empty());
    }
}

#[tokio::test]
async fn a_result_waiter_is_woken_by_a_commit_and_by_a_lapse() {
    let scene =
        Scene::new(Policy { visibility_timeout: Millis(120), max_retries: 0, ..Policy::default() }).await;
    let id = scene.submit(When::NOW).await;
    let unfinished = scene.broker.wait(id, Duration::from_millis(20)).await.unwrap();
    assert!(matches!(unfinished, Waited::Unfinished(_)));
    let (broker, held) = (scene.broker.clone(), scene.waiting(SOON).await.unwrap());
    let waiting = tokio::spawn(async move { broker.wait(id, SOON).await.unwrap() });
    let_tasks_run().await;
    scene.settle(&held.items[0], Verb::Commit(Outcome::default())).await;
    let Waited::Ended(ended) = waiting.await.unwrap() else { panic!("not ended") };
    assert_eq!(ended.item.head.item_state(), ItemState::Completed);

    // The lease lapses.
    let id = scene.submit(When::NOW).await;
    scene.waiting(SOON).await.unwrap();
    let Waited::Ended(ended) = scene.broker.wait(id, SOON).await.unwrap() else { panic!("not ended") };
    assert_eq!(ended.item.head.item_state(), ItemState::Failed);

    let unknown = ItemId(Default::default());
    assert_eq!(scene.broker.wait(unknown, SOON).await.unwrap(), Waited::NotFound);
}

#[tokio::test]
async fn a_stopping_broker_ends_its_waiting_receivers() {
    let scene = Scene::new(Policy::default()).await;
    let waiters: Vec<_> = (0..5).map(|_| scene.waiting(SOON)).collect();
    let_tasks_run().await;
    scene.broker.stop();
    for waiter in waiters {
        assert!(waiter.await.unwrap().items.is_empty());
    }
    assert!(scene.waiting(SOON).await.unwrap().items.is_empty(), "a receive while stopping does not wait");
}

#[tokio::test]
async fn a_wait_that_ends_during_a_receive_returns_the_received_item() {
    let scene = Scene::new(Policy::default()).await;
    let id = scene.submit(When::NOW).await;
    scene.store.guard.delay_ms.store(50, Ordering::SeqCst);
    let received = scene.waiting(Duration::from_millis(1)).await.unwrap();
    assert_eq!((received.items[0].head.id, received.items[0].head.deliveries), (id, 1));
}

#[tokio::test]
async fn a_wait_that_ends_during_a_piggybacked_receive_returns_the_item() {
    let scene = Scene::new(Policy::default()).await;
    let waiter = scene.waiting(Duration::from_millis(100));
    let_tasks_run().await;
    // The submit carries the receive of the waiter, and takes longer than the waiter's timeout.
    scene.store.guard.delay_ms.store(200, Ordering::SeqCst);
    let id = scene.submit(When::NOW).await;
    let received = waiter.await.unwrap();
    assert_eq!((received.items[0].head.id, received.items[0].head.deliveries), (id, 1));
}

#[tokio::test]
async fn the_item_of_a_disconnected_submitter_still_wakes_a_receiver() {
    let scene = Scene::new(Policy::default()).await;
    for piggybacked in [true, false] {
        scene.store.guard.delay_ms.store(if piggybacked { 0 } else { 50 }, Ordering::SeqCst);
        let waiter = scene.waiting(SOON);
        if piggybacked {
            let_tasks_run().await;
            scene.store.guard.delay_ms.store(50, Ordering::SeqCst);
        }
        let before = scene.updates();
        let broker = scene.broker.clone();
        let submission = Box::new(Submission::default());
        let submit = tokio::spawn(async move {
            broker.update(vec![Operation::Submit { queue: queue(), submission }]).await
        });
        scene.updates_reach(before + 1).await;
        submit.abort();
        let received = waiter.await.unwrap();
        assert_eq!(received.items[0].head.deliveries, 1);
        scene.settle(&received.items[0], Verb::Commit(Outcome::default())).await;
    }
}

#[tokio::test]
async fn a_deleted_queue_ends_its_receivers_and_result_waiters() {
    let scene = Scene::new(Policy::default()).await;
    let id = scene.submit(When::After(Millis::hours(1))).await;
    let (receiver, result_waiter) = (scene.broker.clone(), scene.broker.clone());
    let receiver = tokio::spawn(async move { receiver.receive(request(SOON * 10)).await });
    let result_waiter = tokio::spawn(async move { result_waiter.wait(id, SOON * 10).await.unwrap() });
    let_tasks_run().await;
    scene.ok(Operation::DeleteQueue { queue: queue(), force: true }).await;
    assert!(matches!(receiver.await.unwrap(), Err(OperationError::Refused(Refusal::QueueNotFound { .. }))));
    assert_eq!(result_waiter.await.unwrap(), Waited::NotFound);
}

/// Two brokers on one store, as with two servers.
async fn two_brokers() -> (Scene, Broker) {
    let clock = Arc::new(SteadyClock::new());
    let scene = Scene::new(Policy::default()).await;
    let sharing = Sharing::Shared { poll_every: Duration::from_millis(20) };
    let other = Broker::start(scene.store.clone(), clock, None, sharing);
    (scene, other)
}

#[tokio::test]
async fn an_item_submitted_at_another_broker_is_received() {
    let (scene, other) = two_brokers().await;
    let before = scene.updates();
    let receiver = other.clone();
    let receiver = tokio::spawn(async move { receiver.receive(request(SOON * 10)).await.unwrap() });
    // The receiver has looked, and waits.
    scene.updates_reach(before + 2).await;
    let id = scene.submit(When::NOW).await;
    let received = tokio::time::timeout(SOON, receiver).await.unwrap().unwrap();
    assert_eq!(received.items[0].head.id, id);
}

#[tokio::test]
async fn a_commit_at_another_broker_wakes_a_result_waiter() {
    let (scene, other) = two_brokers().await;
    let id = scene.submit(When::NOW).await;
    let waiter = other.clone();
    let waiter = tokio::spawn(async move { waiter.wait(id, SOON * 10).await.unwrap() });
    let item = scene.waiting(SOON).await.unwrap().items.remove(0);
    tokio::time::sleep(Duration::from_millis(50)).await;
    scene.settle(&item, Verb::Commit(Outcome::default())).await;
    let waited = tokio::time::timeout(SOON, waiter).await.unwrap().unwrap();
    assert!(matches!(waited, Waited::Ended(_)), "{waited:?}");
}

#[tokio::test]
async fn hints_of_peers_wake_a_receiver_without_polling() {
    let clock = Arc::new(SteadyClock::new());
    let scene = Scene::new(Policy::default()).await;
    // Far longer than the test.
    let sharing = Sharing::Shared { poll_every: Duration::from_secs(3600) };
    let other = Broker::start(scene.store.clone(), clock, None, sharing);
    let missed = PeerHints { anything: true, ..PeerHints::default() };
    let ready = PeerHints { ready: [(queue(), 1)].into(), ..PeerHints::default() };
    for hints in [missed, ready] {
        other.peers_heard(true);
        let before = scene.updates();
        let receiver = other.clone();
        let receiver = tokio::spawn(async move { receiver.receive(request(SOON * 10)).await.unwrap() });
        scene.updates_reach(before + 1).await;
        let id = scene.submit(When::NOW).await;
        other.peer_hints(&hints);
        let received = tokio::time::timeout(SOON, receiver).await.unwrap().unwrap();
        assert_eq!(received.items[0].head.id, id);
    }
}

#[tokio::test]
async fn a_receiver_is_woken_when_a_debounced_item_reaches_its_maximum_delay() {
    let scene = Scene::new(Policy::default()).await;
    let submit = async |delay_max: Option<Millis>| {
        let body = Body { replace_key: Some("k".to_owned()), ..Body::default() };
        let ready = When::After(Millis::hours(1));
        let submission = Box::new(Submission { ready, delay_max, body, ..Submission::default() });
        scene.ok(Operation::Submit { queue: queue(), submission }).await
    };
    let Answer::Submitted { id, created: true } = submit(None).await else { panic!("a new item") };
    let before = scene.updates();
    let waiter = scene.waiting(SOON);
    scene.updates_reach(before + 1).await;
    let_tasks_run().await;
    // An hour from now, but at most 200 ms after the first submit.
    assert_eq!(submit(Some(Millis(200))).await, Answer::Replaced { id });
    assert_eq!(waiter.await.unwrap().items[0].head.id, id);
}
