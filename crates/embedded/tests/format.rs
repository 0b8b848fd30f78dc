//! The files of format 1, as they were when it was settled: they open, and the same history still writes them.
//!
//! `TOWLINE_BLESS=1` writes the fixtures anew. Do so only together with a new format number, or before a release.
#![allow(clippy::unwrap_used, clippy::expect_used, reason = "tests")]

mod rig;

use futures::executor::block_on;
use rig::*;
use std::collections::BTreeMap;
use std::fmt::Write;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use towline_conformance::invariants::snapshot;
use towline_domain::{FieldSet, Head, KeyTag, LeaseToken, State, Timestamp};
use towline_embedded::disk::RealDisk;
use towline_embedded::reader::ItemReader;
use towline_embedded::{Embedded, Engine};
use towline_store::{Filter, ManualClock, Operation, Store, TallyRange};

fn fixtures() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/fixtures/format-1")
}

/// The same history, as it was written before tallies were added to the format.
fn without_tallies() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/fixtures/format-1-without-tallies")
}

/// As it was written before heads said of which group they are.
fn without_groups() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/fixtures/format-1-without-groups")
}

/// As it was written before heads said of which key they are.
fn without_fairness() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/fixtures/format-1-without-fairness")
}

/// As it was written before removals said what they removed.
fn without_events() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/fixtures/format-1-without-events")
}

fn bless() -> bool {
    std::env::var_os("TOWLINE_BLESS").is_some()
}

/// Lives through the history on the engine itself: its threads would make frames as they find the time.
fn write_history(path: &Path) -> Timestamp {
    let disk = Arc::new(RealDisk::new(path).unwrap());
    let mut engine = Engine::open(disk.clone(), options(64 << 10), START).unwrap();
    let reader = ItemReader { salt: SALT, unchecked: false };
    let mut step = |now: Timestamp, operation: Operation| {
        engine.begin(now).unwrap();
        let outcome = engine.run(operation).unwrap();
        engine.collect(16 << 10).unwrap();
        engine.seal().unwrap();
        engine.sync().unwrap();
        for chore in engine.take_chores() {
            chore.run(&*disk).unwrap();
        }
        outcome.finish(&reader, &mut |fault| panic!("{fault}"))
    };
    let end = history::live(&mut step);
    engine.mark().unwrap();
    engine.sync().unwrap();
    end
}

/// Bytes as text: the size, then every line of 32 bytes that are not all zero.
fn dump(bytes: &[u8]) -> String {
    let mut text = format!("{} bytes\n", bytes.len());
    for (nth, line) in bytes.chunks(32).enumerate().filter(|(_, line)| line.iter().any(|&byte| byte != 0)) {
        write!(text, "{:08x} ", nth * 32).unwrap();
        for byte in line {
            write!(text, "{byte:02x}").unwrap();
        }
        text.push('\n');
    }
    text
}

fn undump(text: &str) -> Vec<u8> {
    let mut lines = text.lines();
    let size = lines.next().unwrap().strip_suffix(" bytes").unwrap().parse().unwrap();
    let mut bytes = vec![0; size];
    for line in lines {
        let (offset, digits) = line.split_once(' ').unwrap();
        let offset = usize::from_str_radix(offset, 16).unwrap();
        for (nth, pair) in digits.as_bytes().chunks(2).enumerate() {
            bytes[offset + nth] = u8::from_str_radix(std::str::from_utf8(pair).unwrap(), 16).unwrap();
        }
    }
    bytes
}

fn dumped(path: &Path) -> BTreeMap<String, String> {
    files(path).into_iter().map(|(name, bytes)| (format!("{name}.hex"), dump(&bytes))).collect()
}

fn stored(fixtures: &Path) -> BTreeMap<String, String> {
    let texts = files(fixtures).into_iter().filter(|(name, _)| name.ends_with(".hex"));
    texts.map(|(name, bytes)| (name, String::from_utf8(bytes).unwrap())).collect()
}

/// Everything the store shows, as text.
fn tell(path: &Path, now: Timestamp) -> String {
    let clock = Arc::new(ManualClock::new(now));
    let store = Embedded::open(path, options(64 << 10), clock).unwrap();
    let shown = block_on(snapshot(&store, now)).unwrap();
    let keys = history::KEYS.map(str::to_owned).to_vec();
    let kv = block_on(store.kv_get(keys)).unwrap();
    let kv: BTreeMap<_, _> = history::KEYS.into_iter().zip(kv).collect();
    let asked = |tag: Option<&str>| TallyRange {
        from: Timestamp(0),
        until: Timestamp::MAX,
        tag: tag.map(str::to_owned),
    };
    let tally = |tag| {
        let names = ["work", "images", "brief", "dead"].into_iter();
        names
            .map(|queue| (queue, block_on(store.tally(queue.parse().unwrap(), asked(tag))).unwrap()))
            .collect()
    };
    let tallies: Vec<BTreeMap<_, _>> = [None, Some("path")].map(tally).into();
    format!("{shown:#?}\n{kv:#?}\n{tallies:#?}\n")
}

fn unpack(fixtures: &Path, path: &Path) {
    let files = stored(fixtures);
    assert!(!files.is_empty(), "run the tests with TOWLINE_BLESS=1 once");
    for (name, text) in files {
        std::fs::write(path.join(name.strip_suffix(".hex").unwrap()), undump(&text)).unwrap();
    }
}

/// The time at which the history ends.
fn end() -> Timestamp {
    let mut last = START;
    let clock = Arc::new(ManualClock::new(START));
    let directory = tempfile::tempdir().unwrap();
    let store = Embedded::open(directory.path(), options(64 << 10), clock.clone()).unwrap();
    history::live(&mut |now, operation| {
        last = now;
        clock.set(now);
        run(&store, operation)
    });
    last
}

#[test]
fn the_same_history_still_writes_the_same_bytes() {
    let directory = tempfile::tempdir().unwrap();
    let now = write_history(directory.path());
    let written = dumped(directory.path());
    if bless() {
        let _ = std::fs::remove_dir_all(fixtures());
        std::fs::create_dir_all(fixtures()).unwrap();
        for (name, text) in &written {
            std::fs::write(fixtures().join(name), text).unwrap();
        }
        std::fs::write(fixtures().join("expected.txt"), tell(directory.path(), now)).unwrap();
    }
    let stored = stored(&fixtures());
    assert_eq!(written.keys().collect::<Vec<_>>(), stored.keys().collect::<Vec<_>>());
    for (name, text) in written {
        for (ours, theirs) in text.lines().zip(stored[&name].lines()) {
            assert_eq!(ours, theirs, "{name}");
        }
        assert_eq!(text.len(), stored[&name].len(), "{name}");
    }
}

#[test]
fn files_of_this_format_open_with_everything_in_them() {
    if bless() {
        return;
    }
    let directory = tempfile::tempdir().unwrap();
    unpack(&fixtures(), directory.path());
    let expected = std::fs::read_to_string(fixtures().join("expected.txt")).unwrap();
    let shown = tell(directory.path(), end());
    for (ours, theirs) in shown.lines().zip(expected.lines()) {
        assert_eq!(ours, theirs);
    }
    assert_eq!(shown, expected);
}

#[test]
fn files_of_this_format_are_whole() {
    if bless() {
        return;
    }
    let directory = tempfile::tempdir().unwrap();
    unpack(&fixtures(), directory.path());
    let verdict = towline_embedded::verify(directory.path()).unwrap();
    assert_eq!(verdict.findings, []);
    assert!(verdict.records > 50, "{verdict:?}");
}

/// The same seeds made others before tokens had a time in them.
fn forget_tokens(head: &mut Head) {
    let nobodys = LeaseToken(uuid::Uuid::nil());
    if let State::Processing(lease) = &mut head.state {
        lease.token = nobodys;
    }
    if let Some(settle) = &mut head.last_settle {
        settle.token = nobodys;
    }
}

#[test]
fn files_without_tallies_open_with_everything_else_in_them() {
    if bless() {
        return;
    }
    let [old, new] = [without_tallies(), fixtures()].map(|fixtures| {
        let directory = tempfile::tempdir().unwrap();
        unpack(&fixtures, directory.path());
        assert_eq!(towline_embedded::verify(directory.path()).unwrap().findings, []);
        let clock = Arc::new(ManualClock::new(end()));
        let store = Embedded::open(directory.path(), options(64 << 10), clock).unwrap();
        let page = store.list(Filter::default(), None, 10_000, FieldSet::ALL);
        let mut items = block_on(page).unwrap().items;
        for stored in &mut items {
            stored.item.head.extras.iter_mut().for_each(|extras| extras.tally_tags.clear());
            stored.item.head.group = None;
            stored.item.head.fairness_key = KeyTag::NONE;
            forget_tokens(&mut stored.item.head);
        }
        let mut queues = block_on(store.queues(None, 100)).unwrap();
        queues.iter_mut().for_each(|view| view.queue.policy.tally_tags.clear());
        // It counts from here on.
        let asked = TallyRange { from: Timestamp(0), until: Timestamp::MAX, tag: None };
        let tallies = block_on(store.tally("work".parse().unwrap(), asked)).unwrap().unwrap();
        (items, queues, tallies.is_empty())
    });
    assert_eq!((&old.0, &old.1), (&new.0, &new.1));
    assert!(old.2 && !new.2);
}

#[test]
fn files_whose_removals_say_less_open_with_everything_in_them() {
    if bless() {
        return;
    }
    let [old, new] = [without_events(), without_groups()].map(|fixtures| {
        let directory = tempfile::tempdir().unwrap();
        unpack(&fixtures, directory.path());
        assert_eq!(towline_embedded::verify(directory.path()).unwrap().findings, []);
        tell(directory.path(), end())
    });
    assert_eq!(old, new);
}

#[test]
fn files_whose_heads_know_no_group_open_with_everything_else_in_them() {
    if bless() {
        return;
    }
    let [old, new] = [without_groups(), without_fairness()].map(|fixtures| {
        let directory = tempfile::tempdir().unwrap();
        unpack(&fixtures, directory.path());
        assert_eq!(towline_embedded::verify(directory.path()).unwrap().findings, []);
        let clock = Arc::new(ManualClock::new(end()));
        let store = Embedded::open(directory.path(), options(64 << 10), clock).unwrap();
        let page = store.list(Filter::default(), None, 10_000, FieldSet::ALL);
        let mut items = block_on(page).unwrap().items;
        let groups = items.iter_mut().filter_map(|stored| stored.item.head.group.take()).count();
        items.iter_mut().for_each(|stored| forget_tokens(&mut stored.item.head));
        (items, groups)
    });
    assert_eq!(old.0, new.0);
    assert!(old.1 == 0 && new.1 > 0, "{} {}", old.1, new.1);
}

#[test]
fn files_whose_heads_know_no_key_open_with_everything_else_in_them() {
    if bless() {
        return;
    }
    let [old, new] = [without_fairness(), fixtures()].map(|fixtures| {
        let directory = tempfile::tempdir().unwrap();
        unpack(&fixtures, directory.path());
        assert_eq!(towline_embedded::verify(directory.path()).unwrap().findings, []);
        let clock = Arc::new(ManualClock::new(end()));
        let store = Embedded::open(directory.path(), options(64 << 10), clock).unwrap();
        let page = store.list(Filter::default(), None, 10_000, FieldSet::ALL);
        let mut items = block_on(page).unwrap().items;
        let keys = items.iter_mut().map(|stored| std::mem::take(&mut stored.item.head.fairness_key));
        let keys = keys.filter(|key| !key.is_none()).count();
        (items, keys)
    });
    assert_eq!(old.0, new.0);
    assert!(old.1 == 0 && new.1 > 0, "{} {}", old.1, new.1);
}

/// The history is worth its name: what it should leave behind, it does.
#[test]
fn the_fixture_shows_every_state() {
    if bless() {
        return;
    }
    let expected = std::fs::read_to_string(fixtures().join("expected.txt")).unwrap();
    for part in [
        "state: Pending",
        "state: Processing",
        "state: Paused",
        "state: Completed",
        "state: Failed",
        "kind: Explicit",
        "kind: RetriesExhausted",
        "kind: Expired",
        "kind: Cancelled",
        "kind: Lapsed",
        "state: Open",
        "state: Closed",
        "paused: true",
        "origin: Some",
        "idempotency_key: Some",
        "Score(",
        "tally_tags: {",
        "tally: Tally(",
        "0c405e00-0000-4000-8000-000000000001",
    ] {
        assert!(expected.contains(part), "{part}");
    }
}
