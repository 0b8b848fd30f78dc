//! The store's effects wake exactly the callers that a batch concerns.
//!
//! On one thread, with a clock that advances only while every task waits: a caller that is not woken waits for its
//! whole timeout.
#![allow(clippy::unwrap_used, clippy::expect_used, reason = "tests")]

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;
use tokio::task::JoinHandle;
use towline_broker::{Broker, ReceiveRequest, Sharing, Waited};
use towline_conformance::{InterceptedStore, Interceptor, ReferenceStore};
use towline_domain::change::Answer;
use towline_domain::{
    FailureKind, FieldSet, Fields, Item, ItemId, Millis, Policy, QueueName, Schema, State, Submission,
    Timestamp,
};
use towline_store::{BoxFuture, ManualClock, Operation, PeerHints, Reply, Result, Store, Updated};

const HOUR: Duration = Duration::from_secs(3600);
/// Shorter than any timer of these tests.
const AT_ONCE: Duration = Duration::from_millis(500);

/// Counts the calls that reach the store.
#[derive(Default)]
struct Calls {
    updates: AtomicUsize,
    reads: AtomicUsize,
}

impl Calls {
    fn total(&self) -> usize {
        self.updates.load(Ordering::SeqCst) + self.reads.load(Ordering::SeqCst)
    }
}

impl Interceptor for Calls {
    fn update<'a>(
        &'a self,
        store: &'a ReferenceStore,
        batch: Vec<Operation>,
    ) -> BoxFuture<'a, Result<Updated>> {
        self.updates.fetch_add(1, Ordering::SeqCst);
        store.update(batch)
    }

    fn read(&self) -> Result<()> {
        self.reads.fetch_add(1, Ordering::SeqCst);
        Ok(())
    }
}

struct Scene {
    broker: Broker,
    store: Arc<InterceptedStore<Calls>>,
    clock: Arc<ManualClock>,
}

impl Scene {
    fn new() -> Scene {
        Scene::with(Sharing::Alone)
    }

    fn with(sharing: Sharing) -> Scene {
        let clock = Arc::new(ManualClock::new(Timestamp(1_800_000_000_000)));
        let store = ReferenceStore::new(clock.clone(), 1);
        let store = Arc::new(InterceptedStore { store, guard: Calls::default() });
        let broker = Broker::start(store.clone(), clock.clone(), None, sharing);
        Scene { broker, store, clock }
    }

    /// Result waiters for new items of a queue. They have read their items.
    async fn waiters(&self, queue: &str, count: usize) -> Vec<(ItemId, JoinHandle<Waited>)> {
        let mut waiters = Vec::new();
        for _ in 0..count {
            let id = self.submit(queue, Submission::default()).await;
            waiters.push((id, self.wait(id)));
        }
        run_until_idle().await;
        waiters
    }

    async fn ok(&self, operation: Operation) -> Reply {
        self.broker.update(vec![operation]).await.unwrap().remove(0).unwrap()
    }

    async fn create(&self, queue: &str, policy: Policy) {
        let schema = Box::new(Schema::default());
        self.ok(Operation::CreateQueue { queue: name(queue), schema, policy: Box::new(policy) }).await;
    }

    async fn submit(&self, queue: &str, submission: Submission) -> ItemId {
        let submission = Box::new(submission);
        match self.ok(Operation::Submit { queue: name(queue), submission }).await {
            Reply::Answer(Answer::Submitted { id, .. }) => id,
            other => panic!("{other:?}"),
        }
    }

    fn receive(&self, queue: &str, max: u32, wait: Duration) -> JoinHandle<Vec<Item>> {
        let request = ReceiveRequest {
            queue: name(queue),
            max,
            wait,
            visibility: None,
            fields: FieldSet::ALL,
            make_buffers: false,
        };
        let broker = self.broker.clone();
        tokio::spawn(async move { broker.receive(request).await.unwrap().items })
    }

    fn wait(&self, id: ItemId) -> JoinHandle<Waited> {
        let broker = self.broker.clone();
        tokio::spawn(async move { broker.wait(id, HOUR).await.unwrap() })
    }
}

fn name(queue: &str) -> QueueName {
    queue.parse().unwrap()
}

/// Lets every task run until it waits.
async fn run_until_idle() {
    for _ in 0..100 {
        tokio::task::yield_now().await;
    }
}

async fn at_once<T>(task: JoinHandle<T>) -> T {
    tokio::time::timeout(AT_ONCE, task).await.expect("the caller was not woken").unwrap()
}

fn cancel(id: ItemId) -> Operation {
    Operation::Cancel { id, reason: "not needed".to_owned() }
}

fn failure(waited: &Waited) -> Option<FailureKind> {
    match waited {
        Waited::Ended(stored) => match stored.item.head.state {
            State::Failed { kind, .. } => Some(kind),
            _ => None,
        },
        Waited::Unfinished(_) | Waited::NotFound => None,
    }
}

#[tokio::test(start_paused = true)]
async fn a_clients_update_that_finds_a_lapsed_lease_wakes_the_result_waiter() {
    let scene = Scene::new();
    scene.create("jobs", Policy { max_retries: 0, ..Policy::default() }).await;
    scene.create("other", Policy::default()).await;
    let id = scene.submit("jobs", Submission::default()).await;
    assert_eq!(scene.receive("jobs", 1, Duration::ZERO).await.unwrap().len(), 1);
    let waiting = scene.wait(id);
    run_until_idle().await;
    // The sweeper still sleeps: only the clock of the store has advanced.
    scene.clock.advance(Policy::default().visibility_timeout.0 + 1);
    scene.submit("other", Submission::default()).await;
    assert_eq!(failure(&at_once(waiting).await), Some(FailureKind::RetriesExhausted));
}

#[tokio::test(start_paused = true)]
async fn a_receive_that_finds_an_expired_item_wakes_its_result_waiter() {
    let scene = Scene::new();
    scene.create("jobs", Policy { expire_after: Some(Millis(60_000)), ..Policy::default() }).await;
    let id = scene.submit("jobs", Submission::default()).await;
    let waiting = scene.wait(id);
    run_until_idle().await;
    scene.clock.advance(60_001);
    assert_eq!(scene.receive("jobs", 1, Duration::ZERO).await.unwrap(), []);
    assert_eq!(failure(&at_once(waiting).await), Some(FailureKind::Expired));
}

#[tokio::test(start_paused = true)]
async fn an_update_that_makes_a_scheduled_item_ready_wakes_its_receiver() {
    let scene = Scene::new();
    scene.create("jobs", Policy::default()).await;
    scene.create("other", Policy::default()).await;
    let ready = towline_domain::command::When::After(Millis(60_000));
    scene.submit("jobs", Submission { ready, ..Submission::default() }).await;
    let waiting = scene.receive("jobs", 1, HOUR);
    run_until_idle().await;
    scene.clock.advance(60_000);
    scene.submit("other", Submission::default()).await;
    assert_eq!(at_once(waiting).await.len(), 1);
}

#[tokio::test(start_paused = true)]
async fn a_receive_cut_short_by_the_byte_budget_wakes_the_next_receiver() {
    let scene = Scene::new();
    scene.create("jobs", Policy::default()).await;
    scene.ok(Operation::PauseQueue { queue: name("jobs") }).await;
    let payload = bytes::Bytes::from(vec![0; 1 << 20]);
    for _ in 0..300 {
        let fields = Fields { blob: Some(payload.clone()), ..Fields::default() };
        scene.submit("jobs", Submission { fields, ..Submission::default() }).await;
    }
    let receivers: Vec<_> = (0..3).map(|_| scene.receive("jobs", 1000, HOUR)).collect();
    run_until_idle().await;
    scene.ok(Operation::ResumeQueue { queue: name("jobs") }).await;
    for receiver in receivers {
        assert_eq!(at_once(receiver).await.len(), 64, "the byte budget");
    }
}

#[tokio::test(start_paused = true)]
async fn removals_wake_no_caller() {
    let scene = Scene::new();
    scene.create("done", Policy { completed_ttl: Some(Millis(60_000)), ..Policy::default() }).await;
    let mut receivers = Vec::new();
    for n in 0..1000 {
        scene.create(&format!("queue-{n}"), Policy::default()).await;
        receivers.push(scene.receive(&format!("queue-{n}"), 1, HOUR));
    }
    let mut waiters = Vec::new();
    for _ in 0..100 {
        scene.submit("done", Submission::default()).await;
    }
    scene.create("later", Policy::default()).await;
    let ready = towline_domain::command::When::After(Millis::hours(10));
    for _ in 0..100 {
        let id = scene.submit("later", Submission { ready, ..Submission::default() }).await;
        waiters.push(scene.wait(id));
    }
    let held = scene.receive("done", 100, Duration::ZERO).await.unwrap();
    let commit = |item: &Item| {
        let token = item.head.lease().unwrap().token;
        let verb = towline_domain::command::Verb::Commit(towline_domain::Outcome::default());
        let call = towline_domain::LeaseCall { token, verb, adjust: towline_domain::Adjust::default() };
        Operation::Lease { id: item.head.id, call: Box::new(call) }
    };
    scene.broker.update(held.iter().map(commit).collect()).await.unwrap();
    run_until_idle().await;
    let before = scene.store.guard.total();
    // The leases would have ended by then.
    scene.clock.advance(300_000);
    scene.ok(Operation::Sweep).await;
    run_until_idle().await;
    assert_eq!(
        scene.store.store.queue(name("done")).await.unwrap().unwrap().counts.total(),
        0,
        "all items are removed"
    );
    let calls = scene.store.guard.total() - before;
    // The sweep, and the sweeper that asks for the next due time.
    assert!(calls <= 4, "{calls} calls for 100 removals");
    assert!(!receivers.iter().any(JoinHandle::is_finished) && !waiters.iter().any(JoinHandle::is_finished));
}

#[tokio::test(start_paused = true)]
async fn a_deleted_queue_wakes_the_result_waiters_of_its_own_items_alone() {
    let scene = Scene::new();
    for queue in ["jobs", "doomed"] {
        scene.create(queue, Policy::default()).await;
    }
    let unrelated = scene.waiters("jobs", 1000).await;
    let concerned = scene.waiters("doomed", 3).await;
    let before = scene.store.guard.total();
    scene.ok(Operation::DeleteQueue { queue: name("doomed"), force: true }).await;
    for (_, waiter) in concerned {
        assert_eq!(at_once(waiter).await, Waited::NotFound);
    }
    let calls = scene.store.guard.total() - before;
    // The deletion, three waiters that read their items, and the sweeper and the schedules that read what is due.
    assert!(calls <= 8, "{calls} calls");
    assert!(!unrelated.iter().any(|(_, waiter)| waiter.is_finished()));
}

#[tokio::test(start_paused = true)]
async fn the_result_waiter_for_an_item_that_moved_is_woken_when_its_new_queue_is_deleted() {
    let scene = Scene::new();
    for queue in ["jobs", "doomed"] {
        scene.create(queue, Policy::default()).await;
    }
    let (_, waiter) = scene.waiters("jobs", 1).await.remove(0);
    let leased = scene.receive("jobs", 1, Duration::ZERO).await.unwrap().remove(0);
    let verb = towline_domain::command::Verb::Release { delay: Millis::ZERO, counted: true };
    let adjust = towline_domain::Adjust { queue: Some(name("doomed")), ..towline_domain::Adjust::default() };
    let call = towline_domain::LeaseCall { token: leased.head.lease().unwrap().token, verb, adjust };
    scene.ok(Operation::Lease { id: leased.head.id, call: Box::new(call) }).await;
    run_until_idle().await;
    assert!(!waiter.is_finished());
    scene.ok(Operation::DeleteQueue { queue: name("doomed"), force: true }).await;
    assert_eq!(at_once(waiter).await, Waited::NotFound);
}

const POLL: Duration = Duration::from_secs(1);

/// Lets the broker poll as often as it does between two polls that wake every caller.
async fn polls() {
    for _ in 0..8 {
        tokio::time::sleep(POLL).await;
        run_until_idle().await;
    }
}

#[tokio::test(start_paused = true)]
async fn while_hints_arrive_a_poll_wakes_only_the_result_waiters_that_they_concern() {
    let scene = Scene::with(Sharing::Shared { poll_every: POLL });
    scene.broker.peers_heard(true);
    for queue in ["jobs", "busy"] {
        scene.create(queue, Policy::default()).await;
    }
    let mut waiting = scene.waiters("jobs", 1000).await;
    let busy = scene.waiters("busy", 3).await;
    let reads = || scene.store.guard.reads.load(Ordering::SeqCst);
    let before = reads();
    polls().await;
    // Other tasks read the store as well: groups, schedules and the sweeper.
    assert!(reads() - before < 100, "{} reads at 8 polls", reads() - before);

    // As if another server did it: the effects do not reach this broker.
    let ended = waiting.swap_remove(500);
    scene.store.store.update(vec![cancel(ended.0)]).await.unwrap();
    scene.broker.peer_hints(&PeerHints { left: [ended.0].into(), ..PeerHints::default() });
    assert_eq!(failure(&at_once(ended.1).await), Some(FailureKind::Cancelled));

    let all = busy.iter().map(|(id, _)| cancel(*id)).collect();
    scene.store.store.update(all).await.unwrap();
    let before = reads();
    let hints = PeerHints { left_unnamed: [name("busy")].into(), ..PeerHints::default() };
    scene.broker.peer_hints(&hints);
    for (_, waiter) in busy {
        let waited = tokio::time::timeout(2 * POLL, waiter).await.expect("the next poll wakes it").unwrap();
        assert_eq!(failure(&waited), Some(FailureKind::Cancelled));
    }
    assert!(reads() - before < 100, "{} reads for 3 waiters", reads() - before);
    assert!(!waiting.iter().any(|(_, waiter)| waiter.is_finished()));
}

#[tokio::test(start_paused = true)]
async fn a_lost_hint_of_an_ended_item_is_made_up_for_by_polling() {
    let scene = Scene::with(Sharing::Shared { poll_every: POLL });
    scene.create("jobs", Policy::default()).await;
    for heard in [true, false] {
        scene.broker.peers_heard(heard);
        let (id, waiter) = scene.waiters("jobs", 1).await.remove(0);
        scene.store.store.update(vec![cancel(id)]).await.unwrap();
        let most = if heard { 11 * POLL } else { 2 * POLL };
        let waited = tokio::time::timeout(most, waiter).await.expect("a poll wakes it").unwrap();
        assert_eq!(failure(&waited), Some(FailureKind::Cancelled));
    }
}
