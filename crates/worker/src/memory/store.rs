//! Keys and values, each until its time.

use crate::clock::{Clock, Time};
use crate::ports::{Answer, Count, PortError, Store};
use std::collections::{BTreeMap, HashMap};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

#[derive(Debug)]
pub struct MemoryStore {
    clock: Arc<dyn Clock>,
    records: Mutex<Records>,
}

#[derive(Debug, Default)]
struct Records {
    serial: u64,
    values: HashMap<Arc<str>, Record>,
    /// In order of the end of their time.
    ends: BTreeMap<End, Arc<str>>,
}

/// When, and which of those that end then.
type End = (Time, u64);

#[derive(Debug)]
struct Record {
    value: String,
    end: End,
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
        while let Some(end) = records.ends.first_entry().filter(|end| end.key().0 <= now) {
            let key = end.remove();
            records.values.remove(&key);
        }
        (now, records)
    }
}

impl Records {
    fn put(&mut self, key: &str, value: String, until: Time, counted: HashMap<String, i64>) {
        self.remove(key);
        self.serial += 1;
        let (key, end): (Arc<str>, End) = (key.into(), (until, self.serial));
        self.ends.insert(end, Arc::clone(&key));
        self.values.insert(key, Record { value, end, counted });
    }

    fn remove(&mut self, key: &str) -> Option<Record> {
        let record = self.values.remove(key)?;
        self.ends.remove(&record.end);
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
        records.put(key, value, now.after(ttl), HashMap::new());
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
            records.put(key, value, now.after(ttl), HashMap::new());
        }
        Box::pin(async move { Ok(absent) })
    }

    fn increment<'a>(&'a self, key: &'a str, count: Count<'a>, ttl: Duration) -> Answer<'a, i64> {
        let (now, mut records) = self.open();
        let before = records.values.get(key).map(|record| (record.value.parse::<i64>(), &record.value));
        let value = match before {
            None => 0,
            Some((Ok(value), _)) => value,
            Some((Err(_), value)) => {
                let told = format!("{key:?} holds {value:?}, which is not a number");
                return Box::pin(async { Err(PortError::Refused(told)) });
            }
        };
        let mut counted = records.remove(key).map(|record| record.counted).unwrap_or_default();
        let known = count.once.and_then(|once| counted.get(once).copied());
        let after = if known.is_some() { value } else { value.saturating_add(count.by) };
        if let (None, Some(once)) = (known, count.once) {
            counted.insert(once.to_owned(), after);
        }
        records.put(key, after.to_string(), now.after(ttl), counted);
        Box::pin(async move { Ok(known.unwrap_or(after)) })
    }
}
