//! Keys and values: the records that callers keep.

use super::{millis, refused, unavailable};
use crate::ports::{Answer, Count, PortError, Store};
use std::time::Duration;
use towline_broker::Broker;
use towline_domain::kv::{KvAnswer, KvCommand};

pub(super) struct BrokerStore(pub(super) Broker);

impl BrokerStore {
    async fn ask(&self, key: &str, command: KvCommand) -> Result<KvAnswer, PortError> {
        self.0.kv(key, command).await.map_err(unavailable)?.map_err(|refusal| refused(&refusal))
    }
}

/// The store answered something that was not asked. Its contract is tested; this is for the day it is broken.
fn unexpected() -> PortError {
    PortError::Refused("the store gave an answer to another question".to_owned())
}

impl Store for BrokerStore {
    fn get<'a>(&'a self, key: &'a str) -> Answer<'a, Option<String>> {
        Box::pin(async move {
            let found =
                self.0.kv_get(key).await.map_err(unavailable)?.map_err(|refusal| refused(&refusal))?;
            let Some(record) = found else { return Ok(None) };
            let text = String::from_utf8(record.value.to_vec());
            text.map(Some).map_err(|_| PortError::Refused(format!("the value of {key:?} is not text")))
        })
    }

    fn set<'a>(&'a self, key: &'a str, value: String, ttl: Duration) -> Answer<'a, ()> {
        Box::pin(async move {
            let ttl = Some(millis(ttl));
            self.ask(key, KvCommand::Set { value: value.into(), ttl }).await.map(drop)
        })
    }

    fn delete<'a>(&'a self, key: &'a str) -> Answer<'a, ()> {
        Box::pin(async move { self.ask(key, KvCommand::Delete).await.map(drop) })
    }

    fn set_if_absent<'a>(&'a self, key: &'a str, value: String, ttl: Duration) -> Answer<'a, bool> {
        Box::pin(async move {
            let ttl = Some(millis(ttl));
            match self.ask(key, KvCommand::SetIfAbsent { value: value.into(), ttl }).await? {
                KvAnswer::Won(won) => Ok(won),
                _ => Err(unexpected()),
            }
        })
    }

    fn increment<'a>(&'a self, key: &'a str, count: Count<'a>, ttl: Duration) -> Answer<'a, i64> {
        Box::pin(async move {
            let (by, ttl) = (count.by, millis(ttl));
            let command = match count.once {
                Some(once) => KvCommand::IncrementOnce { by, once: once.to_owned(), ttl },
                None => KvCommand::Increment { by, ttl: Some(ttl) },
            };
            match self.ask(key, command).await? {
                KvAnswer::Number(number) => Ok(number),
                _ => Err(unexpected()),
            }
        })
    }
}
