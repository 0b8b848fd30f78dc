//! Without space for another segment, the store refuses each operation that needs space, and runs operations that free space.
#![allow(clippy::unwrap_used, clippy::expect_used, reason = "tests")]

mod rig;

use futures::executor::block_on;
use rig::faulty::{Faults, new_faulty_store, open_faulty};
use rig::*;
use std::path::Path;
use std::sync::Arc;
use towline_domain::command::Verb;
use towline_domain::{Item, ItemId, Json, Outcome};
use towline_embedded::Embedded;
use towline_store::Store;

/// Submits items until the store refuses one.
#[track_caller]
fn fill(store: &Embedded, ids: &mut Vec<ItemId>, blob_bytes: usize) {
    let refused = (0..5000).find_map(|_| {
        let answered = run(store, submit_to("jobs", payload(vec![7; blob_bytes])));
        if answered.is_ok() {
            ids.push(submitted(answered));
            return None;
        }
        Some(answered)
    });
    let refused = refused.expect("the disk becomes full");
    assert!(is_disk_full(&refused), "{refused:?}");
}

/// Receives items until the store refuses a receive.
#[track_caller]
fn receive_until_refused(store: &Embedded) -> Vec<Item> {
    let mut held = Vec::new();
    for seed in 0..=255 {
        let answered = run(store, receive_from("jobs", 10, seed));
        if is_disk_full(&answered) {
            return held;
        }
        let delivered = received(answered);
        assert!(!delivered.is_empty(), "a receive got nothing although items are pending");
        held.extend(delivered);
    }
    panic!("{} items were received, and the disk is full", held.len());
}

/// A store of small items on a full disk.
fn filled(path: &Path) -> (Arc<Embedded>, Arc<Faults>, Vec<ItemId>) {
    let (store, faults) = new_faulty_store(path);
    let batch = (0..1000).map(|_| submit_to("jobs", payload(vec![7; 100]))).collect();
    let mut ids: Vec<ItemId> =
        block_on(store.update(batch)).unwrap().answers.into_iter().map(submitted).collect();
    faults.set_full(true);
    fill(&store, &mut ids, 100);
    (store, faults, ids)
}

#[test]
fn a_full_disk_refuses_one_operation_of_a_batch_and_runs_the_rest() {
    let directory = tempfile::tempdir().unwrap();
    let (store, faults) = new_faulty_store(directory.path());
    let mut ids: Vec<ItemId> = (0..4).map(|_| submit(&*store, "held")).collect();
    let held = received(run(&*store, receive_from("jobs", 4, 1)));
    faults.set_full(true);
    fill(&store, &mut ids, 1000);
    let large = || submit_to("jobs", payload(vec![7; 1000]));
    let answers =
        block_on(store.update(vec![commit(&held[0]), large(), commit(&held[1]), large()])).unwrap().answers;
    assert!(answers[0].is_ok() && answers[2].is_ok(), "{answers:?}");
    assert!(is_disk_full(&answers[1]) && is_disk_full(&answers[3]), "{answers:?}");
    assert_says(&answers[1].as_ref().unwrap_err().to_string(), &["no space left", "free some"]);
    assert_eq!(counts(&*store, "jobs").completed, 2);
    assert!(status(&store).full.is_some());

    faults.set_full(false);
    ids.push(submitted(run(&*store, large())));
    drop(store);
    let shown = contents_of(directory.path());
    assert_eq!(shown.items.iter().map(|stored| stored.item.head.id).collect::<Vec<_>>(), ids);
}

#[test]
fn items_can_be_settled_and_deleted_while_submits_and_receives_are_refused() {
    let directory = tempfile::tempdir().unwrap();
    let (store, _faults, ids) = filled(directory.path());
    let held = receive_until_refused(&store);
    assert!(!held.is_empty());
    for item in held.iter().take(10) {
        run(&*store, commit(item)).unwrap();
    }
    // Deletes the oldest items first, which empties whole segments.
    for id in ids {
        run(&*store, delete(id)).unwrap();
    }
    wait_until("a submit is accepted", || run(&*store, submit_to("jobs", payload("new"))).is_ok());
    assert_eq!(received(run(&*store, receive_from("jobs", 10, 1))).len(), 1);
    drop(store);
    assert_eq!(contents_of(directory.path()).items.len(), 1);
}

#[test]
fn a_queue_can_be_deleted_while_submits_and_receives_are_refused_and_its_space_is_freed() {
    let directory = tempfile::tempdir().unwrap();
    let (store, _faults, _) = filled(directory.path());
    receive_until_refused(&store);
    run(&*store, delete_queue("jobs")).unwrap();
    wait_until("a queue can be created", || run(&*store, create("jobs")).is_ok());
    wait_until("a submit is accepted", || run(&*store, submit_to("jobs", payload("new"))).is_ok());
    drop(store);
    assert_eq!(contents_of(directory.path()).items.len(), 1);
}

#[test]
fn a_store_on_a_full_disk_can_be_reopened_and_emptied() {
    let directory = tempfile::tempdir().unwrap();
    let (store, faults, ids) = filled(directory.path());
    drop(store);
    let store = open_faulty(directory.path(), 64 << 10, &faults).expect("the store opens on a full disk");
    let shown = contents(&store);
    assert_eq!(shown.items.iter().map(|stored| stored.item.head.id).collect::<Vec<_>>(), ids);
    for id in ids {
        run(&store, delete(id)).unwrap();
    }
    wait_until("a submit is accepted", || run(&store, submit_to("jobs", payload("new"))).is_ok());
    drop(store);
    assert_eq!(contents_of(directory.path()).items.len(), 1);
}

#[test]
fn a_backup_on_a_full_disk_leaves_the_spare_that_opening_needs() {
    let directory = tempfile::tempdir().unwrap();
    let (store, faults, ids) = filled(directory.path());
    let elsewhere = tempfile::tempdir().unwrap();
    // The store may refuse the backup.
    for nth in 0..3 {
        let _ = store.backup(&elsewhere.path().join(nth.to_string()));
    }
    drop(store);
    let store = open_faulty(directory.path(), 64 << 10, &faults).expect("the store opens on a full disk");
    assert_eq!(contents(&store).items.len(), ids.len());
}

/// A commit with a result of this many bytes.
fn commit_result(item: &Item, bytes: usize) -> towline_store::Operation {
    let output_params = [("result".to_owned(), Json::string(&"x".repeat(bytes)))].into();
    lease(item, Verb::Commit(Outcome { output_params, ..Outcome::default() }))
}

#[test]
fn large_results_leave_the_last_spare_to_operations_that_free_space() {
    let directory = tempfile::tempdir().unwrap();
    let (store, faults) = new_faulty_store(directory.path());
    let mut ids: Vec<ItemId> = (0..40).map(|_| submit(&*store, "held")).collect();
    let held = received(run(&*store, receive_from("jobs", 40, 1)));
    assert_eq!(held.len(), 40);
    faults.set_full(true);
    fill(&store, &mut ids, 1000);
    let (large, small) = held.split_at(20);
    let refused = large.iter().filter(|item| is_disk_full(&run(&*store, commit_result(item, 8000)))).count();
    assert!(refused > 10, "{refused}");
    for item in small {
        run(&*store, commit_result(item, 100)).unwrap();
    }
    drop(store);
    // It can be opened any number of times, and has room to free space each time.
    let mut left = ids.len();
    for _ in 0..5 {
        let store = open_faulty(directory.path(), 64 << 10, &faults).expect("the store opens on a full disk");
        assert_eq!(contents(&store).items.len(), left);
        run(&store, delete(ids[ids.len() - left])).unwrap();
        left -= 1;
    }
    let store = open_faulty(directory.path(), 64 << 10, &faults).expect("the store opens on a full disk");
    for id in &ids[ids.len() - left..] {
        run(&store, delete(*id)).unwrap();
    }
    wait_until("a submit is accepted", || run(&store, submit_to("jobs", payload("new"))).is_ok());
    drop(store);
    assert_eq!(contents_of(directory.path()).items.len(), 1);
}
