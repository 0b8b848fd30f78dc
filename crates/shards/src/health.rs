//! Which shards answer. One that does not is left alone until a probe finds it again, so that nobody waits for it twice.

use crate::{Shard, Shards};
use std::sync::{Mutex, PoisonError};
use towline_store::{BoxFuture, Store, StoreError};

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

    /// Asks those that are gone whether they are back, and gives those that are what they missed. To be called every
    /// now and then. Whether one is back.
    pub async fn probe(&self) -> bool {
        let mut back = false;
        for shard in self.shards.iter().filter(|shard| !shard.health.is_up()) {
            if shard.store.queues(None, 1).await.is_ok() {
                tracing::info!(shard = shard.name, "a shard is back");
                shard.health.set(None);
                back = true;
            }
        }
        if back && let Err(error) = self.agree().await {
            tracing::warn!("shards could not be made to agree: {error}");
        }
        back
    }
}
