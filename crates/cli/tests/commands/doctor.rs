//! `towline doctor`.

use crate::rig::{Run, Server, towline};
use std::path::{Path, PathBuf};

fn doctor(data: &Path, more: &[&str]) -> Run {
    Run::of(towline(&["doctor", "--data"]).arg(data).args(more))
}

/// A store with 200 items in one queue.
fn stored() -> (Server, PathBuf) {
    let mut server = Server::start();
    server.ok(&["queue", "create", "jobs"]);
    let items: String = (0..200).map(|n| format!("{{\"params\":{{\"n\":{n}}}}}\n")).collect();
    server.feed(&["queue", "submit", "jobs", "--bulk"], &items).ok(&["submit"]);
    let data = server.directory().join("data");
    assert!(doctor(&data, &[]).stderr.contains("in use"), "a server uses the store");
    assert!(server.stop().success());
    (server, data)
}

/// Flips a bit in the middle of the first frame that holds items.
fn damage(data: &Path) {
    let files = std::fs::read_dir(data).unwrap().map(|entry| entry.unwrap().path());
    let segments = files.filter(|path| path.extension().is_some_and(|kind| kind == "log"));
    // A segment that waits for its turn is blank.
    let used = segments.map(|path| (std::fs::read(&path).unwrap().iter().rposition(|byte| *byte != 0), path));
    let (end, segment) = used.max().unwrap();
    let mut bytes = std::fs::read(&segment).unwrap();
    bytes[end.unwrap() / 2] ^= 1;
    std::fs::write(&segment, bytes).unwrap();
    // Without sidecars the log itself must be read.
    for entry in std::fs::read_dir(data).unwrap().map(|entry| entry.unwrap().path()) {
        if entry.extension().is_some_and(|kind| kind == "idx") {
            std::fs::remove_file(entry).unwrap();
        }
    }
}

#[test]
fn an_intact_store_is_confirmed_and_unchanged() {
    let (mut server, data) = stored();
    let run = doctor(&data, &[]);
    assert_eq!(run.code, Some(0), "{run:?}");
    assert!(run.stdout.ends_with("the store is intact\n"), "{run:?}");
    let json: serde_json::Value = serde_json::from_str(&doctor(&data, &["-o", "json"]).stdout).unwrap();
    assert_eq!((&json["whole"], json["findings"].as_array().map(Vec::len)), (&true.into(), Some(0)));
    server.restart();
    assert_eq!(server.json(&["queue", "counts", "jobs"])["pending"], 200);
}

#[test]
fn damage_is_named_and_the_intact_items_are_salvaged() {
    let (_server, data) = stored();
    damage(&data);
    let run = doctor(&data, &[]);
    assert_eq!(run.code, Some(1), "{run:?}");
    assert!(run.stdout.contains(".log at byte "), "{run:?}");
    assert!(run.stdout.contains("--salvage"), "the remedy: {run:?}");
    let target = data.with_file_name("saved");
    let saved = doctor(&data, &["--salvage", target.to_str().unwrap(), "-o", "json"]);
    assert_eq!(saved.code, Some(0), "{saved:?}");
    let json: serde_json::Value = serde_json::from_str(&saved.stdout).unwrap();
    let items = json["salvaged"]["items"].as_u64().unwrap();
    assert!((1..=200).contains(&items), "{json}");
    assert_eq!(doctor(&target, &[]).code, Some(0), "the saved store is intact");
    let again = doctor(&data, &["--salvage", target.to_str().unwrap()]);
    assert_eq!(again.code, Some(1), "{again:?}");
    assert!(again.stderr.contains("not empty"), "{again:?}");
}

/// Writes a buffer and an offloaded payload, and stops the server. Returns the files with their bytes.
fn stored_with_objects() -> (Server, PathBuf) {
    let mut server = Server::start();
    server.ok(&["queue", "create", "jobs"]);
    let buffer = server.ok(&["buffer", "create"]);
    server.feed(&["buffer", "write", &buffer], "the content of a buffer").ok(&["buffer"]);
    let large = server.directory().join("large");
    std::fs::write(&large, (0..40_000).map(|n| format!("{:x}", n * 7919)).collect::<String>()).unwrap();
    server.ok(&["queue", "submit", "jobs", "--payload-file", large.to_str().unwrap()]);
    assert!(server.stop().success());
    let data = server.directory().join("data");
    (server, data)
}

/// The first file whose path contains this.
fn file_below(directory: &Path, part: &str) -> PathBuf {
    let mut left = vec![directory.to_owned()];
    while let Some(at) = left.pop() {
        if at.is_dir() {
            left.extend(std::fs::read_dir(&at).unwrap().map(|entry| entry.unwrap().path()));
        } else if at.to_str().unwrap().contains(part) {
            return at;
        }
    }
    panic!("no file with {part:?} below {}", directory.display());
}

fn flip_last_byte(path: &Path) {
    let mut bytes = std::fs::read(path).unwrap();
    *bytes.last_mut().unwrap() ^= 1;
    std::fs::write(path, bytes).unwrap();
}

#[test]
fn damaged_buffers_and_offloaded_payloads_are_found() {
    let (_server, data) = stored_with_objects();
    let intact = doctor(&data, &[]);
    assert_eq!(intact.code, Some(0), "{intact:?}");
    assert!(intact.stdout.contains("read 1 buffers, 1 offloaded payloads"), "{intact:?}");
    for part in ["/c/0000", "/fields/"] {
        let file = file_below(&data, part);
        flip_last_byte(&file);
        let run = doctor(&data, &[]);
        assert_eq!(run.code, Some(1), "{part}: {run:?}");
        assert!(
            run.stdout.contains("data/buffers: ") && run.stdout.contains("objects are damaged"),
            "{run:?}"
        );
        let json: serde_json::Value = serde_json::from_str(&doctor(&data, &["-o", "json"]).stdout).unwrap();
        assert_eq!((&json["whole"], &json["buffers"]["checked"]["damaged"]), (&false.into(), &1.into()));
        flip_last_byte(&file);
    }
    assert_eq!(doctor(&data, &[]).code, Some(0));
}

#[test]
fn a_backup_is_compared_with_its_list() {
    let (server, data) = stored_with_objects();
    let backup = server.directory().join("backup");
    Run::of(towline(&["backup", "--data"]).arg(&data).arg(&backup)).ok(&["backup"]);
    let intact = doctor(&backup, &[]);
    assert_eq!(intact.code, Some(0), "{intact:?}");
    assert!(intact.stdout.contains("towline.backup: compared "), "{intact:?}");
    // No check of the log or of an object covers this file.
    let owner = backup.join("buffers/owner");
    let bytes = std::fs::read(&owner).unwrap();
    std::fs::write(&owner, [&bytes[..], b" "].concat()).unwrap();
    let run = doctor(&backup, &[]);
    assert_eq!(run.code, Some(1), "{run:?}");
    assert!(run.stdout.contains("buffers/owner: it is not the file that was backed up"), "{run:?}");
    std::fs::write(&owner, bytes).unwrap();
    std::fs::remove_file(file_below(&backup, "/c/0000")).unwrap();
    let run = doctor(&backup, &[]);
    assert!(run.code == Some(1) && run.stdout.contains("is missing"), "{run:?}");
    let list = backup.join("towline.backup");
    let lines = std::fs::read_to_string(&list).unwrap();
    std::fs::write(&list, lines.lines().take(2).map(|line| format!("{line}\n")).collect::<String>()).unwrap();
    let run = doctor(&backup, &[]);
    assert!(run.code == Some(1) && run.stdout.contains("cut short"), "{run:?}");
}

#[test]
fn a_directory_that_does_not_exist_is_refused() {
    let directory = tempfile::tempdir().unwrap();
    let run = doctor(&directory.path().join("absent"), &[]);
    assert_eq!(run.code, Some(1), "{run:?}");
    assert!(run.stderr.contains("give a directory that exists"), "{run:?}");
    let database = Run::of(towline(&["doctor"]).env("TOWLINE_STORE", "postgres://nowhere/nothing"));
    assert_eq!(database.code, Some(2), "{database:?}");
    assert!(database.stderr.contains("embedded store"), "{database:?}");
}
