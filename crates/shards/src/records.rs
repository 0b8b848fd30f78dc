//! Moves key-value records to the shard that their key routes to, after a shard was added.

use crate::{Shard, Shards};
use towline_domain::kv::{self, KvCommand};
use towline_domain::limits;
use towline_store::{KvPage, Operation, StoreError};

/// A record in each shard: the number of shards for which its records were placed.
const PLACED_FOR: &str = "\0shards";

impl Shards {
    /// Whether the records of every shard that is up were placed for the current number of shards.
    pub(crate) async fn records_are_placed(&self) -> bool {
        for shard in self.shards.iter().filter(|shard| shard.health.is_up()) {
            let found = shard.observe(shard.store.kv_get(vec![PLACED_FOR.to_owned()]).await);
            let count = found.ok().and_then(|found| found.into_iter().next().flatten());
            if count.is_none_or(|record| record.value != self.shards.len().to_string()) {
                return false;
            }
        }
        true
    }

    /// Moves every record to the shard that its key routes to.
    ///
    /// A new shard takes over some of the existing keys, and a server that does not know the new shard keeps writing
    /// these keys elsewhere. So the server calls this from time to time. It reads all records, which may take long. It
    /// logs failures, and the next call tries again.
    pub async fn place_records(&self) {
        let mut complete = self.shards.iter().all(|shard| shard.health.is_up());
        for (index, shard) in self.shards.iter().enumerate().filter(|(_, shard)| shard.health.is_up()) {
            match self.place_records_of(index, shard).await {
                Ok(all_placed) => complete &= all_placed,
                Err(error) => {
                    tracing::warn!(shard = shard.name, "the records of a shard could not be moved: {error}");
                    complete = false;
                }
            }
        }
        if !complete {
            return;
        }
        for shard in &self.shards {
            let value = self.shards.len().to_string().into();
            let command = KvCommand::Set { value, ttl: None };
            let operation = Operation::Kv { key: PLACED_FOR.to_owned(), command };
            if let Err(error) = shard.update_all(vec![operation], "the number of shards").await {
                tracing::warn!(shard = shard.name, "{error}");
            }
        }
    }

    /// Returns whether all records of the shard are in their place now. A record that its target shard already has is
    /// newer and stays.
    async fn place_records_of(&self, index: usize, shard: &Shard) -> Result<bool, StoreError> {
        let mut page = KvPage { prefix: String::new(), after: None, limit: limits::KV_PAGE_MAX };
        let mut all_placed = true;
        loop {
            let records = shard.observe(shard.store.kv_list(page.clone()).await)?;
            let Some((last, _)) = records.last() else { return Ok(all_placed) };
            page.after = Some(last.clone());
            for (key, _) in records {
                let target = self.shard_of_text(&key);
                // The marks of a counter stay beside the counter, and their keys do not say which counter that is.
                if target == index || key == PLACED_FOR || key.starts_with(kv::MARKS) {
                    continue;
                }
                let target = &self.shards[target];
                if !target.health.is_up() {
                    all_placed = false;
                } else if let Err(error) = shard.move_record(target, key).await {
                    tracing::warn!("{error}");
                    all_placed = false;
                }
            }
        }
    }
}

impl Shard {
    async fn move_record(&self, target: &Shard, key: String) -> Result<(), StoreError> {
        // Read again: since the listing, another server may have moved the record and a client may have deleted it.
        let found = self.call(|store| store.kv_get(vec![key.clone()])).await?;
        let Some(record) = found.into_iter().next().flatten() else { return Ok(()) };
        tracing::info!(from = self.name, to = target.name, key, "moving a record to its shard");
        let subject = format!("key {key:?}");
        let seen = Some(record.value.clone());
        let adopt = Operation::Kv { key: key.clone(), command: KvCommand::Adopt(record) };
        target.update_all(vec![adopt], &subject).await?;
        let remove = KvCommand::Replace { seen, value: None, ttl: None };
        self.update_all(vec![Operation::Kv { key, command: remove }], &subject).await
    }
}
