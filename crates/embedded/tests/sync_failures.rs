//! A sync fails once and the next sync succeeds. The lost operations were never acknowledged.
#![allow(clippy::unwrap_used, clippy::expect_used, reason = "tests")]

mod rig;

use futures::executor::block_on;
use rig::faulty::{Faults, Loss, Sync, new_faulty_store};
use rig::*;
use std::path::Path;
use std::sync::Arc;
use std::thread::JoinHandle;
use towline_domain::ItemId;
use towline_embedded::Embedded;
use towline_store::{Answered, Operation, Store, StoreError};

type Pending = JoinHandle<Result<Vec<Answered>, StoreError>>;

/// Sends a batch from another thread.
fn send(store: &Arc<Embedded>, batch: Vec<Operation>) -> Pending {
    let store = store.clone();
    std::thread::spawn(move || block_on(store.update(batch)).map(|updated| updated.answers))
}

/// Two items that do not fit into one segment.
fn items_for_two_segments() -> Vec<Operation> {
    vec![submit_to("jobs", payload(vec![1; 40_000])), submit_to("jobs", payload(vec![2; 40_000]))]
}

fn newest(path: &Path) -> String {
    file_name(&segments(path).pop().unwrap()).to_owned()
}

/// The submitted items; none if the store was poisoned.
#[track_caller]
fn acknowledged(pending: Pending) -> Vec<ItemId> {
    match pending.join().unwrap() {
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

/// After any loss of unsynced bytes, the store opens and shows all acknowledged items.
#[track_caller]
fn assert_shows(path: &Path, faults: &Faults, acknowledged: &[ItemId]) {
    for loss in [Loss::Nothing, Loss::Failed, Loss::Unsynced] {
        let copy = tempfile::tempdir().unwrap();
        write_files(copy.path(), &files(path));
        faults.lose(copy.path(), loss);
        let store = match try_open(copy.path()) {
            Ok(store) => store,
            Err(error) => panic!("{loss:?}: {error}"),
        };
        let shown = blobs(&contents(&store));
        for id in acknowledged {
            assert!(shown.contains_key(id), "{loss:?}: {id} was acknowledged and is lost");
        }
        submit(&store, "one more");
    }
}

#[test]
fn a_successful_sync_does_not_hide_a_failed_sync_before_rotation() {
    let directory = tempfile::tempdir().unwrap();
    let (store, faults) = new_faulty_store(directory.path());
    let mut kept = vec![submit(&*store, "kept")];
    faults.plan(&newest(directory.path()), &[Sync::Delayed, Sync::Fails]);
    let under_way = send(&store, vec![submit_to("jobs", payload("under way"))]);
    faults.wait_begun(1);
    let written = send(&store, vec![submit_to("jobs", payload("written, not synced"))]);
    faults.wait_written(b"written, not synced");
    let rotating = send(&store, items_for_two_segments());
    faults.let_begin(2);
    faults.release();
    let answers = [under_way, written, rotating].map(acknowledged);
    assert_eq!(answers[2], [], "acknowledged after the sync of its segment failed");
    kept.extend(answers.concat());
    assert_all_is_poisoned(&store);
    drop(store);
    assert_shows(directory.path(), &faults, &kept);
}

#[test]
fn the_log_does_not_rotate_after_a_failed_sync() {
    let directory = tempfile::tempdir().unwrap();
    let (store, faults) = new_faulty_store(directory.path());
    let kept = submit(&*store, "kept");
    let active = newest(directory.path());
    faults.plan(&active, &[Sync::DelayedThenFails, Sync::Delayed]);
    let failing = send(&store, vec![submit_to("jobs", payload("failing"))]);
    faults.wait_begun(1);
    let rotating = send(&store, items_for_two_segments());
    faults.let_begin(2);
    faults.release_first();
    assert_eq!(acknowledged(failing), []);
    faults.release();
    assert_eq!(acknowledged(rotating), []);
    assert_all_is_poisoned(&store);
    drop(store);
    assert_eq!(newest(directory.path()), active);
    assert_shows(directory.path(), &faults, &[kept]);
}

#[test]
fn closing_a_store_after_a_failed_sync_writes_nothing() {
    let directory = tempfile::tempdir().unwrap();
    let (store, faults) = new_faulty_store(directory.path());
    let kept = submit(&*store, "kept");
    faults.plan(&newest(directory.path()), &[Sync::Fails]);
    assert_poisoned(try_run(&*store, submit_to("jobs", payload("lost"))));
    let writes = faults.writes();
    drop(store);
    assert_eq!(faults.writes(), writes, "a mark would call the lost frame durable");
    assert_shows(directory.path(), &faults, &[kept]);
}

#[test]
fn a_segment_is_not_reused_while_the_sync_of_its_carried_records_failed() {
    let directory = tempfile::tempdir().unwrap();
    let (store, faults) = new_faulty_store(directory.path());
    let precious = submit(&*store, "precious");
    let filler: Vec<ItemId> = (0..100).map(|_| submit(&*store, vec![7; 4000])).collect();
    let active = newest(directory.path());
    faults.plan(&active, &[Sync::DelayedThenFails, Sync::Delayed]);
    // Deletes nearly all items, so that collection carries the first item forward.
    let deleting = send(&store, filler.into_iter().map(delete).collect());
    faults.wait_begun(1);
    faults.wait_written(b"precious");
    let rotating = send(&store, items_for_two_segments());
    faults.let_begin(2);
    faults.release_first();
    assert_poisoned(deleting.join().unwrap());
    faults.release();
    assert_eq!(acknowledged(rotating), []);
    assert_all_is_poisoned(&store);
    drop(store);
    assert_shows(directory.path(), &faults, &[precious]);
}
