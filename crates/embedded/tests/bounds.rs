//! Limits of a call, in number and in bytes, and what works at a limit.
#![allow(clippy::unwrap_used, clippy::expect_used, reason = "tests")]

mod rig;

use bytes::Bytes;
use futures::executor::block_on;
use rig::faulty::{Faults, open_faulty};
use rig::*;
use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;
use towline_conformance::ReferenceStore;
use towline_domain::kv::{KvCommand, RECORD_OVERHEAD_BYTES};
use towline_domain::{FieldSet, Item, ItemId, Json, Order, Policy, ScoreWeights, Timestamp, limits};
use towline_embedded::{Embedded, Options};
use towline_store::{Filter, Operation, ReceiveCall, Store, StoreError};

const LARGE: usize = 4 << 20;
/// More items of this size than fit into one answer.
const MANY: usize = 20;
const BYTES_MAX: usize = 64 << 20;

/// A store with more bytes of items than fit into one answer.
fn large_items(path: &Path) -> (Embedded, Vec<ItemId>) {
    let store = Embedded::open(path, options(32 << 20), clock()).unwrap();
    run(&store, create("jobs")).unwrap();
    let blob = Bytes::from(vec![7; LARGE]);
    let batch = (0..MANY).map(|_| submit_to("jobs", payload(blob.clone()))).collect();
    let ids = block_on(store.update(batch)).unwrap().answers.into_iter().map(submitted).collect();
    (store, ids)
}

fn bytes_of<'a>(items: impl IntoIterator<Item = &'a Item>) -> usize {
    items.into_iter().map(|item| item.fields.bytes()).sum()
}

#[test]
fn a_receive_delivers_what_fits_into_one_answer_and_leaves_the_rest_pending() {
    let directory = tempfile::tempdir().unwrap();
    let (store, ids) = large_items(directory.path());
    let first = received(run(&store, receive_from("jobs", 100, 1)));
    assert!(!first.is_empty() && bytes_of(&first) <= BYTES_MAX, "{} items", first.len());
    let now = counts(&store, "jobs");
    assert_eq!((now.processing, now.pending), (first.len() as u64, (MANY - first.len()) as u64));
    let mut delivered: Vec<ItemId> = first.iter().map(|item| item.head.id).collect();
    drop(first);
    while delivered.len() < MANY {
        let next = received(run(&store, receive_from("jobs", 100, delivered.len() as u8)));
        assert!(!next.is_empty(), "{} of {MANY} items were delivered", delivered.len());
        delivered.extend(next.iter().map(|item| item.head.id));
    }
    assert_eq!(delivered, ids);
}

#[test]
fn receives_in_one_call_share_the_limit() {
    let directory = tempfile::tempdir().unwrap();
    let (store, _) = large_items(directory.path());
    let batch = (0..2).map(|seed| receive_from("jobs", 10, seed)).collect();
    let answers = block_on(store.update(batch)).unwrap().answers;
    let delivered: Vec<Item> = answers.into_iter().flat_map(received).collect();
    assert!(delivered.len() >= 10 && bytes_of(&delivered) <= BYTES_MAX, "{} items", delivered.len());
}

#[test]
fn a_get_of_more_bytes_than_fit_into_one_answer_is_refused() {
    let directory = tempfile::tempdir().unwrap();
    let (store, ids) = large_items(directory.path());
    let refused = block_on(store.get(ids.clone(), FieldSet::ALL)).map(|found| found.len());
    assert!(matches!(refused, Err(StoreError::BatchTooLarge { what: "bytes", .. })), "{refused:?}");
    let got = block_on(store.get(ids[..10].to_vec(), FieldSet::ALL)).unwrap();
    assert_eq!(bytes_of(got.iter().flatten().map(|stored| &stored.item)), 10 * LARGE);
}

/// Opens a store on a disk that counts the bytes read, with items that have a body and a large payload.
fn counted_items(path: &Path, count: usize, params: usize) -> (Embedded, Arc<Faults>, Vec<ItemId>) {
    let faults = Arc::new(Faults::default());
    let store = open_faulty(path, 32 << 20, &faults).unwrap();
    run(&store, create("jobs")).unwrap();
    let submission = || {
        let Operation::Submit { queue, mut submission } =
            submit_to("jobs", payload(Bytes::from(vec![7; 60 << 10])))
        else {
            panic!()
        };
        let value = Json::parse(&format!("\"{}\"", "x".repeat(params))).unwrap();
        submission.body.params = [("text".to_owned(), value)].into();
        Operation::Submit { queue, submission }
    };
    let mut ids = Vec::new();
    for part in (0..count).collect::<Vec<_>>().chunks(100) {
        let batch = part.iter().map(|_| submission()).collect();
        ids.extend(block_on(store.update(batch)).unwrap().answers.into_iter().map(submitted));
    }
    (store, faults, ids)
}

#[test]
fn summaries_do_not_read_payloads() {
    const COUNT: usize = 500;
    let directory = tempfile::tempdir().unwrap();
    let (store, faults, ids) = counted_items(directory.path(), COUNT, 10);
    let summary = |item: &Item| item.fields.bytes() == 0 && item.body.params.len() == 1;
    let read = |what: &str, items: Vec<Item>, before: u64| {
        assert!(items.len() == COUNT && items.iter().all(summary), "{what}: {} items", items.len());
        let bytes = faults.bytes_read() - before;
        assert!(bytes <= COUNT as u64 * 4096, "{what} read {bytes} bytes");
    };
    let before = faults.bytes_read();
    let page = block_on(store.list(Filter::default(), None, COUNT, FieldSet::NONE)).unwrap();
    read("a page", page.items.into_iter().map(|stored| stored.item).collect(), before);
    let before = faults.bytes_read();
    let got = block_on(store.get(ids, FieldSet::NONE)).unwrap();
    read("a get", got.into_iter().flatten().map(|stored| stored.item).collect(), before);
    let before = faults.bytes_read();
    let Operation::Receive(call) = receive_from("jobs", COUNT as u32, 1) else { panic!() };
    let receive = Operation::Receive(Box::new(ReceiveCall { fields: FieldSet::NONE, ..*call }));
    read("a receive", received(run(&store, receive)), before);
    let before = faults.bytes_read();
    let tag_prefixes = vec![("path".to_owned(), "/a".to_owned())];
    let filter = Filter { tag_prefixes, ..Filter::default() };
    assert_eq!(block_on(store.count(filter, None)).unwrap().count, 0);
    let bytes = faults.bytes_read() - before;
    assert!(bytes <= COUNT as u64 * 4096, "a count read {bytes} bytes");
}

#[test]
fn large_summaries_end_a_page_and_a_get_at_the_byte_limit() {
    const COUNT: usize = 150;
    let directory = tempfile::tempdir().unwrap();
    let (store, faults, ids) = counted_items(directory.path(), COUNT, 1 << 19);
    let mut seen = Vec::new();
    let mut after = None;
    loop {
        let before = faults.bytes_read();
        let page = block_on(store.list(Filter::default(), after, COUNT, FieldSet::NONE)).unwrap();
        let bytes = faults.bytes_read() - before;
        assert!(!page.items.is_empty() && bytes < 80 << 20, "{} items, {bytes} bytes", page.items.len());
        seen.extend(page.items.iter().map(|stored| stored.item.head.id));
        match page.next {
            None => break,
            next => after = next,
        }
    }
    assert_eq!(seen, ids);
    let refused = block_on(store.get(ids, FieldSet::NONE)).map(|found| found.len());
    assert!(matches!(refused, Err(StoreError::BatchTooLarge { what: "bytes", .. })), "{refused:?}");
    let Operation::Receive(call) = receive_from("jobs", COUNT as u32, 1) else { panic!() };
    let receive = Operation::Receive(Box::new(ReceiveCall { fields: FieldSet::NONE, ..*call }));
    let before = faults.bytes_read();
    let items = received(run(&store, receive));
    let bytes = faults.bytes_read() - before;
    assert!(!items.is_empty() && bytes < 80 << 20, "{} items, {bytes} bytes", items.len());
}

#[test]
fn a_page_ends_at_the_byte_limit_and_the_next_page_continues() {
    let directory = tempfile::tempdir().unwrap();
    let (store, ids) = large_items(directory.path());
    let mut seen = Vec::new();
    let mut after = None;
    loop {
        let page = block_on(store.list(Filter::default(), after, 100, FieldSet::ALL)).unwrap();
        assert!(bytes_of(page.items.iter().map(|stored| &stored.item)) <= BYTES_MAX);
        seen.extend(page.items.iter().map(|stored| stored.item.head.id));
        after = page.next;
        if after.is_none() {
            break;
        }
    }
    assert_eq!(seen, ids);
}

#[test]
fn an_item_requested_many_times_in_one_get_is_read_once() {
    let directory = tempfile::tempdir().unwrap();
    let faults = Arc::new(Faults::default());
    let store = open_faulty(directory.path(), 8 << 20, &faults).unwrap();
    run(&store, create("jobs")).unwrap();
    let (id, other) = (submit(&store, vec![7; LARGE]), submit(&store, "other"));
    let ids: Vec<ItemId> = (0..100).map(|nth| if nth % 10 == 9 { other } else { id }).collect();
    let before = faults.bytes_read();
    let got = block_on(store.get(ids.clone(), FieldSet::ALL)).unwrap();
    let read = faults.bytes_read() - before;
    assert!(read < 2 * LARGE as u64, "{read} bytes were read for one item of 4 MiB and a small one");
    assert_eq!(got.iter().map(|stored| stored.as_ref().unwrap().item.head.id).collect::<Vec<_>>(), ids);
}

#[test]
fn a_filter_with_more_tags_than_an_item_can_have_is_refused() {
    let directory = tempfile::tempdir().unwrap();
    let embedded = new_store(directory.path());
    let memory = ReferenceStore::new(clock(), SALT);
    for store in [&memory as &dyn Store, &embedded] {
        let list = |tags: usize| {
            let tags = vec![("name".to_owned(), "value".to_owned()); tags];
            block_on(store.list(Filter { tags, ..Filter::default() }, None, 10, FieldSet::NONE))
        };
        assert!(list(limits::TAGS_MAX).is_ok());
        let (given, max) = (limits::TAGS_MAX + 1, limits::TAGS_MAX);
        assert_eq!(list(given), Err(StoreError::BatchTooLarge { what: "tags", given, max }));
    }
}

#[test]
fn a_smaller_value_replaces_a_larger_one_at_the_limit() {
    let directory = tempfile::tempdir().unwrap();
    // Clients may fill three quarters of it: 1000 bytes and the overhead of a record.
    let options = Options { kv_bytes_max: 1328 + 4 * RECORD_OVERHEAD_BYTES / 3, ..options(64 << 10) };
    let store = Embedded::open(directory.path(), options, clock()).unwrap();
    let set = |key: &str, bytes: usize| {
        let command = KvCommand::Set { value: vec![7; bytes].into(), ttl: None };
        run(&store, Operation::Kv { key: key.into(), command })
    };
    set("key", 900).unwrap();
    assert_eq!(set("other", 200).unwrap_err().code(), "store_full");
    set("key", 600).unwrap();
    set("key", 900).unwrap();
    assert_eq!(set("key", 1000).unwrap_err().code(), "store_full");
    let found = block_on(store.kv_get(vec!["key".into()])).unwrap().remove(0);
    assert_eq!(found.unwrap().value.len(), 900);
}

#[test]
fn a_tier_with_a_name_that_is_too_long_is_refused() {
    let directory = tempfile::tempdir().unwrap();
    let embedded = open(directory.path());
    let memory = ReferenceStore::new(clock(), SALT);
    let with_tier = |queue: &str, bytes: usize| {
        let tiers_permille = BTreeMap::from([("x".repeat(bytes), 1)]);
        let weights = ScoreWeights { tiers_permille, ..ScoreWeights::default() };
        create_with(queue, Policy { order: Order::Score(Box::new(weights)), ..Policy::default() })
    };
    for store in [&memory as &dyn Store, &embedded] {
        run(store, with_tier("longest", limits::LABEL_BYTES_MAX)).unwrap();
        for bytes in [limits::LABEL_BYTES_MAX + 1, 1 << 20] {
            let refused = run(store, with_tier("too-long", bytes)).unwrap_err();
            assert_eq!(refused.code(), "invalid", "{refused}");
        }
    }
}

#[test]
fn items_created_at_the_latest_possible_time_are_found() {
    for now in [Timestamp::MAX, Timestamp(1 << 48), Timestamp((1 << 48) + 1), Timestamp(1 << 60)] {
        let directory = tempfile::tempdir().unwrap();
        let clock = clock();
        let store = Embedded::open(directory.path(), options(64 << 10), clock.clone()).unwrap();
        run(&store, create("jobs")).unwrap();
        clock.set(now);
        let ids = [submit(&store, "first"), submit(&store, "second")];
        let finds = |store: &Embedded| {
            let got = block_on(store.get(ids.to_vec(), FieldSet::ALL)).unwrap();
            assert!(got.iter().all(Option::is_some), "{now:?}: {got:?}");
            let page = block_on(store.list(Filter::default(), None, 10, FieldSet::NONE)).unwrap();
            assert_eq!(page.items.len(), 2, "{now:?}");
        };
        finds(&store);
        drop(store);
        let store = open(directory.path());
        finds(&store);
        for id in ids {
            run(&store, delete(id)).unwrap();
        }
    }
}
