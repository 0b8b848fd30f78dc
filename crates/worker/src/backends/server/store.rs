//! The store: key-value records of the server.

use super::{port_error, span};
use crate::ports::{Increment, PortFuture, Store};
use std::time::Duration;
use towline_api::{Client, IncrementRecord, SetRecord};

pub(super) struct RecordStore(pub(super) Client);

impl Store for RecordStore {
    fn get<'a>(&'a self, key: &'a str) -> PortFuture<'a, Option<String>> {
        Box::pin(async move {
            let record = self.0.record(key).await.map_err(|error| port_error(&error))?;
            Ok(record.map(|record| record.value))
        })
    }

    fn set<'a>(&'a self, key: &'a str, value: String, ttl: Duration) -> PortFuture<'a, ()> {
        Box::pin(async move {
            let body = SetRecord { value, ttl: Some(span(ttl)), if_absent: false, if_value: None };
            self.0.set_record(key, &body).await.map(drop).map_err(|error| port_error(&error))
        })
    }

    fn delete<'a>(&'a self, key: &'a str) -> PortFuture<'a, ()> {
        Box::pin(async move { self.0.delete_record(key).await.map(drop).map_err(|error| port_error(&error)) })
    }

    fn set_if_absent<'a>(&'a self, key: &'a str, value: String, ttl: Duration) -> PortFuture<'a, bool> {
        Box::pin(async move {
            let body = SetRecord { value, ttl: Some(span(ttl)), if_absent: true, if_value: None };
            self.0.set_record(key, &body).await.map_err(|error| port_error(&error))
        })
    }

    fn increment<'a>(&'a self, key: &'a str, increment: Increment<'a>, ttl: Duration) -> PortFuture<'a, i64> {
        Box::pin(async move {
            let once = increment.once.map(str::to_owned);
            let body = IncrementRecord { by: Some(increment.by), once, ttl: Some(span(ttl)) };
            self.0.increment_record(key, &body).await.map_err(|error| port_error(&error))
        })
    }
}
