//! A real file system without space: the store refuses operations that need more, and operations that free space succeed.
#![allow(clippy::unwrap_used, clippy::expect_used, reason = "tests")]

mod rig;

use futures::executor::block_on;
use rig::tmpfs::Tmpfs;
use rig::*;
use std::path::Path;
use towline_domain::ItemId;
use towline_embedded::{BackupError, Embedded};
use towline_store::{Store, StoreError};

/// Fills the file system.
fn fill(file: &Path) {
    use std::io::Write;
    let mut file = std::fs::File::create(file).unwrap();
    while file.write_all(&[1; 4096]).is_ok() {}
}

fn open_large(path: &Path) -> Embedded {
    Embedded::open(path, options(4 << 20), clock()).expect("the store opens")
}

fn new_store(path: &Path) -> Embedded {
    let store = open_large(path);
    run(&store, create("jobs")).unwrap();
    store
}

/// Creates a store with one item, and closes it.
fn store_one_item(path: &Path) -> ItemId {
    submit(&new_store(path), "kept")
}

#[test]
fn a_full_disk_refuses_submits_but_not_reads_and_settles() {
    let Some(mount) = Tmpfs::mount("24m") else { return };
    let path = mount.path().join("store");
    let ballast = mount.path().join("ballast");
    std::fs::write(&ballast, vec![1; 6 << 20]).unwrap();
    let store = new_store(&path);
    let mut ids = Vec::new();
    let refused = loop {
        let answered = run(&store, submit_to("jobs", payload(vec![7; 20_000])));
        if answered.is_err() {
            break answered;
        }
        ids.push(submitted(answered));
        assert!(ids.len() < 2000, "the file system of 24 MiB is not full");
    };
    assert!(is_disk_full(&refused), "{refused:?}");
    assert_says(&refused.unwrap_err().to_string(), &["no space left", "store", "free some", "try again"]);
    assert!(block_on(store.status()).unwrap().full.is_some());

    // Items can be read and settled.
    assert_eq!(contents(&store).items.len(), ids.len());
    let held = received(run(&store, receive_from("jobs", 10, 1)));
    assert_eq!(held.len(), 10);
    for item in &held {
        run(&store, commit(item)).unwrap();
    }
    let message = store.backup(&mount.path().join("backup")).unwrap_err().to_string();
    assert_says(&message, &["free some"]);
    assert!(is_disk_full(&run(&store, submit_to("jobs", payload(vec![7; 20_000])))));

    std::fs::remove_file(&ballast).unwrap();
    for _ in 0..20 {
        ids.push(submit(&store, vec![8; 20_000]));
    }
    drop(store);
    let store = open_large(&path);
    let shown = contents(&store);
    assert_eq!(shown.items.iter().map(|stored| stored.item.head.id).collect::<Vec<_>>(), ids);
    assert_eq!(shown.queues[0].counts.completed, 10);
}

#[test]
fn collection_frees_a_disk_that_is_full_of_deleted_items() {
    let Some(mount) = Tmpfs::mount("24m") else { return };
    let path = mount.path().join("store");
    let store = new_store(&path);
    let mut ids = Vec::new();
    while let answered = run(&store, submit_to("jobs", payload(vec![7; 20_000])))
        && answered.is_ok()
    {
        ids.push(submitted(answered));
    }
    for id in ids {
        run(&store, delete(id)).unwrap();
    }
    // Collection runs with and between requests.
    wait_until("a submit is accepted", || run(&store, submit_to("jobs", payload("again"))).is_ok());
    let status = block_on(store.status()).unwrap();
    drop(store);
    assert_eq!(contents(&open_large(&path)).items.len(), 1, "{status:?}");
}

#[test]
fn an_item_too_large_for_the_rest_of_the_last_segment_is_refused_and_the_store_is_not_poisoned() {
    let Some(mount) = Tmpfs::mount("24m") else { return };
    let path = mount.path().join("store");
    let store = new_store(&path);
    let ballast = mount.path().join("ballast");
    // There is no space for another segment, and the active segment is nearly empty.
    fill(&ballast);
    submit(&store, vec![1; 1 << 20]);
    let refused = run(&store, submit_to("jobs", payload(vec![2; 3 << 20])));
    assert!(is_disk_full(&refused), "{refused:?}");
    submit(&store, vec![3; 1 << 20]);
    std::fs::remove_file(&ballast).unwrap();
    submit(&store, vec![2; 3 << 20]);
    assert_eq!(contents(&store).items.len(), 3);
}

#[test]
fn a_large_receive_on_a_full_disk_delivers_as_many_items_as_fit() {
    let Some(mount) = Tmpfs::mount("13m") else { return };
    let store = new_store(&mount.path().join("store"));
    let batch = || (0..200).map(|_| submit_to("jobs", payload("small"))).collect::<Vec<_>>();
    while block_on(store.update(batch())).unwrap().answers.iter().all(|answered| !is_disk_full(answered)) {}
    let mut held = Vec::new();
    for (seed, max) in [(1, 3000), (2, 3000), (3, 10_000), (4, 10_000)] {
        let answered = run(&store, receive_from("jobs", max, seed));
        if !is_disk_full(&answered) {
            held.extend(received(answered));
        }
    }
    assert!(held.len() > 1000, "{}", held.len());
    assert!(!contents(&store).items.is_empty());
}

/// The blocks of a segment are reserved. The test gives them back, as on a file system that cannot reserve.
#[test]
fn a_failed_write_poisons_the_store_until_it_is_reopened() {
    let Some(mount) = Tmpfs::mount("12m") else { return };
    let (path, ballast) = (mount.path().join("store"), mount.path().join("ballast"));
    let store = new_store(&path);
    let id = submit(&store, "kept");
    let active = segments(&path).pop().unwrap();
    let used = std::fs::read(&active).unwrap().iter().rposition(|&byte| byte != 0).unwrap();
    let file = std::fs::OpenOptions::new().write(true).open(&active).unwrap();
    file.set_len(used as u64 + 1).unwrap();
    file.set_len(4 << 20).unwrap();
    fill(&ballast);
    let submission = || submit_to("jobs", payload(vec![7; 100_000]));
    let poisoned = try_run(&store, submission()).unwrap_err();
    assert!(matches!(poisoned, StoreError::Poisoned { .. }), "{poisoned:?}");
    assert_says(&poisoned.to_string(), &[file_name(&active), "write", "No space left", "reopen it"]);
    std::fs::remove_file(&ballast).unwrap();
    // The content of the disk is unknown until the store is reopened.
    assert!(matches!(try_run(&store, submission()), Err(StoreError::Poisoned { .. })));
    assert!(matches!(store.backup(&mount.path().join("backup")), Err(BackupError::Store(_))));
    drop(store);
    let store = open_large(&path);
    assert!(blobs(&contents(&store)).contains_key(&id));
    run(&store, submission()).unwrap();
}

#[test]
fn opening_on_a_full_disk_uses_the_spare_segment() {
    let Some(mount) = Tmpfs::mount("24m") else { return };
    let path = mount.path().join("store");
    let id = store_one_item(&path);
    fill(&mount.path().join("ballast"));
    let store = open_large(&path);
    assert!(blobs(&contents(&store)).contains_key(&id));
    run(&store, delete(id)).unwrap();
}

/// Removes the spare segments of a store that is not open.
fn remove_spares(path: &Path) {
    let used = segments(path);
    let logs = files(path).into_keys().filter(|name| name.ends_with(".log"));
    for spare in logs.map(|name| path.join(name)).filter(|file| !used.contains(file)) {
        std::fs::remove_file(spare).unwrap();
    }
}

#[test]
fn opening_on_a_full_disk_without_a_spare_segment_continues_the_newest_segment() {
    let Some(mount) = Tmpfs::mount("24m") else { return };
    let path = mount.path().join("store");
    let store = open_large(&path);
    run(&store, create("jobs")).unwrap();
    let mut ids: Vec<_> = (0..5).map(|nth| submit(&store, format!("item {nth}"))).collect();
    drop(store);
    remove_spares(&path);
    let ballast = mount.path().join("ballast");
    fill(&ballast);
    for _ in 0..3 {
        let store = open_large(&path);
        assert!(block_on(store.status()).unwrap().full.is_some());
        assert_eq!(blobs(&contents(&store)).into_keys().collect::<Vec<_>>(), ids);
        run(&store, delete(ids.pop().unwrap())).unwrap();
    }
    std::fs::remove_file(&ballast).unwrap();
    let store = open_large(&path);
    ids.push(submit(&store, "new"));
    assert_eq!(blobs(&contents(&store)).into_keys().collect::<Vec<_>>(), ids);
}

#[test]
fn a_store_on_a_full_disk_without_a_spare_segment_and_without_room_serves_reads_and_loses_nothing() {
    let Some(mount) = Tmpfs::mount("24m") else { return };
    let path = mount.path().join("store");
    let store = open_large(&path);
    run(&store, create("jobs")).unwrap();
    let id = submit(&store, "kept");
    while block_on(store.status()).unwrap().bytes_written < (4 << 20) - (100 << 10) {
        submit(&store, vec![7; 20_000]);
    }
    drop(store);
    remove_spares(&path);
    let ballast = mount.path().join("ballast");
    fill(&ballast);
    for _ in 0..3 {
        let store = open_large(&path);
        assert!(blobs(&contents(&store)).contains_key(&id));
        let refused = run(&store, submit_to("jobs", payload("new")));
        assert!(is_disk_full(&refused), "{refused:?}");
    }
    std::fs::remove_file(&ballast).unwrap();
    let store = open_large(&path);
    submit(&store, "new");
    assert!(blobs(&contents(&store)).contains_key(&id));
}

#[test]
fn an_item_larger_than_the_rest_of_a_segment_is_written_to_the_next() {
    let directory = tempfile::tempdir().unwrap();
    let store = new_store(directory.path());
    let sizes = [1 << 20, 3 << 20, 100, 3 << 20, 3 << 20];
    for size in sizes {
        submit(&store, vec![1; size]);
    }
    drop(store);
    assert_eq!(contents(&open_large(directory.path())).items.len(), sizes.len());
}
