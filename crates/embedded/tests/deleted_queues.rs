//! A deleted queue is gone at once, with its items, their keys, ids and timers, though the index reaps them later.
#![allow(clippy::unwrap_used, clippy::expect_used, reason = "tests")]

mod rig;

use futures::executor::block_on;
use rig::*;
use std::path::Path;
use std::sync::Arc;
use towline_conformance::ReferenceStore;
use towline_domain::change::Answer;
use towline_domain::command::Verb;
use towline_domain::{Body, FieldSet, HeadFilter, ItemId, Policy, Refusal, StateName, Submission, Timestamp};
use towline_embedded::Engine;
use towline_embedded::disk::RealDisk;
use towline_embedded::outcome::{Found, Outcome, Query};
use towline_store::{Answered, Filter, Operation, Reply, Store};

/// An engine without threads, so that nothing happens between two groups.
struct Steps(Engine);

impl Steps {
    fn open(path: &Path) -> Steps {
        let disk = Arc::new(RealDisk::new(path).unwrap());
        Steps(Engine::open(disk, options(8 << 20), &*clock()).unwrap())
    }

    fn group(&mut self, after_ms: u64, batch: Vec<Operation>) -> Vec<Outcome> {
        let Steps(engine) = self;
        engine.begin(Timestamp(START.0 + after_ms)).unwrap();
        let outcomes = batch.into_iter().map(|operation| engine.run(operation).unwrap()).collect();
        engine.collect(64 << 10).unwrap();
        engine.seal().unwrap();
        engine.sync().unwrap();
        outcomes
    }

    #[track_caller]
    fn run(&mut self, after_ms: u64, operation: Operation) -> Answered {
        match self.group(after_ms, vec![operation]).remove(0) {
            Outcome::Decided(decided) => decided.map_err(Into::into),
            other => panic!("unexpected answer: {other:?}"),
        }
    }

    #[track_caller]
    fn receive(&mut self, after_ms: u64, queue: &str, max: u32, seed: u8) -> Vec<towline_domain::Head> {
        match self.group(after_ms, vec![receive_from(queue, max, seed)]).remove(0) {
            Outcome::Received { items, .. } => items.items.into_iter().map(|unread| unread.head).collect(),
            other => panic!("unexpected answer to a receive: {other:?}"),
        }
    }

    /// Submits so many items that reaping takes several groups.
    fn fill(&mut self, count: usize) {
        self.run(0, create("filler")).unwrap();
        self.group(0, (0..count).map(|_| submit_to("filler", Submission::default())).collect());
    }

    /// The number of items in the index, including items of deleted queues.
    fn indexed(&mut self) -> u64 {
        match self.0.query(Query::Status) {
            Found::Status(status) => status.items,
            other => panic!("{other:?}"),
        }
    }
}

fn keyed() -> Operation {
    let body = Body { idempotency_key: Some("key".into()), ..Body::default() };
    submit_to("jobs", Submission { body, ..payload("keyed") })
}

#[track_caller]
fn created(answered: Answered) -> (ItemId, bool) {
    match answered {
        Ok(Reply::Answer(Answer::Submitted { id, created })) => (id, created),
        other => panic!("unexpected answer to a submit: {other:?}"),
    }
}

fn with_dead_letters() -> [Operation; 2] {
    let policy = Policy { dead_letter_queue: Some(name("dead")), ..Policy::default() };
    [create("dead"), create_with("jobs", policy)]
}

/// Moves an item with an idempotency key from `jobs` to `dead`.
fn dead_letter(store: &dyn Store) -> ItemId {
    for operation in with_dead_letters() {
        run(store, operation).unwrap();
    }
    let (id, _) = created(run(store, keyed()));
    let item = received(run(store, receive_from("jobs", 1, 1))).remove(0);
    run(store, lease(&item, Verb::Fail { reason: "no".into() })).unwrap();
    id
}

#[track_caller]
fn assert_exists(store: &dyn Store, id: ItemId) {
    assert!(
        block_on(store.get(vec![id], FieldSet::ALL)).unwrap()[0].is_some(),
        "an acknowledged item is missing"
    );
    let delivered = received(run(store, receive_from("jobs", 10, 2)));
    assert_eq!(delivered.iter().map(|item| item.head.id).collect::<Vec<_>>(), [id]);
}

#[test]
fn deleting_the_queue_of_a_dead_letter_frees_its_key_in_the_same_batch() {
    let directory = tempfile::tempdir().unwrap();
    let embedded = open(directory.path());
    let memory = ReferenceStore::new(clock(), SALT);
    for store in [&memory as &dyn Store, &embedded] {
        let first = dead_letter(store);
        assert_eq!(created(run(store, keyed())), (first, false), "a dead letter keeps its key");
        let answers = block_on(store.update(vec![delete_queue("dead"), keyed()])).unwrap().answers;
        let (second, is_new) = created(answers[1].clone());
        assert!(is_new && second != first, "{answers:?}");
        assert_eq!(created(run(store, keyed())), (second, false));
        assert_exists(store, second);
    }
}

#[test]
fn a_key_stays_free_after_its_queue_was_deleted_and_the_store_reopened() {
    let directory = tempfile::tempdir().unwrap();
    let store = open(directory.path());
    dead_letter(&store);
    run(&store, delete_queue("dead")).unwrap();
    drop(store);
    let store = open(directory.path());
    let (second, is_new) = created(run(&store, keyed()));
    assert!(is_new);
    drop(store);
    let store = open(directory.path());
    assert_eq!(created(run(&store, keyed())), (second, false));
    assert_exists(&store, second);
}

#[test]
fn a_key_is_free_before_its_item_is_reaped_and_reaping_does_not_free_the_new_claim() {
    let directory = tempfile::tempdir().unwrap();
    let mut steps = Steps::open(directory.path());
    steps.fill(40_000);
    for operation in with_dead_letters() {
        steps.run(0, operation).unwrap();
    }
    created(steps.run(0, keyed()));
    let head = steps.receive(0, "jobs", 1, 1).remove(0);
    let call = towline_domain::LeaseCall {
        token: head.lease().unwrap().token,
        verb: Verb::Fail { reason: "no".into() },
        adjust: towline_domain::Adjust::default(),
    };
    steps.run(0, Operation::Lease { id: head.id, call: Box::new(call) }).unwrap();
    steps.run(0, delete_queue("dead")).unwrap();
    let before = steps.indexed();
    let (second, is_new) = created(steps.run(0, keyed()));
    assert!(is_new);
    assert_eq!(steps.indexed(), before + 1, "the item was reaped too early for this test");
    for _ in 0..20 {
        steps.group(0, vec![]);
    }
    assert_eq!(steps.indexed(), before, "the item was never reaped");
    assert_eq!(created(steps.run(0, keyed())), (second, false));
    assert_eq!(steps.receive(0, "jobs", 10, 2).len(), 1);
}

#[test]
fn an_id_that_is_chosen_again_belongs_to_the_new_item() {
    let directory = tempfile::tempdir().unwrap();
    let store = open(directory.path());
    run(&store, create("gone")).unwrap();
    run(&store, create("jobs")).unwrap();
    let id: ItemId = "11111111-2222-4333-8444-555555555555".parse().unwrap();
    let chosen = |blob: &'static str| Submission { id: Some(id), ..payload(blob) };
    submitted(run(&store, submit_to("gone", chosen("old"))));
    let filler: Vec<ItemId> = (0..150).map(|_| submit(&store, vec![7; 4000])).collect();
    let before = status(&store).segments;
    let mut batch = vec![delete_queue("gone"), submit_to("jobs", chosen("new"))];
    batch.extend(filler.into_iter().map(delete));
    let answers = block_on(store.update(batch)).unwrap().answers;
    assert!(answers.iter().all(Result::is_ok), "{answers:?}");
    wait_until("collection has finished", || status(&store).segments <= before / 2);

    let shows_new = |store: &dyn Store| {
        let got = block_on(store.get(vec![id], FieldSet::ALL)).unwrap().remove(0).expect("the item exists");
        assert_eq!(got.item.fields.blob.unwrap(), "new");
        let page = block_on(store.list(Filter::default(), None, 100, FieldSet::NONE)).unwrap();
        assert_eq!(page.items.iter().map(|stored| stored.item.head.id).collect::<Vec<_>>(), [id]);
        let taken = run(store, submit_to("jobs", chosen("third")));
        assert_eq!(taken, Err(Refusal::IdTaken { id }.into()));
    };
    shows_new(&store);
    let item = received(run(&store, receive_from("jobs", 1, 1))).remove(0);
    run(&store, commit(&item)).unwrap();
    shows_new(&store);
    drop(store);
    let store = open(directory.path());
    shows_new(&store);
    let head = HeadFilter { state: Some(StateName::Completed), ..HeadFilter::default() };
    let completed = Filter { head, ..Filter::default() };
    assert_eq!(block_on(store.list(completed, None, 10, FieldSet::NONE)).unwrap().items.len(), 1);
}

#[test]
fn items_of_deleted_queues_are_reaped_while_clients_keep_deleting_queues() {
    const ROUNDS: u64 = 100;
    const ITEMS: u64 = 20;
    let directory = tempfile::tempdir().unwrap();
    let mut steps = Steps::open(directory.path());
    steps.fill(50_000);
    let kept = steps.indexed();
    for round in 0..ROUNDS {
        let queue = format!("round-{round}");
        let mut batch = vec![create(&queue)];
        batch.extend((0..ITEMS).map(|_| submit_to(&queue, Submission::default())));
        batch.push(delete_queue(&queue));
        steps.group(0, batch);
    }
    let reaped = ROUNDS * ITEMS - (steps.indexed() - kept);
    assert!(reaped > ROUNDS * ITEMS / 2, "{reaped} of {} are reaped", ROUNDS * ITEMS);
}

#[test]
fn leases_lapse_although_items_of_a_deleted_queue_were_due_earlier() {
    let directory = tempfile::tempdir().unwrap();
    let mut steps = Steps::open(directory.path());
    steps.fill(100_000);
    for queue in ["gone", "kept"] {
        steps.run(0, create(queue)).unwrap();
        steps.group(0, (0..100).map(|_| submit_to(queue, Submission::default())).collect());
    }
    assert_eq!(steps.receive(0, "gone", 100, 1).len(), 100);
    assert_eq!(steps.receive(10, "kept", 100, 2).len(), 100);
    steps.run(20, delete_queue("gone")).unwrap();
    steps.group(600_000, vec![Operation::Sweep]);
    // Each item is ready again after its retry delay.
    assert_eq!(steps.receive(100_000_000, "kept", 100, 3).len(), 100);
}
