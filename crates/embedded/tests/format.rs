//! Golden files of the on-disk format. The current code writes the current format byte for byte, and opens every format
//! that has a fixture.
//!
//! `TOWLINE_BLESS=1` rewrites the fixture that this version writes. After a release, bless only under a new name, and keep all
//! earlier fixtures.
#![allow(clippy::unwrap_used, clippy::expect_used, reason = "tests")]

mod rig;

use futures::executor::block_on;
use rig::*;
use std::collections::BTreeMap;
use std::fmt::Write;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use towline_conformance::invariants::snapshot;
use towline_domain::Timestamp;
use towline_embedded::disk::RealDisk;
use towline_embedded::reader::ItemReader;
use towline_embedded::{Embedded, Engine};
use towline_store::{ManualClock, Operation, Store, TallyRange};

/// The format that this version writes, as in `towline.meta`.
const FORMAT: u32 = 1;

/// The fixture that this version writes.
const WRITTEN: &str = "format-1-linked";

/// The fixtures that this version reads. The segments of `format-1` have no links.
const READABLE: [&str; 2] = ["format-1", WRITTEN];

fn fixture(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/fixtures").join(name)
}

fn bless() -> bool {
    std::env::var_os("TOWLINE_BLESS").is_some()
}

/// Runs the history on the engine directly. The threads of a store would make frames of varying size.
fn write_history(path: &Path) -> Timestamp {
    let disk = Arc::new(RealDisk::new(path).unwrap());
    let mut engine = Engine::open(disk.clone(), options(64 << 10), &*clock()).unwrap();
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
    let end = history::replay(&mut step);
    engine.mark().unwrap();
    engine.sync().unwrap();
    end
}

/// Bytes as text: the size, then each line of 32 bytes that are not all zero.
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

fn golden(fixture: &Path) -> BTreeMap<String, String> {
    let texts = files(fixture).into_iter().filter(|(name, _)| name.ends_with(".hex"));
    texts.map(|(name, bytes)| (name, String::from_utf8(bytes).unwrap())).collect()
}

/// The whole content of the store, as text.
fn describe(path: &Path, now: Timestamp) -> String {
    let clock = Arc::new(ManualClock::new(now));
    let store = Embedded::open(path, options(64 << 10), clock).unwrap();
    let shown = block_on(snapshot(&store, now)).unwrap();
    let keys = history::KEYS.map(str::to_owned).to_vec();
    let kv = block_on(store.kv_get(keys)).unwrap();
    let kv: BTreeMap<_, _> = history::KEYS.into_iter().zip(kv).collect();
    let range = |tag: Option<&str>| TallyRange {
        from: Timestamp(0),
        until: Timestamp::MAX,
        tag: tag.map(str::to_owned),
    };
    let tally = |tag| {
        let names = ["work", "images", "brief", "dead"].into_iter();
        names
            .map(|queue| (queue, block_on(store.tally(queue.parse().unwrap(), range(tag))).unwrap()))
            .collect()
    };
    let tallies: Vec<BTreeMap<_, _>> = [None, Some("path")].map(tally).into();
    format!("{shown:#?}\n{kv:#?}\n{tallies:#?}\n")
}

fn unpack(fixture: &Path, path: &Path) {
    let files = golden(fixture);
    assert!(!files.is_empty(), "{} has no fixture", fixture.display());
    for (name, text) in files {
        std::fs::write(path.join(name.strip_suffix(".hex").unwrap()), undump(&text)).unwrap();
    }
}

/// The time when the history ends.
fn end() -> Timestamp {
    let mut last = START;
    let clock = Arc::new(ManualClock::new(START));
    let directory = tempfile::tempdir().unwrap();
    let store = Embedded::open(directory.path(), options(64 << 10), clock.clone()).unwrap();
    history::replay(&mut |now, operation| {
        last = now;
        clock.set(now);
        run(&store, operation)
    });
    last
}

#[test]
fn the_history_writes_the_golden_files_byte_for_byte() {
    let directory = tempfile::tempdir().unwrap();
    let now = write_history(directory.path());
    let written = dumped(directory.path());
    if bless() {
        let _ = std::fs::remove_dir_all(fixture(WRITTEN));
        std::fs::create_dir_all(fixture(WRITTEN)).unwrap();
        for (name, text) in &written {
            std::fs::write(fixture(WRITTEN).join(name), text).unwrap();
        }
        std::fs::write(fixture(WRITTEN).join("expected.txt"), describe(directory.path(), now)).unwrap();
    }
    let golden = golden(&fixture(WRITTEN));
    assert_eq!(written.keys().collect::<Vec<_>>(), golden.keys().collect::<Vec<_>>());
    for (name, text) in written {
        for (actual, expected_line) in text.lines().zip(golden[&name].lines()) {
            assert_eq!(actual, expected_line, "{name}");
        }
        assert_eq!(text.len(), golden[&name].len(), "{name}");
    }
}

#[test]
fn files_of_every_format_open_with_all_their_content() {
    if bless() {
        return;
    }
    for format in READABLE {
        let directory = tempfile::tempdir().unwrap();
        unpack(&fixture(format), directory.path());
        let expected = std::fs::read_to_string(fixture(format).join("expected.txt")).unwrap();
        let shown = describe(directory.path(), end());
        for (actual, expected_line) in shown.lines().zip(expected.lines()) {
            assert_eq!(actual, expected_line, "{format}");
        }
        assert_eq!(shown, expected, "{format}");
    }
}

#[test]
fn verify_finds_no_damage_in_files_of_any_format() {
    if bless() {
        return;
    }
    for format in READABLE {
        let directory = tempfile::tempdir().unwrap();
        unpack(&fixture(format), directory.path());
        let report = towline_embedded::verify(directory.path()).unwrap();
        assert_eq!(report.findings, [], "{format}");
        assert!(report.records > 50, "{format}: {report:?}");
    }
}

#[test]
fn a_new_store_has_the_format_of_the_golden_files() {
    let directory = tempfile::tempdir().unwrap();
    drop(new_store(directory.path()));
    let meta = std::fs::read(directory.path().join("towline.meta")).unwrap();
    assert_eq!(meta[8..12], FORMAT.to_le_bytes());
}

#[test]
fn the_fixture_contains_every_state_and_every_kind_of_part() {
    if bless() {
        return;
    }
    let expected = std::fs::read_to_string(fixture(WRITTEN).join("expected.txt")).unwrap();
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
        "concurrency: Some",
        "concurrency_per_key: Some",
        "fairness: Some",
        "fairness_key: KeyTag",
        "group: Some",
        "replace_key: Some",
        "trace: Some",
        "after: Some",
        "0c405e00-0000-4000-8000-000000000001",
    ] {
        assert!(expected.contains(part), "{part}");
    }
}
