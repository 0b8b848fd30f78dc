//! Random histories on a disk that becomes full at any moment: operations are refused, and nothing poisons the store.
#![allow(clippy::unwrap_used, clippy::expect_used, reason = "tests")]

mod rig;

use bytes::Bytes;
use futures::executor::block_on;
use proptest::prelude::*;
use rig::faulty::{Faults, open_faulty_at};
use rig::*;
use std::sync::Arc;
use towline_domain::command::{Verb, When};
use towline_domain::kv::KvCommand;
use towline_domain::{
    Adjust, Backoff, Body, Condition, Dependency, DependsOn, Field, FieldEdits, Item, ItemId, Json, Millis,
    Outcome, Policy, Submission,
};
use towline_embedded::Embedded;
use towline_store::{ManualClock, Operation, Reply, Store, StoreError};

#[derive(Debug, Clone)]
enum Step {
    Full(bool),
    Submit { bytes: usize, count: usize, labelled: bool },
    Wait,
    Receive(u32),
    Commit { bytes: usize, count: usize },
    Fail { bytes: usize, count: usize },
    Release(usize),
    Edit(usize),
    Heartbeat,
    Cancel(usize),
    Move(usize),
    Delete(usize),
    Record(usize),
    DeleteRecord,
    DeleteQueue,
    Advance(u64),
    Reopen,
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let bytes = || prop_oneof![4 => 0..300_usize, 2 => 300..5000_usize, 1 => 5000..50_000_usize];
    let step = prop_oneof![
        3 => prop::bool::weighted(0.8).prop_map(Step::Full),
        8 => (bytes(), 1..40_usize, any::<bool>())
            .prop_map(|(bytes, count, labelled)| Step::Submit { bytes, count, labelled }),
        1 => Just(Step::Wait),
        6 => (1..60_u32).prop_map(Step::Receive),
        4 => (bytes(), 1..30_usize).prop_map(|(bytes, count)| Step::Commit { bytes, count }),
        2 => (bytes(), 1..30_usize).prop_map(|(bytes, count)| Step::Fail { bytes, count }),
        2 => (1..30_usize).prop_map(Step::Release),
        2 => bytes().prop_map(Step::Edit),
        1 => Just(Step::Heartbeat),
        2 => (1..30_usize).prop_map(Step::Cancel),
        1 => (1..30_usize).prop_map(Step::Move),
        2 => (1..60_usize).prop_map(Step::Delete),
        2 => bytes().prop_map(Step::Record),
        1 => Just(Step::DeleteRecord),
        1 => Just(Step::DeleteQueue),
        3 => prop_oneof![Just(1000), Just(400_000), Just(700_000_000)].prop_map(Step::Advance),
        1 => Just(Step::Reopen),
    ];
    prop::collection::vec(step, 20..120)
}

struct History {
    store: Option<Embedded>,
    clock: Arc<ManualClock>,
    path: std::path::PathBuf,
    faults: Arc<Faults>,
    ids: Vec<ItemId>,
    held: Vec<Item>,
    seed: u8,
}

impl History {
    fn open(&mut self) {
        self.store = None;
        self.store = Some(open_faulty_at(&self.path, 64 << 10, &self.faults, self.clock.clone()).unwrap());
    }

    /// Carries out a batch. Refusals and requests that are too large are fine; a poisoned store is not.
    fn update(&mut self, batch: Vec<Operation>) {
        let store = self.store.as_ref().unwrap();
        let answers = match block_on(store.update(batch)) {
            Ok(updated) => updated.answers,
            Err(StoreError::BatchTooLarge { .. } | StoreError::Busy { .. }) => return,
            Err(fault) => panic!("{fault}"),
        };
        for answer in answers {
            match answer {
                Ok(Reply::Received(received)) => self.held.extend(received.items),
                Ok(Reply::Answer(towline_domain::change::Answer::Submitted { id, .. })) => self.ids.push(id),
                Ok(_) | Err(towline_store::OperationError::Refused(_)) => {}
                Err(error) => panic!("{error}"),
            }
        }
    }

    fn settle(&mut self, count: usize, verb: impl Fn() -> Verb) {
        let count = count.min(self.held.len());
        let batch = self.held.drain(..count).map(|item| lease(&item, verb())).collect();
        self.update(batch);
    }

    fn on_items(&mut self, count: usize, operation: impl Fn(ItemId) -> Operation) {
        let batch = self.ids.iter().take(count).map(|id| operation(*id)).collect();
        self.update(batch);
    }

    fn create_queues(&mut self) {
        let policy = Policy {
            tally_tags: ["team".to_owned()].into(),
            completed_ttl: Some(Millis(500_000)),
            expire_after: Some(Millis::days(8)),
            backoff: Backoff::NONE,
            ..Policy::default()
        };
        self.update(vec![create_with("jobs", policy), create("other")]);
    }

    fn step(&mut self, step: Step) {
        let text = |bytes: usize| "x".repeat(bytes);
        match step {
            Step::Full(full) => self.faults.set_full(full),
            Step::Submit { bytes, count, labelled } => {
                let submission = || {
                    let mut submission = payload(Bytes::from(vec![7; bytes]));
                    if labelled {
                        submission.body.tags = [("team".to_owned(), text(bytes % 500))].into();
                        submission.body.group = Some("g".to_owned());
                    }
                    submission
                };
                self.update((0..count).map(|_| submit_to("jobs", submission())).collect());
            }
            Step::Wait => {
                let on = DependsOn::Group { name: "g".to_owned(), expect: 0 };
                let after = Some(Box::new(Dependency { on, when: Condition::AllDone }));
                let body = Body { idempotency_key: Some("waits".to_owned()), ..Body::default() };
                self.update(vec![submit_to("jobs", Submission { after, body, ..Submission::default() })]);
            }
            Step::Receive(max) => {
                self.seed = self.seed.wrapping_add(1);
                self.update(vec![receive_from("jobs", max, self.seed)]);
            }
            Step::Commit { bytes, count } => self.settle(count, || {
                let output_params = [("result".to_owned(), Json::string(&text(bytes)))].into();
                Verb::Commit(Outcome { output_params, ..Outcome::default() })
            }),
            Step::Fail { bytes, count } => self.settle(count, || Verb::Fail { reason: text(bytes) }),
            Step::Release(count) => self.settle(count, || Verb::Release { delay: Millis(10), counted: true }),
            Step::Edit(bytes) => {
                let edits = FieldEdits::default().set(Field::StateBlob, Bytes::from(vec![9; bytes]));
                let adjust = Adjust { edits, ..Adjust::default() };
                let release = Verb::Defer { until: When::NOW };
                let held = std::mem::take(&mut self.held);
                self.update(
                    held.iter().map(|item| lease_with(item, release.clone(), adjust.clone())).collect(),
                );
            }
            Step::Heartbeat => {
                let beat = Verb::Heartbeat { visibility: None };
                self.update(self.held.iter().map(|item| lease(item, beat.clone())).collect());
            }
            Step::Cancel(count) => {
                self.on_items(count, |id| Operation::Cancel { id, reason: "y".repeat(4000) });
            }
            Step::Move(count) => self.on_items(count, |id| Operation::Move { id, to: name("other") }),
            Step::Delete(count) => {
                self.on_items(count, delete);
                self.ids.drain(..count.min(self.ids.len()));
            }
            Step::Record(bytes) => {
                let command = KvCommand::Set { value: vec![1; bytes].into(), ttl: Some(Millis(300_000)) };
                self.update(vec![Operation::Kv { key: format!("k{}", bytes % 7), command }]);
            }
            Step::DeleteRecord => {
                self.update(vec![Operation::Kv { key: "k1".to_owned(), command: KvCommand::Delete }]);
            }
            Step::DeleteQueue => {
                self.update(vec![delete_queue("jobs")]);
                self.create_queues();
            }
            Step::Advance(millis) => {
                self.clock.advance(millis);
                self.update(vec![Operation::Sweep]);
            }
            Step::Reopen => self.open(),
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig {
        cases: if std::env::var_os("TOWLINE_SOAK").is_some() { 2000 } else { 60 },
        failure_persistence: None,
        ..ProptestConfig::default()
    })]

    #[test]
    fn a_full_disk_refuses_and_never_poisons(steps in steps()) {
        let directory = tempfile::tempdir().unwrap();
        let mut history = History {
            store: None,
            clock: clock(),
            path: directory.path().to_owned(),
            faults: Arc::default(),
            ids: Vec::new(),
            held: Vec::new(),
            seed: 0,
        };
        history.open();
        history.create_queues();
        for step in steps {
            history.step(step);
        }
        history.open();
        history.faults.set_full(false);
        // With space, everything works again.
        let submit = || submit_to("other", payload("new"));
        wait_until("a submit is accepted", || run(history.store.as_ref().unwrap(), submit()).is_ok());
    }
}
