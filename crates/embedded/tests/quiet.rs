//! A store without requests becomes idle, and a store with only reads stays idle.
#![allow(clippy::unwrap_used, clippy::expect_used, reason = "tests")]

mod rig;

use futures::executor::block_on;
use rig::*;
use std::path::Path;
use std::time::Duration;
use towline_domain::ItemId;
use towline_store::Store;

/// Longer than the store waits before it marks the end of the log.
const QUIET: Duration = Duration::from_millis(25);

/// Waits until a figure is the same twice in a row.
#[track_caller]
fn wait_until_stable(what: &str, look: impl Fn() -> u64) -> u64 {
    let mut seen = look();
    for _ in 0..40 {
        std::thread::sleep(QUIET);
        let before = std::mem::replace(&mut seen, look());
        if seen == before {
            return seen;
        }
    }
    panic!("{what} keep changing");
}

/// Whether the last frame of the newest segment has no records. The log has not been collected.
fn ends_with_mark(path: &Path) -> bool {
    let bytes = std::fs::read(segments(path).pop().unwrap()).unwrap();
    let word = |at: usize| bytes[at..at + 4].try_into().map(u32::from_le_bytes).unwrap();
    let (mut at, mut last) = (4096, None);
    while at + 64 <= bytes.len() && bytes[at..at + 4] == *b"TWF1" {
        last = Some(word(at + 4));
        at += (64 + word(at + 4) as usize).next_multiple_of(8);
    }
    last == Some(0)
}

#[test]
fn reads_write_nothing() {
    let directory = tempfile::tempdir().unwrap();
    let store = new_store(directory.path());
    submit(&store, "item");
    // The store marks the end of the log once.
    wait_until("the log ends with a mark", || ends_with_mark(directory.path()));
    let frames = status(&store).frames;
    let syncs = store.syncs();
    for _ in 0..20 {
        std::thread::sleep(QUIET);
        assert_eq!(status(&store).frames, frames);
        counts(&store, "jobs");
    }
    assert_eq!(store.syncs(), syncs);
}

#[test]
fn collection_ends_if_items_are_half_as_large_as_a_segment() {
    // One or two items fit into a segment.
    for bytes in [25_000, 30_300, 30_800, 33_000, 45_000] {
        let directory = tempfile::tempdir().unwrap();
        let store = new_store(directory.path());
        let batch = (0..60).map(|_| submit_to("jobs", payload(vec![7; bytes]))).collect();
        block_on(store.update(batch)).unwrap();
        wait_until_stable("carried bytes", || status(&store).bytes_carried);
        assert_eq!(contents(&store).items.len(), 60);
    }
}

#[test]
fn an_idle_store_removes_files_after_a_purge() {
    let directory = tempfile::tempdir().unwrap();
    let store = new_store(directory.path());
    let batch = (0..300).map(|_| submit_to("jobs", payload(vec![7; 4000]))).collect();
    let ids: Vec<ItemId> =
        block_on(store.update(batch)).unwrap().answers.into_iter().map(submitted).collect();
    let count = || std::fs::read_dir(directory.path()).unwrap().count();
    let full = count();
    assert!(full > 20, "{full} files");
    block_on(store.update(ids.into_iter().map(delete).collect())).unwrap();
    wait_until("at most 8 files are left", || count() <= 8);
}
