//! Keys and values: the server's records.

use super::{failed, span};
use crate::ports::{Answer, Count, Store};
use std::time::Duration;
use towline_api::{Client, IncrementRecord, SetRecord};

pub(super) struct RecordStore(pub(super) Client);

impl Store for RecordStore {
    fn get<'a>(&'a self, key: &'a str) -> Answer<'a, Option<String>> {
        Box::pin(async move {
            let record = self.0.record(key).await.map_err(|error| failed(&error))?;
            Ok(record.map(|record| record.value))
        })
    }

    fn set<'a>(&'a self, key: &'a str, value: String, ttl: Duration) -> Answer<'a, ()> {
        Box::pin(async move {
            let body = SetRecord { value, ttl: Some(span(ttl)), if_absent: false };
            self.0.set_record(key, &body).await.map(drop).map_err(|error| failed(&error))
        })
    }

    fn delete<'a>(&'a self, key: &'a str) -> Answer<'a, ()> {
        Box::pin(async move { self.0.delete_record(key).await.map(drop).map_err(|error| failed(&error)) })
    }

    fn set_if_absent<'a>(&'a self, key: &'a str, value: String, ttl: Duration) -> Answer<'a, bool> {
        Box::pin(async move {
            let body = SetRecord { value, ttl: Some(span(ttl)), if_absent: true };
            self.0.set_record(key, &body).await.map_err(|error| failed(&error))
        })
    }

    fn increment<'a>(&'a self, key: &'a str, count: Count<'a>, ttl: Duration) -> Answer<'a, i64> {
        Box::pin(async move {
            let once = count.once.map(str::to_owned);
            let body = IncrementRecord { by: Some(count.by), once, ttl: Some(span(ttl)) };
            self.0.increment_record(key, &body).await.map_err(|error| failed(&error))
        })
    }
}
