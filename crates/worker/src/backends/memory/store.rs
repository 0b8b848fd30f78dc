//! Records and counters in memory, each with a time to live.

use crate::clock::{Clock, Time};
use crate::ports::{Increment, PortError, PortFuture, Store};
use parking_lot::{Mutex, MutexGuard};
use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;
use std::time::Duration;

#[derive(Debug)]
pub struct MemoryStore {
    clock: Arc<dyn Clock>,
    records: Mutex<Records>,
}

#[derive(Debug, Default)]
struct Records {
    serial: u64,
    by_key: HashMap<Arc<str>, Record>,
    /// The keys in the order in which they expire.
    expiries: BTreeMap<Expiry, Arc<str>>,
}

/// The time, and a serial number that makes it unique.
type Expiry = (Time, u64);

#[derive(Debug)]
struct Record {
    value: String,
    expiry: Expiry,
    /// What a counter has counted once, and the result of that increment.
    counted: HashMap<String, i64>,
}

impl MemoryStore {
    #[must_use]
    pub fn new(clock: Arc<dyn Clock>) -> MemoryStore {
        MemoryStore { clock, records: Mutex::default() }
    }

    /// How many records there are.
    #[must_use]
    pub fn size(&self) -> usize {
        self.lock().1.by_key.len()
    }

    /// Removes expired records first.
    fn lock(&self) -> (Time, MutexGuard<'_, Records>) {
        let now = self.clock.now();
        let mut records = self.records.lock();
        while let Some(expired) = records.expiries.first_entry().filter(|entry| entry.key().0 <= now) {
            let key = expired.remove();
            records.by_key.remove(&key);
        }
        (now, records)
    }
}

impl Records {
    fn put(&mut self, key: &str, value: String, until: Time, counted: HashMap<String, i64>) {
        self.remove(key);
        self.serial += 1;
        let (key, expiry): (Arc<str>, Expiry) = (key.into(), (until, self.serial));
        self.expiries.insert(expiry, Arc::clone(&key));
        self.by_key.insert(key, Record { value, expiry, counted });
    }

    fn remove(&mut self, key: &str) -> Option<Record> {
        let record = self.by_key.remove(key)?;
        self.expiries.remove(&record.expiry);
        Some(record)
    }
}

impl Store for MemoryStore {
    fn get<'a>(&'a self, key: &'a str) -> PortFuture<'a, Option<String>> {
        let value = self.lock().1.by_key.get(key).map(|record| record.value.clone());
        Box::pin(async { Ok(value) })
    }

    fn set<'a>(&'a self, key: &'a str, value: String, ttl: Duration) -> PortFuture<'a, ()> {
        let (now, mut records) = self.lock();
        records.put(key, value, now.after(ttl), HashMap::new());
        Box::pin(async { Ok(()) })
    }

    fn delete<'a>(&'a self, key: &'a str) -> PortFuture<'a, ()> {
        self.lock().1.remove(key);
        Box::pin(async { Ok(()) })
    }

    fn set_if_absent<'a>(&'a self, key: &'a str, value: String, ttl: Duration) -> PortFuture<'a, bool> {
        let (now, mut records) = self.lock();
        let absent = !records.by_key.contains_key(key);
        if absent {
            records.put(key, value, now.after(ttl), HashMap::new());
        }
        Box::pin(async move { Ok(absent) })
    }

    fn increment<'a>(&'a self, key: &'a str, increment: Increment<'a>, ttl: Duration) -> PortFuture<'a, i64> {
        let (now, mut records) = self.lock();
        let before = records.by_key.get(key).map(|record| (record.value.parse::<i64>(), &record.value));
        let value = match before {
            None => 0,
            Some((Ok(value), _)) => value,
            Some((Err(_), value)) => {
                let message = format!("{key:?} holds {value:?}, which is not a number");
                return Box::pin(async { Err(PortError::Refused(message)) });
            }
        };
        let mut counted = records.remove(key).map(|record| record.counted).unwrap_or_default();
        let known = increment.once.and_then(|once| counted.get(once).copied());
        let after = if known.is_some() { value } else { value.saturating_add(increment.by) };
        if let (None, Some(once)) = (known, increment.once) {
            counted.insert(once.to_owned(), after);
        }
        records.put(key, after.to_string(), now.after(ttl), counted);
        Box::pin(async move { Ok(known.unwrap_or(after)) })
    }
}
