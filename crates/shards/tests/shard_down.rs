//! Shards that go down and come up again, and shards that are added.

#![allow(clippy::unwrap_used, reason = "tests")]

use std::collections::BTreeSet;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use towline_conformance::{InterceptedStore, Interceptor, ReferenceStore};
use towline_domain::change::Answer;
use towline_domain::command::Verb;
use towline_domain::kv::{KvCommand, KvRecord};
use towline_domain::{
    Adjust, Body, FieldSet, ItemId, LeaseCall, Millis, Outcome, Policy, QueueName, Refusal, Schema,
    Submission, Timestamp, TokenSeed, limits,
};
use towline_shards::{LazyStore, Shards};
use towline_store::{
    Answered, BoxFuture, KvPage, ManualClock, Operation, OperationError, ReceiveCall, Received, Reply,
    Result, Store, StoreError, Updated,
};

/// Injects faults into a store.
#[derive(Default)]
struct Faults {
    down: AtomicBool,
    reads: AtomicUsize,
    /// Runs once, after the next listing of records.
    after_listing: Mutex<Option<Box<dyn FnOnce() + Send>>>,
    /// A key that the store refuses.
    refused_key: Mutex<Option<String>>,
}

impl Interceptor for Faults {
    fn update<'a>(
        &'a self,
        store: &'a ReferenceStore,
        batch: Vec<Operation>,
    ) -> BoxFuture<'a, Result<Updated>> {
        if self.down.load(Ordering::SeqCst) {
            return Box::pin(async { Err(injected_fault()) });
        }
        let refused = self.refused_key.lock().unwrap().clone();
        if batch
            .iter()
            .any(|operation| matches!(operation, Operation::Kv { key, .. } if Some(key) == refused.as_ref()))
        {
            return Box::pin(async {
                Ok(Updated {
                    answers: vec![Err(Refusal::StoreFull { what: "records", held: 1 }.into())],
                    ..Updated::default()
                })
            });
        }
        store.update(batch)
    }

    fn read(&self) -> Result<()> {
        self.reads.fetch_add(1, Ordering::SeqCst);
        match self.down.load(Ordering::SeqCst) {
            true => Err(injected_fault()),
            false => Ok(()),
        }
    }

    fn kv_list<'a>(
        &'a self,
        store: &'a ReferenceStore,
        page: KvPage,
    ) -> BoxFuture<'a, Result<Vec<(String, KvRecord)>>> {
        let records = store.kv_list(page);
        if let Some(then) = self.after_listing.lock().unwrap().take() {
            then();
        }
        records
    }
}

fn injected_fault() -> StoreError {
    StoreError::Unavailable { cause: "injected fault".to_owned() }
}

struct Rig {
    parts: Vec<Arc<InterceptedStore<Faults>>>,
    shards: Shards,
    seed: u8,
}

fn parts(count: usize) -> Vec<Arc<InterceptedStore<Faults>>> {
    let clock = Arc::new(ManualClock::new(Timestamp(1_700_000_000_000)));
    let part = |n: usize| InterceptedStore {
        store: ReferenceStore::new(clock.clone(), n as u64),
        guard: Faults::default(),
    };
    (0..count).map(|n| Arc::new(part(n))).collect()
}

fn shards(parts: &[Arc<InterceptedStore<Faults>>]) -> Shards {
    let named =
        |(n, part): (usize, &Arc<InterceptedStore<Faults>>)| (format!("{n}"), part.clone() as Arc<dyn Store>);
    Shards::new(parts.iter().enumerate().map(named).collect()).unwrap()
}

fn jobs() -> QueueName {
    "jobs".parse().unwrap()
}

fn create() -> Operation {
    let (schema, policy) = (Box::new(Schema::default()), Box::new(Policy::default()));
    Operation::CreateQueue { queue: jobs(), schema, policy }
}

fn submit(submission: Submission) -> Operation {
    Operation::Submit { queue: jobs(), submission: Box::new(submission) }
}

fn keyed(key: &str) -> Submission {
    Submission {
        body: Body { idempotency_key: Some(key.to_owned()), ..Body::default() },
        ..Submission::default()
    }
}

fn code(answered: &Answered) -> &'static str {
    answered.as_ref().map_or_else(OperationError::code, |_| "ok")
}

impl Rig {
    async fn start(count: usize) -> Rig {
        let parts = parts(count);
        let rig = Rig { shards: shards(&parts), parts, seed: 0 };
        assert!(rig.run(create()).await.is_ok());
        rig
    }

    fn set_down(&self, part: usize, down: bool) {
        self.parts[part].guard.down.store(down, Ordering::SeqCst);
    }

    async fn run(&self, operation: Operation) -> Answered {
        self.shards.update(vec![operation]).await.unwrap().answers.remove(0)
    }

    async fn submit(&self, submission: Submission) -> ItemId {
        match self.run(submit(submission)).await {
            Ok(Reply::Answer(Answer::Submitted { id, .. })) => id,
            other => panic!("{other:?}"),
        }
    }

    async fn receive(&mut self, max: u32) -> Received {
        self.seed += 1;
        let call = ReceiveCall {
            queue: jobs(),
            max,
            visibility: None,
            assigned: false,
            seed: TokenSeed([self.seed; 32]),
            fields: FieldSet::ALL,
            make_buffers: false,
        };
        match self.run(Operation::Receive(Box::new(call))).await {
            Ok(Reply::Received(received)) => received,
            other => panic!("{other:?}"),
        }
    }

    fn home(&self, id: ItemId) -> usize {
        self.parts.iter().position(|part| part.issued(id)).unwrap()
    }
}

#[tokio::test]
async fn the_other_shards_keep_working() {
    let mut rig = Rig::start(3).await;
    let mut ids = BTreeSet::new();
    for _ in 0..9 {
        ids.insert(rig.submit(Submission::default()).await);
    }
    let held = rig.receive(9).await.items;
    assert_eq!(
        held.iter().map(|item| item.head.id).collect::<BTreeSet<_>>(),
        ids,
        "one receive gets the items of all shards"
    );
    rig.set_down(1, true);
    let settle = |item: &towline_domain::Item| {
        let call = LeaseCall {
            token: item.head.lease().unwrap().token,
            verb: Verb::Commit(Outcome::default()),
            adjust: Adjust::default(),
        };
        Operation::Lease { id: item.head.id, call: Box::new(call) }
    };
    // Only operations on items in the shard that is down are refused.
    let answers = rig.shards.update(held.iter().map(settle).collect()).await.unwrap().answers;
    for (item, answer) in held.iter().zip(&answers) {
        let expected = if rig.home(item.head.id) == 1 { "unavailable" } else { "ok" };
        assert_eq!(code(answer), expected);
    }
    assert_eq!(
        rig.shards.health()[1].down.as_deref(),
        Some("the store cannot be reached: injected fault; try again later")
    );
    // New items go to the other shards, and receives get them from there.
    for _ in 0..6 {
        let id = rig.submit(Submission::default()).await;
        assert_ne!(rig.home(id), 1);
    }
    assert_eq!(rig.receive(10).await.items.len(), 6);
    let view = rig.shards.queue(jobs()).await.unwrap().unwrap();
    assert_eq!((view.counts.completed, view.counts.processing), (6, 6));
    // An operation that needs every shard reports which one is down.
    match rig.run(Operation::PauseQueue { queue: jobs() }).await {
        Err(OperationError::Failed(StoreError::Unavailable { cause: detail })) => {
            assert!(detail.contains("shard 1"), "{detail}")
        }
        other => panic!("{other:?}"),
    }
    let unreachable = held.iter().find(|item| rig.home(item.head.id) == 1).unwrap();
    assert!(
        rig.shards.get(vec![unreachable.head.id], FieldSet::NONE).await.is_err(),
        "whether the item exists is unknown"
    );

    rig.set_down(1, false);
    rig.shards.probe().await;
    assert!(rig.shards.health().iter().all(|shard| shard.down.is_none()));
    assert_eq!(code(&rig.run(settle(unreachable)).await), "ok");
    assert_eq!(rig.shards.queue(jobs()).await.unwrap().unwrap().counts.total(), 15);
}

#[tokio::test]
async fn a_submit_with_a_key_needs_the_shard_of_that_key() {
    let rig = Rig::start(3).await;
    let mut homes = BTreeSet::new();
    for n in 0..30 {
        let key = format!("k{n}");
        let id = rig.submit(keyed(&key)).await;
        assert_eq!(rig.submit(keyed(&key)).await, id, "one key, one item");
        homes.insert(rig.home(id));
        rig.set_down(rig.home(id), true);
        // Another shard would accept the key a second time.
        assert_eq!(code(&rig.run(submit(keyed(&key))).await), "unavailable");
        rig.set_down(rig.home(id), false);
        rig.shards.probe().await;
    }
    assert_eq!(homes.len(), 3, "keys are spread over the shards");
}

#[tokio::test]
async fn with_all_shards_down_every_call_is_refused_at_once() {
    let rig = Rig::start(2).await;
    (0..2).for_each(|part| rig.set_down(part, true));
    for _ in 0..3 {
        assert_eq!(code(&rig.run(submit(Submission::default())).await), "unavailable");
    }
    assert!(rig.shards.queue(jobs()).await.is_err());
    assert!(rig.shards.queues(None, 10).await.is_err());
    assert!(rig.shards.next_wake().await.is_err());
    (0..2).for_each(|part| rig.set_down(part, false));
    rig.shards.probe().await;
    rig.submit(Submission::default()).await;
}

#[tokio::test]
async fn a_new_shard_gets_the_queues_and_its_share_of_keys() {
    let mut rig = Rig::start(2).await;
    for n in 0..100 {
        rig.submit(keyed(&format!("k{n}"))).await;
    }
    assert!(rig.run(Operation::PauseQueue { queue: jobs() }).await.is_ok());
    rig.parts.extend(parts(3).split_off(2));
    rig.shards = shards(&rig.parts);
    rig.shards.reconcile().await.unwrap();
    let view = rig.parts[2].queue(jobs()).await.unwrap().unwrap();
    assert!(view.queue.paused);
    assert!(rig.run(Operation::ResumeQueue { queue: jobs() }).await.is_ok());
    let mut moved = 0;
    for n in 0..100 {
        let id = rig.submit(keyed(&format!("k{n}"))).await;
        moved += usize::from(rig.home(id) == 2);
    }
    // About a third of the keys routes to the new shard. The other keys stay.
    assert!((15..55).contains(&moved), "{moved}");
    assert_eq!(rig.shards.queue(jobs()).await.unwrap().unwrap().counts.pending, 100 + moved as u64);
    assert_eq!(rig.receive(1000).await.items.len(), 100 + moved);
}

fn kv(key: String, command: KvCommand) -> Operation {
    Operation::Kv { key, command }
}

#[tokio::test]
async fn records_move_to_their_shard_when_a_shard_is_added() {
    let parts = parts(3);
    let two = shards(&parts[..2]);
    let keys: Vec<String> = (0..60).map(|n| format!("k{n}")).collect();
    let ttl = |n: usize| n.is_multiple_of(2).then_some(Millis(60_000));
    let set = |(n, key): (usize, &String)| {
        kv(key.clone(), KvCommand::Set { value: n.to_string().into(), ttl: ttl(n) })
    };
    two.update(keys.iter().enumerate().map(set).collect()).await.unwrap();
    let once = KvCommand::IncrementOnce { by: 1, once: "a".to_owned(), ttl: Millis(60_000) };
    two.update(vec![kv("counter".to_owned(), once)]).await.unwrap();
    let before = two.kv_get(keys.clone()).await.unwrap();
    assert!(before.iter().all(Option::is_some));

    let three = shards(&parts);
    three.reconcile().await.unwrap();
    assert_eq!(three.kv_get(keys.clone()).await.unwrap(), before, "values and expiry times are kept");
    let page = KvPage { prefix: "k".to_owned(), after: None, limit: limits::KV_PAGE_MAX };
    assert_eq!(three.kv_list(page.clone()).await.unwrap().len(), keys.len(), "each key is listed once");
    let moved = parts[2].kv_list(page.clone()).await.unwrap().len();
    assert!((8..35).contains(&moved), "{moved}");

    // The record in its own shard is the newer one. A stale copy elsewhere does not replace it.
    let newer = three.kv_get(keys.clone()).await.unwrap();
    let moved: Vec<String> = parts[2].kv_list(page).await.unwrap().into_iter().map(|(key, _)| key).collect();
    let stale = KvCommand::Set { value: "stale".into(), ttl: None };
    parts[0].update(vec![kv(moved[0].clone(), stale)]).await.unwrap();
    three.place_records().await;
    assert_eq!(three.kv_get(keys).await.unwrap(), newer);
    assert_eq!(parts[0].kv_get(vec![moved[0].clone()]).await.unwrap(), [None]);

    // A server that starts with the same number of shards does not read all records.
    let reads = || parts.iter().map(|part| part.guard.reads.load(Ordering::SeqCst)).sum::<usize>();
    let before = reads();
    three.reconcile().await.unwrap();
    assert!(reads() - before < 3 * parts.len(), "it reads the queues and the number of shards only");
}

/// Keys that do not route to this part.
async fn keys_elsewhere(parts: &[Arc<InterceptedStore<Faults>>], at: usize) -> Vec<String> {
    let (probe, mut found) = (shards(parts), Vec::new());
    for key in (0..100).map(|n| format!("key{n}")) {
        let set = KvCommand::Set { value: "here".into(), ttl: None };
        probe.update(vec![kv(key.clone(), set)]).await.unwrap();
        let elsewhere = parts[at].kv_get(vec![key.clone()]).await.unwrap()[0].is_none();
        probe.update(vec![kv(key.clone(), KvCommand::Delete)]).await.unwrap();
        found.extend(elsewhere.then_some(key));
    }
    found
}

#[tokio::test]
async fn a_record_deleted_during_a_move_does_not_come_back() {
    let parts = parts(2);
    let key = keys_elsewhere(&parts, 0).await.remove(0);
    let set = KvCommand::Set { value: "old".into(), ttl: None };
    parts[0].update(vec![kv(key.clone(), set)]).await.unwrap();
    // Between the listing and the move, another server moves the record and a client deletes it.
    let (part, deleted) = (parts[0].clone(), key.clone());
    *parts[0].guard.after_listing.lock().unwrap() = Some(Box::new(move || {
        futures::executor::block_on(part.store.update(vec![kv(deleted, KvCommand::Delete)])).unwrap();
    }));
    let both = shards(&parts);
    both.place_records().await;
    assert!(parts[0].guard.after_listing.lock().unwrap().is_none(), "the records were listed");
    assert_eq!(both.kv_get(vec![key]).await.unwrap(), [None]);
}

#[tokio::test]
async fn a_refused_record_does_not_stop_the_start() {
    let parts = parts(2);
    let mut keys = keys_elsewhere(&parts, 0).await.into_iter();
    let (refused, fine) = (keys.next().unwrap(), keys.next().unwrap());
    for key in [&refused, &fine] {
        let set = KvCommand::Set { value: "old".into(), ttl: None };
        parts[0].update(vec![kv(key.clone(), set)]).await.unwrap();
    }
    *parts[1].guard.refused_key.lock().unwrap() = Some(refused.clone());
    let both = shards(&parts);
    both.reconcile().await.unwrap();
    assert!(both.kv_get(vec![fine]).await.unwrap()[0].is_some(), "the other records are moved");
    // The next reconcile tries again.
    *parts[1].guard.refused_key.lock().unwrap() = None;
    both.reconcile().await.unwrap();
    assert!(both.kv_get(vec![refused]).await.unwrap()[0].is_some());
}

#[tokio::test]
async fn a_shard_that_is_down_at_the_start_joins_later() {
    let parts = parts(2);
    parts[1].guard.down.store(true, Ordering::SeqCst);
    let second = parts[1].clone();
    let open = move || -> BoxFuture<'static, Result<Arc<dyn Store>>> {
        let second = second.clone();
        Box::pin(async move {
            second.queues(None, 1).await?;
            Ok(second as Arc<dyn Store>)
        })
    };
    let first = parts[0].clone() as Arc<dyn Store>;
    let both: Vec<(String, Arc<dyn Store>)> =
        vec![("0".to_owned(), first), ("1".to_owned(), Arc::new(LazyStore::new(open)))];
    let mut rig = Rig { shards: Shards::new(both).unwrap(), parts, seed: 0 };
    // The queue exists in the first shard before the start.
    rig.parts[0].update(vec![create()]).await.unwrap();
    rig.shards.reconcile().await.unwrap();
    for _ in 0..4 {
        rig.submit(Submission::default()).await;
    }
    assert_eq!(rig.receive(4).await.items.len(), 4);
    rig.shards.probe().await;
    assert!(rig.shards.health()[1].down.is_some());
    assert_eq!(
        (rig.shards.identity().parts, rig.shards.identity().unknown),
        (rig.parts[0].identity().parts, 1)
    );

    rig.set_down(1, false);
    rig.shards.probe().await;
    assert!(rig.shards.health()[1].down.is_none());
    assert_eq!((rig.shards.identity().parts.len(), rig.shards.identity().unknown), (2, 0));
    let homes: BTreeSet<usize> =
        [rig.submit(Submission::default()).await, rig.submit(Submission::default()).await]
            .map(|id| rig.home(id))
            .into();
    assert_eq!(homes.len(), 2, "the second shard has the queue and takes its turn");
}
