//! Damaged, foreign, incomplete and newer directories: opening refuses each, names the file and a remedy, and changes nothing.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::print_stdout, reason = "tests")]

mod rig;

use rig::tmpfs::Tmpfs;
use rig::*;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Arc;
use towline_domain::ItemId;
use towline_embedded::disk::RealDisk;
use towline_embedded::{Embedded, Engine, restore, salvage, verify};

/// A closed store of at least four segments. The first half of its items is in sealed segments.
fn several_segments(path: &Path) -> Vec<ItemId> {
    let store = new_store(path);
    let ids = (0..60).map(|nth| submit(&store, format!("<{nth}>{}", "x".repeat(4000)))).collect();
    drop(store);
    assert!(segments(path).len() >= 4);
    ids
}

/// Like [`several_segments`], without sidecars, so that opening reads the segments.
fn without_sidecars(path: &Path) -> Vec<ItemId> {
    let ids = several_segments(path);
    remove_sidecars(path);
    ids
}

fn sidecars(path: &Path) -> Vec<PathBuf> {
    let names = files(path).into_keys().filter(|name| name.ends_with(".idx"));
    names.map(|name| path.join(name)).collect()
}

fn remove_sidecars(path: &Path) {
    for file in sidecars(path) {
        std::fs::remove_file(file).unwrap();
    }
}

/// Opening fails with a message that contains `parts`, and changes no file.
#[track_caller]
fn refuses(path: &Path, parts: &[&str]) {
    let before = files(path);
    assert_says(&refusal(path), parts);
    assert_eq!(files(path), before, "opening changed a store that it refused");
}

#[test]
fn a_directory_of_a_newer_format_is_refused() {
    let directory = tempfile::tempdir().unwrap();
    several_segments(directory.path());
    let meta = directory.path().join("towline.meta");
    let mut bytes = std::fs::read(&meta).unwrap();
    bytes[8] = 2;
    bytes.extend_from_slice(b"content that a newer version may add");
    std::fs::write(&meta, bytes).unwrap();
    refuses(directory.path(), &["towline.meta", "format 2", "reads up to format 1", "use a newer towline"]);
    let refused = verify(directory.path()).unwrap_err().to_string();
    assert_says(&refused, &["format 2"]);
}

#[test]
fn a_directory_in_use_is_refused_in_the_same_process() {
    let directory = tempfile::tempdir().unwrap();
    let store = new_store(directory.path());
    assert_says(&refusal(directory.path()), &["is in use by another process", "stop it"]);
    drop(store);
    open(directory.path());
}

const OPEN_IT: &str = "TOWLINE_TEST_OPEN";

/// Not a test by itself: the next test runs it in another process.
#[test]
fn helper_that_opens_a_directory() {
    if let Some(path) = std::env::var_os(OPEN_IT) {
        println!("answer: {}", refusal(Path::new(&path)));
    }
}

#[test]
fn a_directory_in_use_is_refused_in_another_process() {
    let directory = tempfile::tempdir().unwrap();
    let _store = new_store(directory.path());
    let output = Command::new(std::env::current_exe().unwrap())
        .args(["helper_that_opens_a_directory", "--exact", "--nocapture"])
        .env(OPEN_IT, directory.path())
        .output()
        .unwrap();
    assert!(output.status.success(), "{output:?}");
    assert_says(&String::from_utf8_lossy(&output.stdout), &["answer: ", "is in use by another process"]);
}

#[test]
fn a_path_through_a_file_is_refused() {
    let directory = tempfile::tempdir().unwrap();
    std::fs::write(directory.path().join("file"), "").unwrap();
    let message = refusal(&directory.path().join("file/store"));
    assert_says(&message, &["file/store", "choose a directory that can be created and written"]);
}

#[test]
fn a_store_on_a_read_only_file_system_does_not_open_but_can_be_verified() {
    let Some(mount) = Tmpfs::mount("8m") else { return };
    let path = mount.path().join("store");
    let id = submit(&new_store(&path), "kept");
    if !mount.remount("ro") {
        return;
    }
    assert_says(&refusal(&path), &["store/LOCK", "Read-only", "mount the file system writable"]);
    assert!(verify(&path).unwrap().is_whole());
    assert!(mount.remount("rw"));
    assert!(blobs(&contents_of(&path)).contains_key(&id));
}

#[test]
fn segments_without_meta_are_refused() {
    let directory = tempfile::tempdir().unwrap();
    several_segments(directory.path());
    std::fs::remove_file(directory.path().join("towline.meta")).unwrap();
    refuses(directory.path(), &["segment-0", "no towline.meta", "restore towline.meta or a backup"]);
}

#[test]
fn damage_to_any_byte_of_meta_is_refused() {
    let directory = tempfile::tempdir().unwrap();
    new_store(directory.path());
    let meta = directory.path().join("towline.meta");
    let whole = std::fs::read(&meta).unwrap();
    for byte in 0..whole.len() {
        let mut bytes = whole.clone();
        bytes[byte] ^= 0x40;
        std::fs::write(&meta, bytes).unwrap();
        assert_says(&refusal(directory.path()), &["towline.meta"]);
    }
    for length in [0, 7, 35] {
        std::fs::write(&meta, &whole[..length]).unwrap();
        refuses(directory.path(), &["towline.meta", "is damaged", "towline doctor", "restore a backup"]);
    }
}

#[test]
fn a_truncated_segment_is_refused() {
    for nth in [0, 1] {
        let directory = tempfile::tempdir().unwrap();
        without_sidecars(directory.path());
        let file = segments(directory.path()).remove(nth);
        let bytes = std::fs::read(&file).unwrap();
        std::fs::write(&file, &bytes[..bytes.len() / 2]).unwrap();
        refuses(directory.path(), &[file_name(&file), "cut short", "towline doctor"]);
    }
}

#[test]
fn a_truncated_newest_segment_is_refused() {
    let directory = tempfile::tempdir().unwrap();
    several_segments(directory.path());
    let file = segments(directory.path()).pop().unwrap();
    let bytes = std::fs::read(&file).unwrap();
    std::fs::write(&file, &bytes[..bytes.len() - 1]).unwrap();
    refuses(directory.path(), &[file_name(&file), "cut short", "towline doctor"]);
}

#[test]
fn a_flipped_bit_in_a_sealed_segment_is_refused() {
    let directory = tempfile::tempdir().unwrap();
    without_sidecars(directory.path());
    let original = files(directory.path());
    let file = segments(directory.path()).remove(1);
    for byte in (4096..50_000).step_by(4561) {
        flip(&file, byte);
        refuses(directory.path(), &[file_name(&file), "at byte", "does not read", "towline doctor"]);
        write_files(directory.path(), &original);
    }
}

#[test]
fn a_flipped_bit_in_the_newest_segment_is_refused() {
    let directory = tempfile::tempdir().unwrap();
    several_segments(directory.path());
    let (file, byte) = find(directory.path(), b"<59>");
    flip(&file, byte);
    refuses(directory.path(), &[file_name(&file), "does not read", "says it was durable", "towline doctor"]);
}

#[test]
fn one_damaged_copy_of_a_segment_header_is_harmless() {
    let directory = tempfile::tempdir().unwrap();
    let ids = several_segments(directory.path());
    let all = segments(directory.path());
    flip(&all[1], 30);
    flip(&all[2], 2048 + 30);
    assert_eq!(blobs(&contents_of(directory.path())).into_keys().collect::<Vec<_>>(), ids);
}

#[test]
fn a_segment_with_two_damaged_header_copies_is_refused() {
    for nth in 0..4 {
        let directory = tempfile::tempdir().unwrap();
        several_segments(directory.path());
        let file = segments(directory.path()).remove(nth);
        flip(&file, 30);
        flip(&file, 2048 + 30);
        refuses(directory.path(), &["segment-0", "towline doctor"]);
    }
}

#[test]
fn a_segment_of_another_store_is_refused_and_not_removed() {
    let (directory, other) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    several_segments(directory.path());
    let foreign = towline_embedded::Options { salt: 99, ..options(64 << 10) };
    drop(Embedded::open(other.path(), foreign, clock()).unwrap());
    let foreign = std::fs::read(segments(other.path()).pop().unwrap()).unwrap();
    let original = files(directory.path());
    let all = segments(directory.path());
    let extra = directory.path().join("segment-00000077.log");
    for file in [&all[0], &all[1], &all[all.len() - 1], &extra] {
        std::fs::write(file, &foreign).unwrap();
        refuses(directory.path(), &[file_name(file), "belongs to another store"]);
        let _ = std::fs::remove_file(file);
        write_files(directory.path(), &original);
    }
}

#[test]
fn a_renamed_segment_is_refused() {
    let directory = tempfile::tempdir().unwrap();
    several_segments(directory.path());
    let file = segments(directory.path()).remove(1);
    std::fs::rename(&file, directory.path().join("segment-00000077.log")).unwrap();
    refuses(directory.path(), &["segment-00000077.log", "under another name", "towline doctor"]);
}

#[test]
fn a_copy_of_a_segment_under_another_name_is_refused() {
    let directory = tempfile::tempdir().unwrap();
    let ids = several_segments(directory.path());
    let file = segments(directory.path()).remove(1);
    std::fs::copy(&file, directory.path().join("segment-00000077.log")).unwrap();
    refuses(directory.path(), &["segment-00000077.log", "under another name"]);
    let report = salvage(directory.path(), &directory.path().join("saved")).unwrap();
    assert_eq!(report.items, ids.len() as u64);
}

#[test]
fn a_missing_segment_is_refused() {
    let (directory, backup) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    several_segments(directory.path());
    restore(directory.path(), backup.path()).unwrap();
    for path in [directory.path(), backup.path()] {
        let original = files(path);
        let all = segments(path);
        for (nth, file) in all.iter().enumerate() {
            std::fs::remove_file(file).unwrap();
            refuses(path, &["segment-0", "is missing", "towline doctor"]);
            assert!(!verify(path).unwrap().is_whole(), "segment {nth}");
            write_files(path, &original);
        }
    }
}

#[test]
fn an_emptied_newest_segment_is_refused() {
    let directory = tempfile::tempdir().unwrap();
    let ids = several_segments(directory.path());
    let saved = tempfile::tempdir().unwrap();
    let original = files(directory.path());
    let mut all = segments(directory.path());
    // One segment, and then all but the oldest.
    for count in 1..all.len() {
        for content in [Vec::new(), vec![0; 100], vec![0; 64 << 10]] {
            for file in all.iter().rev().take(count) {
                std::fs::write(file, &content).unwrap();
            }
            refuses(directory.path(), &["segment-0", "is missing", "towline doctor"]);
            assert!(!verify(directory.path()).unwrap().is_whole());
            write_files(directory.path(), &original);
        }
    }
    std::fs::remove_file(all.pop().unwrap()).unwrap();
    let report = salvage(directory.path(), saved.path()).unwrap();
    assert!(report.items < ids.len() as u64 && !report.findings.is_empty(), "{report:?}");
}

#[test]
fn a_spare_segment_with_frames_and_no_header_is_refused_and_not_overwritten() {
    let directory = tempfile::tempdir().unwrap();
    several_segments(directory.path());
    // As if collection had emptied it, and both copies of its header were damaged then.
    let old = segments(directory.path()).remove(0);
    let mut bytes = std::fs::read(&old).unwrap();
    bytes[..4096].fill(0);
    let spare = directory.path().join("segment-00000077.log");
    std::fs::write(&spare, bytes).unwrap();
    refuses(directory.path(), &["segment-00000077.log", "both copies of its header are damaged", "older"]);
    assert!(!verify(directory.path()).unwrap().is_whole());
    std::fs::remove_file(&spare).unwrap();
    open(directory.path());
}

#[test]
fn a_damaged_stale_foreign_or_missing_sidecar_is_harmless() {
    let directory = tempfile::tempdir().unwrap();
    let ids = several_segments(directory.path());
    let found = sidecars(directory.path());
    assert!(found.len() >= 2, "segments of large items have sidecars");
    let original = files(directory.path());
    let bytes = |file: &PathBuf| std::fs::read(file).unwrap();
    let (first, second) = (bytes(&found[0]), bytes(&found[1]));
    let mut flipped = first.clone();
    flipped[first.len() / 2] ^= 1;
    let mut foreign = first.clone();
    foreign[8] ^= 1;
    let cut = first[..first.len() - 1].to_vec();
    for content in [flipped, foreign, cut, second, Vec::new(), vec![0xff; 100_000]] {
        std::fs::write(&found[0], content).unwrap();
        assert!(verify(directory.path()).unwrap().is_whole());
        assert_eq!(blobs(&contents_of(directory.path())).into_keys().collect::<Vec<_>>(), ids);
        std::fs::remove_dir_all(directory.path()).unwrap();
        write_files(directory.path(), &original);
    }
    remove_sidecars(directory.path());
    assert_eq!(blobs(&contents_of(directory.path())).into_keys().collect::<Vec<_>>(), ids);
}

#[test]
fn a_log_that_was_removed_or_emptied_is_refused() {
    let directory = tempfile::tempdir().unwrap();
    let ids = several_segments(directory.path());
    let original = files(directory.path());
    let logs =
        || original.keys().filter(|name| name.ends_with(".log")).map(|name| directory.path().join(name));
    let damages: [fn(&Path); 3] = [
        |file| std::fs::remove_file(file).unwrap(),
        |file| std::fs::write(file, "").unwrap(),
        |file| std::fs::write(file, vec![0; 64 << 10]).unwrap(),
    ];
    for damage in damages {
        logs().for_each(|file| damage(&file));
        let parts =
            ["towline.meta", "the log is missing or was emptied", "restore the segment files or a backup"];
        refuses(directory.path(), &parts);
        assert!(!verify(directory.path()).unwrap().is_whole());
        write_files(directory.path(), &original);
    }
    assert_eq!(blobs(&contents_of(directory.path())).into_keys().collect::<Vec<_>>(), ids);
}

#[test]
fn a_newest_segment_that_lost_its_header_and_its_first_frames_is_refused() {
    let directory = tempfile::tempdir().unwrap();
    several_segments(directory.path());
    let (newest, at) = find(directory.path(), b"<59>");
    let mut bytes = std::fs::read(&newest).unwrap();
    bytes[..at].fill(0);
    std::fs::write(&newest, bytes).unwrap();
    refuses(
        directory.path(),
        &[file_name(&newest), "both copies of its header are damaged", "towline doctor"],
    );
    assert!(!verify(directory.path()).unwrap().is_whole());
}

#[test]
fn a_segment_of_unreadable_bytes_is_refused_and_not_overwritten() {
    let directory = tempfile::tempdir().unwrap();
    several_segments(directory.path());
    let newest = segments(directory.path()).pop().unwrap();
    std::fs::write(&newest, vec![0xa5; 64 << 10]).unwrap();
    refuses(directory.path(), &[file_name(&newest), "no valid header and no valid frame", "towline doctor"]);
    let findings = verify(directory.path()).unwrap().findings;
    assert!(
        findings.iter().any(|finding| finding.what.contains("no valid header and no valid frame")),
        "{findings:?}"
    );
}

#[test]
fn a_removed_lock_file_does_not_let_a_second_process_in() {
    let directory = tempfile::tempdir().unwrap();
    let store = new_store(directory.path());
    let id = submit(&store, "before");
    std::fs::remove_file(directory.path().join("LOCK")).unwrap();
    assert_says(&refusal(directory.path()), &["is in use by another process"]);
    let verified = verify(directory.path()).unwrap_err().to_string();
    assert_says(&verified, &["is in use by another process"]);
    submit(&store, "after");
    drop(store);
    let found = blobs(&contents_of(directory.path()));
    assert!(found.len() == 2 && found.contains_key(&id));
}

#[test]
fn a_creation_that_was_interrupted_begins_again() {
    let directory = tempfile::tempdir().unwrap();
    let (meta, temporary) =
        (directory.path().join("towline.meta"), directory.path().join("towline.meta.new"));
    // Another creation has another salt.
    let other = towline_embedded::Options { salt: 99, ..options(64 << 10) };
    let disk = RealDisk::new(directory.path()).unwrap();
    drop(Engine::open(Arc::new(disk), other, &*clock()).unwrap());
    std::fs::rename(&meta, &temporary).unwrap();
    let store = new_store(directory.path());
    let id = submit(&store, "kept");
    drop(store);
    assert!(blobs(&contents_of(directory.path())).contains_key(&id));
    // A store that was in use is not taken for one.
    std::fs::rename(&meta, &temporary).unwrap();
    refuses(directory.path(), &["segment-0", "no towline.meta", "restore towline.meta or a backup"]);
}
