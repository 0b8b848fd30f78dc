//! Small durable records by key, with a time to live, set-if-absent and atomic addition.

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

impl KvRecord {
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
    /// Adds to a decimal number (absent: 0). The time to live, if given, starts anew.
    Increment {
        by: i64,
        ttl: Option<Millis>,
    },
    /// Only if the value is what the caller saw; `None` stands for no record, on both sides.
    Replace {
        seen: Option<Bytes>,
        value: Option<Bytes>,
    },
    Delete,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum KvAnswer {
    Done,
    /// For set-if-absent and replace: whether this caller won.
    Won(bool),
    Number(i64),
    Deleted(bool),
}

/// The record after (`Some(None)`: deleted; `None`: as it was) and the answer.
pub type KvDecision = (Option<Option<KvRecord>>, KvAnswer);

pub fn decide(
    key: &str,
    record: Option<&KvRecord>,
    command: KvCommand,
    now: Timestamp,
) -> Result<KvDecision, Refusal> {
    if key.is_empty() || key.len() > limits::KV_KEY_BYTES_MAX {
        let message = format!("a key of {} bytes; use 1 to {}", key.len(), limits::KV_KEY_BYTES_MAX);
        return Err(Refusal::invalid("key", message));
    }
    let record = record.filter(|record| record.is_live(now));
    let make = |value: Bytes, ttl: Option<Millis>, kept: Option<Timestamp>| {
        if value.len() > limits::KV_VALUE_BYTES_MAX {
            let (bytes, max) = (value.len() as u64, limits::KV_VALUE_BYTES_MAX as u64);
            return Err(Refusal::TooLarge { what: "value", bytes, max });
        }
        let expires_at = ttl.map(|ttl| now.after(ttl)).or(kept);
        Ok(Some(Some(KvRecord { value, expires_at })))
    };
    Ok(match command {
        KvCommand::Set { value, ttl } => (make(value, ttl, None)?, KvAnswer::Done),
        KvCommand::SetIfAbsent { .. } if record.is_some() => (None, KvAnswer::Won(false)),
        KvCommand::SetIfAbsent { value, ttl } => (make(value, ttl, None)?, KvAnswer::Won(true)),
        KvCommand::Replace { seen, .. } if record.map(|record| &record.value) != seen.as_ref() => {
            (None, KvAnswer::Won(false))
        }
        KvCommand::Replace { value: Some(value), .. } => {
            (make(value, None, record.and_then(|record| record.expires_at))?, KvAnswer::Won(true))
        }
        KvCommand::Replace { value: None, .. } => (record.map(|_| None), KvAnswer::Won(true)),
        KvCommand::Increment { by, ttl } => {
            let before: i64 = match record {
                None => 0,
                Some(record) => {
                    std::str::from_utf8(&record.value).ok().and_then(|text| text.parse().ok()).ok_or_else(
                        || Refusal::invalid("key", format!("the value of {key:?} is not a number")),
                    )?
                }
            };
            let Some(after) = before.checked_add(by) else {
                return Err(Refusal::invalid("by", format!("{before} + {by} is beyond 64 bits")));
            };
            let kept = record.and_then(|record| record.expires_at);
            (make(after.to_string().into(), ttl, kept)?, KvAnswer::Number(after))
        }
        KvCommand::Delete => match record {
            Some(_) => (Some(None), KvAnswer::Deleted(true)),
            None => (None, KvAnswer::Deleted(false)),
        },
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn run(record: &mut Option<KvRecord>, command: KvCommand, now: u64) -> Result<KvAnswer, Refusal> {
        let (after, answer) = decide("k", record.as_ref(), command, Timestamp(now))?;
        if let Some(after) = after {
            *record = after;
        }
        Ok(answer)
    }

    #[test]
    fn set_if_absent_has_one_winner_until_the_ttl() {
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
    fn replace_wins_against_what_was_seen_and_nothing_else() {
        let mut record = None;
        let replace = |seen: Option<&'static str>, value: Option<&'static str>| KvCommand::Replace {
            seen: seen.map(Bytes::from),
            value: value.map(Bytes::from),
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
    fn delete_says_whether_there_was_anything() {
        let mut record = None;
        assert_eq!(run(&mut record, KvCommand::Delete, 0), Ok(KvAnswer::Deleted(false)));
        run(&mut record, KvCommand::Set { value: "v".into(), ttl: None }, 0).unwrap();
        assert_eq!(run(&mut record, KvCommand::Delete, 0), Ok(KvAnswer::Deleted(true)));
        assert_eq!(record, None);
    }
}
