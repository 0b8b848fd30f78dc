//! A store that nobody asks for anything comes to rest, and a store that is only read stays at rest.
#![allow(clippy::unwrap_used, clippy::expect_used, reason = "tests")]

mod rig;

use futures::executor::block_on;
use rig::*;
use std::time::Duration;
use towline_domain::ItemId;
use towline_store::Store;

/// Longer than the store waits before it takes it for quiet.
const QUIET: Duration = Duration::from_millis(25);

/// Waits until two looks in a row see the same.
#[track_caller]
fn at_rest(what: &str, look: impl Fn() -> u64) -> u64 {
    let mut seen = look();
    for _ in 0..40 {
        std::thread::sleep(QUIET);
        let before = std::mem::replace(&mut seen, look());
        if seen == before {
            return seen;
        }
    }
    panic!("{what} never come to rest");
}

#[test]
fn reads_write_nothing() {
    let directory = tempfile::tempdir().unwrap();
    let store = made(directory.path());
    submit(&store, "item");
    // The end of the log is marked once.
    let frames = at_rest("frames", || status(&store).frames);
    let syncs = store.syncs();
    for _ in 0..20 {
        std::thread::sleep(QUIET);
        assert_eq!(status(&store).frames, frames);
        counts(&store, "jobs");
    }
    assert_eq!(store.syncs(), syncs);
}

#[test]
fn collection_ends_with_items_of_which_one_fills_half_a_segment() {
    // One in a segment, and two where the segment's header leaves room for them.
    for bytes in [25_000, 30_300, 30_800, 33_000, 45_000] {
        let directory = tempfile::tempdir().unwrap();
        let store = made(directory.path());
        let batch = (0..60).map(|_| submit_to("jobs", payload(vec![7; bytes]))).collect();
        block_on(store.update(batch)).unwrap().answers;
        at_rest("carried bytes", || status(&store).bytes_carried);
        assert_eq!(all(&store).items.len(), 60);
    }
}

#[test]
fn after_a_purge_the_files_go_without_being_asked() {
    let directory = tempfile::tempdir().unwrap();
    let store = made(directory.path());
    let batch = (0..300).map(|_| submit_to("jobs", payload(vec![7; 4000]))).collect();
    let ids: Vec<ItemId> =
        block_on(store.update(batch)).unwrap().answers.into_iter().map(submitted).collect();
    let count = || std::fs::read_dir(directory.path()).unwrap().count();
    let full = count();
    assert!(full > 20, "{full} files");
    block_on(store.update(ids.into_iter().map(delete).collect())).unwrap().answers;
    until("few files are left", || count() <= 8);
}
