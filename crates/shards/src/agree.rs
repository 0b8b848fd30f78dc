//! What shards must agree on: every queue is in every shard, and every key-value record is where it is looked for.

use crate::{Shard, Shards};
use std::collections::BTreeMap;
use towline_domain::kv::{self, KvCommand, KvRecord};
use towline_domain::{Queue, QueueName, QueueState, limits};
use towline_store::{KvPage, Operation, Store, StoreError};

impl Shards {
    /// Makes every queue in every shard that answers, and brings records home: a shard may be new, or was gone when a queue
    /// was made. To be called at the start, before anything else is asked.
    ///
    /// # Errors
    /// If no shard answers, or one refuses a queue or a record.
    pub async fn agree(&self) -> Result<(), StoreError> {
        self.share_queues().await?;
        self.bring_records_home().await
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

    /// A shard that is added at the end is the home of some records that were written before. What is there at home
    /// already is newer, and stays.
    async fn bring_records_home(&self) -> Result<(), StoreError> {
        for (at, shard) in self.shards.iter().enumerate().filter(|(_, shard)| shard.health.is_up()) {
            let mut page = KvPage { prefix: String::new(), after: None, limit: limits::KV_PAGE_MAX };
            loop {
                let records = shard.seen(shard.store.kv_list(page.clone()).await)?;
                let Some((last, _)) = records.last() else { break };
                page.after = Some(last.clone());
                for (key, record) in records {
                    let home = &self.shards[self.of_text(&key)];
                    // What a counter has counted is beside it, under a name that does not tell whose it is.
                    if self.of_text(&key) != at && home.health.is_up() && !key.starts_with(kv::MARKS) {
                        shard.bring(home, key, record).await?;
                    }
                }
            }
        }
        Ok(())
    }
}

impl Shard {
    async fn bring(&self, home: &Shard, key: String, record: KvRecord) -> Result<(), StoreError> {
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
        for answered in self.seen(self.store.update(operations).await)? {
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
