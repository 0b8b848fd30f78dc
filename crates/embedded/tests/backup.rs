//! Backup while clients continue, and restore.
#![allow(clippy::unwrap_used, clippy::expect_used, reason = "tests")]

mod rig;

use futures::executor::block_on;
use rig::*;
use std::collections::BTreeSet;
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use towline_embedded::{BackupError, Embedded, restore, verify};
use towline_store::{Events, EventsFrom, Store};

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
    let shown = contents_of(path);
    (shown.queues.len(), shown.items)
}

#[test]
fn a_backup_opens_with_the_content_of_the_store() {
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
fn event_cursors_of_a_store_and_of_its_copies_are_not_valid_in_each_other() {
    let directory = tempfile::tempdir().unwrap();
    let [source, backup, copy] = ["store", "backup", "copy"].map(|name| directory.path().join(name));
    let after_all = |store: &Embedded| match block_on(store.events(EventsFrom::Now, 1)).unwrap() {
        Events::Page(page) => EventsFrom::After(page.next),
        other => panic!("{other:?}"),
    };
    // The events may have been collected since.
    let is_known = |store: &Embedded, from: &EventsFrom| {
        block_on(store.events(from.clone(), 1)).unwrap() != Events::Elsewhere
    };
    let store = new_store(&source);
    let identity = store.identity();
    submit(&store, "before the backup");
    let before = after_all(&store);
    store.backup(&backup).unwrap();
    submit(&store, "after the backup");
    let after = after_all(&store);
    drop(store);
    restore(&backup, &copy).unwrap();
    let restored = try_open(&copy).unwrap();
    // As many events as in the store, but other ones.
    submit(&restored, "after the restore");
    submit(&restored, "and another one");
    assert!(!is_known(&restored, &before) && !is_known(&restored, &after));
    let own = after_all(&restored);
    let copied = restored.identity();
    assert!(copied.is_copy_of(&identity.parts), "a place for buffers belongs to one of the two");
    drop(restored);
    let restored = try_open(&copy).unwrap();
    assert!(is_known(&restored, &own) && restored.identity() == copied, "a copy keeps its history");
    let store = try_open(&source).unwrap();
    assert_eq!(store.identity(), identity);
    assert!(is_known(&store, &before) && is_known(&store, &after) && !is_known(&store, &own));
}

#[test]
fn a_new_store_can_be_backed_up_repeatedly() {
    let directory = tempfile::tempdir().unwrap();
    let store = new_store(&directory.path().join("store"));
    for nth in 0..5 {
        let id = submit(&store, format!("item {nth}"));
        let target = directory.path().join(format!("backup-{nth}"));
        store.backup(&target).unwrap();
        let copy = contents_of(&target);
        assert_eq!(copy.items.len(), nth + 1);
        assert_eq!(copy.items[nth].item.head.id, id);
    }
}

#[test]
fn clients_continue_during_a_backup() {
    let directory = tempfile::tempdir().unwrap();
    let store = new_store(&directory.path().join("store"));
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
            let copied: BTreeSet<_> = blobs(&contents_of(&target)).into_keys().collect();
            // The client may delete its last item during the backup.
            let missing = before.difference(&copied).count();
            assert!(missing <= 1, "{missing} of {} acknowledged items are not in the backup", before.len());
        }
        stop.store(true, Ordering::Relaxed);
    });
}

#[test]
fn a_restored_store_accepts_operations_and_reclaims_space() {
    let directory = tempfile::tempdir().unwrap();
    let [source, backup, target] = ["store", "backup", "target"].map(|name| directory.path().join(name));
    let store = filled(&source);
    store.backup(&backup).unwrap();
    drop(store);
    let report = restore(&backup, &target).unwrap();
    assert_eq!(report.segments as usize, segments(&backup).len());
    let before = contents_of(&target);
    let store = open(&target);
    run(&store, create("jobs")).unwrap();
    for _ in 0..200 {
        let id = submit(&store, vec![0; 8000]);
        run(&store, delete(id)).unwrap();
    }
    drop(store);
    // Segments that the backup cut to their content are never reused: every file is as large as its header says.
    assert!(verify(&target).unwrap().is_whole());
    assert_eq!(contents_of(&target).items, before.items);
    assert!(files(&target).values().map(Vec::len).sum::<usize>() < 12 * (64 << 10));
}

#[test]
fn a_target_that_is_not_empty_is_refused_and_not_changed() {
    let directory = tempfile::tempdir().unwrap();
    let [source, backup, target] = ["store", "backup", "target"].map(|name| directory.path().join(name));
    let store = new_store(&source);
    store.backup(&backup).unwrap();
    std::fs::create_dir(&target).unwrap();
    std::fs::write(target.join("precious"), "bytes").unwrap();
    for refused in [store.backup(&target), restore(&backup, &target)] {
        let message = refused.unwrap_err().to_string();
        assert_says(&message, &["target is not empty", "give a directory that is"]);
    }
    assert_eq!(files(&target).len(), 1);
    let below = restore(&backup, &source.join("LOCK/target")).unwrap_err().to_string();
    assert_says(&below, &["LOCK/target", "choose a directory that can be created"]);
}

#[test]
fn an_unfinished_backup_is_not_a_store() {
    let directory = tempfile::tempdir().unwrap();
    let backup = directory.path().join("backup");
    new_store(&directory.path().join("store")).backup(&backup).unwrap();
    std::fs::remove_file(backup.join("towline.meta")).unwrap();
    assert_says(&refusal(&backup), &["no towline.meta", "not a complete store"]);
    assert!(restore(&backup, &directory.path().join("target")).is_err());
    assert!(!directory.path().join("target").exists());
}

#[test]
fn restore_verifies_every_byte_before_it_creates_the_target() {
    let directory = tempfile::tempdir().unwrap();
    let [source, backup, target] = ["store", "backup", "target"].map(|name| directory.path().join(name));
    let store = new_store(&source);
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
            // The padding of a frame has no meaning.
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
fn a_backup_of_a_damaged_store_fails() {
    let directory = tempfile::tempdir().unwrap();
    let (source, target) = (directory.path().join("store"), directory.path().join("backup"));
    let store = new_store(&source);
    submit(&store, "something that will be damaged");
    let (file, byte) = find(&source, b"something that will be damaged");
    flip(&file, byte);
    let message = store.backup(&target).unwrap_err().to_string();
    assert_says(&message, &["segment-0000000", "is damaged at byte", "towline doctor"]);
    assert!(files(&target).is_empty());
}

#[test]
fn restore_refuses_a_source_in_use() {
    let directory = tempfile::tempdir().unwrap();
    let source = directory.path().join("store");
    let _store = new_store(&source);
    let message = restore(&source, &directory.path().join("target")).unwrap_err().to_string();
    assert_says(&message, &["in use", "stop it"]);
}
