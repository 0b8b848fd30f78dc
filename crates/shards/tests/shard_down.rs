//! A shard that is gone, and comes back.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

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
use towline_shards::{Later, Shards};
use towline_store::{
    Answered, BoxFuture, KvPage, ManualClock, Operation, ReceiveCall, Received, Reply, Result, Store,
    StoreError,
};

/// A store that can be cut off, and more.
#[derive(Default)]
struct Cut {
    off: AtomicBool,
    reads: AtomicUsize,
    /// Done once, when records have been listed.
    listed: Mutex<Option<Box<dyn FnOnce() + Send>>>,
    /// A key that it will not have.
    refuses: Mutex<Option<String>>,
}

impl Interceptor for Cut {
    fn update<'a>(
        &'a self,
        store: &'a ReferenceStore,
        batch: Vec<Operation>,
    ) -> BoxFuture<'a, Result<Vec<Answered>>> {
        if self.off.load(Ordering::SeqCst) {
            return Box::pin(async { Err(cut_off()) });
        }
        let refused = self.refuses.lock().unwrap().clone();
        if batch
            .iter()
            .any(|operation| matches!(operation, Operation::Kv { key, .. } if Some(key) == refused.as_ref()))
        {
            return Box::pin(async { Ok(vec![Err(Refusal::StoreFull { what: "records", held: 1 })]) });
        }
        store.update(batch)
    }

    fn read(&self) -> Result<()> {
        self.reads.fetch_add(1, Ordering::SeqCst);
        match self.off.load(Ordering::SeqCst) {
            true => Err(cut_off()),
            false => Ok(()),
        }
    }

    fn kv_list<'a>(
        &'a self,
        store: &'a ReferenceStore,
        page: KvPage,
    ) -> BoxFuture<'a, Result<Vec<(String, KvRecord)>>> {
        let records = store.kv_list(page);
        if let Some(then) = self.listed.lock().unwrap().take() {
            then();
        }
        records
    }
}

fn cut_off() -> StoreError {
    StoreError::Unavailable { cause: "cut off".to_owned() }
}

struct Rig {
    parts: Vec<Arc<InterceptedStore<Cut>>>,
    shards: Shards,
    seed: u8,
}

fn parts(count: usize) -> Vec<Arc<InterceptedStore<Cut>>> {
    let clock = Arc::new(ManualClock::new(Timestamp(1_700_000_000_000)));
    let part = |n: usize| InterceptedStore {
        store: ReferenceStore::new(clock.clone(), n as u64),
        guard: Cut::default(),
    };
    (0..count).map(|n| Arc::new(part(n))).collect()
}

fn shards(parts: &[Arc<InterceptedStore<Cut>>]) -> Shards {
    let named =
        |(n, part): (usize, &Arc<InterceptedStore<Cut>>)| (format!("{n}"), part.clone() as Arc<dyn Store>);
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
    answered.as_ref().map_or_else(Refusal::code, |_| "ok")
}

impl Rig {
    async fn start(count: usize) -> Rig {
        let parts = parts(count);
        let rig = Rig { shards: shards(&parts), parts, seed: 0 };
        assert!(rig.run(create()).await.is_ok());
        rig
    }

    fn cut(&self, part: usize, off: bool) {
        self.parts[part].guard.off.store(off, Ordering::SeqCst);
    }

    async fn run(&self, operation: Operation) -> Answered {
        self.shards.update(vec![operation]).await.unwrap().remove(0)
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
async fn the_others_go_on() {
    let mut rig = Rig::start(3).await;
    let mut ids = BTreeSet::new();
    for _ in 0..9 {
        ids.insert(rig.submit(Submission::default()).await);
    }
    let held = rig.receive(9).await.items;
    assert_eq!(
        held.iter().map(|item| item.head.id).collect::<BTreeSet<_>>(),
        ids,
        "one call empties all shards"
    );
    rig.cut(1, true);
    let settle = |item: &towline_domain::Item| {
        let call = LeaseCall {
            token: item.head.lease().unwrap().token,
            verb: Verb::Commit(Outcome::default()),
            adjust: Adjust::default(),
        };
        Operation::Lease { id: item.head.id, call: Box::new(call) }
    };
    // Each by itself: only what is in the shard that is gone is refused.
    let answers = rig.shards.update(held.iter().map(settle).collect()).await.unwrap();
    for (item, answer) in held.iter().zip(&answers) {
        let expected = if rig.home(item.head.id) == 1 { "unavailable" } else { "ok" };
        assert_eq!(code(answer), expected);
    }
    assert_eq!(rig.shards.health()[1].gone.as_deref(), Some("the store cannot be reached: cut off"));
    // New ones go elsewhere, and come from there.
    for _ in 0..6 {
        let id = rig.submit(Submission::default()).await;
        assert_ne!(rig.home(id), 1);
    }
    assert_eq!(rig.receive(10).await.items.len(), 6);
    let view = rig.shards.queue(jobs()).await.unwrap().unwrap();
    assert_eq!((view.counts.completed, view.counts.processing), (6, 6));
    // What needs all of them says who is missing.
    match rig.run(Operation::PauseQueue { queue: jobs() }).await {
        Err(Refusal::StoreUnavailable { detail }) => assert!(detail.contains("shard 1"), "{detail}"),
        other => panic!("{other:?}"),
    }
    let lost = held.iter().find(|item| rig.home(item.head.id) == 1).unwrap();
    assert!(rig.shards.get(vec![lost.head.id], FieldSet::NONE).await.is_err(), "nobody knows");

    rig.cut(1, false);
    rig.shards.probe().await;
    assert!(rig.shards.health().iter().all(|shard| shard.gone.is_none()));
    assert_eq!(code(&rig.run(settle(lost)).await), "ok");
    assert_eq!(rig.shards.queue(jobs()).await.unwrap().unwrap().counts.total(), 15);
}

#[tokio::test]
async fn a_key_waits_for_its_shard() {
    let rig = Rig::start(3).await;
    let mut homes = BTreeSet::new();
    for n in 0..30 {
        let key = format!("k{n}");
        let id = rig.submit(keyed(&key)).await;
        assert_eq!(rig.submit(keyed(&key)).await, id, "one key, one item");
        homes.insert(rig.home(id));
        rig.cut(rig.home(id), true);
        // Anywhere else it could be taken a second time.
        assert_eq!(code(&rig.run(submit(keyed(&key))).await), "unavailable");
        rig.cut(rig.home(id), false);
        rig.shards.probe().await;
    }
    assert_eq!(homes.len(), 3, "keys are spread");
}

#[tokio::test]
async fn with_all_gone_everything_is_refused_and_nothing_hangs() {
    let rig = Rig::start(2).await;
    (0..2).for_each(|part| rig.cut(part, true));
    for _ in 0..3 {
        assert_eq!(code(&rig.run(submit(Submission::default())).await), "unavailable");
    }
    assert!(rig.shards.queue(jobs()).await.is_err());
    assert!(rig.shards.queues(None, 10).await.is_err());
    assert!(rig.shards.next_wake().await.is_err());
    (0..2).for_each(|part| rig.cut(part, false));
    rig.shards.probe().await;
    rig.submit(Submission::default()).await;
}

#[tokio::test]
async fn a_new_shard_gets_the_queues_and_takes_its_share() {
    let mut rig = Rig::start(2).await;
    for n in 0..100 {
        rig.submit(keyed(&format!("k{n}"))).await;
    }
    assert!(rig.run(Operation::PauseQueue { queue: jobs() }).await.is_ok());
    rig.parts.extend(parts(3).split_off(2));
    rig.shards = shards(&rig.parts);
    rig.shards.agree().await.unwrap();
    let there = rig.parts[2].queue(jobs()).await.unwrap().unwrap();
    assert!(there.queue.paused);
    assert!(rig.run(Operation::ResumeQueue { queue: jobs() }).await.is_ok());
    let mut moved = 0;
    for n in 0..100 {
        let id = rig.submit(keyed(&format!("k{n}"))).await;
        moved += usize::from(rig.home(id) == 2);
    }
    // A third of the keys belongs to the new shard, and only these go there.
    assert!((15..55).contains(&moved), "{moved}");
    assert_eq!(rig.shards.queue(jobs()).await.unwrap().unwrap().counts.pending, 100 + moved as u64);
    assert_eq!(rig.receive(1000).await.items.len(), 100 + moved);
}

fn kv(key: String, command: KvCommand) -> Operation {
    Operation::Kv { key, command }
}

#[tokio::test]
async fn records_follow_their_home_when_a_shard_is_added() {
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
    three.agree().await.unwrap();
    assert_eq!(three.kv_get(keys.clone()).await.unwrap(), before, "values and ends");
    let page = KvPage { prefix: "k".to_owned(), after: None, limit: limits::KV_PAGE_MAX };
    assert_eq!(three.kv_list(page.clone()).await.unwrap().len(), keys.len(), "each once");
    let moved = parts[2].kv_list(page.clone()).await.unwrap().len();
    assert!((8..35).contains(&moved), "{moved}");

    // One that is at home already is the newer one, and a change there is not undone by another start.
    let newer = three.kv_get(keys.clone()).await.unwrap();
    let moved: Vec<String> = parts[2].kv_list(page).await.unwrap().into_iter().map(|(key, _)| key).collect();
    let stale = KvCommand::Set { value: "stale".into(), ttl: None };
    parts[0].update(vec![kv(moved[0].clone(), stale)]).await.unwrap();
    three.tidy().await;
    assert_eq!(three.kv_get(keys).await.unwrap(), newer);
    assert_eq!(parts[0].kv_get(vec![moved[0].clone()]).await.unwrap(), [None]);

    // Who starts with as many as before has nothing to read.
    let reads = || parts.iter().map(|part| part.guard.reads.load(Ordering::SeqCst)).sum::<usize>();
    let before = reads();
    three.agree().await.unwrap();
    assert!(reads() - before < 3 * parts.len(), "queues, and how many shards there were");
}

/// Keys whose home is another part than this.
async fn keys_elsewhere(parts: &[Arc<InterceptedStore<Cut>>], at: usize) -> Vec<String> {
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
async fn a_record_that_was_deleted_meanwhile_does_not_come_back() {
    let parts = parts(2);
    let key = keys_elsewhere(&parts, 0).await.remove(0);
    let set = KvCommand::Set { value: "old".into(), ttl: None };
    parts[0].update(vec![kv(key.clone(), set)]).await.unwrap();
    // Between its listing and its turn another server brings it home, and a caller deletes it there.
    let (part, gone) = (parts[0].clone(), key.clone());
    *parts[0].guard.listed.lock().unwrap() = Some(Box::new(move || {
        futures::executor::block_on(part.store.update(vec![kv(gone, KvCommand::Delete)])).unwrap();
    }));
    let both = shards(&parts);
    both.tidy().await;
    assert!(parts[0].guard.listed.lock().unwrap().is_none(), "it was listed");
    assert_eq!(both.kv_get(vec![key]).await.unwrap(), [None]);
}

#[tokio::test]
async fn a_record_that_is_refused_keeps_nobody_from_starting() {
    let parts = parts(2);
    let mut keys = keys_elsewhere(&parts, 0).await.into_iter();
    let (refused, fine) = (keys.next().unwrap(), keys.next().unwrap());
    for key in [&refused, &fine] {
        let set = KvCommand::Set { value: "old".into(), ttl: None };
        parts[0].update(vec![kv(key.clone(), set)]).await.unwrap();
    }
    *parts[1].guard.refuses.lock().unwrap() = Some(refused.clone());
    let both = shards(&parts);
    both.agree().await.unwrap();
    assert!(both.kv_get(vec![fine]).await.unwrap()[0].is_some(), "the others are brought home");
    // It is tried again.
    *parts[1].guard.refuses.lock().unwrap() = None;
    both.agree().await.unwrap();
    assert!(both.kv_get(vec![refused]).await.unwrap()[0].is_some());
}

#[tokio::test]
async fn one_that_is_gone_at_the_start_joins_later() {
    let parts = parts(2);
    parts[1].guard.off.store(true, Ordering::SeqCst);
    let late = parts[1].clone();
    let open = move || -> BoxFuture<'static, Result<Arc<dyn Store>>> {
        let late = late.clone();
        Box::pin(async move {
            late.queues(None, 1).await?;
            Ok(late as Arc<dyn Store>)
        })
    };
    let first = parts[0].clone() as Arc<dyn Store>;
    let both: Vec<(String, Arc<dyn Store>)> =
        vec![("0".to_owned(), first), ("1".to_owned(), Arc::new(Later::new(open)))];
    let mut rig = Rig { shards: Shards::new(both).unwrap(), parts, seed: 0 };
    // What the other one has was there before.
    rig.parts[0].update(vec![create()]).await.unwrap();
    rig.shards.agree().await.unwrap();
    for _ in 0..4 {
        rig.submit(Submission::default()).await;
    }
    assert_eq!(rig.receive(4).await.items.len(), 4);
    rig.shards.probe().await;
    assert!(rig.shards.health()[1].gone.is_some());

    rig.cut(1, false);
    rig.shards.probe().await;
    assert!(rig.shards.health()[1].gone.is_none());
    let homes: BTreeSet<usize> =
        [rig.submit(Submission::default()).await, rig.submit(Submission::default()).await]
            .map(|id| rig.home(id))
            .into();
    assert_eq!(homes.len(), 2, "it has the queue, and takes its turn");
}
