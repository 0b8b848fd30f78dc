//! Copies of a store: taken while clients go on, and put back.
#![allow(clippy::unwrap_used, clippy::expect_used, reason = "tests")]

mod rig;

use rig::*;
use std::collections::BTreeSet;
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use towline_embedded::{BackupError, Embedded, restore, verify};

fn filled(path: &Path) -> Embedded {
    let clock = clock();
    let store = Embedded::open(path, options(64 << 10), clock.clone()).unwrap();
    history::replay(&mut |now, operation| {
        clock.set(now);
        run(&store, operation)
    });
    store
}

fn queues_and_items(path: &Path) -> (usize, Vec<towline_store::StoredItem>) {
    let shown = all_in(path);
    (shown.queues.len(), shown.items)
}

#[test]
fn a_backup_opens_as_the_store_it_was() {
    let directory = tempfile::tempdir().unwrap();
    let (source, target) = (directory.path().join("store"), directory.path().join("new/backup"));
    let store = filled(&source);
    let report = store.backup(&target).unwrap();
    drop(store);
    assert!(report.segments > 0 && report.frames > 0 && report.records > 0, "{report:?}");
    assert!(verify(&target).unwrap().is_whole());
    assert_eq!(queues_and_items(&target), queues_and_items(&source));
}

#[test]
fn a_new_store_can_be_backed_up_again_and_again() {
    let directory = tempfile::tempdir().unwrap();
    let store = made(&directory.path().join("store"));
    for nth in 0..5 {
        let id = submit(&store, format!("item {nth}"));
        let target = directory.path().join(format!("backup-{nth}"));
        store.backup(&target).unwrap();
        let copy = all_in(&target);
        assert_eq!(copy.items.len(), nth + 1);
        assert_eq!(copy.items[nth].item.head.id, id);
    }
}

#[test]
fn clients_go_on_while_a_backup_is_taken() {
    let directory = tempfile::tempdir().unwrap();
    let store = made(&directory.path().join("store"));
    let stop = AtomicBool::new(false);
    let acknowledged = std::sync::Mutex::new(BTreeSet::new());
    std::thread::scope(|scope| {
        scope.spawn(|| {
            for nth in 0.. {
                let id = submit(&store, vec![7; 3000]);
                acknowledged.lock().unwrap().insert(id);
                if nth % 3 == 0 {
                    run(&store, delete(id)).unwrap();
                    acknowledged.lock().unwrap().remove(&id);
                }
                if stop.load(Ordering::Relaxed) {
                    break;
                }
            }
        });
        for nth in 0..4 {
            while acknowledged.lock().unwrap().len() < 50 * (nth + 1) {
                std::thread::yield_now();
            }
            let before = acknowledged.lock().unwrap().clone();
            let target = directory.path().join(format!("backup-{nth}"));
            store.backup(&target).unwrap();
            let copied: BTreeSet<_> = blobs(&all_in(&target)).into_keys().collect();
            // The last submit may be about to be deleted.
            let missing = before.difference(&copied).count();
            assert!(missing <= 1, "{missing} of {} acknowledged items are not in the backup", before.len());
        }
        stop.store(true, Ordering::Relaxed);
    });
}

#[test]
fn a_restored_store_goes_on_and_gets_its_space_back() {
    let directory = tempfile::tempdir().unwrap();
    let [source, backup, target] = ["store", "backup", "target"].map(|name| directory.path().join(name));
    let store = filled(&source);
    store.backup(&backup).unwrap();
    drop(store);
    let report = restore(&backup, &target).unwrap();
    assert_eq!(report.segments as usize, segments(&backup).len());
    let before = all_in(&target);
    let store = open(&target);
    run(&store, create("jobs")).unwrap();
    for _ in 0..200 {
        let id = submit(&store, vec![0; 8000]);
        run(&store, delete(id)).unwrap();
    }
    drop(store);
    // What was cut to its content is never written over: every file is as large as its header says.
    assert!(verify(&target).unwrap().is_whole());
    assert_eq!(all_in(&target).items, before.items);
    assert!(files(&target).values().map(Vec::len).sum::<usize>() < 12 * (64 << 10));
}

#[test]
fn a_directory_that_holds_anything_is_refused_and_left_alone() {
    let directory = tempfile::tempdir().unwrap();
    let [source, backup, target] = ["store", "backup", "target"].map(|name| directory.path().join(name));
    let store = made(&source);
    store.backup(&backup).unwrap();
    std::fs::create_dir(&target).unwrap();
    std::fs::write(target.join("precious"), "bytes").unwrap();
    for refused in [store.backup(&target), restore(&backup, &target)] {
        let message = refused.unwrap_err().to_string();
        assert_says(&message, &["target is not empty", "give a directory that is"]);
    }
    assert_eq!(files(&target).len(), 1);
    let below = restore(&backup, &source.join("LOCK/target")).unwrap_err().to_string();
    assert_says(&below, &["LOCK/target", "choose a directory that can be made"]);
}

#[test]
fn a_backup_that_was_not_finished_is_not_a_store() {
    let directory = tempfile::tempdir().unwrap();
    let backup = directory.path().join("backup");
    made(&directory.path().join("store")).backup(&backup).unwrap();
    std::fs::remove_file(backup.join("towline.meta")).unwrap();
    assert_says(&refusal(&backup), &["no towline.meta", "not a whole store"]);
    assert!(restore(&backup, &directory.path().join("target")).is_err());
    assert!(!directory.path().join("target").exists());
}

#[test]
fn restoring_checks_every_byte_before_it_touches_the_target() {
    let directory = tempfile::tempdir().unwrap();
    let [source, backup, target] = ["store", "backup", "target"].map(|name| directory.path().join(name));
    let store = made(&source);
    for nth in 0..20 {
        submit(&store, format!("item {nth}"));
    }
    store.backup(&backup).unwrap();
    drop(store);
    let file = segments(&backup).pop().unwrap();
    let whole = std::fs::read(&file).unwrap();
    let end = whole.len();
    for byte in (4096..end).step_by(61).chain([end - 1]) {
        let mut bytes = whole.clone();
        bytes[byte] ^= 1;
        std::fs::write(&file, bytes).unwrap();
        match restore(&backup, &target) {
            Err(BackupError::Damaged { file, .. }) => assert!(file.starts_with("segment-"), "{file}"),
            // The padding of a frame means nothing.
            Ok(_) if whole[byte] == 0 => std::fs::remove_dir_all(&target).unwrap(),
            other => panic!("byte {byte}: {other:?}"),
        }
        assert!(!target.exists(), "byte {byte}");
        assert!(try_open(&backup).is_err() || whole[byte] == 0, "byte {byte}");
        for extra in segments(&backup).into_iter().filter(|other| *other != file) {
            std::fs::remove_file(extra).unwrap();
        }
    }
    std::fs::write(&file, &whole[..end - 8]).unwrap();
    assert_says(&restore(&backup, &target).unwrap_err().to_string(), &["cut short", "towline doctor"]);
    std::fs::write(&file, &whole).unwrap();
    restore(&backup, &target).unwrap();
}

#[test]
fn a_damaged_store_makes_no_backup() {
    let directory = tempfile::tempdir().unwrap();
    let (source, target) = (directory.path().join("store"), directory.path().join("backup"));
    let store = made(&source);
    submit(&store, "something that will be damaged");
    let (file, byte) = find(&source, b"something that will be damaged");
    flip(&file, byte);
    let message = store.backup(&target).unwrap_err().to_string();
    assert_says(&message, &["segment-0000000", "is damaged at byte", "towline doctor"]);
    assert!(files(&target).is_empty());
}

#[test]
fn a_store_in_use_is_not_restored_from() {
    let directory = tempfile::tempdir().unwrap();
    let source = directory.path().join("store");
    let _store = made(&source);
    let message = restore(&source, &directory.path().join("target")).unwrap_err().to_string();
    assert_says(&message, &["in use", "stop it"]);
}
