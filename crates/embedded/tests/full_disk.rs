//! No room for another segment: what would fill the disk further is refused, each by itself, and what frees it works.
#![allow(clippy::unwrap_used, clippy::expect_used, reason = "tests")]

mod rig;

use futures::executor::block_on;
use rig::faulty::{Hand, made_faulty, open_faulty};
use rig::*;
use std::path::Path;
use std::sync::Arc;
use towline_domain::{Item, ItemId};
use towline_embedded::Embedded;
use towline_store::Store;

/// Submits until that is refused.
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
    let refused = refused.expect("the disk is full at some point");
    assert!(is_disk_full(&refused), "{refused:?}");
}

/// Receives until that is refused, too.
#[track_caller]
fn receive_all_that_goes(store: &Embedded) -> Vec<Item> {
    let mut held = Vec::new();
    for seed in 0..=255 {
        let answered = run(store, receive_from("jobs", 10, seed));
        if is_disk_full(&answered) {
            return held;
        }
        let given = received(answered);
        assert!(!given.is_empty(), "items are pending: to say there are none is wrong");
        held.extend(given);
    }
    panic!("{} items were received, and the disk is full", held.len());
}

/// A store full of small items, with a disk that has no room for more.
fn filled(path: &Path) -> (Arc<Embedded>, Arc<Hand>, Vec<ItemId>) {
    let (store, hand) = made_faulty(path);
    let batch = (0..1000).map(|_| submit_to("jobs", payload(vec![7; 100]))).collect();
    let mut ids: Vec<ItemId> =
        block_on(store.update(batch)).unwrap().answers.into_iter().map(submitted).collect();
    hand.set_full(true);
    fill(&store, &mut ids, 100);
    (store, hand, ids)
}

#[test]
fn out_of_space_is_an_answer_to_one_and_its_neighbours_are_carried_out() {
    let directory = tempfile::tempdir().unwrap();
    let (store, hand) = made_faulty(directory.path());
    let mut ids: Vec<ItemId> = (0..4).map(|_| submit(&*store, "held")).collect();
    let held = received(run(&*store, receive_from("jobs", 4, 1)));
    hand.set_full(true);
    fill(&store, &mut ids, 1000);
    let large = || submit_to("jobs", payload(vec![7; 1000]));
    let answers =
        block_on(store.update(vec![commit(&held[0]), large(), commit(&held[1]), large()])).unwrap().answers;
    assert!(answers[0].is_ok() && answers[2].is_ok(), "{answers:?}");
    assert!(is_disk_full(&answers[1]) && is_disk_full(&answers[3]), "{answers:?}");
    assert_says(&answers[1].as_ref().unwrap_err().to_string(), &["no space left", "free some"]);
    assert_eq!(counts(&*store, "jobs").completed, 2);
    assert!(status(&store).full.is_some());

    hand.set_full(false);
    ids.push(submitted(run(&*store, large())));
    drop(store);
    let shown = all_in(directory.path());
    assert_eq!(shown.items.iter().map(|stored| stored.item.head.id).collect::<Vec<_>>(), ids);
}

#[test]
fn items_are_settled_and_deleted_when_submits_and_receives_are_refused() {
    let directory = tempfile::tempdir().unwrap();
    let (store, _hand, ids) = filled(directory.path());
    let held = receive_all_that_goes(&store);
    assert!(!held.is_empty());
    for item in held.iter().take(10) {
        run(&*store, commit(item)).unwrap();
    }
    // Oldest first: what they leave is whole segments.
    for id in ids {
        run(&*store, delete(id)).unwrap();
    }
    until("there is room again", || run(&*store, submit_to("jobs", payload("new"))).is_ok());
    assert_eq!(received(run(&*store, receive_from("jobs", 10, 1))).len(), 1);
    drop(store);
    assert_eq!(all_in(directory.path()).items.len(), 1);
}

#[test]
fn a_queue_is_deleted_when_submits_and_receives_are_refused_and_its_space_comes_back() {
    let directory = tempfile::tempdir().unwrap();
    let (store, _hand, _) = filled(directory.path());
    receive_all_that_goes(&store);
    run(&*store, delete_queue("jobs")).unwrap();
    until("a queue can be made", || run(&*store, create("jobs")).is_ok());
    until("there is room again", || run(&*store, submit_to("jobs", payload("new"))).is_ok());
    drop(store);
    assert_eq!(all_in(directory.path()).items.len(), 1);
}

#[test]
fn a_store_on_a_full_disk_can_be_closed_and_opened_and_emptied() {
    let directory = tempfile::tempdir().unwrap();
    let (store, hand, ids) = filled(directory.path());
    drop(store);
    let store = open_faulty(directory.path(), 64 << 10, &hand).expect("it opens on the disk that it filled");
    let shown = all(&store);
    assert_eq!(shown.items.iter().map(|stored| stored.item.head.id).collect::<Vec<_>>(), ids);
    for id in ids {
        run(&store, delete(id)).unwrap();
    }
    until("there is room again", || run(&store, submit_to("jobs", payload("new"))).is_ok());
    drop(store);
    assert_eq!(all_in(directory.path()).items.len(), 1);
}

#[test]
fn a_backup_leaves_a_full_store_what_it_needs_to_be_opened_again() {
    let directory = tempfile::tempdir().unwrap();
    let (store, hand, ids) = filled(directory.path());
    let elsewhere = tempfile::tempdir().unwrap();
    // It may be refused; that is for whoever asked to see.
    for nth in 0..3 {
        let _ = store.backup(&elsewhere.path().join(nth.to_string()));
    }
    drop(store);
    let store = open_faulty(directory.path(), 64 << 10, &hand).expect("it opens on the disk that it filled");
    assert_eq!(all(&store).items.len(), ids.len());
}
