//! Helpers for tests of the embedded store: a store with a manual clock, short forms of operations, and its files.
#![allow(dead_code, reason = "each test file uses some of the helpers")]
#![allow(clippy::unwrap_used, clippy::expect_used, reason = "tests")]

pub mod faulty;
pub mod history;
pub mod tmpfs;

use bytes::Bytes;
use futures::executor::block_on;
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;
use towline_conformance::invariants::{Snapshot, snapshot};
use towline_domain::change::Answer;
use towline_domain::command::Verb;
use towline_domain::{
    Adjust, Backoff, Counts, FieldSet, Fields, Item, ItemId, LeaseCall, Outcome, Policy, QueueName,
    Submission, Timestamp, TokenSeed,
};
use towline_embedded::outcome::Status;
use towline_embedded::{Embedded, OpenError, Options};
use towline_store::{Answered, Clock, ManualClock, Operation, ReceiveCall, Reply, Store, StoreError};

pub const START: Timestamp = Timestamp(1_700_000_000_000);
pub const SALT: u64 = 0x70_77_6c_69_6e_65;

pub fn clock() -> Arc<ManualClock> {
    Arc::new(ManualClock::new(START))
}

pub fn options(segment_bytes: u64) -> Options {
    Options { segment_bytes, salt: SALT, ..Options::default() }
}

pub fn try_open(path: &Path) -> Result<Embedded, OpenError> {
    Embedded::open(path, options(64 << 10), clock())
}

#[track_caller]
pub fn open(path: &Path) -> Embedded {
    try_open(path).expect("the store opens")
}

/// The error message of a directory that does not open.
#[track_caller]
pub fn refusal(path: &Path) -> String {
    try_open(path).expect_err("the store does not open").to_string()
}

#[track_caller]
pub fn assert_says(message: &str, parts: &[&str]) {
    for part in parts {
        assert!(message.contains(part), "{message:?} does not contain {part:?}");
    }
}

pub fn name(text: &str) -> QueueName {
    text.parse().unwrap()
}

pub fn create(queue: &str) -> Operation {
    create_with(queue, Policy { backoff: Backoff::NONE, ..Policy::default() })
}

pub fn create_with(queue: &str, policy: Policy) -> Operation {
    Operation::CreateQueue { queue: name(queue), schema: Box::default(), policy: Box::new(policy) }
}

pub fn delete_queue(queue: &str) -> Operation {
    Operation::DeleteQueue { queue: name(queue), force: true }
}

pub fn submit_to(queue: &str, submission: Submission) -> Operation {
    Operation::Submit { queue: name(queue), submission: Box::new(submission) }
}

pub fn payload(blob: impl Into<Bytes>) -> Submission {
    Submission { fields: Fields { blob: Some(blob.into()), ..Fields::default() }, ..Submission::default() }
}

pub fn receive_from(queue: &str, max: u32, seed: u8) -> Operation {
    Operation::Receive(Box::new(ReceiveCall {
        queue: name(queue),
        max,
        visibility: None,
        assigned: false,
        seed: TokenSeed([seed; 32]),
        fields: FieldSet::ALL,
        make_buffers: false,
    }))
}

pub fn lease(item: &Item, verb: Verb) -> Operation {
    lease_with(item, verb, Adjust::default())
}

pub fn lease_with(item: &Item, verb: Verb, adjust: Adjust) -> Operation {
    let token = item.head.lease().expect("a received item is processing").token;
    Operation::Lease { id: item.head.id, call: Box::new(LeaseCall { token, verb, adjust }) }
}

pub fn commit(item: &Item) -> Operation {
    lease(item, Verb::Commit(Outcome::default()))
}

pub fn delete(id: ItemId) -> Operation {
    Operation::Delete { id, force: true }
}

#[track_caller]
pub fn submitted(answered: Answered) -> ItemId {
    match answered {
        Ok(Reply::Answer(Answer::Submitted { id, .. })) => id,
        other => panic!("unexpected answer to a submit: {other:?}"),
    }
}

#[track_caller]
pub fn received(answered: Answered) -> Vec<Item> {
    match answered {
        Ok(Reply::Received(received)) => received.items,
        other => panic!("unexpected answer to a receive: {other:?}"),
    }
}

pub fn try_run(store: &dyn Store, operation: Operation) -> Result<Answered, StoreError> {
    block_on(store.update(vec![operation])).map(|mut updated| updated.answers.remove(0))
}

#[track_caller]
pub fn run(store: &dyn Store, operation: Operation) -> Answered {
    try_run(store, operation).expect("the store answers")
}

#[track_caller]
pub fn submit(store: &dyn Store, blob: impl Into<Bytes>) -> ItemId {
    submitted(run(store, submit_to("jobs", payload(blob))))
}

/// Whether the store refused an operation because the disk is full.
pub fn is_disk_full(answered: &Answered) -> bool {
    answered.as_ref().is_err_and(|refusal| refusal.code() == "disk_full")
}

#[track_caller]
pub fn status(store: &Embedded) -> Status {
    block_on(store.status()).expect("the store answers")
}

#[track_caller]
pub fn counts(store: &dyn Store, queue: &str) -> Counts {
    block_on(store.queue(name(queue))).expect("the store answers").expect("the queue exists").counts
}

/// Waits for a condition, for at least 5 seconds.
#[track_caller]
pub fn wait_until(what: &str, mut holds: impl FnMut() -> bool) {
    for _ in 0..5000 {
        if holds() {
            return;
        }
        std::thread::sleep(Duration::from_millis(1));
    }
    panic!("timed out waiting until {what}");
}

/// A store with one queue named `jobs`.
#[track_caller]
pub fn new_store(path: &Path) -> Embedded {
    let store = open(path);
    run(&store, create("jobs")).expect("the queue is created");
    store
}

#[track_caller]
pub fn contents(store: &Embedded) -> Snapshot {
    block_on(snapshot(store, START)).expect("all items can be read")
}

/// Like [`contents`], of a store that is closed.
#[track_caller]
pub fn contents_of(path: &Path) -> Snapshot {
    contents(&open(path))
}

pub fn blobs(snapshot: &Snapshot) -> BTreeMap<ItemId, Bytes> {
    let blob = |item: &Item| item.fields.blob.clone().unwrap_or_default();
    snapshot.items.iter().map(|stored| (stored.item.head.id, blob(&stored.item))).collect()
}

/// All files by name, except the lock. Skips files that the store removes or renames meanwhile.
pub fn files(path: &Path) -> BTreeMap<String, Vec<u8>> {
    let entries = std::fs::read_dir(path).unwrap().map(|entry| entry.unwrap().path());
    let files = entries.filter(|path| path.file_name().unwrap() != "LOCK");
    let read = |file: PathBuf| match std::fs::read(&file) {
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => None,
        bytes => Some((file.file_name().unwrap().to_str().unwrap().to_owned(), bytes.unwrap())),
    };
    files.filter_map(read).collect()
}

pub fn write_files(path: &Path, files: &BTreeMap<String, Vec<u8>>) {
    std::fs::create_dir_all(path).unwrap();
    for (name, bytes) in files {
        std::fs::write(path.join(name), bytes).unwrap();
    }
}

/// Segment files in log order.
pub fn segments(path: &Path) -> Vec<PathBuf> {
    let mut found: Vec<(u64, PathBuf)> = files(path)
        .into_iter()
        // A segment that is being created is empty.
        .filter(|(name, bytes)| name.ends_with(".log") && !bytes.is_empty())
        .map(|(name, bytes)| (u64::from_le_bytes(bytes[24..32].try_into().unwrap()), path.join(name)))
        .filter(|(generation, _)| *generation > 0)
        .collect();
    found.sort();
    found.into_iter().map(|(_, path)| path).collect()
}

pub fn file_name(path: &Path) -> &str {
    path.file_name().unwrap().to_str().unwrap()
}

pub fn flip(file: &Path, byte: usize) {
    let mut bytes = std::fs::read(file).unwrap();
    bytes[byte] ^= 0x10;
    std::fs::write(file, bytes).unwrap();
}

/// The segment that contains these bytes, and their offset.
#[track_caller]
pub fn find(path: &Path, what: &[u8]) -> (PathBuf, usize) {
    for file in segments(path) {
        let bytes = std::fs::read(&file).unwrap();
        if let Some(at) = bytes.windows(what.len()).position(|window| window == what) {
            return (file, at);
        }
    }
    panic!("no segment contains {:?}", String::from_utf8_lossy(what));
}

pub fn now(clock: &ManualClock) -> Timestamp {
    clock.now()
}
