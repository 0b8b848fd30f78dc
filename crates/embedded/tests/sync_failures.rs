//! A sync fails once, and the next succeeds as if nothing had happened. What it lost was never acknowledged.
#![allow(clippy::unwrap_used, clippy::expect_used, reason = "tests")]

mod rig;

use futures::executor::block_on;
use rig::faulty::{Hand, Loss, Sync, made_faulty};
use rig::*;
use std::path::Path;
use std::sync::Arc;
use std::thread::JoinHandle;
use towline_domain::ItemId;
use towline_embedded::Embedded;
use towline_store::{Answered, Operation, Store, StoreError};

type Asked = JoinHandle<Result<Vec<Answered>, StoreError>>;

fn ask(store: &Arc<Embedded>, batch: Vec<Operation>) -> Asked {
    let store = store.clone();
    std::thread::spawn(move || block_on(store.update(batch)).map(|updated| updated.answers))
}

/// Two items that do not fit into one segment.
fn into_the_next_segment() -> Vec<Operation> {
    vec![submit_to("jobs", payload(vec![1; 40_000])), submit_to("jobs", payload(vec![2; 40_000]))]
}

fn newest(path: &Path) -> String {
    segments(path).pop().unwrap().file_name().unwrap().to_str().unwrap().to_owned()
}

/// What was submitted, or nothing if the store was poisoned.
#[track_caller]
fn acknowledged(asked: Asked) -> Vec<ItemId> {
    match asked.join().unwrap() {
        Ok(answers) => answers.into_iter().map(submitted).collect(),
        Err(StoreError::Poisoned { .. }) => Vec::new(),
        Err(other) => panic!("neither acknowledged nor poisoned: {other:?}"),
    }
}

#[track_caller]
fn assert_poisoned<T: std::fmt::Debug>(answer: Result<T, StoreError>) {
    assert!(matches!(answer, Err(StoreError::Poisoned { .. })), "{answer:?}");
}

#[track_caller]
fn assert_all_is_poisoned(store: &Embedded) {
    assert_poisoned(try_run(store, submit_to("jobs", payload("late"))));
    assert_poisoned(try_run(store, receive_from("jobs", 1, 1)));
    assert_poisoned(block_on(store.queue(name("jobs"))));
    assert_poisoned(block_on(store.get(vec![], towline_domain::FieldSet::ALL)));
    assert_poisoned(block_on(store.status()));
    assert_poisoned(try_run(store, submit_to("jobs", payload("later"))));
}

/// Whatever a power cut takes of what was not synced, the store opens and shows what was acknowledged.
#[track_caller]
fn assert_shows(path: &Path, hand: &Hand, acknowledged: &[ItemId]) {
    for loss in [Loss::Nothing, Loss::WhatFailed, Loss::AllUnsynced] {
        let copy = tempfile::tempdir().unwrap();
        write_files(copy.path(), &files(path));
        hand.lose(copy.path(), loss);
        let store = match try_open(copy.path()) {
            Ok(store) => store,
            Err(error) => panic!("{loss:?}: {error}"),
        };
        let shown = blobs(&all(&store));
        for id in acknowledged {
            assert!(shown.contains_key(id), "{loss:?}: {id} was acknowledged and is lost");
        }
        submit(&store, "on it goes");
    }
}

#[test]
fn a_sync_that_fails_before_the_log_goes_on_is_not_made_good_by_the_next() {
    let directory = tempfile::tempdir().unwrap();
    let (store, hand) = made_faulty(directory.path());
    let mut kept = vec![submit(&*store, "kept")];
    hand.plan(&newest(directory.path()), &[Sync::HeldBack, Sync::Fails]);
    let under_way = ask(&store, vec![submit_to("jobs", payload("under way"))]);
    hand.wait_begun(1);
    let written = ask(&store, vec![submit_to("jobs", payload("written, not synced"))]);
    hand.wait_written(b"written, not synced");
    let rotating = ask(&store, into_the_next_segment());
    hand.let_begin(2);
    hand.release();
    let answers = [under_way, written, rotating].map(acknowledged);
    assert_eq!(answers[2], [], "acknowledged after the sync of its segment failed");
    kept.extend(answers.concat());
    assert_all_is_poisoned(&store);
    drop(store);
    assert_shows(directory.path(), &hand, &kept);
}

#[test]
fn a_log_does_not_go_on_in_another_segment_after_a_failed_sync() {
    let directory = tempfile::tempdir().unwrap();
    let (store, hand) = made_faulty(directory.path());
    let kept = submit(&*store, "kept");
    let active = newest(directory.path());
    hand.plan(&active, &[Sync::HeldBackThenFails, Sync::HeldBack]);
    let failing = ask(&store, vec![submit_to("jobs", payload("failing"))]);
    hand.wait_begun(1);
    let rotating = ask(&store, into_the_next_segment());
    hand.let_begin(2);
    hand.release_first();
    assert_eq!(acknowledged(failing), []);
    hand.release();
    assert_eq!(acknowledged(rotating), []);
    assert_all_is_poisoned(&store);
    drop(store);
    assert_eq!(newest(directory.path()), active);
    assert_shows(directory.path(), &hand, &[kept]);
}

#[test]
fn a_stop_after_a_failed_sync_writes_nothing_more() {
    let directory = tempfile::tempdir().unwrap();
    let (store, hand) = made_faulty(directory.path());
    let kept = submit(&*store, "kept");
    hand.plan(&newest(directory.path()), &[Sync::Fails]);
    assert_poisoned(try_run(&*store, submit_to("jobs", payload("lost"))));
    let writes = hand.writes();
    drop(store);
    assert_eq!(hand.writes(), writes, "a mark says that what failed was synced");
    assert_shows(directory.path(), &hand, &[kept]);
}

#[test]
fn what_collection_carried_is_not_given_up_for_a_copy_that_a_failed_sync_lost() {
    let directory = tempfile::tempdir().unwrap();
    let (store, hand) = made_faulty(directory.path());
    let precious = submit(&*store, "precious");
    let filler: Vec<ItemId> = (0..100).map(|_| submit(&*store, vec![7; 4000])).collect();
    let active = newest(directory.path());
    hand.plan(&active, &[Sync::HeldBackThenFails, Sync::HeldBack]);
    // Leaves little but the first item alive, in a log far too long for it.
    let deleting = ask(&store, filler.into_iter().map(delete).collect());
    hand.wait_begun(1);
    hand.wait_written(b"precious");
    let rotating = ask(&store, into_the_next_segment());
    hand.let_begin(2);
    hand.release_first();
    assert_poisoned(deleting.join().unwrap());
    hand.release();
    assert_eq!(acknowledged(rotating), []);
    assert_all_is_poisoned(&store);
    drop(store);
    assert_shows(directory.path(), &hand, &[precious]);
}
