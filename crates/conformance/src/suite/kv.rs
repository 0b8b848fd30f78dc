//! Key-value records.

use super::Harness;
use super::operations::*;
use super::rig::*;
use bytes::Bytes;
use futures::executor::block_on;
use towline_domain::kv::{KvAnswer, KvCommand, KvRecord, RECORD_OVERHEAD_BYTES, SCHEDULES, TOKENS};
use towline_domain::{Millis, limits};
use towline_store::{KvPage, Operation, Reply};

fn set(value: impl Into<Bytes>, ttl: Option<u64>) -> KvCommand {
    KvCommand::Set { value: value.into(), ttl: ttl.map(Millis) }
}

fn claim(value: &'static str, ttl: Option<u64>) -> KvCommand {
    KvCommand::SetIfAbsent { value: value.into(), ttl: ttl.map(Millis) }
}

fn add(by: i64, ttl: Option<u64>) -> KvCommand {
    KvCommand::Increment { by, ttl: ttl.map(Millis) }
}

fn answer(answer: KvAnswer) -> towline_store::Answered {
    Ok(Reply::Kv(answer))
}

fn record(value: impl Into<Bytes>, expires_in: Option<u64>) -> Option<KvRecord> {
    Some(KvRecord { value: value.into(), expires_at: expires_in.map(|millis| START.after(Millis(millis))) })
}

pub(super) fn a_value_is_returned_byte_for_byte(harness: &dyn Harness) {
    let rig = Rig::open(harness);
    assert_eq!(rig.kv_get("k"), None);
    let values: Vec<Bytes> = vec![
        Bytes::new(),
        Bytes::from_static(b"\0\xff\n"),
        (0..=255).collect(),
        (0..limits::KV_VALUE_BYTES_MAX).map(|n| n.to_le_bytes()[1] ^ n.to_le_bytes()[0]).collect(),
    ];
    for value in values {
        assert_eq!(rig.kv("k", set(value.clone(), None)), answer(KvAnswer::Done));
        assert_eq!(rig.kv_get("k"), record(value, None));
    }
    let large = vec![0; limits::KV_VALUE_BYTES_MAX + 1];
    assert_eq!(code(&rig.kv("k2", set(large, None))), "too_large");
    assert_eq!(rig.kv_get("k2"), None);
}

pub(super) fn a_key_is_any_text_within_the_limits(harness: &dyn Harness) {
    let rig = Rig::open(harness);
    let longest = "x".repeat(limits::KV_KEY_BYTES_MAX);
    let keys = ["k", "K", "k ", "a/b:c", "ключ", "'; --", "%_*", longest.as_str()];
    for key in keys {
        rig.kv(key, set(key.to_owned(), None)).expect("set");
    }
    for key in keys {
        assert_eq!(rig.kv_get(key), record(key.to_owned(), None));
    }
    for bad in [String::new(), format!("{longest}x")] {
        assert_eq!(code(&rig.kv(&bad, set("v", None))), "invalid");
    }
    let asked = ["ключ", "nobody's", "k", "ключ"].map(str::to_owned).to_vec();
    let found = block_on(rig.store.kv_get(asked)).expect("the store answers");
    let found: Vec<_> = found.into_iter().map(|record| record.map(|record| record.value)).collect();
    let expected = [Some("ключ".into()), None, Some("k".into()), Some("ключ".into())];
    assert_eq!(found, expected);
}

pub(super) fn a_record_expires_with_its_ttl(harness: &dyn Harness) {
    let rig = Rig::open(harness);
    rig.kv("k", set("v", Some(100))).expect("set");
    assert_eq!(rig.kv_get("k"), record("v", Some(100)));
    rig.advance(99);
    assert_eq!(rig.kv_get("k"), record("v", Some(100)));
    rig.advance(1);
    assert_eq!(rig.kv_get("k"), None, "expired without any update");
    assert_eq!(rig.kv("k", KvCommand::Delete), answer(KvAnswer::Deleted(false)));
    // A later set without a TTL removes the TTL.
    rig.kv("k", set("1", Some(100))).expect("set");
    rig.kv("k", set("2", None)).expect("set");
    rig.advance(1000);
    assert_eq!(rig.kv_get("k"), record("2", None));
}

pub(super) fn set_if_absent_has_one_winner(harness: &dyn Harness) {
    let rig = Rig::open(harness);
    let take = |value, ttl| Operation::Kv { key: "k".to_owned(), command: claim(value, ttl) };
    let answers = rig.update(vec![take("a", Some(50)), take("b", Some(500)), take("c", None)]);
    let (won, lost) = (answer(KvAnswer::Won(true)), answer(KvAnswer::Won(false)));
    assert_eq!(answers, [won.clone(), lost.clone(), lost.clone()]);
    assert_eq!(rig.kv_get("k"), record("a", Some(50)), "the loser changed nothing");
    rig.advance(49);
    assert_eq!(rig.run(take("d", None)), lost);
    rig.advance(1);
    assert_eq!(rig.run(take("d", None)), won);
    assert_eq!(rig.kv_get("k"), record("d", None));
    rig.kv("k", KvCommand::Delete).expect("deleted");
    assert_eq!(rig.run(take("e", None)), won);
}

pub(super) fn increments_add_up(harness: &dyn Harness) {
    let rig = Rig::open(harness);
    let number = |n| answer(KvAnswer::Number(n));
    assert_eq!(rig.kv("n", add(5, Some(100))), number(5));
    assert_eq!(rig.kv("n", add(-7, None)), number(-2));
    assert_eq!(rig.kv_get("n"), record("-2", Some(100)), "the record keeps its TTL");
    rig.advance(10);
    assert_eq!(rig.kv("n", add(0, Some(200))), number(-2));
    assert_eq!(rig.kv_get("n"), record("-2", Some(210)), "a given TTL starts now");
    rig.advance(200);
    assert_eq!(rig.kv("n", add(1, None)), number(1), "an absent record counts as 0");
    rig.kv("n", set(i64::MAX.to_string(), None)).expect("set");
    assert_eq!(code(&rig.kv("n", add(1, None))), "invalid");
    assert_eq!(rig.kv("n", add(-1, None)), number(i64::MAX - 1));
    rig.kv("n", set("many", None)).expect("set");
    assert_eq!(code(&rig.kv("n", add(1, None))), "invalid");
    assert_eq!(rig.kv_get("n"), record("many", None));
    let batch = (0..10).map(|_| Operation::Kv { key: "m".to_owned(), command: add(3, None) }).collect();
    assert_eq!(rig.update(batch)[9], number(30));
}

fn count(by: i64, once: &str, ttl: u64) -> KvCommand {
    KvCommand::IncrementOnce { by, once: once.to_owned(), ttl: Millis(ttl) }
}

pub(super) fn increment_once_counts_a_thing_once(harness: &dyn Harness) {
    let rig = Rig::open(harness);
    let number = |n| answer(KvAnswer::Number(n));
    assert_eq!(rig.kv("n", count(1, "a", 100)), number(1));
    assert_eq!(rig.kv("n", count(1, "a", 100)), number(1));
    assert_eq!(rig.kv("n", add(5, None)), number(6));
    assert_eq!(rig.kv("n", count(-3, "b", 200)), number(3));
    assert_eq!(rig.kv("n", count(1, "a", 100)), number(1), "the reply of the first call");
    assert_eq!(rig.kv_get("n"), record("3", Some(200)));
    assert_eq!(rig.kv("m", count(1, "a", 100)), number(1), "each counter counts by itself");
    // Within a batch, each command sees the effects of earlier ones.
    let one = |by, once: &str| Operation::Kv { key: "o".to_owned(), command: count(by, once, 1000) };
    let answers = rig.update(vec![one(2, "x"), one(2, "y"), one(2, "x"), one(3, "z")]);
    assert_eq!(answers, [number(2), number(4), number(2), number(7)]);
    rig.kv("text", set("abc", None)).expect("set");
    assert_eq!(code(&rig.kv("text", count(1, "a", 100))), "invalid");
    for bad in [String::new(), "x".repeat(limits::KV_KEY_BYTES_MAX + 1)] {
        assert_eq!(code(&rig.kv("n", count(1, &bad, 100))), "invalid");
    }
    rig.advance(100);
    assert_eq!(rig.kv("n", count(10, "a", 500)), number(13), "the mark has expired");
    assert_eq!(rig.kv("n", count(-3, "b", 500)), number(3), "each mark has its own TTL");
    let page = KvPage { prefix: "n".to_owned(), after: None, limit: 10 };
    let listed = block_on(rig.store.kv_list(page)).expect("the store answers");
    assert_eq!(listed.len(), 1, "marks are not listed: {listed:?}");
    let Some(rig) = rig.reopen(harness) else { return };
    assert_eq!(rig.kv("n", count(10, "a", 500)), number(13), "marks survive a reopen");
    assert_eq!(rig.kv("o", count(2, "y", 1000)), number(4));
    assert_eq!(rig.kv_get("o"), record("7", Some(1000)));
}

pub(super) fn adopt_stores_a_record_of_another_store_once(harness: &dyn Harness) {
    let rig = Rig::open(harness);
    let won = |won| answer(KvAnswer::Won(won));
    let adopt =
        |value: &'static str, expires_at| KvCommand::Adopt(record(value, expires_at).expect("a record"));
    assert_eq!(rig.kv("k", adopt("theirs", Some(100))), won(true));
    assert_eq!(rig.kv_get("k"), record("theirs", Some(100)), "with its expiry time");
    assert_eq!(rig.kv("k", adopt("another", None)), won(false));
    assert_eq!(rig.kv_get("k"), record("theirs", Some(100)));
    rig.advance(100);
    assert_eq!(rig.kv("gone", adopt("theirs", Some(100))), won(false), "the record has expired");
    assert_eq!(rig.kv_get("gone"), None);
    assert_eq!(rig.kv("k", adopt("another", None)), won(true), "the existing record has expired");
    assert_eq!(rig.kv_get("k"), record("another", None));
}

pub(super) fn delete_reports_whether_the_record_existed(harness: &dyn Harness) {
    let rig = Rig::open(harness);
    assert_eq!(rig.kv("k", KvCommand::Delete), answer(KvAnswer::Deleted(false)));
    rig.kv("k", set("v", None)).expect("set");
    assert_eq!(rig.kv("k", KvCommand::Delete), answer(KvAnswer::Deleted(true)));
    assert_eq!(rig.kv("k", KvCommand::Delete), answer(KvAnswer::Deleted(false)));
    assert_eq!(rig.kv_get("k"), None);
}

fn replace(seen: Option<&'static str>, value: Option<&'static str>) -> KvCommand {
    KvCommand::Replace { seen: seen.map(Bytes::from), value: value.map(Bytes::from), ttl: None }
}

pub(super) fn replace_succeeds_only_if_the_record_has_the_seen_value(harness: &dyn Harness) {
    let rig = Rig::open(harness);
    assert_eq!(rig.kv("k", replace(Some("a"), Some("b"))), answer(KvAnswer::Won(false)));
    assert_eq!(rig.kv("k", replace(None, Some("a"))), answer(KvAnswer::Won(true)));
    let one = |value| Operation::Kv { key: "k".to_owned(), command: replace(Some("a"), Some(value)) };
    let answers = rig.update(vec![one("b"), one("c")]);
    assert_eq!(answers, [answer(KvAnswer::Won(true)), answer(KvAnswer::Won(false))]);
    assert_eq!(rig.kv_get("k"), record("b", None));
    assert_eq!(rig.kv("k", replace(None, Some("d"))), answer(KvAnswer::Won(false)));
    assert_eq!(rig.kv("k", replace(Some("a"), None)), answer(KvAnswer::Won(false)));
    assert_eq!(rig.kv("k", replace(Some("b"), None)), answer(KvAnswer::Won(true)));
    assert_eq!(rig.kv_get("k"), None);
    rig.kv("k", set("v", Some(100))).expect("set");
    rig.clock.advance(100);
    assert_eq!(
        rig.kv("k", replace(Some("v"), Some("w"))),
        answer(KvAnswer::Won(false)),
        "the record has expired"
    );
    let with_ttl = |seen, value, ttl| match replace(seen, Some(value)) {
        KvCommand::Replace { seen, value, .. } => KvCommand::Replace { seen, value, ttl: Some(Millis(ttl)) },
        other => other,
    };
    rig.kv("k", with_ttl(None, "x", 100)).expect("the record is absent");
    rig.clock.advance(50);
    rig.kv("k", replace(Some("x"), Some("y"))).expect("the record exists");
    assert_eq!(rig.kv_get("k"), record("y", Some(200)), "without a TTL the expiry time stays");
    rig.kv("k", with_ttl(Some("y"), "z", 200)).expect("the record exists");
    assert_eq!(rig.kv_get("k"), record("z", Some(350)), "a given TTL starts now");
}

pub(super) fn clients_cannot_fill_the_room_of_the_servers_own_records(harness: &dyn Harness) {
    let bytes_max = 80 * (200 + RECORD_OVERHEAD_BYTES);
    let Some(rig) = Rig::with_room_for_records(harness, bytes_max) else { return };
    // Records of 200 bytes and the overhead, until the store refuses one.
    let fill = |prefix: &str| {
        let key = |n: usize| format!("{prefix}{n:02}");
        let set = |n: usize| rig.kv(&key(n), set(vec![7; 198 - prefix.len()], None));
        let refused = (0..100).map(set).position(|answered| answered.is_err());
        let refused = refused.expect("the room is limited");
        assert_eq!(code(&set(refused)), "store_full", "{prefix}");
        refused
    };
    assert_eq!(fill("kv/"), 60);
    assert_eq!([fill(SCHEDULES), fill("kv/x"), fill(TOKENS)], [10, 0, 10]);
    let large = |bytes: usize| set(vec![8; bytes], None);
    assert_eq!(code(&rig.kv("kv/00", large(196))), "store_full");
    rig.kv("kv/00", large(195)).expect("the record does not grow");
    assert_eq!(rig.kv("kv/01", KvCommand::Delete), answer(KvAnswer::Deleted(true)));
}

pub(super) fn records_are_listed_by_prefix(harness: &dyn Harness) {
    let rig = Rig::open(harness);
    for key in ["b/", "b/2", "b/10", "b/ключ", "b", "c/1", "a/1", "b0"] {
        rig.kv(key, set(key.to_owned(), None)).expect("set");
    }
    rig.kv("b/3", set("brief", Some(100))).expect("set");
    rig.clock.advance(100);
    let list = |prefix: &str, after: Option<&str>, limit: usize| {
        let (prefix, after) = (prefix.to_owned(), after.map(str::to_owned));
        let found = block_on(rig.store.kv_list(KvPage { prefix, after, limit })).expect("the store answers");
        assert!(found.iter().all(|(key, record)| record.value == key.as_bytes()));
        found.into_iter().map(|(key, _)| key).collect::<Vec<_>>()
    };
    assert_eq!(list("b/", None, 10), ["b/", "b/10", "b/2", "b/ключ"]);
    assert_eq!(list("b/", None, 2), ["b/", "b/10"]);
    assert_eq!(list("b/", Some("b/10"), 2), ["b/2", "b/ключ"]);
    assert_eq!(list("b/", Some("b/11"), 1), ["b/2"], "after a key that does not exist");
    assert_eq!(list("b/", Some("a"), 1), ["b/"]);
    assert_eq!(list("b/", Some("c"), 5), Vec::<String>::new());
    assert_eq!(list("", None, 3), ["a/1", "b", "b/"]);
    for number in 0..=limits::KV_PAGE_MAX {
        let key = format!("many/{number:03}");
        rig.kv(&key, set(key.clone(), None)).expect("set");
    }
    assert_eq!(list("many/", None, usize::MAX).len(), limits::KV_PAGE_MAX, "a page has a maximum size");
}
