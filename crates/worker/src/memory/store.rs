//! Keys and values, each until its time.

use crate::clock::{Clock, Time};
use crate::ports::{Answer, Count, PortError, Store};
use std::collections::{BTreeSet, HashMap};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

#[derive(Debug)]
pub struct MemoryStore {
    clock: Arc<dyn Clock>,
    records: Mutex<Records>,
}

#[derive(Debug, Default)]
struct Records {
    values: HashMap<String, Record>,
    /// In order of the end of their time.
    ends: BTreeSet<(Time, String)>,
}

#[derive(Debug)]
struct Record {
    value: String,
    until: Time,
    /// What a counter was told to count once, and the answer.
    counted: HashMap<String, i64>,
}

impl MemoryStore {
    #[must_use]
    pub fn new(clock: Arc<dyn Clock>) -> MemoryStore {
        MemoryStore { clock, records: Mutex::default() }
    }

    /// How many keys there are.
    #[must_use]
    pub fn size(&self) -> usize {
        self.open().1.values.len()
    }

    /// What is over is gone.
    fn open(&self) -> (Time, MutexGuard<'_, Records>) {
        let now = self.clock.now();
        let mut records = self.records.lock().unwrap_or_else(PoisonError::into_inner);
        while let Some((until, key)) = records.ends.pop_first() {
            if until > now {
                records.ends.insert((until, key));
                break;
            }
            records.values.remove(&key);
        }
        (now, records)
    }
}

impl Records {
    fn put(&mut self, key: &str, record: Record) {
        let until = record.until;
        if let Some(before) = self.values.insert(key.to_owned(), record) {
            self.ends.remove(&(before.until, key.to_owned()));
        }
        self.ends.insert((until, key.to_owned()));
    }

    fn remove(&mut self, key: &str) -> Option<Record> {
        let record = self.values.remove(key)?;
        self.ends.remove(&(record.until, key.to_owned()));
        Some(record)
    }
}

impl Store for MemoryStore {
    fn get<'a>(&'a self, key: &'a str) -> Answer<'a, Option<String>> {
        let value = self.open().1.values.get(key).map(|record| record.value.clone());
        Box::pin(async { Ok(value) })
    }

    fn set<'a>(&'a self, key: &'a str, value: String, ttl: Duration) -> Answer<'a, ()> {
        let (now, mut records) = self.open();
        records.put(key, Record { value, until: now.after(ttl), counted: HashMap::new() });
        Box::pin(async { Ok(()) })
    }

    fn delete<'a>(&'a self, key: &'a str) -> Answer<'a, ()> {
        self.open().1.remove(key);
        Box::pin(async { Ok(()) })
    }

    fn set_if_absent<'a>(&'a self, key: &'a str, value: String, ttl: Duration) -> Answer<'a, bool> {
        let (now, mut records) = self.open();
        let absent = !records.values.contains_key(key);
        if absent {
            records.put(key, Record { value, until: now.after(ttl), counted: HashMap::new() });
        }
        Box::pin(async move { Ok(absent) })
    }

    fn increment<'a>(&'a self, key: &'a str, count: Count<'a>, ttl: Duration) -> Answer<'a, i64> {
        let (now, mut records) = self.open();
        let before = records.remove(key);
        let (value, mut counted) = match before {
            None => (0, HashMap::new()),
            Some(record) => match record.value.parse::<i64>() {
                Ok(value) => (value, record.counted),
                Err(_) => {
                    let told = format!("{key:?} holds {:?}, which is not a number", record.value);
                    records.put(key, record);
                    return Box::pin(async { Err(PortError::Refused(told)) });
                }
            },
        };
        let known = count.once.and_then(|once| counted.get(once).copied());
        let after = if known.is_some() { value } else { value.saturating_add(count.by) };
        if let (None, Some(once)) = (known, count.once) {
            counted.insert(once.to_owned(), after);
        }
        records.put(key, Record { value: after.to_string(), until: now.after(ttl), counted });
        Box::pin(async move { Ok(known.unwrap_or(after)) })
    }
}
