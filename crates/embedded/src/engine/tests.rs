//! Limits of the engine that no client can reach within a test.

use super::Engine;
use crate::engine::Chore;
use crate::log::disk::RealDisk;
use crate::options::Options;
use crate::outcome::{Found, Outcome, Query};
use std::sync::Arc;
use towline_domain::change::Answer;
use towline_domain::id::SEQUENCE_ACCEPTED_MAX;
use towline_domain::kv::KvCommand;
use towline_domain::{Fields, ItemId, Millis, Policy, Refusal, Schema, Submission, Timestamp};
use towline_store::{KvPage, ManualClock, Operation, Reply, StoreError};

const START: Timestamp = Timestamp(1_700_000_000_000);

fn open(path: &std::path::Path) -> Engine {
    let disk = Arc::new(RealDisk::new(path).unwrap());
    let options = Options { segment_bytes: 64 << 10, salt: 7, ..Options::default() };
    Engine::open(disk, options, &ManualClock::new(START)).unwrap()
}

/// Runs operations as a group, and collects.
fn group(engine: &mut Engine, now: Timestamp, batch: Vec<Operation>) -> Result<Vec<Outcome>, StoreError> {
    engine.begin(now)?;
    let outcomes = batch.into_iter().map(|operation| engine.run(operation)).collect::<Result<_, _>>()?;
    engine.collect(1 << 20)?;
    engine.seal()?;
    engine.sync()?;
    engine.take_chores().into_iter().for_each(drop::<Chore>);
    Ok(outcomes)
}

fn create() -> Operation {
    let queue = "jobs".parse().unwrap();
    Operation::CreateQueue { queue, schema: Box::<Schema>::default(), policy: Box::<Policy>::default() }
}

fn submit(bytes: usize) -> Operation {
    let fields = Fields { blob: Some(vec![7; bytes].into()), ..Fields::default() };
    let submission = Box::new(Submission { fields, ..Submission::default() });
    Operation::Submit { queue: "jobs".parse().unwrap(), submission }
}

#[test]
fn a_store_that_has_used_up_its_numbers_refuses_submits_in_words_and_does_all_else() {
    let directory = tempfile::tempdir().unwrap();
    let mut engine = open(directory.path());
    group(&mut engine, START, vec![create(), submit(1)]).unwrap();
    engine.next_item = SEQUENCE_ACCEPTED_MAX;
    let outcomes = group(&mut engine, START, vec![submit(1), submit(1), create()]).unwrap();
    assert!(matches!(outcomes[0], Outcome::Decided(Ok(_))), "{outcomes:?}");
    let Outcome::Decided(Err(refusal)) = &outcomes[1] else { panic!("{outcomes:?}") };
    assert_eq!(*refusal, Refusal::NumbersUsedUp { used: SEQUENCE_ACCEPTED_MAX });
    assert_eq!(refusal.code(), "store_full");
    let words = refusal.to_string();
    assert!(words.contains("towline export") && words.contains("towline import"), "{words}");
    assert!(matches!(outcomes[2], Outcome::Decided(Ok(_))), "{outcomes:?}");
    // The two items are far apart, also after a replay.
    for _ in 0..2 {
        assert_eq!(engine.index.table.len(), 2);
        drop(engine);
        engine = open(directory.path());
    }
}

#[test]
fn records_that_expired_during_an_idle_spell_are_dropped_in_parts() {
    const COUNT: usize = 30_000;
    let directory = tempfile::tempdir().unwrap();
    let mut engine = open(directory.path());
    for part in (0..COUNT).collect::<Vec<_>>().chunks(5000) {
        let set = |n: &usize| {
            let command = KvCommand::Set { value: vec![1].into(), ttl: Some(Millis(1000)) };
            Operation::Kv { key: format!("key {n}"), command }
        };
        group(&mut engine, START, part.iter().map(set).collect()).unwrap();
    }
    assert_eq!(engine.index.kv.len(), COUNT);
    let later = Timestamp(START.0 + 3_600_000);
    let mut groups = 0;
    while !engine.index.kv.is_empty() {
        let before = engine.index.kv.len();
        engine.begin(later).unwrap();
        assert!(before - engine.index.kv.len() <= 10_000, "{before} before, {} now", engine.index.kv.len());
        // No client sees a record that is still to be dropped.
        let page = KvPage { prefix: String::new(), after: None, limit: 10 };
        let Found::KvPage(records) = engine.query(Query::KvList(page)) else { panic!() };
        let Found::Kv(got) = engine.query(Query::KvGet(vec![format!("key {}", COUNT - 1)])) else { panic!() };
        assert!(records.is_empty() && got == [None]);
        engine.seal().unwrap();
        groups += 1;
        assert!(groups < 100, "{before} records are left");
    }
    assert_eq!(engine.index.kv_bytes, 0);
}

#[test]
fn wrong_live_bytes_stop_the_store_and_no_record_is_lost() {
    for wrong in [1, -1] {
        let directory = tempfile::tempdir().unwrap();
        let mut engine = open(directory.path());
        group(&mut engine, START, vec![create()]).unwrap();
        group(&mut engine, START, (0..100).map(|_| submit(1000)).collect()).unwrap();
        let mut ids: Vec<ItemId> = Vec::new();
        engine.index.table.scan(0, usize::MAX, |sequence, _| {
            ids.extend(engine.index.head(sequence).map(|head| head.id));
            true
        });
        engine.index.miscount(engine.log[0], wrong);
        // Half of the items die, so that collection empties the oldest segments.
        let deletes = ids.iter().skip(1).step_by(2).map(|&id| Operation::Delete { id, force: false });
        let mut result = group(&mut engine, START, deletes.collect());
        for _ in 0..400 {
            let submitted = result.and_then(|_| group(&mut engine, START, vec![submit(1000)]));
            result = submitted.and_then(|outcomes| {
                let Outcome::Decided(Ok(Reply::Answer(Answer::Submitted { id, .. }))) = outcomes[0] else {
                    panic!()
                };
                group(&mut engine, START, vec![Operation::Delete { id, force: false }])
            });
        }
        let fault = result.expect_err("the store stops");
        assert!(matches!(&fault, StoreError::Poisoned { cause } if cause.contains("live")), "{fault:?}");
        drop(engine);
        let engine = open(directory.path());
        for id in ids.iter().step_by(2) {
            assert!(engine.index.find(*id).is_some(), "{wrong}: item {id} is lost");
        }
    }
}

#[test]
fn a_segment_that_counts_as_dead_and_is_not_stops_the_store() {
    let directory = tempfile::tempdir().unwrap();
    let mut engine = open(directory.path());
    group(&mut engine, START, vec![create()]).unwrap();
    group(&mut engine, START, (0..200).map(|_| submit(1000)).collect()).unwrap();
    let items = engine.index.table.len();
    for number in [engine.log[0], engine.log[1]] {
        let live = i64::try_from(engine.index.live_bytes_of(number)).unwrap();
        engine.index.miscount(number, -live);
    }
    let fault = group(&mut engine, START, vec![submit(1)]).expect_err("the store stops");
    assert!(matches!(&fault, StoreError::Poisoned { cause } if cause.contains("count as live")), "{fault:?}");
    drop(engine);
    assert_eq!(open(directory.path()).index.table.len(), items);
}
