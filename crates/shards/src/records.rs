//! What shards must agree on: every queue is in every shard, and every key-value record is where it is looked for.

use crate::{Shard, Shards};
use std::collections::BTreeMap;
use towline_domain::kv::{self, KvCommand};
use towline_domain::{Queue, QueueName, QueueState, limits};
use towline_store::{KvPage, Operation, Store, StoreError};

impl Shards {
    /// Makes every queue in every shard that answers, and brings records home if there are more shards than when that was
    /// done last: a shard may be new, or was gone when a queue was made. To be called at the start, before anything else is
    /// asked.
    ///
    /// # Errors
    /// If no shard answers, or one refuses a queue.
    pub async fn agree(&self) -> Result<(), StoreError> {
        self.share_queues().await?;
        if !self.is_arranged().await {
            self.tidy().await;
        }
        Ok(())
    }

    /// Whether all that answer say that their records were arranged for as many shards as there are.
    async fn is_arranged(&self) -> bool {
        for shard in self.shards.iter().filter(|shard| shard.health.is_up()) {
            let found = shard.seen(shard.store.kv_get(vec![ARRANGED.to_owned()]).await);
            let count = found.ok().and_then(|found| found.into_iter().next().flatten());
            if count.is_none_or(|record| record.value != self.shards.len().to_string()) {
                return false;
            }
        }
        true
    }

    async fn share_queues(&self) -> Result<(), StoreError> {
        let mut known: BTreeMap<QueueName, (&Shard, Queue)> = BTreeMap::new();
        let mut up: Vec<(&Shard, BTreeMap<QueueName, Queue>)> = Vec::new();
        let mut gone = None;
        for shard in self.shards.iter().filter(|shard| shard.health.is_up()) {
            match shard.seen(all_queues(&*shard.store).await) {
                Ok(queues) => {
                    for queue in &queues {
                        known.entry(queue.name.clone()).or_insert_with(|| (shard, queue.clone()));
                    }
                    up.push((shard, queues.into_iter().map(|queue| (queue.name.clone(), queue)).collect()));
                }
                Err(error) => gone = Some(error),
            }
        }
        if let (true, Some(error)) = (up.is_empty(), gone) {
            return Err(error);
        }
        for (shard, theirs) in up {
            for (name, (first, queue)) in &known {
                let Some(there) = theirs.get(name) else {
                    tracing::info!(shard = shard.name, queue = %name, "a queue is made in a shard that did not have it");
                    shard.carry_out(made_like(queue), &format!("queue {name}")).await?;
                    continue;
                };
                let unlike = unlike(queue, there);
                if !unlike.is_empty() {
                    // Which of them is meant nobody here can know: it was changed while one of them was gone.
                    tracing::warn!(
                        queue = %name,
                        shards = format!("{}, {}", first.name, shard.name),
                        "a queue is not the same in two shards ({}): say again what it shall be",
                        unlike.join(", ")
                    );
                }
            }
        }
        Ok(())
    }

    /// Brings every record to where it is looked for. A shard that is added at the end is the home of some that were written
    /// before, and a server that does not know it yet goes on writing them elsewhere: so it is to be called now and then. It
    /// reads all records, which may take long; whatever goes wrong with one is logged, and another time is as good.
    pub async fn tidy(&self) {
        let mut all = self.shards.iter().all(|shard| shard.health.is_up());
        for (at, shard) in self.shards.iter().enumerate().filter(|(_, shard)| shard.health.is_up()) {
            match self.bring_home_from(at, shard).await {
                Ok(whole) => all &= whole,
                Err(error) => {
                    tracing::warn!(shard = shard.name, "records could not be brought home: {error}");
                    all = false;
                }
            }
        }
        if !all {
            return;
        }
        for shard in &self.shards {
            let value = self.shards.len().to_string().into();
            let arranged = KvCommand::Set { value, ttl: None };
            let arranged = vec![Operation::Kv { key: ARRANGED.to_owned(), command: arranged }];
            if let Err(error) = shard.carry_out(arranged, "how many shards there are").await {
                tracing::warn!(shard = shard.name, "{error}");
            }
        }
    }

    /// Whether all of them are where they belong now. What is there at home already is newer, and stays.
    async fn bring_home_from(&self, at: usize, shard: &Shard) -> Result<bool, StoreError> {
        let mut page = KvPage { prefix: String::new(), after: None, limit: limits::KV_PAGE_MAX };
        let mut whole = true;
        loop {
            let records = shard.seen(shard.store.kv_list(page.clone()).await)?;
            let Some((last, _)) = records.last() else { return Ok(whole) };
            page.after = Some(last.clone());
            for (key, _) in records {
                let home = self.of_text(&key);
                // What a counter has counted is beside it, under a name that does not tell whose it is.
                if home == at || key == ARRANGED || key.starts_with(kv::MARKS) {
                    continue;
                }
                let home = &self.shards[home];
                if !home.health.is_up() {
                    whole = false;
                } else if let Err(error) = shard.bring(home, key).await {
                    tracing::warn!("{error}");
                    whole = false;
                }
            }
        }
    }
}

/// A record of each shard: for how many its records are arranged.
const ARRANGED: &str = "\0shards";

impl Shard {
    async fn bring(&self, home: &Shard, key: String) -> Result<(), StoreError> {
        // It was seen a while ago. Another server may have brought it home since, and there it may have been deleted.
        let found = self.ask(|store| store.kv_get(vec![key.clone()])).await?;
        let Some(record) = found.into_iter().next().flatten() else { return Ok(()) };
        tracing::info!(from = self.name, to = home.name, key, "a record is brought home");
        let what = format!("key {key:?}");
        let seen = Some(record.value.clone());
        let adopt = Operation::Kv { key: key.clone(), command: KvCommand::Adopt(record) };
        home.carry_out(vec![adopt], &what).await?;
        let forget = KvCommand::Replace { seen, value: None, ttl: None };
        self.carry_out(vec![Operation::Kv { key, command: forget }], &what).await
    }

    /// All of it, or it is told what was refused.
    async fn carry_out(&self, operations: Vec<Operation>, what: &str) -> Result<(), StoreError> {
        for answered in self.ask(|store| store.update(operations)).await? {
            answered.map_err(|refusal| StoreError::Unavailable {
                cause: self.unavailable(&format!("{what}: {refusal}")),
            })?;
        }
        Ok(())
    }
}

/// What an operator could have changed.
fn unlike(one: &Queue, other: &Queue) -> Vec<&'static str> {
    let mut unlike = one.policy.differences(&other.policy);
    unlike.extend((one.schema != other.schema).then_some("schema"));
    unlike.extend((one.paused != other.paused).then_some("paused"));
    unlike.extend(((one.state == QueueState::Open) != (other.state == QueueState::Open)).then_some("closed"));
    unlike
}

async fn all_queues(store: &dyn Store) -> Result<Vec<Queue>, StoreError> {
    let mut all: Vec<Queue> = Vec::new();
    loop {
        let after = all.last().map(|queue| queue.name.clone());
        let page = store.queues(after, limits::PAGE_MAX).await?;
        if page.is_empty() {
            return Ok(all);
        }
        all.extend(page.into_iter().map(|view| view.queue));
    }
}

fn made_like(like: &Queue) -> Vec<Operation> {
    let queue = || like.name.clone();
    let (schema, policy) = (Box::new(like.schema.clone()), Box::new(like.policy.clone()));
    let mut operations = vec![Operation::CreateQueue { queue: queue(), schema, policy }];
    if like.paused {
        operations.push(Operation::PauseQueue { queue: queue() });
    }
    if like.state != QueueState::Open {
        operations.push(Operation::CloseQueue { queue: queue() });
    }
    operations
}
