//! Records of clients: key-value records of the store under a prefix, apart from internal records.

use crate::broker::Broker;
use towline_domain::kv::{KvAnswer, KvCommand, KvRecord};
use towline_domain::{Refusal, limits};
use towline_store::{KvPage, Operation, Reply, Result, StoreError};

const PREFIX: &str = "kv/";

fn stored(key: &str) -> std::result::Result<String, Refusal> {
    check("key", key, 1)?;
    Ok(format!("{PREFIX}{key}"))
}

fn check(what: &'static str, key: &str, min: usize) -> std::result::Result<(), Refusal> {
    let max = limits::RECORD_KEY_BYTES_MAX;
    if !(min..=max).contains(&key.len()) {
        let message = format!("{} bytes; use {min} to {max}", key.len());
        return Err(Refusal::Invalid { what, message });
    }
    Ok(())
}

impl Broker {
    /// Carries out one command on a record.
    pub async fn kv(&self, key: &str, command: KvCommand) -> Result<std::result::Result<KvAnswer, Refusal>> {
        let key = match stored(key) {
            Ok(key) => key,
            Err(refusal) => return Ok(Err(refusal)),
        };
        match self.update(vec![Operation::Kv { key, command }]).await?.pop() {
            Some(Ok(Reply::Kv(answer))) => Ok(Ok(answer)),
            Some(Err(refusal)) => Ok(Err(refusal)),
            _ => Err(StoreError::Closed),
        }
    }

    pub async fn kv_get(&self, key: &str) -> Result<std::result::Result<Option<KvRecord>, Refusal>> {
        match stored(key) {
            Ok(key) => Ok(Ok(self.store().kv_get(vec![key]).await?.pop().flatten())),
            Err(refusal) => Ok(Err(refusal)),
        }
    }

    /// Records whose keys begin with `prefix`, in byte order of key, after `after`. A page may be smaller than `limit`;
    /// only the last page is empty.
    pub async fn kv_list(
        &self,
        prefix: &str,
        after: Option<&str>,
        limit: usize,
    ) -> Result<std::result::Result<Vec<(String, KvRecord)>, Refusal>> {
        if let Err(refusal) =
            check("prefix", prefix, 0).and_then(|()| check("cursor", after.unwrap_or_default(), 0))
        {
            return Ok(Err(refusal));
        }
        let after = after.map(|after| format!("{PREFIX}{after}"));
        let page = KvPage { prefix: format!("{PREFIX}{prefix}"), after, limit };
        let mut records = self.store().kv_list(page).await?;
        for (key, _) in &mut records {
            key.drain(..PREFIX.len());
        }
        Ok(Ok(records))
    }
}
