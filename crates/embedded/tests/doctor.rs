//! Damage is named, with what it costs; what is whole is saved.
#![allow(clippy::unwrap_used, clippy::expect_used, reason = "tests")]

mod rig;

use rig::*;
use std::path::{Path, PathBuf};
use tempfile::TempDir;
use towline_domain::{FieldSet, ItemId};
use towline_embedded::{Embedded, salvage, verify};
use towline_store::Store;

struct Patient {
    _directory: TempDir,
    store: PathBuf,
    saved: PathBuf,
    ids: Vec<ItemId>,
}

/// A store of several segments with numbered items, closed.
fn patient() -> Patient {
    let directory = tempfile::tempdir().unwrap();
    let (store, saved) = (directory.path().join("store"), directory.path().join("saved"));
    let open = made(&store);
    let ids = (0..60).map(|nth| submit(&open, text(nth))).collect();
    Patient { _directory: directory, store, saved, ids }
}

fn text(nth: usize) -> String {
    format!("<{nth}>{}", "payload ".repeat(500))
}

fn where_is(path: &Path, nth: usize) -> (PathBuf, usize) {
    find(path, format!("<{nth}>payload").as_bytes())
}

fn file_name(path: &Path) -> String {
    path.file_name().unwrap().to_str().unwrap().to_owned()
}

#[test]
fn a_whole_store_is_found_whole_and_saved_whole() {
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
    assert_eq!(files(&path), before, "the store examined was written to");
    assert!(verify(&saved).unwrap().is_whole());
    let now = clock.clone();
    let copy = Embedded::open(&saved, options(64 << 10), now).unwrap();
    assert_eq!(futures::executor::block_on(copy.kv_get(keys())).unwrap(), kv);
    let (copied, original) = (all(&copy), {
        drop(copy);
        let store = Embedded::open(&path, options(64 << 10), clock).unwrap();
        all(&store)
    });
    assert_eq!(copied, original);
    assert_eq!(report.items as usize, original.items.len());
}

#[test]
fn one_damaged_record_costs_one_item() {
    let Patient { store, saved, ids, _directory } = patient();
    let (file, byte) = where_is(&store, 5);
    flip(&file, byte + 100);
    // Opening reads the segment's index and not its payloads; whoever asks for this one is told.
    let open = open(&store);
    let answer = futures::executor::block_on(open.get(vec![ids[5]], FieldSet::ALL));
    assert_says(&answer.unwrap_err().to_string(), &[&file_name(&file), "checksum", "towline doctor"]);
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
    let left = blobs(&all_in(&saved));
    for (nth, id) in ids.iter().enumerate() {
        let expected = (nth != 5).then(|| bytes::Bytes::from(text(nth)));
        assert_eq!(left.get(id), expected.as_ref(), "item {nth}");
    }
}

#[test]
fn an_item_whose_payload_is_gone_is_named_and_not_served_empty() {
    let directory = tempfile::tempdir().unwrap();
    let (store, saved) = (directory.path().join("store"), directory.path().join("saved"));
    let open = made(&store);
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
    assert_eq!(blobs(&all_in(&saved)).into_keys().collect::<Vec<_>>(), [kept]);
}

#[test]
fn a_removal_in_the_damaged_part_may_bring_its_item_back_and_that_is_said() {
    let directory = tempfile::tempdir().unwrap();
    let (store, saved) = (directory.path().join("store"), directory.path().join("saved"));
    let open = made(&store);
    let gone = submit(&open, "removed");
    submit(&open, "before the removal");
    run(&open, delete(gone)).unwrap();
    submit(&open, "after the removal");
    drop(open);
    let (file, _) = find(&store, b"after the removal");
    // The removal is the frame between.
    let after = find(&store, b"after the removal").1;
    let bytes = std::fs::read(&file).unwrap();
    let before = find(&store, b"before the removal").1;
    let frame = (before..after).filter(|&at| bytes[at..].starts_with(b"TWF1")).find(|&at| {
        // A frame with one record of a kind that removes.
        bytes[at + 64 + 8] == 2
    });
    flip(&file, frame.expect("the removal has a frame of its own") + 64 + 8 + 4);
    let report = salvage(&store, &saved).unwrap();
    assert!(report.affected.may_reappear, "{report:?}");
    assert!(blobs(&all_in(&saved)).contains_key(&gone));
}

#[test]
fn without_its_queue_an_item_is_kept_in_one_made_for_it() {
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
    let shown = all_in(&saved);
    assert!(shown.queues[0].queue.paused);
    assert_eq!((shown.items[0].item.head.id, shown.items[0].queue.as_str()), (id, "salvaged-1"));
}

#[test]
fn a_missing_segment_costs_what_was_in_it() {
    let Patient { store, saved, ids, _directory } = patient();
    let all = segments(&store);
    let middle = &all[all.len() / 2];
    std::fs::remove_file(middle).unwrap();
    let verified = verify(&store).unwrap();
    assert!(verified.findings.iter().any(|finding| finding.what.contains("is missing")), "{verified:?}");
    let report = salvage(&store, &saved).unwrap();
    let left = blobs(&all_in(&saved));
    assert_eq!(left.len() as u64 + report.affected.lost_unknown, ids.len() as u64, "{report:?}");
    assert!(left.len() > 30);
}

#[test]
fn the_segments_know_enough_to_do_without_meta() {
    let Patient { store, saved, ids, _directory } = patient();
    let meta = std::fs::read(store.join("towline.meta")).unwrap();
    let mut damaged = meta.clone();
    damaged[20] ^= 1;
    std::fs::write(store.join("towline.meta"), damaged).unwrap();
    assert_eq!(verify(&store).unwrap().findings[0].file, "towline.meta");
    std::fs::remove_file(store.join("towline.meta")).unwrap();
    assert_eq!(verify(&store).unwrap().findings[0].file, "towline.meta");
    let report = salvage(&store, &saved).unwrap();
    assert_eq!((report.items, report.affected.lost_unknown), (ids.len() as u64, 0));
    assert_eq!(std::fs::read(saved.join("towline.meta")).unwrap(), meta);
}

#[test]
fn damaged_headers_cost_nothing() {
    let Patient { store, saved, ids, _directory } = patient();
    let all = segments(&store);
    for file in [&all[1], &all[all.len() - 2]] {
        flip(file, 30);
        flip(file, 2048 + 30);
    }
    let report = salvage(&store, &saved).unwrap();
    assert_eq!(report.items, ids.len() as u64, "{report:?}");
}

#[test]
fn any_flipped_byte_is_found_or_does_not_matter_and_never_yields_other_content() {
    let directory = tempfile::tempdir().unwrap();
    let (store, saved) = (directory.path().join("store"), directory.path().join("saved"));
    let open = made(&store);
    let ids: Vec<ItemId> = (0..30).map(|nth| submit(&open, format!("<{nth}>{}", "x".repeat(4000)))).collect();
    drop(open);
    let original = files(&store);
    let oldest = segments(&store).remove(0);
    for byte in (0..60_000).step_by(997) {
        flip(&oldest, byte);
        let verified = verify(&store).unwrap();
        let report = salvage(&store, &saved).unwrap();
        for (id, blob) in blobs(&all_in(&saved)) {
            let nth = ids.iter().position(|known| *known == id).expect("an item that was submitted");
            assert!(blob.starts_with(format!("<{nth}>").as_bytes()) && blob.ends_with(b"x"));
        }
        let lost = report.affected.lost_unknown + report.affected.lost.len() as u64;
        assert_eq!(report.items + lost, 30, "byte {byte}: {report:?}");
        // Opening may do without a part that the doctor misses; never the other way round.
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
fn a_store_in_use_or_no_store_at_all_is_refused() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("store");
    let store = made(&path);
    assert_says(&verify(&path).unwrap_err().to_string(), &["in use", "stop it"]);
    let saved = directory.path().join("saved");
    assert_says(&salvage(&path, &saved).unwrap_err().to_string(), &["in use"]);
    drop(store);
    std::fs::create_dir(&saved).unwrap();
    assert_says(&verify(&saved).unwrap_err().to_string(), &["holds no store", "give the directory"]);
    let missing = directory.path().join("missing");
    assert_says(&verify(&missing).unwrap_err().to_string(), &["missing", "give a directory that exists"]);
    assert!(!missing.exists());
    std::fs::write(saved.join("precious"), "bytes").unwrap();
    assert_says(&salvage(&path, &saved).unwrap_err().to_string(), &["saved is not empty"]);
}
