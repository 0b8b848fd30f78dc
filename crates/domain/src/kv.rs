//! Small durable key-value records with a time to live, set-if-absent, compare-and-set and atomic addition.

use crate::digest;
use crate::limits;
use crate::refusal::Refusal;
use crate::time::{Millis, Timestamp};
use bytes::Bytes;
use serde::{Deserialize, Serialize};

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct KvRecord {
    pub value: Bytes,
    pub expires_at: Option<Timestamp>,
}

/// What a record takes besides its key and its value: about its entry in the index of the embedded store.
pub const RECORD_OVERHEAD_BYTES: usize = 256;

impl KvRecord {
    /// The room that the record takes under this key.
    #[must_use]
    pub fn bytes(&self, key: &str) -> usize {
        RECORD_OVERHEAD_BYTES + key.len() + self.value.len()
    }

    #[must_use]
    pub fn is_live(&self, now: Timestamp) -> bool {
        self.expires_at.is_none_or(|at| at > now)
    }
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum KvCommand {
    Set {
        value: Bytes,
        ttl: Option<Millis>,
    },
    SetIfAbsent {
        value: Bytes,
        ttl: Option<Millis>,
    },
    /// Adds to a decimal number (absent: 0). The time to live, if set, starts again.
    Increment {
        by: i64,
        ttl: Option<Millis>,
    },
    /// Adds, unless `once` was counted under this key within the last `ttl`. In that case nothing changes, and the answer
    /// is the first one. The times to live of the counter and of the mark start at the count.
    ///
    /// The mark is a record of its own ([`mark_key`]), written in the same step. So the counter stays a small number, and
    /// marks expire by themselves.
    IncrementOnce {
        by: i64,
        once: String,
        ttl: Millis,
    },
    /// Compare and set: only if the value is still `seen`. `None` means no record, in `seen` and in `value`.
    /// The time to live, if set, starts again.
    Replace {
        seen: Option<Bytes>,
        value: Option<Bytes>,
        ttl: Option<Millis>,
    },
    /// Copies a record of another store, with its expiry, unless the key has a record here.
    Adopt(KvRecord),
    Delete,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum KvAnswer {
    Done,
    /// For set-if-absent, replace and adopt: whether the record was written.
    Won(bool),
    Number(i64),
    Deleted(bool),
}

/// The records to write, and the answer.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct KvDecision {
    /// By key: the record after, or `None` to delete it. A store writes all of them or none.
    pub after: Vec<(String, Option<KvRecord>)>,
    pub answer: KvAnswer,
}

/// The prefix of the server's own records. No key of a client begins with it.
pub const SERVER: &str = "towline/";
/// The server's own records by the prefix of their keys, and the share of a store's room for records that they may fill, in
/// sixteenths. Later ones may fill what is left of the room of earlier ones, so an operator can revoke a token and change a schedule
/// in a store that clients have filled.
const SHARES: [(&str, usize); 3] = [(SERVER, 13), (SCHEDULES, 14), (TOKENS, 16)];
/// The share of the records of clients.
const CLIENT_SHARE: usize = 12;
pub const SCHEDULES: &str = "towline/schedule/";
pub const TOKENS: &str = "towline/token";

/// How many bytes of records a store may hold after it wrote this record.
#[must_use]
pub fn room(key: &str, bytes_max: usize) -> usize {
    let found = SHARES.iter().rev().find(|(prefix, _)| key.starts_with(prefix));
    bytes_max - bytes_max / 16 * (16 - found.map_or(CLIENT_SHARE, |(_, share)| *share))
}

/// Refuses records that would exceed their room in a store that holds `held` bytes of records. A change that takes no more room than
/// before is not refused.
pub fn check_room<'a>(
    after: &[(String, Option<KvRecord>)],
    find: impl Fn(&str) -> Option<&'a KvRecord>,
    held: usize,
    bytes_max: usize,
) -> Result<(), Refusal> {
    let (mut before, mut written, mut room_left) = (0, 0, bytes_max);
    for (key, record) in after {
        before += find(key).map_or(0, |record| record.bytes(key));
        if let Some(record) = record {
            written += record.bytes(key);
            room_left = room_left.min(room(key, bytes_max));
        }
    }
    if written > before && held - before + written > room_left {
        return Err(Refusal::StoreFull { what: "bytes of key-value records", held: held as u64 });
    }
    Ok(())
}

/// The prefix of the keys of marks. A client's key cannot begin with it.
pub const MARKS: &str = "\0counted/";

/// The key of the mark that `once` was counted by `counter`. Its length is fixed.
#[must_use]
pub fn mark_key(counter: &str, once: &str) -> String {
    use std::fmt::Write;
    let mut key = MARKS.to_owned();
    for byte in digest::counted(counter, once) {
        // Writing to a string does not fail.
        let _ = write!(key, "{byte:02x}");
    }
    key
}

impl KvCommand {
    /// The key of the mark that the decision reads, if any.
    #[must_use]
    pub fn mark(&self, key: &str) -> Option<String> {
        match self {
            KvCommand::IncrementOnce { once, .. } => Some(mark_key(key, once)),
            _ => None,
        }
    }
}

/// Decides a command. `find` returns the stored records of `key` and of [`KvCommand::mark`].
pub fn decide<'a>(
    key: &str,
    find: impl Fn(&str) -> Option<&'a KvRecord>,
    command: KvCommand,
    now: Timestamp,
) -> Result<KvDecision, Refusal> {
    check_key("key", key)?;
    let live = |key: &str| find(key).filter(|record| record.is_live(now));
    let record = live(key);
    let make = |value: Bytes, ttl: Option<Millis>, kept: Option<Timestamp>| {
        if value.len() > limits::KV_VALUE_BYTES_MAX {
            let (bytes, max) = (value.len() as u64, limits::KV_VALUE_BYTES_MAX as u64);
            return Err(Refusal::TooLarge { what: "value", bytes, max });
        }
        let expires_at = ttl.map(|ttl| now.after(ttl)).or(kept);
        Ok(vec![(key.to_owned(), Some(KvRecord { value, expires_at }))])
    };
    let delete = || record.map(|_| (key.to_owned(), None)).into_iter().collect();
    let (after, answer) = match command {
        KvCommand::Set { value, ttl } => (make(value, ttl, None)?, KvAnswer::Done),
        KvCommand::SetIfAbsent { .. } if record.is_some() => (Vec::new(), KvAnswer::Won(false)),
        KvCommand::SetIfAbsent { value, ttl } => (make(value, ttl, None)?, KvAnswer::Won(true)),
        KvCommand::Replace { seen, .. } if record.map(|record| &record.value) != seen.as_ref() => {
            (Vec::new(), KvAnswer::Won(false))
        }
        KvCommand::Replace { value: Some(value), ttl, .. } => {
            (make(value, ttl, record.and_then(|record| record.expires_at))?, KvAnswer::Won(true))
        }
        KvCommand::Replace { value: None, .. } => (delete(), KvAnswer::Won(true)),
        KvCommand::Increment { by, ttl } => {
            let after = sum(record, by)?;
            let kept = record.and_then(|record| record.expires_at);
            (make(after.to_string().into(), ttl, kept)?, KvAnswer::Number(after))
        }
        KvCommand::IncrementOnce { by, once, ttl } => {
            check_key("once", &once)?;
            let mark = mark_key(key, &once);
            if let Some(counted) = live(&mark) {
                return Ok(KvDecision { after: Vec::new(), answer: KvAnswer::Number(number(counted)?) });
            }
            let after = sum(record, by)?;
            let mut both = make(after.to_string().into(), Some(ttl), None)?;
            both.extend(both.first().map(|(_, record)| (mark, record.clone())));
            (both, KvAnswer::Number(after))
        }
        KvCommand::Adopt(copied) if record.is_some() || !copied.is_live(now) => {
            (Vec::new(), KvAnswer::Won(false))
        }
        KvCommand::Adopt(copied) => (make(copied.value, None, copied.expires_at)?, KvAnswer::Won(true)),
        KvCommand::Delete => (delete(), KvAnswer::Deleted(record.is_some())),
    };
    Ok(KvDecision { after, answer })
}

fn check_key(what: &'static str, key: &str) -> Result<(), Refusal> {
    if key.is_empty() || key.len() > limits::KV_KEY_BYTES_MAX {
        let message = format!("{} bytes; use 1 to {}", key.len(), limits::KV_KEY_BYTES_MAX);
        return Err(Refusal::invalid(what, message));
    }
    Ok(())
}

fn number(record: &KvRecord) -> Result<i64, Refusal> {
    let number = std::str::from_utf8(&record.value).ok().and_then(|text| text.parse().ok());
    number.ok_or_else(|| Refusal::invalid("key", "the value of this record is not a number; use another key"))
}

/// A missing record counts as 0.
fn sum(record: Option<&KvRecord>, by: i64) -> Result<i64, Refusal> {
    let before = record.map_or(Ok(0), number)?;
    let beyond = || Refusal::invalid("by", format!("{before} + {by} does not fit into 64 bits; add less"));
    before.checked_add(by).ok_or_else(beyond)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn run(record: &mut Option<KvRecord>, command: KvCommand, now: u64) -> Result<KvAnswer, Refusal> {
        let decision = decide("k", |_| record.as_ref(), command, Timestamp(now))?;
        for (key, after) in decision.after {
            assert_eq!(key, "k");
            *record = after;
        }
        Ok(decision.answer)
    }

    #[test]
    fn clients_cannot_fill_the_room_of_the_servers_own_records() {
        let bytes_max = 80 * (200 + RECORD_OVERHEAD_BYTES);
        let held = std::cell::RefCell::new(std::collections::BTreeMap::<String, KvRecord>::new());
        let set = |key: &str, bytes: usize| {
            let record = KvRecord { value: vec![0; bytes].into(), expires_at: None };
            let after = [(key.to_owned(), Some(record.clone()))];
            let records = held.borrow();
            let sum = records.iter().map(|(key, record)| record.bytes(key)).sum();
            let checked = check_room(&after, |key| records.get(key), sum, bytes_max);
            drop(records);
            checked.map(|()| drop(held.borrow_mut().insert(key.to_owned(), record))).is_ok()
        };
        let mut fill =
            |prefix: &str| (0..100).filter(|n| set(&format!("{prefix}{n:02}"), 198 - prefix.len())).count();
        let filled = ["kv/", MARKS, "towline/group/", SCHEDULES, "kv/x", TOKENS].map(&mut fill);
        assert_eq!(filled, [60, 0, 5, 5, 0, 10], "200 bytes and the overhead each");
        assert!(set("kv/00", 195) && !set("kv/00", 196), "a record that does not grow can be changed");
    }

    #[test]
    fn increment_once_stores_a_mark_beside_the_counter() {
        let mut records = std::collections::BTreeMap::new();
        let mut add = |key: &str, by, once: &str, now| {
            let command = KvCommand::IncrementOnce { by, once: once.to_owned(), ttl: Millis(10) };
            let decision = decide(key, |key| records.get(key), command, Timestamp(now))?;
            for (key, after) in decision.after {
                records.insert(key, after.unwrap());
            }
            Ok::<_, Refusal>((decision.answer, records.len()))
        };
        let number = KvAnswer::Number;
        assert_eq!(add("k", 2, "a", 0), Ok((number(2), 2)));
        assert_eq!(add("k", 5, "b", 5), Ok((number(7), 3)));
        assert_eq!(add("k", 2, "a", 9), Ok((number(2), 3)), "the first answer");
        assert_eq!(add("l", 1, "a", 9), Ok((number(1), 5)), "another counter");
        assert_eq!(add("k", 2, "a", 10), Ok((number(9), 5)), "counted again after the mark expired");
        assert!(add("k", i64::MAX, "c", 10).is_err());
        assert!(add("k", 1, "", 10).is_err());
        assert!(add("k", 1, &"x".repeat(limits::KV_KEY_BYTES_MAX + 1), 10).is_err());
        assert!(add("", 1, "a", 10).is_err());
    }

    #[test]
    fn set_if_absent_writes_once_until_the_ttl_ends() {
        let mut record = None;
        let claim = || KvCommand::SetIfAbsent { value: "me".into(), ttl: Some(Millis(10)) };
        assert_eq!(run(&mut record, claim(), 0), Ok(KvAnswer::Won(true)));
        assert_eq!(run(&mut record, claim(), 9), Ok(KvAnswer::Won(false)));
        assert_eq!(run(&mut record, claim(), 10), Ok(KvAnswer::Won(true)));
    }

    #[test]
    fn increment_counts_from_zero_keeps_its_ttl_and_refuses_text_and_overflow() {
        let mut record = None;
        let add = |by, ttl| KvCommand::Increment { by, ttl };
        assert_eq!(run(&mut record, add(2, Some(Millis(10))), 0), Ok(KvAnswer::Number(2)));
        assert_eq!(run(&mut record, add(-5, None), 5), Ok(KvAnswer::Number(-3)));
        assert_eq!(record.as_ref().unwrap().expires_at, Some(Timestamp(10)));
        assert!(run(&mut record, add(i64::MIN, None), 5).is_err());
        assert_eq!(run(&mut record, add(1, None), 11), Ok(KvAnswer::Number(1)), "expired means absent");
        record = Some(KvRecord { value: "x".into(), expires_at: None });
        assert!(run(&mut record, add(1, None), 0).is_err());
    }

    #[test]
    fn replace_writes_only_if_the_value_is_unchanged() {
        let mut record = None;
        let replace = |seen: Option<&'static str>, value: Option<&'static str>| KvCommand::Replace {
            seen: seen.map(Bytes::from),
            value: value.map(Bytes::from),
            ttl: None,
        };
        assert_eq!(run(&mut record, replace(Some("a"), Some("b")), 0), Ok(KvAnswer::Won(false)));
        assert_eq!(run(&mut record, replace(None, Some("a")), 0), Ok(KvAnswer::Won(true)));
        assert_eq!(run(&mut record, replace(None, Some("b")), 0), Ok(KvAnswer::Won(false)));
        assert_eq!(run(&mut record, replace(Some("a"), Some("b")), 0), Ok(KvAnswer::Won(true)));
        assert_eq!(record, Some(KvRecord { value: "b".into(), expires_at: None }));
        assert_eq!(run(&mut record, replace(Some("a"), None), 0), Ok(KvAnswer::Won(false)));
        assert_eq!(run(&mut record, replace(Some("b"), None), 0), Ok(KvAnswer::Won(true)));
        assert_eq!(record, None);
    }

    #[test]
    fn delete_says_whether_there_was_a_record() {
        let mut record = None;
        assert_eq!(run(&mut record, KvCommand::Delete, 0), Ok(KvAnswer::Deleted(false)));
        run(&mut record, KvCommand::Set { value: "v".into(), ttl: None }, 0).unwrap();
        assert_eq!(run(&mut record, KvCommand::Delete, 0), Ok(KvAnswer::Deleted(true)));
        assert_eq!(record, None);
    }
}
