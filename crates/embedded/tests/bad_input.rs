//! Directories that are not as they should be, and disks that do not do as they should: each is refused by name, with
//! a remedy, and nothing is made worse.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::print_stdout, reason = "tests")]

mod rig;

use futures::executor::block_on;
use rig::*;
use std::path::{Path, PathBuf};
use std::process::Command;
use tempfile::TempDir;
use towline_domain::ItemId;
use towline_embedded::{BackupError, Embedded, salvage, verify};
use towline_store::{Store, StoreError};

/// A store of at least four segments, closed; the first half of its items is in sealed ones.
fn several_segments(path: &Path) -> Vec<ItemId> {
    let store = made(path);
    let ids = (0..60).map(|nth| submit(&store, format!("<{nth}>{}", "x".repeat(4000)))).collect();
    drop(store);
    assert!(segments(path).len() >= 4);
    ids
}

/// As above, without the caches that would spare opening from reading the segments.
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

fn file_name(path: &Path) -> &str {
    path.file_name().unwrap().to_str().unwrap()
}

/// Opening refuses and says this, and leaves every file as it was.
#[track_caller]
fn refuses(path: &Path, parts: &[&str]) {
    let before = files(path);
    assert_says(&refusal(path), parts);
    assert_eq!(files(path), before, "a refused store was changed");
}

// ---- the directory

#[test]
fn a_directory_of_a_newer_format_is_refused() {
    let directory = tempfile::tempdir().unwrap();
    several_segments(directory.path());
    let meta = directory.path().join("towline.meta");
    let mut bytes = std::fs::read(&meta).unwrap();
    bytes[8] = 2;
    bytes.extend_from_slice(b"what a newer version may add");
    std::fs::write(&meta, bytes).unwrap();
    refuses(directory.path(), &["towline.meta", "format 2", "reads up to 1", "use a newer towline"]);
    let refused = verify(directory.path()).unwrap_err().to_string();
    assert_says(&refused, &["format 2"]);
}

#[test]
fn a_directory_in_use_is_refused_in_the_same_process() {
    let directory = tempfile::tempdir().unwrap();
    let store = made(directory.path());
    assert_says(&refusal(directory.path()), &["is in use by another process", "stop it"]);
    drop(store);
    open(directory.path());
}

const OPEN_IT: &str = "TOWLINE_TEST_OPEN";

/// Not a test by itself: what the next one runs in another process.
#[test]
fn helper_that_opens_a_directory() {
    if let Some(path) = std::env::var_os(OPEN_IT) {
        println!("answer: {}", refusal(Path::new(&path)));
    }
}

#[test]
fn a_directory_in_use_is_refused_in_another_process() {
    let directory = tempfile::tempdir().unwrap();
    let _store = made(directory.path());
    let output = Command::new(std::env::current_exe().unwrap())
        .args(["helper_that_opens_a_directory", "--exact", "--nocapture"])
        .env(OPEN_IT, directory.path())
        .output()
        .unwrap();
    assert!(output.status.success(), "{output:?}");
    assert_says(&String::from_utf8_lossy(&output.stdout), &["answer: ", "is in use by another process"]);
}

#[test]
fn a_path_through_a_file_cannot_be_made() {
    let directory = tempfile::tempdir().unwrap();
    std::fs::write(directory.path().join("file"), "").unwrap();
    let message = refusal(&directory.path().join("file/store"));
    assert_says(&message, &["file/store", "choose a directory that can be made and written"]);
}

#[test]
fn a_read_only_file_system_is_named_and_can_still_be_verified() {
    let Some(mount) = Tmpfs::mount("8m") else { return };
    let path = mount.path().join("store");
    let id = submit(&made(&path), "kept");
    if !mount.remount("ro") {
        return;
    }
    assert_says(&refusal(&path), &["store/LOCK", "Read-only", "mount the file system writable"]);
    assert!(verify(&path).unwrap().is_whole());
    assert!(mount.remount("rw"));
    assert!(blobs(&all_in(&path)).contains_key(&id));
}

// ---- meta

#[test]
fn segments_without_meta_are_refused() {
    let directory = tempfile::tempdir().unwrap();
    several_segments(directory.path());
    std::fs::remove_file(directory.path().join("towline.meta")).unwrap();
    refuses(directory.path(), &["segment-0", "no towline.meta", "restore towline.meta or a backup"]);
}

#[test]
fn damaged_meta_is_refused_whichever_byte_it_is() {
    let directory = tempfile::tempdir().unwrap();
    made(directory.path());
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

// ---- segments

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
fn the_newest_segment_truncated_is_refused() {
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
fn one_damaged_copy_of_a_header_does_no_harm() {
    let directory = tempfile::tempdir().unwrap();
    let ids = several_segments(directory.path());
    let all = segments(directory.path());
    flip(&all[1], 30);
    flip(&all[2], 2048 + 30);
    assert_eq!(blobs(&all_in(directory.path())).into_keys().collect::<Vec<_>>(), ids);
}

#[test]
fn a_header_of_which_both_copies_are_damaged_is_refused() {
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
    let directory = tempfile::tempdir().unwrap();
    several_segments(directory.path());
    let original = files(directory.path());
    let all = segments(directory.path());
    for file in &all[..all.len() - 1] {
        std::fs::remove_file(file).unwrap();
        refuses(directory.path(), &["segment-0", "is missing", "towline doctor"]);
        write_files(directory.path(), &original);
    }
}

// ---- sidecars

#[test]
fn a_damaged_stale_foreign_or_missing_sidecar_changes_nothing() {
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
        assert_eq!(blobs(&all_in(directory.path())).into_keys().collect::<Vec<_>>(), ids);
        std::fs::remove_dir_all(directory.path()).unwrap();
        write_files(directory.path(), &original);
    }
    remove_sidecars(directory.path());
    assert_eq!(blobs(&all_in(directory.path())).into_keys().collect::<Vec<_>>(), ids);
}

// ---- a full disk

/// A small file system of its own, if this process may mount one.
struct Tmpfs(TempDir);

impl Tmpfs {
    fn mount(size: &str) -> Option<Tmpfs> {
        let directory = tempfile::tempdir().unwrap();
        let options = format!("size={size}");
        let mounted = Command::new("mount")
            .args(["-t", "tmpfs", "-o", &options, "tmpfs"])
            .arg(directory.path())
            .output();
        match mounted {
            Ok(output) if output.status.success() => Some(Tmpfs(directory)),
            other => {
                println!("skipped: a tmpfs cannot be mounted here: {other:?}");
                None
            }
        }
    }

    fn path(&self) -> &Path {
        self.0.path()
    }

    fn remount(&self, how: &str) -> bool {
        let options = format!("remount,{how}");
        let done = Command::new("mount").args(["-o", &options]).arg(self.path()).output();
        done.is_ok_and(|output| output.status.success())
    }
}

impl Drop for Tmpfs {
    fn drop(&mut self) {
        let _ = Command::new("umount").arg("-l").arg(self.path()).output();
    }
}

/// Writes until there is no space left.
fn fill(file: &Path) {
    use std::io::Write;
    let mut file = std::fs::File::create(file).unwrap();
    while file.write_all(&[1; 4096]).is_ok() {}
}

fn open_large(path: &Path) -> Embedded {
    Embedded::open(path, options(4 << 20), clock()).expect("the store opens")
}

#[test]
fn a_full_disk_refuses_submits_and_nothing_else() {
    let Some(mount) = Tmpfs::mount("24m") else { return };
    let path = mount.path().join("store");
    let ballast = mount.path().join("ballast");
    std::fs::write(&ballast, vec![1; 6 << 20]).unwrap();
    let store = open_large(&path);
    run(&store, create("jobs")).unwrap();
    let mut ids = Vec::new();
    let refused = loop {
        let answered = run(&store, submit_to("jobs", payload(vec![7; 20_000])));
        if answered.is_err() {
            break answered;
        }
        ids.push(submitted(answered));
        assert!(ids.len() < 2000, "24 MiB never fill up");
    };
    assert!(is_disk_full(&refused), "{refused:?}");
    assert_says(&refused.unwrap_err().to_string(), &["no space left", "store", "free some", "try again"]);
    assert!(block_on(store.status()).unwrap().full.is_some());

    // Reading and ending items go on.
    assert_eq!(all(&store).items.len(), ids.len());
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
    let shown = all(&store);
    assert_eq!(shown.items.iter().map(|stored| stored.item.head.id).collect::<Vec<_>>(), ids);
    assert_eq!(shown.queues[0].counts.completed, 10);
}

#[test]
fn a_disk_full_of_finished_work_frees_itself() {
    let Some(mount) = Tmpfs::mount("24m") else { return };
    let path = mount.path().join("store");
    let store = open_large(&path);
    run(&store, create("jobs")).unwrap();
    let mut ids = Vec::new();
    while let answered = run(&store, submit_to("jobs", payload(vec![7; 20_000])))
        && answered.is_ok()
    {
        ids.push(submitted(answered));
    }
    for id in ids {
        run(&store, delete(id)).unwrap();
    }
    // Collection works beside requests and between them.
    until("there is room again", || run(&store, submit_to("jobs", payload("again"))).is_ok());
    let status = block_on(store.status()).unwrap();
    drop(store);
    assert_eq!(all(&open_large(&path)).items.len(), 1, "{status:?}");
}

#[test]
fn items_too_large_for_what_is_left_of_a_segment_are_refused_on_a_full_disk_without_poison() {
    let Some(mount) = Tmpfs::mount("24m") else { return };
    let path = mount.path().join("store");
    let store = open_large(&path);
    run(&store, create("jobs")).unwrap();
    let ballast = mount.path().join("ballast");
    // Leaves no room for another segment, while this one is nearly empty.
    fill(&ballast);
    submit(&store, vec![1; 1 << 20]);
    let refused = run(&store, submit_to("jobs", payload(vec![2; 3 << 20])));
    assert!(is_disk_full(&refused), "{refused:?}");
    submit(&store, vec![3; 1 << 20]);
    std::fs::remove_file(&ballast).unwrap();
    submit(&store, vec![2; 3 << 20]);
    assert_eq!(all(&store).items.len(), 3);
}

#[test]
fn a_large_receive_on_a_full_disk_gives_what_it_can() {
    let Some(mount) = Tmpfs::mount("13m") else { return };
    let store = open_large(&mount.path().join("store"));
    run(&store, create("jobs")).unwrap();
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
    assert!(!all(&store).items.is_empty());
}

/// The segment's room is reserved, so this takes a file system that cannot, or somebody who takes it away.
#[test]
fn a_write_that_fails_poisons_until_the_store_is_opened_again() {
    let Some(mount) = Tmpfs::mount("12m") else { return };
    let (path, ballast) = (mount.path().join("store"), mount.path().join("ballast"));
    let store = open_large(&path);
    run(&store, create("jobs")).unwrap();
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
    // What the disk holds now nobody knows: only opening finds out.
    assert!(matches!(try_run(&store, submission()), Err(StoreError::Poisoned { .. })));
    assert!(matches!(store.backup(&mount.path().join("backup")), Err(BackupError::Store(_))));
    drop(store);
    let store = open_large(&path);
    assert!(blobs(&all(&store)).contains_key(&id));
    run(&store, submission()).unwrap();
}

#[test]
fn opening_on_a_full_disk_takes_the_segment_kept_for_it() {
    let Some(mount) = Tmpfs::mount("24m") else { return };
    let path = mount.path().join("store");
    let store = open_large(&path);
    run(&store, create("jobs")).unwrap();
    let id = submit(&store, "kept");
    drop(store);
    fill(&mount.path().join("ballast"));
    let store = open_large(&path);
    assert!(blobs(&all(&store)).contains_key(&id));
    run(&store, delete(id)).unwrap();
}

#[test]
fn opening_on_a_full_disk_without_a_segment_to_go_on_in_says_so_and_loses_nothing() {
    let Some(mount) = Tmpfs::mount("24m") else { return };
    let path = mount.path().join("store");
    let store = open_large(&path);
    run(&store, create("jobs")).unwrap();
    let id = submit(&store, "kept");
    drop(store);
    let used = segments(&path);
    let logs = files(&path).into_keys().filter(|name| name.ends_with(".log"));
    for spare in logs.map(|name| path.join(name)).filter(|file| !used.contains(file)) {
        std::fs::remove_file(spare).unwrap();
    }
    let ballast = mount.path().join("ballast");
    fill(&ballast);
    let refused = Embedded::open(&path, options(4 << 20), clock()).unwrap_err().to_string();
    assert_says(&refused, &["a new segment", "free some space", "nothing acknowledged is lost"]);
    std::fs::remove_file(&ballast).unwrap();
    assert!(blobs(&all(&open_large(&path))).contains_key(&id));
}

#[test]
fn an_item_larger_than_the_rest_of_a_segment_goes_into_the_next() {
    let directory = tempfile::tempdir().unwrap();
    let store = open_large(directory.path());
    run(&store, create("jobs")).unwrap();
    let sizes = [1 << 20, 3 << 20, 100, 3 << 20, 3 << 20];
    for size in sizes {
        submit(&store, vec![1; size]);
    }
    drop(store);
    assert_eq!(all(&open_large(directory.path())).items.len(), sizes.len());
}
