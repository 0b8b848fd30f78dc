//! `towline backup` and `towline restore`.

use crate::faulty_proxy::{End, FaultyProxy};
use crate::rig::{Run, Server, piped, signal, towline, until};
use crate::tmpfs::Tmpfs;
use rustix::process::Signal;
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

const UNFINISHED: &str = "towline.meta.incomplete";

/// Collects at once what no item names, so that a backup that does not pause it loses objects.
const SETTINGS: [(&str, &str); 3] =
    [("TOWLINE_COLLECTION_INTERVAL", "100ms"), ("TOWLINE_COLLECTION_GRACE", "1s"), ("TOWLINE_DRAIN", "1s")];

fn backup(server: &Server, out: &Path) -> Command {
    let mut command = server.command(&["backup"]);
    command.arg(out);
    command
}

fn backup_of(data: &Path, out: &Path) -> Run {
    Run::of(towline(&["backup"]).arg(out).arg("--data").arg(data))
}

fn restore(backup: &Path, data: &Path) -> Run {
    Run::of(&mut restoring(backup, data))
}

fn restoring(backup: &Path, data: &Path) -> Command {
    let mut command = towline(&["restore"]);
    command.arg(backup).arg("--data").arg(data);
    command
}

/// A payload that is offloaded.
fn large(seed: usize) -> String {
    (0..20_000).map(|n| format!("{:x}", n * 7919 + seed)).collect()
}

fn submit_large(server: &Server, seed: usize) -> String {
    let file = server.directory().join(format!("payload-{seed}"));
    std::fs::write(&file, large(seed)).unwrap();
    server.ok(&["queue", "submit", "jobs", "--payload-file", file.to_str().unwrap()])
}

/// A server with items that have offloaded payloads and committed outputs.
fn filled() -> Server {
    let server = Server::start_with(&SETTINGS);
    server.ok(&["queue", "create", "jobs", "--output", "result"]);
    for seed in 0..4 {
        submit_large(&server, seed);
    }
    for nth in 0..2 {
        let answer = server.json(&["queue", "receive", "jobs", "--create-output-buffers"]);
        let text = |value: &serde_json::Value| value.as_str().unwrap().to_owned();
        let item = &answer["items"][0];
        let (id, lease, output) = (text(&item["id"]), text(&item["lease"]), text(&item["outputs"]["result"]));
        let write = ["buffer", "write", &output];
        server.feed(&write, &format!("result {nth}")).ok(&write);
        server.ok(&["item", "commit", &id, "--lease", &lease]);
    }
    server
}

/// Every item with its payloads and the content of its outputs.
fn contents(server: &Server) -> BTreeMap<String, (serde_json::Value, Vec<String>)> {
    let listed = server.json(&["queue", "item", "list", "jobs", "-o", "json"]);
    let ids = listed.as_array().unwrap().iter().map(|item| item["id"].as_str().unwrap().to_owned());
    let content = |id: String| {
        let item = server.json(&["item", "show", &id, "-o", "json"]);
        let outputs = item["outputs"].as_object().into_iter().flatten();
        let is_done = item["state"] == "completed";
        let outputs =
            outputs.filter(|_| is_done).map(|(_, id)| server.ok(&["buffer", "read", id.as_str().unwrap()]));
        let outputs = outputs.collect();
        (id, (item, outputs))
    };
    ids.map(content).collect()
}

/// A server on this data directory.
fn serve(data: &Path) -> Server {
    Server::start_prepared(|directory| {
        std::os::unix::fs::symlink(data, directory.join("data")).unwrap();
        Vec::new()
    })
}

fn files(directory: &Path) -> BTreeMap<PathBuf, Vec<u8>> {
    let mut found = BTreeMap::new();
    let mut open = vec![directory.to_owned()];
    while let Some(directory) = open.pop() {
        for entry in std::fs::read_dir(&directory).unwrap().map(Result::unwrap) {
            match entry.file_type().unwrap().is_dir() {
                true => open.push(entry.path()),
                false => drop(found.insert(entry.path(), std::fs::read(entry.path()).unwrap())),
            }
        }
    }
    found
}

#[test]
fn a_backup_under_load_has_every_item_with_its_objects() {
    let server = filled();
    let before = contents(&server);
    let (out, data) = (server.directory().join("out"), server.directory().join("restored"));
    let (stop, submitted) = (AtomicBool::new(false), AtomicUsize::new(0));
    let so_far = || submitted.load(Ordering::Relaxed);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            while !stop.load(Ordering::Relaxed) {
                let id = submit_large(&server, 100 + so_far());
                if so_far() % 2 == 0 {
                    server.ok(&["item", "delete", &id]);
                }
                submitted.fetch_add(1, Ordering::Relaxed);
            }
        });
        // The first backup competes with the first submits, the second one comes after some.
        for (out, at_least) in [(out.with_extension("first"), 0), (out.clone(), 6)] {
            until("items are submitted", || so_far() >= at_least);
            let copied = Run::of(&mut backup(&server, &out));
            if copied.code != Some(0) {
                stop.store(true, Ordering::Relaxed);
                panic!("{copied:?}");
            }
        }
        stop.store(true, Ordering::Relaxed);
    });
    let after = contents(&server);
    let restored = restore(&out, &data);
    assert_eq!(restored.code, Some(0), "{restored:?}");
    let verified = Run::of(towline(&["doctor", "--data"]).arg(&data));
    assert!(verified.ok(&["doctor"]).ends_with("the store is intact"));

    // The restored store has the identity of the original, so its buffers belong to it.
    let copy = serve(&data);
    let copied = contents(&copy);
    for (id, content) in &before {
        assert_eq!(&copied[id], content);
    }
    assert!(copied.len() >= before.len() + 3, "{}", copied.len());
    for (id, content) in &copied {
        // An item that was deleted after the backup is in it with its payload.
        assert!(after.get(id).is_none_or(|now| now == content));
        assert!(content.0["payload"].as_str().is_some_and(|payload| payload.len() > 64 << 10));
    }
    let (id, _) = copy.receive(&["jobs"]);
    assert!(copied.contains_key(&id));
}

#[test]
fn a_stopped_store_is_backed_up_and_restored_byte_for_byte() {
    let mut server = filled();
    let before = contents(&server);
    let (data, out) = (server.directory().join("data"), server.directory().join("out"));
    let in_use = backup_of(&data, &out);
    assert_eq!(in_use.code, Some(1), "{in_use:?}");
    assert!(in_use.stderr.contains("in use"), "{in_use:?}");
    assert!(!out.exists());
    assert!(server.stop().success());
    backup_of(&data, &out).ok(&["backup"]);
    let target = server.directory().join("restored");
    restore(&out, &target).ok(&["restore"]);
    let mut kept = files(&out);
    kept.remove(&out.join("towline.backup"));
    let relative = |all: BTreeMap<PathBuf, Vec<u8>>, root: &Path| -> BTreeMap<PathBuf, Vec<u8>> {
        all.into_iter().map(|(path, bytes)| (path.strip_prefix(root).unwrap().to_owned(), bytes)).collect()
    };
    assert_eq!(relative(files(&target), &target), relative(kept, &out));
    assert_eq!(contents(&serve(&target)), before);
    // A backup can also be served as it is.
    assert_eq!(contents(&serve(&out)), before);
}

#[test]
fn nothing_is_written_over() {
    let mut server = filled();
    let (data, out) = (server.directory().join("data"), server.directory().join("out"));
    std::fs::create_dir(&out).unwrap();
    std::fs::write(out.join("precious"), "bytes").unwrap();
    let online = Run::of(&mut backup(&server, &out));
    server.stop();
    let whole = server.directory().join("whole");
    backup_of(&data, &whole).ok(&["backup"]);
    let again = restore(&whole, &whole);
    for refused in [online, backup_of(&data, &out), restore(&whole, &out), restore(&whole, &data), again] {
        assert_eq!(refused.code, Some(1), "{refused:?}");
        assert!(refused.stderr.contains("is not empty"), "{refused:?}");
    }
    assert_eq!(files(&out).len(), 1);
    let nowhere = backup_of(&out.join("nowhere"), &server.directory().join("new"));
    assert!(nowhere.code == Some(1) && nowhere.stderr.contains("--data"), "{nowhere:?}");
    let mut elsewhere = towline(&["backup", "--buffers", "/nowhere"]);
    let elsewhere = Run::of(elsewhere.arg(server.directory().join("new")).arg("--data").arg(&data));
    assert!(elsewhere.code == Some(1) && elsewhere.stderr.contains("with --buffers"), "{elsewhere:?}");
    let no_backup = restore(&out, &server.directory().join("new"));
    assert!(no_backup.stderr.contains("is not a backup"), "{no_backup:?}");
    assert!(!server.directory().join("new").exists());
}

#[test]
fn damage_in_a_backup_is_found_and_leaves_no_store() {
    let mut server = filled();
    let (data, out) = (server.directory().join("data"), server.directory().join("out"));
    server.stop();
    backup_of(&data, &out).ok(&["backup"]);
    let target = server.directory().join("restored");
    let refuse = |words: &str| {
        let refused = restore(&out, &target);
        assert_eq!(refused.code, Some(1), "{refused:?}");
        assert!(refused.stderr.contains("damaged") && refused.stderr.contains(words), "{words}: {refused:?}");
        assert!(!target.exists());
    };
    for (path, bytes) in files(&out).into_iter().filter(|(path, _)| !path.ends_with("towline.backup")) {
        let mut wrong = bytes.clone();
        let middle = wrong.len() / 2;
        if let Some(byte) = wrong.get_mut(middle) {
            *byte ^= 1;
            std::fs::write(&path, wrong).unwrap();
            refuse("is not the file that was backed up");
        }
        std::fs::write(&path, [&bytes[..], b"more"].concat()).unwrap();
        refuse("is not the file that was backed up");
        std::fs::write(&path, bytes).unwrap();
    }
    let list = out.join("towline.backup");
    let whole = std::fs::read_to_string(&list).unwrap();
    let lines: Vec<&str> = whole.lines().collect();
    for (cut, words) in [
        (lines[..lines.len() - 1].join("\n"), "cut short"),
        ([&lines[..2], &lines[lines.len() - 1..]].concat().join("\n"), "lacks lines"),
        (whole.replacen("towline.meta", "../escaped", 1), "is not the name of a file"),
        (whole.replacen("buffers/owner", "buffers/gone", 1), "buffers/gone is missing"),
        (lines[1..].join("\n"), "no header"),
    ] {
        std::fs::write(&list, cut).unwrap();
        refuse(words);
    }
    std::fs::write(&list, whole).unwrap();
    restore(&out, &target).ok(&["restore"]);
}

#[test]
fn a_killed_backup_is_no_store_and_the_next_one_starts_again() {
    let mut server = filled();
    let (out, data) = (server.directory().join("out"), server.directory().join("data"));
    let stalled = FaultyProxy::to(server.address(), |_| End::Stall(100_000));
    let mut child = piped(towline(&["backup"]).arg(&out).args(["--url", stalled.url()])).spawn().unwrap();
    until("the backup has begun", || out.join(UNFINISHED).exists());
    let second = Run::of(towline(&["backup"]).arg(&out).args(["--url", &server.url()]));
    assert_eq!(second.code, Some(1), "{second:?}");
    assert!(second.stderr.contains("another backup"), "{second:?}");
    child.kill().unwrap();
    child.wait().unwrap();
    assert!(out.join(UNFINISHED).exists());
    let serving = Run::of(towline(&["serve", "--listen", "127.0.0.1:0", "--data"]).arg(&out));
    assert_eq!(serving.code, Some(1), "{serving:?}");
    assert!(serving.stderr.contains("did not finish"), "{serving:?}");
    // The server notices that the client has gone, and allows the next backup.
    until("another backup is possible", || Run::of(&mut backup(&server, &out)).code == Some(0));

    // A restore that waits for a file is killed.
    let pipe = server.directory().join("aside");
    let segment =
        files(&out).into_keys().find(|path| path.extension().is_some_and(|kind| kind == "log")).unwrap();
    std::fs::rename(&segment, &pipe).unwrap();
    assert!(Command::new("mkfifo").arg(&segment).status().unwrap().success());
    let target = server.directory().join("restored");
    let mut child = piped(&mut restoring(&out, &target)).spawn().unwrap();
    until("the restore has begun", || target.join(UNFINISHED).exists());
    child.kill().unwrap();
    child.wait().unwrap();
    std::fs::remove_file(&segment).unwrap();
    std::fs::rename(&pipe, &segment).unwrap();
    restore(&out, &target).ok(&["restore"]);
    let before = contents(&server);
    server.stop();
    assert!(data.exists());
    assert_eq!(contents(&serve(&target)), before);
}

#[test]
fn a_backup_that_is_cut_or_interrupted_leaves_nothing() {
    let mut server = filled();
    let out = server.directory().join("out");
    let stalled = FaultyProxy::to(server.address(), |_| End::Stall(100_000));
    let child = piped(towline(&["backup"]).arg(&out).args(["--url", stalled.url()])).spawn().unwrap();
    until("the backup has begun", || out.join(UNFINISHED).exists());
    let cut = FaultyProxy::to(server.address(), |_| End::Cut(100_000));
    let cut_out = server.directory().join("cut");
    // One at a time: the first one ends with its client.
    let pid = child.id();
    signal(pid, Signal::TERM);
    let interrupted = Run::end(child);
    assert!(interrupted.code == Some(1) && interrupted.stderr.contains("interrupted"), "{interrupted:?}");
    assert!(!out.exists());
    let mut broken = String::new();
    until("the server takes the next backup", || {
        let run = Run::of(towline(&["backup"]).arg(&cut_out).args(["--url", cut.url()]));
        assert_eq!(run.code, Some(1), "{run:?}");
        broken = run.stderr;
        !broken.contains("another backup")
    });
    assert!(broken.contains("run the command again"), "{broken}");
    assert!(!cut_out.exists());
    // A client that reads nothing does not keep the server from stopping.
    let child = piped(towline(&["backup"]).arg(&out).args(["--url", stalled.url()])).spawn().unwrap();
    until("the backup has begun", || out.join(UNFINISHED).exists());
    assert!(server.stop().success());
    signal(child.id(), Signal::TERM);
    assert_eq!(Run::end(child).code, Some(1));
    let away = Run::of(&mut backup(&server, &out));
    assert_eq!(away.code, Some(3), "{away:?}");
    server.restart();
    Run::of(&mut backup(&server, &out)).ok(&["backup"]);
}

#[test]
fn a_full_disk_is_named_and_nothing_is_left_on_it() {
    let Some(disk) = Tmpfs::mount("300k") else { return };
    let mut server = filled();
    let out = disk.path().join("out");
    let online = Run::of(&mut backup(&server, &out));
    server.stop();
    let (data, whole) = (server.directory().join("data"), server.directory().join("whole"));
    backup_of(&data, &whole).ok(&["backup"]);
    for refused in [online, backup_of(&data, &out), restore(&whole, &out)] {
        assert_eq!(refused.code, Some(1), "{refused:?}");
        assert!(refused.stderr.contains("free some space"), "{refused:?}");
        assert!(!out.exists());
    }
}

#[test]
fn a_backup_needs_an_admin_and_a_store_in_files() {
    let (server, admin) = Server::start_asking(|_| Vec::new());
    let out = server.directory().join("out");
    let none = Run::of(&mut backup(&server, &out));
    assert!(none.code == Some(1) && !out.exists(), "{none:?}");
    let mut create = server.command(&["token", "create", "reader", "--scope", "queue:*:admin"]);
    let reader = Run::of(create.env("TOWLINE_TOKEN", &admin)).ok(&["token"]);
    let reading = Run::of(backup(&server, &out).env("TOWLINE_TOKEN", &reader));
    assert!(reading.code == Some(1) && reading.stderr.contains("admin"), "{reading:?}");
    let json = Run::of(backup(&server, &out).env("TOWLINE_TOKEN", &admin).args(["-o", "json"]));
    let shown: serde_json::Value = serde_json::from_str(&json.ok(&["backup"])).unwrap();
    assert!(shown["files"].as_u64().unwrap() > 2 && shown["bytes"].as_u64().unwrap() > 4096, "{shown}");
    let database = Run::of(towline(&["backup", "--store", "postgres://nowhere/nothing"]).arg(out.join("x")));
    assert!(database.code == Some(1) && database.stderr.contains("pg_dump"), "{database:?}");
    let elsewhere = towline(&["backup", "--buffers", "s3://bucket"]).arg(out.join("x")).output().unwrap();
    assert_eq!(elsewhere.status.code(), Some(2));
}

#[test]
fn buffers_in_a_bucket_are_not_part_of_a_backup_which_says_so() {
    let mut server = Server::start();
    server.ok(&["queue", "create", "jobs"]);
    server.stop();
    let (data, out) = (server.directory().join("data"), server.directory().join("out"));
    let place = "s3://bucket/queue";
    let copied = Run::of(towline(&["backup", "--buffers", place]).arg(&out).arg("--data").arg(&data));
    assert_eq!(copied.code, Some(0), "{copied:?}");
    assert!(copied.stderr.contains("they stay in s3://bucket/queue"), "{copied:?}");
    assert!(!out.join("buffers").exists());
    let restored = restore(&out, &server.directory().join("restored"));
    assert!(restored.stderr.contains("--buffers s3://bucket/queue"), "{restored:?}");
}

/// The restored store does not know what the original has stored since, and would delete it.
#[test]
fn a_restored_store_refuses_the_place_of_the_original_until_it_may_adopt_it() {
    let server = Server::start_prepared(|directory| {
        let place = directory.join("place").display().to_string();
        let mut settings: Vec<(String, String)> = vec![("TOWLINE_BUFFERS".to_owned(), place)];
        settings.extend(SETTINGS.map(|(name, value)| (name.to_owned(), value.to_owned())));
        settings
    });
    server.ok(&["queue", "create", "jobs"]);
    let (out, data) = (server.directory().join("out"), server.directory().join("restored"));
    Run::of(&mut backup(&server, &out)).ok(&["backup"]);
    let id = submit_large(&server, 1);
    restore(&out, &data).ok(&["restore"]);
    let place = server.directory().join("place");
    let mut serve = towline(&["serve", "--listen", "127.0.0.1:0"]);
    let refused = Run::of(serve.arg("--data").arg(&data).arg("--buffers").arg(&place));
    assert_eq!(refused.code, Some(1), "{refused:?}");
    for words in ["a copy of that store", "--adopt-buffers", "--buffers"] {
        assert!(refused.stderr.contains(words), "{words}: {refused:?}");
    }
    let item = server.json(&["item", "show", &id, "-o", "json"]);
    assert_eq!(item["id"], id.as_str(), "the original still has its payload");
}
