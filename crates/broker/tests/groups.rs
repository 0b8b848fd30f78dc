//! Each member of a group is counted once, and each dependency is resolved once.
#![allow(clippy::unwrap_used, clippy::expect_used, reason = "tests")]

use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::Duration;
use towline_broker::{Broker, ReceiveRequest, Sharing, SteadyClock, Waited};
use towline_conformance::{InterceptedStore, Interceptor, ReferenceStore};
use towline_domain::change::Answer;
use towline_domain::command::Verb;
use towline_domain::{
    Adjust, Condition, Dependency, DependsOn, FailureKind, FieldSet, GroupCounts, Item, ItemId, ItemState,
    LeaseCall, Millis, Outcome, Policy, QueueName, Schema, State, Submission, Timestamp, limits,
};
use towline_store::{
    Answered, BoxFuture, EventCursor, EventPage, Events, EventsFrom, ManualClock, Operation, Reply, Result,
    Store, StoreError, StoredItem, Updated,
};

/// Far beyond every bound: a test that gets here hangs.
const NEVER: Duration = Duration::from_secs(60);

fn jobs() -> QueueName {
    "jobs".parse().unwrap()
}

fn reference_store() -> ReferenceStore {
    ReferenceStore::new(Arc::new(SteadyClock::new()), 7)
}

async fn start(store: Arc<dyn Store>, sharing: Sharing) -> Broker {
    let broker = Broker::start(store, Arc::new(SteadyClock::new()), None, sharing);
    create(&broker, "jobs", Policy::default()).await;
    broker
}

async fn create(broker: &Broker, queue: &str, policy: Policy) {
    let queue = queue.parse().unwrap();
    let create =
        Operation::CreateQueue { queue, schema: Box::new(Schema::default()), policy: Box::new(policy) };
    broker.update(vec![create]).await.unwrap().pop().unwrap().unwrap();
}

async fn single_broker() -> Broker {
    start(Arc::new(reference_store()), Sharing::Alone).await
}

fn member(group: &str) -> Submission {
    let mut submission = Submission::default();
    submission.body.group = Some(group.to_owned());
    submission
}

fn after(on: DependsOn, when: Condition) -> Submission {
    Submission { after: Some(Box::new(Dependency { on, when })), ..Submission::default() }
}

fn after_group(name: &str, expect: u64, when: Condition) -> Submission {
    after(DependsOn::Group { name: name.to_owned(), expect }, when)
}

async fn submit_to(broker: &Broker, queue: &str, submission: Submission) -> Answered {
    let (queue, submission) = (queue.parse().unwrap(), Box::new(submission));
    broker.update(vec![Operation::Submit { queue, submission }]).await.unwrap().pop().unwrap()
}

async fn submit(broker: &Broker, submission: Submission) -> ItemId {
    match submit_to(broker, "jobs", submission).await {
        Ok(Reply::Answer(Answer::Submitted { id, .. })) => id,
        other => panic!("{other:?}"),
    }
}

async fn receive(broker: &Broker, max: u32, wait: Duration) -> Vec<Item> {
    let request = ReceiveRequest {
        queue: jobs(),
        max,
        wait,
        visibility: None,
        fields: FieldSet::NONE,
        make_buffers: false,
    };
    broker.receive(request).await.unwrap().items
}

async fn settle(broker: &Broker, item: &Item, verb: Verb) {
    let token = item.head.lease().unwrap().token;
    let call = Box::new(LeaseCall { token, verb, adjust: Adjust::default() });
    broker.update(vec![Operation::Lease { id: item.head.id, call }]).await.unwrap().pop().unwrap().unwrap();
}

async fn commit(broker: &Broker, item: &Item) {
    settle(broker, item, Verb::Commit(Outcome::default())).await;
}

async fn fail(broker: &Broker, item: &Item) {
    settle(broker, item, Verb::Fail { reason: "broken".to_owned() }).await;
}

/// Receives exactly this number of items that are ready.
async fn take(broker: &Broker, count: u32) -> Vec<Item> {
    let items = receive(broker, count, Duration::ZERO).await;
    assert_eq!(items.len(), count as usize);
    items
}

/// Waits for an item that becomes ready.
async fn next(broker: &Broker) -> Item {
    receive(broker, 1, NEVER).await.pop().expect("an item becomes ready")
}

async fn failed(broker: &Broker, id: ItemId) -> (FailureKind, String) {
    match broker.wait(id, NEVER).await.unwrap() {
        Waited::Ended(stored) => match stored.item.head.state {
            State::Failed { kind, .. } => (kind, stored.item.errors.iter().last().unwrap().message.clone()),
            other => panic!("{other:?}"),
        },
        other => panic!("{other:?}"),
    }
}

async fn done(broker: &Broker, name: &str, expect: u64) -> GroupCounts {
    let (counts, done) = broker.wait_group(name, expect, NEVER).await.unwrap();
    assert!(done, "{counts:?}");
    counts
}

async fn state(broker: &Broker, id: ItemId) -> ItemState {
    let found = broker.store().get(vec![id], FieldSet::NONE).await.unwrap().pop().flatten().unwrap();
    found.item.head.item_state()
}

fn counts(members: u64, completed: u64, failed: u64, removed: u64) -> GroupCounts {
    GroupCounts { members, completed, failed, removed }
}

#[tokio::test(flavor = "multi_thread")]
async fn counts_are_current_and_a_wait_ends_with_the_last_member() {
    let broker = single_broker().await;
    assert_eq!(broker.group("g").await.unwrap(), GroupCounts::default());
    for _ in 0..3 {
        submit(&broker, member("g")).await;
    }
    submit(&broker, member("other")).await;
    assert_eq!(broker.group("g").await.unwrap(), counts(3, 0, 0, 0), "answered submits are counted");
    let waiting = tokio::spawn({
        let broker = broker.clone();
        async move { done(&broker, "g", 0).await }
    });
    let items = take(&broker, 3).await;
    commit(&broker, &items[0]).await;
    fail(&broker, &items[1]).await;
    assert_eq!(broker.group("g").await.unwrap(), counts(3, 1, 1, 0));
    assert!(!waiting.is_finished());
    let (_, over) = broker.wait_group("g", 0, Duration::from_millis(1)).await.unwrap();
    assert!(!over);
    commit(&broker, &items[2]).await;
    assert_eq!(waiting.await.unwrap(), counts(3, 2, 1, 0));
    let (_, over) = broker.wait_group("g", 4, Duration::from_millis(1)).await.unwrap();
    assert!(!over, "a fourth member is expected");
    // A redriven member is unfinished again.
    broker.update(vec![Operation::Redrive { id: items[1].head.id }]).await.unwrap();
    assert_eq!(broker.group("g").await.unwrap(), counts(3, 2, 0, 0));
    // A member that is removed unfinished stays a member.
    broker.update(vec![Operation::Delete { id: items[1].head.id, force: true }]).await.unwrap();
    assert_eq!(done(&broker, "g", 3).await, counts(3, 2, 0, 1));
}

#[tokio::test(flavor = "multi_thread")]
async fn members_without_retention_are_counted() {
    let broker =
        Broker::start(Arc::new(reference_store()), Arc::new(SteadyClock::new()), None, Sharing::Alone);
    let policy = Policy { completed_ttl: Some(Millis(0)), failed_ttl: Some(Millis(0)), ..Policy::default() };
    create(&broker, "jobs", policy).await;
    for _ in 0..4 {
        submit(&broker, member("g")).await;
    }
    let last = submit(&broker, after_group("g", 4, Condition::CountOf(3))).await;
    for (n, item) in take(&broker, 4).await.iter().enumerate() {
        if n == 0 { fail(&broker, item).await } else { commit(&broker, item).await }
    }
    assert_eq!(next(&broker).await.head.id, last);
    assert_eq!(done(&broker, "g", 4).await, counts(4, 3, 1, 0));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_dependent_becomes_ready_once_all_members_have_completed() {
    let broker = single_broker().await;
    let last = submit(&broker, after_group("g", 3, Condition::AllSuccess)).await;
    for _ in 0..2 {
        submit(&broker, member("g")).await;
    }
    for item in take(&broker, 2).await {
        commit(&broker, &item).await;
    }
    assert_eq!(broker.group("g").await.unwrap(), counts(2, 2, 0, 0));
    assert_eq!(state(&broker, last).await, ItemState::Waiting, "a third member is expected");
    submit(&broker, member("g")).await;
    commit(&broker, &take(&broker, 1).await[0]).await;
    let item = next(&broker).await;
    assert_eq!(item.head.id, last);
    commit(&broker, &item).await;
    // A new member does not make the dependent ready again.
    submit(&broker, member("g")).await;
    commit(&broker, &next(&broker).await).await;
    assert_eq!(done(&broker, "g", 4).await, counts(4, 4, 0, 0));
    assert!(receive(&broker, 1, Duration::ZERO).await.is_empty());
}

#[tokio::test(flavor = "multi_thread")]
async fn a_failed_dependency_fails_its_dependents_in_turn() {
    let broker = single_broker().await;
    let first = submit(&broker, member("g")).await;
    submit(&broker, member("g")).await;
    let second = submit(&broker, after_group("g", 0, Condition::AllSuccess)).await;
    let third = submit(&broker, after(DependsOn::items(vec![second]), Condition::AllSuccess)).await;
    let fourth = submit(&broker, after(DependsOn::items(vec![first, third]), Condition::AllDone)).await;
    fail(&broker, &take(&broker, 1).await[0]).await;
    let (kind, why) = failed(&broker, second).await;
    assert_eq!(kind, FailureKind::Cancelled);
    assert!(why.contains("group \"g\""), "{why}");
    let (_, why) = failed(&broker, third).await;
    assert!(why.contains(&second.to_string()), "{why}");
    // The fourth item depends on ends, not on success. The other member is ready, too.
    let mut ready = vec![next(&broker).await.head.id];
    ready.push(next(&broker).await.head.id);
    assert!(ready.contains(&fourth), "{ready:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn ended_dependencies_count_at_once_and_unknown_ones_are_refused() {
    let broker = single_broker().await;
    let ids = [submit(&broker, Submission::default()).await, submit(&broker, Submission::default()).await];
    let items = take(&broker, 2).await;
    commit(&broker, &items[0]).await;
    let one = submit(&broker, after(DependsOn::items(vec![ids[0]]), Condition::AllSuccess)).await;
    assert_eq!(next(&broker).await.head.id, one);
    let both = submit(&broker, after(DependsOn::items(ids.to_vec()), Condition::CountOf(2))).await;
    fail(&broker, &items[1]).await;
    failed(&broker, both).await;
    let gone = ids[1];
    broker.update(vec![Operation::Delete { id: gone, force: false }]).await.unwrap();
    let operation = |submission| Operation::Submit { queue: jobs(), submission: Box::new(submission) };
    let batch = vec![
        operation(Submission::default()),
        operation(after(DependsOn::items(vec![ids[0], gone]), Condition::AllDone)),
        operation(after(DependsOn::items(vec![ids[0]]), Condition::AllDone)),
    ];
    let answers = broker.update(batch).await.unwrap();
    assert!(answers[0].is_ok() && answers[2].is_ok());
    let refusal = answers[1].as_ref().unwrap_err().to_string();
    assert!(refusal.contains(&gone.to_string()), "{refusal}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_dependent_of_a_done_group_is_ready_at_once() {
    let broker = single_broker().await;
    submit(&broker, member("g")).await;
    commit(&broker, &take(&broker, 1).await[0]).await;
    done(&broker, "g", 1).await;
    let last = submit(&broker, after_group("g", 0, Condition::AllSuccess)).await;
    assert_eq!(next(&broker).await.head.id, last);
}

#[tokio::test(flavor = "multi_thread")]
async fn members_of_a_deleted_queue_no_longer_block_dependents() {
    let broker = single_broker().await;
    create(&broker, "gone", Policy::default()).await;
    submit(&broker, member("g")).await;
    let answer = submit_to(&broker, "gone", member("g")).await;
    let Ok(Reply::Answer(Answer::Submitted { id, .. })) = answer else { panic!("{answer:?}") };
    let last = submit(&broker, after_group("g", 2, Condition::AllDone)).await;
    let successful = submit(&broker, after_group("g", 0, Condition::AllSuccess)).await;
    let dependent = submit(&broker, after(DependsOn::items(vec![id]), Condition::AllSuccess)).await;
    commit(&broker, &take(&broker, 1).await[0]).await;
    assert_eq!(broker.group("g").await.unwrap(), counts(2, 1, 0, 0));
    let delete = Operation::DeleteQueue { queue: "gone".parse().unwrap(), force: true };
    broker.update(vec![delete]).await.unwrap();
    assert_eq!(next(&broker).await.head.id, last);
    let (_, why) = failed(&broker, successful).await;
    assert!(why.contains("1 were removed"), "{why}");
    failed(&broker, dependent).await;
    assert_eq!(done(&broker, "g", 2).await, counts(2, 1, 0, 1));
}

#[tokio::test(flavor = "multi_thread")]
async fn an_item_that_completed_counts_as_completed_after_it_is_deleted() {
    let store: Arc<dyn Store> = Arc::new(reference_store());
    let broker = start(Arc::clone(&store), Sharing::Alone).await;
    let first = submit(&broker, Submission::default()).await;
    let dependent = || after(DependsOn::items(vec![first]), Condition::AllSuccess);
    let early = submit(&broker, dependent()).await;
    let item = take(&broker, 1).await.remove(0);
    broker.group("any").await.unwrap();
    broker.stop();
    // The next broker reads both events together.
    let token = item.head.lease().unwrap().token;
    let verb = Verb::Commit(Outcome::default());
    let call = Box::new(LeaseCall { token, verb, adjust: Adjust::default() });
    let settle = Operation::Lease { id: first, call };
    store.update(vec![settle, Operation::Delete { id: first, force: false }]).await.unwrap();
    let broker = start(Arc::clone(&store), Sharing::Alone).await;
    assert_eq!(next(&broker).await.head.id, early);
    // A broker that reads the end of an item before the submit of its dependent, and the removal together with it.
    let second = submit(&broker, Submission::default()).await;
    commit(&broker, &take(&broker, 1).await[0]).await;
    broker.group("any").await.unwrap();
    let submission = Box::new(after(DependsOn::items(vec![second]), Condition::AllSuccess));
    let batch =
        vec![Operation::Submit { queue: jobs(), submission }, Operation::Delete { id: second, force: false }];
    let answers = broker.update(batch).await.unwrap();
    let Ok(Reply::Answer(Answer::Submitted { id: late, .. })) = answers[0] else { panic!("{answers:?}") };
    assert_eq!(next(&broker).await.head.id, late);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_group_that_gets_a_member_after_its_counts_expired_is_recounted() {
    let clock = Arc::new(ManualClock::new(Timestamp(1_000_000)));
    let store: Arc<dyn Store> = Arc::new(ReferenceStore::new(clock.clone(), 7));
    let broker = start(store, Sharing::Alone).await;
    for _ in 0..2 {
        submit(&broker, member("g")).await;
    }
    for item in take(&broker, 2).await {
        commit(&broker, &item).await;
    }
    assert_eq!(done(&broker, "g", 2).await, counts(2, 2, 0, 0));
    clock.advance(limits::GROUP_DONE_KEPT.0 + 1);
    submit(&broker, member("g")).await;
    assert_eq!(broker.group("g").await.unwrap(), counts(3, 2, 0, 0));
    let last = submit(&broker, after_group("g", 3, Condition::AllSuccess)).await;
    commit(&broker, &take(&broker, 1).await[0]).await;
    assert_eq!(next(&broker).await.head.id, last);
    assert_eq!(done(&broker, "g", 3).await, counts(3, 3, 0, 0));
}

/// A store whose events become visible later than its items.
struct LateEvents {
    /// The last visible event.
    through: AtomicU64,
    watched: OnceLock<ItemId>,
    /// How often the watched item was asked for and not found.
    missed: AtomicU32,
}

impl LateEvents {
    fn cut(&self, page: EventPage) -> EventPage {
        let through = self.through.load(Ordering::SeqCst);
        let Some(first) = page.events.first().map(|event| event.id) else { return page };
        let events: Vec<_> = page.events.iter().filter(|event| event.id.group <= through).cloned().collect();
        if events.len() == page.events.len() {
            return page;
        }
        let last = events.last().map_or(first.group - 1, |event| event.id.group);
        EventPage { events, next: EventCursor::after_group(first.store, last), more: true }
    }
}

impl Interceptor for LateEvents {
    fn events<'a>(
        &'a self,
        store: &'a ReferenceStore,
        from: EventsFrom,
        limit: usize,
    ) -> BoxFuture<'a, Result<Events>> {
        Box::pin(async move {
            Ok(match store.events(from, limit).await? {
                Events::Page(page) => Events::Page(self.cut(page)),
                other => other,
            })
        })
    }

    fn get<'a>(
        &'a self,
        store: &'a ReferenceStore,
        ids: Vec<ItemId>,
        fields: FieldSet,
    ) -> BoxFuture<'a, Result<Vec<Option<StoredItem>>>> {
        Box::pin(async move {
            let found = store.get(ids.clone(), fields).await?;
            let missed =
                |(id, found): (&ItemId, &Option<_>)| found.is_none() && self.watched.get() == Some(id);
            if ids.iter().zip(&found).any(missed) {
                self.missed.fetch_add(1, Ordering::SeqCst);
            }
            Ok(found)
        })
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn an_item_that_completed_and_was_deleted_counts_as_completed_although_its_events_come_late() {
    let guard =
        LateEvents { through: AtomicU64::new(u64::MAX), watched: OnceLock::new(), missed: AtomicU32::new(0) };
    let store = Arc::new(InterceptedStore { store: reference_store(), guard });
    let broker = start(store.clone(), Sharing::Shared { poll_every: Duration::from_millis(20) }).await;
    let ids =
        vec![submit(&broker, Submission::default()).await, submit(&broker, Submission::default()).await];
    let last = submit(&broker, after(DependsOn::items(ids.clone()), Condition::AllSuccess)).await;
    let items = take(&broker, 2).await;
    broker.group("any").await.unwrap();
    // Only the end of the first item is visible to the follower.
    let Events::Page(now) = store.store.events(EventsFrom::Now, 1).await.unwrap() else {
        panic!("no events")
    };
    let at: u64 = now.next.to_string().split('-').nth(1).unwrap().parse().unwrap();
    store.guard.through.store(at + 1, Ordering::SeqCst);
    store.guard.watched.set(ids[1]).unwrap();
    let commit = |item: &Item| {
        let (token, verb) = (item.head.lease().unwrap().token, Verb::Commit(Outcome::default()));
        let call = Box::new(LeaseCall { token, verb, adjust: Adjust::default() });
        Operation::Lease { id: item.head.id, call }
    };
    let delete = Operation::Delete { id: ids[1], force: false };
    store.store.update(vec![commit(&items[0]), commit(&items[1]), delete]).await.unwrap();
    while store.guard.missed.load(Ordering::SeqCst) == 0 {
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
    assert_eq!(state(&broker, last).await, ItemState::Waiting);
    store.guard.through.store(u64::MAX, Ordering::SeqCst);
    while state(&broker, last).await == ItemState::Waiting {
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
    assert_eq!(state(&broker, last).await, ItemState::Pending);
}

/// A store that sometimes fails writes of the broker's follower.
#[derive(Default)]
struct Flaky {
    /// This many fail, alternately before and after they are carried out.
    resolves: AtomicU32,
    records: AtomicU32,
}

impl Flaky {
    fn fails(counter: &AtomicU32) -> Option<u32> {
        counter.fetch_update(Ordering::SeqCst, Ordering::SeqCst, |left| left.checked_sub(1)).ok()
    }
}

impl Interceptor for Flaky {
    fn update<'a>(
        &'a self,
        store: &'a ReferenceStore,
        batch: Vec<Operation>,
    ) -> BoxFuture<'a, Result<Updated>> {
        let is = |wanted: fn(&Operation) -> bool| batch.iter().any(wanted);
        let left = if is(|operation| matches!(operation, Operation::ResolveDependency { .. })) {
            Flaky::fails(&self.resolves)
        } else if is(|operation| matches!(operation, Operation::Kv { .. })) {
            Flaky::fails(&self.records)
        } else {
            None
        };
        let Some(left) = left else { return store.update(batch) };
        if left % 2 == 0 {
            drop(store.update(batch));
        }
        Box::pin(async { Err(StoreError::Unavailable { cause: "the connection broke".to_owned() }) })
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn faults_of_the_store_lose_and_repeat_no_count() {
    let store = Arc::new(InterceptedStore { store: reference_store(), guard: Flaky::default() });
    let broker = start(store.clone(), Sharing::Alone).await;
    for _ in 0..3 {
        submit(&broker, member("g")).await;
    }
    let last = submit(&broker, after_group("g", 0, Condition::AllSuccess)).await;
    assert_eq!(broker.group("g").await.unwrap(), counts(3, 0, 0, 0));
    store.guard.records.store(2, Ordering::SeqCst);
    store.guard.resolves.store(2, Ordering::SeqCst);
    for item in take(&broker, 3).await {
        commit(&broker, &item).await;
    }
    let item = next(&broker).await;
    assert_eq!(item.head.id, last);
    commit(&broker, &item).await;
    assert_eq!(done(&broker, "g", 3).await, counts(3, 3, 0, 0));
    assert!(receive(&broker, 1, Duration::ZERO).await.is_empty());
}

#[tokio::test(flavor = "multi_thread")]
async fn a_restarted_broker_continues_to_count() {
    let store: Arc<dyn Store> = Arc::new(reference_store());
    let broker = start(Arc::clone(&store), Sharing::Alone).await;
    for _ in 0..10 {
        submit(&broker, member("g")).await;
    }
    let last = submit(&broker, after_group("g", 0, Condition::AllDone)).await;
    for item in take(&broker, 4).await {
        commit(&broker, &item).await;
    }
    broker.group("g").await.unwrap();
    broker.stop();
    // Settle while no broker counts.
    let items = take(&broker, 5).await;
    for item in &items {
        let token = item.head.lease().unwrap().token;
        let verb = Verb::Commit(Outcome::default());
        let call = Box::new(LeaseCall { token, verb, adjust: Adjust::default() });
        store.update(vec![Operation::Lease { id: item.head.id, call }]).await.unwrap();
    }
    let broker = start(store, Sharing::Alone).await;
    assert_eq!(broker.group("g").await.unwrap(), counts(10, 9, 0, 0));
    assert_eq!(state(&broker, last).await, ItemState::Waiting);
    commit(&broker, &take(&broker, 1).await[0]).await;
    assert_eq!(next(&broker).await.head.id, last);
    assert_eq!(done(&broker, "g", 10).await, counts(10, 10, 0, 0));
}

#[tokio::test(flavor = "multi_thread")]
async fn groups_are_recounted_after_events_were_deleted() {
    let store: Arc<dyn Store> = Arc::new(reference_store());
    let broker = start(Arc::clone(&store), Sharing::Alone).await;
    submit(&broker, member("g")).await;
    submit(&broker, member("g")).await;
    let last = submit(&broker, after_group("g", 0, Condition::AllSuccess)).await;
    assert_eq!(broker.group("g").await.unwrap(), counts(2, 0, 0, 0));
    let items = take(&broker, 2).await;
    broker.stop();
    for item in &items {
        let token = item.head.lease().unwrap().token;
        let verb = Verb::Commit(Outcome::default());
        let call = Box::new(LeaseCall { token, verb, adjust: Adjust::default() });
        store.update(vec![Operation::Lease { id: item.head.id, call }]).await.unwrap();
    }
    // More events than the store keeps.
    let submit = || Operation::Submit { queue: jobs(), submission: Box::new(Submission::default()) };
    let answers = store.update((0..6000).map(|_| submit()).collect()).await.unwrap().answers;
    let delete = |answer: &Answered| match answer {
        Ok(Reply::Answer(Answer::Submitted { id, .. })) => Operation::Delete { id: *id, force: false },
        other => panic!("{other:?}"),
    };
    store.update(answers.iter().map(delete).collect()).await.unwrap();
    let broker = start(store, Sharing::Alone).await;
    assert_eq!(next(&broker).await.head.id, last);
    assert_eq!(done(&broker, "g", 2).await, counts(2, 2, 0, 0));
}

/// Many groups, and two brokers that both count and settle.
#[tokio::test(flavor = "multi_thread")]
async fn two_brokers_count_each_member_once() {
    const GROUPS: usize = 20;
    const EACH: usize = 25;
    let store: Arc<dyn Store> = Arc::new(reference_store());
    let sharing = Sharing::Shared { poll_every: Duration::from_millis(20) };
    let brokers = [start(Arc::clone(&store), sharing).await, start(Arc::clone(&store), sharing).await];
    let mut dependents = Vec::new();
    for n in 0..GROUPS * EACH {
        submit(&brokers[n % 2], member(&format!("g{}", n % GROUPS))).await;
    }
    for n in 0..GROUPS {
        let dependent = after_group(&format!("g{n}"), EACH as u64, Condition::AllDone);
        dependents.push(submit(&brokers[n % 2], dependent).await);
    }
    let workers = (0..4).map(|n| {
        let broker = brokers[n % 2].clone();
        tokio::spawn(async move {
            let mut received = Vec::new();
            loop {
                let items = receive(&broker, 7, Duration::from_secs(2)).await;
                if items.is_empty() {
                    return received;
                }
                for (at, item) in items.iter().enumerate() {
                    if at % 3 == 0 {
                        fail(&broker, item).await
                    } else {
                        commit(&broker, item).await
                    }
                    received.push(item.head.id);
                }
            }
        })
    });
    let mut received = Vec::new();
    for worker in workers.collect::<Vec<_>>() {
        received.extend(worker.await.unwrap());
    }
    for id in dependents {
        assert_eq!(
            received.iter().filter(|received| **received == id).count(),
            1,
            "each dependent is delivered once"
        );
    }
    assert_eq!(received.len(), GROUPS * EACH + GROUPS);
    for n in 0..GROUPS {
        for broker in &brokers {
            let counts = done(broker, &format!("g{n}"), EACH as u64).await;
            assert_eq!((counts.members, counts.removed), (EACH as u64, 0));
        }
    }
}
