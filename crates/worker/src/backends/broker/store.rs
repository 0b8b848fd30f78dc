//! The store: key-value records of clients.

use super::{millis, port_error};
use crate::ports::{Increment, PortError, PortFuture, Store};
use std::time::Duration;
use towline_broker::Broker;
use towline_domain::kv::{KvAnswer, KvCommand};

pub(super) struct BrokerStore(pub(super) Broker);

impl BrokerStore {
    async fn update(&self, key: &str, command: KvCommand) -> Result<KvAnswer, PortError> {
        self.0.kv(key, command).await.map_err(|error| port_error(&error))
    }
}

/// The contract of the store excludes this answer. It guards against a bug of the store.
fn unexpected() -> PortError {
    PortError::Refused("unexpected reply type from the store".to_owned())
}

impl Store for BrokerStore {
    fn get<'a>(&'a self, key: &'a str) -> PortFuture<'a, Option<String>> {
        Box::pin(async move {
            let found = self.0.kv_get(key).await.map_err(|error| port_error(&error))?;
            let Some(record) = found else { return Ok(None) };
            let text = String::from_utf8(record.value.to_vec());
            text.map(Some).map_err(|_| PortError::Refused(format!("the value of {key:?} is not UTF-8")))
        })
    }

    fn set<'a>(&'a self, key: &'a str, value: String, ttl: Duration) -> PortFuture<'a, ()> {
        Box::pin(async move {
            let ttl = Some(millis(ttl));
            self.update(key, KvCommand::Set { value: value.into(), ttl }).await.map(drop)
        })
    }

    fn delete<'a>(&'a self, key: &'a str) -> PortFuture<'a, ()> {
        Box::pin(async move { self.update(key, KvCommand::Delete).await.map(drop) })
    }

    fn set_if_absent<'a>(&'a self, key: &'a str, value: String, ttl: Duration) -> PortFuture<'a, bool> {
        Box::pin(async move {
            let ttl = Some(millis(ttl));
            match self.update(key, KvCommand::SetIfAbsent { value: value.into(), ttl }).await? {
                KvAnswer::Won(won) => Ok(won),
                _ => Err(unexpected()),
            }
        })
    }

    fn increment<'a>(&'a self, key: &'a str, increment: Increment<'a>, ttl: Duration) -> PortFuture<'a, i64> {
        Box::pin(async move {
            let (by, ttl) = (increment.by, millis(ttl));
            let command = match increment.once {
                Some(once) => KvCommand::IncrementOnce { by, once: once.to_owned(), ttl },
                None => KvCommand::Increment { by, ttl: Some(ttl) },
            };
            match self.update(key, command).await? {
                KvAnswer::Number(number) => Ok(number),
                _ => Err(unexpected()),
            }
        })
    }
}
