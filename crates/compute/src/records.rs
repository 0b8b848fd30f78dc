//! Definitions as key-value records of the store, in JSON.
//!
//! **Invariant:** a record is replaced only if it has not changed since it was read.

use crate::Result;
use bytes::Bytes;
use serde::Serialize;
use serde::de::DeserializeOwned;
use std::marker::PhantomData;
use towline_broker::Broker;
use towline_broker::store::{KvPage, Operation, Reply, StoreError};
use towline_domain::Millis;
use towline_domain::kv::{KvAnswer, KvCommand};

/// Attempts of a change, if other changes come first.
pub(crate) const TRIES: usize = 32;

/// Records of one type under one prefix.
pub(crate) struct Records<'a, T> {
    broker: &'a Broker,
    prefix: &'static str,
    kind: PhantomData<T>,
}

/// A record, and the stored bytes that a replacement compares.
#[derive(Debug, Clone)]
pub(crate) struct Seen<T> {
    pub(crate) value: T,
    pub(crate) bytes: Bytes,
}

impl<'a, T: Serialize + DeserializeOwned> Records<'a, T> {
    pub(crate) fn new(broker: &'a Broker, prefix: &'static str) -> Records<'a, T> {
        Records { broker, prefix, kind: PhantomData }
    }

    fn key(&self, name: &str) -> String {
        format!("{}{name}", self.prefix)
    }

    fn decode(&self, name: &str, bytes: Bytes) -> std::result::Result<Seen<T>, StoreError> {
        match serde_json::from_slice(&bytes) {
            Ok(value) => Ok(Seen { value, bytes }),
            Err(error) => {
                let file = format!("record {}{name}", self.prefix);
                Err(StoreError::Corrupt { file, what: error.to_string() })
            }
        }
    }

    pub(crate) async fn get(&self, name: &str) -> Result<Option<Seen<T>>> {
        let found = self.broker.store().kv_get(vec![self.key(name)]).await?.pop().flatten();
        Ok(found.map(|record| self.decode(name, record.value)).transpose()?)
    }

    /// Of each name, in the same order.
    pub(crate) async fn get_all(&self, names: &[String]) -> Result<Vec<Option<T>>> {
        let keys = names.iter().map(|name| self.key(name)).collect();
        let found = self.broker.store().kv_get(keys).await?;
        let read = |(name, record): (&String, Option<towline_domain::kv::KvRecord>)| {
            Ok(record.map(|record| self.decode(name, record.value)).transpose()?.map(|seen| seen.value))
        };
        names.iter().zip(found).map(read).collect()
    }

    /// In order of name, after `after`. The second value is where the next page begins. A record that does not decode is
    /// logged and left out.
    pub(crate) async fn page(
        &self,
        after: Option<&str>,
        limit: usize,
    ) -> Result<(Vec<(String, T)>, Option<String>)> {
        let mut found = Vec::new();
        let mut after = after.map(|name| self.key(name));
        while found.len() < limit {
            let page = KvPage { prefix: self.prefix.to_owned(), after, limit: limit - found.len() };
            let records = self.broker.store().kv_list(page).await?;
            let Some((last, _)) = records.last() else { return Ok((found, None)) };
            after = Some(last.clone());
            for (key, record) in records {
                let name = key[self.prefix.len()..].to_owned();
                match self.decode(&name, record.value) {
                    Ok(seen) => found.push((name, seen.value)),
                    Err(error) => tracing::error!("{error}"),
                }
            }
        }
        Ok((found, after.map(|key| key[self.prefix.len()..].to_owned())))
    }

    pub(crate) async fn all(&self) -> Result<Vec<(String, T)>> {
        Ok(self.page(None, usize::MAX).await?.0)
    }

    /// Writes the record, or deletes it without `after`, if it is still what was seen. Says whether it was.
    pub(crate) async fn replace(&self, name: &str, seen: Option<Bytes>, after: Option<&T>) -> Result<bool> {
        let value = after.map(encode).transpose()?;
        match self.run(name, KvCommand::Replace { seen, value, ttl: None }).await? {
            KvAnswer::Won(won) => Ok(won),
            _ => Err(StoreError::Closed.into()),
        }
    }

    pub(crate) async fn set(&self, name: &str, value: &T, ttl: Option<Millis>) -> Result<()> {
        self.run(name, KvCommand::Set { value: encode(value)?, ttl }).await.map(drop)
    }

    pub(crate) async fn delete(&self, name: &str) -> Result<()> {
        self.run(name, KvCommand::Delete).await.map(drop)
    }

    async fn run(&self, name: &str, command: KvCommand) -> Result<KvAnswer> {
        match self.broker.update(vec![Operation::Kv { key: self.key(name), command }]).await?.pop() {
            Some(Ok(Reply::Kv(answer))) => Ok(answer),
            Some(Err(error)) => Err(error.into()),
            _ => Err(StoreError::Closed.into()),
        }
    }
}

fn encode<T: Serialize>(value: &T) -> std::result::Result<Bytes, StoreError> {
    let written = serde_json::to_vec(value);
    written.map(Bytes::from).map_err(|error| StoreError::Unavailable { cause: error.to_string() })
}

/// The error of a change that other changes kept preventing.
pub(crate) fn contended(what: &str) -> StoreError {
    StoreError::Unavailable { cause: format!("{what} keeps changing; try again") }
}
