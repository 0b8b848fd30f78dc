//! A damaged record affects its own item only.
#![allow(clippy::unwrap_used, clippy::expect_used, reason = "tests")]

mod rig;

use futures::executor::block_on;
use rig::*;
use std::collections::BTreeSet;
use std::os::unix::fs::FileExt;
use std::path::Path;
use towline_domain::{FieldSet, ItemId};
use towline_embedded::Embedded;
use towline_store::{Filter, Store, StoreError};

fn text(nth: usize) -> String {
    format!("payload number {nth}.")
}

/// Damages an item of an open store. Returns the name of the file.
fn damage(path: &Path, nth: usize) -> String {
    let (file, at) = find(path, text(nth).as_bytes());
    std::fs::OpenOptions::new().write(true).open(&file).unwrap().write_all_at(b"X", at as u64).unwrap();
    file_name(&file).to_owned()
}

#[test]
fn a_receive_delivers_the_intact_items_and_the_status_names_the_damage() {
    let directory = tempfile::tempdir().unwrap();
    let clock = clock();
    let store = Embedded::open(directory.path(), options(64 << 10), clock.clone()).unwrap();
    run(&store, create("jobs")).unwrap();
    let ids: Vec<ItemId> = (0..10).map(|nth| submit(&store, text(nth))).collect();
    assert_eq!(status(&store).damage, None);
    let file = damage(directory.path(), 5);

    let delivered = received(run(&store, receive_from("jobs", 10, 1)));
    let intact: Vec<ItemId> = ids.iter().copied().filter(|id| *id != ids[5]).collect();
    assert_eq!(delivered.iter().map(|item| item.head.id).collect::<Vec<_>>(), intact);
    for item in &delivered {
        let nth = ids.iter().position(|id| *id == item.head.id).unwrap();
        assert_eq!(item.fields.blob.as_deref(), Some(text(nth).as_bytes()));
    }
    assert_says(&status(&store).damage.expect("the status names the damage"), &[&file]);
    for item in &delivered {
        run(&store, commit(item)).unwrap();
    }
    // The damaged item is leased like the rest, but no worker got it.
    let now = counts(&store, "jobs");
    assert_eq!((now.completed, now.processing, now.failed), (9, 1, 0));

    // Its lease lapses and it is received again, together with later items, which are delivered.
    let mut answered = BTreeSet::new();
    for seed in 2..8 {
        clock.advance(3_600_000);
        let new = format!("new {seed}");
        let batch = vec![submit_to("jobs", payload(new.clone())), receive_from("jobs", 10, seed)];
        let mut answers = block_on(store.update(batch)).unwrap().answers;
        let delivered = received(answers.pop().unwrap());
        assert_eq!(delivered.len(), 1);
        assert_eq!(delivered[0].fields.blob.as_deref(), Some(new.as_bytes()));
        run(&store, commit(&delivered[0])).unwrap();
        answered.insert(delivered[0].head.id);
    }
    assert_eq!(answered.len(), 6);
    // The damaged item has failed after the maximum number of retries.
    let now = counts(&store, "jobs");
    assert_eq!((now.completed, now.failed, now.unfinished()), (15, 1, 0));
}

#[test]
fn a_get_of_a_damaged_item_is_an_error_and_other_items_are_read() {
    let directory = tempfile::tempdir().unwrap();
    let store = new_store(directory.path());
    let ids: Vec<ItemId> = (0..10).map(|nth| submit(&store, text(nth))).collect();
    let file = damage(directory.path(), 5);
    let damages = || block_on(store.metrics()).unwrap().damages;
    assert_eq!((status(&store).damage, damages()), (None, 0));
    let answer = block_on(store.get(vec![ids[5]], FieldSet::ALL));
    assert!(matches!(&answer, Err(StoreError::Corrupt { file: named, .. }) if *named == file), "{answer:?}");
    let intact: Vec<ItemId> = ids.iter().copied().filter(|id| *id != ids[5]).collect();
    let got = block_on(store.get(intact.clone(), FieldSet::ALL)).unwrap();
    assert!(got.iter().all(Option::is_some));
    let heads = block_on(store.list(Filter::default(), None, 4, FieldSet::NONE)).unwrap();
    assert_eq!(heads.items.len(), 4);
    assert!(block_on(store.list(Filter::default(), None, 10, FieldSet::ALL)).is_err());
    assert_says(&status(&store).damage.expect("the status names the damage"), &[&file]);
    assert_eq!(damages(), 2, "a get and a list met it");
}
