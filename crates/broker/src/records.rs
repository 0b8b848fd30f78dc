//! Records of clients: key-value records of the store under a prefix, apart from internal records.

use crate::broker::Broker;
use towline_domain::kv::{KvAnswer, KvCommand, KvRecord};
use towline_domain::{Refusal, limits};
use towline_store::{KvPage, Operation, OperationResult, Reply, StoreError};

/// The prefix of the keys of records of clients.
pub const PREFIX: &str = "kv/";

fn stored(key: &str) -> Result<String, Refusal> {
    check("key", key, 1)?;
    Ok(format!("{PREFIX}{key}"))
}

fn check(what: &'static str, key: &str, min: usize) -> Result<(), Refusal> {
    let max = limits::RECORD_KEY_BYTES_MAX;
    if !(min..=max).contains(&key.len()) {
        let message = format!("{} bytes; use {min} to {max}", key.len());
        return Err(Refusal::Invalid { what, message });
    }
    Ok(())
}

impl Broker {
    /// Carries out one command on a record.
    pub async fn kv(&self, key: &str, command: KvCommand) -> OperationResult<KvAnswer> {
        self.kv_all(vec![(key.to_owned(), command)]).await?.pop().unwrap_or(Err(StoreError::Closed.into()))
    }

    /// Carries out commands on records, in order. Each has its own result.
    pub async fn kv_all(
        &self,
        commands: Vec<(String, KvCommand)>,
    ) -> Result<Vec<OperationResult<KvAnswer>>, StoreError> {
        let mut batch = Vec::with_capacity(commands.len());
        let checked: Vec<Result<(), Refusal>> = commands
            .into_iter()
            .map(|(key, command)| {
                batch.push(Operation::Kv { key: stored(&key)?, command });
                Ok(())
            })
            .collect();
        let answers = if batch.is_empty() { Vec::new() } else { self.update(batch).await? };
        let mut answers = answers.into_iter();
        let mut answer = || match answers.next() {
            Some(Ok(Reply::Kv(answer))) => Ok(answer),
            Some(Err(error)) => Err(error),
            _ => Err(StoreError::Closed.into()),
        };
        Ok(checked.into_iter().map(|checked| checked.map_err(Into::into).and_then(|()| answer())).collect())
    }

    pub async fn kv_get(&self, key: &str) -> OperationResult<Option<KvRecord>> {
        Ok(self.store().kv_get(vec![stored(key)?]).await?.pop().flatten())
    }

    /// Records whose keys begin with `prefix`, in byte order of key, after `after`. A page may be smaller than `limit`;
    /// only the last page is empty.
    pub async fn kv_list(
        &self,
        prefix: &str,
        after: Option<&str>,
        limit: usize,
    ) -> OperationResult<Vec<(String, KvRecord)>> {
        check("prefix", prefix, 0)?;
        check("cursor", after.unwrap_or_default(), 0)?;
        let after = after.map(|after| format!("{PREFIX}{after}"));
        let page = KvPage { prefix: format!("{PREFIX}{prefix}"), after, limit };
        let mut records = self.store().kv_list(page).await?;
        for (key, _) in &mut records {
            key.drain(..PREFIX.len());
        }
        Ok(records)
    }
}
