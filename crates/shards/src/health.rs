//! Which shards answer. One that does not is left alone until a probe finds it again, so that nobody waits for it twice.

use crate::{Shard, Shards};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Mutex, PoisonError};
use towline_domain::{Queue, QueueName, QueueState, limits};
use towline_store::{BoxFuture, Operation, Store, StoreError};

/// What is wrong, if something is.
#[derive(Debug, Default)]
pub(crate) struct Health(Mutex<Option<String>>);

/// A shard as it was last seen.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ShardHealth {
    pub name: String,
    /// Why it is left alone; `None`: it is not.
    pub gone: Option<String>,
}

impl Health {
    pub(crate) fn is_up(&self) -> bool {
        self.gone().is_none()
    }

    pub(crate) fn gone(&self) -> Option<String> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    fn set(&self, gone: Option<String>) {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) = gone;
    }
}

impl Shard {
    /// Takes a result for a sign of life, or of its absence.
    pub(crate) fn seen<T>(&self, result: Result<T, StoreError>) -> Result<T, StoreError> {
        if let Err(
            error @ (StoreError::Unavailable { .. } | StoreError::Poisoned { .. } | StoreError::Closed),
        ) = &result
            && self.health.is_up()
        {
            tracing::warn!(shard = self.name, "a shard is gone: {error}");
            self.health.set(Some(error.to_string()));
        }
        result
    }

    /// Lets it answer, unless it is gone.
    pub(crate) async fn ask<'a, T>(
        &'a self,
        ask: impl FnOnce(&'a dyn Store) -> BoxFuture<'a, Result<T, StoreError>>,
    ) -> Result<T, StoreError> {
        match self.health.gone() {
            Some(cause) => Err(StoreError::Unavailable { cause: self.unavailable(&cause) }),
            None => self.seen(ask(&*self.store).await),
        }
    }

    /// Said of whatever is in a shard that is gone.
    pub(crate) fn unavailable(&self, cause: &str) -> String {
        format!("shard {}: {cause}", self.name)
    }
}

impl Shards {
    #[must_use]
    pub fn health(&self) -> Vec<ShardHealth> {
        let of = |shard: &Shard| ShardHealth { name: shard.name.clone(), gone: shard.health.gone() };
        self.shards.iter().map(of).collect()
    }

    /// Asks those that are gone whether they are back, and gives those that are the queues they missed. To be called every
    /// now and then.
    pub async fn probe(&self) {
        let mut back = false;
        for shard in self.shards.iter().filter(|shard| !shard.health.is_up()) {
            if shard.store.queues(None, 1).await.is_ok() {
                tracing::info!(shard = shard.name, "a shard is back");
                shard.health.set(None);
                back = true;
            }
        }
        if back && let Err(error) = self.agree().await {
            tracing::warn!("the queues of all shards could not be compared: {error}");
        }
    }

    /// Makes every queue in every shard that answers: one may be new, or was gone when a queue was made. To be called at the
    /// start.
    ///
    /// # Errors
    /// If no shard answers, or one refuses a queue. Queues that are there already are not compared.
    pub async fn agree(&self) -> Result<(), StoreError> {
        let mut known: BTreeMap<QueueName, Queue> = BTreeMap::new();
        let mut up: Vec<(&Shard, BTreeSet<QueueName>)> = Vec::new();
        let mut gone = None;
        for shard in self.shards.iter().filter(|shard| shard.health.is_up()) {
            match shard.seen(all_queues(&*shard.store).await) {
                Ok(queues) => {
                    up.push((shard, queues.iter().map(|queue| queue.name.clone()).collect()));
                    for queue in queues {
                        known.entry(queue.name.clone()).or_insert(queue);
                    }
                }
                Err(error) => gone = Some(error),
            }
        }
        if let (true, Some(error)) = (up.is_empty(), gone) {
            return Err(error);
        }
        for (shard, theirs) in up {
            for (name, queue) in known.iter().filter(|(name, _)| !theirs.contains(*name)) {
                tracing::info!(shard = shard.name, queue = %name, "a queue is made in a shard that did not have it");
                for answered in shard.seen(shard.store.update(made_like(queue)).await)? {
                    answered.map_err(|refusal| {
                        let cause = shard.unavailable(&format!("queue {name}: {refusal}"));
                        StoreError::Unavailable { cause }
                    })?;
                }
            }
        }
        Ok(())
    }
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
