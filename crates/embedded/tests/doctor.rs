//! Verify names damage and what it costs; salvage saves all intact content.
#![allow(clippy::unwrap_used, clippy::expect_used, reason = "tests")]

mod rig;

use rig::*;
use std::path::{Path, PathBuf};
use tempfile::TempDir;
use towline_domain::{FieldSet, ItemId};
use towline_embedded::{Embedded, salvage, verify};
use towline_store::Store;

struct StoreWithItems {
    _directory: TempDir,
    store: PathBuf,
    saved: PathBuf,
    ids: Vec<ItemId>,
}

/// A closed store of several segments with numbered items.
fn store_with_items() -> StoreWithItems {
    let directory = tempfile::tempdir().unwrap();
    let (store, saved) = (directory.path().join("store"), directory.path().join("saved"));
    let open = new_store(&store);
    let ids = (0..60).map(|nth| submit(&open, text(nth))).collect();
    StoreWithItems { _directory: directory, store, saved, ids }
}

fn text(nth: usize) -> String {
    format!("<{nth}>{}", "payload ".repeat(500))
}

fn find_item(path: &Path, nth: usize) -> (PathBuf, usize) {
    find(path, format!("<{nth}>payload").as_bytes())
}

#[test]
fn verify_finds_no_damage_in_an_intact_store_and_salvage_saves_all_of_it() {
    let directory = tempfile::tempdir().unwrap();
    let (path, saved) = (directory.path().join("store"), directory.path().join("saved"));
    let clock = clock();
    let store = Embedded::open(&path, options(64 << 10), clock.clone()).unwrap();
    history::replay(&mut |now, operation| {
        clock.set(now);
        run(&store, operation)
    });
    let keys = || history::KEYS.map(str::to_owned).to_vec();
    let kv = futures::executor::block_on(store.kv_get(keys())).unwrap();
    drop(store);
    let before = files(&path);
    let verified = verify(&path).unwrap();
    assert_eq!(verified.findings, []);
    assert_eq!(verified.affected, towline_embedded::Affected::default());
    let report = salvage(&path, &saved).unwrap();
    assert!(report.findings.is_empty() && report.queues > 5 && report.kv == 3, "{report:?}");
    assert_eq!(files(&path), before, "salvage changed its source");
    assert!(verify(&saved).unwrap().is_whole());
    let now = clock.clone();
    let copy = Embedded::open(&saved, options(64 << 10), now).unwrap();
    assert_eq!(futures::executor::block_on(copy.kv_get(keys())).unwrap(), kv);
    let (copied, original) = (contents(&copy), {
        drop(copy);
        let store = Embedded::open(&path, options(64 << 10), clock).unwrap();
        contents(&store)
    });
    assert_eq!(copied, original);
    assert_eq!(report.items as usize, original.items.len());
}

#[test]
fn one_damaged_record_loses_one_item() {
    let StoreWithItems { store, saved, ids, _directory } = store_with_items();
    let (file, byte) = find_item(&store, 5);
    flip(&file, byte + 100);
    // Opening reads the sidecar and no payloads. A get of this item fails.
    let open = open(&store);
    let answer = futures::executor::block_on(open.get(vec![ids[5]], FieldSet::ALL));
    assert_says(&answer.unwrap_err().to_string(), &[file_name(&file), "checksum", "towline doctor"]);
    drop(open);
    let verified = verify(&store).unwrap();
    let damage: Vec<_> = verified.findings.iter().filter(|finding| !finding.harmless).collect();
    assert_eq!(damage.len(), 1, "{verified:?}");
    assert_eq!(damage[0].file, file_name(&file));
    assert!(damage[0].byte as usize <= byte && byte - (damage[0].byte as usize) < 4096, "{damage:?}");
    assert_eq!(verified.affected.lost_unknown, 1, "{verified:?}");
    assert!(verified.affected.may_reappear);

    let report = salvage(&store, &saved).unwrap();
    assert_eq!((report.items, report.affected.lost_unknown), (59, 1));
    let left = blobs(&contents_of(&saved));
    for (nth, id) in ids.iter().enumerate() {
        let expected = (nth != 5).then(|| bytes::Bytes::from(text(nth)));
        assert_eq!(left.get(id), expected.as_ref(), "item {nth}");
    }
}

#[test]
fn an_item_without_its_payload_is_named_and_not_saved() {
    let directory = tempfile::tempdir().unwrap();
    let (store, saved) = (directory.path().join("store"), directory.path().join("saved"));
    let open = new_store(&store);
    let id = submit(&open, "a payload that will be damaged");
    let kept = submit(&open, "another");
    let item = received(run(&open, receive_from("jobs", 1, 1))).remove(0);
    assert_eq!(item.head.id, id);
    drop(open);
    let (file, byte) = find(&store, b"a payload that will be damaged");
    flip(&file, byte);
    let verified = verify(&store).unwrap();
    assert_eq!(verified.affected.lost, [id], "{verified:?}");
    let report = salvage(&store, &saved).unwrap();
    assert_eq!((report.items, report.affected.lost), (1, vec![id]));
    assert_eq!(blobs(&contents_of(&saved)).into_keys().collect::<Vec<_>>(), [kept]);
}

#[test]
fn an_item_whose_removal_is_damaged_may_reappear_and_the_report_says_so() {
    let directory = tempfile::tempdir().unwrap();
    let (store, saved) = (directory.path().join("store"), directory.path().join("saved"));
    let open = new_store(&store);
    let gone = submit(&open, "removed");
    submit(&open, "before the removal");
    run(&open, delete(gone)).unwrap();
    submit(&open, "after the removal");
    drop(open);
    let (file, _) = find(&store, b"after the removal");
    // The frame between the two submits is the removal.
    let after = find(&store, b"after the removal").1;
    let bytes = std::fs::read(&file).unwrap();
    let before = find(&store, b"before the removal").1;
    let frame = (before..after).filter(|&at| bytes[at..].starts_with(b"TWF1")).find(|&at| {
        // The kind of its first record is a removal.
        bytes[at + 64 + 8] == 2
    });
    flip(&file, frame.expect("the removal has its own frame") + 64 + 8 + 4);
    let report = salvage(&store, &saved).unwrap();
    assert!(report.affected.may_reappear, "{report:?}");
    assert!(blobs(&contents_of(&saved)).contains_key(&gone));
}

#[test]
fn salvage_creates_a_queue_for_items_whose_queue_is_lost() {
    let directory = tempfile::tempdir().unwrap();
    let (store, saved) = (directory.path().join("store"), directory.path().join("saved"));
    let open = open(&store);
    run(&open, create("a-name-to-be-damaged")).unwrap();
    let id = submitted(run(&open, submit_to("a-name-to-be-damaged", payload("kept"))));
    drop(open);
    let (file, byte) = find(&store, b"a-name-to-be-damaged");
    flip(&file, byte);
    let report = salvage(&store, &saved).unwrap();
    assert_eq!(report.queues_remade, ["salvaged-1"]);
    let shown = contents_of(&saved);
    assert!(shown.queues[0].queue.paused);
    assert_eq!((shown.items[0].item.head.id, shown.items[0].queue.as_str()), (id, "salvaged-1"));
}

#[test]
fn a_missing_segment_loses_only_its_own_items() {
    let StoreWithItems { store, saved, ids, _directory } = store_with_items();
    let all = segments(&store);
    let middle = &all[all.len() / 2];
    std::fs::remove_file(middle).unwrap();
    let verified = verify(&store).unwrap();
    assert!(verified.findings.iter().any(|finding| finding.what.contains("is missing")), "{verified:?}");
    let report = salvage(&store, &saved).unwrap();
    let left = blobs(&contents_of(&saved));
    assert_eq!(left.len() as u64 + report.affected.lost_unknown, ids.len() as u64, "{report:?}");
    assert!(left.len() > 30);
}

#[test]
fn salvage_rebuilds_a_missing_meta_from_the_segments() {
    let StoreWithItems { store, saved, ids, _directory } = store_with_items();
    let meta = std::fs::read(store.join("towline.meta")).unwrap();
    let mut damaged = meta.clone();
    damaged[20] ^= 1;
    std::fs::write(store.join("towline.meta"), damaged).unwrap();
    assert_eq!(verify(&store).unwrap().findings[0].file, "towline.meta");
    std::fs::remove_file(store.join("towline.meta")).unwrap();
    assert_eq!(verify(&store).unwrap().findings[0].file, "towline.meta");
    let report = salvage(&store, &saved).unwrap();
    assert_eq!((report.items, report.affected.lost_unknown), (ids.len() as u64, 0));
    let saved = std::fs::read(saved.join("towline.meta")).unwrap();
    // All but the history, and the checksum over it: event ids of the original are not valid in the copy.
    assert_eq!((&saved[..12], &saved[16..32]), (&meta[..12], &meta[16..32]));
    assert_eq!((&meta[12..16], &saved[12..16]), (&[0; 4][..], &[0xff; 4][..]));
}

#[test]
fn damaged_segment_headers_lose_nothing() {
    let StoreWithItems { store, saved, ids, _directory } = store_with_items();
    let all = segments(&store);
    for file in [&all[1], &all[all.len() - 2]] {
        flip(file, 30);
        flip(file, 2048 + 30);
    }
    let report = salvage(&store, &saved).unwrap();
    assert_eq!(report.items, ids.len() as u64, "{report:?}");
}

#[test]
fn any_flipped_byte_is_found_or_harmless_and_never_changes_content() {
    let directory = tempfile::tempdir().unwrap();
    let (store, saved) = (directory.path().join("store"), directory.path().join("saved"));
    let open = new_store(&store);
    let ids: Vec<ItemId> = (0..30).map(|nth| submit(&open, format!("<{nth}>{}", "x".repeat(4000)))).collect();
    drop(open);
    let original = files(&store);
    let oldest = segments(&store).remove(0);
    for byte in (0..60_000).step_by(997) {
        flip(&oldest, byte);
        let verified = verify(&store).unwrap();
        let report = salvage(&store, &saved).unwrap();
        for (id, blob) in blobs(&contents_of(&saved)) {
            let nth = ids.iter().position(|known| *known == id).expect("the item was submitted");
            assert!(blob.starts_with(format!("<{nth}>").as_bytes()) && blob.ends_with(b"x"));
        }
        let lost = report.affected.lost_unknown + report.affected.lost.len() as u64;
        assert_eq!(report.items + lost, 30, "byte {byte}: {report:?}");
        // Verify must find all damage that makes opening or reading fail.
        let reads = try_open(&store).is_ok_and(|open| {
            futures::executor::block_on(towline_conformance::invariants::snapshot(&open, START)).is_ok()
        });
        assert!(reads || !verified.is_whole(), "byte {byte}: {verified:?}");
        std::fs::remove_dir_all(&saved).unwrap();
        std::fs::remove_dir_all(&store).unwrap();
        write_files(&store, &original);
    }
}

#[test]
fn a_store_in_use_and_a_directory_without_a_store_are_refused() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("store");
    let store = new_store(&path);
    assert_says(&verify(&path).unwrap_err().to_string(), &["in use", "stop it"]);
    let saved = directory.path().join("saved");
    assert_says(&salvage(&path, &saved).unwrap_err().to_string(), &["in use"]);
    drop(store);
    std::fs::create_dir(&saved).unwrap();
    assert_says(&verify(&saved).unwrap_err().to_string(), &["is not a store", "give the directory"]);
    let missing = directory.path().join("missing");
    assert_says(&verify(&missing).unwrap_err().to_string(), &["missing", "give a directory that exists"]);
    assert!(!missing.exists());
    std::fs::write(saved.join("precious"), "bytes").unwrap();
    assert_says(&salvage(&path, &saved).unwrap_err().to_string(), &["saved is not empty"]);
}
